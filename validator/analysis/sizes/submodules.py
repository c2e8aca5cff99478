"""Which modules the model classes of a project hold, and under which names.

Read from the syntax: the files of models often name nothing that other analyses ask for, and have few facts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.facts.text import path_of
from validator.flow.queries.outside_program import is_aside
from validator.project import ClassDef, Project

_BASES = frozenset({"torch.nn.Module", "torch.nn.modules.module.Module"})
_ADDING = frozenset({"setattr", "add_module", "register_module"})


class ModelClass(NamedTuple):
    """A `torch.nn.Module` of the project of which everything is known: its attributes, each with what makes it."""

    cls: ClassDef
    made: dict[str, list[ast.expr]]

    @property
    def name(self) -> str:
        return self.cls.name

    @property
    def linear(self) -> frozenset[str]:
        """The linear layers that it holds."""
        makers = {
            name: [path_of(v.func) for v in values if isinstance(v, ast.Call)] for name, values in self.made.items()
        }
        return frozenset(n for n, paths in makers.items() if any(path.endswith("Linear") for path in paths))


class Submodules:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def at(self, name: str) -> tuple[ModelClass, ...]:
        """The classes of what is held as `self.<name>`; none where one of its holders does not tell."""
        found: dict[ClassDef, ModelClass] = {}
        for holder in self._classes.values():
            for value in holder.made.get(name, ()):
                if isinstance(value, ast.Constant) and value.value is None:
                    continue
                cls = self._class(holder, value)
                if cls is None:
                    return ()
                found[cls.cls] = cls
        return () if found and self._held_elsewhere(name) else tuple(found.values())

    def _held_elsewhere(self, name: str) -> bool:
        """Whether a class of which not everything is known may hold something by this name."""
        for cls in self.project.classes():
            if cls not in self._classes and f"self.{name}" in cls.module.source.text and not is_aside(cls.path):
                made = _made(cls)
                if made is None or name in made:
                    return True
        return False

    def _class(self, holder: ModelClass, value: ast.expr) -> ModelClass | None:
        function = next(holder.cls.every_method(), None)
        if not isinstance(value, ast.Call) or function is None:
            return None
        symbol = self.project.lookup(function, path_of(value.func))
        return self._classes.get(symbol) if isinstance(symbol, ClassDef) else None

    @cached_property
    def _classes(self) -> dict[ClassDef, ModelClass]:
        found = {}
        for cls in self.project.classes():
            if "nn." in cls.module.source.text and not is_aside(cls.path) and _is_module(cls):
                made = _made(cls)
                if made is not None:
                    found[cls] = ModelClass(cls, made)
        return found


def _is_module(cls: ClassDef) -> bool:
    return bool(cls.external_bases) and set(cls.external_bases) <= _BASES


def _made(cls: ClassDef) -> dict[str, list[ast.expr]] | None:
    """What the methods of a class, and of its bases, bind to `self`; None where a name may be computed."""
    made: dict[str, list[ast.expr]] = {}
    for method in (method for owner in cls.mro for method in owner.every_method()):
        node = method.node if method.name not in ("<module>", "<class>") else None
        for child in ast.walk(node) if node is not None else ():
            if isinstance(child, ast.Call) and path_of(child.func).rpartition(".")[2] in _ADDING:
                return None
            for name, value in _bound(child):
                made.setdefault(name, []).append(value)
    return made


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets, value = [node.target], node.value
    else:
        return
    for target in targets:
        for each in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self":
                yield each.attr, value

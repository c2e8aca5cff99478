"""Configurations that a program reads itself from a YAML file and lays `key=value` words of its command line over.

In the manner of NeMo RL: `parse_known_args` leaves the words over, the file of `--config` is laid over those that its
`defaults` name, and a function that makes the result strict (`OmegaConf.set_struct`) before it applies the words
refuses keys that are not there.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from validator.analysis.commands.fields import Field
from validator.analysis.commands.launch import Launch, arguments_of
from validator.facts.text import path_of
from validator.files.naming import paths_around
from validator.flow.objects import Objects
from validator.project import Method, Module, Project

if TYPE_CHECKING:
    from validator.analysis.recipes.composed import Compositions

_OPTION = re.compile(r"--config([-_](file|path))?$")
_APPLIES = frozenset({"parse_overrides", "_apply_overrides_to_config", "from_dotlist", "from_cli"})
_YAML = (".yaml", ".yml")


class LoadedFiles:
    """Answers for one project."""

    def __init__(self, project: Project, compositions: Compositions) -> None:
        self.project = project
        self.files = compositions.files

    def path(self, launch: Launch) -> str | None:
        """The file that a launch's program reads; None if it takes no words strictly, or the file is not known."""
        module = launch.module
        if module is None or not self._is_strict(module):
            return None
        given = list(_given(launch))
        if given:
            return self._found(given[-1], launch.path, module) if given[-1] is not None else None
        return self._default(module)

    @cached_property
    def readers(self) -> dict[str, Module]:
        """The files that programs read where none is named, with one program of each."""
        modules = [m for m in self.project.modules.values() if self._strict and self._is_strict(m)]
        return {path: module for module in reversed(modules) if (path := self._default(module)) is not None}

    def _default(self, module: Module) -> str | None:
        named = set(_named(module.source.tree))
        return self._near(named.pop(), module.source.absolute) if len(named) == 1 else None

    @cached_property
    def _strict(self) -> frozenset[Method]:
        """The functions that apply words to a configuration that takes no new keys."""
        found = set()
        for function, call in self.project.calls("set_struct"):
            strict = len(call.positional) == 2 and call.positional[1].value == "True"
            if strict and any(c.method in _APPLIES for c in function.facts.calls):
                found.add(function)
        return frozenset(found)

    def _is_strict(self, module: Module) -> bool:
        names = {function.name for function in self._strict}
        for function in module.functions.values() if names else ():
            if function in self._strict:
                return True
            for call in function.facts.calls:
                if call.method in names and not self._strict.isdisjoint(
                    self.project.analysis(Objects).targets(function, call)
                ):
                    return True
        return False

    def _found(self, given: Field, script: str, module: Module) -> str | None:
        tail = (given.text if given.known else given.tail).strip("/").removeprefix("./")
        source = self.project.files.get(script)
        bases = [source.absolute if source else "", module.source.absolute]
        return next((found for base in bases if tail and (found := self._near(tail, base))), None)

    def _near(self, tail: str, file: str) -> str | None:
        """A file of that path below the folder of another, or below a folder around it."""
        return next((each for each in paths_around(tail, file) if each in self.files), None)


def _given(launch: Launch) -> Iterator[Field | None]:
    """The values of the option that names the file; None for one that is not there."""
    fields = list(arguments_of(launch))
    for index, each in enumerate(fields):
        parts = each.split("=")
        if parts is not None and parts[0].known and _OPTION.match(parts[0].text):
            yield parts[1]
        elif each.known and _OPTION.match(each.text):
            yield fields[index + 1] if index + 1 < len(fields) else None


def _named(tree: ast.AST) -> Iterator[str]:
    """The YAML files that a program names, by the written parts of their paths: `join(here, "configs", "a.yaml")`."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        tail = _tail(node)
        if tail.endswith(_YAML):
            yield tail
        else:
            waiting += ast.iter_child_nodes(node)


def _tail(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) and " " not in node.value else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        parts = [_tail(node.left), _tail(node.right)]
    elif isinstance(node, ast.Call) and path_of(node.func).endswith("path.join"):
        parts = [_tail(each) for each in node.args]
    else:
        return ""
    return posixpath.join(*(part for part in parts if part)) if any(parts) else ""

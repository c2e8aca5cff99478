"""Which fields of state objects hold the rank: `ParallelState(dp_rank=mesh.get_local_rank("dp"), …)`.

A class that declares its fields (`@dataclass`, `NamedTuple`, and their like) says nothing of their values; those who
make its objects do, and those who write the field of an object afterwards. Objects may as well describe other ranks
(`Peer(rank=index)` for each index), so all that is given to a field has to be the rank of the process that gives it,
or a constant for the job of one process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from validator.analysis.conditions import Taint
from validator.analysis.members import method_of, own_object
from validator.analysis.uses import is_test
from validator.facts.model import Argument, Assign, At, Call
from validator.project import ClassDef, Method

if TYPE_CHECKING:
    from validator.analysis.taint import Taints

_DEFAULT = Argument(None, "const", "", (0, 0, 0, 0))
_Given = Argument | Assign | None  # None: not known


class ObjectFields:
    """Answers for the taints of one project, remembered."""

    def __init__(self, taints: Taints) -> None:
        self.taints = taints
        self.project = taints.project
        self._known: dict[tuple[ClassDef, str], Taint | None] = {}
        self._texts: dict[tuple[str, At], ast.expr | None] = {}

    def of(self, cls: ClassDef, name: str) -> Taint | None:
        """The taint of a field that is given to the objects of a class from outside of it."""
        key = (cls, name)
        if key not in self._known:
            self._known[key] = None  # a field filled from a field of another object of the class
            self._known[key] = self._find(cls, name)
        return self._known[key]

    def _find(self, cls: ClassDef, name: str) -> Taint | None:
        found: Taint | None = None
        for function, given in self._given(cls, name):
            if is_test(function.path) and not is_test(cls.path) or given is not None and _is_constant(given):
                continue
            taint = self._taint(function, given) if given is not None else None
            if taint is None or taint.kind != "rank":
                return None
            found = found or taint
        return found

    def _taint(self, function: Method, given: Argument | Assign) -> Taint | None:
        return self.taints.assigned(function, given) if isinstance(given, Assign) else self.argument(function, given)

    def argument(self, function: Method, argument: Argument) -> Taint | None:
        """The taint of what a call inside `function` passes."""
        if argument.kind == "path":
            return self.taints.path(function, argument.value)
        if argument.kind not in ("call", "other"):
            return None
        node = self._expression(function, argument.at)
        return self.taints.expression(node, function) if node is not None else None

    def _expression(self, function: Method, at: At) -> ast.expr | None:
        """An argument, read from the source again: facts hold only its outline."""
        key = (function.path, at)
        if key not in self._texts:
            self._texts[key] = _parsed(function.module.source_text.between(at))
        return self._texts[key]

    # -- what is given -------------------------------------------------------------------------------------

    def _given(self, cls: ClassDef, name: str) -> Iterator[tuple[Method, _Given]]:
        """What the objects of a class, and of those below it, get for a field."""
        for each in (cls, *cls.descendants()):
            fields = _fields(each)
            if name in fields:
                yield from ((function, _passed(call, fields, name)) for function, call in self._makers(each))
        related = {cls, *cls.mro, *cls.descendants()}
        for function, row in self._stores.get(name, ()):
            if not related.isdisjoint(self.project.types.of(function, row.target.rpartition(".")[0])):
                yield function, row

    def _makers(self, cls: ClassDef) -> Iterator[tuple[Method, Call]]:
        for function, call in self.project.calls(cls.name):
            if self.project.lookup(function, call.target) is cls:
                yield function, call
        for method in (m for each in cls.mro for m in each.every_method() if m.facts.is_classmethod):
            yield from ((method, call) for call in method.facts.calls if call.target == method.own_object)

    @cached_property
    def _stores(self) -> dict[str, list[tuple[Method, Assign]]]:
        """By attribute the assignments to it on objects other than a method's own."""
        found: dict[str, list[tuple[Method, Assign]]] = {}
        for function in self.project.functions():
            rows = [row for row in function.facts.assigns if "." in row.target]
            own = own_object(method_of(function)) if rows else None
            for row in rows:
                owner, _, name = row.target.rpartition(".")
                if owner != own:
                    found.setdefault(name, []).append((function, row))
        return found


def _parsed(argument: str) -> ast.expr | None:
    """The value of an argument given as text, with or without its keyword."""
    try:
        node = ast.parse(f"f({argument}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None
    return next(iter([*node.args, *(k.value for k in node.keywords)]), None) if isinstance(node, ast.Call) else None


def _fields(cls: ClassDef) -> list[str]:
    """The fields that the constructor of a class takes, in order; none where it is written by hand."""
    if cls.find("__init__") is not None or cls.find("__new__") is not None:
        return []
    bodies = (each.module.functions.get(f"{each.qualname}.<class>") for each in reversed(cls.mro))
    rows = (row for body in bodies if body is not None for row in body.facts.assigns)
    return list(dict.fromkeys(row.target for row in rows if row.annotation and "ClassVar" not in row.annotation))


def _passed(call: Call, fields: list[str], name: str) -> Argument | None:
    """What a call gives to a field; None where it may be among arguments that are unpacked."""
    if (argument := call.keyword(name)) is not None:
        return argument
    if any(argument.keyword in ("*", "**") for argument in call.args):
        return None
    index, positional = fields.index(name), call.positional
    return positional[index] if index < len(positional) else _DEFAULT


def _is_constant(given: Argument | Assign) -> bool:
    return given.kind in ("const", "none")

"""Which names a scope binds and which names nothing binds, by Python's scoping rules.

Order within a scope is ignored: a name that is bound anywhere in a scope counts as bound in all of it, so
that only names that can never exist are reported.
"""

from __future__ import annotations

import ast
import builtins

KNOWN = frozenset(dir(builtins)) | {
    "__file__", "__name__", "__path__", "__doc__", "__spec__", "__loader__", "__package__", "__builtins__",
    "__annotations__", "__module__", "__qualname__", "__class__", "__dict__", "__debug__",
    "__conditional_annotations__", "WindowsError", "ExceptionGroup", "BaseExceptionGroup", "EncodingWarning",
    "PythonFinalizationError", "aiter", "anext", "get_ipython", "display", "profile", "reveal_type",
    "reveal_locals", "_",
}  # fmt: skip


class Scope:
    """A module, class, function, lambda or comprehension while it is read."""

    __slots__ = ("bound", "global_names", "is_class", "is_comprehension", "loads", "parent", "qualname")

    def __init__(self, qualname: str, parent: Scope | None, *, is_class: bool = False, is_comprehension: bool = False):
        self.qualname = qualname
        self.parent = parent
        self.is_class = is_class
        self.is_comprehension = is_comprehension
        self.bound: set[str] = set()
        self.global_names: set[str] = set()
        self.loads: dict[str, ast.AST] = {}

    def bind(self, name: str) -> None:
        if name in self.global_names:
            scope = self
            while scope.parent is not None:
                scope = scope.parent
            scope.bound.add(name)
        else:
            self.bound.add(name)

    def binding_scope(self) -> Scope:
        """Where an assignment expression binds: comprehensions hand it on."""
        scope = self
        while scope.is_comprehension and scope.parent is not None:
            scope = scope.parent
        return scope


def resolves(name: str, scope: Scope) -> bool:
    """Whether some scope visible from `scope` binds `name` (class bodies are visible only to themselves)."""
    if name in scope.bound:
        return True
    outer: Scope | None = scope.parent
    # a comprehension in a class body sees the class only in its first iterable; being lenient costs nothing
    direct = scope.is_comprehension
    while outer is not None:
        if name in outer.bound and (not outer.is_class or direct):
            return True
        direct = direct and outer.is_comprehension
        outer = outer.parent
    return name in KNOWN


def type_parameters(node: ast.AST) -> list[str]:
    """Names that a PEP 695 parameter list binds."""
    return [p.name for p in getattr(node, "type_params", ())]

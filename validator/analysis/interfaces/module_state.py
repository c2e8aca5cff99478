"""State that functions keep in their module: who sets it, and who outside depends on it.

_GROUP = None

def setup_ring(group):
    global _GROUP
    _GROUP = group

def ring_group():
    return _GROUP
"""

from __future__ import annotations

import ast
from functools import cached_property

from validator.analysis.bindings import own_nodes
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_test
from validator.project import Method, Module, Project


class ModuleState:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project

    def sets(self, function: Method) -> frozenset[str]:
        """The names of its module that a plain function sets with `global`."""
        return self._setters.get(function.module, {}).get(function, frozenset())

    @cached_property
    def _setters(self) -> dict[Module, dict[Method, frozenset[str]]]:
        found: dict[Module, dict[Method, frozenset[str]]] = {}
        for module in self.project.modules.values():
            if b"global " in module.source.data and module.facts.functions:
                rows = {f: names for f in module.functions.values() if (names := _global_names(f))}
                found[module] = rows
        return found

    def setters(self, module: Module, name: str) -> list[Method]:
        """The functions of a module that set one of its names."""
        return [function for function, names in self._setters.get(module, {}).items() if name in names]

    def readers(self, module: Module, name: str) -> list[Method]:
        """The functions of a module that read one of its names and do not set it."""
        setters = self.setters(module, name)
        return [f for f in module.functions.values() if f not in setters and f.cls is None and _reads(f, name)]

    def callers(self, function: Method) -> list[Method]:
        """The functions, those of tests left out, that call a function by name."""
        return [caller for caller, _ in self.project.analysis(Objects).callers(function)]

    def is_called_unseen(self, function: Method) -> bool:
        """Whether a function is passed to something that may call it, or named where calls were not recorded."""
        name = function.name.encode()
        for module in self.project.modules.values():
            if name not in module.source.data or is_test(module.path):
                continue
            if any(self._hands_on(each, function) for each in module.functions.values()):
                return True
        return False

    def _hands_on(self, each: Method, function: Method) -> bool:
        for call in each.facts.calls:
            for argument in call.args:
                named = argument.kind == "path" and argument.value.rpartition(".")[2] == function.name
                if named and self.project.lookup(each, argument.value) is function:
                    return True
        return False


def _global_names(function: Method) -> frozenset[str]:
    if function.cls is not None or function.name == "<module>" or function.node is None:
        return frozenset()
    nodes = own_nodes(function.node)
    declared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    return frozenset(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)) & declared


def _reads(function: Method, name: str) -> bool:
    if function.name == "<module>" or name in function.facts.bound or function.node is None:
        return False
    return any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in own_nodes(function.node)
    )

"""What becomes of a value inside a function: the local names and lists that keep it, and whether anybody reads them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.bodies import Bodies
from validator.facts.model import At
from validator.project import Method, Project

_ADDING = frozenset({"append", "appendleft", "extend", "insert", "add", "clear"})  # read nothing of what is inside
_EMPTY = frozenset({"list", "dict", "set", "deque", "defaultdict", "OrderedDict"})
_AROUND = (ast.Tuple, ast.List, ast.Set, ast.Starred, ast.IfExp, ast.ListComp, ast.SetComp, ast.GeneratorExp)
_DISPLAYS = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp)
_DEPTH = 4


class Kept:
    """The names inside one function and what it does with them."""

    def __init__(self, project: Project, function: Method) -> None:
        self.function = function
        self.node = project.analysis(Bodies).node(function)
        self._above: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.node) if self.node is not None else ():
            for child in ast.iter_child_nodes(node):
                self._above[child] = node

    def list_of(self, at: At) -> str:
        """The local list that gets the result of the call at a place; empty where it goes elsewhere."""
        place = self.function.module.source_text.at
        call = next((n for n in self._above if isinstance(n, ast.Call) and place(n) == at), None)
        name = self._list_around(call) if call is not None else ""
        return name if name and self._is_own_list(name) else ""

    def is_unread(self, name: str, depth: int = _DEPTH) -> bool:
        """Whether nothing reads a local name, but to put it into a list that nothing reads either."""
        if self.node is None or not depth or not self._is_own(name):
            return False
        return all(self._reads_nothing(each, depth) for each in self._loads(name))

    def list_of_name(self, name: str) -> str:
        """The list that gets the value of a local name; empty where none does."""
        return next((found for each in self._loads(name) if (found := self._list_around(each))), "")

    def waits_for_all(self) -> bool:
        """Whether the function waits for the whole device, and with it for all that runs there."""
        return any(call.method == "synchronize" for call in self.function.facts.calls)

    # -- names ---------------------------------------------------------------------------------------------

    def _is_own(self, name: str) -> bool:
        """Whether a name is a variable of just this function."""
        if name not in self.function.facts.bound:
            return False
        scopes = (n for n in self._above if isinstance(n, ast.Global | ast.Nonlocal))
        return not any(name in n.names for n in scopes) and not any(True for _ in self._loads("locals"))

    def _is_own_list(self, name: str) -> bool:
        """Whether a name means nothing but lists and the like that this function makes."""
        if any(param.name == name for param in self.function.facts.params):
            return False  # the caller has it as well
        return self._is_own(name) and all(self._makes(n) for n in self._above if _binds(n, name))

    def _makes(self, stored: ast.AST) -> bool:
        row = self._above[stored]
        if isinstance(row, ast.AugAssign):
            return True
        if not isinstance(row, ast.Assign | ast.AnnAssign) or isinstance(row, ast.Assign) and len(row.targets) > 1:
            return False
        made = row.value
        if isinstance(made, ast.Call):
            last = made.func.attr if isinstance(made.func, ast.Attribute) else getattr(made.func, "id", "")
            return last in _EMPTY
        return made is None or isinstance(made, _DISPLAYS)

    def _loads(self, name: str) -> Iterator[ast.Name]:
        for node in self._above:
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                yield node

    # -- what a use does -----------------------------------------------------------------------------------

    def _reads_nothing(self, load: ast.Name, depth: int) -> bool:
        above = self._above[load]
        if isinstance(above, ast.Attribute) and above.attr in _ADDING and above.value is load:
            call = self._above[above]
            return isinstance(call, ast.Call) and call.func is above and isinstance(self._above[call], ast.Expr)
        if isinstance(above, ast.Subscript) and above.value is load:
            return isinstance(above.ctx, ast.Store)
        if isinstance(above, ast.Compare):
            return all(isinstance(each, ast.Constant) and each.value is None for each in above.comparators)
        name = self._list_around(load)
        return bool(name) and self._is_own_list(name) and self.is_unread(name, depth - 1)

    def _list_around(self, value: ast.expr) -> str:
        """The name that gets an expression: `name.append(…)`, `name[key] = …`, `name += […]`, `name = […]`."""
        inner: ast.AST = value
        above = self._above[inner]
        while isinstance(above, _AROUND):
            if isinstance(above, ast.IfExp) and inner is above.test:
                return ""
            inner, above = above, self._above[above]
        if isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute) and inner in above.args:
            adds = above.func.attr in _ADDING and isinstance(self._above[above], ast.Expr)
            return _name(above.func.value) if adds else ""
        if isinstance(above, ast.AugAssign) and isinstance(above.op, ast.Add):
            return _name(above.target)
        if not isinstance(above, ast.Assign) or len(above.targets) > 1 or inner is not above.value:
            return ""
        target = above.targets[0]
        if isinstance(target, ast.Subscript):
            return _name(target.value)
        return _name(target) if isinstance(inner, _DISPLAYS) else ""


def _binds(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""

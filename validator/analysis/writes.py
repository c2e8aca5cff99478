"""Where a call writes a file, and whether the path may be the same on all ranks."""

from __future__ import annotations

import ast
import re

from validator.analysis.binding import bind
from validator.analysis.bindings import Bindings, call_node
from validator.analysis.taint import Taints
from validator.facts.model import Argument, Call
from validator.facts.text import path_of
from validator.project import Method, Project

# where the path stands among the arguments: by name and by position
_WRITERS = {
    "torch.save": ("f", 1),
    "safetensors.torch.save_file": ("filename", 1),
    "numpy.save": ("file", 0),
    "numpy.savez": ("file", 0),
    "shutil.copy": ("dst", 1),
    "shutil.copy2": ("dst", 1),
    "shutil.copyfile": ("dst", 1),
    "shutil.copytree": ("dst", 1),
}
_METHODS = frozenset({"write_text", "write_bytes"})
# words of paths that each process, device or piece has of its own, and of places that no other process sees
_OWN = re.compile(
    r"rank|process|proc_|worker|node|host|shard|part|chunk|piece|stage|expert|replica|device|gpu|cuda|pid|uuid|time|now\("
    r"|te?mp|local|index|idx|seed|getpass|thread|random|devnull|/dev/|/proc/|environ|getenv|stdout|stderr",
    re.IGNORECASE,
)
_DEPTH = 4


_NAMES = _METHODS | {"open", *(name.rpartition(".")[2] for name in _WRITERS)}


def may_write(call: Call) -> bool:
    """Whether a call is one of those of which `Writes.path` tells more, by its name alone."""
    return call.method in _NAMES


class Writes:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.taints = project.analysis(Taints)
        self.bindings = project.analysis(Bindings)

    def path(self, function: Method, call: Call) -> ast.expr | None:
        """The path that a call makes or overwrites; None where it writes none."""
        entry = _WRITERS.get(self.project.dotted(function, call.target))
        if call.target == "open" or entry is not None:
            found = _argument(call, *(entry or ("file", 0)))
            mode = _argument(call, "mode", 1)
            if entry is None and (mode is None or mode.value[1:2] not in ("w", "x")):
                return None
            return _node(function, call, found)
        node = call_node(function, call) if call.method in _METHODS and call.receiver else None
        return node.func.value if node is not None and isinstance(node.func, ast.Attribute) else None

    def is_alike(self, function: Method, path: ast.expr) -> bool:
        """Whether a path is built alike on all ranks, down to a name that stands in the source.

        False where that cannot be told: of a loop variable, of a parameter of unknown callers that is the whole path.
        """
        return self._alike(function, path, _DEPTH) == "named"

    def _alike(self, function: Method, node: ast.expr | None, depth: int) -> str:
        """`own` where it may differ, `named` where it is alike and holds a name, else `alike`."""
        if node is None or not depth or _OWN.search(ast.unparse(node)) or self.taints.expression(node, function):
            return "own"
        named = any(isinstance(n, ast.Constant) and str(n.value).strip("./_") for n in ast.walk(node))
        for path in _paths(node):
            found = [self._alike(owner, each, depth - 1) for owner, each in self._values(function, path)]
            if "own" in found:
                return "own"
            named = named or "named" in found
        return "named" if named else "alike"

    def _values(self, function: Method, path: str) -> list[tuple[Method, ast.expr | None]]:
        """What a name or an attribute is bound to; None for what cannot be told."""
        head, _, name = path.partition(".")
        if name:
            own = head == function.own_object and "." not in name
            return self.bindings.attribute(function.cls, name) if own and function.cls is not None else []
        bound = self.bindings.of(function).get(path)
        if bound:
            return [(function, value) for value in bound if value is None or not _mentions(value, path)]
        if any(row.target == path for row in function.facts.assigns):
            return [(function, None)]
        calls = (
            self.project.types.callers.get(function, ()) if any(p.name == path for p in function.facts.params) else ()
        )
        given = ((caller, call, bind(function, call).get(path)) for caller, call in calls)
        return [(caller, _node(caller, call, argument)) for caller, call, argument in given if argument is not None]


def _argument(call: Call, name: str, position: int) -> Argument | None:
    found = call.keyword(name)
    return found if found is not None or len(call.positional) <= position else call.positional[position]


def _node(function: Method, call: Call, argument: Argument | None) -> ast.expr | None:
    """The syntax of an argument."""
    node = call_node(function, call) if argument is not None else None
    if node is None or argument is None:
        return None
    text = function.module.source_text
    return next((n for n in (*node.args, *(k.value for k in node.keywords)) if text.at(n) == argument.at), None)


def _mentions(value: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value))


def _paths(node: ast.AST) -> list[str]:
    """The names and attribute chains of an expression that are not called."""
    if isinstance(node, ast.Name | ast.Attribute):
        return [path_of(node)]
    called = node.func if isinstance(node, ast.Call) else None
    found = [path for child in ast.iter_child_nodes(node) if child is not called for path in _paths(child)]
    if isinstance(called, ast.Attribute):
        found += _paths(called.value)
    return found

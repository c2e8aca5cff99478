"""Collectives made one after the other in an order that each rank has for itself.

What it does
    Reports a loop that makes a collective for each element of a set of names (`set(state.keys())`, a set comprehension
    over `named_parameters()`, a difference of such sets), or for each file of an unsorted listing (`os.listdir`,
    `glob`). Barriers do not count: it does not matter which comes first.

Why is this bad
    Python gives strings other hashes in every process, so each rank goes through the same set in another order: rank 0
    reduces one parameter while rank 1 reduces another. Equal shapes are mixed up without a word; others hang or crash.
    File systems promise no order either.

References
    https://docs.python.org/3/reference/datamodel.html#object.__hash__
    https://docs.python.org/3/library/os.html#os.listdir
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bindings import Bindings, own_nodes
from validator.analysis.effects import Effects
from validator.analysis.places import is_aside
from validator.analysis.traces import Op
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP508", "unordered-collectives", "error", "0.1.0", tokens=("torch", "accelerat", "deepspeed"))

_LISTINGS = frozenset({"os.listdir", "os.scandir", "glob.glob", "glob.iglob"})
_OF_PATH = frozenset({"iterdir", "rglob"})
_NAMED = re.compile(r"(^|\.)(named_\w+|state_dict|keys|items)\(\)$|(^|_|\.)(keys|names|state_dict)$")
_ORDERLESS = frozenset({"barrier", "monitored_barrier", "wait_for_everyone"})
_DEPTH = 4


def check_project(project: Project) -> Iterator[Finding]:
    effects, bindings = project.analysis(Effects), project.analysis(Bindings)
    for function in effects.effectful():
        if is_aside(function.path) or function.node is None or function.name == "<class>":
            continue
        for node in own_nodes(function.node):
            if isinstance(node, ast.For) and (what := _unordered(project, bindings, function, node.iter, _DEPTH)):
                op = next(_operations(effects, function, node), None)
                if op is not None:
                    yield _report(function, node, op, what)


def _unordered(project: Project, bindings: Bindings, function: Method, node: ast.expr, depth: int) -> str:
    """`set` or `listing` where a rank goes through an expression in an order of its own; empty elsewhere."""
    if not depth:
        return ""
    if isinstance(node, ast.Name):
        values = bindings.of(function).get(node.id, [])
        return _unordered(project, bindings, function, values[0], depth - 1) if len(values) == 1 and values[0] else ""
    if isinstance(node, ast.Call) and path_of(node.func) in ("list", "tuple", "enumerate", "tqdm") and node.args:
        return _unordered(project, bindings, function, node.args[0], depth - 1)
    if isinstance(node, ast.Call) and (
        project.dotted(function, path_of(node.func)) in _LISTINGS
        or isinstance(node.func, ast.Attribute)
        and node.func.attr in _OF_PATH
    ):
        return "listing"
    return "set" if _is_set_of_names(bindings, function, node, depth) else ""


def _is_set_of_names(bindings: Bindings, function: Method, node: ast.expr, depth: int) -> bool:
    """Whether an expression is a set of strings; of a set whose elements nothing tells, it is not said."""
    if not depth:
        return False
    if isinstance(node, ast.Name):
        values = bindings.of(function).get(node.id, [])
        return len(values) == 1 and bool(values[0]) and _is_set_of_names(bindings, function, values[0], depth - 1)  # type: ignore[arg-type]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.BitOr | ast.BitAnd | ast.BitXor):
        return _is_set_of_names(bindings, function, node.left, depth - 1)
    if isinstance(node, ast.Set):
        return len(node.elts) > 1 and all(isinstance(e, ast.Constant) and isinstance(e.value, str) for e in node.elts)
    if isinstance(node, ast.SetComp):
        first = node.generators[0]
        name = first.target.elts[0] if isinstance(first.target, ast.Tuple) and first.target.elts else first.target
        return bool(_NAMED.search(ast.unparse(first.iter))) and ast.unparse(name) in ast.unparse(node.elt)
    if isinstance(node, ast.Call) and path_of(node.func) in ("set", "frozenset") and len(node.args) == 1:
        return bool(_NAMED.search(ast.unparse(node.args[0])))
    return False


def _operations(effects: Effects, function: Method, loop: ast.For) -> Iterator[Op]:
    """The collectives of a loop for which it matters in which order they come."""
    rows = {**effects.direct.get(function, {}), **effects.reaching.get(function, {})}
    first, last = loop.body[0].lineno, loop.body[-1].end_lineno or 0
    for at in sorted(rows):
        if first <= at[0] and at[2] <= last:
            yield from (op for op in effects.possible(function, rows[at][0]) if op.name not in _ORDERLESS)


def _report(function: Method, loop: ast.For, op: Op, what: str) -> Finding:
    text = ast.unparse(loop.iter)
    through = f" through `{'` → `'.join(op.via)}`" if op.via else ""
    why = "a set of strings" if what == "set" else "a listing of files"
    return RULE.finding(
        function.path,
        function.module.source_text.at(loop.iter),
        f"`{function.qualname}` reaches `{op.name}`{through} for each element of `{text}`, {why}, whose order differs"
        " between ranks",
        help=f"go through `sorted({text})`",
        related=[Related(op.path, op.at[0], f"`{op.name}` is called here")],
        context=f"{function.qualname}:{op.name}:{text}",
        severity="error" if what == "set" else "warning",
    )


INCORRECT = [
    """
import torch.distributed as dist

def sync(model, other):
    names = {name for name, _ in model.named_parameters()}
    for name in names:  # error: MP508
        dist.all_reduce(model.get_parameter(name))
    for name in set(model.state_dict().keys()) - set(other.keys()):  # error: MP508
        dist.broadcast(model.get_buffer(name), src=0)
""",
    """
import os
import torch.distributed as dist

def send(load, folder):
    for name in os.listdir(folder):  # error: MP508
        dist.broadcast(load(name), src=0)
""",
]

CORRECT = [
    """
import os
import torch.distributed as dist

def sync(model, load, folder):
    names = {name for name, _ in model.named_parameters()}
    for name in sorted(names):
        dist.all_reduce(model.get_parameter(name))
    for name in names:
        print(name)
        dist.barrier()
    for name in sorted(os.listdir(folder)):
        dist.broadcast(load(name), src=0)
""",
    """
import torch.distributed as dist

def sync(model, sizes):
    for size in set(sizes):
        dist.all_reduce(size)
    for name in model.state_dict().keys():
        dist.all_reduce(model.get_buffer(name))
""",
]

"""A number of forward passes that each rank takes from its own data.

What it does
    Follows a number read out of a tensor argument (`int(lengths.max().item())`) or out of the batch
    (`mini["attention_mask"].sum().item()`) through assignments and returns, into the functions that call this one, to a
    loop that runs a model or a backward so often: `for … in range(n)`, `for … in batch.chunk(n)`. In code that
    communicates. Silent where a function on the way reduces over ranks, or where the count is padded to a number of
    the configuration.

Why is this bad
    With sharded parameters or several ranks per replica each forward is a collective. Ranks whose batch holds shorter
    samples leave the loop first; the others wait in the next forward until the group's time-out.

References
    https://docs.pytorch.org/docs/stable/distributed.html#collective-functions
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.bindings import own_nodes
from validator.analysis.effects import Effects
from validator.analysis.own_data import OwnData
from validator.analysis.places import is_aside
from validator.analysis.taint import Taints
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP506", "rank-local-count", "error", "0.1.0", tokens=("torch",))

_FORWARDS = frozenset({
    "forward", "model", "forward_step", "forward_backward_func", "forward_backward", "train_step", "training_step",
    "get_logprobs", "get_log_probs", "compute_log_prob", "logits", "actor", "policy_model", "reward_model", "backward",
})  # fmt: skip
_PARTING = frozenset({"chunk", "split", "tensor_split", "array_split"})
_CONTENT = frozenset({"max", "min", "sum", "argmax", "count_nonzero"})
_REDUCING = re.compile(r"all_reduce|all_gather|broadcast|reduce")
_DEPTH = 3


class _Read(NamedTuple):
    """Where a function reads a number out of a tensor that it is given."""

    function: Method
    node: ast.Assign
    tensor: str


def check_project(project: Project) -> Iterator[Finding]:
    if not project.analysis(Effects).direct:
        return
    for function in project.functions():
        calls = function.facts.calls
        if is_aside(function.path) or not any(c.target.endswith("().item") for c in calls):
            continue
        for read in _reads(function, project.analysis(Taints).own_data):
            loop = _loop(project, function, _names(function, {}, read), _DEPTH)
            if loop is not None and not _reduces_between(function, read, loop[0], loop[1]):
                yield _report(read, *loop)
                break


def _reduces(function: Method) -> bool:
    return any(_REDUCING.search(call.method) for call in function.facts.calls)


def _reduces_between(function: Method, read: _Read, where: Method, loop: ast.For) -> bool:
    """Whether the function that reads the number may reduce it before the loop; behind the loop it comes too late."""
    if where is not function:
        return _reduces(function)
    return any(_REDUCING.search(c.method) and read.node.lineno <= c.at[0] <= loop.lineno for c in function.facts.calls)


def _reads(function: Method, own: OwnData) -> Iterator[_Read]:
    """The `name = … tensor.max().item() …` of a parameter that is annotated as a tensor, or of the batch."""
    tensors = {p.name for p in function.facts.params if "Tensor" in p.annotation}
    lines = function.module.source_text.lines
    for each in _assignments(function):
        if not any("item" in line for line in lines[each.lineno - 1 : each.end_lineno]):
            continue
        for call in ast.walk(each.value):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "item"):
                continue
            name, _, rest = path_of(call.func).partition(".")
            if name in tensors and rest.endswith("().item") and rest.partition("()")[0] in _CONTENT:
                yield _Read(function, each, name)
            elif (read := own.content(call.func.value, function)) is not None and read.kind == "local":
                yield _Read(function, each, read.why)


def _assignments(function: Method) -> list[ast.Assign]:
    node = function.node
    found = [n for n in own_nodes(node) if isinstance(n, ast.Assign)] if node is not None else []
    return sorted(found, key=lambda n: n.lineno)


def _names(function: Method, returned: dict[str, set[int]], read: _Read | None) -> set[str]:
    """The local names that hold the number, or something computed from it.

    `returned`: of the called functions, by path, the positions at which the number is returned (-1: alone).
    """
    names: set[str] = set()
    for each in _assignments(function):
        target, value = each.targets[0], each.value
        called = returned.get(path_of(value.func)) if isinstance(value, ast.Call) else None
        if called is not None and isinstance(target, ast.Tuple):
            names |= {path_of(e) for i, e in enumerate(target.elts) if i in called}
        elif (called is not None and -1 in called) or (read is not None and each is read.node) or _uses(value, names):
            names.add(path_of(target))
    return names


def _uses(value: ast.expr, names: set[str]) -> bool:
    """Whether a number is computed from others: arithmetic, `min`, `max`, `int`; other calls make something else."""
    if isinstance(value, ast.Call) and path_of(value.func) not in ("min", "max", "int", "math.ceil"):
        return False
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(value))


def _loop(project: Project, function: Method, names: set[str], depth: int) -> tuple[Method, ast.For, str] | None:
    """The loop over `range(name)` that runs a model, in a function or in those that call it."""
    for each in own_nodes(function.node) if function.node is not None else ():
        if isinstance(each, ast.For) and (forward := _counted(each, names)):
            return function, each, forward
    positions = _returned(function, names)
    for caller, call in project.types.callers.get(function, ()) if positions and depth else ():
        if not is_aside(caller.path) and not _reduces(caller):
            found = _loop(project, caller, _names(caller, {call.target: positions}, None), depth - 1)
            if found is not None:
                return found
    return None


def _counted(loop: ast.For, names: set[str]) -> str:
    """The forward that a loop over `range(name)` or `batch.chunk(name)` calls; empty where it is another loop."""
    header = loop.iter
    if isinstance(header, ast.Call) and path_of(header.func) in ("enumerate", "tqdm") and header.args:
        header = header.args[0]
    if not isinstance(header, ast.Call):
        return ""
    name = path_of(header.func).rpartition(".")[2]
    counts = header.args if name == "range" or not isinstance(header.func, ast.Attribute) else header.args[:2]
    if name not in _PARTING | {"range"} or not _uses(ast.Tuple(counts), names):
        return ""
    calls = (path_of(n.func) for stmt in loop.body for n in ast.walk(stmt) if isinstance(n, ast.Call))
    return next((path for path in calls if path.rpartition(".")[2] in _FORWARDS), "")


def _returned(function: Method, names: set[str]) -> set[int]:
    found: set[int] = set()
    for each in own_nodes(function.node) if function.node is not None else ():
        if isinstance(each, ast.Return) and isinstance(each.value, ast.Tuple):
            found |= {i for i, e in enumerate(each.value.elts) if _uses(e, names)}
        elif isinstance(each, ast.Return) and each.value is not None and _uses(each.value, names):
            found.add(-1)
    return found


def _report(read: _Read, where: Method, loop: ast.For, forward: str) -> Finding:
    at = read.function.module.source_text.at(read.node)
    return RULE.finding(
        read.function.path,
        at,
        f"`{read.function.qualname}` reads a number out of this rank's `{read.tensor}`, and `{where.qualname}` calls"
        f" `{forward}` that many times: ranks with other data run another number of forwards",
        help="take the count from the configuration, or reduce it over the ranks with MAX and let the shorter ones"
        " run forwards that count for nothing",
        related=[Related(where.path, loop.lineno, f"`{forward}` is called in this loop")],
        context=f"{read.function.qualname}:{where.qualname}",
    )


INCORRECT = [
    """
# file: counting.py
import torch
import torch.distributed as dist

def meet():
    dist.barrier()

def rounds(size: int, lengths: torch.Tensor) -> int:
    longest = int(lengths.max().item())  # error: MP506
    return min(size, longest)

def prepare(data, size):
    count = rounds(size, data["lengths"])
    return data, count
# file: worker.py
import torch.distributed as dist
from counting import prepare

class Worker:
    def setup(self):
        dist.barrier()

    def score(self, data):
        base, count = prepare(data, 8)
        return [self.model(base, level) for level in range(count)]

    def step(self, data):
        base, count = prepare(data, 8)
        for level in range(count):
            self.model(base, level)
""",
    """
import torch
import torch.distributed as dist

class Actor:
    def update(self, data):
        for mini in data.split(self.mini_size):
            tokens = int(mini["attention_mask"].sum().item())  # error: MP506
            count = -(-tokens // self.limit)
            for micro in mini.chunk(count):
                loss = self.loss_of(micro)
                loss.backward()
            dist.all_reduce(self.total)
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist

def rounds(size: int, lengths: torch.Tensor) -> int:
    longest = lengths.max()
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return min(size, int(longest.item()))

def step(model, data):
    count = rounds(8, data["lengths"])
    for level in range(count):
        model(data, level)
""",
    """
import torch
import torch.distributed as dist

def rounds(size: int, lengths: torch.Tensor) -> int:
    longest = int(lengths.max().item())
    return min(size, longest)

def show(data):
    dist.barrier()
    count = rounds(8, data["lengths"])
    for level in range(count):
        print(data[level])
""",
    """
import torch
import torch.distributed as dist

def fit(data, model, limit, size):
    dist.barrier()
    tokens = int(data["attention_mask"].sum().item())
    share = tokens / limit
    for micro in data.chunk(size):
        (model(micro) * share).backward()
    for part in torch.chunk(data["labels"], tokens):
        print(part)
""",
]

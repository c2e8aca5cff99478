"""Collectives made one after the other in an order that each rank has for itself.

What it does
    Reports a loop that makes a collective for each element of a set of texts (`set(state.keys())`, a set comprehension
    over `named_parameters()`, a difference of such sets, a set to which they are added), for each file of an unsorted
    listing (`os.listdir`, `glob`), or for each key of a dictionary whose keys were inserted by what the rank is. What
    is made from such a set keeps its order, `sorted` gives it one. Barriers do not count: it does not matter which
    comes first.

Why is this bad
    Python gives strings other hashes in every process, so each rank goes through the same set in another order: rank 0
    reduces one parameter while rank 1 reduces another. Equal shapes are mixed up without a word; others hang or crash.
    File systems promise no order either.

References
    https://docs.python.org/3/reference/datamodel.html#object.__hash__
    https://docs.python.org/3/library/os.html#os.listdir
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import varying
from validator.finding import Finding, Related
from validator.flow.program.answers import Operation
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, blocks_of
from validator.flow.values import Val
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP508", "unordered-collectives", "error", "0.1.0", tokens=("torch", "accelerat", "deepspeed"))

_ORDERLESS = frozenset({"barrier", "monitored_barrier", "wait_for_everyone"})
_WHY = {
    "set": "a set of texts, whose order differs between ranks",
    "listing": "a listing of files, whose order differs between ranks",
    "keys": "a dictionary whose keys each rank inserts in an order of its own",
}


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.flow.effectful():
        for header, loop in sorted(unit.code.loops.items()):
            over = Place(queries.flow, unit, loop.iterator).operand(0) if loop.iterator >= 0 else None
            why = _unordered(over.closed) if over is not None else ""
            found = _first(queries, unit, header) if why else None
            if over is not None and found is not None:
                yield _report(over, found, why)


def _unordered(iterated: Val) -> str:
    """Why ranks go through something in orders of their own; empty where they do not, or nobody knows."""
    for _, why, causes in sorted(iterated.of("unordered"), key=str):
        if why != "keys" or varying(causes.v):
            return str(why)
    return ""


def _first(queries: Queries, unit: Unit, header: int) -> tuple[Operation, Place] | None:
    """The first collective of a loop for which it matters in which order they come."""
    sites = queries.flow.result(unit).sites
    blocks = set(blocks_of(unit.code, header))
    for number in sorted(n for n in sites if unit.code.values[n].block in blocks):
        for operation, place in Place(queries.flow, unit, number).reached():
            if operation.name not in _ORDERLESS:
                return operation, place
    return None


def _report(over: Place, found: tuple[Operation, Place], why: str) -> Finding:
    operation, place = found
    unit = over.unit
    line = unit.at(unit.code.loops[_header(over)].at)
    through = f" through `{place.unit.qualname}`" if place.unit is not unit else ""
    return RULE.finding(
        unit.path,
        (line[0], line[1], line[0], line[1] + 3),
        f"`{unit.qualname}` reaches `{operation.name}`{through} for each element of `{over.text}`, {_WHY[why]}",
        help="go through it in an order that all ranks share: `sorted(…)`",
        related=[Related(place.unit.path, place.at[0], f"`{operation.name}` is called here")],
        context=f"{unit.qualname}:{operation.name}:{over.text}",
        severity="warning" if why == "listing" else "error",
    )


def _header(over: Place) -> int:
    loops = over.unit.code.loops
    return next(
        h
        for h, loop in loops.items()
        if loop.iterator >= 0 and over.number in over.unit.code.values[loop.iterator].args
    )


INCORRECT = [
    # a set that grows, of the keys of what `dict` makes of pairs
    """
import torch.distributed as dist

def sync(model, filters):
    buffers = dict(model.named_buffers())
    chosen = set()
    for each in filters:
        chosen.update(n for n in buffers if each(n))
    for name in chosen:  # error: MP508
        dist.broadcast(buffers[name], src=0)
""",
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
    """
import torch.distributed as dist

NAMES = {"loss", "accuracy"}
TASKS = {0: ["mask", "next"], 1: ["next", "mask"]}

def report(values):
    for name in NAMES:  # error: MP508
        dist.all_reduce(values[name])

def train(compute):
    losses = {}
    for task in TASKS[dist.get_rank()]:
        losses[task] = compute(task)
    for loss in losses.values():  # error: MP508
        dist.all_reduce(loss)
    for task in sorted(losses):
        dist.all_reduce(losses[task])
""",
]

CORRECT = [
    """
import torch.distributed as dist

def select(names, filters):
    chosen, listed = set(), list()
    for each in filters:
        chosen.update(n for n in names if each(n))
        listed.extend(n for n in names if each(n))
    return sorted(chosen), listed

def sync(model, filters):
    buffers = dict(model.named_buffers())
    chosen, listed = select(buffers, filters)
    for name in chosen:
        dist.broadcast(buffers[name], src=0)
    for name in listed:
        dist.broadcast(buffers[name], src=0)
    for name in buffers:
        dist.broadcast(buffers[name], src=0)
""",
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

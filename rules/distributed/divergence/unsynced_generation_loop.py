"""A loop of forwards that each rank leaves when its own sequences are done.

What it does
    Finds a loop that calls a model and ends, breaks out or returns on the contents of a tensor
    (`unfinished.max() == 0`, `while not torch.all(done)`, `all(finished)`) that no collective has reduced, in a project
    that trains on several ranks. Silent where each rank goes through rounds of its own
    (`range(rank, count, world_size)`): there no forward can be a collective.

Why is this bad
    With sharded parameters (FSDP, ZeRO-3) each forward is a collective. The rank whose sequences end first stops
    calling it, the others wait in their next forward for ever.

References
    https://huggingface.co/docs/transformers/main_classes/text_generation (`synced_gpus`)
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import SHARDING, Placements, may
from validator.domains.spmd import UNIFORM
from validator.effects.divergence import Divergences
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.ir.model import Loop
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP505", "unsynced-generation-loop", "warning", "0.1.0", tokens=("model(", "actor("))

_MODELS = frozenset({"model", "actor", "policy_model"})
_CONTENT = frozenset({"max", "min", "all", "any", "sum"})


def check_project(project: Project) -> Iterator[Finding]:
    traces = project.analysis(Divergences).traces
    queries = project.analysis(Queries)
    for unit in queries.mentioning(*_MODELS) if traces.effectful else ():
        # a generator hands out a token at a time to whoever reads: served by one process, not trained on all
        if unit.code.is_generator or is_aside(unit.path):
            continue
        for header, loop in unit.code.loops.items():
            forwards = [p for p in _calls(queries, unit, loop) if p.method in _MODELS and not p.operations]
            forwards = [p for p in forwards if not _is_whole(p.operand(0).closed.state)]
            if not forwards or _in_own_rounds(queries, forwards[0], frozenset()):
                continue
            for branch in _exits(unit, header, loop):
                test = Place(queries.flow, unit, unit.code.blocks[branch].end[1]).origin
                name = _own_content(test)
                if name:
                    yield _finding(unit, branch, forwards[0], name)


def _is_whole(model: Placements) -> bool:
    """Whether each rank has all of a model, as far as is known: DDP wraps it, and nothing shards it."""
    return may(model, "ddp") and not may(model, *SHARDING)


def _in_own_rounds(queries: Queries, place: Place, above: frozenset[Unit]) -> bool:
    """Whether the rank decides how often, or whether, a place runs, in its function or around all calls of it."""
    if any(cause.kind == "rank" for cause in place.around()):
        return True
    above |= {place.unit}
    calls = [call for call in queries.calls_of(place.unit) if call.unit not in above]
    return bool(calls) and all(_in_own_rounds(queries, call, above) for call in calls)


def _calls(queries: Queries, unit: Unit, loop: Loop) -> Iterator[Place]:
    for number, value in enumerate(unit.code.values):
        if value.op == "call" and loop.at[0] <= value.at[0] <= loop.at[2] and unit.code.blocks[value.block].loop >= 0:
            yield Place(queries.flow, unit, number)


def _exits(unit: Unit, header: int, loop: Loop) -> Iterator[int]:
    """The branches of a loop by which it is left: the test of `while`, and an `if` that breaks or returns."""
    for block, each in enumerate(unit.code.blocks):
        branches = each.loop == header and each.end[0] == "branch" and (block != header or loop.iterator < 0)
        if branches and any(_leaves(unit, target, header, loop) for target in each.end[2:4]):
            yield block


def _leaves(unit: Unit, block: int, header: int, loop: Loop) -> bool:
    """Whether a way leads out of a loop without another branch."""
    while True:
        each = unit.code.blocks[block]
        if block in (loop.after, loop.done) or each.end[0] == "return":
            return True
        if block == header or each.end[0] != "jump":
            return False
        block = each.end[1]


def _own_content(test: Place) -> str:
    """What a condition asks of the contents of a tensor that a model of this rank has made; else empty."""
    if UNIFORM in test.likely.v:
        return ""
    for place in _read(test):
        if place.value.op == "call" and place.method in _CONTENT:
            asked = place.operand(1) if len(place.value.args) > 1 and place.receiver is None else place.receiver
            asked = place.operand(1) if asked is None or any(o[0] == "ext" for o in asked.val.each) else asked
            if any(each.value.op == "call" and each.method in _MODELS for each in _contents(asked)):
                return asked.text
    return ""


def _contents(asked: Place) -> Iterator[Place]:
    """The values of which the contents of a value are made: not those of which it is only the length, nor the model
    that was given it and may have changed it."""
    stack, seen = [asked.number], {asked.number}
    while stack:
        place = asked.value_at(stack.pop())
        value = place.value
        yield place
        parts = value.args
        if value.op == "mut" and place.operand(1).value.op == "call" and place.operand(1).method in _MODELS:
            parts = parts[:1]
        elif value.op == "call" and place.method == "len" and place.receiver is None:
            parts = ()
        new = [part for part in parts if part >= 0 and part not in seen]
        seen.update(new)
        stack += new


def _read(test: Place) -> Iterator[Place]:
    """The values on which a test depends: of a list that it counts what makes it longer, not what is in it."""
    stack, seen = [(test.number, False)], {(test.number, False)}
    while stack:
        number, counted = stack.pop()
        place = test.value_at(number)
        value = place.value
        yield place
        if counted and value.op == "mut":
            parts = [(value.args[0], True)]
        elif counted and value.op == "collect":
            parts = [(part, index < value.data[2]) for index, part in enumerate(value.args[value.data[1] :])]
        elif value.op == "call" and place.method == "len" and place.receiver is None:
            parts = [(part, True) for part in value.args[1:]]
        else:
            parts = [(part, counted and value.op in ("phi", "iter")) for part in value.args if part >= 0]
        new = [part for part in parts if part not in seen]
        seen.update(new)
        stack += new


def _finding(unit: Unit, branch: int, forward: Place, name: str) -> Finding:
    about = unit.code.tests.get(branch)
    at = about.at if about is not None else unit.code.values[unit.code.blocks[branch].end[1]].at
    width = len("while" if about is not None and about.kind == "while" else "if")
    model = forward.operand(0).text
    return RULE.finding(
        unit.path,
        unit.at((at[0], at[1], at[0], at[1] + width)),
        f"in `{unit.qualname}` each rank leaves the loop on the contents of its own `{name}`, "
        f"while the others still call `{model}`",
        help="reduce the flag over all ranks before testing it (`dist.all_reduce`), or go on with dummy forwards",
        related=[Related(unit.path, forward.at[0], "a forward: a collective when the model is sharded")],
        context=f"{unit.qualname}:{name}",
    )


INCORRECT = [
    """
import torch
import torch.distributed as dist

def setup():
    dist.barrier()

def sample(model, input_ids, length, eos):
    unfinished = torch.ones(input_ids.shape[0])
    for _ in range(length):
        token = model(input_ids).argmax(-1)
        unfinished = unfinished * (token != eos)
        if unfinished.max() == 0:  # error: MP505
            break
    return input_ids
""",
    """
import torch
import torch.distributed as dist

def setup():
    dist.barrier()

def sample(model, input_ids, length, eos):
    done = torch.zeros(input_ids.shape[0], dtype=torch.bool)
    while not torch.all(done):  # error: MP505
        token = model(input_ids).argmax(-1)
        done |= token == eos
    return input_ids

def listed(model, input_ids, length, eos):
    finished = [False] * len(input_ids)
    for _ in range(length):
        token = model(input_ids).argmax(-1)
        finished = [f or t == eos for f, t in zip(finished, token)]
        if all(finished):  # error: MP505
            return input_ids
""",
]

CORRECT = [
    # each rank has rounds of its own, here and around the call
    """
import torch
import torch.distributed as dist

def sample(model, input_ids, length, eos):
    done = torch.zeros(input_ids.shape[0], dtype=torch.bool)
    for _ in range(length):
        done |= model(input_ids).argmax(-1) == eos
        if done.all():
            break
    return done

def evaluate(model, prompts, length, eos):
    found = []
    for i in range(dist.get_rank(), len(prompts), dist.get_world_size()):
        found.append(sample(model, prompts[i], length, eos))
        if model(prompts[i]).max() == eos:
            break
    dist.barrier()
    return found
""",
    # numbers
    """
import torch
import torch.distributed as dist

def setup():
    dist.barrier()

def sample(model, input_ids, length):
    for i in range(length):
        scores = model(input_ids)
        if max(len(input_ids), 3) < i:
            break
    return scores
""",
    # how many there are, not what they are
    """
import torch
import torch.distributed as dist

def setup():
    dist.barrier()

def experience(model, loader, wanted):
    rows = []
    while len(rows) < wanted:
        scores = model(next(loader))
        for index in range(scores.shape[0]):
            rows.append(scores[index].sum())
    return rows
""",
    """
import torch
import torch.distributed as dist

def sample(model, input_ids, length, eos):
    unfinished = torch.ones(input_ids.shape[0])
    for _ in range(length):
        token = model(input_ids).argmax(-1)
        unfinished = unfinished * (token != eos)
        dist.all_reduce(unfinished)
        if unfinished.max() == 0:
            break
    return input_ids
""",
    """
import torch

def sample(model, input_ids, length, eos):
    unfinished = torch.ones(input_ids.shape[0])
    for _ in range(length):
        token = model(input_ids).argmax(-1)
        unfinished = unfinished * (token != eos)
        if unfinished.max() == 0:
            break
    return input_ids
""",
    """
import torch
import torch.distributed as dist

def setup():
    dist.barrier()

def stream(model, input_ids, length, eos):
    unfinished = torch.ones(input_ids.shape[0])
    for _ in range(length):
        token = model(input_ids).argmax(-1)
        yield token
        unfinished = unfinished * (token != eos)
        if unfinished.max() == 0:
            break
""",
    """
import torch
import torch.distributed as dist

def setup():
    dist.barrier()

def sample(model, input_ids, length, eos):
    done = torch.zeros(input_ids.shape[0], dtype=torch.bool)
    left = torch.tensor(len(done))
    while left.item() > 0 and not all(length):
        token = model(input_ids).argmax(-1)
        done |= token == eos
        left = (~done).sum()
        dist.all_reduce(left)
    return input_ids
""",
    """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def setup(model):
    dist.barrier()
    return DDP(model)

@torch.no_grad()
def sample(model, input_ids, length, eos):
    unfinished = torch.ones(input_ids.shape[0])
    for _ in range(length):
        token = model(input_ids).argmax(-1)
        unfinished = unfinished * (token != eos)
        if unfinished.max() == 0:
            break
    return input_ids

def main(net, input_ids):
    sample(setup(net), input_ids, 10, 0)
""",
]

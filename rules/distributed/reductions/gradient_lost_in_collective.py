"""A collective that works in place on a part of the loss.

What it does
    Reports `all_reduce`, `broadcast`, `all_gather` and alike of `torch.distributed` on what a model has computed, where
    the result flows into a value on which `backward()` is called. Silent for tensors that are detached first, under
    `no_grad`, for sizes, counts and whatever else are integers, and for `torch.distributed.nn` and the functional
    collectives, which have gradients.

Why is this bad
    The collectives of c10d are no part of the graph: `backward` treats the reduced value as if it were the rank's own.
    torch warns once ("an autograd kernel was not registered"), the gradients are wrong, and the loss looks right.

References
    https://docs.pytorch.org/docs/stable/distributed.html#autograd-enabled-communication-primitives
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.gradients import is_managed_off
from validator.flow.queries.training.placements import computed_from
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP572", "gradient-lost-in-collective", "warning", "0.1.0", tokens=("backward",))

# What these give has no gradient: copies without a graph, sizes, integers, truths, and tensors of a shape alone.
_CUTTING = frozenset({
    "device", "dtype", "shape", "detach", "detach_", "item", "tolist", "data", "numpy", "tensor", "new_tensor",
    "len", "size", "numel", "dim", "ndim", "long", "int", "short", "bool",
    "argmax", "argmin", "argsort", "nonzero", "count_nonzero", "bincount", "one_hot", "searchsorted", "bucketize",
    "eq", "ne", "gt", "lt", "ge", "le", "isnan", "isinf", "isfinite", "logical_and", "logical_or", "logical_not",
    "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones",
    "new_full", "new_empty",
})  # fmt: skip
_INTEGERS = ("torch.int", "torch.uint", "torch.long", "torch.short", "torch.bool")


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    reported: set[Place] = set()
    for backward in queries.named("backward"):
        loss = backward.receiver
        if loss is None or is_aside(backward.unit.path):
            continue
        parts = list(computed_from(loss, _CUTTING, _counts))
        alone = not any(map(_runs_model, parts)) and not any(map(_is_put_in, parts))
        for place in parts:
            call = place.value_at(place.value.args[1]) if place.value.op == "mut" else place
            if place.value.op != "mut" or call in reported or not _in_place(call, place.value.data):
                continue
            if _has_gradient(place.operand(0)) and not is_managed_off(call):
                reported.add(call)
                yield _report(call, backward)
            elif alone and (sent := _sent(call)) is not None and _has_gradient(sent) and not is_managed_off(call):
                reported.add(call)
                yield _report(call, backward, gathered=True)


def _has_gradient(tensor: Place) -> bool:
    """Whether a model has computed a tensor, with a graph."""
    made = [each for each in computed_from(tensor, _CUTTING, _counts) if _runs_model(each)]
    return any(not is_managed_off(each) for each in made)


def _sent(call: Place) -> Place | None:
    """What a collective that writes elsewhere sends."""
    row = call.operations[0].row
    return call.argument(*row.tensor) if row.tensor is not None and row.tensor != row.writes else None


def _is_put_in(place: Place) -> bool:
    """Whether a value is a container behind a store: one's own tensor, with its graph, in the place of what came."""
    return place.value.op == "mut" and place.operand(1).value.op == "store_item"


def _in_place(call: Place, position: int) -> bool:
    """Whether a collective of c10d writes the argument at a position."""
    for operation in call.operations:
        which = operation.row.equal or operation.row.writes
        if (
            which is not None
            and operation.sure
            and not operation.row.objects
            and position >= 0
            and call.value.op == "call"
        ):
            given = call.argument(*which)
            if given is not None and given.number == call.value.args[position + 1]:
                return True
    return False


def _runs_model(place: Place) -> bool:
    """Whether a value is what a module of a network computes."""
    if place.value.op != "call":
        return False
    callee = place.operand(0)
    for o in callee.closed.each:
        if o[0] == "made" and (
            o[1].startswith("torch.nn.") or "torch.nn.Module" in place.flow.models.library(o[1]).bases
        ):
            return True
        if o[0] in ("inst", "self") and any(
            place.flow.models.named(b) == "torch.nn.Module" for b in o[1].external_bases
        ):
            return True
    return False


def _counts(call: Place) -> bool:
    """Whether a call is told to give integers: `x.to(torch.long)`, `x.sum(dtype=torch.int64)`."""
    return any(
        o[0] == "ext" and o[1].startswith(_INTEGERS)
        for number in call.value.args[1:]
        for o in call.value_at(number).val.each
    )


def _report(call: Place, backward: Place, gathered: bool = False) -> Finding:
    done = "hands on" if gathered else "works in place on"
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}` in `{call.unit.qualname}` {done} what a model has computed, and `{backward.text}`"
        " goes through it: the collective has no gradient",
        help="reduce a detached copy for logging, or use `torch.distributed.nn.functional`, which has gradients",
        related=[Related(backward.unit.path, backward.at[0], "the backward pass starts here")],
        context=f"{call.unit.qualname}:{call.method}",
    )


INCORRECT = [
    """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train(module, batches, optimizer):
    model = DDP(module)
    for batch in batches:
        loss = model(batch).mean()
        dist.all_reduce(loss)  # error: MP572
        (loss / dist.get_world_size()).backward()
        optimizer.step()
""",
]

_CONTRAST = """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

def train(module, batches, optimizer):
    model = DDP(module)
    for batch in batches:
        rows = model(batch)
        all_rows = [torch.zeros_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(all_rows, rows){mark}
        {own}
        every = torch.cat(all_rows)
        logits = {mine} @ every.t()
        F.cross_entropy(logits, torch.arange(len(logits))).backward()
        optimizer.step()
"""

INCORRECT += [_CONTRAST.format(mark="  # error: MP572", own="", mine="every")]

CORRECT = [
    _CONTRAST.format(mark="", own="all_rows[dist.get_rank()] = rows", mine="every"),
    _CONTRAST.format(mark="", own="", mine="rows"),
    """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train(module, batches, optimizer):
    model = DDP(module)
    for batch in batches:
        loss = model(batch).mean()
        loss.backward()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        optimizer.step()
""",
    """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train(module, batches, optimizer):
    model = DDP(module)
    for batch, mask in batches:
        count = mask.sum()
        dist.all_reduce(count)
        loss = model(batch).sum() / count
        loss.backward()
        optimizer.step()
""",
    # numbers of things, which have no gradient
    """
import torch
import torch.distributed as dist

def train(batches, optimizer):
    model = torch.nn.Linear(4, 4)
    for batch, labels in batches:
        out = model(batch)
        rows = torch.tensor(out.size(0))
        dist.all_reduce(rows)
        right = torch.eq(out.argmax(-1), labels).sum()
        dist.all_reduce(right)
        weights = out.round().to(torch.long).sum()
        dist.all_reduce(weights)
        loss = out.sum() / rows / right / weights
        loss.backward()
        optimizer.step()
""",
]

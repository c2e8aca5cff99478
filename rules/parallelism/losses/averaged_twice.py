"""A mean over all ranks that is divided by their number once more.

What it does
    Takes what is divided by the number of ranks, and looks whether that is a mean over the ranks already: what a
    collective has averaged (`op=ReduceOp.AVG`), or has summed and the number of ranks has divided, here or in a
    function that gives it back (`reduce_mean(x) / world_size`). Of a function with a switch for it (`average=True`) it
    is asked whether this call divides. Silent where the number is anything else in between.

Why is this bad
    The value is too small by the number of ranks, and what is divided by it too large: a loss, a learning rate, a
    metric that depends on how many GPUs there are. On one process nothing shows.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.ReduceOp
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.origins import returned
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.values.shares import counts_ranks
from validator.flow.queries.values.sums import KEEPING, averaged, quotient, summed
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP431", "averaged-twice", "warning", "1.0", tokens=("reduce",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program() if queries.flow.is_distributed else ():
        for place in queries.values(unit, "binary", "call") if not is_aside(unit.path) else ():
            parts = quotient(place)
            mean = _mean_behind(parts[0]) if parts is not None and counts_ranks(parts[1]) else None
            if parts is not None and mean is not None:
                yield _report(place, *parts, mean)


def _mean_behind(value: Place) -> Place | None:
    """Where a value was made that is a mean over the ranks already."""
    seen: set[Place] = set()
    queue: list[tuple[Place, Place | None]] = [(value, None)]  # with the call that gave it
    for place, call in queue:
        place = place if place.value.op in ("mut", "phi") else place.root
        if place in seen:
            continue
        seen.add(place)
        if (mean := averaged(place)) is not None:
            return mean
        parts = quotient(place)
        if parts is not None and counts_ranks(parts[1]):
            if any(summed(parts[0])) and (call is None or _is_reached(place, call)):
                return place
        elif place.value.op == "phi":
            queue += [(place.value_at(number), call) for number in place.value.args]
        elif place.value.op == "mut":
            changing = place.operand(1)
            parts = quotient(changing) if changing.value.op == "call" else None
            if parts is not None and changing.method.endswith("_") and counts_ranks(parts[1]) and any(summed(parts[0])):
                return changing
        elif place.value.op == "call":
            if place.method in KEEPING | {"int"}:
                kept = place.receiver or place.argument("", 0)
                queue += [(kept, call)] if kept is not None else []
            elif call is None:
                queue += [(each, place) for each in returned(place) or ()]
    return None


def _is_reached(place: Place, call: Place) -> bool:
    """Whether a call comes to a place of the function that it runs: the switches around that are on."""
    unit = place.unit
    for test, holds in ((each.root, way) for each, way in place.settled_tests):
        if test.value.op != "param":
            continue
        given = argument_of(call.unit, call.number, unit, test.value.data[0])
        value = (
            call.value_at(given).val if given is not None else place.flow.parameters.default(unit, test.value.data[1])
        )
        if value.constant() is None or bool(value.constant()) is not holds:
            return False
    return True


def _report(place: Place, value: Place, size: Place, mean: Place) -> Finding:
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{value.text}`{place.where} is a mean over the ranks already, and `{size.text}` divides it by their number"
        " again",
        help="divide once: drop one of the two, or let the collective sum",
        related=[Related(mean.unit.path, mean.at[0], "averaged here")],
        context=f"{place.unit.qualname}:{value.text}",
    )


_LOSS = """\
import torch
import torch.distributed as dist


def reduce_sum(tensor, average={average}):
    size = dist.get_world_size()
    if size <= 1:
        return tensor
    tensor = tensor.clone()
    dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    if average:
        tensor = tensor / size
    return tensor


def loss(targets, errors):
    size = dist.get_world_size()
    weight = {value}.item() / float(size){mark}
    return errors.sum() / weight
"""
_LOGGED = """\
import torch
import torch.distributed as dist


def log(losses, steps):
    mean = torch.tensor(sum(losses) / steps)
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(mean, op=dist.ReduceOp.{operation})
    mean = mean.item() / dist.get_world_size(){mark}
    print(mean)
"""

INCORRECT = (
    _LOGGED.format(operation="AVG", mark="  # error: MP431"),
    _LOSS.format(average=True, value="reduce_sum(targets.sum())", mark="  # error: MP431"),
    _LOSS.format(average=False, value="reduce_sum(targets.sum(), average=True)", mark="  # error: MP431"),
)

CORRECT = (
    _LOGGED.format(operation="SUM", mark=""),
    _LOSS.format(average=False, value="reduce_sum(targets.sum())", mark=""),
    _LOSS.format(average=True, value="reduce_sum(targets.sum(), average=False)", mark=""),
    _LOSS.format(average=True, value="(size * reduce_sum(targets.sum()))", mark=""),
)

"""How a model, a parameter or a tensor is placed: what was done to it, step by step.

A placement is the steps in their order, joined by `+`: `tp+fsdp2` is a module that tensor parallelism has split and
FSDP2 has sharded since. A value has a set of placements, one for each way that may have led to it:

| step | meaning |
| --- | --- |
| `plain` | known to be as it was made; `?`: not known; `$3`: as the caller's argument for parameter 3 |
| `fsdp1`, `ddp`, `deepspeed` | inside that wrapper |
| `over dp,ep` | the wrapper that follows works among ranks that these axes span |
| `prepared` | inside whatever the launcher of `accelerate` asks for |
| `fsdp2`, `tp` | parameters are DTensors of `fully_shard`, of tensor parallelism |
| `zero3` | parameters are spread over ranks as ZeRO-3 does, and empty between uses |
| `dtensor`, `local`, `whole` | a DTensor, the shard of one rank, a tensor that was gathered from all shards |
| `meta` | parameters have no storage yet |
| `compiled` | behind `torch.compile` |
| `half` | parameters in bf16 or fp16 |
| `eval` | in evaluation mode |

`-meta` takes a step back. Each step occurs once, so there are finitely many placements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from validator.domains.axes import SOME, WHOLE, Axes

Placements = frozenset[str]
NOWHERE: Placements = frozenset()
UNPLACED: Placements = frozenset({"?"})
PLAIN: Placements = frozenset({"plain"})
SHARDING = frozenset({"fsdp1", "fsdp2", "zero3", "deepspeed"})
WRAPPING = frozenset({"fsdp1", "fsdp2", "ddp", "deepspeed"})
DTENSOR = frozenset({"fsdp2", "tp", "dtensor"})
SPREADING = frozenset({"fsdp1", "fsdp2", "tp", "zero3"})  # what is done to a model once, before it is used
_REPLACING = frozenset({"whole", "local", "dtensor"})  # what came before does not matter any more
_OVER = "over "
_MANY = 12


def after(placements: Placements, step: str) -> Placements:
    """Placements behind one more step."""
    if not step:
        return placements
    found = frozenset(_after(each, step) for each in placements or PLAIN)
    return found if len(found) <= _MANY else frozenset({_after("?", step)})


def _after(placement: str, step: str) -> str:
    if step in _REPLACING:
        return step
    steps = placement.split("+")
    if step.startswith("-"):
        return "+".join(each for each in steps if each != step[1:]) or "plain"
    if step in steps:
        return placement
    return "+".join([each for each in steps if each != "plain"] + [step])


def over(axes: Axes) -> str:
    """The step by which a wrapper is given a group that spans some axes."""
    return _OVER + ",".join(sorted(axes))


def spanned(placements: Placements) -> Axes:
    """The axes among whose ranks the wrappers around a model work: all ranks, where they were given no group."""
    found = {step for each in placements for step in steps_of(each) if step.startswith(_OVER)}
    if not found:
        return WHOLE
    return frozenset(found.pop()[len(_OVER) :].split(",")) if len(found) == 1 else SOME


def of_parameter(position: int) -> Placements:
    return frozenset({f"${position}"})


def is_symbolic(placements: Placements) -> bool:
    return any(each[0] == "$" for each in placements)


def parameters(placements: Placements) -> frozenset[int]:
    """The positions of the parameters in terms of which placements are told."""
    return frozenset(int(each.partition("+")[0][1:]) for each in placements if each[0] == "$")


def substituted(placements: Placements, argument: Callable[[int], Placements]) -> Placements:
    """Placements of a unit in terms of how its arguments are placed."""
    if not is_symbolic(placements):
        return placements
    found: set[str] = set()
    for each in placements:
        if each[0] != "$":
            found.add(each)
            continue
        first, *rest = each.split("+")
        given = argument(int(first[1:])) or (PLAIN if rest else NOWHERE)
        for step in rest:
            given = after(given, step)
        found |= given
    return frozenset(found) if len(found) <= _MANY else UNPLACED


@cache
def steps_since(placements: Placements, position: int) -> tuple[str, ...]:
    """The steps that a unit takes with its parameter."""
    mine = (each.split("+") for each in placements)
    return tuple(dict.fromkeys(step for first, *rest in sorted(mine) if first == f"${position}" for step in rest))


@cache
def inherited(own: Placements, owner: Placements) -> Placements:
    """The placement of a part: what is known of itself, else that of the whole, which was placed later."""
    if not owner or owner <= UNPLACED | PLAIN:
        return own or owner
    return owner if own <= UNPLACED | PLAIN else own | owner


@cache  # there are some hundred placements, and every call asks this of its receiver
def may(placements: Placements, *steps: str) -> bool:
    """Whether some way leads through one of the steps."""
    return any(not steps_of(each).isdisjoint(steps) for each in placements)


@cache
def certainly(placements: Placements, *steps: str) -> bool:
    """Whether every way leads through one of the steps."""
    return bool(placements) and all(not steps_of(each).isdisjoint(steps) for each in placements)


def mostly(placements: Placements, *steps: str) -> bool:
    """Whether every way of which something is known leads through one of the steps."""
    known = [each for each in placements if each[0] not in "?$" or "+" in each]
    return may(placements, *steps) and certainly(frozenset(known), *steps)


def steps_of(placement: str) -> frozenset[str]:
    return frozenset(placement.split("+"))


def comes_before(placements: Placements, first: Iterable[str], second: str) -> bool:
    """Whether on some way one of the first steps was taken before the second."""
    firsts = frozenset(first)
    for each in placements:
        steps = each.split("+")
        if second in steps and not firsts.isdisjoint(steps[: steps.index(second)]):
            return True
    return False

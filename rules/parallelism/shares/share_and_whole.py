"""A number that is divided among the ranks in one place, and multiplied by them in another.

What it does
    Looks for an option, a field or a variable that one place of a program divides by the number of ranks
    (`DataLoader(…, batch_size=args.batch_size // world_size)`), and another one multiplies by it (`args.batch_size *
    accumulation * world_size`). Silent where the number is stored anew in between (`args.batch_size //= world_size`),
    where a condition takes one way or the other, and in tests.

Why is this bad
    It is of all ranks in one of the two places and of one rank in the other, so one of them is wrong by a factor that
    grows with the job: a learning rate that is scaled by it, a number of steps, a batch that is reported. On one
    process nothing shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.finding import Finding, Related
from validator.flow.control import reachable
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.values.shares import counts_ranks
from validator.flow.queries.values.sums import factors
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP429", "share-and-whole", "warning", "1.0", solves=True)

_DIVIDING = ("FloorDiv", "Div")


class _Use(NamedTuple):
    """Where a number is divided among the ranks, or multiplied by them."""

    number: Place
    place: Place


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    shares: dict[object, list[_Use]] = {}
    wholes: dict[object, list[_Use]] = {}
    found = {"Mult": wholes, **dict.fromkeys(_DIVIDING, shares)}
    for unit in queries.of_program() if queries.flow.is_distributed else ():
        for place in queries.values(unit, "binary"):
            for number in _numbers(place) if place.value.data in found else ():
                for key in _keys(number):
                    found[place.value.data].setdefault(key, []).append(_Use(number, place))
    said: set[Place] = set()
    for key in (key for key in shares if key in wholes):
        pairs = ((share, whole) for share in shares[key] for whole in wholes[key] if _meet(share.place, whole.place))
        pair = next(pairs, None)
        if pair is not None and pair[1].place not in said:
            said.add(pair[1].place)
            yield _report(*pair)


def _numbers(place: Place) -> list[Place]:
    """What is divided by the number of ranks, or multiplied by it beside other factors."""
    if place.value.data in _DIVIDING:
        return [place.operand(0).root] if counts_ranks(place.operand(1)) else []
    parts = factors(place)
    return [each for each in parts if not counts_ranks(each)] if any(counts_ranks(each) for each in parts) else []


def _keys(number: Place) -> list[object]:
    """By what a number is known to be the same in two places; by nothing where it may be stored anew between."""
    value = number.value
    if value.op == "attr":
        owners = [o for o in number.operand(0).closed.each if o[0] != "namespace"]
        known = all(o[0] in ("inst", "self", "made", "section") for o in owners)
        return [("attr", o, value.data) for o in owners] if known and not _is_stored_again(number) else []
    if value.op in ("param", "call", "item", "unpack", "name", "free") and number.unit.variables.get(number.number):
        return [("value", number.unit, number.number)]
    return []


def _is_stored_again(number: Place) -> bool:
    """Whether a number is stored that is made of itself: `args.batch_size = int(args.batch_size / size)`."""
    name = number.value.data
    for writer in number.flow.units(iter(number.flow.stores.writers(name))):
        for value in writer.code.values:
            if value.op == "store_attr" and value.data == name:
                made = Place(number.flow, writer, value.args[1]).parts
                if any(part.value.op == "attr" and part.value.data == name for part in made):
                    return True
    return False


def _meet(share: Place, whole: Place) -> bool:
    """Whether one run may come to both places."""
    if share.unit is not whole.unit:
        return True
    one, other = share.value.block, whole.value.block
    return (
        one == other or other in reachable(share.unit.code, start=one) or one in reachable(share.unit.code, start=other)
    )


def _report(share: _Use, whole: _Use) -> Finding:
    place = whole.place
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.text}`{place.where} multiplies `{whole.number.text}` by the number of ranks, as if it were of one of"
        f" them; `{share.place.text}` deals it out among them, as if it were of all",
        help="let the number mean one thing: of one rank, or of all ranks together",
        related=[Related(share.place.unit.path, share.place.at[0], f"`{share.number.text}` is dealt out here")],
        context=f"{place.unit.qualname}:{whole.number.text}",
    )


_SETTINGS = """\
import argparse

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def main(data):
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    dist.init_process_group("nccl")
    size = dist.get_world_size()
    {first}
    loader = DataLoader(data, batch_size={share}, sampler=DistributedSampler(data))
    whole = {whole}
    return loader, args.lr * whole / 256
"""

INCORRECT = (
    _SETTINGS.format(
        first="print(size)",
        share="args.batch_size // size",
        whole="args.batch_size * args.accumulate * dist.get_world_size()  # error: MP429",
    ),
)

CORRECT = (
    _SETTINGS.format(
        first="print(size)", share="args.batch_size", whole="args.batch_size * args.accumulate * dist.get_world_size()"
    ),
    _SETTINGS.format(
        first="args.batch_size = args.batch_size // size",
        share="args.batch_size",
        whole="args.batch_size * args.accumulate * dist.get_world_size()",
    ),
    # a number for each way
    """\
import torch.distributed as dist


def sizes(batch, is_whole):
    size = dist.get_world_size()
    if is_whole:
        own, whole = batch // size, batch
    else:
        own, whole = batch, batch * size
    own = own // 2
    return own, own * size, whole
""",
)

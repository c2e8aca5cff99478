"""Loaders of torch: what they are made of, and which deal data out among the ranks."""

from __future__ import annotations

from validator.flow.queries.base import Place
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.origins import calls_behind, trail
from validator.flow.queries.ranks.rank_shares import LOADER, within


def loaders_of(iterable: Place) -> list[Place]:
    """The calls that surely made the loader which a loop goes through; none where that is not known."""
    return calls_behind(within(iterable.root), makes_loader) or []


def makes_loader(call: Place) -> bool:
    """Whether a call makes a loader of torch, and nothing else."""
    models = call.flow.models
    rows = [models.call(o[1]) if o[0] == "ext" else None for o in call.operand(0).val.each]
    return bool(rows) and all(row is not None and row.result == f"made:{LOADER}" for row in rows)


def deals_out(loader: Place) -> bool:
    """Whether a loader is given a sampler that deals its data out among the ranks, where it is given one at all."""
    sampler = loader.argument("sampler", 3)
    made = calls_behind(sampler, _makes_share) if sampler is not None else None
    return bool(made) and not any(each.argument("num_replicas", 1) is not None for each in made or ())


def _makes_share(call: Place) -> bool:
    models = call.flow.models
    rows = [models.call(o[1]) if o[0] == "ext" else None for o in call.operand(0).val.each]
    return bool(rows) and all(row is not None and row.shares is not None for row in rows)


def is_data_of(data: Place, loader: Place, iterable: Place) -> bool:
    """Whether a value is the data set of a loader: what that was given, or `loader.dataset` of what a loop goes
    through."""
    root = data.root
    if root.value.op == "attr" and root.value.data == "dataset":
        behind = calls_behind(root.operand(0), makes_loader)
        return behind == loaders_of(iterable) and behind is not None
    given = loader.argument("dataset", 0)
    before = {(each.unit, each.number) for each in trail(given, frozenset())} if given is not None else set()
    return any((each.unit, each.number) in before for each in trail(root, frozenset()))


def handed_through(iterable: Place) -> Place:
    """What is gone through by a generator of the project that hands on what it is given, item by item."""
    place = within(iterable.root)
    called = place.operand(0).closed.each if place.value.op == "call" else ()
    units = [o[1] for o in called if o[0] in ("bound", "unit")]
    if len(units) != 1 or len(called) > 1:
        return iterable
    for number, value in enumerate(units[0].code.values):
        given = Place(place.flow, units[0], number)
        if value.op == "yield" and value.args and given.operand(0).root.value.op == "next":
            source = within(given.operand(0).root.operand(0).gone_through.root)
            position = source.value.data[0] if source.value.op == "param" else -1
            passed = argument_of(place.unit, place.number, units[0], position) if position >= 0 else None
            return place.value_at(passed) if passed is not None else iterable
    return iterable

"""Samplers whose order hangs on an epoch that they are told: those of torch, and those that a project defines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.definitions import ClassDef
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.random_draws import draws, takes_seed

DEALING = ("torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler")


class Sampler(NamedTuple):
    """A call that makes one. `position`: of its argument `shuffle`, -1 where it has none; `default`: what that is
    otherwise; `name`: of its class."""

    place: Place
    name: str
    position: int
    default: bool
    is_own: bool


def samplers(queries: Queries) -> Iterator[Sampler]:
    """The calls of a project that make samplers."""
    for place in queries.calls(*DEALING):
        yield Sampler(place, "DistributedSampler", 3, True, False)
    for cls in queries.project.classes():
        if _goes_by_epoch(queries, cls):
            position, default = _shuffle(queries, cls)
            for place in _made(queries, cls):
                yield Sampler(place, cls.name, position, default, True)


def dealing_of_project(queries: Queries) -> Iterator[Place]:
    """The calls that make samplers of the project which take a part of the data by the rank."""
    for cls in queries.project.classes():
        if any(base.endswith("Sampler") for base in cls.external_bases) and _takes_part(queries, cls):
            yield from _made(queries, cls)


def _made(queries: Queries, cls: ClassDef) -> Iterator[Place]:
    for place in queries.named(cls.name):
        if {("class", cls)} == set(place.operand(0).val.each) and not is_test(place.unit.path):
            yield place


def _takes_part(queries: Queries, cls: ClassDef) -> bool:
    """Whether what a class goes through is cut by something that hangs on the rank."""
    if cls.find("__iter__") is None:
        return _is_dealing(cls)
    return any(place.operand(1).varies("rank") for place in _own(queries, cls, "__iter__", "item"))


def _goes_by_epoch(queries: Queries, cls: ClassDef) -> bool:
    """Whether what a class goes through is drawn by the epoch that it is told."""
    inherits = _is_dealing(cls)
    if cls.find("__iter__") is None:
        return inherits
    stored = {
        place.value.data
        for place in _own(queries, cls, "set_epoch", "store_attr")
        if place.operand(1).root.value.op == "param"
    }
    if inherits and cls.find("set_epoch") is None:
        stored.add("epoch")
    calls = list(_own(queries, cls, "__iter__", "call")) if stored else []
    seeding = (call for call in calls if takes_seed(call))
    given = (part for call in seeding for argument in call.value.args[1:] for part in call.value_at(argument).parts)
    told = any(part.value.op == "attr" and part.value.data in stored for part in given)
    return told and any(draws(call) for call in calls)


def _own(queries: Queries, cls: ClassDef, name: str, op: str) -> Iterator[Place]:
    """The values of one kind in a method of a class, and in what that calls of the class."""
    method = cls.find(name)
    units = queries.reached(queries.flow.units(iter([method] if method is not None else ())))
    for unit in units:
        if unit.cls is not None and unit.cls in cls.mro:
            yield from queries.values(unit, op)


def _shuffle(queries: Queries, cls: ClassDef) -> tuple[int, bool]:
    """Where the constructor of a class takes whether it shuffles, and what it does where nothing is said."""
    method = cls.find("__init__")
    for unit in queries.flow.units(iter([method] if method is not None else ())):
        names = [name for name, _ in unit.code.params]
        if "shuffle" in names:
            default = queries.flow.parameters.default(unit, "shuffle").constant()
            return names.index("shuffle") - 1, default is not False
        return -1, True
    return (3, True) if _is_dealing(cls) else (-1, True)


def _is_dealing(cls: ClassDef) -> bool:
    return not set(DEALING).isdisjoint(cls.external_bases)

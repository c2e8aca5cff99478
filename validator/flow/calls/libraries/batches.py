"""What a data loader gives: the samples of its data set, put together by its `collate_fn` or as PyTorch does itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.spmd import data
from validator.flow.callgraph.dataclass_readers import OF_NOBODY
from validator.flow.calls.protocols import method_of
from validator.flow.substitution import instantiated
from validator.flow.values import BOTTOM, NONE_OBJ, UNKNOWN, Obj, Val, bare, join, obj, picked, sequence, tuple_of

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.unit import Unit

_OWN = Val(UNKNOWN.objs, data())  # a batch of numbers: each rank has its own


def batch_of(at: Evaluation, loader: Val) -> Val:
    """One batch of a loader that keeps its data set; anything where nobody knows what that holds."""
    found = [_batch(at, o) for o in loader.of("keeping")]
    return join(found) if found else _OWN


def _batch(at: Evaluation, keeping: Obj) -> Val:
    sample = _sample(at, picked(keeping[1], "dataset"))
    collate = picked(keeping[1], "collate_fn")
    if not collate.objs or collate == bare(OF_NOBODY):
        return join([_stacked(Val(frozenset({o}))) for o in sample.each]) if sample.objs else _OWN
    samples = Val(sequence(_own(sample)).objs, data())
    made = [_called(at, o, samples) for o in collate.each]
    return join(made) if made else _OWN


def _own(value: Val) -> Val:
    """What each rank has for itself, with all its parts."""
    objs: set[Obj] = set()
    for o in value.objs:
        if o[0] == "tuple":
            objs |= tuple_of([_own(part) for part in o[1]]).objs
        elif o[0] == "dict":
            rest = None if o[2] is None else _own(o[2])
            objs |= obj("dict", tuple((key, _own(held)) for key, held in o[1]), rest).objs
        else:
            objs.add(o)
    return Val(frozenset(objs), value.v | data(), value.n, value.p, value.state)


def _sample(at: Evaluation, dataset: Val) -> Val:
    """One sample of a data set, or of what a wrapper of a library keeps."""
    found = []
    for o in dataset.each:
        if (unit := method_of(at, o, "__getitem__")) is not None:
            found.append(_result(at, unit, [Val(frozenset({o}))]))
        elif o[0] == "keeping" and (inner := picked(o[1], "dataset")).objs:
            found.append(_sample(at, inner))
        elif o[0] != "made" or not dataset.of("keeping"):
            found.append(UNKNOWN)
    return join(found) if found else UNKNOWN


def _called(at: Evaluation, o: Obj, samples: Val, named: tuple[tuple[str, Val], ...] = ()) -> Val:
    """What a function that puts samples together makes of them, and of what a `partial` gives it by name."""
    if o[0] == "partial" and not o[2]:
        return join([_called(at, each, samples, o[3]) for each in o[1].each] or [_OWN])
    if o[0] == "bound":
        return _result(at, o[1], [o[2], samples], named)
    if o[0] == "unit":
        return _result(at, o[1], [samples], named)
    unit = method_of(at, o, "__call__")
    return _result(at, unit, [Val(frozenset({o})), samples], named) if unit is not None else _OWN


def _result(at: Evaluation, unit: Unit, given: list[Val], named: tuple[tuple[str, Val], ...] = ()) -> Val:
    if unit.code.is_generator:
        return UNKNOWN
    by_name = dict(named)
    passed = [*given, *(by_name.get(name, UNKNOWN) for name, _ in unit.code.params[len(given) :])]
    returned: Val = at.flow.part(("unit", unit), "returned")
    made = instantiated(returned, lambda position: passed[position] if position < len(passed) else UNKNOWN)
    return Val(made.objs or UNKNOWN.objs, made.v | data(), made.n, made.p, made.state)


def _stacked(sample: Val) -> Val:
    """A batch of samples of one kind, as PyTorch's own `default_collate` makes it."""
    (o,) = sample.objs
    if o[0] == "tuple":
        return Val(tuple_of([_OWN] * len(o[1])).objs, data())
    if o[0] == "dict":
        rest = None if o[2] is None else _OWN
        return Val(obj("dict", tuple((key, _OWN) for key, _ in o[1]), rest).objs, data())
    return BOTTOM if o == NONE_OBJ else _OWN

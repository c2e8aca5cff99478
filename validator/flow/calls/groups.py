"""Process groups: the axes that they span, their ranks, and which one a call works on or makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.axes import SOME, WHOLE, Axes, of_dimension
from validator.domains.axes import UNKNOWN as UNKNOWN_AXIS
from validator.domains.spmd import NONE, UNIFORM, Cause, equalled, rank, varying
from validator.flow.calls.arguments import Arguments, argument
from validator.flow.calls.group_loops import is_of_every_rank
from validator.flow.values import NONE_OBJ, Obj, Val, elements, group_of, mapped, obj, sequence
from validator.ir import Value as Instruction
from validator.models import Row

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation


def axes_in(group: Val) -> Axes:
    """The axes that a group may span; `SOME` where it is not known."""
    found: set[str] = set()
    for o in group.objs - {NONE_OBJ} or group.objs:  # None is what a group is before it is made
        if o[0] == "group":
            found |= o[1]
        elif o[0] == "mesh":
            found |= frozenset(of_dimension(d) for d in o[1]) if o[1] else SOME
        elif o == NONE_OBJ:
            found |= WHOLE
        else:
            found |= SOME
    return SOME if not found or found & SOME else frozenset(found)


def of_group(group: Val, name: str, sure: bool = True) -> Val:
    """What a group says of itself: how many ranks it has, the caller's rank in it."""
    if name == "size":
        return obj("size", group)
    axes = axes_in(group)
    among = "job" if axes == WHOLE else "group"
    return Val(frozenset({("ordinal", among, axes)}), rank(axes if axes != SOME else WHOLE, sure and axes != SOME))


def made_equal(value: Val, axes: Axes) -> Val:
    """A value, and what it holds, made equal on the ranks along some axes."""
    v, n, p = (equalled(each, axes) or frozenset({UNIFORM}) for each in (value.v, value.n, value.p))
    return Val(frozenset(mapped(o, lambda part: made_equal(part, axes)) for o in value.each), v, n, p, value.state)


def differing(value: Val, axes: Axes) -> Val:
    """A value of which only one rank along some axes has what it is meant to be."""
    return Val(value.objs, rank(axes or WHOLE), value.n, value.p, value.state)


def group_on(row: Row, arguments: Arguments) -> Val:
    """The group on which a collective works."""
    which = row.group or row.rank_of or row.over
    if row.world or which is None:
        return group_of(WHOLE)
    given = argument(which, arguments)
    if given is None or given.is_const(None):
        return group_of(WHOLE)
    return given


def axes_named(row: Row, arguments: Arguments) -> Axes:
    """The axes that a row names, with those that flags of the call add."""
    axes = frozenset(row.axes)
    for flag, more in row.widened.items():
        if any(name == flag and value.is_const(True) for name, value in arguments):
            axes |= frozenset(more)
    return axes


def spanned_by(at: Evaluation, group: Val) -> Axes:
    """The axes of a group; of one that callers may pass, where all of them pass groups of one axis."""
    axes = axes_in(group)
    if axes == SOME and group.symbolic:
        passed = axes_in(at.flow.close(group, at.unit))
        return passed if len(passed) == 1 else axes
    return axes


def job_rank(at: Evaluation, word: str, row: Row, arguments: Arguments) -> Val:
    """The rank in the job of some member of a group: the same for the group, another for other groups. Of which axes
    the group is, is kept where all its members name the same one."""
    axes = spanned_by(at, group_on(row, arguments))
    apart = frozenset({Cause("member", UNKNOWN_AXIS, axes != SOME)}) if axes != WHOLE else NONE
    asked = frozenset().union(*(v.v for n, v in arguments[1:])) if word == "job rank" else NONE
    place = argument(("group_rank", 1), arguments) if word == "job rank" else None
    whose = WHOLE if axes == SOME or place is not None and varying(place.v) else axes
    number = Val(frozenset({("ordinal", "job", whose)}), apart | asked)
    counted = ("counted", group_on(row, arguments))
    return number if word == "job rank" else Val(sequence(number).objs | {counted}, apart)


def made_group(at: Evaluation, number: int, row: Row, arguments: Arguments) -> Val:
    """The group that a call makes."""
    axes = axes_named(row, arguments)
    if axes:
        return group_of(axes, "several" if axes != SOME else None)
    given = argument(("ranks", 0), arguments)
    backend = argument(("backend", 2), arguments)
    named = backend.constant() if backend is not None else None
    named = named if isinstance(named, str) else None
    if given is None or given.is_const(None):
        return group_of(WHOLE, None, named)
    return group_of(SOME, _ranks(at, at.code.values[number], given), named)


def _ranks(at: Evaluation, call: Instruction, given: Val) -> object:
    """The ranks of a group, or whether `every` rank gets into one of those that are made here, or there are `several`
    on different ranks; None where nothing is known."""
    ranks: object = _literal_ranks(given)
    if ranks is None and any(map(varying, (given.v, given.n, elements(given).v))):  # each rank passes its own
        ranks = "several"
    elif ranks is None and at.code.blocks[call.block].loop >= 0:
        ranks = "every" if is_of_every_rank(at, call) else "several"
    return ranks


def _literal_ranks(given: Val) -> tuple[int, ...] | None:
    """The ranks of a literal list."""
    if len(given.objs) != 1:
        return None
    (o,) = given.objs
    ranks = tuple(v.constant() for v in o[1]) if o[0] == "tuple" else ()
    return ranks if ranks and all(isinstance(r, int) for r in ranks) else None


def index_in(counted: frozenset[Obj]) -> Val:
    """A place in a list; in one that is as long as a group, the number of a rank in it."""
    numbers = frozenset(
        ("ordinal", "job" if axes == WHOLE else "group", axes)
        for o in counted
        if o[0] == "counted"
        for axes in (axes_in(o[1]),)
        if axes != SOME
    )
    return Val(numbers, frozenset({UNIFORM}))

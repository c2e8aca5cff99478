"""Calls that a row of a table describes: the collectives that they issue, what they change, what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from validator.domains.axes import WHOLE
from validator.domains.placement import DTENSOR, SHARDING, UNPLACED, after, certainly, is_symbolic, mostly, over
from validator.domains.spmd import data, held, rank
from validator.flow.calls.arguments import SPREADS, Arguments, argument, place_of
from validator.flow.calls.groups import axes_in, differing, group_on, made_equal
from validator.flow.calls.libraries.placement import wraps
from validator.flow.calls.libraries.randomness import drawn_as
from validator.flow.calls.libraries.results import result_of
from validator.flow.calls.sharded_models import is_for_ranks
from validator.flow.calls.sites import note
from validator.flow.program.answers import Operation, Site
from validator.flow.values import BOTTOM, UNKNOWN, Val, join, picked
from validator.models import Row

if TYPE_CHECKING:
    from validator.flow.calls.in_hand import Call
    from validator.flow.evaluation import Evaluation


def by_row(call: Call, row: Row, arguments: Arguments, receiver: Val, sure: bool = True) -> Val:
    """What a call that the tables describe does and gives."""
    group = group_on(row, arguments)
    if row.is_collective and _applies(row, arguments):
        spread = row.spread is None or _is_spread(call, row.spread, arguments)
        certain = sure and call.certain and spread and not row.likely
        note(call.at, call.number, Site((), (Operation(row.name, group, certain, row),)))
    _change_arguments(call, row, arguments, group)
    wraps(call.at, call.number, row, arguments)
    ran = _run_given(call, row, arguments) if row.runs is not None else UNKNOWN
    if row.result == "ran":
        return ran
    if row.result == "field":
        default = argument(row.default, arguments) if row.default is not None else None
        return default or (ran if row.runs is not None and place_of(row.runs, arguments) >= 0 else BOTTOM)
    result = result_of(call, row, arguments, receiver, group)
    result = _seeded(call, row, arguments, result)
    return _placed(row, arguments, group, result)


def _change_arguments(call: Call, row: Row, arguments: Arguments, group: Val) -> None:
    """Note which argument is equal on all ranks of the group behind the call, or the root's alone, and which is placed
    otherwise."""
    if row.equal is not None:
        place = place_of(row.equal, arguments)
        if place >= 0:
            axes = axes_in(group)
            call.at.after[call.number, place] = lambda before: made_equal(before, axes)
    if row.apart is not None:
        axes = axes_in(group)
        _then(call.at, call.number, place_of(row.apart, arguments), lambda before: differing(before, axes))
    if row.state is not None:
        place = place_of((row.state[0], row.state[1]), arguments)
        tag = row.state[2]
        if place >= 0:
            call.at.after[call.number, place] = lambda before: before.placed(after(before.state, tag))
            call.at.steps[call.number, place] = (tag,)


def _seeded(call: Call, row: Row, arguments: Arguments, result: Val) -> Val:
    """The result of a call that makes or seeds a generator; what the call shuffles or seeds is noted."""
    if row.mixes is not None:
        drawn = drawn_as(call, row, arguments)
        _then(call.at, call.number, place_of(row.mixes, arguments), lambda before: before.with_causes(v=drawn))
    if row.seed is not None:
        seed = argument(row.seed, arguments)
        causes = held(seed.v) if seed is not None and not seed.is_const(None) else data(sure=False)
        _then(call.at, call.number, -1, lambda before: Val(before.objs, causes, before.n, before.p, before.state))
        return result.with_causes(v=causes) if result.objs else result
    return result


def _placed(row: Row, arguments: Arguments, group: Val, result: Val) -> Val:
    """A result, placed as the row says."""
    several = isinstance(row.result, tuple | list)
    if row.wraps is not None and not several:
        wrapped = argument(row.wraps, arguments)
        result = result.placed(wrapped.state if wrapped is not None else UNPLACED)
    if row.whole_if is not None:
        return result.placed(frozenset({_whole_or_shards(row.whole_if, arguments)}))
    if not row.result_state or several:
        return result
    among = over(axes_in(group)) if row.over is not None and axes_in(group) != WHOLE else ""
    return result.placed(after(after(result.state, among), row.result_state))


def _run_given(call: Call, row: Row, arguments: Arguments) -> Val:
    """What a function gives that is passed to be called (`to_thread(function, *arguments)`)."""
    place = place_of(row.runs or ("", -1), arguments)
    if place < 0:
        return UNKNOWN
    function = arguments[place][1]
    given = [each for each in arguments[place + 1 + row.skips :] if row.gives is None and each[0] not in row.own]
    if row.gives is not None and (held := argument(row.gives, arguments)) is not None:
        given = [(None, part) for o in held.of("tuple") for part in o[1]]
    given = [*[(None, Val(v=rank(WHOLE)))] * row.before, *given]  # of one node or of the job: as it is started
    return join(call.apply(o, given) for o in function.each)


def _then(at: Evaluation, number: int, place: int, change: Callable[[Val], Val]) -> None:
    """What the argument at a place (-1: the receiver) becomes; of a place that holds nothing it does not matter."""
    at.after[number, place] = change


def _is_spread(call: Call, which: tuple[str, int], arguments: Arguments) -> bool:
    """Whether an argument is spread over ranks; of a parameter what callers pass, where all of that is and no test
    around the call may ask for it."""
    given = argument(which, arguments)
    if given is None or mostly(given.state, *SHARDING, *DTENSOR):
        return given is not None
    if not is_symbolic(given.state) or not is_for_ranks(call.at, call.value.block):
        return False
    return certainly(call.at.flow.close(given, call.at.unit).state, *SHARDING, *DTENSOR)


def _applies(row: Row, arguments: Arguments) -> bool:
    """Whether a call with such arguments issues the collective of the row."""
    if row.when and not any(name in row.when for name, _ in arguments):
        return False
    if row.local is not None:
        local = argument(row.local, arguments)
        return local is None or local.is_const(False)
    if row.arg_state is not None:
        given = argument((row.arg_state[0], row.arg_state[1]), arguments)
        return given is not None and certainly(given.state, row.arg_state[2])
    return True


def _whole_or_shards(which: tuple[str, int, str], arguments: Arguments) -> str:
    """How the tensors of a state dictionary are placed, as the options say."""
    if any(name in SPREADS for name, _ in arguments):
        return "?"
    options = argument(which[:2], arguments)
    if options is None or options.is_const(None):
        return "dtensor"
    said = [picked(o[1], which[2]) for o in options.of("keeping")]
    if not said or len(options.of("made")) + len(said) < len(options.objs):
        return "?"
    if any(each.symbolic for each in said):
        return "?"
    passed = [each for each in said if each.objs != {("made", "~")} and not each.is_const(False)]
    return "whole" if passed else "dtensor"

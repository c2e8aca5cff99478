"""Calls on receivers whose class is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.axes import SOME, axes_of, of_dimension, of_parallelism
from validator.domains.placement import may
from validator.domains.spmd import UNIFORM, combined, rank
from validator.flow import texts
from validator.flow.calls.arguments import Arguments
from validator.flow.calls.groups import axes_in, made_equal, of_group
from validator.flow.calls.hints import asked_axes, asked_object, hint_of
from validator.flow.calls.libraries.computed import same
from validator.flow.calls.libraries.external import carried_over
from validator.flow.calls.libraries.rows import by_row
from validator.flow.values import BOTTOM, STRING, UNKNOWN, Val, group_of, join, sequence, tuple_of
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.calls.in_hand import Call
    from validator.flow.evaluation import Evaluation

_GATHERING = frozenset({
    "all_reduce", "all_gather", "broadcast", "reduce", "gather", "all_gather_object", "broadcast_object_list",
    "gather_object", "all_gather_into_tensor", "gather_for_metrics",
})  # fmt: skip
_NAMED = frozenset({"named_parameters", "named_buffers", "named_modules", "named_children"})


def unknown(call: Call) -> Val:
    """A call on a receiver whose class is not known: by the name of the method, where a table has it."""
    name, receiver, arguments = call.name, call.receiver, call.arguments
    if spelled := texts.by_method(name, receiver, arguments):
        return Val(spelled, combined(receiver.v, *(v.v for _, v in arguments)))
    if (found := _by_row(call)) is not None:
        return found
    if (found := _of_groups(call)) is not None:
        return found
    if name == "gather" and _is_along_dimension(arguments):
        picked = same(call.at, call.number, name, arguments, receiver)
        index = next((v for keyword, v in arguments if keyword == "index"), arguments[-1][1])
        return Val(picked.objs, picked.v, index.n, picked.p, picked.state)  # it has the layout of the index
    if name in _GATHERING:
        return _gathered(call.at, call.value, arguments)
    if name in _NAMED:
        state = receiver.state if name != "named_buffers" else frozenset({"?"})  # buffers are not sharded
        return sequence(tuple_of([STRING, UNKNOWN.placed(state)])).placed(state)
    models = call.at.models
    if name in models.placed and name not in models.same_methods:
        keys = sequence(STRING).objs if name == "state_dict" else frozenset()
        return Val(frozenset({("top",)}) | keys, carried_over([(None, receiver), *arguments]), state=receiver.state)
    if name in models.same_methods or name in ("numel", "size", "dim"):
        return same(call.at, call.number, name, arguments, receiver)
    return Val(frozenset({("top",)}), carried_over([(None, receiver), *arguments]), state=frozenset({"?"}))


def _is_along_dimension(arguments: Arguments) -> bool:
    """Whether what is passed to a `gather` is a dimension and an index, as of tensors, and not what ranks exchange."""
    first = arguments[0][1].constant() if arguments else None
    return isinstance(first, int) or any(keyword in ("dim", "index") for keyword, _ in arguments)


def _by_row(call: Call) -> Val | None:
    """What a row gives that a table has for methods of that name; None where it is about other receivers."""
    row, receiver = call.at.models.methods.get(call.name), call.receiver
    if row is None or row.on is None or "." in call.name:
        return None
    hint = asked_object(call.at, call.value) if receiver.objs or receiver.v else ""
    if (row.on and hint not in row.on) or (row.on_state and not may(receiver.state, *row.on_state)):
        return None
    return by_row(call, row, call.arguments, receiver, sure=not row.on or bool(hint))


def _of_groups(call: Call) -> Val | None:
    """What a method gives that is named as those of groups and meshes are: ranks, sizes, groups; None of others."""
    at, name, arguments = call.at, call.name, call.arguments
    if name in at.models.ranks["methods"] or name in at.models.ranks["stages"]:
        return Val(v=rank(asked_axes(at, name, call.value, arguments), sure=True))
    if name == "get_group" and arguments and isinstance(dimension := arguments[0][1].constant(), str):
        return group_of(frozenset({of_dimension(dimension)}))
    if name in ("size", "rank") and not arguments and (axes := of_parallelism(asked_object(at, call.value))):
        return of_group(group_of(axes), name, sure=False)
    callee = at.code.values[call.value.args[0]]
    if name == "get_group" and callee.op == "attr" and _awaited(at, callee.args[0]):
        return BOTTOM
    return None


def _awaited(at: Evaluation, number: int) -> bool:
    """Whether a value is an attribute, or lies in one, of which nothing is known yet: it becomes known. To call its
    group anything would stay, where a variable that holds it is kept and put back."""
    values = at.code.values
    while values[number].op in ("item", "mut"):
        number = values[number].args[0]
    return values[number].op == "attr" and at.vals[number] == BOTTOM


def _gathered(at: Evaluation, value: Instruction, arguments: Arguments) -> Val:
    """What a method with the name of a collective gives: equal over the group that it names, else over all."""
    group = next((v for n, v in arguments if n in ("group", "process_group")), None)
    inner = join(v for n, v in arguments if n not in ("group", "process_group"))
    if group is None or group.is_const(None):
        return Val(v=frozenset({UNIFORM}))
    place = next(i for i, (n, _) in enumerate(arguments) if n in ("group", "process_group"))
    axes = axes_in(group)
    return made_equal(inner, axes_of(hint_of(at, value.args[place + 1])) if axes == SOME else axes)

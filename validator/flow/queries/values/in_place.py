"""What a function writes into that is not its own: methods and functions that work in place on what it was given."""

from __future__ import annotations

from collections.abc import Iterator

from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of

# Instructions and builtins that give what they are given, or elements of it.
_PARTS = frozenset({"attr", "item", "next", "iter", "unpack", "slice", "phi", "tuple", "list", "await", "mut"})
_PASSING = frozenset({"list", "tuple", "set", "sorted", "reversed", "iter", "next", "enumerate", "zip", "filter"})
_TAKING = frozenset({"values", "items", "parameters"})


def writes_into_arguments(flow: Flow, unit: Unit) -> bool:
    """Whether a unit changes in place what lies in its arguments: `p.grad.mul_(scale)` for each `p` of a list."""
    calls = (Place(flow, unit, number) for number, value in enumerate(unit.code.values) if value.op == "call")
    return any(_is_of_argument(each) for call in calls for each in written(call))


def written(call: Place) -> Iterator[Place]:
    """What a call changes: the receiver of a method that works in place, the first argument of such a function."""
    name, receiver = call.method, call.receiver
    if not name.endswith("_") or name.startswith("__") or name.endswith("__"):
        return
    if name in call.flow.models.tensors["marking"]:
        return  # `share_memory_` leaves what is in a tensor as it is
    if receiver is not None and not (receiver.val.of("ext") or receiver.val.of("module")):
        yield receiver
    elif call.value.data.names[:1] == (None,):
        yield call.operand(1)


def written_through(queries: Queries, call: Place) -> Iterator[Place]:
    """The tensors that a call passes to functions of the project which write into them, however deep."""
    for unit in queries.targets(call):
        for position in range(len(unit.code.params)):
            given = argument_of(call.unit, call.number, unit, position)
            if given is not None and _writes_into(queries, unit, position):
                yield call.value_at(given)


def _writes_into(queries: Queries, unit: Unit, position: int) -> bool:
    """Whether a unit, or one to which it hands a parameter on, works in place on what it is given there."""
    seen: set[tuple[Unit, int]] = set()
    stack = [(unit, position)]
    while stack:
        held = stack.pop()
        if held in seen:
            continue
        seen.add(held)
        for call in queries.calls_in(held[0]):
            if any(_same_memory(each) == held[1] for each in written(call)):
                return True
            for inner in queries.targets(call):
                for number in range(len(inner.code.params)):
                    given = argument_of(call.unit, call.number, inner, number)
                    if given is not None and _same_memory(call.value_at(given)) == held[1]:
                        stack.append((inner, number))
    return False


def _same_memory(tensor: Place) -> int | None:
    """The position of the parameter that a tensor is, or is another view of."""
    while True:
        tensor = tensor.root
        value, views = tensor.value, tensor.flow.models.tensors["views"]
        if value.op == "param":
            position: int = value.data[0]
            return position
        if value.op == "attr" and value.data in views:
            tensor = tensor.operand(0)
        elif value.op == "call" and tensor.method in views and tensor.receiver is not None:
            tensor = tensor.receiver
        else:
            return None


def _is_of_argument(place: Place) -> bool:
    """Whether a value shares its memory with an argument of its function, as far as is written there."""
    seen: set[int] = set()
    stack = [place]
    while stack:
        each = stack.pop().root
        if each.number in seen:
            continue
        seen.add(each.number)
        value = each.value
        if value.op == "param":
            return True
        if value.op in _PARTS:
            stack += [each._replace(number=number) for number in value.args if number >= 0]
        elif value.op == "collect":
            stack += [each._replace(number=number) for number in value.args[: value.data[1]]]
        elif value.op == "call":
            receiver, views = each.receiver, each.flow.models.tensors["views"]
            if receiver is not None and (each.method in views or each.method in _TAKING):
                stack.append(receiver)
            elif each.method in _PASSING:
                stack += [each._replace(number=number) for number in value.args[1:]]
    return False

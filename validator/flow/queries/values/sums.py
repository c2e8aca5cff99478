"""What collectives have summed over ranks, and over which of them."""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import WORLD, Axes
from validator.flow.callgraph.contexts import given
from validator.flow.queries.base import Place

KEEPING = frozenset({
    "item", "float", "cpu", "cuda", "clone", "detach", "to", "view", "squeeze", "clamp", "clamp_min", "clip",
})  # fmt: skip
_OPERATIONS = ("ReduceOp", "reduce_op")  # the enumeration of PyTorch, and its old name
DIVIDING = frozenset({"div", "div_", "true_divide", "true_divide_"})


def summed(place: Place) -> Iterator[Place]:
    """The collectives that have summed a value in place, back to where it was made."""
    seen: set[int] = set()
    while place.number not in seen:
        seen.add(place.number)
        value = place.value
        if value.op == "mut":
            call = place.operand(1)
            row = next((o.row for o in call.operations), None)
            tensor = call.argument(*row.equal) if row is not None and row.equal is not None else None
            if row is not None and row.operation is not None and tensor is not None:
                if tensor.number != value.args[0] or not is_sum(call.argument(*row.operation)):
                    return
                yield call
            place = place.operand(0)
        elif value.op == "call" and place.method in KEEPING and place.receiver is not None:
            place = place.receiver
        else:
            return


def quotient(place: Place) -> tuple[Place, Place] | None:
    """What is divided at a place, and by what: `a / b`, `a.div(b)`."""
    if place.value.op == "binary":
        return (place.operand(0), place.operand(1)) if place.value.data == "Div" else None
    if place.value.op != "call" or len(place.value.args) != 2 or place.method not in DIVIDING:
        return None
    return (place.receiver, place.operand(1)) if place.receiver is not None else None


def factors(product: Place) -> list[Place]:
    """The factors of a product; a value that is none is its own."""
    found, queue = [], [product.root]
    for each in queue:
        if each.value.op == "binary" and each.value.data == "Mult":
            queue += [each.operand(0).root, each.operand(1).root]
        else:
            found.append(each)
    return found


def is_sum(operation: Place | None) -> bool:
    """Whether the operation that a collective is given, or has by itself, is a sum."""
    return operation is None or _is_operation(operation, "sum")


def averaged(place: Place) -> Place | None:
    """The collective by which a value has become a mean over ranks: in place, or what it gives back."""
    call = place.operand(1) if place.value.op == "mut" else place
    row = next((o.row for o in call.operations), None) if call.value.op == "call" else None
    operation = call.argument(*row.operation) if row is not None and row.operation is not None else None
    if row is None or operation is None or not _is_operation(operation, "avg", "mean"):
        return None
    tensor = call.argument(*row.equal) if row.equal is not None else None
    is_changed = tensor is not None and tensor.number == place.value.args[0]
    return call if place.value.op == "call" or is_changed else None


def _is_operation(given: Place, *names: str) -> bool:
    """Whether what a collective is given says one of some operations: `"mean"`, `ReduceOp.AVG`."""
    told = given.closed
    paths = [str(o[1]).rpartition(".") for o in told.of("ext")]
    members = {name.lower() for owner, _, name in paths if owner.rpartition(".")[2] in _OPERATIONS}
    return told.constant() in names or not members.isdisjoint(names)


def spanned(call: Place) -> tuple[Axes, bool]:
    """The axes over which a collective sums, and whether these are all that it can be."""
    row = call.operations[0].row
    group = call.argument(*row.group) if row.group is not None else None
    if group is None or group.closed.is_const(None):
        return frozenset({WORLD}), True
    return given(group).spanned


def is_scaled(place: Place) -> bool:
    """Whether a value is multiplied with, or divided by, a number of ranks later on."""
    seen, queue = {place.number}, [place]
    while queue:
        for user in queue.pop().users:
            if user.value.op == "binary" and any(map(is_size, (user.operand(0), user.operand(1)))):
                return True
            if user.number not in seen:
                seen.add(user.number)
                queue.append(user)
    return False


def is_size(place: Place) -> bool:
    """Whether a value is a number of ranks: the library says so, or its name does. A condition may have chosen 1."""
    place = place.root
    value = place.value
    if value.op == "phi":
        ways = [place.value_at(number).root for number in value.args]
        sizes = [each for each in ways if each.value.op != "phi" and is_size(each)]
        return bool(sizes) and all(each in sizes or each.value.data == 1 for each in ways if each != place)
    if value.op == "call":
        return (
            bool(place.val.of("size"))
            or any(
                o[0] == "ext" and (row := place.flow.models.call(o[1])) is not None and row.result == "size"
                for o in place.operand(0).val.each
            )
            or _is_named(place, place.method.removeprefix("get_"))
        )
    if value.op in ("attr", "name"):
        return _is_named(place, str(value.data))
    return value.op == "param" and _is_named(place, value.data[1])


def _is_named(place: Place, name: str) -> bool:
    return name in place.flow.models.likely["sizes"]

"""What a collective gathers into a list or a tensor that nothing reads."""

from __future__ import annotations

from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import Holders, Index
from validator.flow.queries.outside_program import is_aside

_SAME = frozenset({"phi", "mut"})  # what only is the same list later on


def unread_result(queries: Queries, call: Place) -> Place | None:
    """The list or tensor that was made for what a collective gathers from all ranks, if nothing ever reads it; None
    where the program has computed nothing of what is gathered: that is a way to wait, or to measure."""
    row = next((operation.row for operation in call.operations if operation.sure), None)
    into = call.argument(*(row.into or row.equal or ("", -1))) if row is not None and row.root is None else None
    given = call.argument(*row.reads) if row is not None and row.reads is not None else None
    if into is None or given is None or is_aside(call.unit.path) or call.hands_on:
        return None
    if (
        not _is_used_besides(call, given)
        or _is_factory(_unmoved(given.root))
        or given.root.value.op == "const"
        or not _is_fresh(into.root)
    ):
        return None
    held = Holders(queries.flow, Index(queries.flow), into.unit, into.root.number)
    if held.escapes or held.gathered or held.attributes or held.called or held.shown or held.asked:
        return None
    if held.given != [(call.unit, call.number)]:
        return None
    others = [
        unit.code.values[number].op for unit, number in held.held if (unit, number) != (into.unit, into.root.number)
    ]
    return into if _SAME.issuperset(others) else None


def _is_used_besides(call: Place, given: Place) -> bool:
    """Whether the program does more with what is gathered, or with the tensor of which that is another form, than to
    gather it."""
    forms = [given.root]
    for each in forms:
        before = each.receiver if each.value.op == "call" else None
        if before is not None and not each.operand(0).val.of("ext"):
            forms.append(before.root)
        forms += [user for user in each.users if user.value.op == "phi" and user not in forms]
    known = {call.number, *(part.number for part in given.parts)}
    returned = {given.value_at(number).root for number in given.unit.code.returned if number >= 0}
    users = (user for each in forms for user in each.users)
    return any(each in returned for each in forms) or any(
        user.number not in known and user.value.op not in _SAME | {"compare"} for user in users
    )


def _is_fresh(made: Place) -> bool:
    """Whether a list or a tensor shares its memory with nothing: new tensors, each in the list alone, or no objects."""
    value = made.value
    if value.op == "collect":
        return all(_is_fresh(made.value_at(number).root) for number in value.args[: value.data[1]])
    if value.op in ("list", "tuple"):
        parts = [made.value_at(number) for number in value.args]
        return all(_is_fresh(part.root) and len(part.taken_by) == 1 for part in parts)
    if value.op == "binary":
        return value.data == "Mult" and any(_is_fresh(made.operand(side).root) for side in (0, 1))
    return value.op == "const" and value.data is None or _is_factory(made)


def _unmoved(value: Place) -> Place:
    """A tensor as it was before it was moved or cast: `torch.randn(4)` of `torch.randn(4).cuda()`."""
    moving = value.flow.models.same_methods
    while value.value.op == "call" and value.receiver is not None and value.method in moving:
        if len(value.value.args) > 1 and value.method != "to":
            break  # computed with something else
        value = value.receiver.root
    return value


def _is_factory(made: Place) -> bool:
    """Whether a library makes a new tensor whose numbers are none of the program's."""
    if made.value.op != "call":
        return False
    rows = (made.flow.models.call(o[1]) for o in made.operand(0).val.of("ext"))
    return any(row is not None and row.layout not in ("", "contents") for row in rows)

"""Which columns a dataset surely has, and no others: what `map` makes of its rows where the old ones are removed."""

from __future__ import annotations

from validator.flow.callgraph.spelled_arguments import literal_keys
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.values.text_origins import text_origins
from validator.ir.model import Value

_KEEPING = frozenset({"filter", "shuffle", "select", "with_format", "take", "skip", "shard", "flatten_indices"})


def columns_of(place: Place) -> frozenset[str] | None:
    """The columns of a dataset; None where they are not all known."""
    found: set[frozenset[str] | None] = {_columns(each.place.root) for each in text_origins(place, _is_call)}
    return found.pop() if len(found) == 1 else None


def _is_call(place: Place) -> bool:
    return place.value.op == "call" and place.receiver is not None and place.method in {*_KEEPING, "map"}


def _columns(call: Place) -> frozenset[str] | None:
    if not _is_call(call) or call.receiver is None:
        return None
    return columns_of(call.receiver) if call.method in _KEEPING else _made(call)


def _made(call: Place) -> frozenset[str] | None:
    """What `data.map(f, remove_columns=data.column_names)` makes: what `f` returns."""
    removed, function = call.argument("remove_columns"), call.argument("function", 0)
    if removed is None or function is None or call.receiver is None or not _are_all(removed.root, call.receiver):
        return None
    objs = function.closed.each
    units = [o[1] for o in objs if o[0] == "unit"]
    rows = {_row(call, unit) for unit in units} if len(units) == len(objs) else {None}
    return rows.pop() if len(rows) == 1 else None


def _are_all(removed: Place, data: Place) -> bool:
    """Whether columns that are named are all that a dataset has; a list that something changes is not known."""
    if any(user.value.op == "mut" and user.value.data == -1 for user in removed.users):
        return False
    return removed.value.op == "attr" and removed.value.data == "column_names" and removed.operand(0).root == data.root


def _changes(value: Place) -> list[Value]:
    """What changes variables of a function in place."""
    return [each for each in value.unit.code.values if each.op in ("store_item", "mut")]


def _row(call: Place, unit: Unit) -> frozenset[str] | None:
    """The keys of the rows that a function returns; None where they differ, or are not all written out."""
    values = [Place(call.flow, unit, number).root for number in unit.code.returned]
    keys = [literal_keys(unit, value.value) if value.value.op == "dict" else None for value in values]
    rows = {frozenset(each) if each is not None else None for each in keys}
    grown = any(value.unit.root(each.args[0]) == value.number for value in values for each in _changes(value))
    return rows.pop() if len(rows) == 1 and not grown else None

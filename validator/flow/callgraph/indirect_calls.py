"""Calls that a library makes of a function which it is given: `checkpoint(layer, x)`, `Thread(target=f, args=(x,))`,
`module.register_forward_hook(f)`."""

from __future__ import annotations

from validator.facts.model import Argument, Call
from validator.flow.callgraph.spelled_arguments import literal_keys
from validator.flow.queries.base import Place
from validator.models import Hook, Row

OF_LIBRARY = "library's"  # the kind of an argument that the library adds


def handed_over(place: Place, call: Call) -> tuple[Place, Call] | None:
    """The function that a call has a library run, and the call of it; None where it does nothing of the kind, or the
    function is not to be seen."""
    rows = [row for o in place.operand(0).closed.of("ext") if (row := place.flow.models.call(o[1])) is not None]
    row = rows[0] if len(rows) == 1 else None
    names = place.value.data.names
    if row is None or row.runs is None or row.result == "field" or "*" in names:
        return None
    at = names.index(row.runs[0]) if row.runs[0] in names else row.runs[1]
    if at >= len(call.args) or names[at] not in (None, row.runs[0]):
        return None
    own = tuple(Argument(None, OF_LIBRARY, "", call.args[at].at) for _ in range(row.before))
    given = _in_tuple(place, row) if row.gives is not None else _behind(row, call, at)
    return place.operand(at + 1), call._replace(target=call.args[at].value, args=(*own, *given))


def kept_as_hook(place: Place, call: Call) -> tuple[Place, Call] | None:
    """The function that a library keeps as a hook, and how it calls it; None where a class of the project has a method
    of that name, or a switch is set to what is not known."""
    row = place.flow.models.hooks.get(place.method)
    names = place.value.data.names
    site = place.result.sites.get(place.number)
    if row is None or place.receiver is None or site is not None and site.targets or {"*", "**"} & {*names}:
        return None
    at = names.index(row.hook[0]) if row.hook[0] in names else row.hook[1]
    count = _passed_to_hook(place, row)
    if at >= len(call.args) or names[at] not in (None, row.hook[0]) or count is None:
        return None
    given = tuple(Argument(None, OF_LIBRARY, "", call.args[at].at) for _ in range(count))
    return place.operand(at + 1), call._replace(target=call.args[at].value, args=given)


def _passed_to_hook(place: Place, row: Hook) -> int | None:
    """How many arguments a hook gets; None where a switch decides that is not known."""
    count = row.arguments
    for name, more in row.switches.items():
        switch = place.argument(name)
        constant = switch.closed.constant() if switch is not None else False
        if not isinstance(constant, bool):
            return None
        count = more if constant else count
    return count


def _behind(row: Row, call: Call, at: int) -> tuple[Argument, ...]:
    """What follows the function in the call."""
    return tuple(a for a in call.args[at + 1 + row.skips :] if a.keyword not in row.own)


def _in_tuple(place: Place, row: Row) -> list[Argument]:
    """What stands in the tuple of arguments, and in the dictionary of those by name."""
    if "**" in place.value.data.names:
        return [Argument("*", "other", "", place.at), Argument("**", "other", "", place.at)]
    held = place.argument(*row.gives) if row.gives is not None else None
    found: list[Argument] = []
    if held is not None:
        whole = held.root
        if whole.value.op in ("tuple", "list"):
            here = whole.seen_from(place) == whole.at
            parts = [whole.value_at(number) for number in whole.value.args]
            found += [Argument(None, "other", part.text, part.seen_from(whole if here else place)) for part in parts]
        elif not whole.val.is_const(None):
            found.append(Argument("*", "other", held.text, held.at))
    named = place.argument(*row.named) if row.named is not None else None
    if named is not None:
        keys = literal_keys(named.unit, named.root.value) if named.root.value.op == "dict" else None
        found += [Argument(key, "other", key, named.at) for key in keys or ("**",)] if keys != () else []
    return found

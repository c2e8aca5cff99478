"""Whether a value is the text of a variable of the environment as it was read, before any `int(…)`."""

from __future__ import annotations

from typing import NamedTuple

from validator.flow.queries.base import Place
from validator.flow.queries.origins import sources

_ENVIRONMENT = "os.environ"
_ASKING = frozenset({"os.getenv", "os.environ.get"})


class Text(NamedTuple):
    """Where a variable of the environment is read; `always`: whether it gives a text or raises, else something else
    where the variable is not set."""

    read: Place
    name: str
    always: bool


def text_of(place: Place) -> Text | None:
    """The variable of the environment whose text a value is, on whatever way it comes; None where it may be anything
    else than such a text."""
    found: list[Text] = []
    queue, seen = [place.root], {(place.unit, place.root.number)}
    for each in queue:
        text = _read(each)
        if text is not None:
            found.append(text)
            continue
        before = sources(each)
        if not before:
            return None
        fresh = [root for source in before if ((root := source.root).unit, root.number) not in seen]
        seen.update((root.unit, root.number) for root in fresh)
        queue += fresh
    always = [each for each in found if each.always]
    return (found[0] if len(always) < len(found) else always[0]) if found else None


def _read(place: Place) -> Text | None:
    """The variable that is read here."""
    value = place.value
    if value.op == "item" and any(o == ("ext", _ENVIRONMENT) for o in place.operand(0).val.each):
        name = place.operand(1).val.constant()
        return Text(place, name, True) if isinstance(name, str) else None
    if value.op != "call" or not any(o[0] == "ext" and o[1] in _ASKING for o in place.operand(0).val.each):
        return None
    key, default = place.argument("key", 0), place.argument("default", 1)
    name = key.val.constant() if key is not None else None
    always = default is not None and isinstance(default.val.constant(), str)
    return Text(place, name, always) if isinstance(name, str) else None

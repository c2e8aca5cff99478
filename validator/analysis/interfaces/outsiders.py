"""Objects that something outside of the project gives: what the project asks them for does not tell their class."""

from __future__ import annotations

from validator.definitions import External, Missing
from validator.flow.queries.base import Place
from validator.flow.queries.origins import sources
from validator.models.members import is_known

_PARTS = frozenset({"attr", "item", "unpack", "next", "iter", "await"})


def is_from_outside(place: Place) -> bool:
    """Whether a value may be, as far as it can be followed back, what something outside of the project gives, a part
    of that, or an attribute that only a base of a library can have given an object."""
    queue = [place.root]
    for each in queue:
        if each.value.op == "call" and _is_of_others(each) or each.value.op == "attr" and _is_inherited(each):
            return True
        parts = [each.operand(0)] if each.value.op in _PARTS else []
        before = (source.root for source in [*parts, *(sources(each) or ())])
        queue += dict.fromkeys(source for source in before if source not in queue)
    return False


def _is_of_others(call: Place) -> bool:
    """Whether a call is one of a library, or of what the package of the project that bears its name does not have."""
    first = call.unit.beginning(call.value.args[0])
    symbol = call.flow.symbol(call.unit, first) if first.op in ("name", "import") else None
    return isinstance(symbol, External | Missing) or any(o[0] == "ext" for o in call.operand(0).val.each)


def _is_inherited(attribute: Place) -> bool:
    """Whether an object of the code's own class is asked for what a base that is not at hand may have given it, or
    made what is kept there."""
    cls = attribute.owner.cls if attribute.owner is not None else None
    return cls is not None and not all(map(is_known, cls.external_bases))

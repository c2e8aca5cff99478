"""What a test of an attribute tells of a value where it has held: `if hasattr(model, "module"): …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.definitions import ClassDef
from validator.flow.values import Obj, Val
from validator.models.members.classes import members_of, set_outside

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow


def having(flow: Flow, value: Val, name: str, holds: bool) -> Val:
    """A value that has, or has not, an attribute: without the objects of which that is known not to be so."""
    kept = frozenset(o for o in value.objs if _has(flow, o, name) is not (not holds))
    return value if kept == value.objs else Val(kept, value.v, value.n, value.p, value.state)


def _has(flow: Flow, o: Obj, name: str) -> bool | None:
    """Whether an object has an attribute; None where that is not known."""
    if o[0] == "made" and len(o) == 2:
        members = members_of(o[1])
        known = members is not None and name not in set_outside(o[1]) and not flow.models.library(o[1]).forwards
        return name in members if members is not None and known else None
    if o[0] not in ("inst", "self"):
        return None
    if o[1].find(name) is not None:
        return True
    family = {*o[1].mro, *(o[1].descendants() if o[0] == "self" else ())}
    return None if any(_may_have(flow, cls, name, family) for cls in family) else False


def _may_have(flow: Flow, cls: ClassDef, name: str, family: set[ClassDef]) -> bool:
    """Whether a class may give its objects an attribute, or what stands outside of it does."""
    outer = {base: members_of(base) for base in cls.outer_bases}
    if name in cls.attributes or cls.adds_more_than(frozenset(outer)) or not cls.has_plain_decorators:
        return True
    if any(members is None or name in members or name in set_outside(base) for base, members in outer.items()):
        return True
    units = map(flow.unit_of, flow.stores.writers(name))
    return not all(unit is not None and unit.keeps_for_itself(name, family) for unit in units)

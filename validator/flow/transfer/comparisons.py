"""Comparisons: by what they vary, and which of them only ask what is the same on all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.axes import SOME, WHOLE, Axes
from validator.domains.spmd import OF_ONE, Causes, combined, emptied, member, only, rank, unsure
from validator.flow.calls.groups import axes_in
from validator.flow.calls.hints import hint_of
from validator.flow.merging.conditions import TESTED_FOR_PRESENCE, tests_around
from validator.flow.merging.equality import is_none, is_same
from validator.flow.values import NONE_OBJ, NOTHING, TOP, Obj, Val, group_of
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation

_COMPARED = frozenset({"Eq", "NotEq", "Is", "IsNot"})
_FOR_ELEMENTS = frozenset(  # comparisons of a length that ask whether there are elements
    [*((asked, 0) for asked in ("Eq", "NotEq", "Gt", "LtE")), ("Lt", 1), ("GtE", 1)]
)
_MIRRORED = {"Lt": "Gt", "Gt": "Lt", "LtE": "GtE", "GtE": "LtE", "Eq": "Eq", "NotEq": "NotEq"}


def compare(at: Evaluation, number: int, value: Instruction) -> Val:
    """A comparison: it varies as its operands do."""
    left, right = map(at.operand, value.args)
    if value.data in ("Is", "IsNot") and right.is_const(None) and _made_late(at, number, value.args[0]):
        return Val()  # the first time it is there nowhere
    if value.data in _COMPARED and (found := _presence(left, right)) is not None:
        return found
    first, second = value.args
    for mine, one, asked, other in (
        (first, left, value.data, right),
        (second, right, _MIRRORED.get(value.data, ""), left),
    ):
        ranks = _of_rank(at, mine, one)
        if ranks and (_below(asked, other.constant()) or _inside(asked, one, other) or _among_none(asked, other)):
            return Val(v=combined(one.p, one.v - ranks))
    if value.data in ("Eq", "NotEq"):
        axes = _of_one_member(left, right) or _of_one_member(right, left)
        if axes:
            return Val(v=rank(axes))
    if value.data in ("In", "NotIn"):
        return _membership(at, number, value, left, right)
    v = combined(left.v, right.v)
    if (value.data, right.constant()) in _FOR_ELEMENTS:
        v = emptied(v)
    return Val(_several(at, value, left, right), v)


def _presence(left: Val, right: Val) -> Val | None:
    """A comparison that only asks whether something is there; None of another one."""
    if _is_marker(left, right) or _is_marker(right, left):
        return Val(v=left.p | right.p)
    if right.is_const(None):
        return Val(v=left.p | only(left.v, "param") & left.p)
    return Val(v=right.p) if left.is_const(None) else None


def _membership(at: Evaluation, number: int, value: Instruction, left: Val, right: Val) -> Val:
    """Whether something is in a container."""
    if any(g[:2] == ("group", WHOLE) for o in right.of("counted") for g in o[1].objs):
        return Val()
    if at.code.values[value.args[0]].op == "const":
        return Val()  # a table that is not there has no keys to ask for
    if right.objs == {("tuple", ())} and not right.n:
        return Val()  # nothing is in a list that was never filled
    if _is_remembered(at, number, *value.args):
        return Val()  # each rank asks for its own key for the first time when the others do
    if _is_own_process(at, value.args[0]):
        return Val(v=right.v)  # under the number of its process it finds what it has put there itself
    inside = combined(member(left.v), right.v)
    own = bool(left.objs) and all(o[0] == "ordinal" for o in left.each)
    # the rank of some other process mostly is one that all ranks of the group know alike
    return Val(v=unsure(inside) if right.of("counted") and not own else inside)


def _made_late(at: Evaluation, test: int, number: int) -> bool:
    """Whether an attribute is only ever stored where this test finds that it is not there yet."""
    known = at.late.get(test)
    if known is None:
        held = at.code.values[at.root(number)]
        known = at.late[test] = held.op == "attr" and _is_made_under(at, test, held.data)
    return known


def _is_remembered(at: Evaluation, test: int, key: int, table: int) -> bool:
    """Whether what a table does not hold yet is put there under just this key, where the test finds so."""
    return any(
        each.op == "store_item"
        and is_same(at, each.args[0], table)
        and is_same(at, each.args[1], key)
        and test in tests_around(at, each.block)
        for each in at.code.values
    )


def _is_own_process(at: Evaluation, number: int) -> bool:
    """Whether a value is the number that the system gives the process."""
    held = at.code.values[at.root(number)]
    return held.op == "call" and ("ext", "os.getpid") in at.vals[held.args[0]].objs


def _is_made_under(at: Evaluation, test: int, name: str) -> bool:
    """Whether every store of an attribute of that name is under a test, but for None."""
    found = False
    for unit in at.flow.units(iter(at.flow.stores.writers(name))):
        for value in unit.code.values:
            if value.op != "store_attr" or value.data != name:
                continue
            if unit is at.unit and test in tests_around(at, value.block):
                found = True
            elif not is_none(unit.code.values[value.args[1]]):
                return False
    return found


def _several(at: Evaluation, value: Instruction, left: Val, right: Val) -> frozenset[Obj]:
    """Whether a comparison of the number of processes tells a job of one process: of what is known to be that number,
    or, where it is not known what it is, bears its name."""
    most, counts = right.constant(), ("size", group_of(WHOLE))
    if not isinstance(most, int) or any(o[0] not in ("const", "top", "made") and o != counts for o in left.each):
        return NOTHING
    named = TOP in left.objs and hint_of(at, value.args[0]) in at.models.likely["worlds"]
    if counts not in left.objs and not named:
        return NOTHING
    holds = OF_ONE.get((value.data, most))
    return NOTHING if holds is None else frozenset({("several", not holds)})


def _of_one_member(own: Val, other: Val) -> Axes:
    """The axes of a group of which a rank is asked whether it is a certain member, whose number in the job all members
    name alike: along others nothing tells ranks apart."""
    is_own = own.objs == {("ordinal", "job", WHOLE)} and all(c.kind == "rank" and c.sure for c in own.v) and bool(own.v)
    if not is_own or len(other.objs) != 1 or not other.of("ordinal"):
        return frozenset()
    ((_, among, axes),) = other.of("ordinal")
    return axes if among == "job" and axes != WHOLE else frozenset()


def _is_marker(value: Val, constant: Val) -> bool:
    """Whether a comparison only asks if something is there yet: it is a thing that no constant equals, or a marker."""
    if not any(o[0] == "const" and isinstance(o[2], str) for o in constant.each) or len(constant.objs) != 1:
        return False
    things = [o for o in value.each if o[0] in TESTED_FOR_PRESENCE - {"environment"}]
    markers = [o for o in value.each if o[0] == "const" and o != NONE_OBJ]
    others = len(value.objs - {NONE_OBJ}) - len(things) - len(markers)
    return bool(things) and len(markers) < 2 and not others


def _of_rank(at: Evaluation, number: int, value: Val) -> Causes:
    """By what a value varies as the rank does: none where it does not. What callers pass under the name of a rank is
    one."""
    held = at.code.values[at.root(number)]
    if _is_part(at, held) and not value.of("ordinal"):
        return frozenset()  # what lies at a rank's place is any number
    named = held.data[0] if held.op == "param" and held.data[1] in at.models.ranks["names"] else -1
    passed = frozenset(c for c in value.v if c.kind == "param" and c.position == named)
    if not passed and not any(c.kind == "rank" for c in value.v):
        return frozenset()
    return passed | only(value.v, "rank", "member")


def _is_part(at: Evaluation, held: Instruction) -> bool:
    """Whether a value is an element of something, and not what stands there under a name."""
    return held.op in ("unpack", "next") or held.op == "item" and at.code.values[held.args[1]].op != "const"


def _among_none(comparison: str, container: Val) -> bool:
    """Whether all that a rank is looked for among is no rank: `rank in (-1, None)`."""
    parts = [part for o in container.each if o[0] == "tuple" for part in o[1]]
    if comparison not in ("In", "NotIn") or not parts or any(o[0] != "tuple" for o in container.each):
        return False
    return all(part.objs == {NONE_OBJ} or _below("Eq", part.constant()) for part in parts)


def _below(comparison: str, number: object) -> bool:
    """Whether a comparison only asks if there are ranks at all (`rank != -1`, `rank >= 0`): none is negative."""
    if not isinstance(number, int) or isinstance(number, bool):
        return False
    if comparison in ("Eq", "NotEq", "Gt", "LtE"):
        return number < 0
    return comparison in ("GtE", "Lt") and number <= 0


def _inside(comparison: str, one: Val, size: Val) -> bool:
    """Whether a rank is compared with the number of ranks among which it is counted (`rank < size`): it is below."""
    whose = {WHOLE if o[1] == "job" else o[2] if o[1] == "group" else SOME for o in one.of("ordinal")}
    counted = {axes_in(o[1]) for o in size.of("size")}
    known = len(one.of("ordinal")) == len(one.objs) and len(size.of("size")) == len(size.objs)
    return comparison in ("Lt", "GtE") and known and len(whose) == 1 and whose == counted and SOME not in whose

"""Transfers between two ranks: which rank calls them, with which peer, and which of them can meet."""

from __future__ import annotations

from typing import NamedTuple

from validator.domains.spmd import only
from validator.flow.control import comes_after
from validator.flow.merging.conditions import truth_of
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.values import Val
from validator.project import Project

_TORCH = "torch.distributed."
_SENDING, _RECEIVING = ("send", "isend"), ("recv", "irecv")
_OTHERWISE = ("batch_isend_irecv", "P2POp", "send_object_list", "recv_object_list")


class Transfer(NamedTuple):
    """A call of `send`, `recv`, `isend` or `irecv`.

    `caller`, `peer`: ranks of the job, None where they are not one literal number.
    """

    call: Place
    sends: bool
    caller: int | None
    peer: int | None

    @property
    def tag(self) -> Val:
        given = self.call.argument("tag", 3)
        return given.closed if given is not None else Val(frozenset({("const", "int", 0)}))

    @property
    def tensor(self) -> Place | None:
        return self.call.argument("tensor", 0)

    @property
    def is_of_job(self) -> bool:
        """Whether it works on all ranks of the job, as far as is written."""
        group = self.call.argument("group", 2)
        return group is None or group.val.is_const(None)

    def may_meet(self, other: Transfer) -> bool:
        """Whether one may bring what the other takes."""
        if self.sends is other.sends or _exclude(self.call, other.call):
            return False
        pairs = ((self.peer, other.caller), (self.caller, other.peer))
        return all(a is None or b is None or a == b for a, b in pairs)


class Transfers:
    """The transfers of a program; asked for with `project.analysis(Transfers)`."""

    def __init__(self, project: Project) -> None:
        queries = project.analysis(Queries)
        names = (*_SENDING, *_RECEIVING)
        calls = [call for call in queries.calls(*(_TORCH + name for name in names)) if not is_test(call.unit.path)]
        self.all = [_transfer(call) for call in calls]
        self.complete = not self._others(queries, {(call.unit, call.value.args[0]) for call in calls})

    @staticmethod
    def _others(queries: Queries, called: set[tuple[object, int]]) -> bool:
        """Whether transfers are made in other ways too: in batches, of objects, by functions that are handed on."""
        for name in (*_SENDING, *_RECEIVING, *_OTHERWISE):
            for read in queries.attributes(name):
                known = (read.unit, read.number) in called or is_test(read.unit.path)
                if not known and any(o[0] == "ext" and str(o[1]).startswith(_TORCH) for o in read.val.each):
                    return True
        return any(not is_test(call.unit.path) for call in queries.calls(*(_TORCH + name for name in _OTHERWISE)))


def _transfer(call: Place) -> Transfer:
    sends = call.method in _SENDING
    to = call.argument("dst" if sends else "src", 1)
    peer = to.closed.constant() if to is not None else None
    return Transfer(call, sends, rank_at(call), peer if isinstance(peer, int) else None)


def rank_at(place: Place) -> int | None:
    """The one rank of the job that comes to a place, where the branches around it leave one."""
    for test, held in ((each.root, way) for each, way in place.settled_tests):
        if test.value.op != "compare" or test.value.data not in ("Eq", "NotEq"):
            continue
        holds = held == (test.value.data == "Eq")
        sides = [test.operand(0).closed, test.operand(1).closed]
        numbers = [side.constant() for side in sides if isinstance(side.constant(), int)]
        is_rank = any(side.objs and all(o[:2] == ("ordinal", "job") for o in side.each) for side in sides)
        if holds and is_rank and len(numbers) == 1:
            return int(numbers[0])
    return None


def _exclude(one: Place, other: Place) -> bool:
    """Whether no run comes to both places: they stand on two ways of a branch that all ranks take alike, and that no
    loop around both takes the other way in another round."""
    if one.unit is not other.unit:
        return False
    control, blocks = one.unit.control, one.unit.code.blocks
    ways = dict(control.settled(one.value.block))
    for branch, way in control.settled(other.value.block):
        if ways.get(branch, way) != way:
            test = one.value_at(blocks[branch].end[1])
            apart = only(truth_of(test.closed), "rank", "member", "data", "param")
            if not apart and not _changes_between_rounds(test, branch):
                return True
    return False


def _changes_between_rounds(test: Place, branch: int) -> bool:
    """Whether a test at a branch may come out otherwise in another round of a loop around it."""
    control = test.unit.control
    inside = set(control.loops_around(branch))
    made = (part.value for part in test.parts if part.value.op in ("next", "phi", "call", "attr"))
    return any(not inside.isdisjoint(control.loops_around(value.block)) for value in made)


def is_after(late: Place, early: Place) -> bool:
    """Whether a place is only reached by way of another one of the same unit."""
    if late.unit is not early.unit:
        return False
    return comes_after(late.unit.code, late.value, late.number, early.value, early.number)

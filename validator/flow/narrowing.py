"""What tests of its class or of an attribute tell of a value where they have held: `if isinstance(model, FSDP): …`,
`if hasattr(model, "module"): …`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from validator.definitions import PLAIN_BASES, ClassDef
from validator.domains.placement import DTENSOR, steps_of
from validator.flow.values import Obj, Val
from validator.ir import Value
from validator.models import Models
from validator.models.members.classes import may_descend

if TYPE_CHECKING:
    from validator.flow.program.unit import Unit


OBJECTS = frozenset({"inst", "self", "handle"})  # of classes of the project
_ROOTS = PLAIN_BASES - {"Exception"} | {"torch.nn.Module"}  # bases of libraries that have none but such themselves
_BY_MEMBERS = ("typing.", "typing_extensions.", "collections.abc.", "numbers.")  # of these is what has their methods


class ClassTest(NamedTuple):
    """A branch on the class of a value: the way on which it is of one of `classes`, and the other one. Where the branch
    is on whether it has an attribute, `classes` is the name of that."""

    branch: int
    holds: int
    fails: int
    classes: int


class ClassTests:
    """The tests of classes in one unit."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit

    @cached_property
    def by_subject(self) -> dict[int, list[ClassTest]]:
        """The tests by the value that they ask about."""
        return self._calls("isinstance")

    @cached_property
    def _of_members(self) -> dict[int, list[ClassTest]]:
        """The tests whether a value has an attribute, by that value."""
        return self._calls("hasattr")

    @cached_property
    def narrow(self) -> bool:
        """Whether there are any that tell what a value may be."""
        return bool(self.by_subject or self._of_members)

    def _calls(self, name: str) -> dict[int, list[ClassTest]]:
        values = self.unit.code.values
        found: dict[int, list[ClassTest]] = {}
        for branch, value, holds, fails in self._branches():
            if value.op == "call" and values[value.args[0]].data == name and len(value.args) == 3:
                subject = self.unit.root(value.args[1])
                found.setdefault(subject, []).append(ClassTest(branch, holds, fails, value.args[2]))
        return found

    @cached_property
    def _comparisons(self) -> dict[int, list[ClassTest]]:
        """The tests whether a value is some other one (`cls is Adam`, `cls == Adam`), by the first of them."""
        found: dict[int, list[ClassTest]] = {}
        for branch, value, holds, fails in self._branches():
            if value.op == "compare" and value.data in ("Is", "Eq", "IsNot", "NotEq"):
                if value.data in ("IsNot", "NotEq"):
                    holds, fails = fails, holds
                test = ClassTest(branch, holds, fails, value.args[1])
                found.setdefault(self.unit.root(value.args[0]), []).append(test)
        return found

    def _branches(self) -> Iterator[tuple[int, Value, int, int]]:
        """Each branch with its test, and where it goes where that holds and where it fails."""
        values = self.unit.code.values
        for number, block in enumerate(self.unit.code.blocks):
            if block.end[0] != "branch" or block.end[2] == block.end[3]:
                continue
            _, test, holds, fails = block.end
            value = values[test]
            while value.op == "unary" and value.data == "Not":
                value, holds, fails = values[value.args[0]], fails, holds
            yield number, value, holds, fails

    def around(self, subject: int, block: int) -> list[tuple[int, bool]]:
        """The tests that a value has passed or failed wherever a block runs: (classes, whether it is of them)."""
        return self._around(self.by_subject.get(self.unit.root(subject), []), block)

    def asked_for(self, subject: int, block: int) -> list[tuple[str, bool]]:
        """The same of attributes: (its name, whether the value has it)."""
        tests = self._around(self._of_members.get(self.unit.root(subject), []), block) if self._of_members else []
        names = ((self.unit.code.values[name], holds) for name, holds in tests)
        return [(value.data, holds) for value, holds in names if value.op == "const" and isinstance(value.data, str)]

    def compared(self, subject: int, block: int) -> list[tuple[int, bool]]:
        """The same of comparisons: (the other value, whether it is that one)."""
        return self._around(self._comparisons.get(self.unit.root(subject), []), block)

    def _around(self, tests: list[ClassTest], block: int) -> list[tuple[int, bool]]:
        return [
            (test.classes, holds)
            for test in tests
            for way, holds in ((test.holds, True), (test.fails, False))
            if self.unit.control.leads(block, test.branch, way)
        ]


def narrowed(value: Val, classes: Val, holds: bool, models: Models) -> Val:
    """A value that is, or is not, an object of some classes: a wrapper tells how what it holds is placed."""
    wanted = _wanted(classes)
    steps = [models.wrapping(o[1]) if o[0] == "ext" else "" for o in wanted]
    if any(steps):
        return value.placed(_placed(value.state, steps, holds))
    if not holds and wanted and all(o[0] == "ext" and _is_dtensor(o[1]) for o in wanted):
        left = frozenset("?" if each[0] == "$" else each for each in value.state)  # what callers pass may be one or not
        return value.placed(_placed(left, sorted(DTENSOR), holds))
    tested = _classes(wanted)
    if not holds:
        remaining = frozenset(o for o in value.objs if o[0] not in ("inst", "self") or tested.isdisjoint(o[1].mro))
        return value if remaining == value.objs else Val(remaining, value.v, value.n, value.p, value.state)
    if not tested:
        return kept_by(value, classes, holds)
    kept = {o for o in value.objs if o[0] in ("inst", "self") and not tested.isdisjoint(o[1].mro)}
    kept |= {("self", cls) for cls in tested if not _is_told(value, cls)}
    return Val(frozenset(kept), value.v, value.n, value.p, value.state)


def _is_dtensor(dotted: str) -> bool:
    """Whether a class is PyTorch's `DTensor`, which its releases have under several names."""
    return dotted.startswith("torch.") and dotted.endswith(".DTensor")


def kept_by(value: Val, classes: Val, holds: bool) -> Val:
    """A value without the objects of the project that cannot be of some classes, in which it has been found to be."""
    kept = _of_any(value.objs, _wanted(classes)) if holds else value.objs
    return value if kept == value.objs else Val(kept, value.v, value.n, value.p, value.state)


def _of_any(objs: frozenset[Obj], wanted: list[Obj]) -> frozenset[Obj]:
    """The objects that may be of one of some classes, of libraries too; all where one of these is not known."""
    if not wanted or any(o[0] not in ("class", "ext") for o in wanted):
        return objs
    return frozenset(o for o in objs if o[0] not in ("inst", "self") or any(_may_be_of(o[1], each) for each in wanted))


def _may_be_of(cls: ClassDef, wanted: Obj) -> bool:
    """Whether objects of a class, or of one below it, may be of another."""
    if wanted[0] == "class":
        return wanted[1] in cls.relatives
    name = wanted[1].rpartition(".")[2]
    if wanted[1] == "object" or wanted[1].startswith(_BY_MEMBERS):
        return True
    bases = {base for each in cls.relatives for base in each.outer_bases}
    above = any(may_descend(base, wanted[1]) for base in bases - _ROOTS)
    return wanted[1] in bases or above or any(each.name == name for each in cls.relatives)


def _is_told(value: Val, cls: ClassDef) -> bool:
    """Whether the objects that a value may be are known, and none of them stands for one of a class."""
    return all(o[0] == "inst" or o[0] == "self" and o[1] not in cls.mro for o in value.objs)


def told_apart(objs: frozenset[Obj], classes: Val, holds: bool) -> frozenset[Obj]:
    """The objects that are, or are not, of some classes; where one of these is not known, all of them may be left."""
    wanted = _wanted(classes)
    tested = _classes(wanted)
    if not tested:
        return _of_any(objs, wanted) if holds else objs
    known = {o for o in objs if o[0] in OBJECTS}
    kept = frozenset(o for o in known if tested.isdisjoint(o[1].mro) is not holds)
    if not holds:
        return kept | (objs - known)
    kept |= {("self", cls) for cls in tested for o in known if o[0] == "self" and o[1] in cls.mro}
    return kept or frozenset(("self", cls) for cls in tested)


def without(value: Val, other: Val, same: bool) -> Val:
    """What is left of a value that is, or is not, the very class or function that it was compared with."""
    if len(other.objs) != 1 or not any(o[0] in ("class", "unit", "ext") for o in other.objs):
        return value
    return Val(value.objs & other.objs if same else value.objs - other.objs)


def _wanted(classes: Val) -> list[Obj]:
    """What a test of a class names: one class, or the parts of a tuple."""
    parts = ((o for part in each[1] for o in part.each) if each[0] == "tuple" else (each,) for each in classes.each)
    return [o for each in parts for o in each]


def _classes(wanted: list[Obj]) -> frozenset[ClassDef]:
    """The classes of the project that a test names; none where it names something else as well."""
    return frozenset(o[1] for o in wanted) if all(o[0] == "class" for o in wanted) else frozenset()


def _placed(state: frozenset[str], steps: list[str], holds: bool) -> frozenset[str]:
    """What was done before a wrapper was put around is not known of what is found in one."""
    if not holds:
        return frozenset(each for each in state if steps_of(each).isdisjoint(steps)) or state & frozenset({"?"})
    if not all(steps):
        return state
    known = frozenset(each for each in state if not steps_of(each).isdisjoint(steps))
    return known or frozenset(f"?+{step}" for step in steps)

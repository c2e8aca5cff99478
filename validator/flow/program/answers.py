"""What is known of a unit and of its calls, and how two answers to a question are joined."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from validator.definitions import ClassDef
from validator.domains.spmd import NONE, Causes
from validator.flow.values import BOTTOM, NOT_YET, Val, join2

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow
    from validator.flow.program.unit import Unit

K = TypeVar("K")
T = TypeVar("T")


class Target(NamedTuple):
    """A unit that a call may reach, with what each of its parameters gets."""

    unit: Unit
    bindings: tuple[tuple[int, Val], ...]

    @classmethod
    def of(cls, unit: Unit, bindings: dict[int, Val]) -> Target:
        return cls(unit, tuple(sorted(bindings.items(), key=lambda row: row[0])))

    def argument(self, position: int) -> Val | None:
        return next((value for index, value in self.bindings if index == position), None)


class Operation(NamedTuple):
    """A collective that a call is: its row in the tables and the group on which it works."""

    name: str
    group: Val
    sure: bool
    row: Any


class Site(NamedTuple):
    """What happens at a value: the units that run, and the collectives."""

    targets: tuple[Target, ...]
    operations: tuple[Operation, ...]
    away: bool = False  # it runs in another process
    under: Causes = NONE  # what the branches around it depend on
    chosen: Causes = NONE  # by what it varies which of the targets runs
    others: bool = False  # whether something else than the targets may run too
    guessed: tuple[Target, ...] = ()  # whom a call on an unknown object probably runs, by its name alone

    def merged(self, other: Site) -> Site:
        operations = {(o.name, o.row.name): o for o in self.operations}
        for o in other.operations:
            key = (o.name, o.row.name)
            operations[key] = o._replace(group=join2(operations[key].group, o.group)) if key in operations else o
        return Site(
            _merged(self.targets, other.targets),
            tuple(operations.values()),
            self.away or other.away,
            self.under | other.under,
            self.chosen | other.chosen,
            self.others or other.others,
            _merged(self.guessed, other.guessed),
        )


def _merged(some: tuple[Target, ...], more: tuple[Target, ...]) -> tuple[Target, ...]:
    """Calls of one place, each unit once."""
    targets: dict[Unit, dict[int, Val]] = {}
    for target in (*some, *more):
        known = targets.setdefault(target.unit, {})
        for index, value in target.bindings:
            known[index] = join2(known[index], value) if index in known else value
    return tuple(Target.of(unit, rows) for unit, rows in targets.items())


class Result(NamedTuple):
    """What is known of one unit, in terms of its own parameters."""

    vals: tuple[Val, ...]
    returned: Val
    yielded: Val
    outs: dict[int, Val]  # parameters that are other values at the end
    sites: dict[int, Site]
    globals: dict[str, tuple[Val, ...]]
    class_names: dict[str, tuple[Val, ...]]
    made: dict[ClassDef, tuple[tuple[tuple[str, Val], ...], ...]]  # objects made of classes without __init__
    switched: dict[str, tuple[Val, ...]]  # states of libraries that are set here, and how that varies
    passed: dict[Unit, tuple[Passed, ...]] = {}  # noqa: RUF012  (the calls of units, by unit)
    stored: dict[str, tuple[tuple[Val, Val], ...]] = {}  # noqa: RUF012  (attribute -> (object, value) of its stores)
    filled: dict[str, tuple[tuple[Val, Val], ...]] = {}  # noqa: RUF012  (what is put into containers under a name)
    placings: tuple[tuple[Val, str, str], ...] = ()  # (object, attribute, step): what lies there is placed otherwise
    steps: dict[tuple[int, int], tuple[str, ...]] = {}  # noqa: RUF012  (call, position) -> how it places an argument
    waiting: bool = False  # whether some of the values are not known yet
    guessed: dict[Unit, tuple[Passed, ...]] = {}  # noqa: RUF012  (calls that probably run units, by unit)
    rounds: Causes = NONE  # by what it varies how often a generator yields
    ways: dict[int, Val] = {}  # noqa: RUF012  (what it returns at each block, where parameters decide at which)

    @property
    def makes(self) -> frozenset[ClassDef]:
        """The classes without `__init__` of which it makes objects."""
        return frozenset(self.made)


class Passed(NamedTuple):
    """What one call passes to a unit."""

    site: int
    bindings: tuple[tuple[int, Val], ...]
    away: bool
    under: Causes

    def argument(self, position: int) -> Val | None:
        return next((value for index, value in self.bindings if index == position), None)


class Calls(NamedTuple):
    """What the calls of a unit pass, by the unit in which they stand, and what those do that probably run it."""

    rows: dict[Unit, tuple[tuple[Passed, ...], tuple[Passed, ...]]]
    waiting: bool = False  # whether it is not known yet of some unit what it calls


class Makers(NamedTuple):
    """The units that make objects of the data classes of one name."""

    units: dict[ClassDef, tuple[Unit, ...]]


EMPTY = Result((), NOT_YET, NOT_YET, {}, {}, {}, {}, {}, {})
NO_MAKERS = Makers({})
NO_CALLS = Calls({}, waiting=True)


def grounded(answer: Any) -> Any:
    """An answer in which nothing is awaited any more: what has not come by now does not come."""
    if isinstance(answer, Val):
        return BOTTOM if answer is NOT_YET else answer
    if isinstance(answer, Calls):
        return answer._replace(waiting=False) if answer.waiting else answer
    if not isinstance(answer, Result) or not (answer.waiting or NOT_YET in (answer.returned, answer.yielded)):
        return answer
    known = tuple(map(grounded, answer.vals))
    returned, yielded = grounded(answer.returned), grounded(answer.yielded)
    ways = {block: grounded(value) for block, value in answer.ways.items()}
    return answer._replace(vals=known, returned=returned, yielded=yielded, ways=ways, waiting=False)


def part_of(answer: Any, part: Any) -> Any:
    """A part of an answer that may be asked for by itself: who asks for it is not asked again when the rest changes.

    None of rows that are not known yet: the unit was not evaluated, or it is not clear yet what it calls.
    """
    if isinstance(part, str):
        return getattr(answer, part)
    name, which = part
    if answer is EMPTY:
        return None
    if name == "vals":
        return tuple(answer.vals[n] for n in which if n < len(answer.vals))
    return getattr(answer, name).get(which, None if name in _OF_CALLS and answer.waiting else ())


class Answer:
    """The present result of a unit, for equations: each field that is read is remembered as read."""

    __slots__ = ("_flow", "_key")

    def __init__(self, flow: Flow, key: Hashable) -> None:
        self._flow = flow
        self._key = key

    def __getattr__(self, name: str) -> Any:
        return self._flow.part(self._key, name)


def joined(old: Any, new: Any) -> Any:
    if isinstance(new, Val):
        return join2(old, new)
    if isinstance(new, Makers):
        return Makers(_by_key(old.units, new.units, _united))
    if isinstance(new, Calls):
        return new  # only what units say, whose answers are joined
    if len(old.vals) != len(new.vals):
        return new
    return new._replace(
        vals=tuple(a if a is b else join2(a, b) for a, b in zip(old.vals, new.vals, strict=True)),
        returned=join2(old.returned, new.returned),
        yielded=join2(old.yielded, new.yielded), outs=_by_key(old.outs, new.outs, join2),
        ways=_by_key(old.ways, new.ways, join2), sites=_by_key(old.sites, new.sites, Site.merged),
        **{name: _by_key(getattr(old, name), getattr(new, name), _united) for name in _ROWS},
    )  # fmt: skip


_OF_CALLS = ("passed", "guessed", "made")
_ROWS = ("globals", "class_names", "made", "switched", "passed", "guessed", "stored", "filled")


def _united(old: tuple[T, ...], new: tuple[T, ...]) -> tuple[T, ...]:
    """The rows of two answers: one for each instruction that gives one, the same in both where there are as many."""
    if len(old) == len(new):
        return tuple(map(_both, old, new))
    if old and isinstance(old[0], Passed):
        rows = {(row.site, tuple(i for i, _ in row.bindings)): row for row in old}  # type: ignore[attr-defined]
        for row in new:
            key = (row.site, tuple(i for i, _ in row.bindings))  # type: ignore[attr-defined]
            rows[key] = _both(rows[key], row) if key in rows else row
        return tuple(sorted(rows.values(), key=attrgetter("site")))
    return tuple(dict.fromkeys((*old, *new)))


def _both(old: Any, new: Any) -> Any:
    """The join of two rows: values, pairs of values, bindings of values."""
    if old is new or old == new:
        return new
    if isinstance(new, Val):
        return join2(old, new)
    if isinstance(new, frozenset):
        return old | new
    if isinstance(new, tuple) and len(old) == len(new):
        joined = tuple(map(_both, old, new))
        return Passed(*joined) if isinstance(new, Passed) else joined
    return new


def _by_key(old: dict[K, T], new: dict[K, T], both: Callable[[T, T], T]) -> dict[K, T]:
    """The rows of two tables; where both have a row, what `both` makes of the two."""
    again = ((key, old[key], value) for key, value in new.items() if key in old)
    return old | new | {key: both(row, value) for key, row, value in again if row is not value}

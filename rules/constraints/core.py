"""How a constraint is stated, checked, and turned into the nearest values that would satisfy it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from rules.constraints.quantities import (
    CHOICES,
    PARALLEL_SIZES,
    Quantities,
    data_parallel,
    describe,
    model_parallel,
    release,
    replica_text,
)

Severity = Literal["error", "warning"]
Operator = Literal[">", ">=", "<", "==", "!=", "in", "not in", "version<", "version>="]

_MAX_STEPS = 1 << 17
"""How far from the present value a size is searched: past the longest context length in use."""


class Condition(NamedTuple):
    """`quantity operator value`: true, false, or undecided while the quantity is unknown."""

    quantity: str
    operator: Operator
    value: Any

    def evaluate(self, q: Quantities) -> bool | None:
        """Whether the condition holds; None when its quantity is unknown."""
        actual = getattr(q, self.quantity)
        return None if actual is None else _compare(actual, self.operator, self.value)

    def text(self) -> str:
        """The condition as a reader of the reference page sees it."""
        if isinstance(self.value, bool):
            return self.quantity if self.value else f"not {self.quantity}"
        if self.operator.startswith("version"):
            return f"{self.quantity} {self.operator.removeprefix('version')} {self.value}"
        if self.operator in ("in", "not in"):
            return f"{self.quantity} {self.operator} {', '.join(map(str, self.value))}"
        return f"{self.quantity} {self.operator} {self.value}"


def _compare(actual: Any, operator: Operator, value: Any) -> bool:
    match operator:
        case ">":
            return bool(actual > value)
        case ">=":
            return bool(actual >= value)
        case "<":
            return bool(actual < value)
        case "==":
            return bool(actual == value)
        case "!=":
            return bool(actual != value)
        case "in":
            return actual in value
        case "not in":
            return actual not in value
        case "version<":
            return release(actual) < release(value)
        case "version>=":
            return release(actual) >= release(value)


@dataclass(frozen=True)
class Constraint:
    """One constraint. `id` is stable: findings, result rows and suppressions name it.

    `needs` must be known for `holds` to be asked; `when` are conditions that must all be true for the
    constraint to apply. `adjust` are the quantities that a reader would change, most likely first.
    `message` is a format string over the known quantities, `data_parallel`, `model_parallel` and `replica`.
    While one of `given` is unknown the constraint is silent: nobody asked about it.
    `sources` say where a library, or a measurement, states it. `candidates` gives values to try for a
    quantity that is neither a size nor in `CHOICES`.
    """

    id: str
    rule: str
    needs: tuple[str, ...]
    holds: Callable[[Quantities], bool]
    message: str
    adjust: tuple[str, ...]
    sources: tuple[str, ...]
    when: tuple[Condition, ...] = ()
    severity: Severity = "error"
    given: tuple[str, ...] = ()
    candidates: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def mentions(self, quantity: str) -> bool:
        """Whether changing the quantity can change the outcome."""
        return quantity in self.needs or any(condition.quantity == quantity for condition in self.when)

    def outcome(self, q: Quantities) -> Outcome:
        """Whether it applies, what it lacks, and whether it holds."""
        if any(getattr(q, name) is None for name in self.given):
            return Outcome("silent")
        lacking = []
        for condition in self.when:
            met = condition.evaluate(q)
            if met is False:
                return Outcome("silent")
            if met is None:
                lacking.append(condition.quantity)
        if lacking:
            return Outcome("undecided", tuple(dict.fromkeys(lacking)))
        missing = tuple(name for name in self.needs if getattr(q, name) is None)
        if missing:
            # With nothing known at all, nobody asked about it.
            asked = self.when or len(missing) < len(self.needs)
            return Outcome("unchecked" if asked else "undecided", missing)
        return Outcome("holds" if self.holds(q) else "violated")

    def explain(self, q: Quantities) -> str:
        """The message with the configuration's values."""
        derived = {
            "data_parallel": data_parallel(q),
            "model_parallel": model_parallel(q),
            "replica": replica_text(q),
        }
        return self.message.format(**q.known(), **derived)


class Outcome(NamedTuple):
    """`silent`: does not apply. `undecided`: unknown whether it applies. `unchecked`: applies, lacks "
    "values."""

    kind: Literal["silent", "undecided", "unchecked", "holds", "violated"]
    missing: tuple[str, ...] = ()


class Proposal(NamedTuple):
    """Values of one quantity that satisfy the table when put in, nearest first (at most one on each side)."""

    quantity: str
    values: tuple[Any, ...]


class Violation(NamedTuple):
    """A constraint that does not hold, and single changes that mend it."""

    constraint: Constraint
    message: str
    proposals: tuple[Proposal, ...]

    def help(self) -> str:
        """The proposals in words: `set tp to 2 or 4; or world_size to 6`."""
        parts = [f"{p.quantity} to {' or '.join(map(str, p.values))}" for p in self.proposals]
        return f"set {'; or '.join(parts)}" if parts else ""


class Unchecked(NamedTuple):
    """A constraint that applies but lacks values."""

    constraint: Constraint
    missing: tuple[str, ...]

    def message(self, reasons: Mapping[str, str] | None = None) -> str:
        """`cannot be checked: …`, with the caller's reason (`$MODEL is not set`) where it has one."""
        reasons = reasons or {}
        parts = dict.fromkeys(reasons.get(name, f"{describe(name)} is not known") for name in self.missing)
        return f"cannot be checked: {'; '.join(parts)}"


class Report(NamedTuple):
    """What the table says about one configuration."""

    violations: tuple[Violation, ...]
    unchecked: tuple[Unchecked, ...]
    undecided: tuple[Unchecked, ...]

    @property
    def errors(self) -> tuple[Violation, ...]:
        return tuple(v for v in self.violations if v.constraint.severity == "error")

    @property
    def warnings(self) -> tuple[Violation, ...]:
        return tuple(v for v in self.violations if v.constraint.severity == "warning")


def check_against(table: Sequence[Constraint], q: Quantities, *, propose: bool = True) -> Report:
    """Check a configuration against a table; `propose=False` spares the search for nearest values."""
    violations, unchecked, undecided = [], [], []
    for constraint in table:
        kind, missing = constraint.outcome(q)
        if kind == "violated":
            found = tuple(proposals(table, constraint, q)) if propose else ()
            violations.append(Violation(constraint, constraint.explain(q), found))
        elif kind == "unchecked":
            unchecked.append(Unchecked(constraint, missing))
        elif kind == "undecided":
            undecided.append(Unchecked(constraint, missing))
    return Report(tuple(violations), tuple(unchecked), tuple(undecided))


def proposals(table: Sequence[Constraint], constraint: Constraint, q: Quantities) -> Iterator[Proposal]:
    """Single changes after which the constraint holds and no error of the table is new.

    With two mistakes at once there may be none. Then constraints that are mended by other quantities are
    left to their own proposals.
    """
    for strict in (True, False):
        found = [
            Proposal(quantity, values)
            for quantity in constraint.adjust
            if (values := nearest(table, constraint, q, quantity, strict=strict))
        ]
        if found:
            yield from found
            return


def nearest(
    table: Sequence[Constraint], constraint: Constraint, q: Quantities, quantity: str, *, strict: bool = True
) -> tuple[Any, ...]:
    """Values of `quantity` nearest to its present one that satisfy `constraint` and break nothing else.

    Sizes give at most one value on each side, nearest first; settings give the first choice that works.
    Empty when no value does, or when the quantity is unknown. With `strict=False` only those other
    constraints count that name the quantity as the one to adjust.
    """
    present = getattr(q, quantity)
    fits = _fitting(table, constraint, q, quantity, strict)
    choices = constraint.candidates.get(quantity) or CHOICES.get(quantity)
    if choices is not None:
        return next(((value,) for value in choices if value != present and fits(value)), ())
    if not isinstance(present, int):
        return ()
    downwards = range(present - 1, max(0, present - _MAX_STEPS), -1)
    upwards = _upwards(constraint, q, quantity, present)
    found = [value for side in (downwards, upwards) if (value := next(filter(fits, side), None)) is not None]
    return tuple(sorted(found, key=lambda value: (abs(value - present), value)))


def _fitting(
    table: Sequence[Constraint], constraint: Constraint, q: Quantities, quantity: str, strict: bool
) -> Callable[[Any], bool]:
    others = [
        other for other in table
        if other is not constraint and other.severity == "error" and other.mentions(quantity)
        and (strict or quantity in other.adjust) and other.outcome(q).kind != "violated"
    ]  # fmt: skip
    trial = copy.copy(q)

    def fits(value: Any) -> bool:
        object.__setattr__(trial, quantity, value)  # a private copy: building one per value is too slow
        if constraint.outcome(trial).kind in ("violated", "unchecked", "undecided"):
            return False
        return all(other.outcome(trial).kind != "violated" for other in others)

    return fits


def _upwards(constraint: Constraint, q: Quantities, quantity: str, present: int) -> Iterable[int]:
    # A divisibility constraint repeats after the product of the other sizes: beyond it nothing new comes.
    period = 1
    for name in constraint.needs:
        size = getattr(q, name)
        if name != quantity and isinstance(size, int) and not isinstance(size, bool):
            period *= max(size, 1)
    start = max(present, 0) + 1
    steps = min(_MAX_STEPS, max(period, 256))
    if quantity in PARALLEL_SIZES and q.world_size is not None:
        # No group holds more ranks than there are, but a small world may itself be the mistake.
        steps = min(steps, max(q.world_size, 256))
    return range(start, start + steps)

"""Two series step by step: how far apart, from which step on, and what else is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.compare.series import Series
from bench.terminal.text import counted

SHIFTS = (-2, -1, 1, 2)


@dataclass(frozen=True)
class Finding:
    """Something that a reader must know; `fails` and `undecided` decide the exit status."""

    kind: str
    message: str
    fails: bool = True
    undecided: bool = False


@dataclass(frozen=True)
class Summary:
    """Initial, mean and final value of one series over its finite values; NaN where there is none."""

    steps: int
    initial: float
    mean: float
    final: float

    @classmethod
    def of(cls, series: Series) -> Summary:
        values = [series.values[step] for step in sorted(series.values)]
        finite = [value for value in values if math.isfinite(value)]
        if not values:
            return cls(0, math.nan, math.nan, math.nan)
        return cls(len(values), values[0], mean(finite) if finite else math.nan, values[-1])


@dataclass
class Alignment:
    """Two series compared. Differences are relative to the first series; one that cannot be computed because a value
    is not finite counts as infinite. `beyond` is the first step whose difference exceeds the threshold."""

    quantity: str
    first: Summary
    second: Summary
    common: int
    max_difference: float
    max_step: int | None
    mean_difference: float
    beyond: int | None
    number_beyond: int
    differences: dict[int, float] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def align(
    first: Series,
    second: Series,
    threshold: float,
    *,
    quantity: str = "loss",
    atol: float = 0.0,
    lengths_matter: bool = True,
    names: tuple[str, str] = ("A", "B"),
) -> Alignment:
    """Compare two series by step. `threshold` is relative (0.05: five percent); differences up to `atol` count as
    none, for quantities that cross zero. `lengths_matter` false makes steps that one side lacks a note."""
    common = sorted(first.values.keys() & second.values.keys())
    differences = {step: _difference(first.values[step], second.values[step], atol) for step in common}
    finite = [d for d in differences.values() if math.isfinite(d)]
    worst = max(common, key=lambda step: differences[step], default=None)
    over = [step for step in common if differences[step] > threshold]
    found = Alignment(
        quantity, Summary.of(first), Summary.of(second), len(common),
        max_difference=differences[worst] if worst is not None else math.nan, max_step=worst,
        mean_difference=mean(finite) if finite else math.nan,
        beyond=over[0] if over else None, number_beyond=len(over), differences=differences,
    )  # fmt: skip
    for series, name in zip((first, second), names, strict=True):
        found.findings += check(series, quantity, name)
    found.findings += _missing(first, second, quantity, lengths_matter, names)
    if over:
        found.findings.append(_beyond(found, threshold, names))
        found.findings += _shifted(first, second, threshold, atol, quantity, names)
    found.findings += _coarse(first, second, threshold, quantity, names)
    return found


def _difference(a: float, b: float, atol: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    apart = abs(a - b)
    if apart <= atol:
        return 0.0
    return apart / abs(a) if a else math.inf


def check(series: Series, quantity: str, name: str) -> list[Finding]:
    """What is wrong with one series by itself: values that are not finite, steps given twice, a loss that does not
    fall."""
    found = []
    wrong = [step for step, value in sorted(series.values.items()) if not math.isfinite(value)]
    if wrong:
        kinds = "NaN" if any(math.isnan(series.values[step]) for step in wrong) else "infinite"
        found.append(Finding("not-finite", f"{name}: {quantity} is {kinds} at {steps_text(wrong)}"))
    if series.repeated:
        text = f"{name}: {quantity} is given twice, with different values, at {steps_text(sorted(series.repeated))}"
        found.append(Finding("repeated", f"{text}; the last one counts", fails=False))
    if quantity == "loss" and not falls(series):
        found.append(Finding("not-falling", f"{name}: the loss does not fall from its first to its last steps", False))
    return found


def falls(series: Series) -> bool:
    """Whether the mean of the last quarter of the finite values is below that of the first; true for fewer than two."""
    values = [series.values[step] for step in sorted(series.values) if math.isfinite(series.values[step])]
    if len(values) < 2:
        return True
    quarter = max(len(values) // 4, 1)
    return mean(values[-quarter:]) < mean(values[:quarter])


def _missing(
    first: Series, second: Series, quantity: str, lengths_matter: bool, names: tuple[str, str]
) -> list[Finding]:
    found = []
    for mine, other, name, reference in ((second, first, *names[::-1]), (first, second, *names)):
        lacking = sorted(other.values.keys() - mine.values.keys())
        if not lacking:
            continue
        end = max(mine.values, default=-1)
        only_end = all(step > end for step in lacking)
        text = f"{name}: {quantity} ends after step {end}" if only_end and mine.values else f"{name}: no {quantity}"
        text += f"; {reference} has {steps_text(lacking)}" if only_end and mine.values else f" at {steps_text(lacking)}"
        found.append(Finding("missing", text, fails=lengths_matter or not only_end))
    if not first.values.keys() & second.values.keys():
        found.append(Finding("nothing-common", f"{names[0]} and {names[1]} have no step of the {quantity} in common"))
    return found


def _beyond(found: Alignment, threshold: float, names: tuple[str, str]) -> Finding:
    worst = "not a number" if math.isinf(found.max_difference) else f"{found.max_difference:.3%}"
    text = (
        f"{found.quantity} of {names[1]} differs from {names[0]} by more than {threshold:.3g} at {found.number_beyond} "
        f"of {found.common} steps, first at step {found.beyond}; largest {worst} at step {found.max_step}"
    )
    return Finding("beyond", text)


def _shifted(
    first: Series, second: Series, threshold: float, atol: float, quantity: str, names: tuple[str, str]
) -> list[Finding]:
    """A log that numbers its steps from 1 looks like another training run beside one that starts at 0. A run that
    only trains more slowly fits at a shift too, but not to a tenth of the threshold."""
    for shift in SHIFTS:
        moved = {step + shift: value for step, value in second.values.items()}
        common = first.values.keys() & moved.keys()
        if len(common) < max(3, len(first.values) // 2):
            continue
        if all(_difference(first.values[step], moved[step], atol) <= threshold / 10 for step in common):
            text = f"{quantity} of {names[1]} fits {names[0]} when its steps are moved by {shift:+d}"
            return [Finding("shifted", f"{text}: they may be numbered differently (--rebase)", fails=False)]
    return []


def _coarse(first: Series, second: Series, threshold: float, quantity: str, names: tuple[str, str]) -> list[Finding]:
    """A value printed with d digits is known to half a unit of the last one."""
    found = []
    for series, name in zip((first, second), names, strict=True):
        resolution = 0.5 * 10.0 ** (1 - series.digits) if series.digits else 0.0
        if resolution * 2 > threshold:
            text = f"{name}: the {quantity} is printed with {series.digits} digits, so differences below"
            found.append(Finding("coarse", f"{text} {resolution:.1%} cannot be seen", fails=False))
    return found


def mean(values: Sequence[float]) -> float:
    """The mean; infinite where the sum is too large for a float, as diverging losses may be."""
    return sum(values) / len(values)


def steps_text(steps: list[int]) -> str:
    """`steps 3, 5-9, 12`, cut after some ranges."""
    return counted("step", steps, shown=6)

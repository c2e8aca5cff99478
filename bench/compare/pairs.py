"""A reference run against another: losses, gradient norms, times, and a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bench.compare.convergence import Fall, check_fall, check_first_norms, fall, first_norms
from bench.compare.losses import Alignment, Finding, align
from bench.compare.series import Run
from bench.compare.significance import Change, change
from bench.configuration import deciding, parse_known
from bench.problems import InputError
from bench.settings import WORK

DECISIVE = (*(name for name in deciding(WORK) if name not in ("num_gpus", "dtype", "backward")), "packing")
"""Settings that change what is trained on what: runs that differ in them need not have equal losses."""
MODEL = ("model", "num_layers")
"""Settings that say what the model is: neither losses nor times of two models say anything of each other."""
OTHER_MODEL = "other-model"
NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True)
class Limits:
    """What is tolerated. `threshold`: relative difference of losses; `norm_threshold`: of gradient norms, None for
    no limit; `atol`: a difference up to this is none; `max_slowdown`: 0.1 allows ten percent more time for a step,
    None allows any; `must_fall`: a loss that does not fall fails; `common_only`: steps that one side lacks are a
    note; `rebase`: count steps from the first one; `fall_threshold`: relative difference of how far losses fall;
    `first_norm_threshold`: of the gradient norms of the first steps, where the losses there are equal."""

    threshold: float = 0.05
    fall_threshold: float = 0.05
    norm_threshold: float | None = None
    first_norm_threshold: float = 0.05
    atol: float = 0.0
    max_slowdown: float | None = None
    must_fall: bool = False
    common_only: bool = False
    rebase: bool = False


@dataclass
class Pair:
    """A comparison of two runs. `fall` and `first_norms` are None where they cannot be judged."""

    first: Run
    second: Run
    alignments: list[Alignment] = field(default_factory=list)
    fall: Fall | None = None
    first_norms: float | None = None
    changes: list[Change] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def status(self) -> str:
        """ "pass", "FAIL", "undecided" where only more processes could tell, or "not comparable" for two models."""
        if any(finding.kind == OTHER_MODEL for finding in self.findings):
            return NOT_COMPARABLE
        if any(finding.fails for finding in self.findings):
            return "FAIL"
        return "undecided" if any(finding.undecided for finding in self.findings) else "pass"

    @property
    def passed(self) -> bool:
        return self.status == "pass"

    @property
    def alignment(self) -> Alignment | None:
        """The losses' alignment; None where one side has no losses."""
        return next((a for a in self.alignments if a.quantity == "loss"), None)


def compare(first: Run, second: Run, limits: Limits) -> Pair:
    """Compare `second` with the reference `first`."""
    pair = Pair(first, second)
    names = (first.name, second.name)
    for run in (first, second):
        if run.status != "ok":
            pair.findings.append(Finding("failed", f"{run.name} ended as {run.status}: {run.message}"))
    alike = _settings(pair)
    _series(pair, limits, names)
    if alike:
        _learning(pair, limits, names)
    _times(pair, limits)
    if not pair.alignments and not pair.changes:
        pair.findings.append(Finding("nothing", f"{names[0]} and {names[1]} have no quantity in common"))
    if limits.must_fall:
        pair.findings = [replace(f, fails=True) if f.kind == "not-falling" else f for f in pair.findings]
    return pair


def _settings(pair: Pair) -> bool:
    """Tell of settings that differ; whether there are none for which losses need not be equal."""
    a, b = pair.first.identity, pair.second.identity
    if not a or not b:
        return True
    rest = _changed(a, b, [key for key in {**a, **b} if key not in DECISIVE])
    if rest:
        text = f"{pair.second.name} is otherwise than {pair.first.name} in {', '.join(rest)}"
        pair.findings.append(Finding("differs", text, fails=False))
    other = [*_changed(a, b, DECISIVE), *_changed(one := _dealt(a), _dealt(b), one)]
    if other:
        text = f"{pair.second.name} was set up otherwise than {pair.first.name}: {', '.join(other)}"
        pair.findings.append(Finding("settings", text, fails=False))
    if any(a.get(key) != b.get(key) for key in MODEL):
        text = f"{pair.second.name} and {pair.first.name} are not the same model: nothing follows from their numbers"
        pair.findings.append(Finding(OTHER_MODEL, text, fails=False))
    return not other


def _changed(a: Mapping[str, Any], b: Mapping[str, Any], keys: Iterable[str]) -> list[str]:
    return [f"{key} {a.get(key)} → {b.get(key)}" for key in keys if a.get(key) != b.get(key)]


def _dealt(identity: Mapping[str, Any]) -> dict[str, int]:
    """What follows from the number of processes: samples of a step, and orders of shuffled inputs."""
    configuration = parse_known(identity)
    orders = configuration.dp if configuration.shuffle_inputs else 1
    return {"samples of a step": configuration.batch, "orders of inputs": orders}


def _learning(pair: Pair, limits: Limits, names: tuple[str, str]) -> None:
    losses, norms = (
        [series.rebased() if series and limits.rebase else series for series in each]
        for each in ((pair.first.loss, pair.second.loss), (pair.first.grad_norm, pair.second.grad_norm))
    )
    if losses[0] and losses[1]:
        pair.fall = fall(losses[0], losses[1])
    pair.first_norms = first_norms((losses[0], losses[1]), (norms[0], norms[1]))
    pair.findings += check_fall(pair.fall, limits.fall_threshold, names)
    pair.findings += check_first_norms(pair.first_norms, limits.first_norm_threshold, names)


def _series(pair: Pair, limits: Limits, names: tuple[str, str]) -> None:
    a, b = pair.first, pair.second
    matters = not (limits.common_only or (a.adaptive and b.adaptive))
    for quantity, one, two, threshold in (
        ("loss", a.loss, b.loss, limits.threshold),
        ("gradient norm", a.grad_norm, b.grad_norm, limits.norm_threshold),
    ):
        if not one or not two or not one.values or not two.values:
            _lonely(pair, quantity, bool(one and one.values), bool(two and two.values))
            continue
        if limits.rebase:
            one, two = one.rebased(), two.rebased()
        found = align(
            one, two, float("inf") if threshold is None else threshold, quantity=quantity, atol=limits.atol,
            lengths_matter=matters, names=names,
        )  # fmt: skip
        if one.name != two.name:
            text = f"{names[0]} calls its {quantity} {one.name!r}, {names[1]} {two.name!r}; they may not mean the same"
            found.findings.append(Finding("names", text, fails=False))
        pair.alignments.append(found)
        pair.findings += found.findings
    for run in (a, b):
        if run.between_processes:
            text = f"{run.name}: the losses of its own processes differ by up to {run.between_processes:.3%}"
            pair.findings.append(Finding("not-repeatable", text, fails=False))


def _lonely(pair: Pair, quantity: str, first: bool, second: bool) -> None:
    if first != second:
        has, lacks = (pair.first, pair.second) if first else (pair.second, pair.first)
        text = f"{has.name} has a {quantity} and {lacks.name} has none"
        pair.findings.append(Finding("one-sided", text, fails=quantity == "loss"))


def _times(pair: Pair, limits: Limits) -> None:
    a, b = pair.first.metrics, pair.second.metrics
    for name in (n for n in a if n in b):
        if a[name].unit != b[name].unit:
            raise InputError(
                f"{name} is in {a[name].unit} in {pair.first.name} and in {b[name].unit} in {pair.second.name}"
            )
        try:
            found = change(name, a[name].unit, a[name].means, b[name].means)
        except ValueError as error:
            pair.findings.append(Finding("unusable", str(error)))
            continue
        pair.changes.append(found)
    if limits.max_slowdown is None:
        return
    timed = _timed(pair.changes)
    if not timed:
        text = f"--max-slowdown: {pair.first.name} and {pair.second.name} have no time or rate in common to compare"
        pair.findings.append(Finding("no-times", text))
    for found in timed:
        if found.ratio - 1.0 > limits.max_slowdown:
            pair.findings.append(_slower(pair, found, limits.max_slowdown))


def _timed(changes: list[Change]) -> list[Change]:
    """The whole step where it is known: backends share its work out differently among the phases."""
    return [c for c in changes if c.metric == "step"] or [c for c in changes if c.unit == "second"]


def _slower(pair: Pair, found: Change, limit: float) -> Finding:
    """What is to be said of a time beyond the limit: it fails, unless noise alone could make the difference."""
    text = f"{pair.second.name} takes {found.ratio - 1:.1%} more time for {found.metric}, allowed is {limit:.1%}"
    if found.significant is None:
        return Finding("slower", f"{text}; with one process on a side this is not tested")
    if found.significant:
        return Finding("slower", text)
    return Finding("slower", f"{text}; {found.doubt}", fails=False, undecided=True)

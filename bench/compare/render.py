"""Comparisons as text, Markdown and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bench.compare.logprobs import Mismatch
from bench.compare.losses import Finding
from bench.compare.pairs import Pair
from bench.compare.significance import Change
from bench.terminal.text import grid, plain, valid_json

QUANTITIES = (
    "run", "quantity", "steps", "common", "initial", "mean", "final", "max diff", "at step", "mean diff", "beyond from",
)  # fmt: skip
LEARNING = ("run", "fall of reference", "fall", "behind, by quarter", "first gradient norms")
TIMES = ("run", "metric", "reference", "this", "ratio", "95% interval", "processes", "significant")


def as_text(pairs: Sequence[Pair], unmatched: Sequence[str] = (), style: str = "simple") -> str:
    """Tables of losses and times against their references, findings, a verdict per run, and what has no partner."""
    one = len({pair.first.name for pair in pairs}) == 1
    parts = [f"reference: {plain(pairs[0].first.name, style)}"] if one else []
    rows = _reference_rows(pairs[0]) if one else []
    for pair in pairs:
        rows += [*([] if one else _reference_rows(pair)), *_alignment_rows(pair)]
    if rows:
        parts += ["", grid(rows, QUANTITIES, style)]
    learning = [row for pair in pairs for row in _learning_rows(pair)]
    if learning:
        parts += ["", grid(learning, LEARNING, style)]
    times = [[pair.second.name, *_change_row(found)] for pair in pairs for found in pair.changes]
    if times:
        parts += ["", grid(times, TIMES, style)]
    notes = list(dict.fromkeys((_mark(f), f.message) for pair in pairs for f in pair.findings))
    if notes:
        bullet = "- " if style == "github" else ""
        parts += ["", *(f"{bullet}{mark}: {plain(message, style)}" for mark, message in notes)]
    parts += ["", *(_verdict(pair, one, style) for pair in pairs)]
    return "\n".join([*parts, *(f"not compared: {plain(line, style)}" for line in unmatched)])


def _mark(finding: Finding) -> str:
    return "FAIL" if finding.fails else "undecided" if finding.undecided else "note"


def _verdict(pair: Pair, one: bool, style: str) -> str:
    """The last lines: how each run did, and against which where that is not the same for all."""
    against = "" if one else f"  against  {plain(pair.first.name, style)}"
    return f"{pair.status}  {plain(pair.second.name, style)}{against}"


def _reference_rows(pair: Pair) -> list[list[str]]:
    values = [(a.quantity, a.first) for a in pair.alignments]
    return [
        [pair.first.name, quantity, str(s.steps), "", *map(_figure, (s.initial, s.mean, s.final)), *[""] * 4]
        for quantity, s in values
    ]


def _alignment_rows(pair: Pair) -> list[list[str]]:
    return [
        [
            pair.second.name, a.quantity, str(a.second.steps), str(a.common),
            *map(_figure, (a.second.initial, a.second.mean, a.second.final)),
            _share(a.max_difference), "-" if a.max_step is None else str(a.max_step), _share(a.mean_difference),
            "-" if a.beyond is None else str(a.beyond),
        ]
        for a in pair.alignments
    ]  # fmt: skip


def _learning_rows(pair: Pair) -> list[list[str]]:
    """By quarters of the later half: what is missing of the reference's fall; negative where the loss falls further."""
    if pair.fall is None and pair.first_norms is None:
        return []
    falls = ["-"] * 3
    if pair.fall:
        lags = ", ".join(f"{lag:.2%}" for lag in pair.fall.lags)
        falls = [_figure(pair.fall.first), _figure(pair.fall.second), lags]
    return [[pair.second.name, *falls, "-" if pair.first_norms is None else f"{pair.first_norms:+.3%}"]]


def _figure(value: float) -> str:
    return f"{value:.5g}"


def _share(value: float) -> str:
    return "-" if math.isnan(value) else "not finite" if math.isinf(value) else f"{value:.4%}"


def _change_row(found: Change) -> list[str]:
    tested = {True: "yes", False: "no", None: "not tested"}[found.significant]
    interval = "-" if found.low is None or found.high is None else f"{found.low:.3g} to {found.high:.3g}"
    return [
        found.metric, _amount(found.first, found.unit), _amount(found.second, found.unit), f"{found.ratio:.3f}",
        interval, f"{found.processes[0]}, {found.processes[1]}", tested,
    ]  # fmt: skip


def _amount(value: float, unit: str) -> str:
    if unit == "second":
        return f"{value * 1e3:.4g} ms"
    return f"{value / 1e9:.4g} GB" if unit == "byte" else f"{value:.5g}"


def mismatch_as_text(found: Mismatch, told: Sequence[tuple[bool, str]], style: str) -> str:
    """Log-probabilities of two engines: the whole, by position, by length, findings, a verdict."""
    whole = [
        ["tokens", f"{found.tokens:,}"], ["mean difference", f"{found.mean:.3g}"],
        ["largest difference", f"{found.largest:.3g}"], ["second less first", f"{found.bias:+.3g}"],
        ["divergence", f"{found.kl:.3g}"], ["ratios that are clipped", f"{found.clipped:.2%}"],
    ]  # fmt: skip
    parts = [grid(whole, ["log-probabilities", ""], style)]
    for title, buckets in (("position", found.by_position), ("length", found.by_length)):
        rows = [[f"{b.low}-{b.high}", f"{b.tokens:,}", f"{b.mean:.3g}", f"{b.largest:.3g}"] for b in buckets]
        parts += ["", grid(rows, [title, "tokens", "mean difference", "largest"], style)]
    parts += ["", *(f"{'FAIL' if fails else 'note'}: {text}" for fails, text in told)]
    return "\n".join([*parts, "FAIL" if any(fails for fails, _ in told) else "pass"])


def mismatch_as_json(found: Mismatch, told: Sequence[tuple[bool, str]]) -> str:
    """`{"version": 1, "tokens", …, "by_position": […], "by_length": […], "findings": […]}`."""
    listed = [{"message": text, "fails": fails} for fails, text in told]
    return valid_json({"version": 1, **asdict(found), "findings": listed}, indent=1)


def as_data(pairs: Sequence[Pair], unmatched: Sequence[str] = ()) -> dict[str, Any]:
    """`{"version": 1, "reference", "pairs": […], "unmatched": […]}`; seconds and bytes, differences relative, null for
    not finite. `reference` is that of the first pair; each pair names its own."""
    return {
        "version": 1, "reference": pairs[0].first.name, "pairs": [_pair(pair) for pair in pairs],
        "unmatched": list(unmatched),
    }  # fmt: skip


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "run": pair.second.name, "reference": pair.first.name, "status": pair.status, "passed": pair.passed,
        "series": [_renamed(a, "run", "differences", "findings") for a in pair.alignments],
        "metrics": [{**_renamed(c, "value"), "significant": c.significant} for c in pair.changes],
        "fall": pair.fall and _renamed(pair.fall, "run"), "first_norms": pair.first_norms,
        "findings": [asdict(finding) for finding in pair.findings],
    }  # fmt: skip


def _renamed(found: Any, second: str, *left_out: str) -> dict[str, Any]:
    """The fields of what compares a first and a second run, which are named by what they are."""
    names = {"first": "reference", "second": second}
    return {names.get(name, name): value for name, value in asdict(found).items() if name not in left_out}

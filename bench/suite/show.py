"""The end of a suite as people read it: a table of criteria, and what was compared with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from bench.results.measured import STEP, peak_memory, process_means
from bench.suite.criteria import LEARNING, NOISE_FACTOR, Difference, Judgement
from bench.terminal.text import grid

HEADERS = (
    "run", "finishes", "loss falls", "aligned", "loss", "max diff", "mean diff", "seconds/step", "peak GB", "verdict",
)  # fmt: skip


def _word(value: bool | None) -> str:
    return "-" if value is None else "pass" if value else "FAIL"


def _percent(value: float) -> str:
    return f"{100 * value:.2g}%"


def _row(judged: Judgement, row: Mapping[str, Any]) -> list[str]:
    verdict = "skipped" if judged.passed is None else _word(judged.passed)
    words = [_word(judged.finishes), _word(judged.falls), _word(judged.aligned)]
    if judged.difference is None or judged.first_loss is None or judged.last_loss is None:
        return [judged.name, *words, *["-"] * 5, f"{verdict} ({judged.status})"]
    (run,) = row["runs"]
    (seconds,) = process_means([run])[STEP]
    return [
        judged.name, *words, f"{judged.first_loss:.4f} → {judged.last_loss:.4f}",
        _percent(judged.difference.max_difference), _percent(judged.difference.mean_difference),
        f"{seconds:.3f}", f"{peak_memory(run) / 1e9:.2f}", verdict,
    ]  # fmt: skip


def render(
    judged: Sequence[Judgement], rows: Mapping[str, Mapping[str, Any]], threshold: float, noise: float, reordered: bool
) -> str:
    """The table, and below it a line per run that failed or could not be made."""
    lines = [grid([_row(one, rows[one.name]) for one in judged], HEADERS), ""]
    first = next((one.name for one in judged if one.difference is not None), None)
    if first is not None:
        lines.append(
            f"aligned: every step within {_percent(threshold)} of {first}; "
            f"the loss falls as far, and the first gradients are as large, within {_percent(LEARNING)}"
        )
    if reordered:
        lines.append(
            f"two runs of deepspeed that differ only in the order of sums: {_percent(noise)} at most; "
            f"{NOISE_FACTOR:g} times that counts as aligned as well"
        )
    for one in judged:
        if one.status not in ("ok",):
            lines.append(f"{one.name}: {one.status}: {one.message}")
        elif one.passed is False and one.difference is not None and one.difference.first_beyond is not None:
            lines.append(f"{one.name}: step {one.difference.first_beyond} is the first beyond the threshold")
        lines += [f"{one.name}: {message}" for message in one.learning]
    return "\n".join(lines)


def as_json(
    judged: Sequence[Judgement], rows: Mapping[str, Mapping[str, Any]], threshold: float, noise: float
) -> dict[str, Any]:
    """`suite.json`: criteria and differences by run, null where there are none or they are infinite, with the hash that
    names each result directory."""
    runs = {}
    for one in judged:
        told = {**asdict(one), "passed": one.passed, "hash": rows[one.name]["hash"], "label": rows[one.name]["label"]}
        name, difference = told.pop("name"), told.pop("difference")
        runs[name] = told | (difference or dict.fromkeys(field.name for field in fields(Difference)))
    return {"threshold": threshold, "noise": noise, "runs": runs}

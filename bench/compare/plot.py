"""Loss curves of several runs over one another, their distance from the first below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from bench.compare.pairs import Pair
from bench.problems import InputError

FORMATS = (".png", ".svg", ".pdf")
MOST = 1e30
"""Axes of larger numbers would leave the range of floats; a gap is drawn."""


def check_target(path: Path) -> None:
    """Raises `InputError` for a file name that no plot can have."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"--plot {path}: end the name in {', '.join(FORMATS)}")


def save(pairs: Sequence[Pair], path: Path, threshold: float) -> None:
    """Draw the losses of all runs, and their distance from the reference by step. Raises `InputError` where no two runs
    share a loss."""
    from matplotlib.figure import Figure

    drawn = [pair for pair in pairs if pair.alignment]
    if not drawn:
        raise InputError(f"--plot {path}: there are no losses to draw")
    figure = Figure(figsize=(8, 6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for run in (drawn[0].first, *(pair.second for pair in drawn)):
        assert run.loss is not None
        steps = sorted(run.loss.values)
        values = [run.loss.values[step] for step in steps]
        top.plot(
            steps, [value if abs(value) < MOST else math.nan for value in values], label=_plain(run.name), linewidth=1.2
        )
    for number, pair in enumerate(drawn, start=1):
        assert pair.alignment is not None
        points = [(s, d) for s, d in sorted(pair.alignment.differences.items()) if abs(d) < MOST]
        if points:
            bottom.plot(*zip(*points, strict=True), color=f"C{number % 10}", linewidth=1.2)
    bottom.axhline(threshold, color="grey", linestyle="--", linewidth=1)
    top.set_ylabel("loss")
    bottom.set(xlabel="step", ylabel="relative difference")
    bottom.set_yscale("symlog", linthresh=1e-6)
    bottom.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    bottom.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(*top.get_legend_handles_labels(), fontsize="x-small", loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=150)


def _plain(name: str) -> str:
    """A name from a file as a label: a `$` is a dollar and no formula, and matplotlib leaves labels that begin with
    an underscore out of the legend."""
    return "".join(c if c.isprintable() else "?" for c in name).replace("$", r"\$").lstrip("_") or "run"

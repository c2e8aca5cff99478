"""Charts of a report as files, drawn with matplotlib: PNG and SVG. The page draws the same numbers in the browser."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.compare.pairs import Limits, compare
from bench.compare.plot import draw, plain
from bench.compare.series import Run, Series
from bench.report.glance import workloads
from bench.report.rows import Collection
from bench.report.series import chart_data
from bench.results.measured import PHASES

COLOURS = ("#2a78b5", "#d9711a", "#2f9e44", "#c92a2a", "#8558b8", "#8d6e63", "#d6569f", "#868e96", "#a5a11a", "#1299a8")
MOST = 4
"""Charts of a kind."""
MARKS = "osD^vP*X<>"


@dataclass(frozen=True)
class Chart:
    """A finished drawing; `name` is the stem of its files."""

    name: str
    title: str
    figure: Any

    def save(self, folder: Path) -> list[Path]:
        """PNG and SVG on white."""
        found = [folder / f"{self.name}.png", folder / f"{self.name}.svg"]
        with _style():
            self.figure.suptitle(plain(self.title), fontsize="small")
            for path in found:
                self.figure.savefig(
                    path, dpi=150, facecolor="white", metadata=_NO_METADATA if path.suffix == ".svg" else None
                )
        return found


_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def _style() -> Any:
    import matplotlib
    from cycler import cycler

    matplotlib.use("agg")
    return matplotlib.rc_context({
        "svg.fonttype": "none", "svg.hashsalt": "report", "font.size": 9, "axes.spines.top": False,
        "axes.spines.right": False, "axes.prop_cycle": cycler(color=COLOURS), "axes.grid": True,
        "grid.alpha": 0.2, "legend.framealpha": 0.0, "figure.facecolor": "none", "axes.facecolor": "none",
    })  # fmt: skip


def charts(found: Collection) -> list[Chart]:
    """The first charts of the page, of each kind at most `MOST`."""
    data = chart_data(found, workloads(found.rows))
    with _style():
        return [
            *_against_layers(data["layers"], "throughput", "tokens", f"real tokens/s per {data['rank']}"),
            *_against_layers(data["layers"], "memory", "memory", f"GB per {data['rank']}"),
            *(_phases(group, number) for number, group in enumerate(data["phases"][:MOST], 1)),
            *_losses(data["losses"][:MOST]),
        ]


def _figure(height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(8, height), layout="constrained")


def _against_layers(groups: Sequence[Mapping[str, Any]], name: str, key: str, unit: str) -> list[Chart]:
    """A chart for each group of rows of equal settings, a line for each backend and split."""
    found = []
    for number, group in enumerate(groups[:MOST], 1):
        figure = _figure(4.5)
        axes = figure.subplots()
        for line, (mark, colour) in zip(group["lines"], itertools.product(MARKS, COLOURS), strict=False):
            points = [(point["layers"], point[key]) for point in line["points"] if point[key] is not None]
            axes.plot(
                *zip(*points, strict=True), marker=mark, label=plain(line["name"]), color=colour, linewidth=1.3,
                markersize=4,
            )  # fmt: skip
        axes.set(xlabel="layers", ylabel=unit, ylim=(0, None))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))
        found.append(Chart(f"{name}_by_layers" + f"_{number}" * (number > 1), group["name"], figure))
    return found


def _phases(group: Mapping[str, Any], number: int) -> Chart:
    """Forward, backward and optimizer of each row, stacked, the slowest at the bottom."""
    bars = group["bars"][::-1]
    figure = _figure(1.2 + 0.28 * len(bars))
    axes = figure.subplots()
    left = [0.0] * len(bars)
    for phase, colour in zip(PHASES, COLOURS, strict=False):
        widths = [bar[phase] for bar in bars]
        axes.barh(range(len(bars)), widths, left=left, label=phase, color=colour, height=0.7)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(bars)), [plain(bar["name"]) for bar in bars], fontsize="x-small")
    axes.set(xlabel="ms per step")
    axes.grid(False, axis="y")
    figure.legend(*axes.get_legend_handles_labels(), fontsize="small", loc="outside upper right", ncols=3)
    return Chart(f"phases_{number}", group["name"], figure)


def _losses(groups: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Curves over one another, and their distance from the first."""
    drawn: list[Chart] = []
    for group in groups:
        runs = [Run(one["name"], loss=Series("loss", dict(one["points"]))) for one in group["lines"]]
        pairs = [compare(runs[0], other, Limits()) for other in runs[1:]]
        if any(pair.alignment for pair in pairs):
            drawn.append(Chart(f"losses_{len(drawn) + 1}", group["name"], draw(pairs)))
    return drawn

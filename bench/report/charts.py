"""Charts of a report as files, drawn with matplotlib: PNG and SVG. The page draws its own in the browser."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.compare.pairs import DECISIVE, Limits, compare
from bench.compare.plot import draw, plain
from bench.compare.series import Run, Series
from bench.metrics.times import PHASES, STEP
from bench.report.rows import Collection, Row, rank_word
from bench.report.scaling import groups

COLOURS = ("#2a78b5", "#d9711a", "#2f9e44", "#c92a2a", "#8558b8", "#8d6e63", "#d6569f", "#868e96", "#a5a11a", "#1299a8")
MOST_LOSSES = 4
"""Charts of losses, of the set-ups that most rows share."""
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
    """Every chart that the results have the numbers for."""
    rank = rank_word(found.rows)
    with _style():
        return [
            *_against_layers(
                found.rows, "throughput", "Throughput", f"real tokens/s per {rank}", 1.0, lambda r: r.tokens
            ),
            *_against_layers(found.rows, "memory", f"Peak memory per {rank}", "GB", 1e-9, lambda r: r.memory),
            *_phases(found.rows),
            *_losses(found),
        ]


def _against_layers(rows: Sequence[Row], name: str, title: str, unit: str, scale: float, value: Any) -> list[Chart]:
    """A line per setting that was measured with two depths or more."""
    from matplotlib.figure import Figure

    lines = {}
    for group, members in groups(rows).items():
        points = [(row.layers, value(row) * scale) for row in members if value(row) is not None]
        if len({layers for layers, _ in points}) > 1:
            lines[group] = points
    if not lines:
        return []
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, (group, points) in enumerate(lines.items()):
        colour, mark = COLOURS[number % len(COLOURS)], MARKS[number // len(COLOURS) % len(MARKS)]
        axes.plot(
            *zip(*points, strict=True), marker=mark, label=plain(group), color=colour, linewidth=1.3, markersize=4
        )
    axes.set(xlabel="layers", ylabel=unit, ylim=(0, None))
    axes.set_xticks(sorted({layers for points in lines.values() for layers, _ in points}))
    axes.legend(fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return [Chart(f"{name}_by_layers", f"{title} against layers", figure)]


def _phases(rows: Sequence[Row]) -> list[Chart]:
    """One chart per depth: forward, backward and optimizer of each row, stacked."""
    from matplotlib.figure import Figure

    by_depth: dict[int | None, list[tuple[str, Row]]] = defaultdict(list)
    names = {id(row): name for name, members in groups(rows).items() for row in members}
    for row in rows:
        if row.seconds:
            by_depth[row.layers].append((names.get(id(row), row.label), row))
    found = []
    for depth, members in sorted(by_depth.items(), key=lambda item: item[0] or 0):
        members.sort(key=lambda item: -item[1].seconds[STEP])
        figure = Figure(figsize=(8, 1.2 + 0.28 * len(members)), layout="constrained")
        axes = figure.subplots()
        left = [0.0] * len(members)
        for phase, colour in zip(PHASES, COLOURS, strict=False):
            widths = [row.seconds.get(phase, 0.0) * 1e3 for _, row in members]
            axes.barh(range(len(members)), widths, left=left, label=phase, color=colour, height=0.7)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        axes.set_yticks(range(len(members)), [plain(name) for name, _ in members], fontsize="x-small")
        axes.set(xlabel="ms per step")
        axes.grid(False, axis="y")
        figure.legend(*axes.get_legend_handles_labels(), fontsize="small", loc="outside upper right", ncols=3)
        depth_text = "all" if depth is None else str(depth)
        found.append(Chart(f"phases_{depth_text}_layers", f"Time per step, {depth_text} layers", figure))
    return found


def _losses(found: Collection) -> list[Chart]:
    """Curves of one training set-up over one another, and their distance from the first."""
    sets: dict[Any, list[Run]] = defaultdict(list)
    names = {id(row): name for name, members in groups(found.rows).items() for row in members}
    for row in found.rows:
        if len(row.losses) > 1:
            key = (*(getattr(row.configuration, field) for field in DECISIVE), row.configuration.dp)
            sets[key].append(Run(names.get(id(row), row.label), loss=Series.of("loss", row.losses)))
    largest = sorted(sets.values(), key=len, reverse=True)[:MOST_LOSSES]
    sources = [
        (f"Losses of training runs in {'/'.join(source.parts[-2:])}", runs) for source, runs in found.runs.items()
    ]
    drawn: list[Chart] = []
    for title, runs in (*sources, *(("Losses of one training set-up", runs) for runs in largest)):
        long = [run for run in runs if run.loss and len(run.loss.values) > 1]
        pairs = [compare(long[0], other, Limits()) for other in long[1:]]
        if any(pair.alignment for pair in pairs):
            drawn.append(Chart(f"losses_{len(drawn) + 1}", f"{title}, {len(long)} runs", draw(pairs)))
    return drawn

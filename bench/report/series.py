"""The numbers behind the page's charts, as plain values: lines against layers, phases, losses."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from bench.configuration import deciding
from bench.grouping import grouped
from bench.report.glance import Workload, group_names, ranks
from bench.report.predicted import predicted
from bench.report.rows import IN_VARIANT, Collection, Row, rank_word
from bench.report.scaling import line
from bench.results.identity import processor
from bench.results.measured import PHASES, STEP
from bench.settings import SPLIT, WAY, WORK
from bench.sweep.labels import words

OF_A_LINE = deciding(SPLIT)
"""Settings in which the lines of one chart may differ: backends and how they split a model."""
EQUAL = tuple(name for name in deciding(WAY, WORK) if name != "num_layers")
"""Settings that are the same in all lines of a chart: sequence length and number of GPUs among them."""
TOLD = ("model", "num_gpus", "seq_len", "attn", "compile", "packing")
FAR_FROM_OTHERS, FAR_FROM_FIT = 0.1, 0.2
"""Relative distance from which a point is an outlier: from the median of three or more of its depth; of its time
from the line through all other depths, of which there are three or more, and which lie within the first distance of
it."""
MOST_CHARTS = 40


def chart_data(found: Collection, workloads: Sequence[Workload]) -> dict[str, Any]:
    """`layers`, `phases`, `losses`: what each chart can show, best filled first. `row`: a row's number on the page;
    `rank`: what ranks are."""
    return {
        "rank": rank_word(found.rows),
        "layers": _against_layers(found.rows)[:MOST_CHARTS],
        "phases": [_phases(work) for work in workloads if any(row.seconds for row in work.rows)][:MOST_CHARTS],
        "losses": [*_curves(found), *(_losses(work) for work in workloads if work.compared > 1)][:MOST_CHARTS],
    }


def _against_layers(rows: Sequence[Row]) -> list[dict[str, Any]]:
    groups = grouped(
        (row for row in rows if row.tokens and row.layers is not None),
        lambda row: (row.configuration.values(EQUAL), processor(row.environment)),
    )
    several = [members for members in groups.values() if len(members) > 1]
    others = [name for name in EQUAL if name not in TOLD]
    names = group_names([members[0] for members in several], lambda row: [ranks(row), row.setting], others)
    charts = [{"name": name, "lines": _lines(members)} for name, members in zip(names, several, strict=True)]
    return sorted(charts, key=lambda chart: -sum(len(one["points"]) for one in chart["lines"]))


def _lines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    found = grouped(rows, lambda row: row.configuration.values(OF_A_LINE))
    firsts = [members[0] for members in found.values()]
    others = [name for name in OF_A_LINE if name not in IN_VARIANT]
    more = words([row.configuration for row in firsts], others, usual=False)
    lines = [
        {
            "name": " ".join(filter(None, (first.variant, text))),
            "points": [
                _point(row, members) for row in sorted(members, key=lambda row: (row.layers or 0, row.label))
            ],
        }
        for first, text, members in zip(firsts, more, found.values(), strict=True)
    ]  # fmt: skip
    return sorted(lines, key=lambda one: -one["points"][-1]["tokens"])  # names stand as the lines end


def _point(row: Row, members: Sequence[Row]) -> dict[str, Any]:
    expected = predicted(row)
    return {
        "layers": row.layers, "tokens": row.tokens, "memory": _gigabytes(row.memory), "predicted": _gigabytes(expected),
        "outlier": outlier(row, members), "row": row.number, "processes": row.processes,
    }  # fmt: skip


def _gigabytes(value: float | None) -> float | None:
    return None if value is None else value / 1e9


def outlier(row: Row, line_: Sequence[Row]) -> str:
    """Why the speed of a row is one among those of its line, "" where it is none."""
    same = [other.tokens for other in line_ if other.layers == row.layers and other.tokens]
    if len(same) > 2 and row.tokens:
        apart = row.tokens / statistics.median(same) - 1.0
        if abs(apart) > FAR_FROM_OTHERS:
            return f"outlier: {apart:+.0%} off the median of {len(same)} rows of this depth"
    depths: dict[int, list[float]] = defaultdict(list)
    for other in line_:
        if other.layers != row.layers and other.layers and other.tokens:
            depths[other.layers].append(1.0 / other.tokens)
    if len(depths) < 3 or not row.layers or not row.tokens:
        return ""
    times = {depth: statistics.median(values) for depth, values in depths.items()}
    head, per_layer = line(times)
    if any(abs(head + per_layer * depth - seconds) > FAR_FROM_OTHERS * seconds for depth, seconds in times.items()):
        return ""  # the others make no line, for one of them may be the odd one
    fitted = head + per_layer * row.layers
    apart = (1.0 / row.tokens) / fitted - 1.0 if fitted > 0 else 0.0
    return f"outlier: {apart:+.0%} time against the line through the other depths" if abs(apart) > FAR_FROM_FIT else ""


def _phases(work: Workload) -> dict[str, Any]:
    timed = sorted((row for row in work.rows if row.seconds), key=lambda row: row.seconds[STEP])
    return {
        "name": work.name,
        "bars": [
            {
                "name": work.way(row), "row": row.number,
                **{phase: row.seconds.get(phase, 0.0) * 1e3 for phase in PHASES},
            }
            for row in timed
        ],
    }  # fmt: skip


def _losses(work: Workload) -> dict[str, Any]:
    trained = [row for row in work.rows if len(row.losses) > 1]
    return {
        "name": work.name,
        "lines": [{"name": work.way(row), "points": list(enumerate(row.losses))} for row in trained],
    }


def _curves(found: Collection) -> list[dict[str, Any]]:
    """Training logs, those of one folder in one chart."""
    return [
        {
            "name": f"training runs in {'/'.join(source.parts[-2:])}",
            "lines": [
                {"name": run.name, "points": sorted(run.loss.values.items())} for run in runs if run.loss
            ],
        }
        for source, runs in found.runs.items()
    ]  # fmt: skip

"""Cost against the number of layers: a fixed part (embedding, head, loss) and a part per layer.

A model cut to a few layers is quick to measure; the fit says what the whole one will take, and is checked against
the deepest rows that were measured.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.configuration import IN_LABEL, SETTINGS
from bench.grouping import grouped
from bench.report.rows import Row
from bench.sweep.labels import words

TARGET = 32
"""Layers of the whole model of the 8B shape."""
NOISE = 0.05
"""Share of the cost of the deepest rows by which the rest may come out below nothing."""


@dataclass(frozen=True)
class Quantity:
    """What is fitted: `value` is linear in the layers, `unit` what `scale` times it is shown in."""

    name: str
    unit: str
    scale: float
    value: Callable[[Row], float | None]


QUANTITIES = (
    # Per real token and GPU: batches of rows may differ in their tokens.
    Quantity("step", "ms per 1000 tokens", 1e6, lambda row: 1.0 / row.tokens if row.tokens else None),
    Quantity("peak memory", "GB", 1e-9, lambda row: row.memory),
)


@dataclass(frozen=True)
class Check:
    """A depth that was left out of a fit on all shallower ones: what the fit says, what was measured."""

    fitted: tuple[int, ...]
    layers: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True)
class Fit:
    """`head + per_layer × layers` for one setting, over the means of each depth; `checks` hold its errors."""

    name: str
    quantity: Quantity
    layers: tuple[int, ...]
    head: float
    per_layer: float
    checks: tuple[Check, ...]

    @property
    def sensible(self) -> bool:
        """Whether a layer costs something and the rest does, too: overheads and noise can hide either."""
        return self.per_layer > 0 and self.head > -NOISE * self.at(max(self.layers))

    def at(self, layers: int) -> float:
        return self.head + self.per_layer * layers


def groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Measured rows that differ in nothing but their layers, under names that tell the groups apart."""
    found = grouped(
        (row for row in rows if row.layers is not None and row.seconds),
        lambda row: replace(row.configuration, num_layers=None, steps=0, warmup=0),
    )
    told = [name for name in SETTINGS if name not in IN_LABEL or name == "num_gpus"]
    names = [
        ", ".join(filter(None, (f"{members[0].variant} {members[0].setting}", more)))
        for members, more in zip(found.values(), words(list(found), told, usual=False), strict=True)
    ]
    ordered = (sorted(members, key=lambda row: row.layers or 0) for members in found.values())
    return dict(zip(names, ordered, strict=True))


def fits(rows: Sequence[Row]) -> list[Fit]:
    """A fit per setting and quantity that was measured with two depths or more."""
    found = []
    for name, members in groups(rows).items():
        for quantity in QUANTITIES:
            points = _points(members, quantity)
            if len(points) < 2:
                continue
            head, per_layer = line(points)
            found.append(Fit(name, quantity, tuple(points), head, per_layer, _checks(points)))
    return found


def _points(members: Sequence[Row], quantity: Quantity) -> dict[int, float]:
    """The mean per depth, in order."""
    values: dict[int, list[float]] = defaultdict(list)
    for row in members:
        value = quantity.value(row)
        if value is not None and row.layers is not None:
            values[row.layers].append(value)
    return {layers: statistics.fmean(values[layers]) for layers in sorted(values)}


def line(points: dict[int, float]) -> tuple[float, float]:
    """Least squares: (value at no layers, value per layer). Needs two depths."""
    slope, intercept = statistics.linear_regression(list(points), list(points.values()))
    return intercept, slope


def _checks(points: dict[int, float]) -> tuple[Check, ...]:
    """Each depth from the third on, predicted from the shallower ones alone."""
    depths = list(points)
    found = []
    for place in range(2, len(depths)):
        known = {depth: points[depth] for depth in depths[:place]}
        head, per_layer = line(known)
        depth = depths[place]
        found.append(Check(tuple(known), depth, head + per_layer * depth, points[depth]))
    return tuple(found)

"""What is told of a measured row: one module per subject, found by itself.

A module here has `METRICS`, and may have `summarise(configuration, runs)`, which makes of what the processes wrote what
`result.json` keeps under `summary`. Tables, pages, files of values and continuous tracking show every metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from bench import registry
from bench.configuration import Configuration

if TYPE_CHECKING:
    from bench.report.rows import Row

Value = float | int | str | None


@dataclass(frozen=True)
class Metric:
    """`value` is a plain number in base units (or a text), for CSV, JSON and sorting; `show` makes it readable,
    `beside` adds to that what only people read. `place` orders columns; where there is no room the highest `rank` goes
    first.

    `tracked` is its name in Bencher's format, for those that are tracked, in units of 1 / `scale`; `means` are then its
    values of each process. A result in which one that is `finite` is not, or is no number, is broken.
    """

    key: str
    title: str
    value: Callable[[Row], Value]
    show: Callable[[Any], str] = str
    place: float = 100.0
    rank: float = 100.0
    beside: Callable[[Row], str] | None = None
    tracked: str = ""
    scale: float = 1.0
    means: Callable[[Row], Sequence[float]] | None = None
    finite: bool = True

    def text(self, row: Row) -> str:
        value = self.value(row)
        if value is None:
            return "-"
        return self.show(value) + (self.beside(row) if self.beside is not None else "")


COUNT, SHARE = "{:,.0f}".format, "{:.0%}".format
"""How a metric is shown."""


def summed(name: str) -> Callable[[Row], Any]:
    """The value that a row's summary has under a name, None without."""
    return lambda row: row.summary.get(name)


@cache
def _modules() -> tuple[Any, ...]:
    return tuple(registry.modules(__name__, __path__).values())


def every() -> list[Metric]:
    """All metrics in the order of their columns."""
    return sorted((metric for module in _modules() for metric in module.METRICS), key=lambda metric: metric.place)


def summarise(configuration: Configuration, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The summary of what the processes of a row wrote."""
    found: dict[str, Any] = {}
    for module in _modules():
        if hasattr(module, "summarise"):
            found |= module.summarise(configuration, runs)
    return found

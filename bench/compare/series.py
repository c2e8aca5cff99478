"""What is known of one run: losses and gradient norms by step, means by process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Series:
    """One quantity by step. `repeated` holds steps that were given twice with different values (the last one
    counts), `digits` the fewest significant digits that a value was printed with, None where nothing was rounded."""

    name: str
    values: dict[int, float] = field(default_factory=dict)
    repeated: list[int] = field(default_factory=list)
    digits: int | None = None

    @classmethod
    def of(cls, name: str, values: Iterable[float]) -> Series:
        """Values of steps 0, 1, 2, …"""
        return cls(name, dict(enumerate(values)))

    def put(self, step: int, value: float) -> None:
        """Set the value of one step, remembering where it contradicts an earlier one. NaN agrees with NaN."""
        old = self.values.get(step)
        if old is not None and old != value and not (old != old and value != value) and step not in self.repeated:
            self.repeated.append(step)
        self.values[step] = value

    def rebased(self) -> Series:
        """The same with steps counted from the first one."""
        first = min(self.values, default=0)
        moved = {step - first: value for step, value in self.values.items()}
        return Series(self.name, moved, [step - first for step in self.repeated], self.digits)


@dataclass
class Metric:
    """A measured quantity: one mean per process, in `unit` (second or byte); lower is better."""

    unit: str
    means: list[float]


@dataclass
class Run:
    """One training run or measurement. `adaptive`: its number of steps was not fixed before (a warm-up that lasts
    until it is steady), so that another length means nothing."""

    name: str
    loss: Series | None = None
    grad_norm: Series | None = None
    metrics: dict[str, Metric] = field(default_factory=dict)
    identity: dict[str, Any] = field(default_factory=dict)
    status: str = "ok"
    message: str = ""
    adaptive: bool = False
    between_processes: float | None = None
    """Largest relative difference of the losses of its own processes: what the run does not reproduce itself."""

    @property
    def empty(self) -> bool:
        return self.loss is None and self.grad_norm is None and not self.metrics

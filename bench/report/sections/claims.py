"""What the scripts that this project replaces said of the 8B shape with fewer layers, next to what the rows show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.report.rows import Collection, Row
from bench.report.sections import Table

PLACE, TITLE, KEY = 60, "Old statements about this shape", "statements"

MODEL = "llama-3.1-8b"
CLAIMS = (
    ("parameters", 2, "1.5 B", 1.45, 1.55), ("parameters", 32, "8 B", 7.9, 8.1),
    ("memory", 2, "about 8 GB", 7.0, 9.0), ("memory", 32, "45 to 75 GB", 45.0, 75.0),
)  # fmt: skip
"""A quantity, layers, and a number once stated without its conditions, in words and as bounds in 10⁹."""


@dataclass(frozen=True)
class Answer:
    """A claim, the range over the rows in words, and how many rows lie within the claim."""

    quantity: str
    layers: int
    said: str
    seen: str
    within: int
    rows: int


def content(found: Collection) -> list[Answer]:
    """One answer per claim; a claim that no row speaks of is left out. Peaks are those of whole training steps."""
    answers = []
    for quantity, layers, said, low, high in CLAIMS:
        values = sorted(v for row in found.rows if (v := _value(row, quantity, layers)) is not None)
        if values:
            unit, digits = ("B", 2) if quantity == "parameters" else ("GB", 1)
            ends = dict.fromkeys(f"{value:.{digits}f}" for value in (values[0], values[-1]))
            within = sum(low <= value <= high for value in values)
            answers.append(Answer(quantity, layers, said, f"{' to '.join(ends)} {unit}", within, len(values)))
    return answers


def _value(row: Row, quantity: str, layers: int) -> float | None:
    c = row.configuration
    value = row.parameters if quantity == "parameters" else row.memory
    return value / 1e9 if value and c.model == MODEL and c.num_layers == layers and c.tp == 1 else None


def table(found: Sequence[Answer]) -> Table:
    return Table(
        ("quantity", "layers", "said", "seen", "rows that agree"),
        [[a.quantity, str(a.layers), a.said, a.seen, f"{a.within} of {a.rows}"] for a in found],
        "The scripts that this harness replaces stated these without their conditions. Seen: all rows without tensor "
        "parallelism; memory is the peak of a whole training step with AdamW.",
    )


def data(found: Sequence[Answer]) -> list[dict[str, Any]]:
    return [asdict(answer) for answer in found]

"""What the scripts that this project replaces said of the 8B shape with fewer layers, next to what the rows show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.report.rows import Collection, Row
from bench.report.sections import Table

PLACE, TITLE, KEY = 60, "Old statements about this shape", "statements"

MODEL = "llama-3.1-8b"


@dataclass(frozen=True)
class Claim:
    """A number once stated without its conditions: bytes of a GPU, or parameters."""

    quantity: str
    layers: int
    said: str
    low: float
    high: float


CLAIMS = (
    Claim("parameters", 2, "1.5 B", 1.45e9, 1.55e9),
    Claim("parameters", 32, "8 B", 7.9e9, 8.1e9),
    Claim("memory", 2, "about 8 GB", 7e9, 9e9),
    Claim("memory", 32, "45 to 75 GB", 45e9, 75e9),
)


@dataclass(frozen=True)
class Answer:
    """The range over the rows, in words, and how many rows lie within the claim."""

    claim: Claim
    seen: str
    within: int
    rows: int


def content(found: Collection) -> list[Answer]:
    return answers(found.rows)


def table(found: Sequence[Answer]) -> Table:
    return Table(
        ("quantity", "layers", "said", "seen", "rows that agree"),
        [[a.claim.quantity, str(a.claim.layers), a.claim.said, a.seen, f"{a.within} of {a.rows}"] for a in found],
        "The scripts that this harness replaces stated these without their conditions. Seen: all rows without tensor "
        "parallelism; memory is the peak of a whole training step with AdamW.",
    )


def data(found: Sequence[Answer]) -> list[dict[str, Any]]:
    return [asdict(answer) for answer in found]


def answers(rows: Sequence[Row]) -> list[Answer]:
    """One answer per claim; a claim that no row speaks of is left out. Peaks are those of whole training steps."""
    found = []
    for claim in CLAIMS:
        values = [value for row in rows if (value := _value(row, claim)) is not None]
        if values:
            within = sum(claim.low <= value <= claim.high for value in values)
            found.append(Answer(claim, _range(values, claim.quantity), within, len(values)))
    return found


def _value(row: Row, claim: Claim) -> float | None:
    c = row.configuration
    if c.model != MODEL or c.num_layers != claim.layers or c.tp > 1:
        return None
    return float(row.parameters) if claim.quantity == "parameters" and row.parameters else (
        row.memory if claim.quantity == "memory" else None
    )  # fmt: skip


def _range(values: Sequence[float], quantity: str) -> str:
    unit = "B" if quantity == "parameters" else "GB"
    digits = 2 if quantity == "parameters" else 1
    low, high = (f"{value / 1e9:.{digits}f}" for value in (min(values), max(values)))
    return f"{low} {unit}" if low == high else f"{low} to {high} {unit}"

"""Compatibility matrices in a report: what `bench matrix` wrote of each cell, with the log behind it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.matrix.classify import WORKS

LOG_TAIL = 6_000
"""Characters of a log that a report shows."""


HEADINGS = ("cell", "class", "tokens/s/GPU", "of default", "loss difference", "graph breaks", "detail")


@dataclass(frozen=True)
class MatrixCell:
    """One cell. `speed` is in real tokens per second and GPU, `loss_difference` relative to eager fp32; None where
    nothing was measured. `log` is the end of its log, empty where none lies beside the matrix."""

    name: str
    kind: str
    detail: str
    label: str
    speed: float | None
    relative_speed: float | None
    loss_difference: float | None
    breaks: int | None
    log: str

    @property
    def colour(self) -> str:
        """The page's class for it: it works, works with a reservation, or fails."""
        if self.kind == "ok":
            return "ok"
        return "idle" if self.kind in (*WORKS, "unsupported", "interrupted") else "failed"


@dataclass(frozen=True)
class Matrix:
    """One `matrix.json`: what was crossed, on which software, by which command."""

    source: Path
    kind: str
    command: str
    stack: dict[str, str]
    cells: tuple[MatrixCell, ...]

    def table(self) -> list[list[str]]:
        """Rows of text under `HEADINGS`."""
        return [
            [
                c.name, c.kind, "-" if c.speed is None else f"{c.speed:,.0f}",
                "-" if c.relative_speed is None else f"{c.relative_speed:.2f}",
                "-" if c.loss_difference is None else f"{c.loss_difference:.1e}",
                "-" if c.breaks is None else str(c.breaks), c.detail[:90],
            ]
            for c in self.cells
        ]  # fmt: skip

    @property
    def counts(self) -> dict[str, int]:
        """Cells of each class, in the order of first appearance."""
        kinds = [cell.kind for cell in self.cells]
        return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def is_matrix(value: Any) -> bool:
    """Whether a JSON document is what `bench matrix` writes."""
    return isinstance(value, dict) and isinstance(value.get("rows"), list) and "kind" in value and "stack" in value


def to_matrix(value: dict[str, Any], source: Path) -> Matrix:
    """A matrix document; raises KeyError and its like for one that is incomplete."""
    cells = tuple(_cell(one, source.parent) for one in value["rows"])
    stack = {str(name): str(version) for name, version in value["stack"].items()}
    return Matrix(source, str(value["kind"]), str(value.get("command", "")), stack, cells)


def _cell(one: dict[str, Any], folder: Path) -> MatrixCell:
    graphs = one.get("graphs") or {}
    breaks = graphs.get("graph_breaks")
    return MatrixCell(
        str(one["cell"]), str(one["class"]), str(one.get("detail", "")), str(one["label"]),
        _number(one.get("real_tokens_per_second")), _number(one.get("relative_speed")),
        _number(one.get("loss_difference")), None if breaks is None else int(breaks), _log(one.get("log"), folder),
    )  # fmt: skip


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _log(name: Any, folder: Path) -> str:
    """The end of the log that a cell names, if it lies under the matrix's own folder."""
    file = folder / str(name or "")
    if not name or not file.resolve().is_relative_to(folder.resolve()):
        return ""
    return tail(file)


def tail(file: Path) -> str:
    """The last `LOG_TAIL` bytes of a file as text, empty where it cannot be read."""
    try:
        with file.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(stream.tell() - LOG_TAIL, 0))
            return stream.read().decode("utf-8", errors="replace")
    except OSError:
        return ""

"""Compatibility matrices in a report: what `bench matrix` wrote of each cell, with the log behind it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.matrix import READ, show
from bench.matrix.classify import WORKS

LOG_TAIL = 6_000
"""Characters of a log that a report shows."""


HEADINGS = show.HEADERS[:-1]


@dataclass(frozen=True)
class MatrixCell:
    """One cell. `texts` is its row under `HEADINGS`; `speed` is in real tokens per second and GPU, `loss_difference`
    relative to eager fp32; None where nothing was measured. `log` is the end of its log, empty where none lies beside
    the matrix."""

    name: str
    kind: str
    detail: str
    label: str
    texts: list[str]
    speed: float | None
    relative_speed: float | None
    doubt: str
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
    doubts: list[str]
    """What the speeds do not prove, in lines."""

    def table(self) -> list[list[str]]:
        """Rows of text under `HEADINGS`; details are cut."""
        return [[text[:90] for text in cell.texts] for cell in self.cells]

    @property
    def counts(self) -> dict[str, int]:
        """Cells of each class, in the order of first appearance."""
        kinds = [cell.kind for cell in self.cells]
        return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}


def is_matrix(value: Any) -> bool:
    """Whether a JSON document is what `bench matrix` writes."""
    return isinstance(value, dict) and isinstance(value.get("rows"), list) and value.get("schema") in READ


def to_matrix(value: dict[str, Any], source: Path) -> Matrix:
    """A matrix document; raises KeyError and its like for one that is incomplete."""
    cells = tuple(_cell(one, source.parent) for one in value["rows"])
    stack = {str(name): str(version) for name, version in value["stack"].items()}
    return Matrix(source, str(value["kind"]), str(value.get("command", "")), stack, cells, show.doubts(value["rows"]))


def _cell(one: dict[str, Any], folder: Path) -> MatrixCell:
    graphs = one.get("graphs") or {}
    breaks = graphs.get("graph_breaks")
    return MatrixCell(
        str(one["cell"]), str(one["class"]), str(one.get("detail", "")), str(one["label"]), show.texts(one)[:-1],
        _number(one.get("tokens_per_second")), _number(one.get("relative_speed")), str(one.get("doubt", "")),
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

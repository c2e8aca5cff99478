"""Compatibility matrices in a report: what `bench matrix` wrote of each cell, with the log behind it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.matrix import READ, show
from bench.matrix.classify import WORKS

LOG_TAIL = 6_000
"""Characters of a log that a report shows."""


HEADINGS = show.HEADERS[:-1]


TOLD = {
    "name": "cell", "kind": "class", "detail": "detail", "label": "label", "speed": "tokens_per_second",
    "relative_speed": "relative_speed", "doubt": "doubt", "loss_difference": "loss_difference",
}  # fmt: skip
"""What a report's JSON says of a cell, by what the matrix calls it; `speed` is in real tokens per second and GPU."""


@dataclass(frozen=True)
class Matrix:
    """One `matrix.json`: what was crossed, on which software, by which command."""

    source: Path
    kind: str
    command: str
    stack: dict[str, str]
    cells: list[dict[str, Any]]
    """What `TOLD` names, None where nothing was measured, and `breaks`, those of the graph; `texts` is the cell's row
    under `HEADINGS`, `colour` the page's class for it, and `log` the end of its log, empty where none lies beside the
    matrix."""
    doubts: list[str]
    """What the speeds do not prove, in lines."""

    def table(self) -> list[list[str]]:
        """Rows of text under `HEADINGS`; details are cut."""
        return [[text[:90] for text in cell["texts"]] for cell in self.cells]

    @property
    def counts(self) -> Counter[str]:
        """Cells of each class, in the order of first appearance."""
        return Counter(cell["kind"] for cell in self.cells)


def is_matrix(value: Any) -> bool:
    """Whether a JSON document is what `bench matrix` writes."""
    return isinstance(value, dict) and isinstance(value.get("rows"), list) and value.get("schema") in READ


def to_matrix(value: dict[str, Any], source: Path) -> Matrix:
    """A matrix document; raises KeyError and its like for one that is incomplete."""
    cells = [_cell(one, source.parent) for one in value["rows"]]
    stack = {str(name): str(version) for name, version in value["stack"].items()}
    return Matrix(source, str(value["kind"]), str(value.get("command", "")), stack, cells, show.doubts(value["rows"]))


def _cell(one: dict[str, Any], folder: Path) -> dict[str, Any]:
    kind = str(one["class"])
    reserved = kind in (*WORKS, "unsupported", "interrupted")  # it works with a reservation, or says nothing
    return {name: one.get(key) for name, key in TOLD.items()} | {
        "breaks": (one.get("graphs") or {}).get("graph_breaks"), "texts": show.texts(one)[:-1],
        "colour": "ok" if kind == "ok" else "idle" if reserved else "failed", "log": _log(one.get("log"), folder),
    }  # fmt: skip


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

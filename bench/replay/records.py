"""The results of a replay: one JSON object a line and input, readable while it runs and without unpickling.

input, index             name of the file, and its place among the inputs
step, rank               number of the optimizer step from 1, data-parallel rank
rows, length             shape of the input as it was recorded
real_tokens, positions   tokens, and positions that the model computes: padding included, packed ones without
loss_tokens              tokens in the loss
loss                     mean over the loss tokens of this input alone; null where it has none or is not finite
forward, backward, optimizer, seconds
                         seconds, of the slowest rank that had the input; absent phases are null
peak_memory              bytes, of the fullest of those ranks
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.results.measured import PHASES
from bench.terminal.text import grid

if TYPE_CHECKING:
    import torch

FILE = "inputs.jsonl"
Record = dict[str, Any]
SUMS = ("loss_sum", "loss_tokens")
MEASURED = (*PHASES, "seconds", "peak_memory")
SIZES = ("rows", "length", "real_tokens", "positions")
MAXIMA = (*MEASURED, *SIZES)
COLUMNS = ("dp_rank", "index", *SUMS, *MAXIMA)
"""What each rank tells the others of a step, as numbers. An index of -1: this rank had no input of its own."""


def to_row(values: dict[str, float]) -> torch.Tensor:
    """(1, columns) fp64; phases that did not run are NaN."""
    import torch

    return torch.tensor([[values.get(name, math.nan) for name in COLUMNS]], dtype=torch.float64)


def merge(rows: torch.Tensor, step: int, names: Sequence[str]) -> list[Record]:
    """The records of one step from the rows of all ranks, in the order of the data-parallel ranks.

    Ranks of one ring hold parts of the same input. Tensor-parallel ranks hold copies: each gives its share of the
    sums, so that all of them add up to the input's.
    """
    by_rank: dict[int, list[dict[str, float]]] = {}
    for row in rows.tolist():
        values = dict(zip(COLUMNS, row, strict=True))
        if values["index"] >= 0:
            by_rank.setdefault(int(values["dp_rank"]), []).append(values)
    return [_record(by_rank[rank], step, rank, names) for rank in sorted(by_rank)]


def _record(group: list[dict[str, float]], step: int, rank: int, names: Sequence[str]) -> Record:
    tokens = sum(values["loss_tokens"] for values in group)
    loss = sum(values["loss_sum"] for values in group) / tokens if tokens else math.nan
    index = int(group[0]["index"])
    most = {name: max(values[name] for values in group) for name in MAXIMA}
    return {
        "step": step, "rank": rank, "index": index, "input": names[index],
        **{name: int(most[name]) for name in SIZES}, "loss_tokens": round(tokens),
        "loss": _finite(loss), **{name: _finite(most[name]) for name in (*PHASES, "seconds")},
        "peak_memory": int(most["peak_memory"]),
    }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def append(path: Path, records: Iterable[Record]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


class Tail:
    """Reads what was added to a file of records since it was last asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._at = 0

    def new(self) -> list[Record]:
        """Whole lines only: the writer may be in the middle of one."""
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


def line(record: Record, total: int, ranks: int) -> str:
    """One record for people, of `total` inputs on so many data-parallel ranks."""
    times = ", ".join(f"{name} {record[name] * 1e3:.1f} ms" for name in PHASES if record[name] is not None)
    loss = "no loss" if record["loss"] is None else f"loss {record['loss']:.4f}"
    shape = f"{record['rows']}x{record['length']}"
    tokens = f"{record['real_tokens']:,} of {record['positions']:,} tokens"
    who = f" rank {record['rank']}" if ranks > 1 else ""
    return (
        f"{record['index'] + 1}/{total}{who} {record['input']}: {shape}, {tokens}, {times}, {loss}, "
        f"{record['peak_memory'] / 1e9:.2f} GB"
    )


def summary(records: Sequence[Record]) -> str:
    """Quantiles over all inputs, as a table, and a line on what is left out of them: the first step, which pays for
    compilation and caches, where there are others; and what an input has no value of."""
    later = [record for record in records if record["step"] > 1] or list(records)
    rows, lacking = [], []
    for name, unit, scale in (*((p, "ms", 1e3) for p in PHASES), ("loss", "", 1.0), ("peak_memory", "GB", 1e-9)):
        values = sorted(record[name] * scale for record in later if record[name] is not None)
        if values:
            cuts = [values[0], statistics.median(values), values[math.ceil(0.95 * len(values)) - 1], values[-1]]
            rows.append([f"{name.replace('_', ' ')} {unit}".strip(), *(f"{value:.4g}" for value in cuts)])
            if len(values) < len(later):
                lacking.append(f"{len(later) - len(values)} without {name.replace('_', ' ')}")
    return "\n".join([grid(rows, ["", "least", "median", "95%", "most"]), *_left_out(records, later, lacking)])


def _left_out(records: Sequence[Record], later: Sequence[Record], lacking: Sequence[str]) -> list[str]:
    """The line below the table, where something is not in it."""
    first = len(records) - len(later)
    words = [f"the first step ({first} input{'s' * (first > 1)}), which pays for compilation and caches"] * bool(first)
    return [f"of {len(records)} inputs left out: {'; '.join([*words, *lacking])}"] if words or lacking else []

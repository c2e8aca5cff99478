"""The log of a training run: one JSON object a line and step, readable while the run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.process.files import json_lines

Record = dict[str, Any]


def read_log(path: Path) -> list[Record]:
    """The steps in a log; lines that are no step, a half-written last one among them, are left out."""
    if not path.is_file():
        return []
    return [record for record in json_lines(path) if "step" in record and "gpt_loss" in record]


def write_log(path: Path, records: Iterable[Record]) -> None:
    """Write a whole log at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


class TrainingLog:
    """Steps of a run, kept in memory on every rank and written by one: to its result directory, which a resumed run
    reads, and to the place where people look."""

    def __init__(self, own: Path, public: Path, writes: bool) -> None:
        self.own, self.public, self.writes = own, public, writes
        self.records: list[Record] = []

    def open(self, done: int) -> None:
        """Keep the first `done` steps of what is there, and nothing after them."""
        self.records = [record for record in read_log(self.own) if record["step"] <= done]
        if self.writes:
            write_log(self.own, self.records)
            write_log(self.public, self.records)

    def add(self, record: Record) -> None:
        self.records.append(record)
        if self.writes:
            for path in (self.own, self.public):
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")

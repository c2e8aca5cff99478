"""JSON lines, and a JSON file of one list."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.problems import InputError

SUFFIXES = (".jsonl", ".json")


def rows(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as file:
        if path.suffix == ".json" and file.read(1) == "[":
            file.seek(0)
            yield from _checked(json.load(file), path)
            return
        file.seek(0)
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise InputError(f"{path}:{number}: not JSON: {error}") from None
                yield from _checked([row], path)


def _checked(rows: Iterable[Any], path: Path) -> Iterator[Mapping[str, Any]]:
    for row in rows:
        if not isinstance(row, dict):
            raise InputError(f"{path}: holds a {type(row).__name__}, expected an object with a prompt and an answer")
        yield row

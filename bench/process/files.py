"""Files that are there whole or not at all, whoever reads them meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; what is written there takes the place of `path` at the end."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    yield part
    part.replace(path)


def write(path: Path, text: str) -> None:
    with whole(path) as part:
        part.write_text(text, encoding="utf-8")


def read_json(path: Path) -> Any:
    """What a file of JSON holds; None where it cannot be read, or not as JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def json_lines(path: Path, holding: tuple[str, ...] = ("",)) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one a line, on lines that hold one of these texts; others are passed over."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not any(text in line for text in holding):
                continue
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                yield found

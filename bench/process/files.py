"""Files that are there whole or not at all, whoever reads them meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; what is written there takes the place of `path` at the end."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    yield part
    part.replace(path)


def write(path: Path, text: str) -> None:
    with whole(path) as part:
        part.write_text(text, encoding="utf-8")

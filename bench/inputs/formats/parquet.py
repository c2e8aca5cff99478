"""Parquet, a group of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SUFFIXES = (".parquet",)


def rows(path: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet

    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=1024):
        yield from batch.to_pylist()

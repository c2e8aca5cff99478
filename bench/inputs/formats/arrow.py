"""Arrow's streams and files, as Hugging Face keeps data sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SUFFIXES = (".arrow",)


def rows(path: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow

    with pyarrow.memory_map(str(path)) as source:
        try:
            reader = pyarrow.ipc.open_stream(source)
        except pyarrow.ArrowInvalid:
            file = pyarrow.ipc.open_file(source)
            reader = (file.get_batch(index) for index in range(file.num_record_batches))
        for batch in reader:
            yield from batch.to_pylist()

"""Recorded batches, converted once per sweep: of its rows only the first unpickles anything."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.inputs import CONVERTED
from bench.inputs.batch import Batch
from bench.inputs.captured import read_batches, write_batch
from bench.inputs.files import list_inputs


def read(path: Path, digest: str | None, limit: int | None = None) -> list[Batch]:
    """The batches under `path`, at most `limit`; each names the file that was recorded, whatever it is read from.

    `digest` stands for their content. Raises `InputError`.
    """
    folder, files = os.environ.get(CONVERTED), list_inputs(path)[:limit]
    if folder is None or digest is None or all(file.suffix == ".safetensors" for file in files):
        return list(read_batches(path, limit))
    kept = Path(folder) / f"{digest}-{len(files)}"
    with contextlib.suppress(ValueError):
        if kept.is_dir():
            return [replace(batch, source=str(file)) for file, batch in zip(files, read_batches(kept), strict=True)]
    batches = list(read_batches(path, limit))
    if os.environ.get("RANK", "0") == "0":
        _keep(batches, kept)
    return batches


def _keep(batches: Sequence[Batch], kept: Path) -> None:
    """All of them or none. Numbers for names: two recorded files may differ in their suffix only. A full disk costs
    the next row time, not this one its result."""
    part = None
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=kept.parent, prefix=f".{kept.name}."))
        for number, batch in enumerate(batches):
            write_batch(batch, part / f"{number:06d}.safetensors")
        part.rename(kept)
    except OSError:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)

"""Recorded batches on disk: safetensors, our own format, files of torch.save, and pickled dictionaries of older dumps.

A pickle is a program. The unpickler here resolves exactly the three functions that a dictionary of tensors
needs, replaces the one that would unpickle again by a loader of plain tensor storages, and refuses everything
else before anything of it runs.
"""

from __future__ import annotations

import errno
import io
import math
import os
import pickle
import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from bench.inputs.batch import Batch, make_batch
from bench.inputs.files import list_inputs
from bench.pickles import RestrictedUnpickler, one_line
from bench.problems import InputError

MAX_BYTES = 1 << 30
FIELDS = ("sequences", "attention_mask", "action_mask")
OS_ERROR = re.compile(r"\(os error (\d+)\)")
SAVED = (".pt", ".pth")
"""Of torch.save, whose files are read by torch's restricted loader, as zip archives under any name are."""


def _storage_from_bytes(data: bytes) -> torch.UntypedStorage | torch.TypedStorage:
    """A tensor storage, read by torch's restricted loader; anything else in `data` is refused there."""
    if not isinstance(data, bytes):
        raise pickle.UnpicklingError("a storage is not given as bytes")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is odd about it is refused just below
            storage = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except Exception:  # torch's refusals are paragraphs; the file's name is added by the caller
        raise pickle.UnpicklingError("a tensor storage holds something other than plain data") from None
    if not isinstance(storage, (torch.UntypedStorage, torch.TypedStorage)):
        raise pickle.UnpicklingError(f"expected a tensor storage, found {type(storage).__name__}")
    return storage


def _rebuild_tensor(storage: Any, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any) -> torch.Tensor:
    """A tensor over `storage`, its bounds checked; gradient flags and hooks in the pickle are ignored."""
    if not isinstance(storage, torch.TypedStorage):
        raise pickle.UnpicklingError("a tensor without a typed storage")
    numbers = (offset, *size, *stride)
    if len(size) != len(stride) or not all(isinstance(n, int) and n >= 0 for n in numbers):
        raise pickle.UnpicklingError("a tensor whose sizes are not counts")
    bytes_ = storage._untyped_storage
    elements = bytes_.nbytes() // storage.dtype.itemsize
    if math.prod(size) > elements:  # a stride of 0 could otherwise ask for any amount of memory
        raise pickle.UnpicklingError("a tensor that is larger than its storage")
    if all(size) and offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) >= elements:
        raise pickle.UnpicklingError("a tensor that reaches beyond its storage")
    flat = torch.empty(0, dtype=storage.dtype).set_(bytes_, 0, (elements,), (1,))
    return flat.as_strided(size, stride, offset).clone()


ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch.storage", "_load_from_bytes"): _storage_from_bytes,
    ("collections", "OrderedDict"): OrderedDict,
}


def _read_pickle(path: Path) -> Any:
    with path.open("rb") as file:
        return RestrictedUnpickler(file, ALLOWED).load()


def _read_saved(path: Path) -> Any:
    return torch.load(path, weights_only=True, map_location="cpu")


def _dictionary(path: Path, load: Callable[[Path], Any]) -> dict[str, Any]:
    """What `load` makes of a file, which must be a dictionary; whatever else is in it is refused."""
    try:
        content = load(path)
    except Exception as error:  # whatever a hostile stream raises, it is one refused file; some are paragraphs
        raise InputError(f"{path}: refused: {one_line(error)}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds a {type(content).__name__}, expected a dictionary of tensors")
    return content


def _content(path: Path) -> dict[str, Any]:
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    with path.open("rb") as file:
        archive = file.read(2) == b"PK"
    return _dictionary(path, _read_saved if archive or path.suffix in SAVED else _read_pickle)


def _read_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except (SafetensorError, ValueError) as error:
        raise InputError(f"{path}: not a readable safetensors file: {error}") from None


def read_tensors(path: Path) -> dict[str, Any]:
    """A dictionary of tensors: safetensors, by torch.save or pickled; nothing of it is run. Raises `InputError`."""
    try:
        return _content(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def read_batch(path: Path) -> Batch:
    """One recorded batch; raises `InputError`, naming file and field, for whatever is wrong with it."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if size > MAX_BYTES:
        raise InputError(f"{path}: {size} bytes, more than the {MAX_BYTES} that one batch may have")
    content = _content(path)
    for field in FIELDS:
        if not isinstance(content.get(field), torch.Tensor):
            found = type(content[field]).__name__ if field in content else "nothing"
            raise InputError(f"{path}: field {field!r} should hold a tensor, found {found}")
    return make_batch(content["sequences"], content["attention_mask"], content["action_mask"], str(path))


def read_batches(path: Path, limit: int | None = None) -> Iterator[Batch]:
    """The batches under `path`, at most `limit`."""
    for file in list_inputs(path)[:limit]:
        yield read_batch(file)


def write_batch(batch: Batch, path: Path) -> None:
    """Store a batch as safetensors, whole or not at all. Raises `OSError`, on a full disk too."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    tensors = {
        "sequences": batch.sequences.contiguous(),
        "attention_mask": batch.attention_mask.to(torch.uint8).contiguous(),
        "action_mask": batch.action_mask.to(torch.uint8).contiguous(),
    }
    try:
        save_file(tensors, part)
    except SafetensorError as error:
        number = int(found[1]) if (found := OS_ERROR.search(str(error))) else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from None
    part.replace(path)


def convert(source: Path, target: Path) -> int:
    """Rewrite every batch under `source` as safetensors in the directory `target`; returns their number."""
    files = list_inputs(source)
    for file in files:
        write_batch(read_batch(file), target / f"{file.stem}.safetensors")
    return len(files)


def capture(
    directory: str | Path,
    sequences: torch.Tensor,
    attention_mask: torch.Tensor,
    action_mask: torch.Tensor,
    rank: int = 0,
) -> Path:
    """Record one forward pass's inputs from a training run of your own; returns the file written.

    Call it on every rank before the forward pass. `sequences` and `attention_mask` are (rows, positions),
    `action_mask` is (rows, actions) for the last positions; for supervised training give the mask of the answers.
    Files sort by rank and time, as `--inputs` reads them. Raises `InputError` where the shapes do not fit.
    """
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d_%H%M%S_%f")
    path = Path(directory) / f"actor_inputs_rank{rank}_{stamp}.safetensors"
    batch = make_batch(sequences.detach().cpu(), attention_mask.detach().cpu(), action_mask.detach().cpu(), "capture")
    write_batch(batch, path)
    return path

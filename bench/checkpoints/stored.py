"""Checkpoints of others: their index is a pickle, and torch's own reader would run whatever it says.

`Reader` takes the classes that an index of tensors is made of, and no others; tensors themselves are read by torch's
restricted loader. Whatever is wrong with a checkpoint is one `CheckpointError`.
"""

from __future__ import annotations

import collections
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import filesystem, metadata

from bench.pickles import RestrictedUnpickler, one_line
from bench.problems import Problem

LATEST = "latest"
LONGEST_TAG = 255
INDEX = ".metadata"


class CheckpointError(Problem):
    """A checkpoint that is absent, incomplete or for another model; the message names the directory."""


def _allowed() -> dict[tuple[str, str], Callable[..., Any]]:
    names = (
        "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties",
        "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING",
    )  # fmt: skip
    found: dict[tuple[str, str], Any] = {(metadata.__name__, name): getattr(metadata, name) for name in names}
    found |= {(filesystem.__name__, "_StorageInfo"): filesystem._StorageInfo}
    found |= {("torch", name): value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}
    found |= {("torch", "Size"): torch.Size, ("torch.serialization", "_get_layout"): torch.serialization._get_layout}
    for module in ("pathlib", "pathlib._local"):  # which of the two depends on the Python that wrote it
        found |= {(module, name): pathlib.PurePosixPath for name in ("Path", "PosixPath", "PurePosixPath")}
        found |= {(module, name): pathlib.PureWindowsPath for name in ("WindowsPath", "PureWindowsPath")}
    return found | {("collections", "OrderedDict"): collections.OrderedDict}


class Reader(dcp.FileSystemReader):
    """Reads tensors of a checkpoint. Raises `CheckpointError` for an index that is none, asks for anything else, or
    names files elsewhere."""

    def read_metadata(self, *_: Any, **__: Any) -> metadata.Metadata:
        """The index."""
        path = Path(self.path) / INDEX
        try:
            with path.open("rb") as file:
                index = RestrictedUnpickler(file, _allowed()).load()
            problem = _problem(index)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
        except Exception as error:  # whatever a hostile stream raises, it is one refused file
            problem = one_line(error)
        if problem:
            raise CheckpointError(f"{path}: refused: {problem}")
        found: metadata.Metadata = index
        found.storage_meta = found.storage_meta or metadata.StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


def _problem(index: Any) -> str | None:
    """What is wrong with an index."""
    if not isinstance(index, metadata.Metadata):
        return f"it holds a {type(index).__name__}, no index of a checkpoint"
    for name, entry in index.state_dict_metadata.items():
        if not isinstance(name, str) or not isinstance(entry, metadata.TensorStorageMetadata):
            return "it holds something other than tensors"  # which torch would unpickle without asking
        if not isinstance(entry.size, torch.Size) or not isinstance(entry.properties.dtype, torch.dtype):
            return "it holds a tensor without a size or type"
        if sum(math.prod(chunk.sizes) for chunk in entry.chunks) != math.prod(entry.size):
            return f"its parts of {name} are not the whole"  # the rest would keep whatever was in memory
        for chunk in entry.chunks:
            ends = [start + length for start, length in zip(chunk.offsets, chunk.sizes, strict=True)]
            if min(chunk.offsets, default=0) < 0 or any(end > size for end, size in zip(ends, entry.size, strict=True)):
                return f"a part of {name} lies outside of it"
    if not isinstance(index.storage_meta, (metadata.StorageMeta, NoneType)):
        return "it does not say how it was stored"
    for place in index.storage_data.values():
        if pathlib.PurePath(place.relative_path).name != str(place.relative_path):
            return "it names a file outside of its folder"
    return None


def index_of(path: Path) -> Mapping[str, Any]:
    """Sizes and types of the tensors in a checkpoint, by name."""
    found: Mapping[str, Any] = Reader(path / "state").read_metadata().state_dict_metadata
    return found


def fill(path: Path, tensors: dict[str, torch.Tensor], *, alone: bool) -> None:
    """Read into `tensors`, in place; `alone`: this rank whole tensors, without its peers."""
    with _told(path):
        dcp.load(tensors, storage_reader=Reader(path / "state"), no_dist=alone or not dist.is_initialized())


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except (dcp.api.CheckpointException, Exception) as error:
        raise CheckpointError(f"{path}: cannot be read: {reason(error)}") from None


def reason(error: BaseException) -> str:
    """One line: of what ranks tell of each other, the first one's own error."""
    if isinstance(error, dcp.api.CheckpointException):
        error = next((failure[0] for failure in error.failures.values()), error)
    return one_line(error)


def latest(folder: Path) -> str:
    """The tag of the newest checkpoint in `folder`."""
    try:
        tag = (folder / LATEST).read_text(encoding="utf-8").strip()
    except OSError:
        raise CheckpointError(f"{folder}: holds no checkpoint marked as latest; give a tag") from None
    except ValueError:
        tag = ""
    if not tag or len(tag) > LONGEST_TAG or not tag.isprintable() or Path(tag).name != tag:
        raise CheckpointError(f"{folder / LATEST}: does not hold the name of a checkpoint")
    return tag

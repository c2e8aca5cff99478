"""One checkpoint format for every backend and size, and the exact state of a run.

A checkpoint is a directory:

    state/            torch.distributed.checkpoint: `model.<name>` and `optimizer.<name>.<state>`, in fp32
    training.json     optimizer groups, scheduler, data position, loss scale, the caller's `client_state`
    rng/rank<N>.pt    random states of each rank

Names are those of the unwrapped model. DTensors are saved as the shards they are and read into other shards;
backends with their own flat buffers gather and scatter one parameter at a time.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.optim import Optimizer

from bench.checkpoints import stored
from bench.checkpoints.stored import LATEST, CheckpointError
from bench.pickles import one_line
from bench.process import files
from bench.strategies import processes

__all__ = ["CheckpointError"]

VERSION = 1


def _barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def optimizer_names(optimizer: Optimizer, names: Mapping[int, str]) -> dict[str, torch.Tensor]:
    """The optimizer's tensors under `optimizer.<name>.<state>`; `names` maps parameter identities to names."""
    found = {}
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, torch.Tensor):
                found[f"optimizer.{names[id(parameter)]}.{key}"] = value
    return found


def group_settings(optimizer: Optimizer, names: Callable[[torch.Tensor], str | None]) -> list[dict[str, Any]]:
    """Hyperparameters of each group, as plain values, with the names of its parameters where they have one."""
    groups = []
    for group in optimizer.param_groups:
        plain = {k: v for k, v in group.items() if k != "params" and _is_plain(v)}
        groups.append({**plain, "params": [n for p in group["params"] if (n := names(p)) is not None]})
    return groups


def restore_group_settings(optimizer: Optimizer, saved: list[dict[str, Any]]) -> None:
    if len(saved) != len(optimizer.param_groups):
        raise CheckpointError(
            f"the checkpoint has {len(saved)} optimizer groups, the optimizer {len(optimizer.param_groups)}"
        )
    for group, values in zip(optimizer.param_groups, saved, strict=True):
        for key, value in values.items():
            if key != "params" and key in group:
                group[key] = tuple(value) if isinstance(group[key], tuple) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (bool, int, float, str))


def random_state(device: torch.device) -> dict[str, Any]:
    """Python's, torch's and the device's generators; plain tensors and numbers, so it loads without pickles."""
    version, numbers, gauss = random.getstate()
    return {
        "python": [version, list(numbers), gauss],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)


def _make_room(folder: Path, tag: str, left: int, max_mem: int, least: int = 0) -> None:
    """Delete the oldest checkpoints but `tag` until at most `left` remain, which together take at most `max_mem` GiB;
    `least` of them stay in any case."""
    found = sorted(
        (entry for entry in folder.iterdir() if (entry / "training.json").is_file() and entry.name != tag),
        key=lambda entry: entry.stat().st_mtime,
    )
    sizes = {entry: sum(f.stat().st_size for f in entry.rglob("*") if f.is_file()) for entry in found}
    while len(found) > least and (len(found) > left or sum(sizes.values()) > max_mem * 2**30):
        oldest = found.pop(0)
        del sizes[oldest]
        shutil.rmtree(oldest)


def write(
    folder: str,
    tag: str,
    tensors: dict[str, torch.Tensor],
    record: dict[str, Any],
    device: torch.device,
    *,
    max_num: int,
    max_mem: int,
    save_latest: bool,
) -> str:
    """Write a checkpoint, all ranks together, and rename it into place when it is whole; returns its path.

    The newest one before it stays until then: a run that is stopped while it writes can go on from that.
    """
    target = Path(folder) / tag
    part = Path(folder) / f".{tag}.part"
    if processes.rank() == 0:
        shutil.rmtree(part, ignore_errors=True)
        (part / "rng").mkdir(parents=True)
        _make_room(Path(folder), tag, max(max_num - 1, 1), max_mem, least=1)
    _barrier()
    dcp.save(tensors, checkpoint_id=part / "state", no_dist=not dist.is_initialized())
    torch.save(random_state(device), part / "rng" / f"rank{processes.rank()}.pt")
    _barrier()
    if processes.rank() == 0:
        full = {"version": VERSION, "world_size": processes.world_size(), **record}
        try:
            (part / "training.json").write_text(json.dumps(full, indent=1), encoding="utf-8")
        except TypeError as error:
            raise CheckpointError(f"client_state must be plain JSON values: {error}") from None
        shutil.rmtree(target, ignore_errors=True)
        os.replace(part, target)
        if save_latest:
            files.write(Path(folder) / LATEST, tag)
        _make_room(Path(folder), tag, max_num - 1, max_mem)
    _barrier()
    return str(target)


def find(folder: str, tag: str | None) -> Path:
    """The directory of checkpoint `tag`, or of the latest one; raises `CheckpointError` where it is absent."""
    if tag is None:
        tag = stored.latest(Path(folder))
    path = Path(folder) / tag
    if not (path / "training.json").is_file():
        raise CheckpointError(f"{path}: not a checkpoint (training.json is missing)")
    return path


def read_record(path: Path) -> dict[str, Any]:
    file = path / "training.json"
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: cannot be read: {one_line(error)}") from None
    if not isinstance(record, dict):
        raise CheckpointError(f"{file}: holds a {type(record).__name__}, expected an object")
    if record.get("version") != VERSION:
        raise CheckpointError(f"{path}: format version {record.get('version')!r:.40}, this program reads {VERSION}")
    return record


def read_into(path: Path, tensors: dict[str, torch.Tensor], strict: bool) -> None:
    """Fill `tensors` in place, each rank its shards. All ranks must call this with the same names.

    Raises `CheckpointError` naming what is missing; with `strict=False` missing tensors keep their values.
    """
    known = stored.index_of(path)
    missing = sorted(tensors.keys() - known.keys())
    if missing and strict:
        raise CheckpointError(f"{path}: {len(missing)} tensors are missing, the first is {missing[0]}")
    stored.fill(path, {name: tensor for name, tensor in tensors.items() if name in known}, alone=False)


def read_alone(path: Path, shapes: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Whole tensors read by this rank without its peers, into the tensors given."""
    stored.fill(path, shapes, alone=True)
    return shapes


def restore_random(path: Path, device: torch.device, seed: int) -> None:
    """This rank's random state; a rank that the writing run did not have is seeded by its number."""
    file = path / "rng" / f"rank{processes.rank()}.pt"
    if file.is_file():
        restore_random_state(torch.load(file, weights_only=True), device)
    else:
        torch.manual_seed(seed + processes.rank())


def create_missing_state(optimizer: Optimizer, names: Mapping[int, str], known: Iterable[str]) -> None:
    """Give an optimizer that has not stepped the state tensors that the checkpoint holds for its parameters."""
    keys: dict[str, list[str]] = {}
    for entry in known:
        if entry.startswith("optimizer."):
            name, _, key = entry.removeprefix("optimizer.").rpartition(".")
            keys.setdefault(name, []).append(key)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for key in keys.get(names[id(parameter)], ()):
                if key not in optimizer.state[parameter]:
                    on_device = bool(group.get("fused") or group.get("capturable"))
                    optimizer.state[parameter][key] = _blank(parameter, key, on_device)


def _blank(parameter: torch.Tensor, key: str, on_device: bool) -> torch.Tensor:
    if key == "step":
        return torch.zeros((), dtype=torch.float32, device=parameter.device if on_device else "cpu")
    return torch.zeros_like(parameter, requires_grad=False)

"""Saving and restoring a whole run; as it is here, of backends whose optimizers hold one state per parameter."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim import Optimizer

from bench.checkpoints import checkpoint, stored
from bench.strategies.data import ResumableLoader
from bench.strategies.gradients import LossScaler

DEFAULT_TAG = "step"


@dataclass
class Training:
    """The parts of a run. `parameters` are the tensors that the optimizer steps, by the unwrapped model's names."""

    parameters: dict[str, torch.Tensor]
    device: torch.device
    seed: int
    optimizer: Optimizer | None = None
    scheduler: Any | None = None
    dataloader: ResumableLoader | None = None
    scaler: LossScaler | None = None

    def names(self) -> dict[int, str]:
        return {id(parameter): name for name, parameter in self.parameters.items()}

    def tensors(self, with_optimizer: bool) -> dict[str, torch.Tensor]:
        found = {f"model.{name}": parameter.detach() for name, parameter in self.parameters.items()}
        if with_optimizer and self.optimizer is not None:
            found |= checkpoint.optimizer_names(self.optimizer, self.names())
        return found

    def record(self, client_state: dict[str, Any] | None) -> dict[str, Any]:
        """What goes beside the tensors, as JSON values."""
        names = self.names()
        groups = None
        if self.optimizer is not None:
            groups = checkpoint.group_settings(self.optimizer, lambda p: names.get(id(p)))
        return {
            "client_state": client_state or {}, "groups": groups,
            **{key: None if part is None else part.state_dict() for key, part in self._stateful().items()},
        }  # fmt: skip

    def _stateful(self) -> dict[str, Any]:
        return {"scaler": self.scaler, "scheduler": self.scheduler, "data": self.dataloader}

    def apply_record(self, path: Path, record: dict[str, Any], with_optimizer: bool, with_scheduler: bool) -> None:
        """Restore groups, loss scale, scheduler, data position and random states."""
        if with_optimizer and self.optimizer is not None:
            if record["groups"] is None:
                raise checkpoint.CheckpointError(f"{path}: holds weights only: load it with load_module_only=True")
            checkpoint.restore_group_settings(self.optimizer, record["groups"])
        for key, part in self._stateful().items():
            if part is not None and record[key] and (with_scheduler or key != "scheduler"):
                part.load_state_dict(record[key])
        checkpoint.restore_random(path, self.device, self.seed)

    def fill(self, path: Path, with_optimizer: bool, strict: bool) -> None:
        """Read a checkpoint's tensors in place."""
        if with_optimizer and self.optimizer is not None:
            checkpoint.create_missing_state(self.optimizer, self.names(), stored.index_of(path))
        checkpoint.read_into(path, self.tensors(with_optimizer), strict)

    def save(self, save_dir: str, tag: str | None, client_state: dict[str, Any] | None, **kept: Any) -> str:
        """Write a checkpoint; returns its path. `kept` as in `checkpoint.write`."""
        tensors, record = self.tensors(self.optimizer is not None), self.record(client_state)
        return checkpoint.write(save_dir, tag or DEFAULT_TAG, tensors, record, self.device, **kept)

    def load(
        self,
        load_dir: str,
        tag: str | None,
        *,
        strict: bool,
        optimizer_states: bool,
        scheduler_states: bool,
        module_only: bool,
    ) -> tuple[str, dict[str, Any]]:
        """Restore a checkpoint of any backend in place; returns its path and the caller's `client_state`."""
        path = checkpoint.find(load_dir, tag)
        record = checkpoint.read_record(path)
        with_optimizer = self.optimizer is not None and optimizer_states and not module_only
        self.fill(path, with_optimizer, strict)
        if not module_only:
            self.apply_record(path, record, with_optimizer, scheduler_states)
        return str(path), record["client_state"]

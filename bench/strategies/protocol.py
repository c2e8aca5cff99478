"""The interface that every strategy has, for type checkers. The classes themselves share no base."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from bench.configuration import Configuration
from bench.strategies.data import ResumableLoader


class Strategy(Protocol):
    """One distributed backend behind the operations that training code calls.

    `accumulated_gradient` micro-batches make one optimizer step. Gradients are means over the
    `dp_size * ring_size` ranks that see different tokens, and over the micro-batches of a step.
    """

    config: Configuration
    device: torch.device
    mesh: DeviceMesh | None
    world_size: int
    dp_size: int
    dp_rank: int
    ring_size: int
    ring_attn_rank: int
    tp_size: int
    accumulated_gradient: int

    def setup_distributed(self, timeout: timedelta = ...) -> None: ...

    def setup_ring_attn(self, mesh: DeviceMesh | None) -> None: ...

    def create_optimizer(
        self,
        model: nn.Module,
        name: str = ...,
        lr: float = ...,
        betas: tuple[float, float] = ...,
        eps: float = ...,
        weight_decay: float = ...,
    ) -> Optimizer: ...

    def prepare(self, *models_or_triples: Any) -> Any: ...

    def backward(self, loss: torch.Tensor, model: nn.Module, optimizer: Optimizer, name: str = ...) -> None: ...

    def optimizer_step(
        self, optimizer: Optimizer, model: nn.Module, scheduler: Any | None, name: str = ...
    ) -> torch.Tensor | None: ...

    def setup_dataloader(
        self,
        replay_buffer: Any,
        batch_size: int,
        pin_memory: bool = ...,
        shuffle: bool = ...,
        collate_fn: Callable[[list[Any]], Any] | None = ...,
        drop_last: bool = ...,
        consumed_samples: int = ...,
    ) -> ResumableLoader: ...

    def save_model(self, model: nn.Module, tokenizer: Any | None, output_dir: str) -> None: ...

    def load_model(self, model: nn.Module, path: str, strict: bool = ...) -> None: ...

    def save_ckpt(
        self,
        model: nn.Module,
        save_dir: str,
        tag: str | None = ...,
        max_num: int = ...,
        max_mem: int = ...,
        client_state: dict[str, Any] | None = ...,
        save_latest: bool = ...,
        optimizer: Optimizer | None = ...,
        scheduler: Any | None = ...,
        dataloader: ResumableLoader | None = ...,
    ) -> str: ...

    def load_ckpt(
        self,
        model: nn.Module,
        load_dir: str,
        tag: str | None = ...,
        load_module_strict: bool = ...,
        load_optimizer_states: bool = ...,
        load_lr_scheduler_states: bool = ...,
        load_module_only: bool = ...,
        optimizer: Optimizer | None = ...,
        scheduler: Any | None = ...,
        dataloader: ResumableLoader | None = ...,
    ) -> tuple[str, dict[str, Any]]: ...

    def all_reduce(self, data: Any, op: str = ...) -> Any: ...

    def all_gather(self, data: Any) -> Any: ...

    def named_gradients(self, model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]: ...

    def get_rank(self) -> int: ...

    def is_rank_0(self) -> bool: ...

    def print(self, *messages: object) -> None: ...

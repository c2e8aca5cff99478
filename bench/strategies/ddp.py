"""Plain data parallelism: every rank holds the whole model. The baseline that other backends are held against."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from bench.configuration import Configuration
from bench.measure.clock import DTYPES
from bench.measure.model import network_of
from bench.strategies.base import PlainStrategy
from bench.strategies.compilation import apply_compile
from bench.strategies.master_weights import MasterWeights


class DDPStrategy(PlainStrategy):
    """DistributedDataParallel over all ranks; one process needs no process group at all.

    In 16 bits the model is 16-bit and the optimizer works on fp32 copies, as DeepSpeed's ZeRO-0 does.
    """

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self._masters: WeakKeyDictionary[nn.Module, MasterWeights] = WeakKeyDictionary()

    def _join(self, timeout: timedelta) -> None:
        if self.config.num_gpus > 1 or dist.is_initialized():
            super()._join(timeout)
        elif self.device.type == "cuda":
            torch.cuda.set_device(self.device)

    def _prepare_triple(self, model: nn.Module, optimizer: Optimizer | None, scheduler: Any) -> tuple[Any, Any, Any]:
        model = model.to(self.device)
        masters = None
        if self.config.dtype != "fp32":
            masters = MasterWeights(model, optimizer, DTYPES[self.config.dtype])
            if self._skips_zeros():
                _keep_rows_only(network_of(model))
        apply_compile(model, self.config.compile)
        if self.world_size > 1 and optimizer is not None:
            ids = [self.device.index] if self.device.type == "cuda" else None
            model = DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=masters is None)
            model.require_backward_grad_sync = self._must_synchronise(0)
        if masters is not None:
            self._masters[model] = masters
        return model, optimizer, scheduler

    def _skips_zeros(self) -> bool:
        """Whether the embedding's gradient is the rows of the tokens that were there, without the zeros of all others,
        which are then written once, in the copies. No other rank must add to it, and no graph hold it."""
        return self.world_size == 1 and self.config.compile != "full"

    def _must_synchronise(self, micro_step: int) -> bool:
        """Whether the backward pass after `micro_step` others must reduce gradients.

        Copies in fp32 take each micro-batch's gradients away, so in 16 bits every one is reduced.
        """
        return self.config.dtype != "fp32" or (micro_step + 1) % self.accumulated_gradient == 0

    def backward(self, loss: torch.Tensor, model: nn.Module, optimizer: Optimizer, name: str = "model") -> None:
        super().backward(loss, model, optimizer, name)
        if self.accumulated_gradient > 1:
            self._collect_gradients(model)  # 16 bits are too few to add micro-batches up in
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = self._must_synchronise(self._micro_steps[optimizer])

    def _collect_gradients(self, model: nn.Module) -> None:
        if model in self._masters:
            self._masters[model].collect()

    def _publish_parameters(self, model: nn.Module) -> None:
        if model in self._masters:
            self._masters[model].publish()

    def _parameters(self, model: nn.Module) -> dict[str, torch.Tensor]:
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        masters = self._masters.get(model)
        return {**dict(inner.named_parameters()), **(masters.masters if masters is not None else {})}

    def _write_parameter(self, model: nn.Module, name: str, parameter: torch.Tensor, value: torch.Tensor) -> None:
        super()._write_parameter(model, name, parameter, value)
        if model in self._masters:
            self._masters[model].masters[f"model.{name}"].copy_(value)


def _keep_rows_only(network: nn.Module) -> None:
    if not hasattr(network, "get_input_embeddings"):
        return
    embedding, head = network.get_input_embeddings(), network.get_output_embeddings()
    tied = head is not None and head.weight is embedding.weight  # the head's gradient has all rows
    if isinstance(embedding, nn.Embedding) and not tied:
        embedding.sparse = True

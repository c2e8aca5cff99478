"""Fully sharded data parallelism (FSDP2) over a (dp, ring, tp) mesh, with tensor parallelism inside it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy
from torch.optim import Optimizer

from bench.configuration import Configuration
from bench.measure.clock import DTYPES
from bench.measure.model import Actor, network_of
from bench.parallel.tensor_parallel import (
    apply_tensor_parallel,
    choose_plan,
    split_head,
    vocabulary_shard,
)
from bench.strategies import fsdp2_groups, limits, optimizers
from bench.strategies.base import PlainStrategy
from bench.strategies.compilation import apply_compile

SHARD_DIM = "dp_ring"


class FSDP2Strategy(PlainStrategy):
    """`fully_shard` per layer, embedding and head, parameters and their gradients kept in fp32.

    Parameters are sharded and gradients reduced over data-parallel *and* ring ranks: ring neighbours see different
    tokens, and a mesh without them would train on a part of each gradient. Fp32 parameters with a 16-bit
    `MixedPrecisionPolicy` train like DeepSpeed's fp32 copies; 16-bit parameters do not.
    """

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.shard_mesh: DeviceMesh | None = None
        self.tp_plan_source = "none"

    def setup_distributed(self, timeout: timedelta = timedelta(minutes=60)) -> None:
        super().setup_distributed(timeout)
        if self.mesh is not None:
            self.shard_mesh = self.mesh["dp", "ring"]._flatten(SHARD_DIM)

    def _prepare_triple(self, model: nn.Module, optimizer: Optimizer | None, scheduler: Any) -> tuple[Any, Any, Any]:
        if self.mesh is None:
            raise RuntimeError("call setup_distributed before prepare")
        old_names = optimizers.names_by_parameter(model)
        network = network_of(model)
        if self.tp_size > 1:
            self._split_layers(model, network, self.mesh["tp"])
        if self.config.compile == "blocks":
            apply_compile(model, "blocks")
        self._shard(model, network)
        if self.config.compile == "full":
            apply_compile(model, "full")
        if optimizer is not None:
            optimizers.move_to_new_parameters(optimizer, old_names, model)
        return model, optimizer, scheduler

    def _split_layers(self, model: nn.Module, network: nn.Module, mesh: DeviceMesh) -> None:
        """Tensor parallelism. An actor takes logits that are split over the vocabulary; other models get whole ones."""
        limits.require(self.config, self.device.type, network.config)
        plan, self.tp_plan_source = choose_plan(network, self.config.tp_plan, self.config.sequence_parallel)
        split = split_head(network, plan) if isinstance(model, Actor) and model.head != "liger" else None
        apply_tensor_parallel(network, mesh, split or plan, self.config.async_tp)
        if split is not None and isinstance(model, Actor):
            model.vocabulary = vocabulary_shard(network, mesh)

    def _shard(self, model: nn.Module, network: nn.Module) -> None:
        dtype = DTYPES[self.config.dtype]
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=DTYPES[self.config.reduce_dtype])
        if dtype == torch.float32:
            policy = MixedPrecisionPolicy()
        pin = self.device.type == "cuda"
        offload = CPUOffloadPolicy(pin_memory=pin) if self.config.cpu_offload else OffloadPolicy()
        fsdp2_groups.shard(
            model, network, self.config.reshard_after_forward, mesh=self.shard_mesh, mp_policy=policy,
            offload_policy=offload,
        )  # fmt: skip

    def optimizer_step(
        self, optimizer: Optimizer, model: nn.Module, scheduler: Any | None, name: str = "model"
    ) -> torch.Tensor | None:
        norm = super().optimizer_step(optimizer, model, scheduler, name)
        if norm is not None and self._keeps_gathered():  # no gradients lie beside what is gathered: they are gone
            fsdp2_groups.gather(model)
        return norm

    def _keeps_gathered(self) -> bool:
        """Whether the parameters are cast for the computation right after each step, as DDP and ZeRO do it.

        That is for one rank, whose gathering is two copies on the stream that computes: with several it runs beside
        the computation. They then stay gathered until the backward pass gives them back.
        """
        one = self.shard_mesh is not None and self.shard_mesh.size() == 1
        return one and not self.config.reshard_after_forward and not self.config.cpu_offload

    def _release_copies(self, model: nn.Module) -> None:
        """Free parameters that are gathered: for the next forward pass, or by one without a backward pass.

        FSDP2 would take them for current after the step, and the next forward pass would run on old values. While they
        are there, the model's parameters are these copies, and not the shards that are saved, restored and stepped.
        """
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

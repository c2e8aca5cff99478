"""Fully sharded data parallelism (FSDP2) over a (dp, ring, tp) mesh, with tensor parallelism inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
)
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from bench.checkpoints import resume, weights
from bench.configuration import Configuration
from bench.measure.model import Actor, describe, network_of
from bench.parallel import ring_attention
from bench.parallel.tensor_parallel import (
    apply_tensor_parallel,
    choose_plan,
    overlap_collectives,
    split_head,
    vocabulary_shard,
)
from bench.strategies import collectives, fsdp2_groups, limits, optimizers, processes
from bench.strategies.compilation import apply_compile
from bench.strategies.data import ResumableLoader, build_loader
from bench.strategies.gradients import LossScaler, clip_grad_by_total_norm_, get_grad_norm

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SHARD_DIM = "dp_ring"


class FSDP2Strategy:
    """`fully_shard` per layer, embedding and head, parameters and their gradients kept in fp32.

    Parameters are sharded and gradients reduced over data-parallel *and* ring ranks: ring neighbours see different
    tokens, and a mesh without them would train on a part of each gradient. Fp32 parameters with a 16-bit
    `MixedPrecisionPolicy` train like DeepSpeed's fp32 copies; 16-bit parameters do not.
    """

    def __init__(self, config: Configuration) -> None:
        self.config = config
        self.device = torch.device("cpu")
        self.mesh: DeviceMesh | None = None
        self.shard_mesh: DeviceMesh | None = None
        self.world_size = self.dp_size = self.ring_size = self.tp_size = 1
        self.dp_rank = self.ring_attn_rank = 0
        self.accumulated_gradient = 1
        self.tp_plan_source = "none"
        self.scaler = LossScaler() if config.dtype == "fp16" else None
        self._micro_steps: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()

    def setup_distributed(self, timeout: timedelta = timedelta(minutes=60)) -> None:
        """Join the process group; raises `UnsupportedError` for sizes that the table rules out."""
        config = self.config
        self.device = processes.pick_device(config.device)
        limits.require(config, self.device.type)
        torch.manual_seed(config.random_seed)
        self.world_size = processes.join(self.device, timeout)
        self.mesh = processes.build_mesh(self.device, config.dp, config.ring, config.tp)
        self.shard_mesh = self.mesh["dp", "ring"]._flatten(SHARD_DIM)
        self.dp_rank = self.mesh["dp"].get_local_rank()
        self.dp_size, self.tp_size = config.dp, config.tp
        self.accumulated_gradient = config.accumulation
        self.setup_ring_attn(self.mesh)

    def setup_ring_attn(self, mesh: DeviceMesh | None) -> None:
        """Make the mesh's ring the one that attention runs over."""
        group = mesh["ring"].get_group() if mesh is not None and self.config.ring > 1 else None
        ring = ring_attention.set_ring(group, self.config.attn)
        self.ring_size, self.ring_attn_rank = (ring.size, ring.rank) if ring is not None else (1, 0)

    def create_optimizer(
        self,
        model: nn.Module,
        name: str = "adamw",
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> Optimizer:
        """Call it before `prepare`, which points it at what it must step."""
        fused = self.device.type == "cuda" and not self.config.cpu_offload
        return optimizers.build_optimizer(model, name, lr, betas, eps, weight_decay, fused)

    def prepare(self, *models_or_triples: Any) -> Any:
        """Wrap models, or (model, optimizer, scheduler) triples; one argument gives one result, several a list."""
        prepared = [
            self._prepare_triple(*item) if isinstance(item, tuple) else self._prepare_triple(item, None, None)[0]
            for item in models_or_triples
        ]
        return prepared[0] if len(prepared) == 1 else prepared

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
        limits.require(self.config, self.device.type, describe(network.config))
        plan, self.tp_plan_source = choose_plan(network, self.config.tp_plan, self.config.sequence_parallel)
        split = split_head(network, plan) if isinstance(model, Actor) and model.head != "liger" else None
        apply_tensor_parallel(network, mesh, split or plan)
        overlap_collectives(mesh, self.config.async_tp)
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

    def backward(self, loss: torch.Tensor, model: nn.Module, optimizer: Optimizer, name: str = "model") -> None:
        """Add the gradient of `loss`, scaled so that the micro-batches of a step average."""
        scale = self.scaler.scale if self.scaler is not None else 1.0
        (loss * (scale / self.accumulated_gradient)).backward()
        self._micro_steps[optimizer] = self._micro_steps.get(optimizer, 0) + 1

    def optimizer_step(
        self, optimizer: Optimizer, model: nn.Module, scheduler: Any | None, name: str = "model"
    ) -> torch.Tensor | None:
        """Step after the last micro-batch; the gradient norm before clipping, or None when it is not yet time."""
        if self._micro_steps.get(optimizer, 0) % self.accumulated_gradient:
            return None
        trained = list(optimizers.parameters_of(optimizer))
        if self.scaler is not None:
            self.scaler.unscale_(trained)
        norm = get_grad_norm(trained)
        if self.scaler is None or self.scaler.update(float(norm)):
            if self.config.max_norm > 0:
                clip_grad_by_total_norm_(trained, self.config.max_norm, norm)
            _drop_gathered(model)
            optimizer.step()
            if scheduler is not None:
                scheduler.step()
        optimizer.zero_grad()  # first, so that no gradients lie beside what is gathered
        if self._keeps_gathered():
            fsdp2_groups.gather(model)
        return norm

    def _keeps_gathered(self) -> bool:
        """Whether the parameters are cast for the computation right after each step, as DDP and ZeRO do it.

        That is for one rank, whose gathering is two copies on the stream that computes: with several it runs beside
        the computation. They then stay gathered until the backward pass gives them back.
        """
        one = self.shard_mesh is not None and self.shard_mesh.size() == 1
        return one and not self.config.reshard_after_forward and not self.config.cpu_offload

    def setup_dataloader(
        self,
        replay_buffer: Any,
        batch_size: int,
        pin_memory: bool = False,
        shuffle: bool = True,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = True,
        consumed_samples: int = 0,
    ) -> ResumableLoader:
        """Batches of this data-parallel rank; ring and tensor-parallel neighbours read the same."""
        return build_loader(
            replay_buffer, batch_size, num_replicas=self.dp_size, rank=self.dp_rank, seed=self.config.random_seed,
            pin_memory=pin_memory, shuffle=shuffle, collate_fn=collate_fn, drop_last=drop_last,
            consumed_samples=consumed_samples,
        )  # fmt: skip

    def save_model(self, model: nn.Module, tokenizer: Any | None, output_dir: str) -> None:
        """A Hugging Face directory in the training dtype."""
        _drop_gathered(model)
        named = ((n, _whole(p.detach())) for n, p in network_of(model).named_parameters())
        weights.save_pretrained(model, named, tokenizer, output_dir, self.config.dtype)

    def load_model(self, model: nn.Module, path: str, strict: bool = True) -> None:
        """Read a Hugging Face directory into the model, prepared or not."""
        _drop_gathered(model)
        network = dict(network_of(model).named_parameters())
        seen = set()
        with torch.no_grad():
            for name, tensor in weights.read_pretrained(path):
                seen.add(name)
                if name in network:
                    _fill(network[name], tensor)
        weights.check_names(path, seen, set(network), strict)

    def save_ckpt(
        self,
        model: nn.Module,
        save_dir: str,
        tag: str | None = None,
        max_num: int = 3,
        max_mem: int = 1000,
        client_state: dict[str, Any] | None = None,
        save_latest: bool = True,
        optimizer: Optimizer | None = None,
        scheduler: Any | None = None,
        dataloader: ResumableLoader | None = None,
    ) -> str:
        """Everything that exact resumption needs; `max_mem` in GiB over all checkpoints of the directory."""
        training = self._training(model, optimizer, scheduler, dataloader)
        return resume.save(
            training, save_dir, tag, client_state, max_num=max_num, max_mem=max_mem, save_latest=save_latest
        )

    def load_ckpt(
        self,
        model: nn.Module,
        load_dir: str,
        tag: str | None = None,
        load_module_strict: bool = True,
        load_optimizer_states: bool = True,
        load_lr_scheduler_states: bool = True,
        load_module_only: bool = False,
        optimizer: Optimizer | None = None,
        scheduler: Any | None = None,
        dataloader: ResumableLoader | None = None,
    ) -> tuple[str, dict[str, Any]]:
        """Restore what `save_ckpt` of any backend and size wrote; returns its path and the `client_state`."""
        training = self._training(model, optimizer, scheduler, dataloader)
        return resume.load(
            training, load_dir, tag, strict=load_module_strict, optimizer_states=load_optimizer_states,
            scheduler_states=load_lr_scheduler_states, module_only=load_module_only,
        )  # fmt: skip

    def _training(
        self, model: nn.Module, optimizer: Optimizer | None, scheduler: Any | None, dataloader: ResumableLoader | None
    ) -> resume.Training:
        _drop_gathered(model)
        parameters: dict[str, torch.Tensor] = dict(model.named_parameters())
        return resume.Training(
            parameters, self.device, self.config.random_seed, optimizer, scheduler, dataloader, self.scaler
        )

    def all_reduce(self, data: Any, op: str = "mean") -> Any:
        """Over all ranks, for tensors, numbers and dictionaries; `op` is mean, sum or max."""
        return collectives.reduce_value(data, op, self.device)

    def all_gather(self, data: Any) -> Any:
        """Over all ranks, concatenated along dimension 0 in rank order."""
        return collectives.gather_value(data, self.device)

    def named_gradients(self, model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        """Whole gradients in fp32 as the optimizer would see them, before clipping."""
        scale = self.scaler.scale if self.scaler is not None else 1.0
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                yield name, _whole(parameter.grad).float() / scale

    def get_rank(self) -> int:
        return processes.rank()

    def is_rank_0(self) -> bool:
        return processes.rank() == 0

    def print(self, *messages: object) -> None:
        """Print on rank 0 only."""
        if self.is_rank_0():
            print(*messages, flush=True)


def _drop_gathered(model: nn.Module) -> None:
    """Free parameters that are gathered: for the next forward pass, or by one without a backward pass.

    FSDP2 would take them for current after the step, and the next forward pass would run on old values. While they
    are there, the model's parameters are these copies, and not the shards that are saved, restored and stepped.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """All shards together; a collective for DTensors."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _fill(parameter: torch.Tensor, value: torch.Tensor) -> None:
    """Copy a whole tensor, the same on every rank, into a parameter that may be a shard of one."""
    if not isinstance(parameter, DTensor):
        parameter.copy_(value)
        return
    local = parameter.to_local()
    cast = value.to(parameter.device, parameter.dtype)
    # No rank sends: each cuts its shard out of the copy that it has read itself.
    shard = distribute_tensor(cast, parameter.device_mesh, parameter.placements, src_data_rank=None)
    local.copy_(shard.to_local())

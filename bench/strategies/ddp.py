"""Plain data parallelism: every rank holds the whole model. The baseline that other backends are held against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from bench.checkpoints import resume, weights
from bench.configuration import Configuration
from bench.measure.model import network_of
from bench.parallel import ring_attention
from bench.strategies import collectives, limits, optimizers, processes
from bench.strategies.compilation import apply_compile
from bench.strategies.data import ResumableLoader, build_loader
from bench.strategies.gradients import LossScaler, clip_grad_by_total_norm_, get_grad_norm
from bench.strategies.master_weights import MasterWeights

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def _unwrap(model: nn.Module) -> nn.Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


class DDPStrategy:
    """DistributedDataParallel over all ranks; one process needs no process group at all.

    In 16 bits the model is 16-bit and the optimizer works on fp32 copies, as DeepSpeed's ZeRO-0 does.
    """

    def __init__(self, config: Configuration) -> None:
        self.config = config
        self.device = torch.device("cpu")
        self.mesh: DeviceMesh | None = None
        self.world_size = self.dp_size = self.ring_size = self.tp_size = 1
        self.dp_rank = self.ring_attn_rank = 0
        self.accumulated_gradient = 1
        self.scaler = LossScaler() if config.dtype == "fp16" else None
        self._masters: WeakKeyDictionary[nn.Module, MasterWeights] = WeakKeyDictionary()
        self._micro_steps: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()

    def setup_distributed(self, timeout: timedelta = timedelta(minutes=60)) -> None:
        """Join the process group; raises `UnsupportedError` for sizes that the table rules out."""
        config = self.config
        self.device = processes.pick_device(config.device)
        limits.require(config, self.device.type)
        torch.manual_seed(config.random_seed)
        if config.num_gpus > 1 or dist.is_initialized():
            self.world_size = processes.join(self.device, timeout)
            self.mesh = processes.build_mesh(self.device, config.dp, config.ring, config.tp)
            self.dp_rank = self.mesh["dp"].get_local_rank()
        elif self.device.type == "cuda":
            torch.cuda.set_device(self.device)
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
        return optimizers.build_optimizer(model, name, lr, betas, eps, weight_decay, self.device.type == "cuda")

    def prepare(self, *models_or_triples: Any) -> Any:
        """Wrap models, or (model, optimizer, scheduler) triples; one argument gives one result, several a list."""
        prepared = [
            self._prepare_triple(*item) if isinstance(item, tuple) else self._prepare_triple(item, None, None)[0]
            for item in models_or_triples
        ]
        return prepared[0] if len(prepared) == 1 else prepared

    def _prepare_triple(self, model: nn.Module, optimizer: Optimizer | None, scheduler: Any) -> tuple[Any, Any, Any]:
        model = model.to(self.device)
        masters = None
        if self.config.dtype != "fp32":
            masters = MasterWeights(model, optimizer, DTYPES[self.config.dtype])
        apply_compile(model, self.config.compile)
        if self.world_size > 1 and optimizer is not None:
            ids = [self.device.index] if self.device.type == "cuda" else None
            model = DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=masters is None)
            model.require_backward_grad_sync = self._must_synchronise(0)
        if masters is not None:
            self._masters[model] = masters
        return model, optimizer, scheduler

    def _must_synchronise(self, micro_step: int) -> bool:
        """Whether the backward pass after `micro_step` others must reduce gradients.

        Copies in fp32 take each micro-batch's gradients away, so in 16 bits every one is reduced.
        """
        return self.config.dtype != "fp32" or (micro_step + 1) % self.accumulated_gradient == 0

    def backward(self, loss: torch.Tensor, model: nn.Module, optimizer: Optimizer, name: str = "model") -> None:
        """Add the gradient of `loss`, scaled so that the micro-batches of a step average."""
        scale = self.scaler.scale if self.scaler is not None else 1.0
        (loss * (scale / self.accumulated_gradient)).backward()
        masters = self._masters.get(model)
        if masters is not None and self.accumulated_gradient > 1:
            masters.collect()  # 16 bits are too few to add micro-batches up in
        steps = self._micro_steps.get(optimizer, 0) + 1
        self._micro_steps[optimizer] = steps
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = self._must_synchronise(steps)

    def optimizer_step(
        self, optimizer: Optimizer, model: nn.Module, scheduler: Any | None, name: str = "model"
    ) -> torch.Tensor | None:
        """Step after the last micro-batch; the gradient norm before clipping, or None when it is not yet time."""
        if self._micro_steps.get(optimizer, 0) % self.accumulated_gradient:
            return None
        if model in self._masters:
            self._masters[model].collect()
        trained = list(optimizers.parameters_of(optimizer))
        if self.scaler is not None:
            self.scaler.unscale_(trained)
        norm = get_grad_norm(trained)
        if self.scaler is None or self.scaler.update(float(norm)):
            if self.config.max_norm > 0:
                clip_grad_by_total_norm_(trained, self.config.max_norm, norm)
            optimizer.step()
            if model in self._masters:
                self._masters[model].publish()
            if scheduler is not None:
                scheduler.step()
        optimizer.zero_grad()
        return norm

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
        """Batches of this data-parallel rank; ring neighbours read the same."""
        return build_loader(
            replay_buffer, batch_size, num_replicas=self.dp_size, rank=self.dp_rank, seed=self.config.random_seed,
            pin_memory=pin_memory, shuffle=shuffle, collate_fn=collate_fn, drop_last=drop_last,
            consumed_samples=consumed_samples,
        )  # fmt: skip

    def _full_parameters(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """The values that training works on, by the unwrapped model's names."""
        masters = self._masters.get(model)
        inner = dict(_unwrap(model).named_parameters())
        return {**inner, **masters.masters} if masters is not None else inner

    def save_model(self, model: nn.Module, tokenizer: Any | None, output_dir: str) -> None:
        """A Hugging Face directory in the training dtype."""
        named = ((n.removeprefix("model."), p) for n, p in self._full_parameters(model).items())
        weights.save_pretrained(model, named, tokenizer, output_dir, self.config.dtype)

    def load_model(self, model: nn.Module, path: str, strict: bool = True) -> None:
        """Read a Hugging Face directory into the model, prepared or not."""
        full = self._full_parameters(model)
        network = dict(network_of(model).named_parameters())
        seen = set()
        with torch.no_grad():
            for name, tensor in weights.read_pretrained(path):
                seen.add(name)
                if name in network:
                    network[name].copy_(tensor)
                    full[f"model.{name}"].copy_(tensor)
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
        result = resume.load(
            training, load_dir, tag, strict=load_module_strict, optimizer_states=load_optimizer_states,
            scheduler_states=load_lr_scheduler_states, module_only=load_module_only,
        )  # fmt: skip
        if model in self._masters:
            self._masters[model].publish()
        return result

    def _training(
        self, model: nn.Module, optimizer: Optimizer | None, scheduler: Any | None, dataloader: ResumableLoader | None
    ) -> resume.Training:
        return resume.Training(
            self._full_parameters(model),
            self.device,
            self.config.random_seed,
            optimizer,
            scheduler,
            dataloader,
            self.scaler,
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
        if model in self._masters:
            self._masters[model].collect()
        for name, parameter in self._full_parameters(model).items():
            if parameter.grad is not None:
                yield name, parameter.grad.float() / scale

    def get_rank(self) -> int:
        return processes.rank()

    def is_rank_0(self) -> bool:
        return processes.rank() == 0

    def print(self, *messages: object) -> None:
        """Print on rank 0 only."""
        if self.is_rank_0():
            print(*messages, flush=True)

"""What every strategy is, and what those have in common whose gradients and checkpoints are PyTorch's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sized
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from bench.checkpoints import weights
from bench.checkpoints.resume import Training
from bench.configuration import Configuration
from bench.measure.model import network_of
from bench.parallel import ring_attention
from bench.strategies import collectives, limits, optimizers, processes
from bench.strategies.data import ResumableLoader, ShardedSampler
from bench.strategies.gradients import LossScaler, clip_grad_by_total_norm_, fill, get_grad_norm, whole


class Strategy(ABC):
    """One distributed backend behind the operations that training code calls.

    `accumulated_gradient` micro-batches make one optimizer step. Gradients are means over the
    `dp_size * ring_size` ranks that see different tokens, and over the micro-batches of a step.
    """

    def __init__(self, config: Configuration) -> None:
        self.config = config
        self.device = torch.device("cpu")
        self.mesh: DeviceMesh | None = None
        self.world_size = self.dp_size = self.ring_size = self.tp_size = 1
        self.dp_rank = self.ring_attn_rank = 0
        self.accumulated_gradient = 1
        self._micro_steps: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()

    def setup_distributed(self, timeout: timedelta = timedelta(minutes=60)) -> None:
        """Join the process group; raises `UnsupportedError` for sizes that the table rules out."""
        config = self.config
        self.device = processes.pick_device(config.device)
        limits.require(config, self.device.type)
        torch.manual_seed(config.random_seed)
        self._join(timeout)
        if dist.is_initialized():
            self.mesh = processes.build_mesh(self.device, config.dp, config.ring, config.tp)
            self.dp_rank = self.mesh["dp"].get_local_rank()
        self.dp_size, self.tp_size = config.dp, config.tp
        self.accumulated_gradient = config.accumulation
        self.setup_ring_attn(self.mesh)

    def _join(self, timeout: timedelta) -> None:
        self.world_size = processes.join(self.device, timeout)

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
        raise NotImplementedError

    @abstractmethod
    def backward(self, loss: torch.Tensor, model: nn.Module, optimizer: Optimizer, name: str = "model") -> None:
        """Add the gradient of `loss`, scaled so that the micro-batches of a step average."""

    def _count(self, optimizer: Optimizer) -> int:
        """Count one more micro-batch of an optimizer; their number."""
        self._micro_steps[optimizer] = self._micro_steps.get(optimizer, 0) + 1
        return self._micro_steps[optimizer]

    def _due(self, optimizer: Optimizer) -> bool:
        """Whether the last micro-batch of a step has been counted."""
        return self._micro_steps.get(optimizer, 0) % self.accumulated_gradient == 0

    @abstractmethod
    def optimizer_step(
        self, optimizer: Optimizer, model: nn.Module, scheduler: Any | None, name: str = "model"
    ) -> torch.Tensor | None:
        """Step after the last micro-batch; the gradient norm before clipping, or None when it is not yet time."""

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
        """Batches of this data-parallel rank; ring and tensor-parallel neighbours read the same. No backend has a
        loader of its own: what a rank reads must not depend on it."""
        if not isinstance(replay_buffer, Sized):
            raise ValueError("the data set has no length: a sharded, resumable order needs one")
        size, seed = len(replay_buffer), self.config.random_seed
        sampler = ShardedSampler(size, self.dp_size, self.dp_rank, shuffle, seed, drop_last)
        sampler.epoch, sampler.consumed = divmod(consumed_samples, size)
        return ResumableLoader(replay_buffer, batch_size, sampler, collate_fn, pin_memory, drop_last)

    def _network_parameters(self, model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        """Whole values that training works on, by the names of the network; a collective where they are sharded."""
        raise NotImplementedError

    def _write_parameter(self, model: nn.Module, name: str, parameter: torch.Tensor, value: torch.Tensor) -> None:
        """Write a whole tensor, the same on every rank, into a parameter of the network and its copies."""
        raise NotImplementedError

    def save_model(self, model: nn.Module, tokenizer: Any | None, output_dir: str) -> None:
        """A Hugging Face directory in the training dtype."""
        weights.save_pretrained(model, self._network_parameters(model), tokenizer, output_dir, self.config.dtype)

    @torch.no_grad()
    def load_model(self, model: nn.Module, path: str, strict: bool = True) -> None:
        """Read a Hugging Face directory into the model, prepared or not."""
        network = dict(network_of(model).named_parameters())
        seen = set()
        for name, tensor in weights.read_pretrained(path):
            seen.add(name)
            if name in network:
                self._write_parameter(model, name, network[name], tensor)
        weights.check_names(path, seen, set(network), strict)

    def _training(self, model: nn.Module, optimizer: Any, scheduler: Any, dataloader: Any) -> Training:
        """What checkpoints hold."""
        raise NotImplementedError

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
        return training.save(save_dir, tag, client_state, max_num=max_num, max_mem=max_mem, save_latest=save_latest)

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
        return training.load(
            load_dir, tag, strict=load_module_strict, optimizer_states=load_optimizer_states,
            scheduler_states=load_lr_scheduler_states, module_only=load_module_only,
        )  # fmt: skip

    @abstractmethod
    def named_gradients(self, model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        """Whole gradients in fp32 as the optimizer would see them, before clipping."""

    def all_reduce(self, data: Any, op: str = "mean") -> Any:
        """Over all ranks, for tensors, numbers and dictionaries; `op` is mean, sum or max."""
        return collectives.reduce_value(data, op, self.device)

    def all_gather(self, data: Any) -> Any:
        """Over all ranks, concatenated along dimension 0 in rank order."""
        return collectives.gather_value(data, self.device)

    def get_rank(self) -> int:
        return processes.rank()

    def is_rank_0(self) -> bool:
        return processes.rank() == 0

    def print(self, *messages: object) -> None:
        """Print on rank 0 only."""
        if self.is_rank_0():
            print(*messages, flush=True)


class PlainStrategy(Strategy):
    """Gradients lie in the parameters that the optimizer steps: they are scaled, clipped and saved here."""

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.scaler = LossScaler() if config.dtype == "fp16" else None

    def _scale(self) -> float:
        return self.scaler.scale if self.scaler is not None else 1.0

    def backward(self, loss: torch.Tensor, model: nn.Module, optimizer: Optimizer, name: str = "model") -> None:
        (loss * (self._scale() / self.accumulated_gradient)).backward()
        self._count(optimizer)

    def optimizer_step(
        self, optimizer: Optimizer, model: nn.Module, scheduler: Any | None, name: str = "model"
    ) -> torch.Tensor | None:
        if not self._due(optimizer):
            return None
        self._collect_gradients(model)
        trained = list(optimizers.parameters_of(optimizer))
        if self.scaler is not None:
            self.scaler.unscale_(trained)
        norm = get_grad_norm(trained)
        if self.scaler is None or self.scaler.update(float(norm)):
            if self.config.max_norm > 0:
                clip_grad_by_total_norm_(trained, self.config.max_norm, norm)
            self._release_copies(model)
            optimizer.step()
            self._publish_parameters(model)
            if scheduler is not None:
                scheduler.step()
        optimizer.zero_grad()
        return norm

    def _collect_gradients(self, model: nn.Module) -> None:
        """Bring the gradients to the parameters that are stepped, where the model's are others."""

    def _release_copies(self, model: nn.Module) -> None:
        """Free what the model computes with, where it is not what is stepped, saved and restored."""

    def _publish_parameters(self, model: nn.Module) -> None:
        """Bring new values to the parameters that the model computes with, where it needs them at once."""

    def _parameters(self, model: nn.Module) -> dict[str, torch.Tensor]:
        """What the optimizer steps, whole or a shard, by the unwrapped model's names."""
        return dict(model.named_parameters())

    def _training(self, model: nn.Module, optimizer: Any, scheduler: Any, dataloader: Any) -> Training:
        self._release_copies(model)
        stepped, seed = self._parameters(model), self.config.random_seed
        return Training(stepped, self.device, seed, optimizer, scheduler, dataloader, self.scaler)

    def _network_parameters(self, model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        self._release_copies(model)
        stepped = self._parameters(model)
        for name, _ in network_of(model).named_parameters():
            yield name, whole(stepped[name if name in stepped else f"model.{name}"].detach())

    def _write_parameter(self, model: nn.Module, name: str, parameter: torch.Tensor, value: torch.Tensor) -> None:
        fill(parameter, value)

    def load_model(self, model: nn.Module, path: str, strict: bool = True) -> None:
        self._release_copies(model)
        super().load_model(model, path, strict)

    def load_ckpt(self, model: nn.Module, *args: Any, **kwargs: Any) -> tuple[str, dict[str, Any]]:
        result = super().load_ckpt(model, *args, **kwargs)
        self._publish_parameters(model)
        return result

    def named_gradients(self, model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        self._collect_gradients(model)
        for name, parameter in self._parameters(model).items():
            if parameter.grad is not None:
                yield name, whole(parameter.grad).float() / self._scale()

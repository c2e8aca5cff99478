"""Somebody else's strategy class, measured through the interface that OpenRLHF's strategies have.

`--backend package.module:Class` names a class that derives from `bench.strategies.base.Strategy` and is one of ours
then, or a class that is built as
`Class(seed, full_determinism, max_norm, micro_train_batch_size, train_batch_size, zero_stage, args)` and has
`setup_distributed`, `create_optimizer`, `prepare((model, optimizer, scheduler))`, `backward` and
`optimizer_step` (OpenRLHF up to 0.9). Its files are not edited. Three things are done around them:

- packages that its module imports and that are not installed (`HEAVY`) are stand-ins during that import: names
  can be imported and inherited from, using one raises `ImportError`;
- without a GPU, `torch.cuda.set_device` does nothing, and `init_device_mesh` in its module makes CPU meshes;
- without a GPU, the optimizer is PyTorch's AdamW: DeepSpeed's would be compiled first.

Losses, reductions and counts are the harness's own, so that a row means the same for every backend.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.optim import Optimizer

from bench.checkpoints.resume import Training
from bench.configuration import Configuration
from bench.strategies import processes
from bench.strategies.base import Strategy

HEAVY = (
    "aiohttp", "bitsandbytes", "datasets", "flash_attn", "jsonlines", "loralib", "optimum", "peft", "pylatexenc",
    "ray", "ring_flash_attn", "sympy", "tensorboard", "torchdata", "torchmetrics", "vllm", "wandb",
)  # fmt: skip


class _StandIn(ModuleType):
    """A module any name can be imported from; each is a class that cannot be used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"

        def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
            raise ImportError(f"{full} is used, but its package is not installed")

        return type(name, (), {"__init__": refuse, "__module__": self.__name__})


class _StandInFinder(MetaPathFinder, Loader):
    """Finds the packages of `HEAVY` that nothing else finds; it is asked last."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.partition(".")[0] in HEAVY else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: the names come on demand."""


@contextmanager
def stand_ins() -> Iterator[None]:
    """Make missing packages importable, and forget them afterwards: other code must still find them missing."""
    finder = _StandInFinder()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [n for n, module in sys.modules.items() if isinstance(module, _StandIn)]:
            del sys.modules[name]


def load_class(reference: str) -> tuple[type[Any], ModuleType]:
    """The class that `package.module:Class` names, and its module; raises `ValueError` where there is none."""
    module_name, _, class_name = reference.partition(":")
    # These look for optional packages when first imported, which must not be while stand-ins are there.
    import deepspeed  # noqa: F401
    import transformers.modeling_flash_attention_utils  # noqa: F401

    try:
        with stand_ins():
            module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"--backend {reference}: {error}") from None
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise ValueError(f"--backend {reference}: {module_name} has no class {class_name}")
    return found, sys.modules[found.__module__]


@dataclass
class OwnCheckpoint(Training):
    """The class's checkpoint: it knows optimizer and scheduler, the data position goes into `client_state`."""

    model: nn.Module | None = None
    inner: Any = None

    def save(self, save_dir: str, tag: str | None, client_state: dict[str, Any] | None, **kept: Any) -> str:
        position = self.dataloader.state_dict() if self.dataloader is not None else None
        state = {**(client_state or {}), "data_position": position}
        how = (kept["max_num"], kept["max_mem"], state, kept["save_latest"])
        self.inner.save_ckpt(self.model, save_dir, tag, *how)
        return os.path.join(save_dir, tag or "")

    def load(self, load_dir: str, tag: str | None, **how: Any) -> tuple[str, dict[str, Any]]:
        states = (how["strict"], how["optimizer_states"], how["scheduler_states"], how["module_only"])
        path, state = self.inner.load_ckpt(self.model, load_dir, tag, *states)
        position = state.pop("data_position", None)
        if self.dataloader is not None and position is not None:
            self.dataloader.load_state_dict(position)
        return path, state


class ExternalStrategy(Strategy):
    """The adapter. Checkpoints and model files are written by the class itself, in its own format."""

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self.inner: Any = None

    def _arguments(self) -> Namespace:
        """The options that OpenRLHF's strategies read, for every generation's names that have one level."""
        config = self.config
        return Namespace(
            param_dtype=config.dtype, bf16=config.dtype == "bf16", local_rank=-1, adam_offload=config.cpu_offload,
            zpg=1, grad_accum_dtype=None, overlap_comm=False, use_ds_universal_ckpt=False, use_dynamic_batch=False,
            deepcompile=config.compile == "deepcompile", gradient_checkpointing=False,
            ds_tensor_parallel_size=config.tp, fsdp_tensor_parallel_size=config.tp, ring_attn_size=config.ring,
            ring_head_stride=1, use_hf_tp_plan=config.tp_plan == "hf", sequence_parallel=config.sequence_parallel,
        )  # fmt: skip

    def _join(self, timeout: timedelta) -> None:
        """Join the process group, build the class and let it set itself up in that group."""
        config = self.config
        cls, module = load_class(config.backend)
        super()._join(timeout)
        os.environ.setdefault("LOCAL_RANK", str(processes.local_rank()))
        if self.device.type == "cpu":
            _use_cpu(module)
        self.inner = cls(
            seed=config.random_seed, full_determinism=False, max_norm=config.max_norm,
            micro_train_batch_size=config.rows, train_batch_size=config.batch,
            zero_stage=config.zero_stage, args=self._arguments(),
        )  # fmt: skip
        self.inner.setup_distributed(timeout=timeout)

    def setup_ring_attn(self, mesh: DeviceMesh | None) -> None:
        """The class has set its own ring up; here only its size and this rank's place are kept."""
        if mesh is not None and self.config.ring > 1:
            self.ring_size, self.ring_attn_rank = self.config.ring, mesh["ring"].get_local_rank()

    def create_optimizer(
        self,
        model: nn.Module,
        name: str = "adamw",
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> Optimizer:
        """The class's own optimizer on GPUs (it chooses which), PyTorch's on CPUs."""
        if self.device.type == "cpu" or not hasattr(self.inner, "create_optimizer"):
            return super().create_optimizer(model, name, lr, betas, eps, weight_decay)
        made: Optimizer = self.inner.create_optimizer(model, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        return made

    def prepare(self, *models_or_triples: Any) -> Any:
        """What the class's `prepare` gives."""
        placed = [
            (item[0].to(self.device), *item[1:]) if isinstance(item, tuple) else item.to(self.device)
            for item in models_or_triples
        ]
        return self.inner.prepare(*placed)

    def backward(self, loss: torch.Tensor, model: nn.Module, optimizer: Optimizer, name: str = "model") -> None:
        """The class's backward pass."""
        self.inner.backward(loss, model, optimizer, name=name)
        self._count(optimizer)

    def optimizer_step(
        self, optimizer: Optimizer, model: nn.Module, scheduler: Any | None, name: str = "model"
    ) -> torch.Tensor | None:
        """The class's step; the gradient norm where the class can tell it, else NaN."""
        self.inner.optimizer_step(optimizer, model, scheduler, name=name)
        if not self._due(optimizer):
            return None
        norm = self.inner.get_grad_norm(model) if hasattr(self.inner, "get_grad_norm") else float("nan")
        return torch.as_tensor(norm, dtype=torch.float32)

    def save_model(self, model: nn.Module, tokenizer: Any | None, output_dir: str) -> None:
        self.inner.save_model(model, tokenizer, output_dir)

    def load_model(self, model: nn.Module, path: str, strict: bool = True) -> None:
        self.inner.load_model(model, path, strict=strict)

    def _training(self, model: nn.Module, optimizer: Any, scheduler: Any, dataloader: Any) -> OwnCheckpoint:
        seed = self.config.random_seed
        return OwnCheckpoint({}, self.device, seed, dataloader=dataloader, model=model, inner=self.inner)

    def named_gradients(self, model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        """Whole gradients: through DeepSpeed's engine where there is one, else those of the parameters."""
        from bench.checkpoints.deepspeed_state import full_gradients

        yield from full_gradients(model)


def _use_cpu(module: ModuleType) -> None:
    """Let code written for CUDA set itself up on CPUs, in this process."""
    from deepspeed.ops import __compatible_ops__

    __compatible_ops__["deepspeed_shm_comm"] = False

    def cpu_mesh(device_type: str, *args: Any, **kwargs: Any) -> DeviceMesh:
        return init_device_mesh("cpu", *args, **kwargs)

    torch.cuda.set_device = lambda device: None
    if hasattr(module, "init_device_mesh"):
        module.init_device_mesh = cpu_mesh  # type: ignore[attr-defined]
    if dist.is_initialized() and dist.get_backend() != "gloo":
        raise RuntimeError("a CPU run needs the gloo backend")

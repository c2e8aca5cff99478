"""DeepSpeed: ZeRO stages 0 to 3, tensor parallelism through AutoTP, CPU offload, DeepCompile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from bench.checkpoints import deepspeed_state as state
from bench.checkpoints import weights
from bench.configuration import Configuration
from bench.measure.model import Actor, describe, layers_of, network_of
from bench.parallel import ring_attention
from bench.strategies import collectives, limits, optimizers, processes
from bench.strategies.compilation import compile_blocks
from bench.strategies.data import ResumableLoader, build_loader

SMALL_BUCKET = 16_000_000
"""Elements: less than most matrices of a model that fills a GPU."""
ALL_PARAMETERS = 10**12
"""Elements: more than a model has."""


class DeepspeedStrategy:
    """A DeepSpeed engine per trained model. DeepSpeed keeps the fp32 copies, scales fp16 and clips.

    The optimizer is PyTorch's own AdamW (fused on GPUs): DeepSpeed's would be compiled on first use.
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
        import deepspeed
        from deepspeed.ops import __compatible_ops__

        config = self.config
        self.device = processes.pick_device(config.device)
        limits.require(config, self.device.type)
        torch.manual_seed(config.random_seed)
        # Without this, a CPU run compiles a shared-memory backend for a minute; gloo does the same work.
        __compatible_ops__["deepspeed_shm_comm"] = False
        self.world_size = processes.join(self.device, timeout)
        os.environ.setdefault("LOCAL_RANK", str(processes.local_rank()))  # the engine insists on it
        deepspeed.init_distributed(dist_backend=dist.get_backend(), timeout=timeout, verbose=False)
        self.mesh = processes.build_mesh(self.device, config.dp, config.ring, config.tp)
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

    def _engine_config(self) -> dict[str, Any]:
        """DeepSpeed's configuration. Ring ranks count as data-parallel ones: they see different tokens."""
        config = self.config
        zero: dict[str, Any] = {"stage": config.zero_stage}
        if self.device.type == "cuda" and config.zero_stage in (1, 2):
            # The default is stage 3's alone. One rank has nothing to send, and waits for the second stream in vain.
            zero["overlap_comm"] = self.dp_size * self.ring_size > 1
        if self.dp_size * self.ring_size == 1:
            zero |= self._alone()
        if config.cpu_offload:
            zero["offload_optimizer"] = {"device": "cpu", "pin_memory": self.device.type == "cuda"}
        result: dict[str, Any] = {
            "train_micro_batch_size_per_gpu": config.rows,
            "gradient_accumulation_steps": self.accumulated_gradient,
            "gradient_clipping": 0.0 if self._clips_itself() else config.max_norm,
            "zero_optimization": zero,
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "bf16": {"enabled": config.dtype == "bf16"},
            "fp16": {"enabled": config.dtype == "fp16"},
            "wall_clock_breakdown": False,
            "steps_per_print": None,
        }
        if config.tp > 1:
            result["tensor_parallel"] = {"autotp_size": config.tp}
        if config.compile == "deepcompile":
            result["compile"] = {"deepcompile": True}
        return result

    def _alone(self) -> dict[str, Any]:
        """ZeRO's options for one rank, which keep DeepSpeed from copying gradients that no other rank waits for.

        A reduce-scatter divides them by one and at stage 3 joins them in one more buffer: an all-reduce does neither.
        At stages 1 and 2 gradients larger than a bucket are reduced where they lie. At stage 3 a rank alone gathers its
        parameters without a copy, so they may as well stay gathered.
        """
        if self.config.zero_stage == 3:
            return {"reduce_scatter": False, "stage3_param_persistence_threshold": ALL_PARAMETERS}
        return {"reduce_scatter": False, "reduce_bucket_size": SMALL_BUCKET}

    def _clips_itself(self) -> bool:
        """Whether the clipping is done here.

        ZeRO-0 reports no gradient norm in fp32, and in bf16 under AutoTP each rank clips by the norm of its own
        slices (DeepSpeed 0.19.8), and parameters that all of them hold drift apart.
        """
        return self.config.zero_stage == 0 and self.config.dtype != "fp16"

    def prepare(self, *models_or_triples: Any) -> Any:
        """Wrap models, or (model, optimizer, scheduler) triples; one argument gives one result, several a list."""
        prepared = [
            self._prepare_triple(*item) if isinstance(item, tuple) else self._prepare_triple(item, None, None)[0]
            for item in models_or_triples
        ]
        return prepared[0] if len(prepared) == 1 else prepared

    def _prepare_triple(self, model: nn.Module, optimizer: Optimizer | None, scheduler: Any) -> tuple[Any, Any, Any]:
        import deepspeed

        if self.config.tp > 1:
            limits.require(self.config, self.device.type, describe(network_of(model).config))
            # The dtype can be given here only: DeepSpeed prints its configuration as JSON, which holds no dtypes.
            deepspeed.tp_model_init(model, tp_size=self.config.tp, dtype=state.DTYPES[self.config.dtype])
        if self.config.compile == "blocks":
            self._compile_blocks(model)
        if self.config.zero_stage == 3 and isinstance(model, Actor):
            model.one_head_call = True
        config = self._engine_config()
        if optimizer is None and self.config.zero_stage < 3:
            config["zero_optimization"] = {"stage": 0}  # nothing to shard without an optimizer
        # The scheduler stays out: it holds the optimizer that DeepSpeed wraps, and is stepped here.
        engine, *_ = deepspeed.initialize(model=model.to(self.device), optimizer=optimizer, config=config)
        if optimizer is not None:
            state.forget_first_step(engine)
        if self.config.compile in ("full", "deepcompile"):
            engine.compile()
        return engine, optimizer, scheduler

    def _compile_blocks(self, model: nn.Module) -> None:
        """Compile each layer. ZeRO-3 gathers a layer's parameters as one then, not matrix by matrix: its hooks on
        the modules inside would break the graph at each of them."""
        if self.config.zero_stage == 3:
            from deepspeed.utils import set_z3_leaf_modules

            set_z3_leaf_modules(model, list({type(layer) for layer in layers_of(network_of(model))}))
        compile_blocks(model, inside_hooks=self.config.zero_stage == 3)

    def backward(self, loss: torch.Tensor, model: nn.Module, optimizer: Optimizer, name: str = "model") -> None:
        """Add the gradient of `loss`; the engine scales it so that the micro-batches of a step average."""
        model.backward(loss)
        self._micro_steps[optimizer] = self._micro_steps.get(optimizer, 0) + 1

    def optimizer_step(
        self, optimizer: Optimizer, model: nn.Module, scheduler: Any | None, name: str = "model"
    ) -> torch.Tensor | None:
        """Step after the last micro-batch; the gradient norm before clipping, or None when it is not yet time."""
        engine: Any = model
        due = self._micro_steps.get(optimizer, 0) % self.accumulated_gradient == 0
        norm = None
        if due and self._clips_itself():
            group = self.mesh["tp"].get_group() if self.mesh is not None and self.tp_size > 1 else None
            norm = state.clip_(engine, self.config.max_norm, group)
        engine.step()
        if not due:
            return None
        if scheduler is not None and engine.was_step_applied():
            scheduler.step()
        if norm is None:
            norm = torch.as_tensor(engine.get_global_grad_norm() or 0.0, dtype=torch.float32)
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
        """Batches of this data-parallel rank; ring and tensor-parallel neighbours read the same."""
        return build_loader(
            replay_buffer, batch_size, num_replicas=self.dp_size, rank=self.dp_rank, seed=self.config.random_seed,
            pin_memory=pin_memory, shuffle=shuffle, collate_fn=collate_fn, drop_last=drop_last,
            consumed_samples=consumed_samples,
        )  # fmt: skip

    def save_model(self, model: nn.Module, tokenizer: Any | None, output_dir: str) -> None:
        """A Hugging Face directory in the training dtype."""
        named = ((n.removeprefix("model."), t) for n, t in state.full_parameters(model))
        weights.save_pretrained(model, named, tokenizer, output_dir, self.config.dtype)

    def load_model(self, model: nn.Module, path: str, strict: bool = True) -> None:
        """Read a Hugging Face directory into the model, prepared or not."""
        network = dict(network_of(model).named_parameters())
        seen = set()
        for name, tensor in weights.read_pretrained(path):
            seen.add(name)
            if name in network:
                state.set_parameter(model, network[name], tensor)
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
        parts = state.Parts(model, self.device, self.config.random_seed, optimizer, scheduler, dataloader)
        return state.save(parts, save_dir, tag, client_state, max_num=max_num, max_mem=max_mem, save_latest=save_latest)

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
        parts = state.Parts(model, self.device, self.config.random_seed, optimizer, scheduler, dataloader)
        return state.load(
            parts, load_dir, tag, strict=load_module_strict, optimizer_states=load_optimizer_states,
            scheduler_states=load_lr_scheduler_states, module_only=load_module_only,
        )  # fmt: skip

    def all_reduce(self, data: Any, op: str = "mean") -> Any:
        """Over all ranks, for tensors, numbers and dictionaries; `op` is mean, sum or max."""
        return collectives.reduce_value(data, op, self.device)

    def all_gather(self, data: Any) -> Any:
        """Over all ranks, concatenated along dimension 0 in rank order."""
        return collectives.gather_value(data, self.device)

    def named_gradients(self, model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        """Whole gradients in fp32 as the optimizer would see them, before clipping."""
        yield from state.full_gradients(model)

    def get_rank(self) -> int:
        return processes.rank()

    def is_rank_0(self) -> bool:
        return processes.rank() == 0

    def print(self, *messages: object) -> None:
        """Print on rank 0 only."""
        if self.is_rank_0():
            print(*messages, flush=True)

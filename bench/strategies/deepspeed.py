"""DeepSpeed: ZeRO stages 0 to 3, tensor parallelism through AutoTP, CPU offload, DeepCompile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from bench import backends
from bench.checkpoints import deepspeed_state as state
from bench.configuration import Configuration
from bench.measure.clock import DTYPES
from bench.measure.model import Actor, layers_of, network_of
from bench.strategies import deepspeed_passes as passes
from bench.strategies import limits, processes
from bench.strategies.base import Strategy
from bench.strategies.compilation import compile_blocks

SMALL_BUCKET = 16_000_000
"""Elements: less than most matrices of a model that fills a GPU."""
ALL_PARAMETERS = 10**12
"""Elements: more than a model has."""


class DeepspeedStrategy(Strategy):
    """A DeepSpeed engine per trained model. DeepSpeed keeps the fp32 copies, scales fp16 and clips.

    The optimizer is PyTorch's own AdamW (fused on GPUs): DeepSpeed's would be compiled on first use.
    """

    def __init__(self, config: Configuration) -> None:
        super().__init__(config)
        self._whole_gradients: WeakKeyDictionary[Any, passes.WholeGradients] = WeakKeyDictionary()

    def _join(self, timeout: timedelta) -> None:
        import deepspeed
        from deepspeed.ops import __compatible_ops__

        # Without this, a CPU run compiles a shared-memory backend for a minute; gloo does the same work.
        __compatible_ops__["deepspeed_shm_comm"] = False
        super()._join(timeout)
        os.environ.setdefault("LOCAL_RANK", str(processes.local_rank()))  # the engine insists on it
        deepspeed.init_distributed(dist_backend=dist.get_backend(), timeout=timeout, verbose=False)

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
            # On by default, it waits for the device before and after every step: a GPU then stands still at the
            # beginning of each forward pass, until the host has launched something.
            "timers": {"throughput": {"enabled": False}},
            "steps_per_print": None,
        }
        if config.tp > 1:
            result["tensor_parallel"] = {"autotp_size": config.tp}
        if config.compile == "deepcompile":
            result["compile"] = {"deepcompile": True}
        return result

    def _alone(self) -> dict[str, Any]:
        """ZeRO's options for one rank. Where `_leave_out_passes` finds the DeepSpeed that it knows, no gradient is
        reduced at all; elsewhere these keep it from copying gradients that no other rank waits for.

        A reduce-scatter divides them by one and at stage 3 joins them in one more buffer: an all-reduce does neither.
        At stages 1 and 2 gradients larger than a bucket are reduced where they lie. At stage 3 a rank alone gathers its
        parameters without a copy, so they may as well stay gathered.
        """
        if self.config.zero_stage == 3:
            return {"reduce_scatter": False, "stage3_param_persistence_threshold": ALL_PARAMETERS}
        return {"reduce_scatter": False, "reduce_bucket_size": SMALL_BUCKET}

    def _leave_out_passes(self, engine: Any) -> None:
        if self.config.zero_stage == 0 or self.config.cpu_offload:
            return
        passes.norms_at_once(engine.optimizer)
        passes.leave_overflow_to_the_norm(engine.optimizer)
        if not backends.find(self.config.backend).keeps_whole_gradients(self.config):
            return
        if self.config.zero_stage == 3:
            self._whole_gradients[engine] = passes.WholeGradients(engine.optimizer)
        else:
            passes.keep_whole_gradients(engine.optimizer)

    def _clips_itself(self) -> bool:
        """Whether the clipping is done here.

        ZeRO-0 reports no gradient norm in fp32, and in bf16 under AutoTP each rank clips by the norm of its own
        slices (DeepSpeed 0.19.8), and parameters that all of them hold drift apart.
        """
        return self.config.zero_stage == 0 and self.config.dtype != "fp16"

    def _prepare_triple(self, model: nn.Module, optimizer: Optimizer | None, scheduler: Any) -> tuple[Any, Any, Any]:
        import deepspeed

        if self.config.tp > 1:
            limits.require(self.config, self.device.type, network_of(model).config)
            # The dtype can be given here only: DeepSpeed prints its configuration as JSON, which holds no dtypes.
            deepspeed.tp_model_init(model, tp_size=self.config.tp, dtype=DTYPES[self.config.dtype])
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
            self._leave_out_passes(engine)
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
        model.backward(loss)  # the engine scales it
        self._count(optimizer)

    def optimizer_step(
        self, optimizer: Optimizer, model: nn.Module, scheduler: Any | None, name: str = "model"
    ) -> torch.Tensor | None:
        engine: Any = model
        due = self._due(optimizer)
        norm = None
        if due and self._clips_itself():
            group = self.mesh["tp"].get_group() if self.mesh is not None and self.tp_size > 1 else None
            norm = state.clip_(engine, self.config.max_norm, group)
        engine.step()
        if not due:
            return None
        if engine in self._whole_gradients:
            self._whole_gradients[engine].release()
        if scheduler is not None and engine.was_step_applied():
            scheduler.step()
        if norm is None:
            # Not `or 0.0`: asking a tensor whether it is zero waits for the GPU, at the end of each step.
            found = engine.get_global_grad_norm()
            norm = torch.as_tensor(0.0 if found is None else found, dtype=torch.float32)
        return norm

    def _network_parameters(self, model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        return ((name.removeprefix("model."), tensor) for name, tensor in state.full_parameters(model))

    def _write_parameter(self, model: nn.Module, name: str, parameter: torch.Tensor, value: torch.Tensor) -> None:
        state.set_parameter(model, parameter, value)

    def _training(self, model: nn.Module, optimizer: Any, scheduler: Any, dataloader: Any) -> state.EngineTraining:
        seed = self.config.random_seed
        return state.EngineTraining({}, self.device, seed, optimizer, scheduler, dataloader, engine=model)

    def named_gradients(self, model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        yield from state.full_gradients(model)

"""What a strategy is told: backend choices and sizes, nothing about models, data or measuring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

DtypeName = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True)
class StrategyConfig:
    """Sizes count processes; batch sizes count samples.

    `train_batch_size` is the number of samples of one optimizer step over all data-parallel ranks,
    `micro_batch_size` the number that one rank puts through one forward pass. `reshard_after_forward` and
    `reduce_dtype` (of 16-bit gradients) belong to FSDP2, `zero_stage` and `deepcompile` to
    DeepSpeed; the others hold for every backend.
    """

    backend: str = "ddp"
    world_size: int = 1
    tp: int = 1
    ring: int = 1
    zero_stage: int = 2
    train_batch_size: int = 1
    micro_batch_size: int = 1
    dtype: DtypeName = "fp32"
    max_norm: float = 1.0
    cpu_offload: bool = False
    reshard_after_forward: bool = True
    reduce_dtype: DtypeName = "fp32"
    sequence_parallel: bool = False
    tp_plan: Literal["hf", "optimized", "llama"] = "hf"
    async_tp: bool = False
    compile: Literal["none", "blocks", "full", "deepcompile"] = "none"
    attn: str = "sdpa"
    packing: bool = True
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: int = 42

    @property
    def dp(self) -> int:
        """Replicas of the data: what remains of the world after the ring and tensor-parallel sizes."""
        return self.world_size // (self.ring * self.tp)

    def accumulation(self) -> int:
        """Micro-batches per optimizer step on each data-parallel rank (at least 1 when the sizes fit)."""
        return self.train_batch_size // (self.micro_batch_size * self.dp)

    def sizes(self) -> dict[str, Any]:
        """The quantities that parallelism constraints speak of, by their usual names."""
        return {
            "backend": self.backend, "world_size": self.world_size, "tp": self.tp, "ring": self.ring,
            "zero_stage": self.zero_stage, "train_batch_size": self.train_batch_size,
            "micro_batch_size": self.micro_batch_size, "dtype": self.dtype, "packing": self.packing,
            "attn": self.attn, "compile": self.compile, "sequence_parallel": self.sequence_parallel,
        }  # fmt: skip

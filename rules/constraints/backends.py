"""What backends and frameworks do by themselves: how they split heads, which sizes they offer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Backend:
    """A backend's own way of splitting a model.

    `kv_heads`: "shard" when each rank must get whole key/value heads, "repeat" when a head may be held by
    several ranks, "uneven" when ranks may get different numbers of heads. `splits` are the model-parallel
    sizes that it offers. `even_mlp` tells whether the MLP size must divide by tp.
    """

    kv_heads: str
    splits: frozenset[str]
    even_mlp: bool
    source: str


BACKENDS: Mapping[str, Backend] = {
    "ddp": Backend(
        "shard", frozenset({"ring"}), False,
        "torch 2.13 torch.nn.parallel.DistributedDataParallel: replicates the whole module",
    ),
    "fsdp2": Backend(
        "shard", frozenset({"tp", "ring", "ulysses", "ep"}), False,
        "OpenRLHF 94074f7e openrlhf/utils/fsdp2/fsdp2.py:587-595; "
        "NeMo RL 7ea279ab nemo_rl/models/dtensor/parallelize.py:666-671",
    ),
    "deepspeed": Backend(
        "uneven", frozenset({"tp", "ring", "ulysses", "pp", "ep"}), False,
        "deepspeed 0.19.8 deepspeed/module_inject/tp_shard.py get_shard_size",
    ),
    "megatron": Backend(
        "repeat", frozenset({"tp", "ring", "pp", "ep"}), True,
        "megatron-core 0.16.1 transformer/transformer_config.py:939-946",
    ),
    "torchtitan": Backend(
        "shard", frozenset({"tp", "ring", "pp", "ep"}), False,
        "torchtitan b5bcd76c torchtitan/models/common/decoder.py:185-199",
    ),
    "colossalai": Backend(
        "shard", frozenset({"tp", "ring", "ulysses", "pp", "ep"}), True,
        "ColossalAI 4f9953be colossalai/shardformer/policies/mistral.py:62-67",
    ),
}  # fmt: skip

FRAMEWORKS: Mapping[str, Mapping[str, Any]] = {
    # OpenRLHF substitutes the llama3 kernel through ring_flash_attn's Hugging Face adapter, supplies the
    # name that transformers dropped, and pads packed samples to the ring (ring_attn_utils.py:82-95).
    "openrlhf": {
        "ring_impl": "llama3", "ring_hf_adapter": True, "pads_sequence": True, "ulysses": 1, "pp": 1, "ep": 1,
    },
    # verl pads to the Ulysses size (verl/utils/ulysses.py ulysses_pad) and has no ring.
    "verl": {"pads_sequence": True, "ring": 1},
    "trl": {},
}  # fmt: skip
"""What naming a framework implies; a value that the caller gives wins."""

GROUP_BASELINES = ("rloo", "reinforce_baseline", "group_norm", "dr_grpo", "grpo")
"""Advantage estimators that compare the samples of one prompt with each other."""

"""What a constraint speaks of: sizes, batches, the model's shape, settings and versions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rules.constraints.backends import BACKENDS, FRAMEWORKS

PARALLEL_SIZES = ("tp", "ring", "ulysses", "pp")
"""The sizes whose product is one model replica; what remains of the world is data parallel."""


@dataclass(frozen=True)
class Quantities:
    """One configuration, as far as it is known: None means unknown, and unknown is never guessed.

    Sizes count processes (one per GPU), batch sizes count samples, lengths count tokens. A dense model has
    `experts=0`. Build one with `Quantities.of(...)`, which takes what a backend or framework implies.
    """

    # where it runs
    world_size: int | None = None
    num_nodes: int | None = None
    procs_per_node: int | None = None
    gpus_per_node: int | None = None
    device: str | None = None
    # how it is split
    dp: int | None = None
    dp_replicate: int | None = None
    dp_shard: int | None = None
    tp: int | None = None
    ring: int | None = None
    ulysses: int | None = None
    pp: int | None = None
    virtual_pp: int | None = None
    ep: int | None = None
    expert_tp: int | None = None
    hpz: int | None = None
    # samples and tokens
    train_batch_size: int | None = None
    micro_batch_size: int | None = None
    grad_accum: int | None = None
    mini_batch_size: int | None = None
    rollout_batch_size: int | None = None
    micro_rollout_batch_size: int | None = None
    samples_per_prompt: int | None = None
    generation_batch_size: int | None = None
    dynamic_batch: bool | None = None
    seq_len: int | None = None
    pads_sequence: bool | None = None
    # the model
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    hidden: int | None = None
    mlp: int | None = None
    layers: int | None = None
    vocab: int | None = None
    experts: int | None = None
    max_position_embeddings: int | None = None
    attn_softcap: bool | None = None
    # settings
    framework: str | None = None
    backend: str | None = None
    kv_heads_policy: str | None = None
    zero_stage: int | None = None
    dtype: str | None = None
    fp16: bool | None = None
    bf16: bool | None = None
    attn: str | None = None
    packing: bool | None = None
    max_length_type: str | None = None
    sequence_parallel: bool | None = None
    vocab_parallel: bool | None = None
    embedding_split: str | None = None
    compile: str | None = None
    ring_impl: str | None = None
    ring_head_stride: int | None = None
    ring_import_shim: bool | None = None
    ring_hf_adapter: bool | None = None
    offload_optimizer: bool | None = None
    offload_param: bool | None = None
    loads_on_one_rank: bool | None = None
    syncs_module_states: bool | None = None
    optimizer: str | None = None
    # reinforcement learning: GPUs of each role, and the generation engines
    cluster_gpus: int | None = None
    actor_gpus: int | None = None
    critic_gpus: int | None = None
    ref_gpus: int | None = None
    reward_gpus: int | None = None
    engines: int | None = None
    engine_tp: int | None = None
    engine_share: float | None = None
    colocate_all: bool | None = None
    colocate_actor_ref: bool | None = None
    colocate_critic_reward: bool | None = None
    asynchronous: bool | None = None
    engine_sleep: bool | None = None
    partial_rollout: bool | None = None
    advantage: str | None = None
    # how the engines sample, and whether the loss weighs tokens by the ratio of the trainer's probabilities to theirs
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    temperature: float | None = None
    engine_dtype: str | None = None
    engine_logprobs: str | None = None
    engine_returns_logprobs: bool | None = None
    ratio_to_engine: bool | None = None
    # versions, as the packages print them
    torch_version: str | None = None
    transformers_version: str | None = None
    deepspeed_version: str | None = None
    flash_attn_version: str | None = None
    ring_flash_attn_version: str | None = None

    @classmethod
    def of(cls, **known: Any) -> Quantities:
        """Quantities from names, with what the named backend and framework imply where nothing is said.

        Raises TypeError naming a quantity that does not exist.
        """
        unknown = sorted(set(known) - NAMES)
        if unknown:
            raise TypeError(f"no such quantity: {', '.join(unknown)}")
        implied: dict[str, Any] = {}
        if known.get("framework") in FRAMEWORKS:
            implied.update(FRAMEWORKS[known["framework"]])
        if known.get("backend") in BACKENDS:
            implied.setdefault("kv_heads_policy", BACKENDS[known["backend"]].kv_heads)
        given = {name: value for name, value in known.items() if value is not None}
        return cls(**{**implied, **given})

    def with_unit_sizes(self) -> Quantities:
        """Every unknown parallel size becomes 1: for callers that know that what is not named is 1."""
        names = (*PARALLEL_SIZES, "ep")
        return self.replace(**{name: 1 for name in names if getattr(self, name) is None})

    def replace(self, **changes: Any) -> Quantities:
        """A copy with other values."""
        return dataclasses.replace(self, **changes)

    def known(self) -> dict[str, Any]:
        """The quantities that have a value, by name."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}


FIELDS = tuple(field.name for field in dataclasses.fields(Quantities))
NAMES = frozenset(FIELDS)

_SWITCHES = (
    "packing", "dynamic_batch", "sequence_parallel", "vocab_parallel", "offload_optimizer", "offload_param",
    "asynchronous", "engine_sleep", "partial_rollout", "ring_import_shim", "ring_hf_adapter", "fp16", "bf16",
    "engine_returns_logprobs", "ratio_to_engine", "loads_on_one_rank", "syncs_module_states",
)  # fmt: skip

CHOICES: Mapping[str, tuple[Any, ...]] = {
    "zero_stage": (0, 1, 2, 3),
    "dtype": ("bf16", "fp16", "fp32"),
    "engine_dtype": ("bf16", "fp16", "fp32"),
    "engine_logprobs": ("processed", "raw"),
    "attn": ("flash_attention_2", "sdpa", "flex", "eager"),
    "compile": ("none", "blocks", "full", "deepcompile"),
    "device": ("cuda", "cpu"),
    "ring_impl": ("zigzag", "llama3", "ring", "sdpa"),
    "max_length_type": ("int", "tensor"),
    "embedding_split": ("rows", "columns"),
    **dict.fromkeys(_SWITCHES, (True, False)),
}
"""Values to try, in order, for quantities that are not plain sizes."""


def model_parallel(q: Quantities) -> int | None:
    """Processes of one model replica: tp × ring × ulysses × pp; None while one of them is unknown."""
    product = 1
    for name in PARALLEL_SIZES:
        size = getattr(q, name)
        if size is None:
            return None
        product *= size
    return product


def replica_text(q: Quantities) -> str:
    """The sizes of one model replica that matter, multiplied out: `tp 2 × ring 2 = 4`, or `tp 3`."""
    sizes = [f"{name} {size}" for name in PARALLEL_SIZES if (size := getattr(q, name)) not in (None, 1)]
    product = f" = {model_parallel(q)}" if len(sizes) > 1 else ""
    return " × ".join(sizes or ["tp 1"]) + product


def data_parallel(q: Quantities) -> int | None:
    """Data-parallel replicas: `dp` where it is given, else world_size over one replica; None if unknown."""
    if q.dp is not None:
        return q.dp
    replica = model_parallel(q)
    if q.world_size is None or not replica or replica < 1:
        return None
    return q.world_size // replica


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version's release part: `2.13.0+cpu` and `2.13` compare equal as (2, 13)."""
    numbers: list[int] = []
    for part in version.split("+")[0].split("."):
        digits = ""
        for character in part:
            if character not in "0123456789":
                break
            digits += character
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def describe(name: str) -> str:
    """The words for a quantity in a message: `tp` is `tensor-parallel size (tp)`."""
    return WORDS.get(name, name.replace("_", " "))


WORDS = {
    "tp": "tensor-parallel size (tp)",
    "ring": "ring attention size (ring)",
    "ulysses": "Ulysses size (ulysses)",
    "pp": "pipeline-parallel size (pp)",
    "ep": "expert-parallel size (ep)",
    "dp": "data-parallel size (dp)",
    "hpz": "hierarchical partition size (hpz)",
    "heads": "attention heads",
    "kv_heads": "key/value heads",
    "mlp": "MLP size",
    "hidden": "hidden size",
    "vocab": "vocabulary size",
    "attn": "attention implementation",
    "grad_accum": "gradient accumulation steps",
    "seq_len": "sequence length",
    "ring_impl": "ring attention kernel",
    "engine_tp": "tensor-parallel size of the generation engines",
    "procs_per_node": "processes per node",
    "engine_share": "share of a GPU's memory that a generation engine takes",
    "engine_dtype": "type that the generation engines compute in",
    "engine_returns_logprobs": "log-probabilities from the engines",
}

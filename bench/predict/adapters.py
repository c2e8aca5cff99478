"""Low-rank adapters beside frozen weights, and frozen weights in 4 bits. No torch needed.

Read off PEFT 0.21 (`tuners/lora/layer.py`, `tuners/tuners_utils.py`) and the QLoRA paper (Dettmers and others, 2023,
section 3): an adapter of a linear layer is two matrices, rank x inputs and outputs x rank; `all-linear` are all linear
layers but the head; bitsandbytes stores linear layers other than the head in 4 bits, one scale for 64 of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from rules.models import ModelError, ModelFacts

ALL_LINEAR = "all-linear"
FOUR_BITS = 0.5 + 4 / 64
"""Bytes of a weight in 4 bits, with its share of a scale in fp32."""
FOUR_BITS_NESTED = 0.5 + (1 + 4 / 256) / 64
"""The same where scales are quantised in turn, to 8 bits, with one in fp32 for 256 of them."""


@dataclass(frozen=True)
class Adapters:
    """What is trained of a frozen model. `casts` says whether adapters are kept in another type than the model computes
    in: PEFT gives each a copy of its input."""

    rank: int
    targets: tuple[str, ...] = (ALL_LINEAR,)
    dropout: bool = False
    casts: bool = False


def projections(facts: ModelFacts) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of the linear layers of one decoder layer. Raises `ModelError` where they are not known one by
    one: mixtures of experts, latent attention, fused projections."""
    if not facts.separate_projections:
        raise ModelError(
            f"{facts.name}: the linear layers of model type {facts.model_type!r} are not known one by one, so that "
            "adapters and 4-bit weights cannot be counted"
        )
    queries, keys = facts.heads * facts.head_dim, facts.kv_heads * facts.head_dim
    return {
        "q_proj": (facts.hidden, queries), "k_proj": (facts.hidden, keys), "v_proj": (facts.hidden, keys),
        "o_proj": (queries, facts.hidden), "gate_proj": (facts.hidden, facts.mlp), "up_proj": (facts.hidden, facts.mlp),
        "down_proj": (facts.mlp, facts.hidden),
    }  # fmt: skip


def adapted(facts: ModelFacts, adapters: Adapters) -> list[tuple[int, int]]:
    """Inputs and outputs of the layers that have an adapter, of one decoder layer. Raises `ModelError`."""
    known = projections(facts)
    if adapters.targets == (ALL_LINEAR,):
        return list(known.values())
    strange = next((name for name in adapters.targets if name not in known), None)
    if strange is not None:
        raise ModelError(f"{facts.name} has no linear layer {strange!r}, only {', '.join(known)}")
    return [known[name] for name in adapters.targets]


def elements(facts: ModelFacts, adapters: Adapters) -> float:
    """Parameters of all adapters. Raises `ModelError`."""
    return float(facts.layers * adapters.rank * sum(map(sum, adapted(facts, adapters))))


def kept(facts: ModelFacts, adapters: Adapters, item: int) -> float:
    """Bytes per token of one decoder layer that adapters keep for the backward pass, beside what the layer keeps."""
    layers = adapted(facts, adapters)
    of_inputs = item * adapters.casts + (item + 1) * adapters.dropout  # dropout: what it gives and its mask
    return float(item * adapters.rank * len(layers) + of_inputs * sum(inputs for inputs, _ in layers))


def linear_elements(facts: ModelFacts) -> float:
    """Weights of all linear layers but the head: what is stored in 4 bits. Raises `ModelError`."""
    return float(facts.layers * sum(map(prod, projections(facts).values())))


def largest(facts: ModelFacts) -> float:
    """Weights of the largest of them: it is there in 16 bits while it is used."""
    return float(max(map(prod, projections(facts).values())))

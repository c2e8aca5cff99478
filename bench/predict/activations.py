"""What a forward pass keeps for the backward pass, in bytes per GPU: layers, final norm and head.

Counted from the code of transformers' decoder layers and of `bench.measure.model.Actor`: a tensor is counted where
autograd keeps it. Nothing here is fitted.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench import backends
from bench.predict.adapters import kept
from bench.predict.layout import Layout
from rules.models import ModelFacts

CHUNK = 1024
"""Positions whose logits the chunked head holds at a time: `bench.measure.model.HEAD_CHUNK`, which would load torch."""


@dataclass(frozen=True)
class LayerConstants:
    """Tensors that a layer keeps per token, read off its code.

    A norm run eagerly keeps its input in fp32, the normalised rows and its result. The attention keeps what it reads
    (queries, keys, values) and writes; the MLP the gate, its activation, the up projection and their product. A
    compiled layer keeps input and result of its norms, and computes the activation again.
    """

    eager_norm_copies: float = 2.0
    compiled_norm_copies: float = 2.0
    eager_mlp: float = 4.0
    compiled_mlp: float = 3.0
    attention_io: float = 2.0
    eager_scores: float = 6.0
    """Bytes per attention score that eager attention keeps: the softmax in fp32 and its 16-bit copy."""


LAYER = LayerConstants()


@dataclass(frozen=True)
class HeadBytes:
    """Logits and what is computed from them, at the end of the forward and the start of the backward pass;
    `weight` is the gradient of the head's weight, where it is there at the same time."""

    forward: float
    backward: float
    weight: float = 0.0


def layer_bytes(facts: ModelFacts, layout: Layout, in_flight: float = 1.0) -> float:
    """Bytes kept for the backward pass over all layers by so many micro-batches, and the layer that is recomputed if
    any are."""
    layer = layout.tokens * _per_token(facts, layout)
    if not layout.checkpointing:
        return in_flight * facts.layers * layer
    inputs = facts.layers * layout.tokens * facts.hidden * layout.item / _sequence_split(layout)
    return in_flight * inputs + layer


def norm_bytes(facts: ModelFacts, layout: Layout) -> float:
    """What the final norm keeps: its input in fp32, the normalised rows, its result."""
    return layout.tokens * facts.hidden * (4 + LAYER.eager_norm_copies * layout.item)


def _sequence_split(layout: Layout) -> int:
    return layout.tp if layout.sequence_parallel else 1


def _per_token(facts: ModelFacts, layout: Layout) -> float:
    item = layout.item
    norm = LAYER.compiled_norm_copies * item if layout.compiled else 4 + LAYER.eager_norm_copies * item
    mlp = LAYER.compiled_mlp if layout.compiled else LAYER.eager_mlp
    split = (
        LAYER.attention_io * (facts.heads + facts.kv_heads) * facts.head_dim + mlp * mlp_width(facts)
    ) * item / layout.tp  # fmt: skip
    scores = facts.heads / layout.tp * layout.seq_len * LAYER.eager_scores if layout.eager_attention else 0.0
    of_adapters = kept(facts, layout.adapters, item) / layout.tp if layout.adapters else 0.0
    whole = 2 * norm * facts.hidden / _sequence_split(layout) + dispatched_width(facts) * item
    return whole + split + scores + of_adapters


def mlp_width(facts: ModelFacts) -> float:
    """MLP width that one token passes through, averaged over the layers."""
    if not facts.experts:
        return float(facts.mlp)
    sparse = facts.layers - facts.dense_layers
    routed = facts.experts_per_token * facts.moe_mlp + facts.shared_mlp
    return (sparse * routed + facts.dense_layers * facts.mlp) / facts.layers


def dispatched_width(facts: ModelFacts) -> float:
    """Copies of a token on their way to its experts and back, in elements per layer."""
    return 2.0 * facts.experts_per_token * facts.hidden if facts.experts else 0.0


def splits_vocabulary(facts: ModelFacts, layout: Layout) -> bool:
    """Whether tensor-parallel ranks hold logits of their part of the vocabulary only. A tied head is split where the
    embedding is."""
    backend = backends.find(layout.backend)
    split = backend.splits_vocabulary and (backend.splits_embedding or not facts.tied)
    return split and layout.tp > 1 and layout.head != "liger"


def head_bytes(facts: ModelFacts, layout: Layout, weight: float, chunk_backward: float) -> HeadBytes:
    """The head of one micro-batch; `weight` is its gradient in bytes, `chunk_backward` bytes per logit of a chunk.

    `full` keeps 16-bit logits, fp32 ones and their log-softmax, and in the backward pass the log-softmax and two
    gradients in fp32. `compiled` keeps 16-bit logits and makes a gradient of them. `chunked` holds this for `CHUNK`
    positions, beside the weight's gradient. ZeRO-3 calls the head once, so that only its softmax is in chunks.
    """
    item = layout.item
    vocabulary = facts.vocab / (layout.tp if splits_vocabulary(facts, layout) else 1)
    logits = layout.tokens * vocabulary
    softmax = (item if item < 4 else 0) + 8.0
    if layout.head == "compiled":
        return HeadBytes(item * logits, item * logits + max(item * logits, weight))
    if layout.head == "full":
        return HeadBytes(softmax * logits, max(12.0 * logits, item * logits + weight))
    chunk = min(layout.tokens, CHUNK) * vocabulary
    if layout.head == "chunked" and backends.find(layout.backend).gathers_head_whole(layout):
        # Slices of one tensor: the gradient of each is written into a whole one, so there is no weight's yet.
        return HeadBytes(item * logits + softmax * chunk, 2 * item * logits + (chunk_backward - item) * chunk)
    return HeadBytes(softmax * chunk, chunk_backward * chunk, weight)

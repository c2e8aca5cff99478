"""The work of one token: floating-point operations, and bytes that a GPU sends for it. No torch needed.

Conventions: a multiply-add is two operations; the backward pass costs twice the forward; the embedding
look-up costs nothing; attention counts the causal half unless told otherwise; recomputation is counted
separately, so that model FLOP/s and hardware FLOP/s can both be had.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench import backends
from bench.predict.layout import ITEM_SIZE, Layout
from rules.models import ModelFacts


@dataclass(frozen=True)
class TokenFlops:
    """Operations per token, forward and backward: matrix products with weights, attention, recomputation."""

    weights: float
    attention: float
    recomputed: float

    @property
    def model(self) -> float:
        """What the model needs, recomputation aside: the numerator of model FLOP/s utilisation."""
        return self.weights + self.attention

    @property
    def hardware(self) -> float:
        """What the GPU carries out."""
        return self.model + self.recomputed


def matrix_parameters(facts: ModelFacts) -> int:
    """Parameters that one token is multiplied with: all active ones, the head, not the embedding's rows."""
    embedding = 0 if facts.tied else facts.vocab * facts.hidden
    return facts.active_parameters - embedding - facts.counts.norms


def per_token(facts: ModelFacts, context: float, *, causal: bool = True, checkpointing: bool = False) -> TokenFlops:
    """Operations per token at a sequence of `context` tokens (for a pack: Σl² / Σl)."""
    weights = 6.0 * matrix_parameters(facts)
    attention = 12.0 * facts.layers * _score_width(facts) * context / (2 if causal else 1)
    head = 6.0 * facts.vocab * facts.hidden
    recomputed = (weights - head + attention) / 3 if checkpointing else 0.0
    return TokenFlops(weights, attention, recomputed)


def _score_width(facts: ModelFacts) -> float:
    """Mean of the widths of QKᵀ and of the product with the values."""
    value = facts.v_head_dim or facts.head_dim
    return facts.heads * (facts.head_dim + value) / 2


@dataclass(frozen=True)
class TokenTraffic:
    """Bytes that a GPU sends per token that it is good for, by what they are for.

    The ranks of a tensor-parallel group work on the same tokens: each is good for 1/tp of them.
    """

    data_parallel: float
    tensor_parallel: float
    ring: float

    @property
    def total(self) -> float:
        return self.data_parallel + self.tensor_parallel + self.ring


def traffic(facts: ModelFacts, layout: Layout) -> TokenTraffic:
    """Bytes that one GPU sends per token that it is good for, with ring algorithms for the collectives."""
    item = ITEM_SIZE[layout.dtype]
    reduce_share = (layout.tp - 1) / layout.tp
    # Two all-reduces forward and two backward in each layer, each sending 2·(n-1)/n of its input.
    tensor = layout.tp * facts.layers * 4 * 2 * reduce_share * facts.hidden * item
    # Keys and values go round once forward; backward they go round again with their gradients.
    ring = facts.layers * 3 * 2 * (layout.ring - 1) * facts.kv_heads * facts.head_dim * item
    step_tokens = max(layout.tokens * layout.grad_accum / layout.tp, 1.0)
    return TokenTraffic(_data_parallel_bytes(facts, layout) / step_tokens, tensor, ring)


def _data_parallel_bytes(facts: ModelFacts, layout: Layout) -> float:
    """Bytes that a GPU sends in one optimizer step to reduce gradients and gather parameters."""
    share = (layout.shards - 1) / layout.shards
    once = facts.parameters / layout.tp * ITEM_SIZE[layout.dtype] * share
    return once * backends.find(layout.backend).times_sent(layout)


@dataclass(frozen=True)
class Speeds:
    """What turns work into an estimate of time: good for an order, not for a promise.

    Traffic hides behind computation up to `overlapped_*` of it: data-parallel traffic behind all of it, the
    ring's behind attention, tensor-parallel traffic behind nothing. Figures of H200s in one node (8B
    parameters, 8k tokens: 583 TFLOP/s on one GPU; FSDP2 on four keeps 91% of that).
    """

    flops: float = 580e12
    """Operations per second that a layer sustains."""
    within_node: float = 300e9
    """Bytes per second that a GPU sends to others of its node."""
    between_nodes: float = 45e9
    """Bytes per second that a GPU sends to other nodes."""
    overlapped_data_parallel: float = 0.6
    overlapped_ring: float = 0.9


SPEEDS = Speeds()


def seconds_per_token(
    flops: TokenFlops, sent: TokenTraffic, layout: Layout, gpus_per_node: int, speeds: Speeds = SPEEDS
) -> float:
    """Estimated time that a GPU takes per token that it is good for.

    Ranks are laid out with tp innermost, then ring, then dp: a group that spans nodes gets their bandwidth.
    """

    def rate(span: int) -> float:
        return speeds.within_node if span <= gpus_per_node else speeds.between_nodes

    computing = flops.hardware / speeds.flops
    ring_group = layout.tp * layout.ring
    return (
        computing
        + sent.tensor_parallel / rate(layout.tp)
        + _exposed(sent.ring / rate(ring_group), flops.attention / speeds.flops, speeds.overlapped_ring)
        + _exposed(sent.data_parallel / rate(ring_group * layout.dp), computing, speeds.overlapped_data_parallel)
    )


def _exposed(sending: float, computing: float, share: float) -> float:
    """Seconds of sending that computation does not hide: no more than a share of either can be hidden."""
    return sending - share * min(sending, computing)

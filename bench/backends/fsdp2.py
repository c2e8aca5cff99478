"""FSDP2: parameters are the masters, sharded over all ranks. Source of the memory model: `foreach_reduce` in
`torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py` of torch 2.11."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.backends import Backend
from bench.predict.layout import ITEM_SIZE, Layout
from bench.predict.moments import Constants, Elements, Moments, resident
from rules.models import ModelFacts

if TYPE_CHECKING:
    from bench.configuration import Configuration
    from bench.strategies.base import Strategy


class FSDP2(Backend):
    name = "fsdp2"
    first = True
    own = ("reshard_after_forward", "reduce_dtype")
    tried = ("fsdp2",)
    debugged_whole = True
    splits_vocabulary = True
    overlaps_tp = True
    offloads_parameters = True

    def strategy(self, config: Configuration) -> Strategy:
        from bench.strategies.fsdp2 import FSDP2Strategy

        return FSDP2Strategy(config)

    def shards_parameters(self, stage: int) -> bool:
        return True

    def times_sent(self, layout: Layout) -> float:
        gathers = (2 if layout.reshard else 1) * layout.grad_accum
        # Gradients are reduced in the masters' type.
        return gathers + layout.grad_accum * ITEM_SIZE[layout.master] / layout.item

    def moments(self, facts: ModelFacts, layout: Layout, n: Elements, constants: Constants) -> Moments:
        """FSDP2: parameters are the masters, sharded; copies for the computation are gathered in its type."""
        item, compute, shards = ITEM_SIZE[layout.master], layout.item, layout.shards
        apart = layout.embedding_apart and not facts.tied
        if shards == 1 and item == compute:
            gathered = 0.0
        elif layout.reshard:
            tables = n.last if apart else n.head + n.embedding
            gathered = min(compute * n.all, compute * (tables + constants.fsdp_layers * n.layers / facts.layers))
        else:
            gathered = compute * n.all
        gradients = 0.0 if layout.offload_optimizer else item / shards
        sharded = 0.0 if layout.offload_param else item * n.all / shards
        last = tuple((gradients * (n.all - missing), working) for missing, working in _reductions(layout, n, apart))
        return Moments(
            resident=resident(sharded, 0.0 if layout.offload_optimizer else 2 * item * n.all / shards),
            early=gradients * n.all if layout.grad_accum > 1 else 0.0,
            gathered=gathered, inside=None, ends=(*last, (gradients * n.all, 0.0)),
        )  # fmt: skip


def _reductions(layout: Layout, n: Elements, apart: bool) -> list[tuple[float, float]]:
    """Elements not yet reduced, and bytes in use, while FSDP2 reduces its last groups.

    A group's gradients are cast into one buffer, then freed; the buffer is reduced into another. On one rank `bench`
    reduces an embedding of its own in place. The chunked and Liger's head are in the root's group, which is reduced
    after all others, when the buffer of the group before is still there.
    """
    item, compute, shards = ITEM_SIZE[layout.master], layout.item, layout.shards

    def reduction(elements: float) -> float:
        into = 0.0 if apart and shards == 1 else item * elements * (1 + 1 / shards)
        return max((compute + item) * elements, into)

    if not apart:
        return [(n.embedding + n.head, reduction(n.embedding + n.head))]
    if layout.head in ("full", "compiled"):
        return [(n.embedding, reduction(n.embedding))]
    before = item * n.embedding if shards > 1 else 0.0
    return [(n.embedding + n.head, 2 * compute * n.head + reduction(n.embedding)), (n.head, reduction(n.head) + before)]


BACKEND = FSDP2()

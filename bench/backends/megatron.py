"""Megatron's distributed optimizer, which `bench plan --recipe` knows and `bench` does not run.

Source of the memory model: Megatron-LM's `docs/source/api-guide/dist_optimizer.md` (bytes of a parameter over d ranks:
6 + 12/d with gradients in fp32, 4 + 16/d with 16-bit ones) and `param_and_grad_buffer.py` (gradients have one buffer,
made with the model). Fewer ranks hold the same experts: over these alone are the states of experts sharded.
"""

from __future__ import annotations

from bench.backends import Backend
from bench.predict.layout import ITEM_SIZE, Layout
from bench.predict.moments import Constants, Elements, Moments, resident
from bench.predict.stages import routed_elements
from rules.models import ModelFacts

MASTER_AND_MOMENTS = 12
"""Bytes of a parameter: its master copy and AdamW's two moments, in fp32."""


class Megatron(Backend):
    name = "megatron"
    runs = False
    splits_embedding = True
    splits_vocabulary = True
    keeps_gradients = True

    def moments(self, facts: ModelFacts, layout: Layout, n: Elements, constants: Constants) -> Moments:
        """Whole 16-bit parameters and gradients on every rank, sharded states."""
        gradients = ITEM_SIZE[layout.main_grads]
        states = MASTER_AND_MOMENTS + (4 if gradients < 4 else 0)  # a step makes fp32 ones of 16-bit gradients
        held = n.all
        if layout.shards_optimizer:
            experts = routed_elements(facts) / (layout.ep * layout.expert_tp)
            alike = max(layout.shards * layout.tp / (layout.ep * layout.expert_tp), 1.0)
            held = (n.all - experts) / layout.shards + experts / alike
        optimizer = 0.0 if layout.offload_optimizer else states * held
        return Moments(
            resident=resident(layout.item * n.all, optimizer), early=gradients * n.all, gathered=0.0, inside=None,
            ends=((gradients * n.all, layout.item * max(n.embedding, n.head)),),
        )  # fmt: skip


BACKEND = Megatron()

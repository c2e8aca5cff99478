"""DDP: the whole model on every rank, gradients reduced in buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.backends import Backend
from bench.predict.layout import Layout
from bench.predict.moments import Constants, Elements, Moments, masters_gradient, optimizer, resident
from rules.models import ModelFacts

if TYPE_CHECKING:
    from bench.configuration import Configuration
    from bench.strategies.base import Strategy


class DDP(Backend):
    name = "ddp"
    tried = ("ddp",)

    def strategy(self, config: Configuration) -> Strategy:
        from bench.strategies.ddp import DDPStrategy

        return DDPStrategy(config)

    def smaller(self, configuration: Configuration) -> str:
        return "--backend fsdp2 or deepspeed --zero-stage 3" if configuration.num_gpus > 1 else ""

    def moments(self, facts: ModelFacts, layout: Layout, n: Elements, constants: Constants) -> Moments:
        """Whole parameters, buckets of gradients, which stay, and gradients in the masters' type."""
        item, copy = layout.item, masters_gradient(layout)
        buckets = item * n.all if layout.shards > 1 else 0.0
        own = 0.0 if layout.shards > 1 and not copy else item * n.all  # without masters gradients are views of buckets
        early = buckets + (copy * n.all if layout.grad_accum > 1 else 0.0)
        # Gradients are cast one by one, each freed after: the largest is there twice.
        step = (buckets + copy * n.all, item * n.embedding) if copy else (buckets + own, 0.0)
        return Moments(
            resident=resident(item * n.all, optimizer(layout, n.all, 1)),
            early=early, gathered=0.0, inside=None, ends=((early + own, 0.0), step),
        )  # fmt: skip


BACKEND = DDP()

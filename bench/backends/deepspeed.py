"""DeepSpeed's ZeRO. Sources of the memory model: `stage_1_and_2.py` and `stage3.py` of `deepspeed/runtime/zero` in
DeepSpeed 0.19.8, with their default bucket sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from bench.backends import Backend
from bench.predict.layout import Layout
from bench.predict.moments import Constants, Elements, Moments, masters_gradient, optimizer, resident
from rules.models import ModelFacts

if TYPE_CHECKING:
    from bench.configuration import Configuration
    from bench.strategies.base import Strategy


class DeepSpeed(Backend):
    name = "deepspeed"
    needs: ClassVar[Mapping[str, str]] = {"deepspeed": "pip install 'meshproof[bench]'"}
    planned_for: ClassVar[Mapping[str, str]] = {"deepspeed": "0.19.8"}
    """The newest that the table of constraints was read against."""
    preload = ("bench.strategies.deepspeed", "deepspeed", "deepspeed.runtime.zero.muon.muon_optimizer")
    """The last is what `deepspeed.initialize` imports, with the whole compiler behind it."""
    stages = (0, 1, 2, 3)
    own = ("zero_stage",)
    tried = ("zero2", "zero3")
    splits_head = False

    def strategy(self, config: Configuration) -> Strategy:
        from bench.strategies.deepspeed import DeepspeedStrategy

        return DeepspeedStrategy(config)

    def short(self, stage: int) -> str:
        return f"zero{stage}"

    def shards_parameters(self, stage: int) -> bool:
        return stage == 3

    def graph_mode(self, stage: int, compile: str) -> str:
        """The table rules out compiled blocks at ZeRO-3, because hooks on every module inside a layer break its graph.
        `DeepspeedStrategy` makes each layer one leaf that is gathered whole and compiles what lies between its hooks.
        """
        return "none" if stage == 3 and compile == "blocks" else compile

    def smaller(self, configuration: Configuration) -> str:
        return "--zero-stage 3" if configuration.zero_stage < 3 and configuration.num_gpus > 1 else ""

    def keeps_whole_gradients(self, configuration: Configuration) -> bool:
        """On one rank, whose gradients nobody adds to. DeepCompile brings a reduction of its own."""
        c = configuration
        return c.zero_stage > 0 and c.dp * c.ring == 1 and not c.cpu_offload and c.compile != "deepcompile"

    def gathers_head_whole(self, layout: Layout) -> bool:
        return layout.zero_stage == 3

    def times_sent(self, layout: Layout) -> float:
        return {2: 1.0 + layout.grad_accum, 3: 3.0 * layout.grad_accum}.get(layout.zero_stage, 2.0)

    def moments(self, facts: ModelFacts, layout: Layout, n: Elements, constants: Constants) -> Moments:
        if layout.zero_stage == 3:
            return _zero3(layout, n, constants)
        if layout.zero_stage == 0:
            return _zero0(layout, n)
        item, shards = layout.item, layout.shards
        if layout.whole_gradients:
            return _alone(layout, n)
        partition = item * n.all / shards
        buckets = item * constants.zero_bucket * (2 if shards > 1 else 1)
        # Until the step ZeRO-1 keeps whole gradients and ZeRO-2 its partition, but the first micro-batch finds none.
        early = 0.0 if layout.grad_accum == 1 else item * n.all if layout.zero_stage == 1 else partition
        held = max(early, partition)
        # ZeRO-2 joins its gradients before it casts them for the masters.
        joined = partition if layout.zero_stage == 2 else 0.0
        step = held + joined + masters_gradient(layout) * n.all / shards
        return Moments(
            resident=resident(0.0 if layout.offload_param else item * n.all, optimizer(layout, n.all, shards)),
            early=early, gathered=0.0, inside=(held, buckets + item * n.last),
            ends=(
                (held, buckets + constants.zero_table_copies * item * n.embedding),
                (0.0 if layout.offload_optimizer else step, 0.0),
            ),
        )  # fmt: skip


def _zero0(layout: Layout, n: Elements) -> Moments:
    """Whole gradients in the training type and, for the masters, in fp32."""
    item, copy = layout.item, masters_gradient(layout)
    early = (copy or item) * n.all if layout.grad_accum > 1 else 0.0
    return Moments(
        resident=resident(item * n.all, optimizer(layout, n.all, 1)),
        early=early, gathered=0.0, inside=None, ends=((early + item * n.all, 0.0), ((item + copy) * n.all, 0.0)),
    )  # fmt: skip


def _alone(layout: Layout, n: Elements) -> Moments:
    """ZeRO-1 and 2 on one rank: gradients stay where the backward pass puts them, and the step joins and casts them."""
    whole = layout.item * n.all
    early = whole if layout.grad_accum > 1 else 0.0
    return Moments(
        resident=resident(0.0 if layout.offload_param else whole, optimizer(layout, n.all, 1)),
        early=early, gathered=0.0, inside=None,
        ends=((early + whole, 0.0), (2 * whole + masters_gradient(layout) * n.all, 0.0)),
    )  # fmt: skip


def _zero3(layout: Layout, n: Elements, constants: Constants) -> Moments:
    """Sharded parameters; one buffer of sharded gradients, always there; parameters gathered ahead of use."""
    item = layout.item
    sharded = item * n.all / layout.shards
    live = min(item * n.all, item * (constants.zero3_live + n.last))
    early = sharded
    if layout.whole_gradients:  # and parameters are gathered where they lie
        live, early = 0.0, 0.0 if layout.grad_accum == 1 else sharded
    # The step joins and casts one sub-group after the other. The last parameter, the head, may make one larger.
    before_last = (n.embedding + n.layers) / layout.shards
    group = n.all / layout.shards if before_last < constants.zero3_group else constants.zero3_group
    step = sharded + (item + masters_gradient(layout)) * group
    return Moments(
        resident=resident(0.0 if layout.offload_param else sharded, optimizer(layout, n.all, layout.shards)),
        early=early, gathered=live, inside=None,
        ends=((0.0 if layout.offload_optimizer else step, 0.0),),
    )  # fmt: skip


BACKEND = DeepSpeed()

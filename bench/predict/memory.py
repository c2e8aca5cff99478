"""What a configuration should take of a GPU's memory, by parts, from the model's shape. No torch needed.

The estimate is of the peak that the allocator hands out on one GPU in a training step with AdamW. Memory is added
up at the moments where it can peak: the end of the forward pass, the start of the backward pass at the head, its
first layer, its end at the embedding, and the optimizer step. The largest sum is the peak.

Sources: `torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py` (`foreach_reduce`) of torch 2.11, and
`deepspeed/runtime/zero/stage_1_and_2.py` and `stage3.py` of DeepSpeed 0.19.8 with their default bucket sizes.
`reports/h200/memory.md` holds the predictions against measured peaks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.predict.activations import head_bytes, layer_bytes, norm_bytes
from bench.predict.layout import ITEM_SIZE, Layout
from rules.models import ModelFacts

GIB = 1 << 30


@dataclass(frozen=True)
class Constants:
    """Figures of the memory model; sizes in bytes unless said otherwise. The first three are fitted, by
    `reports/h200/scripts/memory.py --fit` and to the rows it names; the others are defaults of the backends."""

    chunk_backward: float = 16.0
    """Bytes per logit of the chunk whose backward pass runs: four fp32 tensors."""
    zero_table_copies: float = 3.0
    """Copies of the embedding's gradient while ZeRO-1 and 2 reduce it: itself, flattened, and in slices by rank."""
    fsdp_layers: float = 1.0
    """Layers that FSDP2 holds gathered beside the head when the backward pass begins."""
    zero_bucket: float = 5e8
    """DeepSpeed's reduce_bucket_size, in elements; two buckets where it overlaps reduction and computation."""
    zero3_live: float = 1e9
    """DeepSpeed's stage3_max_live_parameters, in elements."""
    context: float = 1.5e9
    """CUDA context, NCCL buffers and workspaces, outside the allocator."""
    fragmentation: float = 1.05
    """Reserved over allocated memory."""


CONSTANTS = Constants()


@dataclass(frozen=True)
class Estimate:
    """Bytes at one moment, by part. `working` are gathered parameters, communication buckets and the like."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    working: float

    @property
    def allocated(self) -> float:
        """The peak that the allocator hands out."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.logits + self.working

    def reserved(self, constants: Constants = CONSTANTS) -> float:
        """What the GPU must have: the peak with fragmentation, and what lies outside the allocator."""
        return self.allocated * constants.fragmentation + constants.context


@dataclass(frozen=True)
class _Elements:
    """Elements of one GPU before anything is sharded over data: the layers, the two tables."""

    layers: float
    embedding: float
    head: float

    @property
    def all(self) -> float:
        return self.layers + self.embedding + self.head

    @property
    def last(self) -> float:
        """The table whose gradient the head's backward pass makes; a tied one is the embedding."""
        return self.head or self.embedding


def _elements(facts: ModelFacts, layout: Layout) -> _Elements:
    """Tensor-parallel plans split the layers. transformers' plan splits the head too, DeepSpeed's AutoTP does not,
    and neither splits the embedding."""
    table = facts.vocab * facts.hidden
    whole = facts.vocab * facts.hidden * (1 if facts.tied else 2)
    head = 0.0 if facts.tied else table
    if layout.backend != "deepspeed":
        head /= layout.tp
    return _Elements((facts.parameters - whole) / layout.tp, table, head)


@dataclass(frozen=True)
class _Moments:
    """What a backend adds at each moment, beside `resident`: gradients, and working memory."""

    resident: Estimate
    early: float
    """Gradients before the backward pass: those of earlier micro-batches, and buffers that are always there."""
    gathered: float
    """Parameters in the forward pass, and when the backward pass begins."""
    inside: tuple[float, float] | None
    """Gradients and working memory in the backward pass's first layer, while all activations are there."""
    ends: tuple[tuple[float, float], ...]
    """The same at moments in which the last gradients are reduced, and in the optimizer step."""


def estimate(facts: ModelFacts, layout: Layout, constants: Constants = CONSTANTS) -> Estimate:
    """The peak of one training step with AdamW. Raises ModelError for an uncountable architecture."""
    return max(by_moment(facts, layout, constants).values(), key=lambda one: one.allocated)


def by_moment(facts: ModelFacts, layout: Layout, constants: Constants = CONSTANTS) -> dict[str, Estimate]:
    """Memory at each moment of a step: `forward`, `head`, `first layer` where it matters, `end 1`, …"""
    n = _elements(facts, layout)
    backend = {"fsdp2": _fsdp, "deepspeed": _zero}.get(layout.backend, _replicated)
    own = backend(facts, layout, n, constants)
    head = head_bytes(facts, layout, layout.item * n.last, constants.chunk_backward)
    kept = layer_bytes(facts, layout) + norm_bytes(facts, layout)
    full = replace(own.resident, gradients=own.early, activations=kept, working=own.gathered)
    found = {
        "forward": replace(full, logits=head.forward),
        "head": replace(full, logits=head.backward, working=own.gathered + head.weight),
    }
    if own.inside is not None:
        found["first layer"] = replace(full, gradients=own.inside[0], working=own.inside[1])
    for number, (gradients, working) in enumerate(own.ends, 1):
        found[f"end {number}"] = replace(own.resident, gradients=gradients, working=working)
    return found


def _resident(parameters: float, optimizer: float) -> Estimate:
    return Estimate(parameters, 0.0, optimizer, 0.0, 0.0, 0.0)


def _optimizer(layout: Layout, count: float, shards: int) -> float:
    """Master copy where parameters are 16-bit and masters are not, and AdamW's two moments."""
    master = ITEM_SIZE[layout.master]
    copy = master if master > layout.item else 0
    moments = 2 * max(master, layout.item)
    return 0.0 if layout.offload_optimizer else count * (copy + moments) / shards


def _masters_gradient(layout: Layout) -> int:
    """Bytes per element of the gradient that the optimizer reads, where it is a copy in the masters' type."""
    return ITEM_SIZE[layout.master] if ITEM_SIZE[layout.master] > layout.item else 0


def _replicated(facts: ModelFacts, layout: Layout, n: _Elements, constants: Constants) -> _Moments:
    """DDP: whole parameters, its buckets of gradients, which stay, and gradients in the masters' type."""
    item, copy = layout.item, _masters_gradient(layout)
    buckets = item * n.all if layout.shards > 1 else 0.0
    own = 0.0 if layout.shards > 1 and not copy else item * n.all  # without masters gradients are views of buckets
    early = buckets + (copy * n.all if layout.grad_accum > 1 else 0.0)
    # Gradients are cast one by one, each freed after: the largest is there twice.
    step = (buckets + copy * n.all, item * n.embedding) if copy else (buckets + own, 0.0)
    return _Moments(
        resident=_resident(item * n.all, _optimizer(layout, n.all, 1)),
        early=early, gathered=0.0, inside=None, ends=((early + own, 0.0), step),
    )  # fmt: skip


def _zero(facts: ModelFacts, layout: Layout, n: _Elements, constants: Constants) -> _Moments:
    if layout.zero_stage == 3:
        return _zero3(layout, n, constants)
    if layout.zero_stage == 0:
        return _zero0(layout, n)
    item, shards = layout.item, layout.shards
    partition = item * n.all / shards
    buckets = item * constants.zero_bucket * (2 if shards > 1 else 1)
    # Until the step ZeRO-1 keeps whole gradients and ZeRO-2 its partition, but the first micro-batch finds none.
    early = 0.0 if layout.grad_accum == 1 else item * n.all if layout.zero_stage == 1 else partition
    held = max(early, partition)
    # ZeRO-2 joins its gradients before it casts them for the masters.
    joined = partition if layout.zero_stage == 2 else 0.0
    step = held + joined + _masters_gradient(layout) * n.all / shards
    return _Moments(
        resident=_resident(0.0 if layout.offload_param else item * n.all, _optimizer(layout, n.all, shards)),
        early=early, gathered=0.0, inside=(held, buckets + item * n.last),
        ends=(
            (held, buckets + constants.zero_table_copies * item * n.embedding),
            (0.0 if layout.offload_optimizer else step, 0.0),
        ),
    )  # fmt: skip


def _zero0(layout: Layout, n: _Elements) -> _Moments:
    """Whole gradients in the training type and, for the masters, in fp32."""
    item, copy = layout.item, _masters_gradient(layout)
    early = (copy or item) * n.all if layout.grad_accum > 1 else 0.0
    return _Moments(
        resident=_resident(item * n.all, _optimizer(layout, n.all, 1)),
        early=early, gathered=0.0, inside=None, ends=((early + item * n.all, 0.0), ((item + copy) * n.all, 0.0)),
    )  # fmt: skip


def _zero3(layout: Layout, n: _Elements, constants: Constants) -> _Moments:
    """Sharded parameters; one buffer of sharded gradients, always there; parameters gathered ahead of use."""
    item = layout.item
    sharded = item * n.all / layout.shards
    live = min(item * n.all, item * (constants.zero3_live + n.last))
    step = sharded + _masters_gradient(layout) * n.all / layout.shards
    return _Moments(
        resident=_resident(0.0 if layout.offload_param else sharded, _optimizer(layout, n.all, layout.shards)),
        early=sharded, gathered=live, inside=None, ends=((0.0 if layout.offload_optimizer else step, 0.0),),
    )  # fmt: skip


def _fsdp(facts: ModelFacts, layout: Layout, n: _Elements, constants: Constants) -> _Moments:
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
    return _Moments(
        resident=_resident(sharded, 0.0 if layout.offload_optimizer else 2 * item * n.all / shards),
        early=gradients * n.all if layout.grad_accum > 1 else 0.0,
        gathered=gathered, inside=None, ends=(*last, (gradients * n.all, 0.0)),
    )  # fmt: skip


def _reductions(layout: Layout, n: _Elements, apart: bool) -> list[tuple[float, float]]:
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
    return [
        (n.embedding + n.head, 2 * compute * n.head + reduction(n.embedding)),
        (n.head, reduction(n.head) + before),
    ]

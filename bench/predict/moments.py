"""The parts of the memory model that backends fill in: what is on a GPU at the moments where memory can peak."""

from __future__ import annotations

from dataclasses import dataclass

from bench.predict.layout import ITEM_SIZE, Layout


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
    zero3_group: float = 1e9
    """DeepSpeed's sub_group_size, in elements: of stage 3's optimizer step."""
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
class Elements:
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


@dataclass(frozen=True)
class Moments:
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


def resident(parameters: float, optimizer: float) -> Estimate:
    return Estimate(parameters, 0.0, optimizer, 0.0, 0.0, 0.0)


def optimizer(layout: Layout, count: float, shards: int) -> float:
    """Master copy where parameters are 16-bit and masters are not, and AdamW's two moments."""
    master = ITEM_SIZE[layout.master]
    copy = master if master > layout.item else 0
    moments = 2 * max(master, layout.item)
    return 0.0 if layout.offload_optimizer else count * (copy + moments) / shards


def masters_gradient(layout: Layout) -> int:
    """Bytes per element of the gradient that the optimizer reads, where it is a copy in the masters' type."""
    return ITEM_SIZE[layout.master] if ITEM_SIZE[layout.master] > layout.item else 0

"""What a configuration should take of a GPU's memory, by parts, from the model's shape. No torch needed.

The estimate is of the peak that the allocator hands out on one GPU in a training step. It looks at two
moments: the start of the backward pass, when activations and logits are all alive, and the optimizer step,
when gradients are; the larger one is the peak. Everything measured is in `Constants`, nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

from rules.models import ModelFacts

GIB = 1 << 30
ITEM_SIZE = {"bf16": 2, "fp16": 2, "fp32": 4}


@dataclass(frozen=True)
class Constants:
    """Fitted or read-off figures of the memory model; sizes in bytes unless said otherwise.

    Fitted to the nine peaks in `tests/bench/test_plan.py` (Llama 3.1 8B's shape with 4 and 32 layers on four
    H200s, torch 2.11, deepspeed 0.19.8); refit them together when new measurements come.
    """

    eager_hidden: float = 4.0
    """Tensors of the hidden size that a layer keeps per token for its backward pass, run eagerly."""
    eager_mlp: float = 4.0
    """Tensors of the MLP size that it keeps, run eagerly."""
    compiled_hidden: float = 3.0
    """As `eager_hidden`, in a compiled layer, which recomputes norms and activations."""
    compiled_mlp: float = 2.0
    """As `eager_mlp`, in a compiled layer."""
    attention_io: float = 2.0
    """Tensors each of the query and of the key/value width: projected and rotated, or read and written."""
    eager_scores: float = 6.0
    """Bytes per attention score that eager attention keeps (16-bit scores and fp32 softmax)."""
    logit: float = 8.0
    """Bytes per logit: 16-bit logits, fp32 softmax, 16-bit gradient, with a compiled or fused loss."""
    zero_bucket: float = 2e9
    """DeepSpeed's contiguous gradient buckets: reduce_bucket_size 5e8 elements of 2 bytes, two in overlap."""
    zero_gradient_copies: float = 2.0
    """Partitions of gradients that ZeRO-1 and 2 hold beside the buckets, in the parameters' own type."""
    zero3_live: float = 1e9
    """Parameters that ZeRO-3 keeps gathered (stage3_max_live_parameters), in elements."""
    fsdp_layers: float = 2.0
    """Layers that FSDP2 holds gathered at once: the one that computes and the one that is fetched."""
    context: float = 1.5e9
    """CUDA context, NCCL buffers and workspaces, outside the allocator."""
    fragmentation: float = 1.05
    """Reserved over allocated memory."""


CONSTANTS = Constants()


@dataclass(frozen=True)
class Layout:
    """What decides memory besides the model. Sizes count processes, batches samples, `seq_len` tokens.

    `master` is the type of the weights that the optimizer updates. FSDP2 keeps its (sharded) parameters in
    it, the other backends keep a copy beside the parameters.
    """

    backend: str = "fsdp2"
    zero_stage: int = 2
    dp: int = 1
    tp: int = 1
    ring: int = 1
    micro_batch_size: int = 1
    seq_len: int = 4096
    grad_accum: int = 1
    dtype: str = "bf16"
    master: str = "fp32"
    compiled: bool = False
    eager_attention: bool = False
    checkpointing: bool = False
    sequence_parallel: bool = False
    vocab_parallel: bool = False
    reshard: bool = True
    offload_optimizer: bool = False
    offload_param: bool = False

    @property
    def shards(self) -> int:
        """Ranks over which states are sharded: gradients are reduced over data and ring ranks alike."""
        return self.dp * self.ring

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one GPU."""
        return self.micro_batch_size * self.seq_len / self.ring


@dataclass(frozen=True)
class Estimate:
    """Bytes at the peak, by part. `working` are gathered parameters, communication buckets and the like."""

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
class _States:
    """Bytes of the model's states on one GPU: resident ones, and gradients at the two moments."""

    parameters: float
    optimizer: float
    gradients_in_backward: float
    gradients_in_step: float
    working: float


def estimate(facts: ModelFacts, layout: Layout, constants: Constants = CONSTANTS) -> Estimate:
    """The peak of one training step with AdamW. Raises ModelError for an uncountable architecture."""
    states = _states(facts, layout, constants)
    activations = activation_bytes(facts, layout, constants)
    logits = logit_bytes(facts, layout, constants)
    # The head's weight gradient is whole while the logits are still there, whatever is sharded later.
    working = states.working + facts.vocab * facts.hidden / layout.tp * ITEM_SIZE[layout.dtype]
    in_backward = states.gradients_in_backward + activations + logits + working
    if in_backward >= states.gradients_in_step:
        return Estimate(states.parameters, states.gradients_in_backward, states.optimizer, activations, logits, working)
    return Estimate(states.parameters, states.gradients_in_step, states.optimizer, 0.0, 0.0, 0.0)


def _states(facts: ModelFacts, layout: Layout, constants: Constants) -> _States:
    count = facts.parameters / layout.tp
    if layout.backend == "fsdp2":
        return _fsdp(facts, layout, count, constants)
    if layout.backend == "deepspeed":
        return _zero(facts, layout, count, constants)
    return _replicated(layout, count)


def _optimizer(layout: Layout, count: float, shards: int) -> float:
    """Master copy where parameters are 16-bit and masters are not, and AdamW's two moments."""
    master = ITEM_SIZE[layout.master]
    copy = master if master > ITEM_SIZE[layout.dtype] else 0
    moments = 2 * max(master, ITEM_SIZE[layout.dtype])
    return 0.0 if layout.offload_optimizer else count * (copy + moments) / shards


def _replicated(layout: Layout, count: float) -> _States:
    """DDP: whole parameters, gradients in its buckets, fp32 gradients for the masters at the step."""
    item = ITEM_SIZE[layout.dtype]
    master = ITEM_SIZE[layout.master] if ITEM_SIZE[layout.master] > item else 0
    kept = count * master if layout.grad_accum > 1 else 0.0
    return _States(
        parameters=count * item,
        optimizer=_optimizer(layout, count, 1),
        gradients_in_backward=count * item + kept,
        gradients_in_step=count * (item + master),
        working=0.0,
    )


def _zero(facts: ModelFacts, layout: Layout, count: float, constants: Constants) -> _States:
    item, stage = ITEM_SIZE[layout.dtype], layout.zero_stage
    shards = layout.shards if stage >= 1 else 1
    fp32 = 4 * count / shards
    if stage == 0:
        backward, step, working = fp32, fp32, 0.0
    elif stage < 3:
        # Until the step ZeRO-1 keeps whole gradients, but the first micro-batch finds none.
        whole = item * count if stage == 1 and layout.grad_accum > 1 else 0.0
        backward = constants.zero_gradient_copies * item * count / shards + whole
        step, working = item * count / (1 if stage == 1 else shards) + fp32, constants.zero_bucket
    else:
        live = min(item * count, item * constants.zero3_live + _root(facts, layout))
        backward, step, working = fp32, fp32, constants.zero_bucket + live
    return _States(
        parameters=0.0 if layout.offload_param else item * count / (shards if stage == 3 else 1),
        optimizer=_optimizer(layout, count, shards),
        gradients_in_backward=backward,
        gradients_in_step=0.0 if layout.offload_optimizer else step,
        working=working,
    )


def _fsdp(facts: ModelFacts, layout: Layout, count: float, constants: Constants) -> _States:
    """FSDP2: parameters are the masters, sharded; compute copies are gathered in the compute type."""
    item = ITEM_SIZE[layout.master]
    sharded = item * count / layout.shards
    compute = ITEM_SIZE[layout.dtype]
    gathered = compute * count
    if layout.reshard and layout.shards > 1:
        layer = (facts.parameters / layout.tp - _root(facts, layout) / compute) / facts.layers
        gathered = min(gathered, _root(facts, layout) + constants.fsdp_layers * compute * layer)
    elif layout.shards == 1 and item == compute:
        gathered = 0.0
    return _States(
        parameters=0.0 if layout.offload_param else sharded,
        optimizer=0.0 if layout.offload_optimizer else 2 * sharded,
        gradients_in_backward=sharded,
        gradients_in_step=0.0 if layout.offload_optimizer else sharded,
        working=gathered,
    )


def _root(facts: ModelFacts, layout: Layout) -> float:
    """Bytes of the embedding and head in the compute type: the group that stays gathered longest."""
    tables = 1 if facts.tied else 2
    return ITEM_SIZE[layout.dtype] * tables * facts.vocab * facts.hidden / layout.tp


def activation_bytes(facts: ModelFacts, layout: Layout, constants: Constants = CONSTANTS) -> float:
    """Bytes kept for the backward pass over all layers, and the layer that is recomputed if any are."""
    layer = layout.tokens * _layer_bytes_per_token(facts, layout, constants)
    if not layout.checkpointing:
        return facts.layers * layer
    split = layout.tp if layout.sequence_parallel else 1
    return facts.layers * layout.tokens * facts.hidden * ITEM_SIZE[layout.dtype] / split + layer


def _layer_bytes_per_token(facts: ModelFacts, layout: Layout, constants: Constants) -> float:
    hidden, mlp = (
        (constants.compiled_hidden, constants.compiled_mlp)
        if layout.compiled
        else (constants.eager_hidden, constants.eager_mlp)
    )
    attention = constants.attention_io * (facts.heads + facts.kv_heads) * facts.head_dim / layout.tp
    elements = (
        hidden * facts.hidden / (layout.tp if layout.sequence_parallel else 1)
        + attention
        + mlp * mlp_width(facts) / layout.tp
        + dispatched_width(facts)
    )
    scores = 0.0
    if layout.eager_attention:
        scores = facts.heads / layout.tp * layout.seq_len * constants.eager_scores
    return elements * ITEM_SIZE[layout.dtype] + scores


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


def logit_bytes(facts: ModelFacts, layout: Layout, constants: Constants = CONSTANTS) -> float:
    """Bytes of logits, softmax and their gradient for one micro-batch."""
    scale = ITEM_SIZE[layout.dtype] / 2
    return layout.tokens * facts.vocab * constants.logit * scale / (layout.tp if layout.vocab_parallel else 1)

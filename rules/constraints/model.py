"""The model's shape: heads, key/value heads, MLP and vocabulary over tensor-parallel and Ulysses ranks."""

from __future__ import annotations

from rules.constraints.backends import BACKENDS
from rules.constraints.core import Condition, Constraint
from rules.constraints.quantities import Quantities
from rules.constraints.sizes import MEGATRON_ARGUMENTS, divides

_TP = Condition("tp", ">", 1)
_EVEN_MLP = tuple(name for name, backend in BACKENDS.items() if backend.even_mlp)
_UNEVEN_MLP = tuple(name for name, backend in BACKENDS.items() if not backend.even_mlp)
UNEVEN_HEADS_SINCE = "0.19.6"
"""First DeepSpeed that keeps whole heads together when it trains with uneven shards (commit aa3914df)."""


def multiple_or_divisor(heads: int, ranks: int) -> bool:
    """Whether `heads` can be shared among `ranks` evenly: whole heads each, or whole groups of ranks each."""
    return divides(ranks, heads) or divides(heads, ranks)


def _cuts_heads(q: Quantities) -> bool:
    # tp-heads-autotp's to report, where the version is known to be old.
    return Condition("deepspeed_version", "version<", UNEVEN_HEADS_SINCE).evaluate(q) is True


TABLE: tuple[Constraint, ...] = (
    Constraint(
        id="tp-heads",
        rule="heads % tp == 0",
        needs=("heads", "tp"),
        when=(_TP, Condition("backend", "!=", "deepspeed")),
        holds=lambda q: divides(q.tp or 0, q.heads or 0),
        message="{heads} attention heads do not divide over tp {tp}",
        adjust=("tp",),
        sources=(
            "OpenRLHF 94074f7e openrlhf/utils/fsdp2/fsdp2.py:587", "megatron-core 0.16.1 "
            "transformer/transformer_config.py:924", "torchtitan b5bcd76c "
            "torchtitan/models/common/decoder.py:190",
            "NeMo RL 7ea279ab nemo_rl/models/dtensor/parallelize.py:669",
        ),
    ),
    Constraint(
        id="tp-heads-autotp",
        rule=f"heads % tp == 0 before DeepSpeed {UNEVEN_HEADS_SINCE}",
        given=("deepspeed_version",),
        needs=("heads", "kv_heads", "tp"),
        when=(
            _TP, Condition("backend", "==", "deepspeed"),
            Condition("deepspeed_version", "version<", UNEVEN_HEADS_SINCE),
        ),
        holds=lambda q: divides(q.tp or 0, q.heads or 0) and divides(q.tp or 0, q.kv_heads or 0),
        message="DeepSpeed {deepspeed_version} cuts weights into {tp} equal chunks when it trains: {heads} "
        "attention heads and {kv_heads} key/value heads are cut inside a head",
        adjust=("tp", "deepspeed_version"),
        candidates={"deepspeed_version": (UNEVEN_HEADS_SINCE,)},
        sources=("deepspeed 0.16.4 and 0.18.0 module_inject/layers.py LinearLayer (torch.chunk)",),
    ),
    Constraint(
        id="tp-heads-balance",
        rule="kv_heads % tp == 0 (else ranks hold different numbers of heads)",
        needs=("kv_heads", "tp"),
        when=(_TP, Condition("backend", "==", "deepspeed")),
        holds=lambda q: _cuts_heads(q) or divides(q.tp or 0, q.kv_heads or 0),
        message="{kv_heads} key/value heads over tp {tp}: DeepSpeed gives ranks different numbers of heads, and "
        f"the largest share sets the pace; before {UNEVEN_HEADS_SINCE} it cut inside heads",
        adjust=("tp",),
        severity="warning",
        sources=("deepspeed 0.19.8 module_inject/tp_shard.py get_shard_size, runtime/engine.py:1043-1052",),
    ),
    Constraint(
        id="tp-kv-heads",
        rule="kv_heads % tp == 0 where the backend shards them",
        needs=("kv_heads", "tp"),
        when=(_TP, Condition("kv_heads_policy", "==", "shard")),
        holds=lambda q: divides(q.tp or 0, q.kv_heads or 0),
        message="{kv_heads} key/value heads do not divide over tp {tp}, and this backend does not repeat "
        "them",
        adjust=("tp",),
        sources=(
            "OpenRLHF 94074f7e openrlhf/utils/fsdp2/fsdp2.py:592",
            "NeMo RL 7ea279ab nemo_rl/models/dtensor/parallelize.py:666",
            "torchtitan b5bcd76c torchtitan/models/common/decoder.py:195",
        ),
    ),
    Constraint(
        id="tp-kv-heads-repeated",
        rule="kv_heads % tp == 0 or tp % kv_heads == 0 where the backend repeats them",
        needs=("kv_heads", "tp"),
        when=(_TP, Condition("kv_heads_policy", "==", "repeat")),
        holds=lambda q: multiple_or_divisor(q.kv_heads or 0, q.tp or 0),
        message="{kv_heads} key/value heads are neither a multiple nor a divisor of tp {tp}",
        adjust=("tp",),
        sources=("megatron-core 0.16.1 transformer/transformer_config.py:939-946",),
    ),
    Constraint(
        id="query-groups",
        rule="heads % kv_heads == 0",
        given=("heads", "kv_heads"),
        needs=("heads", "kv_heads"),
        holds=lambda q: divides(q.kv_heads or 0, q.heads or 0),
        message="{heads} attention heads do not divide into {kv_heads} key/value groups",
        adjust=("kv_heads", "heads"),
        sources=("torchtitan b5bcd76c torchtitan/models/common/attention.py:744",),
    ),
    Constraint(
        id="hidden-heads",
        rule="hidden % heads == 0 where no head size is given",
        given=("hidden", "heads"),
        needs=("hidden", "heads"),
        holds=lambda q: q.head_dim is not None or divides(q.heads or 0, q.hidden or 0),
        message="the hidden size {hidden} is not a multiple of {heads} attention heads, and no head size is given",
        adjust=("heads", "hidden"),
        sources=(
            f"{MEGATRON_ARGUMENTS}:1332", "transformers 5.23.0 models/llama/configuration_llama.py:96",
        ),
    ),
    Constraint(
        id="tp-mlp",
        rule=f"mlp % tp == 0 with {', '.join(_EVEN_MLP)}",
        needs=("mlp", "tp"),
        when=(_TP, Condition("backend", "in", _EVEN_MLP)),
        holds=lambda q: divides(q.tp or 0, q.mlp or 0),
        message="the MLP size {mlp} does not divide over tp {tp}",
        adjust=("tp", "mlp"),
        sources=("megatron-core 0.16.1 tensor_parallel/layers.py ColumnParallelLinear (divide)",),
    ),
    Constraint(
        id="tp-mlp-balance",
        rule="mlp % tp == 0 (else shards are uneven)",
        needs=("mlp", "tp"),
        when=(_TP, Condition("backend", "in", tuple(b for b in _UNEVEN_MLP if b != "ddp"))),
        holds=lambda q: divides(q.tp or 0, q.mlp or 0),
        message="the MLP size {mlp} does not divide over tp {tp}: shards are uneven and the largest sets "
        "the pace",
        adjust=("tp",),
        severity="warning",
        sources=("torch 2.13 torch/distributed/tensor/placement_types.py Shard (torch.chunk semantics)",),
    ),
    Constraint(
        id="tp-hidden",
        rule="hidden % tp == 0 where embeddings are split by columns",
        needs=("hidden", "tp"),
        when=(_TP, Condition("embedding_split", "==", "columns")),
        holds=lambda q: divides(q.tp or 0, q.hidden or 0),
        message="the hidden size {hidden} does not divide over tp {tp}: the embedding's columns cannot be "
        "gathered",
        adjust=("tp",),
        sources=("transformers 5.17.0 distributed/tensor_parallel.py:180-190 validate_param",),
    ),
    Constraint(
        id="vocab-parallel",
        rule="vocab % tp == 0 for a vocabulary-parallel head",
        needs=("vocab", "tp"),
        when=(
            _TP, Condition("vocab_parallel", "==", True), Condition("backend", "in", ("fsdp2", "torchtitan")),
        ),
        holds=lambda q: divides(q.tp or 0, q.vocab or 0),
        message="the vocabulary of {vocab} does not divide over tp {tp}: the head's output cannot be "
        "gathered",
        adjust=("tp", "vocab"),
        sources=("transformers 5.17.0 distributed/tensor_parallel.py:183 validate_param",),
    ),
    Constraint(
        id="ulysses-heads",
        rule="heads % ulysses == 0",
        needs=("heads", "ulysses"),
        when=(Condition("ulysses", ">", 1),),
        holds=lambda q: divides(q.ulysses or 0, q.heads or 0),
        message="{heads} attention heads do not divide over {ulysses} Ulysses ranks",
        adjust=("ulysses",),
        sources=(
            "deepspeed 0.19.8 runtime/sequence_parallel/ulysses_sp.py:147",
            "verl b178a3cd verl/models/transformers/monkey_patch.py:333",
        ),
    ),
    Constraint(
        id="ulysses-kv-heads",
        rule="kv_heads % ulysses == 0 or ulysses % kv_heads == 0",
        needs=("kv_heads", "ulysses"),
        when=(Condition("ulysses", ">", 1),),
        holds=lambda q: multiple_or_divisor(q.kv_heads or 0, q.ulysses or 0),
        message="{kv_heads} key/value heads are neither a multiple nor a divisor of {ulysses} Ulysses ranks",
        adjust=("ulysses",),
        sources=(
            "deepspeed 0.19.8 runtime/sequence_parallel/ulysses_sp.py:149",
            "verl b178a3cd verl/models/transformers/monkey_patch.py:336",
        ),
    ),
    Constraint(
        id="ring-head-stride",
        rule="(kv_heads / tp) % ring_head_stride == 0",
        given=("ring_head_stride",),
        needs=("kv_heads", "ring_head_stride", "tp"),
        when=(Condition("ring", ">", 1), Condition("ring_impl", "==", "llama3")),
        holds=lambda q: divides(q.ring_head_stride or 0, max((q.kv_heads or 0) // max(q.tp or 1, 1), 1)),
        message="the ring exchanges {ring_head_stride} key/value heads at a time: that does not divide the "
        "{kv_heads} / tp {tp} heads of a rank",
        adjust=("ring_head_stride",),
        sources=("ring-flash-attn 0.1.8 llama3_flash_attn_varlen.py:86,184",),
    ),
)  # fmt: skip

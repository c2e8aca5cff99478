"""Batches and lengths: what must divide by replicas, micro-batches, prompt groups and sequence shards."""

from __future__ import annotations

from rules.constraints.backends import GROUP_BASELINES
from rules.constraints.core import Condition, Constraint
from rules.constraints.quantities import PARALLEL_SIZES, Quantities, data_parallel, model_parallel
from rules.constraints.sizes import MEGATRON_ARGUMENTS, OPENRLHF_FSDP2, divides

_LAYOUT = ("world_size", *PARALLEL_SIZES)
_STATIC = Condition("dynamic_batch", "==", False)


def _step(q: Quantities) -> int:
    """Samples of one micro-step over all replicas."""
    return (q.micro_batch_size or 0) * (data_parallel(q) or 0)


def _mesh_fits(q: Quantities) -> bool:
    # The number of replicas means nothing on a mesh that does not fit: world-divisible speaks of that.
    return divides(model_parallel(q) or 0, q.world_size or 0)


def _rollouts(q: Quantities) -> int:
    return (q.rollout_batch_size or 0) * (q.samples_per_prompt or 0)


TABLE: tuple[Constraint, ...] = (
    Constraint(
        id="grad-accum-at-least-one",
        rule="train_batch_size >= micro_batch_size × dp",
        given=("train_batch_size",),
        needs=("train_batch_size", "micro_batch_size", *_LAYOUT),
        holds=lambda q: not _mesh_fits(q) or (q.train_batch_size or 0) >= _step(q),
        message="train_batch_size {train_batch_size} is less than micro_batch_size {micro_batch_size} × "
        "{data_parallel} data-parallel ranks: gradient accumulation would be 0",
        adjust=("train_batch_size", "micro_batch_size"),
        sources=(f"{OPENRLHF_FSDP2} and 199-207", "deepspeed 0.19.8 runtime/config.py:600 _batch_assertion"),
    ),
    Constraint(
        id="train-batch-divisible",
        rule="train_batch_size % (micro_batch_size × dp) == 0",
        given=("train_batch_size",),
        needs=("train_batch_size", "micro_batch_size", *_LAYOUT),
        # Less than one micro-step is grad-accum-at-least-one's to report.
        holds=lambda q: not _mesh_fits(q)
        or (q.train_batch_size or 0) < _step(q)
        or divides(_step(q), q.train_batch_size or 0),
        message="train_batch_size {train_batch_size} is not a multiple of micro_batch_size "
        "{micro_batch_size} × {data_parallel} data-parallel ranks (world_size {world_size} / "
        "{model_parallel})",
        adjust=("train_batch_size", "micro_batch_size"),
        sources=(
            "deepspeed 0.19.8 runtime/config.py:602 _batch_assertion, runtime/engine.py:1330 "
            "set_train_batch_size",
            "megatron-core 0.16.1 num_microbatches_calculator.py:340",
            "verl b178a3cd verl/trainer/fsdp_sft_trainer.py:149-155",
        ),
    ),
    Constraint(
        id="grad-accum-product",
        rule="train_batch_size == micro_batch_size × grad_accum × dp",
        given=("train_batch_size", "grad_accum"),
        needs=("train_batch_size", "micro_batch_size", "grad_accum", *_LAYOUT),
        holds=lambda q: not _mesh_fits(q) or q.train_batch_size == _step(q) * (q.grad_accum or 0),
        message="train_batch_size {train_batch_size} is not micro_batch_size {micro_batch_size} × "
        "grad_accum {grad_accum} × {data_parallel} data-parallel ranks",
        adjust=("train_batch_size", "grad_accum", "micro_batch_size"),
        sources=("deepspeed 0.19.8 runtime/config.py:602 _batch_assertion",),
    ),
    Constraint(
        id="batch-parts",
        rule="train_batch_size % (micro_batch_size × grad_accum) == 0, whatever the world",
        given=("train_batch_size", "grad_accum"),
        needs=("train_batch_size", "micro_batch_size", "grad_accum"),
        # Where the replicas are known, grad-accum-product says more.
        holds=lambda q: data_parallel(q) is not None
        or divides((q.micro_batch_size or 0) * (q.grad_accum or 0), q.train_batch_size or 0),
        message="train_batch_size {train_batch_size} is not a multiple of micro_batch_size {micro_batch_size} × "
        "grad_accum {grad_accum}: no number of data-parallel ranks makes it up",
        adjust=("train_batch_size", "grad_accum", "micro_batch_size"),
        sources=("deepspeed 0.19.8 runtime/config.py:602 _batch_assertion",),
    ),
    Constraint(
        id="mini-batch-at-most-batch",
        rule="train_batch_size >= mini_batch_size",
        given=("mini_batch_size",),
        needs=("train_batch_size", "mini_batch_size"),
        when=(_STATIC, Condition("framework", "in", ("verl", "skyrl"))),
        holds=lambda q: (q.train_batch_size or 0) >= (q.mini_batch_size or 0),
        message="mini-batches of {mini_batch_size} are larger than train_batch_size {train_batch_size}",
        adjust=("mini_batch_size", "train_batch_size"),
        sources=("verl b178a3cd verl/workers/config/actor.py:201 validate", "SkyRL a9564572 "
        "skyrl/train/utils/utils.py:73"),
    ),
    Constraint(
        id="mini-batch-divisible",
        rule="(mini_batch_size × samples_per_prompt / dp) % micro_batch_size == 0",
        given=("mini_batch_size",),
        needs=("mini_batch_size", "samples_per_prompt", "micro_batch_size", *_LAYOUT),
        when=(_STATIC, Condition("framework", "==", "verl")),
        holds=lambda q: not _mesh_fits(q) or divides(
            q.micro_batch_size or 0,
            (q.mini_batch_size or 0) * (q.samples_per_prompt or 0) // max(data_parallel(q) or 1, 1),
        ),
        message="mini_batch_size {mini_batch_size} × {samples_per_prompt} samples over {data_parallel} "
        "data-parallel ranks is not a multiple of micro_batch_size {micro_batch_size}",
        adjust=("mini_batch_size", "micro_batch_size"),
        sources=("verl b178a3cd verl/workers/fsdp_workers.py:243-262",),
    ),
    Constraint(
        id="mini-batches-cover-batch",
        rule="train_batch_size % mini_batch_size == 0",
        given=("mini_batch_size",),
        needs=("train_batch_size", "mini_batch_size"),
        when=(Condition("framework", "==", "skyrl"),),
        holds=lambda q: divides(q.mini_batch_size or 0, q.train_batch_size or 0),
        message="train_batch_size {train_batch_size} is not a multiple of mini_batch_size {mini_batch_size}",
        adjust=("mini_batch_size", "train_batch_size"),
        sources=("SkyRL a9564572 skyrl/train/utils/utils.py:96",),
    ),
    Constraint(
        id="rollout-batches-per-rank",
        rule="rollout_batch_size × samples_per_prompt // micro_rollout_batch_size >= dp",
        given=("rollout_batch_size",),
        needs=("rollout_batch_size", "samples_per_prompt", "micro_rollout_batch_size", *_LAYOUT),
        when=(Condition("framework", "==", "openrlhf"),),
        holds=lambda q: not _mesh_fits(q)
        or _rollouts(q) // max(q.micro_rollout_batch_size or 1, 1) >= (data_parallel(q) or 0),
        message="{rollout_batch_size} prompts × {samples_per_prompt} samples in micro-batches of "
        "{micro_rollout_batch_size} give fewer batches than the {data_parallel} data-parallel ranks of the "
        "actor",
        adjust=("rollout_batch_size", "micro_rollout_batch_size", "samples_per_prompt"),
        sources=("OpenRLHF 3c3be623 openrlhf/cli/train_ppo_ray.py:711-717",),
    ),
    Constraint(
        id="rollout-divisible",
        rule="(rollout_batch_size × samples_per_prompt) % dp == 0",
        given=("rollout_batch_size",),
        needs=("rollout_batch_size", "samples_per_prompt", *_LAYOUT),
        when=(_STATIC, Condition("framework", "in", ("verl", "skyrl"))),
        holds=lambda q: not _mesh_fits(q) or divides(data_parallel(q) or 0, _rollouts(q)),
        message="{rollout_batch_size} prompts × {samples_per_prompt} samples do not divide over "
        "{data_parallel} data-parallel ranks",
        adjust=("rollout_batch_size", "samples_per_prompt"),
        sources=(
            "verl b178a3cd verl/utils/config.py:88-113 validate_config",
            "SkyRL a9564572 skyrl/backends/skyrl_train/distributed/dispatch.py:109",
        ),
    ),
    Constraint(
        id="rollout-train-steps",
        rule="(rollout_batch_size × samples_per_prompt) % train_batch_size == 0",
        given=("rollout_batch_size",),
        needs=("rollout_batch_size", "samples_per_prompt", "train_batch_size"),
        when=(Condition("framework", "==", "openrlhf"),),
        holds=lambda q: divides(q.train_batch_size or 0, _rollouts(q)),
        message="{rollout_batch_size} prompts × {samples_per_prompt} samples are not a multiple of "
        "train_batch_size {train_batch_size}: the rest of each rollout is dropped",
        adjust=("train_batch_size", "rollout_batch_size"),
        severity="warning",
        sources=("OpenRLHF 3c3be623 openrlhf/trainer/ppo_utils/replay_buffer.py:102 setup_dynamic_batch",),
    ),
    Constraint(
        id="generation-batch-step",
        rule="generation_batch_size % (micro_batch_size × world_size) == 0",
        given=("generation_batch_size",),
        needs=("generation_batch_size", "micro_batch_size", "world_size"),
        when=(Condition("framework", "==", "trl"),),
        holds=lambda q: divides(
            (q.micro_batch_size or 0) * (q.world_size or 0), q.generation_batch_size or 0
        ),
        message="generation_batch_size {generation_batch_size} is not a multiple of per-device batch "
        "{micro_batch_size} × {world_size} processes",
        adjust=("generation_batch_size", "micro_batch_size"),
        sources=("TRL f2cd5771 trl/trainer/grpo_config.py:1082",),
    ),
    Constraint(
        id="generation-batch-groups",
        rule="generation_batch_size % samples_per_prompt == 0",
        given=("generation_batch_size",),
        needs=("generation_batch_size", "samples_per_prompt"),
        when=(Condition("framework", "==", "trl"),),
        holds=lambda q: divides(q.samples_per_prompt or 0, q.generation_batch_size or 0),
        message="generation_batch_size {generation_batch_size} splits groups of {samples_per_prompt} "
        "generations",
        adjust=("generation_batch_size", "samples_per_prompt"),
        sources=("TRL f2cd5771 trl/trainer/grpo_config.py:1110",),
    ),
    Constraint(
        id="group-of-samples",
        rule=f"samples_per_prompt >= 2 with {', '.join(GROUP_BASELINES)}",
        needs=("samples_per_prompt",),
        when=(Condition("advantage", "in", GROUP_BASELINES),),
        holds=lambda q: (q.samples_per_prompt or 0) >= 2,
        message="{advantage} compares the samples of a prompt, but there is only {samples_per_prompt}: "
        "every advantage is zero",
        adjust=("samples_per_prompt",),
        sources=(
            "OpenRLHF 3c3be623 openrlhf/cli/train_ppo_ray.py:612-615",
            "TRL f2cd5771 trl/trainer/grpo_config.py:1116",
        ),
    ),
    Constraint(
        id="ring-sequence",
        rule="seq_len % ring == 0",
        needs=("seq_len", "ring"),
        when=(
            Condition("ring", ">", 1), Condition("pads_sequence", "==", False),
            Condition("ring_impl", "in", ("llama3", "ring", "stripe", "sdpa")),
        ),
        holds=lambda q: divides(q.ring or 0, q.seq_len or 0),
        message="sequence length {seq_len} does not divide over a ring of {ring}",
        adjust=("seq_len", "ring"),
        sources=("ring-flash-attn 0.1.8 llama3_flash_attn_varlen.py:25",),
    ),
    Constraint(
        id="zigzag-sequence",
        rule="seq_len % (2 × ring) == 0",
        needs=("seq_len", "ring"),
        when=(
            Condition("ring", ">", 1), Condition("pads_sequence", "==", False),
            Condition("ring_impl", "in", ("zigzag", "torch", "megatron", "torchtitan")),
        ),
        holds=lambda q: divides(2 * (q.ring or 0), q.seq_len or 0),
        message="zig-zag gives each of the {ring} ring ranks two chunks: sequence length {seq_len} is not a "
        "multiple of 2 × {ring}",
        adjust=("seq_len", "ring"),
        sources=(
            f"{MEGATRON_ARGUMENTS}:1335", "torchtitan b5bcd76c torchtitan/trainer.py:299-307",
            "torch 2.13 distributed/tensor/experimental/_context_parallel/_load_balancer.py:148",
        ),
    ),
    Constraint(
        id="flex-ring-sequence",
        rule="seq_len % (128 × ring) == 0 for FlexAttention under torch's context_parallel",
        needs=("seq_len", "ring"),
        when=(
            Condition("ring", ">", 1), Condition("ring_impl", "==", "torch"), Condition("attn", "==", "flex"),
            Condition("pads_sequence", "==", False),
        ),
        holds=lambda q: divides(128 * (q.ring or 0), q.seq_len or 0),
        message="FlexAttention's blocks of 128 tokens do not divide over {ring} ring ranks: sequence length {seq_len} "
        "is not a multiple of 128 × {ring}",
        adjust=("seq_len", "ring"),
        sources=("torch 2.13 distributed/tensor/experimental/_context_parallel/_attention.py:1224",),
    ),
    Constraint(
        id="ulysses-sequence",
        rule="seq_len % ulysses == 0",
        needs=("seq_len", "ulysses"),
        when=(Condition("ulysses", ">", 1), Condition("pads_sequence", "==", False)),
        holds=lambda q: divides(q.ulysses or 0, q.seq_len or 0),
        message="sequence length {seq_len} does not divide over {ulysses} Ulysses ranks",
        adjust=("seq_len", "ulysses"),
        sources=("deepspeed 0.19.8 runtime/sequence_parallel/ulysses_sp.py:707",),
    ),
    Constraint(
        id="sequence-parallel-length",
        rule="seq_len % (tp × ring) == 0",
        needs=("seq_len", "tp", "ring"),
        when=(
            Condition("sequence_parallel", "==", True), Condition("tp", ">", 1),
            Condition("pads_sequence", "==", False),
        ),
        holds=lambda q: divides((q.tp or 0) * (q.ring or 0), q.seq_len or 0),
        message="sequence parallelism splits activations along the sequence: length {seq_len} is not a "
        "multiple of tp {tp} × ring {ring}",
        adjust=("seq_len", "tp"),
        sources=(
            "torchtitan b5bcd76c torchtitan/trainer.py:296-307",
            "slime 624b824a slime/backends/megatron_utils/cp_utils.py:292",
        ),
    ),
    Constraint(
        id="sequence-parallel-needs-tp",
        rule="tp > 1 when sequence_parallel",
        needs=("tp",),
        when=(Condition("sequence_parallel", "==", True), Condition("backend", "==", "megatron")),
        holds=lambda q: (q.tp or 1) > 1,
        message="sequence parallelism needs tensor parallelism, but tp is {tp}",
        adjust=("sequence_parallel", "tp"),
        sources=("megatron-core 0.16.1 model_parallel_config.py:409",),
    ),
    Constraint(
        id="position-range",
        rule="seq_len <= max_position_embeddings",
        given=("seq_len",),
        needs=("seq_len", "max_position_embeddings"),
        holds=lambda q: (q.seq_len or 0) <= (q.max_position_embeddings or 0),
        message="sequence length {seq_len} exceeds the {max_position_embeddings} positions that the model "
        "was made for",
        adjust=("seq_len",),
        severity="warning",
        sources=(f"{MEGATRON_ARGUMENTS}:1354",),
    ),
)  # fmt: skip

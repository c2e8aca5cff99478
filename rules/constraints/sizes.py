"""Sizes of the process mesh: what must multiply to the world, what must divide it, what fits in a node."""

from __future__ import annotations

from rules.constraints.backends import BACKENDS
from rules.constraints.core import Condition, Constraint
from rules.constraints.quantities import PARALLEL_SIZES, Quantities, data_parallel, model_parallel

POSITIVE = (
    "world_size", "num_nodes", "procs_per_node", *PARALLEL_SIZES, "ep", "expert_tp", "dp", "hpz",
    "train_batch_size", "micro_batch_size", "grad_accum", "mini_batch_size", "rollout_batch_size",
    "micro_rollout_batch_size", "samples_per_prompt", "seq_len", "ring_head_stride", "engine_tp",
    "actor_gpus",
)  # fmt: skip
"""Quantities that mean nothing below 1."""

OPENRLHF_FSDP2 = "OpenRLHF 94074f7e openrlhf/utils/fsdp2/fsdp2.py:157-172"
MEGATRON_ARGUMENTS = "Megatron-LM d98e8a64 megatron/training/arguments.py"
MEGATRON_STATE = "megatron-core 0.16.1 parallel_state.py initialize_model_parallel"
TORCHTITAN_DIMS = "torchtitan b5bcd76c torchtitan/distributed/parallel_dims.py _validate"
ACCELERATE = "accelerate 16cb6eb8 src/accelerate/parallelism_config.py"


def divides(divisor: int, number: int) -> bool:
    """Whether `divisor` is a positive divisor of `number`."""
    return divisor >= 1 and number % divisor == 0


def _replica(q: Quantities) -> int:
    return model_parallel(q) or 0


def _replicas(q: Quantities) -> int:
    return data_parallel(q) or 0


def _step(q: Quantities) -> int:
    """Samples of one micro-step over all replicas."""
    return (q.micro_batch_size or 0) * _replicas(q)


def _world_divisible(q: Quantities) -> bool:
    # A replica larger than the world is dp-at-least-one's to report: one mistake, one finding.
    return _replica(q) > (q.world_size or 0) or divides(_replica(q), q.world_size or 0)


def multiplied(q: Quantities, *names: str) -> int:
    product = 1
    for name in names:
        product *= getattr(q, name)
    return product


def _positive(name: str) -> Constraint:
    return Constraint(
        id=f"positive-{name.replace('_', '-')}",
        rule=f"{name} >= 1",
        given=(name,),
        needs=(name,),
        holds=lambda q: getattr(q, name) >= 1,
        message=f"{name} is {{{name}}}: it must be at least 1",
        adjust=(name,),
        sources=("deepspeed 0.19.8 runtime/config.py _batch_assertion", f"{ACCELERATE}:310-323"),
    )


def _offered(size: str) -> Constraint:
    backends = tuple(name for name, backend in BACKENDS.items() if size not in backend.splits)
    offering = tuple(name for name, backend in BACKENDS.items() if size in backend.splits)
    return Constraint(
        id=f"backend-{size}",
        rule=f"{size} == 1 with {', '.join(backends)}",
        needs=(size,),
        when=(Condition("backend", "in", backends),),
        holds=lambda q: getattr(q, size) <= 1,
        message=f"{{backend}} has no {size} parallelism, but {size} is {{{size}}}",
        adjust=(size, "backend"),
        candidates={"backend": offering},
        sources=tuple(BACKENDS[name].source for name in backends),
    )


TABLE: tuple[Constraint, ...] = (
    *(_positive(name) for name in POSITIVE),
    *(
        _offered(size)
        for size in (*PARALLEL_SIZES, "ep")
        if any(size not in backend.splits for backend in BACKENDS.values())
    ),
    Constraint(
        id="dp-at-least-one",
        rule="tp × ring × ulysses × pp <= world_size",
        needs=("world_size", *PARALLEL_SIZES),
        holds=lambda q: _replica(q) <= (q.world_size or 0),
        message="one model replica takes {replica} processes, but world_size is {world_size}: no "
        "data-parallel rank is left",
        adjust=("tp", "ring", "ulysses", "pp", "world_size"),
        sources=(OPENRLHF_FSDP2, f"{TORCHTITAN_DIMS} (assert dp_shard >= 1)"),
    ),
    Constraint(
        id="world-divisible",
        rule="world_size % (tp × ring × ulysses × pp) == 0",
        needs=("world_size", *PARALLEL_SIZES),
        holds=_world_divisible,
        message="world_size {world_size} is not a multiple of {replica}",
        adjust=("tp", "ring", "ulysses", "pp", "world_size"),
        sources=(
            OPENRLHF_FSDP2,
            f"{MEGATRON_ARGUMENTS}:425-434",
            f"{MEGATRON_STATE}:738-741",
            "deepspeed 0.19.8 utils/groups.py:165 _init_tp_mesh_device",
            "ColossalAI 4f9953be colossalai/booster/plugin/hybrid_parallel_plugin.py:1052",
            "deepspeed 0.19.8 runtime/sequence_parallel/parallel_state_sp.py:37",
        ),
    ),
    Constraint(
        id="mesh-product",
        rule="dp × tp × ring × ulysses × pp == world_size",
        given=("dp",),
        needs=("dp", "world_size", *PARALLEL_SIZES),
        holds=lambda q: multiplied(q, "dp", *PARALLEL_SIZES) == q.world_size,
        message="the mesh of dp {dp} and {replica} does not have world_size {world_size} places",
        adjust=("dp", "tp", "ring", "ulysses", "pp", "world_size"),
        sources=(
            f"{TORCHTITAN_DIMS}",
            f"{ACCELERATE}:372-377 _validate_accelerator",
            "torch 2.13 torch/distributed/device_mesh.py init_device_mesh",
            "deepspeed 0.19.8 utils/groups.py:171",
        ),
    ),
    Constraint(
        id="replicate-shard-product",
        rule="dp_replicate × dp_shard × tp × ring × ulysses × pp == world_size",
        given=("dp_shard", "dp_replicate"),
        needs=("dp_replicate", "dp_shard", "world_size", *PARALLEL_SIZES),
        holds=lambda q: multiplied(q, "dp_replicate", "dp_shard", *PARALLEL_SIZES) == q.world_size,
        message="dp_replicate {dp_replicate} × dp_shard {dp_shard} × tp {tp} × ring {ring} × ulysses "
        "{ulysses} × pp {pp} is not world_size {world_size}",
        adjust=("dp_shard", "dp_replicate", "world_size"),
        sources=(TORCHTITAN_DIMS, f"{ACCELERATE}:372"),
    ),
    Constraint(
        id="replicate-with-model-parallel",
        rule="dp_shard > 1 when dp_replicate > 1 and tp or ring > 1",
        needs=("dp_shard", "tp", "ring"),
        when=(Condition("dp_replicate", ">", 1),),
        holds=lambda q: not ((q.tp or 1) > 1 or (q.ring or 1) > 1) or (q.dp_shard or 1) > 1,
        message="tp {tp} or ring {ring} with pure replication (dp_replicate {dp_replicate}, dp_shard "
        "{dp_shard}) is refused: shard over the data-parallel ranks too",
        adjust=("dp_shard", "dp_replicate"),
        sources=(f"{ACCELERATE}:336-341",),
    ),
    Constraint(
        id="processes-product",
        rule="procs_per_node × num_nodes == world_size",
        given=("procs_per_node", "num_nodes"),
        needs=("procs_per_node", "num_nodes", "world_size"),
        holds=lambda q: multiplied(q, "procs_per_node", "num_nodes") == q.world_size,
        message="{num_nodes} nodes × {procs_per_node} processes per node start {num_nodes}×{procs_per_node} "
        "processes, but world_size is {world_size}",
        adjust=("procs_per_node", "num_nodes", "world_size"),
        sources=("torch 2.13 torch/distributed/run.py --nnodes, --nproc-per-node",),
    ),
    Constraint(
        id="processes-fit-node",
        rule="procs_per_node <= gpus_per_node",
        given=("procs_per_node",),
        needs=("procs_per_node", "gpus_per_node"),
        when=(Condition("device", "==", "cuda"),),
        holds=lambda q: (q.procs_per_node or 0) <= (q.gpus_per_node or 0),
        message="{procs_per_node} processes per node do not fit on {gpus_per_node} GPUs: NCCL refuses two "
        "ranks on one device",
        adjust=("procs_per_node",),
        sources=("NCCL 2 `Duplicate GPU detected`, ncclInvalidUsage",),
    ),
    Constraint(
        id="tp-within-node",
        rule="procs_per_node % tp == 0",
        needs=("procs_per_node", "tp"),
        when=(Condition("tp", ">", 1), Condition("num_nodes", ">", 1)),
        holds=lambda q: divides(q.tp or 0, q.procs_per_node or 0),
        message="tensor-parallel groups of {tp} do not fit in nodes of {procs_per_node} processes: each "
        "layer's all-reduce crosses the network",
        adjust=("tp", "procs_per_node"),
        severity="warning",
        sources=("Narayanan et al. 2021, arXiv:2104.04473, section 3.2 takeaway 1",),
    ),
    Constraint(
        id="ring-and-ulysses",
        rule="not (ring > 1 and ulysses > 1)",
        needs=("ring", "ulysses"),
        when=(Condition("framework", "in", ("accelerate", "trl")),),
        holds=lambda q: (q.ring or 1) <= 1 or (q.ulysses or 1) <= 1,
        message="context parallelism (ring {ring}) and Ulysses ({ulysses}) exclude each other here",
        adjust=("ring", "ulysses"),
        sources=(f"{ACCELERATE}:329-333",),
    ),
    Constraint(
        id="ulysses-engine",
        rule="backend deepspeed when ulysses > 1 with accelerate",
        needs=("backend",),
        when=(Condition("framework", "in", ("accelerate", "trl")), Condition("ulysses", ">", 1)),
        holds=lambda q: q.backend == "deepspeed",
        message="accelerate's sequence parallelism (ulysses {ulysses}) is DeepSpeed's, but the backend is {backend}",
        adjust=("backend", "ulysses"),
        candidates={"backend": ("deepspeed",)},
        sources=(f"{ACCELERATE}:324-327 (valid_sp_backends)",),
    ),
    Constraint(
        id="ulysses-deepspeed-version",
        rule="deepspeed >= 0.18.2 when ulysses > 1 with accelerate",
        given=("deepspeed_version",),
        needs=("deepspeed_version",),
        when=(Condition("framework", "in", ("accelerate", "trl")), Condition("ulysses", ">", 1)),
        holds=lambda q: Condition("deepspeed_version", "version>=", "0.18.2").evaluate(q) is True,
        message="accelerate's sequence parallelism needs deepspeed 0.18.2 or newer, not {deepspeed_version}",
        adjust=("deepspeed_version", "ulysses"),
        candidates={"deepspeed_version": ("0.18.2",)},
        sources=("accelerate 16cb6eb8 src/accelerate/accelerator.py:2392-2396 _prepare_deepspeed",),
    ),
    Constraint(
        id="pipeline-layers",
        rule="layers % pp == 0",
        needs=("layers", "pp"),
        when=(Condition("pp", ">", 1), Condition("backend", "in", ("megatron", "colossalai"))),
        holds=lambda q: divides(q.pp or 0, q.layers or 0),
        message="{layers} layers do not divide into {pp} pipeline stages",
        adjust=("pp", "layers"),
        sources=(f"{MEGATRON_ARGUMENTS}:997", "megatron-core 0.16.1 transformer/transformer_config.py:1447"),
    ),
    Constraint(
        id="pipeline-stage-not-empty",
        rule="layers >= pp",
        needs=("layers", "pp"),
        when=(Condition("pp", ">", 1),),
        holds=lambda q: (q.layers or 0) >= (q.pp or 1),
        message="{layers} layers leave some of the {pp} pipeline stages empty",
        adjust=("pp",),
        sources=("torchtitan b5bcd76c torchtitan/distributed/pipeline_parallel.py:233",),
    ),
    Constraint(
        id="virtual-pipeline-layers",
        rule="layers % (pp × virtual_pp) == 0",
        needs=("layers", "pp", "virtual_pp"),
        when=(Condition("virtual_pp", ">", 1), Condition("backend", "==", "megatron")),
        holds=lambda q: divides(multiplied(q, "pp", "virtual_pp"), q.layers or 0),
        message="{layers} layers do not divide into {pp} stages × {virtual_pp} virtual stages",
        adjust=("virtual_pp", "pp", "layers"),
        sources=(f"{MEGATRON_ARGUMENTS}:968-973",),
    ),
    Constraint(
        id="virtual-pipeline-needs-pipeline",
        rule="pp > 1 when virtual_pp > 1",
        needs=("pp",),
        when=(Condition("virtual_pp", ">", 1),),
        holds=lambda q: (q.pp or 1) > 1,
        message="virtual pipeline stages ({virtual_pp}) need more than {pp} pipeline stage",
        adjust=("pp", "virtual_pp"),
        sources=(f"{MEGATRON_ARGUMENTS}:1002-1009",),
    ),
    Constraint(
        id="virtual-pipeline-microbatches",
        rule="(train_batch_size / micro_batch_size / dp) % pp == 0 when virtual_pp > 1",
        given=("train_batch_size",),
        needs=("train_batch_size", "micro_batch_size", "world_size", *PARALLEL_SIZES),
        when=(Condition("virtual_pp", ">", 1), Condition("backend", "==", "megatron")),
        holds=lambda q: (
            not divides(_step(q), q.train_batch_size or 0) or divides(q.pp or 0, (q.train_batch_size or 0) // _step(q))
        ),
        message="train_batch_size {train_batch_size} in micro-batches of {micro_batch_size} over {data_parallel} "
        "replicas is not a multiple of the {pp} pipeline stages, which the interleaved schedule takes at a time",
        adjust=("train_batch_size", "micro_batch_size", "virtual_pp"),
        sources=(
            "Megatron-LM d98e8a64 megatron/core/pipeline_parallel/schedules.py:1161-1180 (groups of pp "
            "micro-batches unless microbatch_group_size_per_vp_stage says otherwise)",
        ),
    ),
    Constraint(
        id="pipeline-zero",
        rule="zero_stage <= 1 when pp > 1",
        needs=("zero_stage",),
        when=(Condition("pp", ">", 1), Condition("backend", "==", "deepspeed")),
        holds=lambda q: (q.zero_stage or 0) <= 1,
        message="ZeRO-{zero_stage} does not go with DeepSpeed's pipeline engine (pp {pp})",
        adjust=("zero_stage", "pp"),
        sources=("deepspeed 0.19.8 runtime/pipe/engine.py:76",),
        candidates={"zero_stage": (1, 0)},
    ),
    Constraint(
        id="transformers-mesh",
        rule="not (tp > 1 and dp > 1 and pp > 1)",
        needs=("tp", "pp", "world_size", "ring", "ulysses"),
        when=(Condition("framework", "==", "transformers"),),
        holds=lambda q: not ((q.tp or 1) > 1 and (q.pp or 1) > 1 and _replicas(q) > 1),
        message="transformers does not combine tp {tp}, pp {pp} and sharded data parallelism",
        adjust=("pp", "tp"),
        sources=("transformers 5.17.0 distributed/configuration_utils.py:76 DistributedConfig",),
    ),
    Constraint(
        id="transformers-pipeline",
        rule="dp == 1 when pp > 1 with transformers 5.23",
        given=("transformers_version",),
        needs=("pp", "world_size", "tp", "ring", "ulysses"),
        when=(
            Condition("framework", "==", "transformers"),
            Condition("pp", ">", 1),
            Condition("transformers_version", "version>=", "5.23"),
        ),
        holds=lambda q: _replicas(q) <= 1,
        message="transformers {transformers_version} does not combine pp {pp} with data parallelism, but "
        "{data_parallel} replicas are left",
        adjust=("pp", "tp"),
        sources=("transformers 5.23.0 distributed/configuration_utils.py:187 _validate_mesh_config",),
    ),
    Constraint(
        id="hpz-divides-world",
        rule="world_size % min(hpz, world_size) == 0",
        needs=("hpz", "world_size"),
        when=(Condition("hpz", ">", 1), Condition("backend", "==", "deepspeed")),
        holds=lambda q: divides(min(q.hpz or 0, q.world_size or 0), q.world_size or 0),
        message="ZeRO++ groups of {hpz} (zero_hpz_partition_size) do not divide world_size {world_size}",
        adjust=("hpz", "world_size"),
        sources=("deepspeed 0.19.8 utils/groups.py:944 _create_zero_param_parallel_group",),
    ),
    Constraint(
        id="hpz-needs-zero-3",
        rule="zero_stage == 3 when hpz > 1",
        needs=("zero_stage",),
        when=(Condition("hpz", ">", 1), Condition("backend", "==", "deepspeed")),
        holds=lambda q: q.zero_stage == 3,
        message="zero_hpz_partition_size {hpz} has no effect at ZeRO-{zero_stage}: only stage 3 partitions weights",
        adjust=("zero_stage", "hpz"),
        severity="warning",
        sources=("deepspeed 0.19.8 runtime/zero/stage3.py:265",),
        candidates={"zero_stage": (3,)},
    ),
)

"""Experts of a mixture: how their groups fit in the mesh, and what ZeRO-3 takes beside them."""

from __future__ import annotations

from rules.constraints.core import Condition, Constraint
from rules.constraints.sizes import MEGATRON_ARGUMENTS, MEGATRON_STATE, TORCHTITAN_DIMS, divides, multiplied

_EXPERT_GROUPS = Condition("ep", ">", 1)
_ZERO_3 = (Condition("backend", "==", "deepspeed"), Condition("zero_stage", "==", 3), _EXPERT_GROUPS)
_ZERO_3_SINCE = "0.19.3"
_ZERO_3_CHECK = "deepspeed 0.19.8 runtime/engine.py:2214-2232"
_TRANSFORMERS = "transformers 5.23.0 distributed/configuration_utils.py"

TABLE: tuple[Constraint, ...] = (
    Constraint(
        id="experts-needed",
        rule="experts >= 1 when ep > 1",
        needs=("experts",),
        when=(Condition("ep", ">", 1),),
        holds=lambda q: (q.experts or 0) >= 1,
        message="expert parallelism ({ep}) needs a mixture-of-experts model",
        adjust=("ep",),
        sources=(f"{MEGATRON_ARGUMENTS}:1655",),
    ),
    Constraint(
        id="experts-divisible",
        rule="experts % ep == 0",
        needs=("experts", "ep"),
        when=(Condition("ep", ">", 1), Condition("experts", ">", 0)),
        holds=lambda q: divides(q.ep or 0, q.experts or 0),
        message="{experts} experts do not divide over expert-parallel groups of {ep}",
        adjust=("ep",),
        sources=(
            f"{MEGATRON_ARGUMENTS}:1657",
            "torchtitan b5bcd76c torchtitan/models/common/decoder.py:204",
            "transformers 5.17.0 distributed/tensor_parallel.py:538,707",
        ),
    ),
    Constraint(
        id="expert-world",
        rule="world_size % (expert_tp × ep × pp) == 0",
        given=("expert_tp",),
        needs=("world_size", "expert_tp", "ep", "pp"),
        when=(Condition("ep", ">", 1), Condition("backend", "==", "megatron")),
        holds=lambda q: divides(multiplied(q, "expert_tp", "ep", "pp"), q.world_size or 0),
        message="world_size {world_size} is not a multiple of expert_tp {expert_tp} × ep {ep} × pp {pp}",
        adjust=("ep", "expert_tp", "pp", "world_size"),
        sources=(f"{MEGATRON_STATE}:786-795", "SkyRL a9564572 skyrl/train/config/config.py:442"),
    ),
    Constraint(
        id="expert-mesh",
        rule="(dp × ring × tp) % ep == 0",
        needs=("world_size", "pp", "ep"),
        when=(Condition("ep", ">", 1), Condition("backend", "in", ("torchtitan", "deepspeed", "colossalai"))),
        holds=lambda q: (
            divides(q.pp or 0, q.world_size or 0) and divides(q.ep or 0, (q.world_size or 0) // (q.pp or 1))
        ),
        message="expert-parallel groups of {ep} do not divide the world_size {world_size} / pp {pp} ranks of a stage",
        adjust=("ep", "world_size"),
        sources=(
            f"{TORCHTITAN_DIMS}:186-192",
            "deepspeed 0.19.8 utils/groups.py:416",
            "ColossalAI 4f9953be colossalai/booster/plugin/moe_hybrid_parallel_plugin.py:268",
        ),
    ),
    Constraint(
        id="expert-ranks-of-tp",
        rule="ep % tp == 0 with transformers",
        needs=("ep", "tp"),
        when=(_EXPERT_GROUPS, Condition("framework", "==", "transformers")),
        holds=lambda q: divides(q.tp or 0, q.ep or 0),
        message="expert-parallel groups of {ep} are not whole tensor-parallel groups of {tp}",
        adjust=("ep", "tp"),
        sources=(f"{_TRANSFORMERS}:182 _validate_mesh_config",),
    ),
    Constraint(
        id="expert-ranks-of-shards",
        rule="(dp_shard × tp) % ep == 0 with transformers",
        given=("dp_shard",),
        needs=("dp_shard", "tp", "ep"),
        when=(_EXPERT_GROUPS, Condition("framework", "==", "transformers")),
        holds=lambda q: divides(q.ep or 0, multiplied(q, "dp_shard", "tp")),
        message="expert-parallel groups of {ep} do not divide the dp_shard {dp_shard} × tp {tp} ranks that shard a "
        "replica",
        adjust=("ep", "dp_shard"),
        sources=(f"{_TRANSFORMERS}:184 _validate_mesh_config",),
    ),
    Constraint(
        id="experts-sequence-parallel",
        rule="sequence_parallel when a mixture of experts is trained with tp > 1",
        needs=("sequence_parallel",),
        when=(Condition("backend", "==", "megatron"), Condition("experts", ">", 1), Condition("tp", ">", 1)),
        holds=lambda q: bool(q.sequence_parallel),
        message="Megatron's expert layers refuse to train with tp {tp} unless sequence parallelism is on",
        adjust=("sequence_parallel", "tp"),
        sources=("Megatron-LM d98e8a64 megatron/core/transformer/moe/moe_layer.py:636",),
    ),
    Constraint(
        id="zero-3-experts",
        rule=f"zero_stage <= 2 when ep > 1 before deepspeed {_ZERO_3_SINCE}",
        given=("deepspeed_version",),
        needs=("zero_stage",),
        when=(
            Condition("backend", "==", "deepspeed"), _EXPERT_GROUPS,
            Condition("deepspeed_version", "version<", _ZERO_3_SINCE),
        ),
        holds=lambda q: q.zero_stage != 3,
        message="deepspeed {deepspeed_version} does not shard experts (ep {ep}) at ZeRO-3",
        adjust=("zero_stage", "deepspeed_version"),
        candidates={"zero_stage": (2, 1), "deepspeed_version": (_ZERO_3_SINCE,)},
        sources=(
            "deepspeed 0.19.2 runtime/engine.py:2121 (MoE not supported with Stage 3)",
            f"{_ZERO_3_CHECK} (since {_ZERO_3_SINCE} for automatically sharded experts, never for its own MoE layer)",
        ),
    ),
    Constraint(
        id="zero-3-experts-ulysses",
        rule="ulysses == 1 when ep > 1 at ZeRO-3",
        needs=("ulysses",),
        when=_ZERO_3,
        holds=lambda q: (q.ulysses or 1) <= 1,
        message="ZeRO-3 with experts (ep {ep}) does not go with sequence parallelism (ulysses {ulysses})",
        adjust=("ulysses", "zero_stage", "ep"),
        candidates={"zero_stage": (2, 1)},
        sources=(f"{_ZERO_3_CHECK}",),
    ),
    Constraint(
        id="zero-3-experts-hpz",
        rule="hpz == 1 when ep > 1 at ZeRO-3",
        given=("hpz",),
        needs=("hpz",),
        when=_ZERO_3,
        holds=lambda q: (q.hpz or 1) <= 1,
        message="ZeRO-3 with experts (ep {ep}) does not go with ZeRO++ groups (zero_hpz_partition_size {hpz})",
        adjust=("hpz", "zero_stage", "ep"),
        candidates={"zero_stage": (2, 1)},
        sources=(_ZERO_3_CHECK,),
    ),
    Constraint(
        id="zero-3-experts-tp",
        rule="expert_tp == 1 when ep > 1 at ZeRO-3",
        given=("expert_tp",),
        needs=("expert_tp",),
        when=_ZERO_3,
        holds=lambda q: (q.expert_tp or 1) <= 1,
        message="ZeRO-3 with experts (ep {ep}) splits no single expert (expert_tp {expert_tp})",
        adjust=("expert_tp", "zero_stage", "ep"),
        candidates={"zero_stage": (2, 1)},
        sources=(_ZERO_3_CHECK,),
    ),
)  # fmt: skip

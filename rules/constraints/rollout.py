"""Reinforcement learning: the GPUs of actor, critic, reference and generation engines, together or apart."""

from __future__ import annotations

from rules.constraints.core import Condition, Constraint
from rules.constraints.model import multiple_or_divisor
from rules.constraints.quantities import Quantities
from rules.constraints.sizes import divides

_OPENRLHF = Condition("framework", "==", "openrlhf")
_PPO = "OpenRLHF 3c3be623 openrlhf/cli/train_ppo_ray.py"
_VLLM = "vLLM vllm/config/model.py verify_with_parallel_config"


def _engine_gpus(q: Quantities) -> int:
    return (q.engines or 0) * (q.engine_tp or 0)


def gpus_used(q: Quantities) -> int:
    """GPUs that the roles take together: the largest of colocated ones, the sum of the rest."""
    actor, ref = q.actor_gpus or 0, q.ref_gpus or 0
    critic, reward = q.critic_gpus or 0, q.reward_gpus or 0
    if q.colocate_all:
        engines = 0 if not q.asynchronous else _engine_gpus(q)
        return max(actor, ref, critic, reward) + engines
    policy = max(actor, ref) if q.colocate_actor_ref else actor + ref
    value = max(critic, reward) if q.colocate_critic_reward else critic + reward
    return policy + value + _engine_gpus(q)


TABLE: tuple[Constraint, ...] = (
    Constraint(
        id="colocated-engines",
        rule="actor_gpus == engines × engine_tp when everything is colocated",
        given=("engines",),
        needs=("actor_gpus", "engines", "engine_tp"),
        when=(
            _OPENRLHF, Condition("colocate_all", "==", True), Condition("asynchronous", "==", False),
            Condition("engines", ">", 0),
        ),
        holds=lambda q: q.actor_gpus == _engine_gpus(q),
        message="{engines} colocated engines of tp {engine_tp} do not take exactly the actor's {actor_gpus} "
        "GPUs",
        adjust=("engines", "engine_tp", "actor_gpus"),
        sources=(f"{_PPO}:56-64",),
    ),
    Constraint(
        id="colocated-reference",
        rule="actor_gpus == ref_gpus when actor and reference are colocated",
        given=("actor_gpus", "ref_gpus"),
        needs=("actor_gpus", "ref_gpus"),
        when=(_OPENRLHF, Condition("colocate_actor_ref", "==", True)),
        holds=lambda q: q.actor_gpus == q.ref_gpus,
        message="colocated actor and reference take different numbers of GPUs: {actor_gpus} and {ref_gpus}",
        adjust=("ref_gpus", "actor_gpus"),
        sources=(f"{_PPO}:41-46",),
    ),
    Constraint(
        id="colocated-reward",
        rule="critic_gpus == reward_gpus when critic and reward are colocated",
        given=("critic_gpus", "reward_gpus"),
        needs=("critic_gpus", "reward_gpus"),
        when=(_OPENRLHF, Condition("colocate_critic_reward", "==", True)),
        holds=lambda q: q.critic_gpus == q.reward_gpus,
        message="colocated critic and reward take different numbers of GPUs: {critic_gpus} and {reward_gpus}",
        adjust=("reward_gpus", "critic_gpus"),
        sources=(f"{_PPO}:109-112",),
    ),
    Constraint(
        id="cluster-gpus",
        rule="the roles' GPUs, colocated or apart, fit in the cluster",
        given=("cluster_gpus", "actor_gpus"),
        needs=(
            "cluster_gpus", "actor_gpus", "ref_gpus", "critic_gpus", "reward_gpus", "engines", "engine_tp",
            "colocate_all", "colocate_actor_ref", "colocate_critic_reward", "asynchronous",
        ),
        holds=lambda q: gpus_used(q) <= (q.cluster_gpus or 0),
        message="actor {actor_gpus}, reference {ref_gpus}, critic {critic_gpus}, reward {reward_gpus} and "
        "{engines} engines × tp {engine_tp} do not fit on {cluster_gpus} GPUs: placement groups would wait "
        "for ever",
        adjust=("actor_gpus", "engines", "engine_tp", "cluster_gpus"),
        sources=(f"{_PPO}:48-50 placement_group",),
    ),
    Constraint(
        id="engine-world",
        rule="world_size % engine_tp == 0",
        given=("engine_tp",),
        needs=("world_size", "engine_tp"),
        when=(Condition("framework", "==", "verl"),),
        holds=lambda q: divides(q.engine_tp or 0, q.world_size or 0),
        message="generation with tp {engine_tp} does not divide the {world_size} GPUs of the rollout workers",
        adjust=("engine_tp", "world_size"),
        sources=("verl b178a3cd verl/workers/fsdp_workers.py:626",),
    ),
    Constraint(
        id="engine-within-node",
        rule="gpus_per_node % engine_tp == 0, or engine_tp % gpus_per_node == 0 for engines of several nodes",
        given=("gpus_per_node",),
        needs=("gpus_per_node", "engine_tp"),
        when=(Condition("engine_tp", ">", 1),),
        holds=lambda q: multiple_or_divisor(q.gpus_per_node or 0, q.engine_tp or 0),
        message="engines of tp {engine_tp} do not fit evenly in nodes of {gpus_per_node} GPUs",
        adjust=("engine_tp",),
        severity="warning",
        sources=("verl b178a3cd verl/workers/rollout/vllm_rollout/vllm_async_server.py:309",),
    ),
    Constraint(
        id="engine-heads",
        rule="heads % engine_tp == 0",
        given=("engine_tp",),
        needs=("heads", "engine_tp"),
        when=(Condition("engine_tp", ">", 1),),
        holds=lambda q: divides(q.engine_tp or 0, q.heads or 0),
        message="{heads} attention heads do not divide over the generation engines' tp {engine_tp}",
        adjust=("engine_tp",),
        sources=(_VLLM,),
    ),
    Constraint(
        id="engine-kv-heads",
        rule="kv_heads % engine_tp == 0 or engine_tp % kv_heads == 0",
        given=("engine_tp",),
        needs=("kv_heads", "engine_tp"),
        when=(Condition("engine_tp", ">", 1),),
        holds=lambda q: multiple_or_divisor(q.kv_heads or 0, q.engine_tp or 0),
        message="{kv_heads} key/value heads are neither a multiple nor a divisor of the engines' tp "
        "{engine_tp}",
        adjust=("engine_tp",),
        sources=("vLLM vllm/model_executor/layers/linear.py QKVParallelLinear",),
    ),
    Constraint(
        id="engine-share",
        rule="0 < engine_share <= 1",
        given=("engine_share",),
        needs=("engine_share",),
        holds=lambda q: 0 < (q.engine_share or 0) <= 1,
        message="generation engines cannot take {engine_share} of a GPU's memory: the share is above 0 and at most 1",
        adjust=("engine_share",),
        candidates={"engine_share": (0.5,)},
        sources=("vLLM vllm/config/cache.py CacheConfig.gpu_memory_utilization",),
    ),
    Constraint(
        id="packing-needs-engines",
        rule="engines >= 1 when packing in PPO",
        needs=("engines",),
        when=(_OPENRLHF, Condition("packing", "==", True), Condition("actor_gpus", ">", 0)),
        holds=lambda q: (q.engines or 0) >= 1,
        message="PPO with packed samples needs generation engines",
        adjust=("packing",),
        candidates={"packing": (False,)},
        sources=(f"{_PPO}:661",),
    ),
    Constraint(
        id="engine-sleep",
        rule="no engine sleep when asynchronous",
        needs=("engine_sleep",),
        when=(_OPENRLHF, Condition("asynchronous", "==", True)),
        holds=lambda q: not q.engine_sleep,
        message="asynchronous training keeps the engines awake: engine sleep is refused",
        adjust=("engine_sleep", "asynchronous"),
        candidates={"engine_sleep": (False,), "asynchronous": (False,)},
        sources=(f"{_PPO}:671",),
    ),
    Constraint(
        id="engine-sleep-colocated",
        rule="colocate_all when engine_sleep",
        needs=("colocate_all",),
        when=(_OPENRLHF, Condition("engine_sleep", "==", True), Condition("asynchronous", "==", False)),
        holds=lambda q: bool(q.colocate_all),
        message="engine sleep is ignored: the generation engines have GPUs of their own, so nothing else needs theirs",
        adjust=("engine_sleep", "colocate_all"),
        candidates={"engine_sleep": (False,), "colocate_all": (True,)},
        severity="warning",
        sources=(f"{_PPO}:663-665",),
    ),
    Constraint(
        id="partial-rollout",
        rule="asynchronous when partial_rollout",
        given=("partial_rollout",),
        needs=("asynchronous",),
        when=(_OPENRLHF, Condition("partial_rollout", "==", True)),
        holds=lambda q: bool(q.asynchronous),
        message="partial rollouts need asynchronous training",
        adjust=("asynchronous", "partial_rollout"),
        candidates={"partial_rollout": (False,)},
        sources=(f"{_PPO}:674",),
    ),
    Constraint(
        id="oversampling",
        rule="generation_batch_size <= rollout_batch_size unless asynchronous",
        given=("generation_batch_size",),
        needs=("generation_batch_size", "rollout_batch_size", "asynchronous"),
        when=(_OPENRLHF,),
        holds=lambda q: bool(q.asynchronous) or (q.generation_batch_size or 0) <= (q.rollout_batch_size or 0),
        message="generating {generation_batch_size} prompts for a rollout of {rollout_batch_size} needs "
        "asynchronous training, which queues the rest",
        adjust=("generation_batch_size", "rollout_batch_size", "asynchronous"),
        candidates={"asynchronous": (True,)},
        sources=(f"{_PPO}:694-698",),
    ),
)  # fmt: skip

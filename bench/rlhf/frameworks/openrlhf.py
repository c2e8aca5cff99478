"""OpenRLHF 0.3 to 0.9: `train_ppo` on the GPUs of one torchrun or deepspeed, `train_ppo_ray` with models placed apart.

Defaults are those of `openrlhf/cli/train_ppo_ray.py`. Logits are made whole, in fp32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.predict.layout import Layout
from bench.problems import Problem
from bench.rlhf.command import Command
from bench.rlhf.job import Engine, Job, Part
from rules.models import ModelFacts

MODELS = {
    "actor": ("pretrain",), "critic": ("critic_pretrain", "reward_pretrain", "pretrain"),
    "reward": ("reward_pretrain",), "reference": ("pretrain",),
}  # fmt: skip
WITHOUT_CRITIC = ("group_norm", "rloo", "reinforce", "reinforce_baseline", "dr_grpo")
SHARE = 0.95
"""Of vLLM's memory, where the command does not say."""


def starts(words: Sequence[str]) -> bool:
    return any("openrlhf" in word or "train_ppo" in word for word in words)


def roles(command: Command) -> list[str]:
    """The models of the job."""
    found = ["actor"]
    if command.text("advantage_estimator", "gae") not in WITHOUT_CRITIC:
        found.append("critic")
    if command.share("init_kl_coef", 0.01) > 0:
        found.append("reference")
    return found + ["reward"] * (not command.text("remote_rm_url"))


def job(command: Command, models: Mapping[str, ModelFacts], gpus: int | None) -> Job:
    ray = any("ray" in word.rpartition("/")[2] and "train_ppo" in word for word in command.words)
    here = roles(command)
    sizes = {role: _gpus(command, role, ray, gpus) for role in here}
    parts = tuple(_part(command, role, models[role], sizes[role], ray) for role in here)
    engine = _engine(command, models["actor"]) if ray else None
    return Job("OpenRLHF", parts, engine, _groups(command, here, ray, engine), processes=ray)


def _gpus(command: Command, role: str, ray: bool, gpus: int | None) -> int:
    if not ray:
        if gpus is None:
            raise Problem("how many GPUs? the command does not say: --gpus")
        return gpus
    short = {"reference": "ref"}.get(role, role)
    return command.number(f"{short}_num_nodes", 1) * command.number(f"{short}_num_gpus_per_node", 8)


def _part(command: Command, role: str, facts: ModelFacts, gpus: int, ray: bool) -> Part:
    trains = role in ("actor", "critic")
    stage, tp, ring = command.number("zero_stage", 2), command.number("ds_tensor_parallel_size", 1), 1
    if command.flags.get("ring_attn_size"):
        ring = command.number("ring_attn_size", 1)
    length = command.number("prompt_max_len", 1024) + command.number("generate_max_len", 1024)
    micro = command.number("micro_train_batch_size", 4)
    dp = max(gpus // (tp * ring), 1)
    offload = command.on("adam_offload")
    layout = Layout(
        backend="deepspeed", zero_stage=stage, dp=dp, tp=tp, ring=ring, micro_batch_size=micro, seq_len=length,
        grad_accum=max(command.number("train_batch_size", 128) // (micro * dp), 1),
        dtype="bf16" if command.on("bf16", True) else "fp16", head="full" if role == "actor" else "chunked",
        checkpointing=command.on("gradient_checkpointing"), offload_optimizer=offload,
    )  # fmt: skip
    away = (not trains and command.on("ref_reward_offload")) or (trains and command.on("deepspeed_enable_sleep"))
    return Part(
        role, facts, layout, trains, command.number("micro_rollout_batch_size", 8) * length / ring,
        idle_parameters=not away, idle_optimizer=not away,
    )  # fmt: skip


def _engine(command: Command, facts: ModelFacts) -> Engine | None:
    count = command.number("vllm_num_engines", 0)
    if not count:
        return None
    return Engine(
        facts, count, command.number("vllm_tensor_parallel_size", 1),
        command.share("vllm_gpu_memory_utilization", SHARE), command.on("vllm_enable_sleep"),
        command.number("prompt_max_len", 1024) + command.number("generate_max_len", 1024),
    )  # fmt: skip


def _groups(command: Command, here: Sequence[str], ray: bool, engine: Engine | None) -> tuple[tuple[str, ...], ...]:
    every = (*here, *["rollout"] * (engine is not None))
    if not ray or command.on("colocate_all_models"):
        return (every,)
    joined: list[tuple[str, ...]] = []
    if command.on("colocate_actor_ref"):
        joined.append(("actor", "reference"))
    if command.on("colocate_critic_reward"):
        joined.append(("critic", "reward"))
    together = [tuple(role for role in group if role in here) for group in joined]
    alone = [(role,) for role in every if not any(role in group for group in together)]
    return (*(group for group in together if group), *alone)

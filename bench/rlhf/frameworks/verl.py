"""verl's `main_ppo` with FSDP: all models and the engine share every GPU. Defaults are those of `ppo_trainer.yaml`.

Parameters are held in fp32 and sharded; logits are made whole, in fp32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.predict.layout import Layout
from bench.rlhf.command import Command
from bench.rlhf.job import Engine, Job, Part
from rules.models import ModelFacts

MODELS = {
    "actor": ("actor_rollout_ref.model.path",), "critic": ("critic.model.path", "actor_rollout_ref.model.path"),
    "reference": ("actor_rollout_ref.model.path",), "reward": ("reward_model.model.path",),
}  # fmt: skip
OWN = {
    "actor": "actor_rollout_ref.actor",
    "critic": "critic",
    "reference": "actor_rollout_ref.ref",
    "reward": "reward_model",
}


def starts(words: Sequence[str]) -> bool:
    return any(word.startswith(("verl.", "actor_rollout_ref.")) for word in words)


def roles(command: Command) -> list[str]:
    """The models of the job."""
    found = ["actor"] + ["critic"] * (command.text("algorithm.adv_estimator", "gae") == "gae")
    in_loss = command.on("actor_rollout_ref.actor.use_kl_loss") or command.on("algorithm.use_kl_in_reward", True)
    return found + ["reference"] * in_loss + ["reward"] * command.on("reward_model.enable")


def job(command: Command, models: Mapping[str, ModelFacts], gpus: int | None) -> Job:
    world = gpus or command.number("trainer.nnodes", 1) * command.number("trainer.n_gpus_per_node", 8)
    here = roles(command)
    parts = tuple(_part(command, role, models[role], world) for role in here)
    rollout = "actor_rollout_ref.rollout"
    tp = command.number(f"{rollout}.tensor_model_parallel_size", 2)
    engine = Engine(
        models["actor"], max(world // tp, 1), tp, command.share(f"{rollout}.gpu_memory_utilization", 0.5),
        command.on(f"{rollout}.free_cache_engine", True), _length(command),
    )  # fmt: skip
    return Job("verl", parts, engine, ((*here, "rollout"),), processes=False)


def _length(command: Command) -> int:
    return command.number("data.max_prompt_length", 512) + command.number("data.max_response_length", 512)


def _part(command: Command, role: str, facts: ModelFacts, world: int) -> Part:
    own, trains = OWN[role], role in ("actor", "critic")
    settings = f"{own}.model.fsdp_config" if role in ("critic", "reward") else f"{own}.fsdp_config"
    checkpointing = "critic.model" if role == "critic" else "actor_rollout_ref.model"
    rows, length = _rows(command, own, world)
    parameters, optimizer = (command.on(f"{settings}.{what}_offload") for what in ("param", "optimizer"))
    layout = Layout(
        backend="fsdp2", dp=world, micro_batch_size=rows, seq_len=length, grad_accum=2, head="full",
        master="fp32" if trains else "bf16",
        checkpointing=command.on(f"{checkpointing}.enable_gradient_checkpointing", True),
    )  # fmt: skip
    scored, each = _rows(command, own if role != "actor" else "actor_rollout_ref.rollout", world, "log_prob")
    return Part(
        role, facts, layout, trains, float(scored * each), idle_parameters=not parameters,
        idle_optimizer=not optimizer,
    )  # fmt: skip


def _rows(command: Command, own: str, world: int, kind: str = "ppo") -> tuple[int, int]:
    """Samples of a micro-batch on a GPU and their length; dynamic batches are one row of so many tokens."""
    length = _length(command)
    if command.on(f"{own}.use_dynamic_bsz") or (kind == "log_prob" and command.on(f"{own}.log_prob_use_dynamic_bsz")):
        return 1, command.number(f"{own}.{kind}_max_token_len_per_gpu", 16384)
    per_gpu, of_all = f"{own}.{kind}_micro_batch_size_per_gpu", f"{own}.{kind}_micro_batch_size"
    if per_gpu in command.settings:
        return command.number(per_gpu, 1), length
    return max(command.number(of_all, world) // world, 1), length

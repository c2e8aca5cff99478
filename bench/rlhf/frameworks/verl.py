"""verl's `main_ppo` with FSDP: all models and the engine share every GPU. Defaults are those of `ppo_trainer.yaml`.

Parameters are held in fp32 and sharded; logits are made whole, in fp32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.predict.layout import Layout
from bench.problems import Problem
from bench.rlhf.command import Command
from bench.rlhf.job import ACCUMULATION, Engine, Job, Part, worst_case
from rules.launch._reading.frameworks import named
from rules.models import ModelFacts

TABLE = named("verl")
PROGRAM = "verl.trainer.main_ppo"
_MODEL, _ROLLOUT, _ACTOR = "actor_rollout_ref.model", "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
MODELS = {
    "actor": (f"{_MODEL}.path",), "critic": ("critic.model.path", f"{_MODEL}.path"),
    "reference": (f"{_MODEL}.path",), "reward": ("reward_model.model.path",),
}  # fmt: skip
OWN = {"actor": _ACTOR, "critic": "critic", "reference": "actor_rollout_ref.ref", "reward": "reward_model"}
TOKENS, CRITIC_TOKENS = 16384, 32768
"""Of a dynamic micro-batch on a GPU, where the command does not say."""


def starts(words: Sequence[str]) -> bool:
    return any(word.startswith(("verl.", "actor_rollout_ref.")) for word in words)


def roles(command: Command) -> list[str]:
    """The models of the job."""
    by_estimator = command.text("algorithm.adv_estimator", "gae") == "gae"
    in_loss, in_reward = command.on(f"{_ACTOR}.use_kl_loss"), command.on("algorithm.use_kl_in_reward")
    found = ["actor"] + ["critic"] * command.on("critic.enable", by_estimator)
    return found + ["reference"] * (in_loss or in_reward) + ["reward"] * command.on("reward_model.enable")


def job(command: Command, models: Mapping[str, ModelFacts], gpus: int | None) -> Job:
    nodes, per_node = command.number("trainer.nnodes", 1), command.number("trainer.n_gpus_per_node", 8)
    world, here = gpus or nodes * per_node, roles(command)
    _only_fsdp(command)
    every = {role: _part(command, role, models.get(role, models["actor"]), world) for role in OWN}  # all are understood
    parts = tuple(every[role] for role in here)
    tp = command.number(f"{_ROLLOUT}.tensor_model_parallel_size", 2)
    engine = Engine(
        models["actor"], max(world // max(tp, 1), 1), tp, command.share(f"{_ROLLOUT}.gpu_memory_utilization", 0.5),
        command.on(f"{_ROLLOUT}.free_cache_engine", True), _length(command),
    )  # fmt: skip
    fixed = [role for role in here if not (_is_dynamic(command, role) and _is_dynamic(command, role, "log_prob"))]
    notes = [f"{', '.join(fixed)}: {worst_case(_length(command))}"] * bool(fixed)
    program = next((word for word in command.words if word.startswith("verl.") and "=" not in word), PROGRAM)
    if program != PROGRAM:
        notes.append(f"{program} is planned as if it were {PROGRAM}")
    return Job("verl", parts, engine, ((*here, "rollout"),), processes=False, notes=tuple(notes))


def _only_fsdp(command: Command) -> None:
    """Raises `Problem` for other programs of verl and for other engines than FSDP."""
    if not any(name.startswith("actor_rollout_ref.") for name in command.settings):
        raise Problem("a command of verl without actor_rollout_ref is no RLHF job of several models")
    strategies = {f"{own}.strategy": command.text(f"{own}.strategy", "fsdp") for own in OWN.values()}
    others = [f"{name}={value}" for name, value in strategies.items() if not value.startswith(("fsdp", "$"))]
    others += [name for name in command.settings if ".megatron." in name or ".veomni." in name]
    configuration = command.text("config_name")
    others += [f"--config-name={configuration}"] * ("megatron" in configuration)
    if others:
        raise Problem(f"{others[0]}: only jobs of verl with FSDP are planned")


def _length(command: Command) -> int:
    return command.number("data.max_prompt_length", 512) + command.number("data.max_response_length", 512)


def _part(command: Command, role: str, facts: ModelFacts, world: int) -> Part:
    own, trains = OWN[role], role in ("actor", "critic")
    settings = f"{own}.model.fsdp_config" if role in ("critic", "reward") else f"{own}.fsdp_config"
    checkpointing = "critic.model" if role == "critic" else _MODEL
    split = _ulysses(command, role)
    parameters, optimizer = (command.on(f"{settings}.{what}_offload") for what in ("param", "optimizer"))
    scored, each = _score_rows(command, role, world, split)
    rows, length = _train_rows(command, role, world, split) if trains else (scored, each)
    layout = Layout(
        backend="fsdp2", dp=max(world // split, 1), ring=split, micro_batch_size=rows, seq_len=length,
        grad_accum=ACCUMULATION, head="full", master="fp32" if trains else "bf16",
        checkpointing=command.on(f"{checkpointing}.enable_gradient_checkpointing", True),
    )  # fmt: skip
    return Part(
        role, facts, layout, trains, scored * each / split, idle_parameters=not parameters,
        idle_optimizer=not optimizer,
    )  # fmt: skip


def _ulysses(command: Command, role: str) -> int:
    """Ranks over which a sequence is split; the reference is as the actor where nothing else is said."""
    own = (f"{OWN[role]}.ulysses_sequence_parallel_size", f"{OWN[role]}.fsdp_config.ulysses_sequence_parallel_size")
    default = _ulysses(command, "actor") if role == "reference" else 1
    return max(command.number(own, default), 1)


def _is_dynamic(command: Command, role: str, kind: str = "train") -> bool:
    """Whether micro-batches have a number of tokens; what is not said follows the actor, or the critic."""
    actor = command.on(f"{_ACTOR}.use_dynamic_bsz")
    if role in ("critic", "reward"):
        critic = command.on("critic.use_dynamic_bsz", actor)
        return critic if role == "critic" else command.on("reward_model.use_dynamic_bsz", critic)
    if role == "actor" and kind == "train":
        return actor
    return command.on(f"{_ROLLOUT if role == 'actor' else OWN[role]}.log_prob_use_dynamic_bsz", actor)


def _train_rows(command: Command, role: str, world: int, split: int) -> tuple[int, int]:
    """Samples of a micro-batch of training and their length; a dynamic one is one row of so many tokens."""
    own = OWN[role]
    rows = _fixed(command, f"{own}.ppo_micro_batch_size", world // split)
    return (
        _row(command, _train_tokens(command, role) * split) if _is_dynamic(command, role) else (rows, _length(command))
    )


def _score_rows(command: Command, role: str, world: int, split: int) -> tuple[int, int]:
    """The same of a forward pass that scores."""
    ranks = world // split
    if role in ("critic", "reward"):
        trained = _fixed(command, "critic.ppo_micro_batch_size", ranks)
        critic = _fixed(command, "critic.forward_micro_batch_size", ranks, trained)
        critic_tokens = command.number("critic.forward_max_token_len_per_gpu", _train_tokens(command, "critic"))
        tokens = command.number(f"{OWN[role]}.forward_max_token_len_per_gpu", critic_tokens)
        rows = critic if role == "critic" else _fixed(command, "reward_model.micro_batch_size", ranks)
    else:
        own = _ROLLOUT if role == "actor" else OWN[role]
        rows = _fixed(command, f"{own}.log_prob_micro_batch_size", ranks)
        tokens = command.number(f"{own}.log_prob_max_token_len_per_gpu", _train_tokens(command, "actor"))
    return _row(command, tokens * split) if _is_dynamic(command, role, "log_prob") else (rows, _length(command))


def _train_tokens(command: Command, role: str) -> int:
    default = CRITIC_TOKENS if role == "critic" else TOKENS
    return command.number(f"{OWN[role]}.ppo_max_token_len_per_gpu", default)


def _row(command: Command, tokens: int) -> tuple[int, int]:
    """A row holds at least one sample: verl refuses a limit below its length."""
    return 1, max(tokens, _length(command))


def _fixed(command: Command, name: str, ranks: int, default: int = 1) -> int:
    """Samples on each GPU: as such, or, before that, of all of them together."""
    of_all = command.number(name, 0) // max(ranks, 1)
    return command.number(f"{name}_per_gpu", max(of_all, default))

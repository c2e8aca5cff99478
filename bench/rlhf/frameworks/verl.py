"""verl's `main_ppo` with FSDP or Megatron: all models and the engine share every GPU. Defaults are those of
`ppo_trainer.yaml` and what it takes in.

FSDP holds what is trained in fp32, unless told otherwise, and shards it; logits are made whole, in fp32, and by no
critic. Adapters have the type of the weights beside them, and what has some is its own reference, without them
(`workers/engine/fsdp/transformer_impl.py`, `trainer/ppo/ray_trainer.py` of 0.9.1).

Megatron holds 16-bit parameters with fp32 gradients and a sharded optimizer; with `param_offload` parameters and
gradients leave the GPU between steps, with `optimizer_offload` its states (`offload_megatron_model_to_cpu` of
`utils/megatron_utils.py`). Sizes are those of `config/engine/megatron.yaml`; the reference follows the actor
(`config/ref/megatron_ref.yaml`). Logits are split over tensor-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bench.predict.adapters import ALL_LINEAR, Adapters
from bench.predict.layout import ITEM_SIZE, Layout
from bench.problems import Problem
from bench.rlhf.command import Command
from bench.rlhf.job import ACCUMULATION, ONE_MODEL, SCORES_LOGITS, Engine, Job, Part, worst_case
from rules.launch._reading.frameworks import named
from rules.models import ModelFacts

TABLE = named("verl")
PROGRAM = "verl.trainer.main_ppo"
_MODEL, _ROLLOUT, _ACTOR = "actor_rollout_ref.model", "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
MODELS = {
    "actor": (f"{_MODEL}.path",), "critic": ("critic.model.path", f"{_MODEL}.path"),
    "reference": (f"{_MODEL}.path",), "reward": ("reward_model.model.path",),
}  # fmt: skip
_TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_UNEVEN = (
    "num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage", "pipeline_model_parallel_layout",
    "account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split",
)  # fmt: skip
"""Settings of Megatron by which stages have unlike shares of a model."""
MEGATRON = "megatron"
OWN = {"actor": _ACTOR, "critic": "critic", "reference": "actor_rollout_ref.ref", "reward": "reward_model"}
TOKENS, CRITIC_TOKENS = 16384, 32768
"""Of a dynamic micro-batch on a GPU, where the command does not say."""


def starts(words: Sequence[str]) -> bool:
    return any(word.startswith(("verl.", "actor_rollout_ref.")) for word in words)


def roles(command: Command) -> list[str]:
    """The models of the job."""
    if not any(name.startswith("actor_rollout_ref.") for name in command.settings):
        raise Problem(f"{_program(command)} without actor_rollout_ref {ONE_MODEL}")
    by_estimator = command.text("algorithm.adv_estimator", "gae") == "gae"
    in_loss, in_reward = command.on(f"{_ACTOR}.use_kl_loss"), command.on("algorithm.use_kl_in_reward")
    found = ["actor"] + ["critic"] * command.on("critic.enable", by_estimator)
    apart = (in_loss or in_reward) and _adapters(command, "actor") is None
    return found + ["reference"] * apart + ["reward"] * command.on("reward_model.enable")


def job(command: Command, models: Mapping[str, ModelFacts], gpus: int | None) -> Job:
    world, here = gpus or _gpus(command), roles(command)
    engines = _engines(command)
    every = {}  # options of models that are not there are understood, too
    for role in OWN:
        facts, build = models.get(role, models["actor"]), _of_megatron if engines[role] == MEGATRON else _of_fsdp
        every[role] = build(command, role, facts, world)
    parts = tuple(every[role] for role in here)
    tp = command.number(f"{_ROLLOUT}.tensor_model_parallel_size", 2)
    engine = Engine(
        models["actor"], max(world // max(tp, 1), 1), tp, command.share(f"{_ROLLOUT}.gpu_memory_utilization", 0.5),
        command.on(f"{_ROLLOUT}.free_cache_engine", True), _length(command),
    )  # fmt: skip
    fixed = [role for role in here if not (_is_dynamic(command, role) and _is_dynamic(command, role, "log_prob"))]
    notes = [f"{', '.join(fixed)}: {worst_case(_length(command))}"] * bool(fixed)
    if _program(command) != PROGRAM:
        notes.append(f"{_program(command)} is planned as if it were {PROGRAM}")
    return Job("verl", parts, engine, ((*here, "rollout"),), processes=False, notes=tuple(notes))


def _program(command: Command) -> str:
    return next((word for word in command.words if word.startswith("verl.") and "=" not in word), PROGRAM)


def _gpus(command: Command) -> int:
    return command.number("trainer.nnodes", 1) * command.number("trainer.n_gpus_per_node", 8)


def _engines(command: Command) -> dict[str, str]:
    """What trains or scores each model: `fsdp`, `fsdp2` or `megatron`. Raises `Problem` for other programs of verl and
    for other engines."""
    of_file = MEGATRON if "megatron" in command.text("config_name") else "fsdp"
    named = command.text("model_engine", of_file)
    actor = _strategy(command, "actor", "fsdp" if named == "dp" else named)
    found = {"actor": actor, **{role: _strategy(command, role, actor) for role in ("reference", "critic", "reward")}}
    strange = next((name for name in command.settings if ".veomni." in name), None)
    if strange is not None:
        raise Problem(f"{strange}: only jobs of verl with FSDP or Megatron are planned")
    return found


def _strategy(command: Command, role: str, default: str) -> str:
    name = f"{OWN[role]}.strategy"
    found = command.text(name, default)
    found = default if found.startswith("$") else found
    if found not in ("fsdp", "fsdp2", MEGATRON):
        raise Problem(f"{name}={found}: only jobs of verl with FSDP or Megatron are planned")
    return found


def _length(command: Command) -> int:
    return command.number("data.max_prompt_length", 512) + command.number("data.max_response_length", 512)


def _adapters(command: Command, role: str) -> Adapters | None:
    """Those of the actor or the critic. Raises `Problem` where the rank is not known."""
    model = _MODEL if role == "actor" else "critic.model"
    rank = max(command.number(f"{model}.lora_rank", 0), command.number(f"{model}.lora.rank", 0))
    path = command.text(f"{model}.lora_adapter_path", "null")
    if rank < 1 and path.lower() not in ("null", "none"):
        raise Problem(f"{model}.lora_adapter_path={path}: which rank has it? {model}.lora_rank")
    return Adapters(rank, command.several(f"{model}.target_modules") or (ALL_LINEAR,)) if rank > 0 else None


def _of_fsdp(command: Command, role: str, facts: ModelFacts, world: int) -> Part:
    own, trains = OWN[role], role in ("actor", "critic")
    settings = f"{own}.model.fsdp_config" if role in ("critic", "reward") else f"{own}.fsdp_config"
    checkpointing = "critic.model" if role == "critic" else _MODEL
    split = _ulysses(command, role)
    parameters, optimizer = (command.on(f"{settings}.{what}_offload") for what in ("param", "optimizer"))
    held = command.text(f"{settings}.model_dtype", "fp32" if trains else "bf16")
    held = _TYPES.get(held, held)
    if held not in ITEM_SIZE:
        raise Problem(f"{settings}.model_dtype: {held!r} is none of {', '.join(ITEM_SIZE)}")
    ranks = max(world // split, 1)
    scored, each = _score_rows(command, role, ranks, split)
    rows, length = _train_rows(command, role, ranks, split) if trains else (scored, each)
    layout = Layout(
        backend="fsdp2", dp=ranks, ring=split, micro_batch_size=rows, seq_len=length, grad_accum=ACCUMULATION,
        head="full" if role in SCORES_LOGITS else "chunked", master=held,
        adapters=_adapters(command, role) if trains else None,
        checkpointing=command.on(f"{checkpointing}.enable_gradient_checkpointing", True),
    )  # fmt: skip
    return Part(
        role, facts, layout, trains, scored * each / split, idle_parameters=not parameters,
        idle_optimizer=not optimizer,
    )  # fmt: skip


def _of_megatron(command: Command, role: str, facts: ModelFacts, world: int) -> Part:
    trains = role in ("actor", "critic")
    if trains and _adapters(command, role) is not None:
        raise Problem("adapters on Megatron are not planned")

    def names(setting: str) -> tuple[str, ...]:
        followed = (OWN[role], OWN["actor"]) if role == "reference" else (OWN[role],)
        return tuple(f"{own}.megatron.{setting}" for own in followed)

    for setting in ("use_megatron_fsdp", *(f"override_transformer_config.{uneven}" for uneven in _UNEVEN)):
        if command.text(names(setting), "null").lower() not in ("null", "none", "false"):
            raise Problem(f"{names(setting)[0]} is not planned")
    sizes = ("tensor_model", "pipeline_model", "context", "expert_model", "virtual_pipeline_model")
    tp, pp, ring, ep, chunks = (max(command.number(names(f"{size}_parallel_size"), 1), 1) for size in sizes)
    command.given(names("sequence_parallel"))  # of no effect on one rank
    expert_tp = max(command.number(names("expert_tensor_parallel_size"), tp), 1)
    for words, size in (("tp x pp x cp", tp * pp * ring), ("pp x ep x expert tp", pp * ep * expert_tp)):
        if world % size:
            raise Problem(f"{role} on Megatron: {words} = {size} do not divide the {world} GPUs")
    ranks = world // (tp * pp * ring)
    scored, each = _score_rows(command, role, ranks, ring)
    rows, length = _train_rows(command, role, ranks, ring) if trains else (scored, each)
    command.given(names("grad_offload"))  # gradients go with the parameters
    parameters, optimizer = (command.on(names(f"{what}_offload")) for what in ("param", "optimizer"))
    layout = Layout(
        backend=MEGATRON, dp=ranks, tp=tp, ring=ring, pp=pp, virtual_pp=chunks, ep=ep,
        expert_tp=expert_tp, micro_batch_size=rows, seq_len=length,
        grad_accum=max(ACCUMULATION, pp), dtype=_TYPES.get(command.text(names("dtype"), "bf16"), "bf16"),
        head="full" if role in SCORES_LOGITS else "chunked", compiled=True,
        sequence_parallel=tp > 1 and command.on(names("sequence_parallel"), True),
        checkpointing=_recomputes(command, names, facts.layers, pp),
        shards_optimizer=command.on(names("use_distributed_optimizer"), True),
        main_grads="fp32" if command.on(names("override_ddp_config.grad_reduce_in_fp32"), True) else "bf16",
    )  # fmt: skip
    return Part(
        role, facts, layout, trains, scored * each / ring, idle_parameters=not parameters,
        idle_optimizer=not optimizer,
    )  # fmt: skip


def _recomputes(command: Command, names: Callable[[str], tuple[str, ...]], layers: int, pp: int) -> bool:
    """Whether every layer is computed again in the backward pass. Where some are, or parts of each, none is counted:
    Megatron's `selective` leaves out scores of attention, which flash attention does not keep anyway."""

    def setting(name: str) -> tuple[str, ...]:
        return names(f"override_transformer_config.recompute_{name}")

    whole = command.text(setting("granularity"), "null") == "full"
    several, block = command.number(setting("num_layers"), 1), command.text(setting("method")) == "block"
    command.given(setting("modules"))
    return whole and (not block or several >= -(-layers // pp))


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


def _train_rows(command: Command, role: str, ranks: int, split: int) -> tuple[int, int]:
    """Samples of a micro-batch of training and their length; a dynamic one is one row of so many tokens."""
    own = OWN[role]
    rows = _fixed(command, f"{own}.ppo_micro_batch_size", ranks)
    return (
        _row(command, _train_tokens(command, role) * split) if _is_dynamic(command, role) else (rows, _length(command))
    )


def _score_rows(command: Command, role: str, ranks: int, split: int) -> tuple[int, int]:
    """The same of a forward pass that scores."""
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

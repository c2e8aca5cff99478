"""OpenRLHF: `train_ppo` on the GPUs of one torchrun or deepspeed, `train_ppo_ray` with models placed apart.

Its options have had two styles of names, `--zero_stage` and since 0.10.2 `--ds.zero_stage`; both are in the table.
Defaults are those of `openrlhf/cli/train_ppo_ray.py`. Logits are made whole, in fp32.

With `--lora_rank` actor and critic train adapters; the reference is a whole model all the same, and with
`--load_in_4bit` all four are quantised, scales too (`models/actor.py`, `models/model.py`, `trainer/ray/launcher.py` of
0.11.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.predict.adapters import ALL_LINEAR, FOUR_BITS_NESTED, Adapters
from bench.predict.layout import Layout
from bench.problems import Problem
from bench.rlhf.command import Command
from bench.rlhf.job import ACCUMULATION, ONE_MODEL, Engine, Job, Part, worst_case
from rules.launch._reading.frameworks import named
from rules.models import ModelFacts

TABLE = named("openrlhf")
PROGRAM = "openrlhf.cli.train_ppo_ray"
_OF = TABLE.options
_REWARD = _OF("reward_model")
MODELS = {
    "actor": _OF("model"), "critic": (*_OF("critic_model"), *_REWARD, *_OF("model")),
    "reward": _REWARD, "reference": _OF("model"),
}  # fmt: skip
SHARE = 0.95
"""Of vLLM's memory, where the command does not say."""
TRAIN_TOKENS = 16192
"""Of a micro-batch on a GPU, where batches are dynamic and the command does not say."""


def starts(words: Sequence[str]) -> bool:
    return any("openrlhf.cli" in word or "train_ppo" in word for word in words)


def roles(command: Command) -> list[str]:
    """The models of the job. Raises `Problem` for a program that trains one model alone."""
    other = next((word for word in command.words if "openrlhf.cli" in word and "train_ppo" not in word), None)
    if other is not None:
        raise Problem(f"{other} {ONE_MODEL}")
    found = ["actor"]
    if command.text(_OF("advantage"), "gae") == "gae":
        found.append("critic")
    if command.share(_OF("kl_coefficient"), 0.01) > 0:
        found.append("reference")
    return found + ["reward"] * (not command.text(_OF("remote_reward")))


def job(command: Command, models: Mapping[str, ModelFacts], gpus: int | None) -> Job:
    ray = any("ray" in word.rpartition("/")[2] and "train_ppo" in word for word in command.words)
    here = roles(command)
    sizes = {role: _gpus(command, role, ray, gpus) for role in MODELS}
    # options of models that are not there are understood, too
    every = {role: _part(command, role, models.get(role, models["actor"]), sizes[role]) for role in MODELS}
    parts = tuple(every[role] for role in here)
    engine = _engine(command, models["actor"]) if ray else None
    notes = () if command.on(_OF("dynamic_batch")) else (worst_case(_length(command)),)
    return Job("OpenRLHF", parts, engine, _groups(command, here, ray, engine), processes=ray, notes=notes)


def _gpus(command: Command, role: str, ray: bool, gpus: int | None) -> int:
    per_node, nodes = TABLE.products[f"{'ref' if role == 'reference' else role}_gpus"]
    placed = command.number(_plain(nodes), 1) * command.number(_plain(per_node), 8)
    if ray:
        return placed
    if gpus is None:
        raise Problem("how many GPUs? the command does not say: --gpus")
    return gpus


def _plain(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name.lstrip("-") for name in names)


def _length(command: Command) -> int:
    """Tokens of the longest sample: given as one number, or, before 0.9, as prompt and answer."""
    prompt, answer = (command.number(_OF(part), 1024) for part in ("prompt_length", "answer_length"))
    command.given(_OF("new_tokens"))  # within the length
    return command.number(_OF("seq_len"), prompt + answer)


def _rows(command: Command, quantity: str, default: int) -> int:
    """Samples of a micro-batch; the default has been 1 since the length is one number."""
    named_now = command.given(_OF("seq_len")) is not None or any("." in name for name in command.flags)
    return command.number(_OF(quantity), 1 if named_now else default)


def _part(command: Command, role: str, facts: ModelFacts, gpus: int) -> Part:
    trains = role in ("actor", "critic")
    tp, ring = (max(command.number(_OF(size), 1), 1) for size in ("tp_deepspeed", "ring"))
    length, dp = _length(command), max(gpus // (tp * ring), 1)
    micro, scored = _rows(command, "micro_batch_size", 4), _rows(command, "micro_rollout_batch_size", 8) * length
    accumulated = max(command.number(_OF("train_batch_size"), 128) // (micro * dp), 1)
    train_tokens = command.number(_OF("train_tokens"), TRAIN_TOKENS)
    score_tokens = command.number(_OF("score_tokens"), train_tokens)
    if command.on(_OF("dynamic_batch")):  # one row of as many tokens as fit, at least one sample
        scored, most = (max(tokens * ring * tp, length) for tokens in (score_tokens, train_tokens))
        micro, length, accumulated = 1, most, ACCUMULATION
    stage, four_bits = command.number(_OF("zero_stage"), 2), _four_bits(command)
    if four_bits and stage == 3:
        raise Problem("4-bit weights at ZeRO-3: what DeepSpeed keeps of them on a GPU is not known")
    layout = Layout(
        backend="deepspeed", zero_stage=stage, dp=dp, tp=tp, ring=ring,
        micro_batch_size=micro, seq_len=length, grad_accum=accumulated, dtype="bf16" if _bf16(command) else "fp16",
        head="full" if role == "actor" else "chunked", checkpointing=command.on(_OF("checkpointing")),
        eager_attention=command.text(_OF("attn"), "flash_attention_2") == "eager",
        offload_optimizer=command.on(_OF("offload_optimizer")), adapters=_adapters(command) if trains else None,
        quantized=FOUR_BITS_NESTED if four_bits else 0.0,
    )  # fmt: skip
    away = {"reference": "ref_offload", "reward": "reward_offload"}.get(role, "trainer_sleep")
    idle = not command.on(_OF(away))
    return Part(role, facts, layout, trains, scored / ring, idle_parameters=idle, idle_optimizer=idle)


def _bf16(command: Command) -> bool:
    return command.text(_OF("dtype"), "bf16") != "fp16" and command.on(_OF("bf16"), True)


def _adapters(command: Command) -> Adapters | None:
    rank = command.number(_OF("lora_rank"), 0)
    if rank < 1:
        return None
    targets = command.several(_OF("lora_targets")) or (ALL_LINEAR,)
    return Adapters(rank, targets, dropout=command.share(_OF("lora_dropout"), 0.0) > 0)


def _four_bits(command: Command) -> bool:
    """Whether weights are quantised. Raises `Problem` for what OpenRLHF and bitsandbytes refuse."""
    if not command.on(_OF("four_bits")):
        return False
    if _adapters(command) is None:
        raise Problem("4-bit weights cannot be trained themselves: give adapters a rank, too")
    if not _bf16(command):
        raise Problem("4-bit weights are computed with in bf16 alone")
    return True


def _engine(command: Command, facts: ModelFacts) -> Engine | None:
    count, tp = command.number(_OF("engines"), 0), command.number(_OF("engine_tp"), 1)
    share = command.share(_OF("engine_share"), SHARE)
    sleeps = command.on(_OF("engine_sleep")) and command.on(_OF("colocate_all"))  # else the program switches it off
    return Engine(facts, count, tp, share, sleeps, _length(command)) if count else None


def _groups(command: Command, here: Sequence[str], ray: bool, engine: Engine | None) -> tuple[tuple[str, ...], ...]:
    rollout = ("rollout",) * (engine is not None)
    together, asynchronous = command.on(_OF("colocate_all")), command.on(_OF("asynchronous"))
    pairs = [("colocate_actor_ref", ("actor", "reference")), ("colocate_critic_reward", ("critic", "reward"))]
    joined = [pair for option, pair in pairs if command.on(_OF(option))]
    if not ray or (together and not asynchronous):
        return ((*here, *rollout),)
    if together:  # the engines have GPUs of their own
        return (tuple(here), *((rollout,) if rollout else ()))
    shared = [tuple(role for role in group if role in here) for group in joined]
    alone = [(role,) for role in (*here, *rollout) if not any(role in group for group in shared)]
    return (*(group for group in shared if group), *alone)

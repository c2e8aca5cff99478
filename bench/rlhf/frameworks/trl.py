"""TRL's GRPO and PPO scripts under `accelerate launch`: all models on every GPU, and vLLM where it is colocated.

The ZeRO stage is that of accelerate's configuration file, where the command names one that is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.predict.layout import Layout
from bench.problems import Problem
from bench.rlhf.command import Command
from bench.rlhf.job import Engine, Job, Part, worst_case
from rules.launch._reading.frameworks import named
from rules.models import ModelFacts

TABLE = named("trl")
PROGRAM = ""
MODELS = {
    "actor": ("model_name_or_path", "model"), "reference": ("model_name_or_path", "model"),
    "critic": ("reward_model_path", "model_name_or_path"), "reward": ("reward_model_path", "reward_model_name_or_path"),
}  # fmt: skip


def starts(words: Sequence[str]) -> bool:
    return any(re.search(r"^trl$|^trl[./]|/trl/|(?:^|/)\w*(?:grpo|ppo)\w*\.py$", word) for word in words)


def roles(command: Command) -> list[str]:
    """The models of the job: PPO has four, GRPO a policy, and a reference where it pays for leaving it."""
    if any(re.search(r"ppo(_tldr)?\.py", word) for word in command.words):
        return ["actor", "critic", "reference", "reward"]
    named = command.text("reward_model_path") or command.text("reward_model_name_or_path")
    return ["actor"] + ["reference"] * (command.share("beta", 0.0) > 0) + ["reward"] * bool(named)


def job(command: Command, models: Mapping[str, ModelFacts], gpus: int | None) -> Job:
    world = gpus or command.number("num_processes", 0)
    if not world:
        raise Problem("how many GPUs? the command does not say: --gpus")
    here, stage = roles(command), _stage(command)
    parts = tuple(_part(command, role, models[role], world, stage) for role in here)
    engine = None
    if command.on("use_vllm") and command.text("vllm_mode", "server") == "colocate":
        tp = command.number("vllm_tensor_parallel_size", 1)
        engine = Engine(
            models["actor"], max(world // tp, 1), tp, command.share("vllm_gpu_memory_utilization", 0.3),
            command.on("vllm_enable_sleep_mode"), _length(command),
        )  # fmt: skip
    return Job("TRL", parts, engine, ((*here, *["rollout"] * (engine is not None)),), processes=False,
               notes=(worst_case(_length(command)),))  # fmt: skip


def _length(command: Command) -> int:
    answers = command.number("max_completion_length", command.number("response_length", 256))
    return command.number("max_prompt_length", 512) + answers


def _stage(command: Command) -> int:
    """Of DeepSpeed; 0, which is plain data parallelism, where nothing names one."""
    path = Path(command.text("config_file") or command.text("deepspeed"))
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else path.name
    found = re.search(r"(?:zero_stage|\"stage\")\W{1,3}(\d)", text) or re.search(r"zero[_-]?(\d)", text)
    return int(found[1]) if found else 0


def _part(command: Command, role: str, facts: ModelFacts, world: int, stage: int) -> Part:
    micro = command.number("per_device_train_batch_size", 8)
    layout = Layout(
        backend="deepspeed", zero_stage=stage, dp=world, micro_batch_size=micro, seq_len=_length(command),
        grad_accum=command.number("gradient_accumulation_steps", 1), head="full",
        dtype="bf16" if command.on("bf16", True) or command.text("torch_dtype") == "bfloat16" else "fp32",
        checkpointing=command.on("gradient_checkpointing"),
    )  # fmt: skip
    return Part(role, facts, layout, role in ("actor", "critic"), float(micro * _length(command)))

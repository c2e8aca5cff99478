"""TRL's GRPO and PPO scripts under `accelerate launch`: all models on every GPU, and vLLM where it is colocated.

The ZeRO stage is that of accelerate's configuration file, where the command names one that is there.

With `--use_peft` the policy trains adapters and is its own reference, without them; other models are as before.
Adapters are kept in fp32, at ZeRO-3 and beside 4-bit weights in 16 bits (`trl/trainer/grpo_trainer.py` of 1.16). Where
`--lora_target_modules` is not given, PEFT's table says which layers have one (`peft/utils/constants.py` of 0.21).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.predict.adapters import FOUR_BITS, FOUR_BITS_NESTED, Adapters
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
_QUERIES_AND_VALUES = ("q_proj", "v_proj")
_BY_DEFAULT = dict.fromkeys(
    ("llama", "mistral", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3"), _QUERIES_AND_VALUES
)
"""PEFT's layers with an adapter by model type, of those models whose linear layers are known one by one."""


def starts(words: Sequence[str]) -> bool:
    return any(re.search(r"^trl$|^trl[./]|/trl/|(?:^|/)\w*(?:grpo|ppo)\w*\.py$", word) for word in words)


def roles(command: Command) -> list[str]:
    """The models of the job: PPO has four, GRPO a policy, and a reference where it pays for leaving it."""
    if _is_ppo(command):
        return ["actor", "critic", *["reference"] * (not command.on("use_peft")), "reward"]
    named = command.text("reward_model_path") or command.text("reward_model_name_or_path")
    leaves = command.share("beta", 0.0) > 0 and not command.on("use_peft")
    return ["actor"] + ["reference"] * leaves + ["reward"] * bool(named)


def _is_ppo(command: Command) -> bool:
    return any(re.search(r"ppo(_tldr)?\.py", word) for word in command.words)


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
    four_bits = _four_bits(command, stage) if role == "actor" else 0.0
    adapters = _adapters(command, facts, casts=not four_bits and stage < 3) if role == "actor" else None
    layout = Layout(
        backend="deepspeed", zero_stage=stage, dp=world, micro_batch_size=micro, seq_len=_length(command),
        grad_accum=command.number("gradient_accumulation_steps", 1), head="full",
        dtype="bf16" if command.on("bf16", True) or command.text("torch_dtype") == "bfloat16" else "fp32",
        checkpointing=command.on("gradient_checkpointing"), adapters=adapters, quantized=four_bits,
    )  # fmt: skip
    return Part(role, facts, layout, role in ("actor", "critic"), float(micro * _length(command)))


def _adapters(command: Command, facts: ModelFacts, casts: bool) -> Adapters | None:
    """Raises `Problem` where layers are trained whole beside them, or where which have one is not known."""
    if not command.on("use_peft"):
        return None
    if command.several("lora_modules_to_save") or command.several("lora_target_parameters"):
        raise Problem("--lora_modules_to_save, --lora_target_parameters: only adapters of linear layers are counted")
    targets = command.several("lora_target_modules") or _BY_DEFAULT.get(facts.model_type, ())
    if not targets:
        raise Problem(f"which layers of {facts.name} have an adapter? --lora_target_modules")
    return Adapters(command.number("lora_r", 16), targets, command.share("lora_dropout", 0.05) > 0, casts)


def _four_bits(command: Command, stage: int) -> float:
    """Bytes of a quantised weight, 0 where none is. Raises `Problem` for what is refused, or not known."""
    if command.on("load_in_8bit"):
        raise Problem("--load_in_8bit: what 8-bit layers keep for the backward pass is not known")
    nested = command.on("use_bnb_nested_quant")
    if not command.on("load_in_4bit"):
        return 0.0
    if not command.on("use_peft"):
        raise Problem("--load_in_4bit without --use_peft: 4-bit weights cannot be trained themselves")
    if stage == 3:
        raise Problem("--load_in_4bit at ZeRO-3: what DeepSpeed keeps of 4-bit weights on a GPU is not known")
    if _is_ppo(command):
        raise Problem("--load_in_4bit with PPO: which of its models are quantised differs between versions of TRL")
    return FOUR_BITS_NESTED if nested else FOUR_BITS

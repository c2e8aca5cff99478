"""The flags that `bench suite` and `bench sft` share."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.configuration import LARGEST, SETTINGS
from bench.suite.settings import MAX_GPUS, Settings, defaults
from bench.terminal.described import describe

SIZES = ("tp_sizes", "ring_sizes")


def positive(text: str) -> int:
    """A whole number from 1 on. Raises argparse.ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or len(text) > 4000 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 1 on")
    if int(text) > LARGEST:
        raise argparse.ArgumentTypeError(f"{text[:40]} is larger than {LARGEST}")
    return int(text)


def positives(text: str) -> tuple[int, ...]:
    return tuple(positive(part.strip()) for part in text.split(","))


def add_training(p: argparse.ArgumentParser) -> None:
    """Data, model and how it trains; each is None where it is not given."""
    data = p.add_argument_group("data")
    data.add_argument("--dataset", help="JSON lines, parquet, a Hugging Face directory or name, or `embedded`")
    data.add_argument("--input-key", "--input_key", help="the prompts' column; default: input, question, prompt, …")
    data.add_argument("--output-key", "--output_key", help="the answers' column; default: output, response, answer, …")
    data.add_argument("--max-samples", "--max_samples", type=positive, help="samples to train on")
    data.add_argument("--max-len", "--max_len", type=positive, help="tokens of a sample")
    data.add_argument(
        "--tokenizer", help="byte, a name or directory; default: the model's own where it is on this disk, else byte"
    )
    model = p.add_argument_group("model and machine")
    model.add_argument("--model", "--pretrain", help="preset, config.json, directory or hub name")
    model.add_argument("--num-layers", "--num_layers", type=positive)
    model.add_argument(
        "--num-gpus", "--num_gpus", type=positive, help="processes; default: one per GPU, at most 8; 2 without"
    )
    model.add_argument("--zero-stage", "--zero_stage", type=int, choices=(0, 1, 2, 3), help="of deepspeed; default 2")
    model.add_argument("--device", choices=("auto", "cpu", "cuda"))
    model.add_argument("--dtype", "--param_dtype", choices=("bf16", "fp32"))
    model.add_argument("--attn", choices=("eager", "sdpa", "flash_attention_2", "flex"))
    model.add_argument("--flash-attn", dest="attn", action="store_const", const="flash_attention_2")
    model.add_argument("--no-flash-attn", dest="attn", action="store_const", const="sdpa")
    model.add_argument("--compile", nargs="?", const="blocks", choices=SETTINGS["compile"].choices)
    model.add_argument("--deepcompile", dest="compile", action="store_const", const="deepcompile")
    model.add_argument("--use_hf_tp_plan", action="store_true", help="of tensor parallelism; it is the default")
    model.add_argument("--head", choices=SETTINGS["head"].choices)
    model.add_argument("--packing", "--packing_samples", action=argparse.BooleanOptionalAction)
    model.add_argument(
        "--gradient-checkpointing", "--gradient_checkpointing", action="store_true", default=None
    )  # fmt: skip
    how = p.add_argument_group("training")
    how.add_argument("--lr", "--learning_rate", type=float)
    how.add_argument("--max-norm", "--max_norm", type=float)
    how.add_argument("--micro-batch-size", "--micro_train_batch_size", type=positive)
    how.add_argument("--train-batch-size", "--train_batch_size", type=positive, help="default: one per process")
    how.add_argument("--random-seed", "--seed", type=int)
    how.add_argument(
        "--save-steps", "--save_steps", type=positive, help="checkpoint after so many; resumed from; default: none"
    )
    how.add_argument("--save-model", action="store_true", default=None, help="write each trained model as safetensors")
    out = p.add_argument_group("output")
    out.add_argument("--output-dir", "--output", type=Path, help="results and checkpoints; default ./checkpoint/suite")
    out.add_argument(
        "--log-dir",
        type=Path,
        help="a log of JSON lines per run; default ./logs, of sft --output-dir",
    )
    out.add_argument("--force", action="store_true", help="train again what is there already")
    out.add_argument("--quiet", action="store_true", help="no line per phase")
    out.add_argument("--local_rank", "--local-rank", type=int, help=argparse.SUPPRESS)
    describe(p, *({**asdict(Settings()), **defaults(gpus)} for gpus in (MAX_GPUS, 0)))


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that the flags give."""
    return {name: value for name, value in vars(options).items() if value is not None}

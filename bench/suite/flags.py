"""The flags that `bench suite` and `bench sft` share."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.suite.settings import MAX_GPUS, Settings, defaults
from bench.sweep.flags import add_old_names, add_one
from bench.terminal.help_texts import describe
from bench.terminal.parsing import whole


def add_training(p: argparse.ArgumentParser) -> None:
    """Data, model and how it trains; each is None where it is not given."""
    data = p.add_argument_group("data")
    data.add_argument("--dataset", help="JSON lines, parquet, a Hugging Face directory or name, or `embedded`")
    data.add_argument("--input-key", "--input_key", help="the prompts' column; default: input, question, prompt, …")
    data.add_argument("--output-key", "--output_key", help="the answers' column; default: output, response, answer, …")
    data.add_argument("--max-samples", "--max_samples", type=whole, help="samples to train on")
    data.add_argument("--max-len", "--max_len", dest="seq_len", type=whole, help="tokens of a sample")
    data.add_argument(
        "--tokenizer", help="byte, a name or directory; default: the model's own where it is on this disk, else byte"
    )
    model = p.add_argument_group("model and machine")
    add_one(model, "model", "num_layers")
    add_one(model, "num_gpus", help="processes; default: one per GPU, at most 8; 2 without")
    add_one(model, "zero_stage", "device")
    add_one(model, "dtype", choices=("bf16", "fp32"), help="that the model computes in")
    add_one(model, "attn", choices=("eager", "sdpa", "flash_attention_2", "flex"), help="implementation of attention")
    add_one(model, "compile", "head", "packing", "gradient_checkpointing")
    how = p.add_argument_group("training")
    add_one(how, "lr", "max_norm", "micro_batch_size", "random_seed")
    add_one(how, "train_batch_size", help="default: one per process")
    how.add_argument(
        "--save-steps", "--save_steps", type=whole, help="checkpoint after so many; resumed from; default: none"
    )
    how.add_argument("--save-model", action="store_true", default=None, help="write each trained model as safetensors")
    out = p.add_argument_group("output")
    out.add_argument("--output-dir", "--output", type=Path, help="results and checkpoints; default ./checkpoint/suite")
    out.add_argument("--log-dir", type=Path, help="a log of JSON lines per run; default ./logs, of sft --output-dir")
    out.add_argument("--force", action="store_true", help="train again what is there already")
    out.add_argument("--quiet", action="store_true", help="no line per phase")
    add_old_names(model)
    describe(p, *({**asdict(Settings()), **defaults(gpus)} for gpus in (MAX_GPUS, 0)))


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that the flags give."""
    values = {name: value for name, value in vars(options).items() if value is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}

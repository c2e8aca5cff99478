"""Programs that no table lists: what their launches and files say is held against the table, and mends pass."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.rules.launch_scripts import checked, identifier
from validator.finding import Finding

CODES = ("MP705", "MP711")


class Program(NamedTuple):
    """A program with a launch that is right. `said`: the file whose values are changed."""

    files: dict[str, str]
    said: str


_PARSED = Program(
    {
        "mine/__init__.py": "",
        "mine/arguments.py": """import argparse


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pretrain", required=True)
    parser.add_argument("--backend", choices=["deepspeed", "fsdp2"], default="deepspeed")
    parser.add_argument("--tp_size", type=int, default=1)
    parser.add_argument("--ring_attn_size", type=int, default=1)
    parser.add_argument("--train_batch_size", type=int, default=128)
    parser.add_argument("--micro_train_batch_size", type=int, default=1)
    parser.add_argument("--zero_stage", type=int, default=2)
    return parser.parse_args()
""",
        "mine/train.py": """import deepspeed

from mine.arguments import parse_args


def main(args, world_size):
    dp = world_size // (args.tp_size * args.ring_attn_size)
    return args.train_batch_size // (args.micro_train_batch_size * dp), deepspeed


main(parse_args(), 8)
""",
        "run.sh": """TP=${TP:-2}
torchrun --nnodes 2 --nproc_per_node 8 mine/train.py \\
    --pretrain meta-llama/Llama-3.1-8B --backend fsdp2 \\
    --tp_size $TP --ring_attn_size 2 \\
    --train_batch_size 128 --micro_train_batch_size 4
""",
    },
    "run.sh",
)

_COMPOSED = Program(
    {
        "rl/__init__.py": "",
        "rl/main.py": """import hydra


class Worker:
    def __init__(self, config, world_size):
        self.dp = world_size // config.actor.ulysses_size
        assert config.actor.mini_batch_size % self.dp == 0, "mini-batch"
        assert config.data.train_batch_size % config.actor.mini_batch_size == 0


@hydra.main(config_path="conf", config_name="base", version_base=None)
def main(config):
    Worker(config, config.trainer.n_gpus_per_node * config.trainer.nnodes)
""",
        "rl/conf/base.yaml": """data:
  train_batch_size: 1024
actor:
  model:
    path: Qwen/Qwen2.5-7B-Instruct
  ulysses_size: 1
  mini_batch_size: 256
rollout:
  tensor_parallel_size: 2
trainer:
  n_gpus_per_node: 8
  nnodes: 1
""",
        "run.sh": """python3 -m rl.main \\
    data.train_batch_size=512 \\
    actor.ulysses_size=2 \\
    actor.mini_batch_size=128 \\
    rollout.tensor_parallel_size=2 "$@"
""",
    },
    "run.sh",
)

_READING = Program(
    {
        "pre/__init__.py": "",
        "pre/train.py": """import argparse
import tomllib
from dataclasses import dataclass

import torch.distributed as dist
from torch.distributed.fsdp import fully_shard


@dataclass
class Config:
    n_heads: int = 32
    n_kv_heads: int = 8
    global_batch: int = 64
    local_batch: int = 1
    tp: int = 1
    cp: int = 1


def main(cfg):
    dp = dist.get_world_size() // (cfg.cp * cfg.tp)
    return cfg.global_batch // (cfg.local_batch * dp), fully_shard


parser = argparse.ArgumentParser()
parser.add_argument("--config", default="conf.toml")
with open(parser.parse_args().config, "rb") as file:
    main(Config(**{k: v for part in tomllib.load(file).values() for k, v in part.items()}))
""",
        "conf.toml": """[model]
n_heads = 32
n_kv_heads = 8

[training]
global_batch = 64
local_batch = 2

[parallel]
tp = 4
cp = 1
""",
        "run.sh": "torchrun --nproc_per_node ${GPUS:-8} -m pre.train --config ${CONFIG:-conf.toml}\n",
    },
    "conf.toml",
)

PROGRAMS = {"parsed": _PARSED, "composed": _COMPOSED, "reading": _READING}

# (program, the one value that is wrong, the constraint)
CORRUPTIONS = [
    ("parsed", ("TP:-2", "TP:-3"), "world-divisible"),
    ("parsed", ("TP:-2", "TP:-3"), "tp-heads"),
    ("parsed", ("TP:-2", "TP:-16"), "dp-at-least-one"),
    ("parsed", ("--ring_attn_size 2", "--ring_attn_size 3"), "world-divisible"),
    ("parsed", ("--ring_attn_size 2", "--ring_attn_size 16"), "dp-at-least-one"),
    ("parsed", ("--train_batch_size 128", "--train_batch_size 120"), "train-batch-divisible"),
    ("parsed", ("--train_batch_size 128", "--train_batch_size 8"), "grad-accum-at-least-one"),
    ("parsed", ("--micro_train_batch_size 4", "--micro_train_batch_size 3"), "train-batch-divisible"),
    ("parsed", ("--nproc_per_node 8", "--nproc_per_node 7"), "world-divisible"),
    ("composed", ("ulysses_size=2", "ulysses_size=8"), "ulysses-heads"),
    ("composed", ("tensor_parallel_size=2", "tensor_parallel_size=3"), "engine-heads"),
    ("composed", ("tensor_parallel_size=2", "tensor_parallel_size=3"), "engine-kv-heads"),
    ("reading", ("tp = 4", "tp = 3"), "tp-heads"),
    ("reading", ("tp = 4", "tp = 16"), "dp-at-least-one"),
    ("reading", ("cp = 1", "cp = 3"), "dp-at-least-one"),
    ("reading", ("global_batch = 64", "global_batch = 66"), "train-batch-divisible"),
    ("reading", ("local_batch = 2", "local_batch = 64"), "grad-accum-at-least-one"),
]


def found(program: Program, folder: Path, *edits: tuple[str, str]) -> tuple[str, list[Finding]]:
    """The text with the edits, and what is reported of it."""
    text = program.files[program.said]
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text, checked({**program.files, program.said: text}, CODES, folder)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_right_passes(name: str, tmp_path: Path) -> None:
    assert found(PROGRAMS[name], tmp_path)[1] == []


@pytest.mark.parametrize(("name", "wrong", "constraint"), CORRUPTIONS)
def test_a_wrong_value_is_reported_and_the_nearest_passes(
    name: str, wrong: tuple[str, str], constraint: str, tmp_path: Path
) -> None:
    program = PROGRAMS[name]
    text, findings = found(program, tmp_path / "wrong", wrong)
    finding = next(f for f in findings if identifier(f) == constraint)
    proposals = re.findall(r"set `([^`×]+)` to ([^;]+)", finding.help)
    assert proposals
    tried = []
    for flag, values in proposals:
        key = re.escape(flag if flag.startswith("--") else flag.rpartition(".")[2])
        for number, value in enumerate(values.split(" or ")):
            mend = re.sub(rf"({key}(?: = |[ =]))(\S+)", rf"\g<1>{value.strip()}", text)
            files = {**program.files, program.said: mend}
            tried.append(checked(files, CODES, tmp_path / f"{key}-{number}"))
    assert any(constraint not in {identifier(f) for f in left} for left in tried)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("mini_batch_size=128", "mini_batch_size=2", "world_size"),
        ("mini_batch_size=128", "mini_batch_size=96", "data.train_batch_size"),
        ("train_batch_size=512", "train_batch_size=500", "mini_batch_size"),
    ],
)
def test_the_programs_own_tests_are_asked(old: str, new: str, says: str, tmp_path: Path) -> None:
    (finding,) = found(_COMPOSED, tmp_path, (old, new))[1]
    assert finding.code == "MP705"
    assert says in finding.message


def test_a_misspelt_key_is_found_in_the_file_of_an_own_program(tmp_path: Path) -> None:
    (finding,) = found(_READING, tmp_path, ("local_batch", "local_bacth"))[1]
    assert finding.code == "MP711"
    assert "`local_batch`" in finding.help


@pytest.mark.parametrize("unknown", ["$TP_OF_THE_CLUSTER", "$1", "$(nvidia-smi -L | wc -l)"])
def test_what_is_not_known_is_not_guessed(unknown: str, tmp_path: Path) -> None:
    text = _PARSED.files["run.sh"].replace("TP=${TP:-2}\n", "").replace("$TP", unknown)
    text = text.replace("--train_batch_size 128", "--train_batch_size 7")
    findings = checked({**_PARSED.files, "run.sh": text}, (*CODES, "MP710"), tmp_path)
    assert {f.code for f in findings} == {"MP710"}

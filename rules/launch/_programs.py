"""Programs that no table lists, for the examples of the rules about launches."""

OWN = """# file: mine/__init__.py
# file: mine/train.py
import argparse

import torch


def steps(args):
    dp = torch.distributed.get_world_size() // (args.cp_size * args.tp_size)
    return args.train_batch_size // (args.micro_batch_size * dp)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name_or_path", required=True)
    parser.add_argument("--tp_size", type=int, default=1)
    parser.add_argument("--cp_size", type=int, default=1)
    parser.add_argument("--train_batch_size", type=int, default=64)
    parser.add_argument("--micro_batch_size", type=int, default=1)
    steps(parser.parse_args())
"""

HYDRA = """# file: rl/__init__.py
# file: rl/main.py
import hydra


class Worker:
    def __init__(self, config, world_size):
        sp = config.actor.ulysses_size
        self.dp = world_size // sp
        if config.actor.ppo_mini_batch_size % self.dp != 0:
            raise ValueError("the mini-batch is not divisible")


@hydra.main(config_path="conf", config_name="base", version_base=None)
def main(config):
    print(Worker(config, config.trainer.n_gpus_per_node * config.trainer.nnodes))
# file: rl/conf/base.yaml
trainer:
  n_gpus_per_node: 8
  nnodes: 1
actor:
  ppo_mini_batch_size: 256
  model_path: Qwen/Qwen2.5-7B-Instruct
  ulysses_size: 1
rollout:
  tensor_parallel_size: 2
"""

FILE = """# file: pre/__init__.py
# file: pre/train.py
import argparse
import tomllib
from dataclasses import dataclass

from torch.distributed.fsdp import fully_shard


@dataclass
class Config:
    n_heads: int = 32
    global_batch: int = 64
    local_batch: int = 1
    tp: int = 1
    cp: int = 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    with open(parser.parse_args().config, "rb") as file:
        print(Config(**{k: v for part in tomllib.load(file).values() for k, v in part.items()}), fully_shard)
# file: run.sh
torchrun --nproc_per_node 8 -m pre.train --config ${CONFIG:-conf.toml}
"""

LAYOUT = """# file: lay/__init__.py
# file: lay/layout.py
from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    world_size: int
    cp_size: int
    tp_size: int

    def micro_batches(self, whole_batch, micro_batch_size):
        step = micro_batch_size * (self.world_size // (self.cp_size * self.tp_size))
        if whole_batch % step != 0:
            raise ValueError("the batch cannot be split")
        return whole_batch // step
# file: lay/train.py
import argparse

import torch

from lay.layout import Layout


def build_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp_size", type=int, default=1)
    parser.add_argument("--cp_size", type=int, default=1)
    parser.add_argument("--train_batch_size", type=int, default=64)
    parser.add_argument("--micro_train_batch_size", type=int, default=1)
    parser.add_argument("--eval_batch_size", type=int, default=1)
    return parser


class Strategy:
    def __init__(self, batch_size, micro_size, cp, tp):
        self.batch_size = batch_size
        self.micro_size = micro_size
        self.layout = Layout(torch.distributed.get_world_size(), cp, tp)

    def accumulation(self):
        return self.layout.micro_batches(self.batch_size, self.micro_size)


if __name__ == "__main__":
    args = build_parser().parse_args()
    print(Strategy(args.train_batch_size, args.micro_train_batch_size, args.cp_size, args.tp_size).accumulation())
"""

LOOP = """# file: rl/__init__.py
# file: rl/main.py
import hydra


def validate(config):
    for name in ("actor", "critic"):
        section = config[name]
        if config.data.train_batch_size % section.mini_batch_size != 0:
            raise ValueError(name)
    for name in ("actor", "critic"):
        if config[name].dynamic:
            continue
        if config.data.train_batch_size % config[name].micro_batch_size != 0:
            raise ValueError(name)


@hydra.main(config_path="conf", config_name="base", version_base=None)
def main(config):
    validate(config)
# file: rl/conf/base.yaml
data: {train_batch_size: 256}
actor: {mini_batch_size: 64, micro_batch_size: 4, dynamic: false, tensor_parallel_size: 1}
critic: {mini_batch_size: 64, micro_batch_size: 4, dynamic: true}
"""

SECTIONS = """# file: pre/__init__.py
# file: pre/train.py
import sys
import tomllib
from dataclasses import dataclass, field

from torch.distributed.fsdp import fully_shard


@dataclass
class Parallel:
    replicate: int = 1
    context: int = 1
    tensor: int = 1


@dataclass
class Training:
    steps: int = 100
    local_batch_size: int = 1
    global_batch_size: int = 64


@dataclass
class Config:
    parallel: Parallel = field(default_factory=Parallel)
    training: Training = field(default_factory=Training)


if __name__ == "__main__":
    with open(sys.argv[2], "rb") as file:
        print(tomllib.load(file), Config(), fully_shard)
# file: run.sh
torchrun --nproc_per_node 8 -m pre.train --config conf.toml --training.steps 5
torchrun --nproc_per_node 16 -m pre.train --config conf.toml --expert_parallel 2
"""

READER = """# file: lab/__init__.py
# file: lab/config.py
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf


def load(path):
    config = OmegaConf.load(path)
    parent = config.pop("defaults", None)
    return OmegaConf.merge(load(parent), config) if parent else config


def with_words(config, words):
    OmegaConf.set_struct(config, True)
    parsed = OverridesParser.create().parse_overrides(overrides=words)
    ConfigLoaderImpl._apply_overrides_to_config(overrides=parsed, cfg=config)
    return config
# file: examples/train.py
import argparse
import os

from lab.config import load, with_words


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default=None)
    args, words = parser.parse_known_args()
    path = args.config or os.path.join(os.path.dirname(__file__), "configs", "small.yaml")
    print(with_words(load(path), words))


if __name__ == "__main__":
    main()
# file: examples/configs/small.yaml
policy:
  model_name: Qwen/Qwen2.5-7B
  train_batch: 8
  megatron: {enabled: false}
  dtensor: {enabled: true, tensor_parallel_size: 1}
cluster:
  gpus_per_node: 8
# file: examples/configs/large.yaml
defaults: small.yaml
policy:
  megatron:
    enabled: true
    tp: 4
"""
"""A program that reads a YAML file by itself and lays words over it strictly, as NeMo RL does."""

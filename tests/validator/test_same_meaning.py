"""The engine knows what code means however it is put: by another name, in a variable, a helper, a field, a `with`."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.examples import run
from validator.registry import load_rules

RULES = {rule.rule.code: rule for rule in load_rules()}

MEANINGS = {
    "an import gives a function another name": (
        "MP604",
        """
import torch.distributed
from torch import compile as build
from torch.utils.checkpoint import checkpoint as again

def forward(block, x):
    block = build(block)
    return again(block, x, use_reentrant=True)  # error: MP604
""",
    ),
    "an import gives a wrapper another name": (
        "MP507",
        """
import torch
from torch.distributed.fsdp import fully_shard as spread

class Trainer:
    def __init__(self, model):
        self.model = spread(model)

    def evaluate(self, batches):
        for batch in batches:
            try:
                self.model(batch)
            except torch.cuda.OutOfMemoryError:  # error: MP507
                continue
""",
    ),
    "an import gives an annotation another name": (
        "MP534",
        """
import torch
from collections.abc import Iterator as Stream

def clip(parameters: Stream, limit):
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])  # error: MP534
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
""",
    ),
    "opposite tests in helpers are opposite": (
        "MP501",
        """
import torch.distributed as dist

def leads(rank):
    return rank == 0

def download(path):
    rank = dist.get_rank()
    if not leads(rank):
        dist.barrier()
    fetch(path)
    if leads(rank):
        dist.barrier()
""",
    ),
    "a conjunction in a variable holds in its parts": (
        "MP501",
        """
import torch.distributed as dist

def sync(tensor, sharded):
    if not sharded:
        dist.all_reduce(tensor)

def save(tensor, sharded):
    waits = sharded and dist.get_rank() != 0
    if waits:
        dist.barrier()
        return
    sync(tensor, sharded)
    dist.barrier()
""",
    ),
    "behind a disjunction neither part is known": (
        "MP543",
        """
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

def build(model, mesh, config):
    if config.kind == "a" or config.kind == "b":
        fully_shard(model)
    if config.kind == "b":
        parallelize_module(model, mesh, {"up": ColwiseParallel()})  # error: MP543
""",
    ),
    "a file is written by a function": (
        "MP502",
        """
import os
import torch.distributed as dist

def make(folder):
    os.makedirs(folder)

def prepare(folder):
    if not os.path.exists(folder):
        if dist.get_rank() == 0:
            make(folder)
        dist.barrier()  # error: MP502
""",
    ),
    "a list that a loop fills is as long as the group": (
        "MP516",
        """
import torch
import torch.distributed as dist

def collect(tensor, tp_group):
    parts = []
    for _ in range(dist.get_world_size()):
        parts.append(torch.empty_like(tensor))
    dist.all_gather(parts, tensor, group=tp_group)  # error: MP516
""",
    ),
    "a field of a data class is what its name says": (
        "MP532",
        """
from dataclasses import dataclass

import torch

@dataclass
class Tokens:
    tokens: list
    dp_rank: int
    dp_size: int

    def __iter__(self):
        order = torch.randperm(len(self.tokens))  # error: MP532
        return iter(order[self.dp_rank :: self.dp_size])
""",
    ),
    "an empty context manager of the project gathers nothing": (
        "MP571",
        """
from contextlib import contextmanager

import deepspeed
from transformers import AutoModel

@contextmanager
def section(name):
    yield name

def build(path):
    with deepspeed.zero.Init():
        model = AutoModel.from_pretrained(path)
    with section("init"):
        for param in model.parameters():
            param.normal_()  # error: MP571
""",
    ),
    "a test around the only call of a function is around the function": (
        "MP520",
        """
import os
import torch.distributed as dist

def look():
    breakpoint()

def step(model, batch):
    if os.environ.get("DEBUG_STEP"):
        look()
    return model(batch)
""",
    ),
}


@pytest.mark.parametrize(("code", "example"), MEANINGS.values(), ids=MEANINGS)
def test_meaning_is_known(code: str, example: str, tmp_path: Path) -> None:
    outcome = run(RULES[code], example, str(tmp_path))
    assert outcome.errors == []
    assert outcome.found == outcome.expected, "\n".join(finding.message for finding in outcome.findings)

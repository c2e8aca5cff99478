"""A shuffle that every rank does for itself, before taking its own part.

What it does
    Reports `random.shuffle`, `random.sample`, `torch.randperm` without a generator and `numpy.random.permutation` in
    a function that then takes every n-th element by rank (`[rank::world_size]`), where nothing in the function seeds.

Why is this bad
    The parts belong to different orders: some samples are seen twice, others never, differently in each run.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.places import is_aside, text_of
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP532", "unseeded-shuffle", "error", "0.1.0", tokens=("shuffle", "randperm", "permutation", "sample"))

_SHUFFLES = frozenset(
    {"random.shuffle", "random.sample", "torch.randperm", "numpy.random.permutation", "numpy.random.shuffle"}
)
_PART = re.compile(r"\[[^\]\n]*\brank(\(\))?\s*:[^\]\n]*:\s*[^\]\n]*(world_size|num_replicas|num_processes)[^\]\n]*\]")


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if is_aside(function.path):
            continue
        for call in function.facts.calls:
            if project.dotted(function, call.target) not in _SHUFFLES or call.keyword("generator") is not None:
                continue
            text = text_of(function)
            if _PART.search(text) and "seed" not in text and "broadcast" not in text:
                yield RULE.finding(
                    function.path,
                    call.at,
                    f"every rank shuffles for itself in `{function.qualname}` (`{call.target}`), then takes its"
                    " part of its own order",
                    help="shuffle with a generator seeded alike on all ranks (`random.Random(seed + epoch)`),"
                    " then divide by rank",
                    context=f"{function.qualname}:{call.target}",
                )


INCORRECT = [
    """
import random
import torch.distributed as dist

def split(samples, rank, world_size):
    random.shuffle(samples)  # error: MP532
    return samples[rank::world_size]
""",
]

CORRECT = [
    """
import random
import torch.distributed as dist

def split(samples, rank, world_size, seed):
    random.Random(seed).shuffle(samples)
    return samples[rank::world_size]
""",
    """
import random
import torch.distributed as dist

def split(samples, rank, world_size):
    mine = samples[rank::world_size]
    return mine

def mix(samples):
    random.shuffle(samples)
    return samples
""",
]

"""A shuffle that every rank does for itself, before taking its own part.

What it does
    Reports `random.shuffle`, `random.sample`, `torch.randperm` without a generator and `numpy.random.permutation` in
    a function that then takes a part by rank: every n-th element (`[rank::world_size]`, `[dp_rank::dp_size]`), a
    stretch (`[rank * n : …]`), one of equal pieces (`np.array_split(order, world_size)[rank]`) or a shard of a data
    set. Silent where the function seeds, or the project seeds that generator with a number that names no rank; a
    generator that the function itself seeds with its rank (`manual_seed(seed + rank)`) is reported.

Why is this bad
    The parts belong to different orders: some samples are seen twice, others never, differently in each run.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.places import is_aside, text_of
from validator.facts.model import Call
from validator.finding import Finding
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP532", "unseeded-shuffle", "error", "0.1.0", tokens=("shuffle", "randperm", "permutation", "sample"))

# what shuffles, and the generator that it draws from
_SHUFFLES = {
    "random.shuffle": "random.seed",
    "random.sample": "random.seed",
    "torch.randperm": "torch.manual_seed",
    "numpy.random.permutation": "numpy.random.seed",
    "numpy.random.shuffle": "numpy.random.seed",
}
_SEEDS = frozenset({"manual_seed", "seed", "Random", "RandomState", "default_rng"})
_BY_RANK = re.compile(r"rank(\(\))?($|[^\w(\s/]|\s+[^/\s])")
_SEEDING_ALL = ("set_seed", "seed_everything", "set_random_seed", "enable_full_determinism", "set_global_seed")
_RANK = r"[\w.]*rank(\(\))?"
_SIZE = r"[\w.]*(\bworld|world_size|_size|num_replicas|num_processes|num_shards|num_ranks|num_gpus)(\(\))?"
_PART = re.compile(
    rf"\[\s*{_RANK}\s*:[^\]\n]*:\s*{_SIZE}\s*\]"
    rf"|\[\s*{_RANK}\s*\*[^\]\n:]*:"
    rf"|(array_split|tensor_split|chunk|split)\([^\n]*{_SIZE}\)\[\s*{_RANK}\s*\]"
    rf"|\.shard\([^\n]*{_RANK}[^\n]*\)|split_dataset_by_node\("
)


def check_project(project: Project) -> Iterator[Finding]:
    for function, call in project.calls(*{name.rpartition(".")[2] for name in _SHUFFLES}):
        seeding = _SHUFFLES.get(project.dotted(function, call.target))
        if _seeds_by_rank(function, call) and not is_aside(function.path) and _divides(function, call):
            yield _report(function, call, "every rank seeds its own shuffle")
            continue
        if seeding is None or call.keyword("generator") is not None or is_aside(function.path):
            continue
        text = text_of(function)
        if "seed" in text or "broadcast" in text or not _divides(function, call) or _seeded(project, seeding):
            continue
        yield _report(function, call, "every rank shuffles for itself")


def _report(function: Method, call: Call, what: str) -> Finding:
    return RULE.finding(
        function.path,
        call.at,
        f"{what} in `{function.qualname}` (`{call.target}`), then takes its part of its own order",
        help="shuffle with a generator seeded alike on all ranks (`random.Random(seed + epoch)`), then divide by rank",
        context=f"{function.qualname}:{call.target}",
    )


def _seeds_by_rank(function: Method, call: Call) -> bool:
    """Whether the function seeds with its rank before it shuffles."""
    seeds = (c for c in function.facts.calls if c.method in _SEEDS and c.at < call.at)
    return any(_BY_RANK.search(a.value) for c in seeds for a in c.args)


def _divides(function: Method, call: Call) -> bool:
    """Whether a part is taken behind the shuffle; what a rank does with its own part before is its own affair."""
    lines = function.module.source_text.lines[call.at[0] - 1 : function.facts.at[2]]
    return _PART.search("\n".join(lines)) is not None


def _seeded(project: Project, seeding: str) -> bool:
    """Whether the project gives all ranks the same seed for a generator."""
    calls = [c for f, c in project.calls(seeding.rpartition(".")[2]) if project.dotted(f, c.target) == seeding]
    calls += [c for _, c in project.calls(*_SEEDING_ALL)]
    return any(c.args and not any("rank" in a.value or "process_index" in a.value for a in c.args) for c in calls)


INCORRECT = [
    """
import torch

class Sampler:
    def __iter__(self):
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch + self.rank)
        order = torch.randperm(self.size, generator=generator).tolist()  # error: MP532
        return iter(order[self.rank :: self.world_size])
""",
    """
import random
import torch.distributed as dist

def split(samples, rank, world_size):
    random.shuffle(samples)  # error: MP532
    return samples[rank::world_size]
""",
    """
import numpy as np
import torch

class Tokens:
    def __init__(self, tokens, dp_rank, dp_size):
        self.tokens = tokens
        self.dp_rank = dp_rank
        self.dp_size = dp_size

    def __iter__(self):
        order = np.random.permutation(len(self.tokens))  # error: MP532
        for i in order[self.dp_rank :: self.dp_size]:
            yield self.tokens[i]

    def stretch(self, count):
        order = torch.randperm(len(self.tokens))  # error: MP532
        return order[self.dp_rank * count : (self.dp_rank + 1) * count]

    def piece(self, world_size, rank):
        order = np.random.permutation(len(self.tokens))  # error: MP532
        return np.array_split(order, world_size)[rank]
""",
]

CORRECT = [
    """
import random
import torch

class Sampler:
    def __iter__(self):
        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.size, generator=generator).tolist()
        own = order[self.rank :: self.world_size]
        random.Random(self.seed + self.rank).shuffle(own)
        return iter(own)

    def of_group(self):
        rng = random.Random(self.seed + self.rank // self.tp_size)
        order = list(range(self.size))
        rng.shuffle(order)
        return order[self.tp_rank :: self.tp_size]
""",
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
    """
import random
import numpy as np

def prepare(number):
    np.random.seed(number)

def split(samples, dp_rank, dp_size, columns):
    order = np.random.permutation(len(samples))
    return [samples[i] for i in order[dp_rank::dp_size]]

def own(samples, dp_rank, dp_size):
    mine = samples[dp_rank::dp_size]
    random.shuffle(mine)
    return mine[: len(mine) // 2]
""",
]

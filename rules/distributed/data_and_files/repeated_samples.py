"""A `DistributedSampler` that evaluates some samples twice.

What it does
    Notes `DistributedSampler(…, shuffle=False)` without `drop_last` in a function that evaluates.

Why is this bad
    To give all ranks the same number of samples the sampler repeats the first ones. A metric over all ranks counts
    them twice; with a small evaluation set and many ranks that shows.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.queries.base import Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP533", "repeated-samples", "note", "0.1.0", tokens=("DistributedSampler",))

_EVALUATING = re.compile(r"eval|valid|test", re.IGNORECASE)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for place in queries.calls(
        "torch.utils.data.DistributedSampler", "torch.utils.data.distributed.DistributedSampler"
    ):
        shuffle = place.argument("shuffle", 3)
        if shuffle is None or not shuffle.val.is_const(False) or is_aside(place.unit.path):
            continue
        dataset = place.argument("dataset", 0)
        names = [place.unit.name, *(dataset.words if dataset is not None else ())]
        if place.argument("drop_last", 5) is None and any(_EVALUATING.search(name) for name in names):
            yield RULE.finding(
                place.unit.path,
                place.at,
                f"`DistributedSampler` in `{place.unit.qualname}` repeats samples until all ranks have as many:"
                " metrics count them twice",
                help="divide evaluation data by `dataset[rank::world_size]`, or cut gathered results to the"
                " length of the dataset",
                context=place.unit.qualname,
            )


INCORRECT = [
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

def eval_loader(dataset):
    return DistributedSampler(dataset, shuffle=False)  # error: MP533
""",
]

CORRECT = [
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

def train_loader(dataset):
    return DistributedSampler(dataset, shuffle=False)
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

def eval_loader(dataset):
    return DistributedSampler(dataset, shuffle=False, drop_last=True)
""",
]

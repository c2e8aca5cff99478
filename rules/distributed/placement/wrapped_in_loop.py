"""A model that is wrapped in `DistributedDataParallel` in each round of its training loop.

What it does
    Reports `DistributedDataParallel(model)` inside a loop that also calls `backward()`, where the model is the same in
    each round.

Why is this bad
    Each wrapper puts hooks of its own on the parameters: the gradients are reduced once for each wrapper that there has
    been, and not at all in the rounds that run the bare model. The ranks drift apart, or wait for each other.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.access_paths import paths_of
from validator.flow.queries.base import Place, Queries, blocks_of
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP596", "wrapped-in-loop", "error", "0.5.0", tokens=("DistributedDataParallel",))


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for call in queries.calls("torch.nn.parallel.DistributedDataParallel"):
        code = call.unit.code
        loop = code.blocks[call.value.block].loop
        model = call.argument("module", 0)
        if loop < 0 or model is None or is_test(call.unit.path):
            continue
        body = frozenset(blocks_of(code, loop)) | {loop}
        trains = any(each.method == "backward" and each.value.block in body for each in queries.calls_in(call.unit))
        if trains and not _is_made(model, body):
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{call.unit.qualname}` wraps `{model.text}` anew in each round: every wrapper reduces its gradients",
                help="wrap the model once, before the loop",
                context=f"{call.unit.qualname}:{model.text}",
            )


def _is_made(model: Place, body: frozenset[int]) -> bool:
    """Whether a model is another one in each round."""
    first = paths_of(model.unit).path(model.number)[0]
    made = model.value_at(first) if isinstance(first, int) else model
    return made.root.value.block in body


INCORRECT = [
    """
from torch.nn.parallel import DistributedDataParallel

def train(model, loader, optimizer):
    for step, batch in enumerate(loader):
        optimizer.zero_grad()
        used = DistributedDataParallel(model) if step % 2 else model  # error: MP596
        used(batch).sum().backward()
        optimizer.step()
""",
]

CORRECT = [
    """
from torch.nn.parallel import DistributedDataParallel

def train(models, loader, optimizer):
    for model in models:
        used = DistributedDataParallel(model)
        for batch in loader:
            optimizer.zero_grad()
            used(batch).sum().backward()
            optimizer.step()
""",
    """
from torch.nn.parallel import DistributedDataParallel

def search(make, sizes, batch):
    for size in sizes:
        model = make(size)
        used = DistributedDataParallel(model)
        used(batch).sum().backward()
""",
]

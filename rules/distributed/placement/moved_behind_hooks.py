"""A model that is moved to another device and back inside `DistributedDataParallel`.

What it does
    Reports `cpu()`, or `to("cpu")`, on a model that is wrapped in `DistributedDataParallel`, where it is moved to a GPU
    again afterwards.

Why is this bad
    The wrapper has its hooks on the parameters as they were when it was made. Moved parameters have others: gradients
    are no longer reduced, each rank goes on alone, and nothing says so.

References
    https://github.com/pytorch/pytorch/issues/104336
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import certainly
from validator.finding import Finding, Related
from validator.flow.control import comes_after
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP597", "moved-behind-hooks", "error", "0.5.0", tokens=("DistributedDataParallel",))


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for call in queries.named("cpu", "to"):
        model = call.receiver
        if model is None or is_test(call.unit.path) or not _leaves(call) or not certainly(model.closed.state, "ddp"):
            continue
        back = next((each for each in queries.calls_in(call.unit) if _returns(each, call)), None)
        if back is not None:
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{call.unit.qualname}` moves `{model.text}` away inside `DistributedDataParallel`: its gradients are"
                " no longer reduced",
                help="move the model before it is wrapped, or wrap it again",
                related=[Related(back.unit.path, back.at[0], "it is moved back here")],
                context=f"{call.unit.qualname}:{model.text}",
            )


def _leaves(call: Place) -> bool:
    """Whether a call moves something to the CPU."""
    if call.method == "cpu":
        return True
    given = call.argument("device", 0)
    return given is not None and given.closed.constant() == "cpu"


def _returns(back: Place, away: Place) -> bool:
    """Whether a call moves the same thing to a GPU afterwards."""
    model, before = back.receiver, away.receiver
    if back.method not in ("cuda", "to") or model is None or before is None or _leaves(back):
        return False
    same = model.root.number in (before.root.number, away.number)
    return same and comes_after(back.unit.code, back.value, back.number, away.value, away.number)


INCORRECT = [
    """
from torch.nn.parallel import DistributedDataParallel

def train(model, loader, optimizer, rank):
    model = DistributedDataParallel(model.to(rank), device_ids=[rank])
    model.cpu()  # error: MP597
    model.cuda(rank)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
""",
]

CORRECT = [
    """
from torch.nn.parallel import DistributedDataParallel

def train(model, loader, optimizer, rank):
    model.cpu()
    model = DistributedDataParallel(model.cuda(rank), device_ids=[rank])
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
""",
    """
import torch
from torch.nn.parallel import DistributedDataParallel

def save(model, rank, path):
    model = DistributedDataParallel(model.to(rank), device_ids=[rank])
    model.cpu()
    torch.save(model.module.state_dict(), path)
""",
]

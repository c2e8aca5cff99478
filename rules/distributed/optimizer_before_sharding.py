"""An optimizer made before the model is sharded.

What it does
    Reports `torch.optim.X(model.parameters(), …)` in a function that later wraps the same model in FSDP or calls
    `fully_shard` on it.

Why is this bad
    Sharding replaces the parameters. The optimizer keeps the old ones: they get no gradients, stay in memory, and the
    model does not train, without a word.

References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.places import is_aside
from validator.analysis.sharding import Sharding
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule(
    "MP523", "optimizer-before-sharding", "error", "0.1.0", tokens=("fully_shard", "FSDP", "FullyShardedDataParallel")
)

_WRAPPERS = frozenset({"FSDP", "FullyShardedDataParallel"})


def check_project(project: Project) -> Iterator[Finding]:
    sharding = project.analysis(Sharding)
    for function in project.functions():
        shards = [c for c in function.facts.calls if c.method in _WRAPPERS or c in sharding.calls.get(function, ())]
        shards = [c for c in shards if c.args and c.args[0].kind == "path"]
        for optimizer in _optimizers(project, function) if shards and not is_aside(function.path) else ():
            model = _model(function, optimizer)
            shard = next((c for c in shards if c.args[0].value == model and c.at > optimizer.at), None)
            if shard is not None and not _apart(optimizer, shard):
                yield RULE.finding(
                    function.path,
                    optimizer.at,
                    f"`{optimizer.target}` in `{function.qualname}` gets the parameters of `{model}` before"
                    f" `{shard.method}` replaces them",
                    help="make the optimizer from the parameters of the sharded model",
                    related=[Related(function.path, shard.at[0], "the model is sharded here")],
                    context=f"{function.qualname}:{model}",
                )


def _optimizers(project: Project, function: Method) -> Iterator[Call]:
    for call in function.facts.calls:
        if project.dotted(function, call.target).startswith("torch.optim.") and "lr_scheduler" not in call.target:
            yield call


def _model(function: Method, optimizer: Call) -> str:
    """The model whose parameters an optimizer is given directly."""
    first = optimizer.args[0] if optimizer.args else None
    if first is None or first.kind != "call" or not first.value.endswith(".parameters"):
        return ""
    return first.value.removesuffix(".parameters")


def _apart(first: Call, second: Call) -> bool:
    """Whether opposite conditions hold at two places."""
    tests = {(g.text, g.negated) for g in first.guards if g.kind == "if"}
    return any((g.text, not g.negated) in tests for g in second.guards if g.kind == "if")


INCORRECT = [
    """
import torch
from torch.distributed.fsdp import fully_shard

def build(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)  # error: MP523
    fully_shard(model)
    return model, optimizer
""",
    """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def build(model):
    optimizer = torch.optim.AdamW(model.parameters())  # error: MP523
    model = FSDP(model)
    return model, optimizer
""",
]

CORRECT = [
    """
import torch
from torch.distributed.fsdp import fully_shard

def build(model):
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

def build(model, draft):
    optimizer = torch.optim.AdamW(draft.parameters(), lr=1e-4)
    fully_shard(model)
    return model, optimizer
""",
]

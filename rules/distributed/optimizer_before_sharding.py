"""An optimizer made before the model is sharded.

What it does
    Reports `torch.optim.X(model.parameters(), …)` in a function that later wraps the same model in FSDP or calls
    `fully_shard` on it, itself or through a function that does so to its parameter (`model = strategy.shard(model)`).
    Silent where that function is given the optimizer too, which it may make anew.

Why is this bad
    Sharding replaces the parameters. The optimizer keeps the old ones: they get no gradients, stay in memory, and the
    model does not train, without a word.

References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.places import is_aside, within
from validator.analysis.sharding import Sharding
from validator.analysis.wrapped import Wrapped
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule(
    "MP523", "optimizer-before-sharding", "error", "0.1.0", tokens=("fully_shard", "FSDP", "FullyShardedDataParallel")
)

_PARAMETERS = re.compile(r"([\w.]+)\.(?:named_)?parameters\b")


def check_project(project: Project) -> Iterator[Finding]:
    sharding, wrapped = project.analysis(Sharding), project.analysis(Wrapped)
    for function in dict.fromkeys(f for f, _ in project.calls("parameters", "named_parameters")):
        optimizers = [] if is_aside(function.path) else list(_optimizers(project, function))
        if not optimizers:
            continue
        helpers = [
            (c, c.args[0].value) for c in sharding.calls.get(function, ()) if c.args and c.args[0].kind == "path"
        ]
        taken = [(row.call, row.path) for row in wrapped.given(function)]
        shards = sorted({*taken, *helpers}, key=lambda row: row[0].at)
        for optimizer in optimizers:
            model = _model(function, optimizer)
            later = (c for c, path in shards if path == model and c.at > optimizer.at)
            shard = next((c for c in later if not _apart(optimizer, c) and not _given(function, optimizer, c)), None)
            if shard is not None:
                yield _report(function, optimizer, model, shard)


def _optimizers(project: Project, function: Method) -> Iterator[Call]:
    for call in function.facts.calls:
        if (
            call.args
            and "lr_scheduler" not in call.target
            and project.dotted(function, call.target).startswith("torch.optim.")
        ):
            yield call


def _model(function: Method, optimizer: Call) -> str:
    """The one model whose parameters an optimizer is given, directly or in groups; empty where there are several."""
    given = optimizer.keyword("params") or optimizer.args[0]
    texts = [given.value + ("()" if given.kind == "call" else "")]
    for _ in range(2):  # groups are made of lists
        texts += [
            row.value + ("()" if row.kind == "call" else "")
            for row in function.facts.assigns
            if row.at < optimizer.at and any(re.search(rf"\b{re.escape(row.target)}\b", text) for text in texts)
        ]
    models = {found[1] for text in texts for found in _PARAMETERS.finditer(text)}
    return models.pop() if len(models) == 1 else ""


def _given(function: Method, optimizer: Call, shard: Call) -> bool:
    """Whether a helper that shards the model is given the optimizer with it."""
    names = {row.target for row in function.facts.assigns if within(optimizer.at, row.at)}
    return any(argument.value in names for argument in shard.args)


def _apart(first: Call, second: Call) -> bool:
    """Whether opposite conditions hold at two places."""
    tests = {(g.text, g.negated) for g in first.guards if g.kind == "if"}
    return any((g.text, not g.negated) in tests for g in second.guards if g.kind == "if")


def _report(function: Method, optimizer: Call, model: str, shard: Call) -> Finding:
    return RULE.finding(
        function.path,
        optimizer.at,
        f"`{optimizer.target}` in `{function.qualname}` gets the parameters of `{model}` before"
        f" `{shard.method}` replaces them",
        help="make the optimizer from the parameters of the sharded model",
        related=[Related(function.path, shard.at[0], "the model is sharded here")],
        context=f"{function.qualname}:{model}",
    )


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
    """
import torch
from torch.distributed.fsdp import fully_shard

class Strategy:
    def shard(self, model):
        for layer in model.layers:
            fully_shard(layer)
        return fully_shard(model)

def main(model, sharded):
    strategy = Strategy()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    groups = [{"params": decayed, "weight_decay": 0.1}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4)  # error: MP523
    if sharded:
        model = strategy.shard(model)
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
    """
import torch
from torch.distributed.fsdp import fully_shard

class Strategy:
    def prepare(self, model, optimizer):
        fully_shard(model)
        return model, type(optimizer)(model.parameters(), lr=1e-4)

    def shard(self, model):
        return fully_shard(model)

def main(model, reference):
    strategy = Strategy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer = strategy.prepare(model, optimizer)
    reference = strategy.shard(reference)
    return model, optimizer, reference
""",
]

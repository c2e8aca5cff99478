"""An optimizer made before the model is sharded.

What it does
    Reports `torch.optim.X(model.parameters(), …)` in a function that later wraps the same model in FSDP or calls
    `fully_shard` on it, itself or through a function that does so to its parameter (`model = strategy.shard(model)`).
    Silent where that function is given the optimizer too, which it may make anew. Reports the same of optimizers that a
    function of the project makes from its parameter, and of a constructor that makes an optimizer for an attribute
    that another method shards.

Why is this bad
    Sharding replaces the parameters. The optimizer keeps the old ones: they get no gradients, stay in memory, and the
    model does not train, without a word.

References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.binding import bind
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

# helpers, by the names that they bear, that sort the parameters of a model
_GROUPING = frozenset({
    "get_optimizer_grouped_parameters", "get_grouped_parameters", "get_param_groups", "get_parameter_groups",
    "param_groups", "build_param_groups", "get_optimizer_params", "get_params",
})  # fmt: skip
_PARAMETERS = re.compile(r"([\w.]+)\.(?:named_)?parameters\b")


class Optimizer(NamedTuple):
    """An optimizer and the model whose parameters it gets, by its path. `call` makes it, or calls what makes it."""

    call: Call
    model: str


def check_project(project: Project) -> Iterator[Finding]:
    for function, optimizers in _every(project).items():
        shards = _shards(project, function) if not is_aside(function.path) else []
        for optimizer in optimizers if shards else ():
            later = (s for s in shards if s.path in _names(function, optimizer) and s.comes_after(function, optimizer))
            shard = next(later, None)
            if shard is not None:
                yield _report(function, optimizer, shard)


def _every(project: Project) -> dict[Method, list[Optimizer]]:
    """The optimizers that each function makes, itself or by functions that make one from their parameter."""
    found: dict[Method, list[Optimizer]] = {}
    for function in dict.fromkeys(f for f, _ in project.calls("parameters", "named_parameters", *_GROUPING)):
        for call in _optimizers(project, function):
            model = _model(function, call)
            found.setdefault(function, []).append(Optimizer(call, model))
            if any(p.name == model for p in function.facts.params) and _is_returned(function, call):
                for caller, made in project.calls(function.name):
                    given = bind(function, made).get(model)
                    if given is not None and given.kind == "path" and function in project.types.targets(caller, made):
                        found.setdefault(caller, []).append(Optimizer(made, given.value))
    return found


def _is_returned(function: Method, call: Call) -> bool:
    names = {row.target for row in function.facts.assigns if within(call.at, row.at)}
    return call.use == "return" or any(row.value in names for row in function.facts.returns)


class Shard(NamedTuple):
    """A call that shards a model, by the path of the model, and the function that it stands in."""

    function: Method
    call: Call
    path: str

    def comes_after(self, function: Method, optimizer: Optimizer) -> bool:
        """Whether the model is sharded after the optimizer was made, which the call is not given."""
        place: Call | None = self.call
        if self.function is not function:  # a method that the constructor calls, or that is called when it has ended
            own = f"{function.own_object}.{self.function.name}"
            place = next((c for c in function.facts.calls if c.target == own), None)
            return place is None or place.at > optimizer.call.at
        return (
            self.call.at > optimizer.call.at
            and not _apart(optimizer.call, self.call)
            and not _given(function, optimizer.call, self.call)
        )


def _shards(project: Project, function: Method) -> list[Shard]:
    """The calls that shard models in a function, and of a constructor those in the other methods of its class."""
    sharding, wrapped = project.analysis(Sharding), project.analysis(Wrapped)
    given = (c for c in sharding.calls.get(function, ()) if c.args and c.args[0].kind == "path")
    rows = {(c, c.args[0].value) for c in given} | {(row.call, row.path) for row in wrapped.given(function)}
    found = [Shard(function, *row) for row in sorted(rows, key=lambda row: row[0].at)]
    if function.name == "__init__" and function.cls is not None:
        for method in function.cls.every_method():
            if method is not function and method.own_object == function.own_object:
                found += [Shard(method, row.call, row.path) for row in wrapped.given(method) if "." in row.path]
    return found


def _names(function: Method, optimizer: Optimizer) -> set[str]:
    """The model of an optimizer, and the attributes that hold it too."""
    rows = (row for row in function.facts.assigns if row.kind == "path" and row.value == optimizer.model)
    own = f"{function.own_object}."
    return {optimizer.model, *(row.target for row in rows if row.target.startswith(own))} - {""}


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
    places = [given.at]
    for _ in range(2):  # groups are made of lists
        for row in function.facts.assigns:
            named = rf"(?<![\w.]){re.escape(row.target)}\b"
            if row.at < optimizer.at and row.at not in places and any(re.search(named, text) for text in texts):
                texts.append(row.value + ("()" if row.kind == "call" else ""))
                places.append(row.at)
    models = {found[1] for text in texts for found in _PARAMETERS.finditer(text)}
    for call in function.facts.calls if not models else ():
        if call.method in _GROUPING and call.args and any(within(call.at, place) for place in places):
            models.add(call.args[0].value)
    return models.pop() if len(models) == 1 else ""


def _given(function: Method, optimizer: Call, shard: Call) -> bool:
    """Whether a helper that shards the model is given the optimizer with it."""
    names = {row.target for row in function.facts.assigns if within(optimizer.at, row.at)}
    return any(argument.value in names for argument in shard.args)


def _apart(first: Call, second: Call) -> bool:
    """Whether opposite conditions hold at two places."""
    tests = {(g.text, g.negated) for g in first.guards if g.kind == "if"}
    return any((g.text, not g.negated) in tests for g in second.guards if g.kind == "if")


def _report(function: Method, optimizer: Optimizer, shard: Shard) -> Finding:
    where = "" if shard.function is function else f" in `{shard.function.qualname}`"
    return RULE.finding(
        function.path,
        optimizer.call.at,
        f"`{optimizer.call.target}` in `{function.qualname}` gets the parameters of `{optimizer.model}` before"
        f" `{shard.call.method}`{where} replaces them",
        help="make the optimizer from the parameters of the sharded model",
        related=[Related(shard.function.path, shard.call.at[0], "the model is sharded here")],
        context=f"{function.qualname}:{optimizer.model}",
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
    """
import torch
from torch.distributed.fsdp import fully_shard

class Strategy:
    def create_optimizer(self, model, **options):
        return torch.optim.AdamW(get_optimizer_grouped_parameters(model, 0.1), **options)

    def shard(self, model):
        fully_shard(model)

class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())  # error: MP523

    def setup(self):
        fully_shard(self.model)

def main(strategy: Strategy, model):
    optimizer = strategy.create_optimizer(model, lr=1e-4)  # error: MP523
    strategy.shard(model)
    return optimizer
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
    """
import torch
from torch.distributed.fsdp import fully_shard

class Strategy:
    def create_optimizer(self, model, **options):
        return torch.optim.AdamW(get_optimizer_grouped_parameters(model, 0.1), **options)

    def shard(self, model):
        fully_shard(model)

class Trainer:
    def __init__(self, model):
        self.model = model
        self.setup()
        self.optimizer = torch.optim.AdamW(model.parameters())

    def setup(self):
        fully_shard(self.model)

def main(strategy: Strategy, model, draft):
    strategy.shard(model)
    optimizer = strategy.create_optimizer(model, lr=1e-4)
    strategy.shard(draft)
    return optimizer
""",
]

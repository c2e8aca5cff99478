"""A parameter that FSDP2 has sharded, looked at by some ranks only.

What it does
    Under a test of the rank, reports what is done with a parameter of a model that `fully_shard` has sharded (taken
    from `parameters()`, `named_parameters()` or a state dict in the same class or function): operations that gather
    it (an index, `std`, `median`, `argmax`, `redistribute`), as errors, and operations that show the rank's own part
    as if it were all (`print`, `.item()`, `float()`, `.norm()`, `.sum()` …), as warnings. `full_tensor()` is a
    collective for MP501.

Why is this bad
    What gathers waits for the ranks that never come. `print(param)`, `param.norm().item()` and `float(param.sum())`
    do not wait (torch 2.13): they show the shard of rank 0, and the number is wrong by what the others hold.

References
    https://docs.pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.places import is_aside, is_for_debugging, text_of
from validator.analysis.rank_guards import RankGuards
from validator.analysis.sharding import Sharding
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP541", "sharded-tensor-on-one-rank", "warning", "0.1.0", tokens=("fully_shard",))

# seen on gloo with torch 2.13: these wait for the other ranks …
_GATHERING = frozenset({"std", "var", "median", "argmax", "argmin", "sort", "topk", "redistribute", "unique"})
# … and these answer from the rank's own part
_LOCAL = frozenset(
    {"item", "norm", "sum", "mean", "max", "min", "any", "all", "abs", "isnan", "float", "print", "save"}
)
_SOURCES = re.compile(r"(^|\.)(named_parameters|parameters|state_dict)(\(\))?(\.(items|values))?$")
_WHOLE = re.compile(r"full_tensor|to_local|_local_tensor|get_model_state_dict|full_state_dict|summon_full_params")


def check_project(project: Project) -> Iterator[Finding]:
    sharding, guards = project.analysis(Sharding), project.analysis(RankGuards)
    for function in project.functions():
        if is_aside(function.path) or function.name.startswith("<"):
            continue
        models = _models(sharding, function)
        names = _parameters(function, models) if models else {}
        if not names or _WHOLE.search(text_of(function)):
            continue
        for call in function.facts.calls:
            name = _parameter(call, names)
            taint = guards.of(function, call.guards) if name else None
            if taint is not None and not is_for_debugging(function, call.guards):
                yield _report(function, call, name, taint.why, models[names[name]])
                break


def _models(sharding: Sharding, function: Method) -> dict[str, tuple[str, int]]:
    """The paths that hold sharded models here, with the place where each is sharded."""
    found: dict[str, tuple[str, int]] = {}
    for call in sharding.calls.get(function, ()):
        if call.args and call.args[0].kind == "path":
            found[call.args[0].value] = (function.path, call.at[0])
    if function.cls is not None and function.cls in sharding.classes:
        for attribute, (where, call) in sharding.models(function.cls).items():
            found[f"self.{attribute}"] = (where.path, call.at[0])
    return found


def _parameters(function: Method, models: dict[str, tuple[str, int]]) -> dict[str, str]:
    """Variables that hold parameters of those models: name -> model."""
    found: dict[str, str] = {}
    for row in function.facts.assigns:
        if row.kind != "for" and not row.kind.startswith("unpack"):
            continue
        model = next((m for m in models if row.value.startswith(f"{m}.") and _SOURCES.search(row.value)), None)
        if model is not None and not row.kind.startswith("unpack:0/"):  # that one is the parameter's name
            found[row.target] = model
    return found


def _parameter(call: Call, names: dict[str, str]) -> str:
    """The variable whose contents a call asks for."""
    if call.method in _GATHERING | _LOCAL:
        root = call.receiver.partition(".")[0].partition("(")[0].partition("[")[0]
        if root in names:
            return root
    if call.target in ("print", "float", "bool", "logger.info"):
        return next((a.value for a in call.args if a.kind == "path" and a.value in names), "")
    return ""


def _report(function: Method, call: Call, name: str, why: str, sharded: tuple[str, int]) -> Finding:
    gathers = call.method in _GATHERING
    if gathers:
        told = "gathers the parameter from all ranks, and the others never come"
    else:
        told = "shows this rank's part of the parameter alone"
    return RULE.finding(
        function.path,
        call.at,
        f"`{call.target}(…)` in `{function.qualname}`, on some ranks only, told apart by `{why}`: `{name}` is sharded,"
        f" and this {told}",
        help=f"call `{name}.full_tensor()` on every rank, and look at the result inside the branch",
        related=[Related(*sharded, "the model is sharded here")],
        context=f"{function.qualname}:{call.target}",
        severity="error" if gathers else None,
    )


INCORRECT = [
    """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def log(self):
        for name, param in self.model.named_parameters():
            if dist.get_rank() == 0:
                print(name, param.norm().item())  # error: MP541
""",
    """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def log(self):
        if dist.get_rank() == 0:
            for param in self.model.parameters():
                spread = param.std()  # error: MP541
                write(spread)
""",
]

CORRECT = [
    """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def log(self):
        for name, param in self.model.named_parameters():
            whole = param.full_tensor()
            if dist.get_rank() == 0:
                print(name, whole.norm().item())
""",
    """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def log(self):
        for name, param in self.model.named_parameters():
            if dist.get_rank() == 0:
                print(name, param.shape, param.numel(), param.requires_grad)
""",
    """
import torch.distributed as dist

class Trainer:
    def build(self, model):
        self.model = model

    def log(self):
        if dist.get_rank() == 0:
            for name, param in self.model.named_parameters():
                print(name, param.norm().item())
""",
]

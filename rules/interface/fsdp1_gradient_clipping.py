"""Gradients of an FSDP1 model that are clipped by their local norm.

What it does
    Reports `torch.nn.utils.clip_grad_norm_(model.parameters(), …)` in a class (or, outside classes, a file) that
    wraps its models in `FullyShardedDataParallel` and never calls the wrapper's own `clip_grad_norm_`. Silent where
    a condition asks for FSDP or for that method. FSDP2 (`fully_shard`) is right with torch's function.

Why is this bad
    Each rank holds a part of every gradient and computes the norm of that part alone: every rank scales by another
    coefficient, none of them right, and no error is raised.

References
    https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.analysis.members import method_of
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP127", "fsdp1-gradient-clipping", "error", stable_since="0.1.0", tokens=("clip_grad_norm_",))

_WRAPPER = (
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
)
_CLIP = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")
_ASKED = ("fsdp", "isinstance", "clip_grad_norm_", "no_shard", "ddp")


def check_project(project: Project) -> Iterator[Finding]:
    for module in project.modules.values():
        clipping = [f for f in module.functions.values() if any(c.method == "clip_grad_norm_" for c in f.facts.calls)]
        scopes: dict[object, list[Method]] = {}
        for function in module.functions.values() if clipping else ():
            scopes.setdefault(method_of(function).cls or module, []).append(function)
        for functions in scopes.values():
            yield from _check(project, functions)


def _check(project: Project, functions: list[Method]) -> Iterator[Finding]:
    wrapped = next(((f, c) for f, c in _calls(functions) if project.dotted(f, c.target) in _WRAPPER), None)
    if wrapped is None:
        return
    clips = [(f, c) for f, c in _calls(functions) if c.method == "clip_grad_norm_"]
    if any(project.dotted(f, c.target) not in _CLIP for f, c in clips):
        return  # the wrapper's own method is used somewhere: the two are told apart
    for function, call in clips:
        asked = any(g.kind == "if" and any(word in g.text.lower() for word in _ASKED) for g in call.guards)
        if not asked and call.args and ".parameters" in call.args[0].value:
            yield _report(function, call, *wrapped)


def _calls(functions: Iterable[Method]) -> Iterator[tuple[Method, Call]]:
    for function in functions:
        for call in function.facts.calls:
            yield function, call


def _report(function: Method, call: Call, wrapper: Method, wrapping: Call) -> Finding:
    model = call.args[0].value.partition(".parameters")[0]
    return RULE.finding(
        function.path,
        call.at,
        f"`{function.qualname}` clips the gradients of `{model}`, which `{wrapper.qualname}` shards with FSDP1, by the "
        f"norm of this rank's part",
        help=f"call `{model}.clip_grad_norm_(max_norm)` where the model is FSDP1's wrapper",
        related=[Related(wrapper.path, wrapping.at[0], "models are wrapped here")],
        context=f"{function.qualname}:clip_grad_norm_",
    )


INCORRECT = (
    """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class FSDPStrategy:
    def prepare(self, model):
        return FSDP(model)

    def optimizer_step(self, optimizer, model):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # error: MP127
        optimizer.step()
""",
)

CORRECT = (
    """\
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class FSDPStrategy:
    def prepare(self, model):
        return FSDP(model)

    def optimizer_step(self, optimizer, model):
        if hasattr(model, "clip_grad_norm_"):
            model.clip_grad_norm_(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
""",
    # FSDP2 keeps DTensors, of which torch's function takes the global norm
    """\
import torch
from torch.distributed.fsdp import fully_shard


class FSDP2Strategy:
    def prepare(self, model):
        return fully_shard(model)

    def optimizer_step(self, optimizer, model):
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
""",
)

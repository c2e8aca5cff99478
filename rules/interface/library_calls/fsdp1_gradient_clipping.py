"""Gradients of an FSDP1 model that are clipped by their local norm.

What it does
    Reports `torch.nn.utils.clip_grad_norm_(model.parameters(), …)` of a model that was wrapped in
    `FullyShardedDataParallel`, wherever that was (a warning where it is on some ways of the program), and in a class
    (or, outside classes, a file) that wraps its models and never calls the wrapper's own `clip_grad_norm_`. Silent
    where a condition asks for FSDP, for that method or for the strategy by which FSDP shards: with `NO_SHARD` gradients
    are whole. FSDP2 (`fully_shard`) is right with torch's function.

Why is this bad
    Each rank holds a part of every gradient and computes the norm of that part alone: every rank scales by another
    coefficient, none of them right, and no error is raised.

References
    https://docs.pytorch.org/docs/stable/fsdp.html#torch.distributed.fsdp.FullyShardedDataParallel.clip_grad_norm_
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.analysis.interfaces.members import method_of
from validator.domains.placement import certainly, may
from validator.facts.model import At, Call
from validator.finding import Finding, Related
from validator.flow.queries.base import Queries
from validator.flow.queries.training.placements import decided_by
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP127", "fsdp1-gradient-clipping", "error", stable_since="0.1.0", tokens=("clip_grad_norm_",), solves=True)

_WRAPPER = (
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
)
_CLIP = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad.clip_grad_norm_")
_ASKED = (
    "fsdp", "isinstance", "clip_grad_norm_", "no_shard", "ddp", "sharded_strategy", "sharding_strategy",
    "shardingstrategy",
)  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    seen: set[tuple[str, At]] = set()
    for found in (*_of_wrapped(project), *_in_wrapping_classes(project)):
        if (place := (found.path, found.span)) not in seen:
            seen.add(place)
            yield found


def _of_wrapped(project: Project) -> Iterator[Finding]:
    """Models of which the flow knows that they are inside the wrapper."""
    for call in project.analysis(Queries).calls("torch.nn.utils.clip_grad_norm_"):
        given = call.argument("parameters", 0)
        state = given.closed.state if given is not None else frozenset()
        asked = (word for test in decided_by(call) for word in test.words)
        if given is None or not may(state, "fsdp1") or any(map(_asks, asked)):
            continue
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"`{given.text}`{call.where} are of a model inside FSDP1's wrapper: they are clipped by the norm of this"
            " rank's part",
            help="call `model.clip_grad_norm_(max_norm)` where the model is FSDP1's wrapper",
            context=f"{call.unit.qualname}:clip_grad_norm_",
            severity="error" if certainly(state, "fsdp1") else "warning",
        )


def _asks(word: str) -> bool:
    return any(each in word.lower() for each in _ASKED)


def _in_wrapping_classes(project: Project) -> Iterator[Finding]:
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
        asked = any(g.kind == "if" and _asks(g.text) for g in call.guards)
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
    """# file: wrap.py
from torch.distributed.fsdp import FullyShardedDataParallel


def wrapped(model):
    return FullyShardedDataParallel(model, use_orig_params=True)

# file: train.py
import torch
from wrap import wrapped


def train(model, loader, optimizer):
    for batch in loader:
        model(batch).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # error: MP127
        optimizer.step()


def main(loader):
    model = wrapped(torch.nn.Linear(2, 2))
    train(model, loader, torch.optim.AdamW(model.parameters()))
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
    # no part of the model is sharded here, so that gradients are whole
    """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class FSDPStrategy:
    def prepare(self, model):
        return FSDP(model)

    def clip(self, model, limit):
        handles = model._all_handles
        whole = all(not handle.uses_sharded_strategy for handle in handles)
        if whole:
            return torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item()
        return self.norm_over_ranks(model)
""",
)

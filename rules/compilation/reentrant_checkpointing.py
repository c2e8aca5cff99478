"""Reentrant activation checkpointing of a model that FSDP wraps.

What it does
    Reports `gradient_checkpointing_enable()` without `gradient_checkpointing_kwargs`, and a call that asks for the
    reentrant kind (`use_reentrant=True`, `checkpoint_wrapper` with `CheckpointImpl.REENTRANT`), in a function that
    wraps a model in FSDP or `fully_shard`, itself or through a helper (`model = strategy.shard(model)`), and of an
    attribute that holds such a model; the latter also where the function compiles or sets up a ring of sequence parts,
    and `checkpoint_wrapper` also where the function that calls its own does one of these.

Why is this bad
    The reentrant kind (still the default of transformers before 5) runs the forward again inside an own backward pass:
    FSDP gathers its parameters a second time in it, inputs that need no gradient end the graph of a model with a
    frozen part, and `torch.compile` breaks the graph.

References
    https://docs.pytorch.org/docs/stable/checkpoint.html
    https://huggingface.co/docs/transformers/main_classes/model#transformers.PreTrainedModel.gradient_checkpointing_enable
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.places import is_aside
from validator.analysis.sharding import Sharding
from validator.analysis.wrapped import FSDP, SHARDED, Wrapped
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule(
    "MP604",
    "reentrant-checkpointing",
    "warning",
    "0.1.0",
    tokens=("gradient_checkpointing_enable", "use_reentrant", "REENTRANT"),
)

_WRAPPERS = frozenset({"FSDP", "FullyShardedDataParallel", "fully_shard"})
_COMPILING = frozenset({"torch.compile"})
_RING = re.compile(
    r"^(zigzag_|stripe_)?ring_flash_attn|^setup_ring_attn$|^substitute_hf_flash_attn$|^context_parallel$"
)
_REENTRANT = re.compile(r"""['"]use_reentrant['"]: True|use_reentrant=True""")


_HELP = {
    "checkpoint": "pass `use_reentrant=False`",
    "checkpoint_wrapper": "pass `checkpoint_impl=CheckpointImpl.NO_REENTRANT`",
}


class Taken(NamedTuple):
    """The call that takes a model, and the function that it stands in."""

    function: Method
    call: Call


def check_project(project: Project) -> Iterator[Finding]:
    for function, call in project.calls("gradient_checkpointing_enable", "checkpoint", "checkpoint_wrapper"):
        if is_aside(function.path):
            continue
        if call.method == "gradient_checkpointing_enable" and not call.args and "super()" not in call.target:
            wrap = _wrapping(project, function, call)
            if wrap is not None:
                yield _report(function, call, wrap, f"`{call.target}()` asks for no kind of checkpointing")
        if _asks_for_reentrant(function, call):
            wrap = _unfit(project, function, call)
            if wrap is None and call.method == "checkpoint_wrapper":  # in a helper that a list of steps calls
                callers = (caller for caller, _ in project.types.callers.get(function, ()))
                wrap = next((w for caller in callers if (w := _unfit(project, caller, call)) is not None), None)
            if wrap is not None:
                yield _report(function, call, wrap, f"`{call.target}` asks for the reentrant kind of checkpointing")


def _asks_for_reentrant(function: Method, call: Call) -> bool:
    if call.method == "checkpoint":
        reentrant = call.keyword("use_reentrant")
        return reentrant is not None and reentrant.value == "True"
    if call.method == "checkpoint_wrapper":
        kind = call.keyword("checkpoint_impl") or (call.positional[1] if len(call.positional) > 1 else None)
        return kind is not None and kind.value.rpartition(".")[2] == "REENTRANT"
    options = call.keyword("gradient_checkpointing_kwargs") or (call.positional[0] if call.positional else None)
    if options is None:
        return False
    rows = [row.value for row in function.facts.assigns if row.target == options.value and row.at < call.at]
    return bool(_REENTRANT.search(rows[0] if len(rows) == 1 else options.value))


def _unfit(project: Project, function: Method, call: Call) -> Taken | None:
    """The call in a function with which the reentrant kind does not go."""
    return _wrapping(project, function, call) or _compiling(project, function) or _ringing(function)


def _wrapping(project: Project, function: Method, call: Call) -> Taken | None:
    """The call that shards the model, in the same function or where an attribute gets it."""
    sharding, wrapped = project.analysis(Sharding), project.analysis(Wrapped)
    if function in sharding.calls:
        return Taken(function, sharding.calls[function][0])
    own = next((c for c in function.facts.calls if c.method in _WRAPPERS), None)
    own = own or next((row.call for row in wrapped.given(function) if row.path == call.receiver), None)
    if own is not None:
        return Taken(function, own)
    held = wrapped.ever(function, call.receiver) if call.method == "gradient_checkpointing_enable" else []
    return next((Taken(row.where, row.call) for row in held if row.kind in (FSDP, SHARDED)), None)


def _compiling(project: Project, function: Method) -> Taken | None:
    found = (c for c in function.facts.calls if project.dotted(function, c.target) in _COMPILING)
    return next((Taken(function, call) for call in found), None)


def _ringing(function: Method) -> Taken | None:
    """The call that spreads attention over a ring of ranks, each with a part of the sequence."""
    return next((Taken(function, c) for c in function.facts.calls if _RING.search(c.method)), None)


def _report(function: Method, call: Call, wrap: Taken, what: str) -> Finding:
    where = "where" if wrap.function is function else f"and in `{wrap.function.qualname}`"
    return RULE.finding(
        function.path,
        call.at,
        f"{what} in `{function.qualname}`, {where} `{wrap.call.method}` takes the model: the reentrant kind does not go"
        " with it",
        help=_HELP.get(call.method, 'pass `gradient_checkpointing_kwargs={"use_reentrant": False}`'),
        related=[Related(wrap.function.path, wrap.call.at[0], f"`{wrap.call.method}` is called here")],
        context=f"{function.qualname}:{call.target}",
    )


INCORRECT = [
    """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def build(model, config):
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()  # error: MP604
    return FSDP(model)
""",
    """
import torch
from torch.utils.checkpoint import checkpoint

def forward(block, x):
    block = torch.compile(block)
    return checkpoint(block, x, use_reentrant=True)  # error: MP604
""",
    """
import torch
from ring_flash_attn import substitute_hf_flash_attn

def compiled(model):
    model.gradient_checkpointing_enable({"use_reentrant": True})  # error: MP604
    return torch.compile(model)

def ring(model, group):
    substitute_hf_flash_attn(group, 1)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})  # error: MP604
    return model
""",
    """
from torch.distributed.fsdp import fully_shard

class Strategy:
    def shard(self, model):
        return fully_shard(model)

def main(model, args):
    strategy = Strategy()
    options = {"use_reentrant": True}
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)  # error: MP604
    if args.sharded:
        model = strategy.shard(model)
    return model

class Worker:
    def __init__(self, model):
        self.model = model
        self.model.gradient_checkpointing_enable({"use_reentrant": True})  # error: MP604

    def prepare(self):
        fully_shard(self.model)
""",
    """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

def recompute(model):
    for name, block in model.blocks.named_children():
        wrapped = checkpoint_wrapper(block, checkpoint_impl=CheckpointImpl.REENTRANT)  # error: MP604
        model.blocks.register_module(name, wrapped)

def parallelize(model, mesh):
    recompute(model)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
""",
]

CORRECT = [
    """
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def build(model, config):
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return FSDP(model)
""",
    """
import deepspeed

def build(model):
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    return deepspeed.initialize(model=model)
""",
    """
from torch.distributed.fsdp import fully_shard

class Strategy:
    def shard(self, model):
        return fully_shard(model)

def main(model, draft):
    options = {"use_reentrant": False}
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    draft.gradient_checkpointing_enable({"use_reentrant": True})
    return Strategy().shard(model), draft
""",
    """
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

def recompute(model):
    return checkpoint_wrapper(model, checkpoint_impl=CheckpointImpl.NO_REENTRANT)

def plain(model):
    return checkpoint_wrapper(model, CheckpointImpl.REENTRANT)

def parallelize(model, mesh):
    fully_shard(recompute(model), mesh=mesh)
""",
]

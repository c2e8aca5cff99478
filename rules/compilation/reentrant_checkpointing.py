"""Reentrant activation checkpointing of a model that FSDP wraps.

What it does
    Reports `gradient_checkpointing_enable()` without `gradient_checkpointing_kwargs`, and `checkpoint(…,
    use_reentrant=True)`, in a function or class that wraps a model in FSDP or `fully_shard`; the latter also where
    the function compiles or works on a ring of sequence parts.

Why is this bad
    The reentrant kind (still the default of transformers before 5) runs the forward again inside an own backward pass:
    FSDP gathers its parameters a second time in it, inputs that need no gradient end the graph of a model with a
    frozen part, and `torch.compile` breaks the graph.

References
    https://docs.pytorch.org/docs/stable/checkpoint.html
    https://huggingface.co/docs/transformers/main_classes/model#transformers.PreTrainedModel.gradient_checkpointing_enable
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
    "MP604", "reentrant-checkpointing", "warning", "0.1.0", tokens=("gradient_checkpointing_enable", "use_reentrant")
)

_WRAPPERS = frozenset({"FSDP", "FullyShardedDataParallel", "fully_shard"})
_COMPILING = frozenset({"torch.compile"})


def check_project(project: Project) -> Iterator[Finding]:
    for function, call in project.calls("gradient_checkpointing_enable", "checkpoint"):
        if is_aside(function.path):
            continue
        if call.method == "gradient_checkpointing_enable" and not call.args and "super()" not in call.target:
            wrap = _wrapping(project, function)
            if wrap is not None:
                yield _report(function, call, wrap, f"`{call.target}()` asks for no kind of checkpointing")
        reentrant = call.keyword("use_reentrant")
        if call.method == "checkpoint" and reentrant is not None and reentrant.value == "True":
            wrap = _wrapping(project, function) or _compiling(project, function)
            if wrap is not None:
                yield _report(function, call, wrap, f"`{call.target}` asks for the reentrant kind of checkpointing")


def _wrapping(project: Project, function: Method) -> Call | None:
    """The call that shards the model in the same function."""
    sharding = project.analysis(Sharding)
    if function in sharding.calls:
        return sharding.calls[function][0]
    return next((c for c in function.facts.calls if c.method in _WRAPPERS), None)


def _compiling(project: Project, function: Method) -> Call | None:
    return next((c for c in function.facts.calls if project.dotted(function, c.target) in _COMPILING), None)


def _report(function: Method, call: Call, wrap: Call, what: str) -> Finding:
    return RULE.finding(
        function.path,
        call.at,
        f"{what} in `{function.qualname}`, where `{wrap.method}` takes the model: the reentrant kind does not go"
        " with it",
        help='pass `gradient_checkpointing_kwargs={"use_reentrant": False}` (`use_reentrant=False` to `checkpoint`)',
        related=[Related(function.path, wrap.at[0], f"`{wrap.method}` is called here")],
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
    model.gradient_checkpointing_enable()
    return deepspeed.initialize(model=model)
""",
]

"""Reentrant activation checkpointing of a model that FSDP wraps.

What it does
    Reports `gradient_checkpointing_enable()` without `gradient_checkpointing_kwargs` (a note), and a call that asks for
    the reentrant kind (`use_reentrant=True`, `checkpoint_wrapper` with `CheckpointImpl.REENTRANT`), in a function that
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

from collections.abc import Iterator

from validator.domains.placement import may
from validator.finding import Finding, Related, Severity
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import Index
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import Placings
from validator.flow.values import Val
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP604",
    "reentrant-checkpointing",
    "warning",
    "0.1.0",
    tokens=("gradient_checkpointing_enable", "use_reentrant", "REENTRANT"),
)

_SHARDING = ("fsdp1", "fsdp2")
_HELP = {
    "checkpoint": "pass `use_reentrant=False`",
    "checkpoint_wrapper": "pass `checkpoint_impl=CheckpointImpl.NO_REENTRANT`",
}


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    index = Index(placings.flow)
    for call in placings.queries.named("gradient_checkpointing_enable", "checkpoint", "checkpoint_wrapper"):
        if is_aside(call.unit.path):
            continue
        if call.method == "gradient_checkpointing_enable" and not call.value.data.names and not _is_super(call):
            wrap = _wrapping(placings, call)
            if wrap is not None:  # which kind that is, the version of transformers says
                yield _report(call, wrap, f"`{call.text}` asks for no kind of checkpointing", "note")
        elif _asks_for_reentrant(call):
            wrap = _wrapping(placings, call) or _unfit(placings, call.unit)
            if wrap is None and call.method == "checkpoint_wrapper":  # in a helper that a list of steps calls
                callers = dict.fromkeys(caller for caller, _, _ in index.sites(call.unit))
                wrap = next((w for caller in callers if (w := _takes(placings, caller))), None)
            if wrap is not None:
                yield _report(call, wrap, f"`{call.text}` asks for the reentrant kind of checkpointing")


def _is_super(call: Place) -> bool:
    return call.receiver is not None and bool(call.receiver.val.of("super"))


def _asks_for_reentrant(call: Place) -> bool:
    if call.method == "checkpoint":
        given = call.argument("use_reentrant")
        return given is not None and given.closed.is_const(True)
    if call.method == "checkpoint_wrapper":
        given = call.argument("checkpoint_impl", 1)
        objs = given.closed.objs if given is not None else ()
        return bool(objs) and all(o[0] == "ext" and o[1].endswith(".REENTRANT") for o in objs)
    given = call.argument("gradient_checkpointing_kwargs", 0)
    return given is not None and _reentrant_in(given.closed)


def _reentrant_in(options: Val) -> bool:
    rows = [dict(o[1]).get("use_reentrant") for o in options.of("dict")]
    return bool(rows) and all(row is not None and row.is_const(True) for row in rows)


def _wrapping(placings: Placings, call: Place) -> Place | None:
    """The call that shards the model: in the same function, or where it comes from."""
    model = call.receiver if call.method == "gradient_checkpointing_enable" else None
    events = placings.events(call.unit, *_SHARDING)
    if model is None:
        return events[0].call if events else None
    own = next((e.call for e in events if e.path == placings.path(model) or not model.val.symbolic), None)
    if own is not None or not may(model.closed.state, *_SHARDING):
        return own or _elsewhere(placings, model)
    return placings.where(model, *_SHARDING)


def _elsewhere(placings: Placings, model: Place) -> Place | None:
    """A method of the class that shards the attribute which holds the model."""
    names: set[tuple[int | str, ...]]
    path = placings.path(model)
    if path[0] != 0 or len(path) != 2 or model.unit.cls is None:
        names = {
            (f".{v.data}",)
            for v in model.unit.code.values
            if v.op == "store_attr" and _same(placings, model, v.args[1])
        }
    else:
        names = {path[1:]}
    for call, given, _ in placings.of_class(model.unit, *_SHARDING):
        own = placings.path(given)
        if own[0] == 0 and own[1:] in names:
            return call
    return None


def _same(placings: Placings, model: Place, number: int) -> bool:
    return placings.path(model.value_at(number)) == placings.path(model)


def _unfit(placings: Placings, unit: Unit) -> Place | None:
    """What compiles in a function, or spreads attention over a ring of ranks."""
    for call in placings.queries.calls_in(unit):
        for o in call.operand(0).val.each:
            row = placings.flow.models.call(o[1]) if o[0] == "ext" else None
            if row is not None and (row.ring or row.result_state == "compiled"):
                return call
    return None


def _takes(placings: Placings, unit: Unit) -> Place | None:
    events = placings.events(unit, *_SHARDING)
    return events[0].call if events else _unfit(placings, unit)


def _report(call: Place, wrap: Place, what: str, severity: Severity | None = None) -> Finding:
    where = "where" if wrap.unit is call.unit else f"and in `{wrap.unit.qualname}`"
    return RULE.finding(
        call.unit.path,
        call.at,
        f"{what} in `{call.unit.qualname}`, {where} `{wrap.method}` takes the model: the reentrant kind does not go"
        " with it",
        help=_HELP.get(call.method, 'pass `gradient_checkpointing_kwargs={"use_reentrant": False}`'),
        related=[Related(wrap.unit.path, wrap.at[0], f"`{wrap.method}` is called here")],
        context=f"{call.unit.qualname}:{call.method}",
        severity=severity,
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

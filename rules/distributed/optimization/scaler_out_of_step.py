"""Gradients that are clipped while they are scaled, or a scale that is never updated.

What it does
    Follows `GradScaler`: reports `clip_grad_norm_` and `clip_grad_value_` before `scaler.step(optimizer)` and behind
    `scaler.scale(loss).backward()`, in one function or in those that it calls, where nothing on the way asks for the
    scale or unscales (in one function it may do so afterwards) and nothing else is trained beside; and
    `scaler.step(optimizer)` in a project that never calls `update()` of a scaler. So with Accelerate, which scales in
    `accelerator.backward(loss)`: what torch clips behind it in the same function, where `mixed_precision` is passed and
    may be float16 and nobody asks Accelerate to unscale. And `GradScaler` of a module that wraps models by
    `FullyShardedDataParallel`, and none by DDP, instead of `ShardedGradScaler`.

Why is this bad
    The gradients are as many times too large as the scale says (65,536 at first), so that clipping makes nearly every
    step one of the full length. Without `update()` the scale never adapts, and a step after an overflow is skipped for
    ever.

References
    https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping
    https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update
    https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.clip_grad_norm_
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.domains.placement import certainly, may
from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, ways_back
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.optimizers import ACCELERATOR, is_accelerator, is_scaler
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP562", "scaler-out-of-step", "warning", "1.0", tokens=("GradScaler", "Accelerator"), solves=True)


_SCALERS = ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler")
_CLIPPING = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_")


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    steps = list(_steps(queries))
    updated = not steps or any(_of_scaler(call) for call in queries.named_anywhere("update"))
    for step in steps:
        if not updated:
            yield _finding(step, "is never followed by `update()`: the scale of the loss stays as it is")
    for clip in dict.fromkeys(_clipped(queries, {step.unit for step in steps})):
        yield _finding(clip, "clips gradients that are still multiplied by the scale of the loss")
    for maker in _of_shards(queries):
        yield _finding(
            maker,
            "hears of no overflow in the shards that other ranks have: some ranks leave a step out, and others take it",
            "use `ShardedGradScaler` of `torch.distributed.fsdp.sharded_grad_scaler`",
        )
    for clip in _clipped_beside(queries):
        yield _finding(
            clip,
            "clips gradients that, with float16, are still multiplied by the scale of Accelerate",
            "clip by `accelerator.clip_grad_norm_`, which unscales first",
        )


def _of_shards(queries: Queries) -> Iterator[Place]:
    """What makes a plain scaler in a file that wraps models by FSDP, and none by DDP."""
    for maker in queries.calls(*_SCALERS):
        module = maker.unit.module
        if is_aside(maker.unit.path) or not any(
            word in module.source.text.lower() for word in ("fsdp", "fullysharded")
        ):
            continue
        calls = (call for unit in queries.flow.whole_units(module) for call in queries.calls_in(unit))
        states = [state for call in calls if (state := call.closed.state)]
        if any(certainly(each, "fsdp1") for each in states) and not any(may(each, "ddp") for each in states):
            yield maker


def _clipped_beside(queries: Queries) -> Iterator[Place]:
    """What torch clips where Accelerate has scaled."""
    makers = list(queries.calls_anywhere(ACCELERATOR))
    if not makers or not all(map(_may_scale, makers)) or any(queries.named_anywhere("unscale_gradients")):
        return
    for clip in queries.calls_anywhere(*_CLIPPING):
        if is_aside(clip.unit.path):
            continue
        scaled = (_is_backward(each) for each in ways_back(clip, _is_backward) if each is not None)
        if any(scaled) and None not in ways_back(clip, _is_backward):
            yield clip


def _may_scale(maker: Place) -> bool:
    """Whether an `Accelerator` is told a precision that may be float16."""
    given = maker.argument("mixed_precision")
    return given is not None and given.closed.constant() in (None, "fp16") and not given.closed.is_const(None)


def _is_backward(place: Place) -> bool:
    return place.value.op == "call" and place.method == "backward" and is_accelerator(place.receiver)


def _steps(queries: Queries) -> Iterator[Place]:
    """The first step of a scaler in each function."""
    for unit in queries.mentioning("step"):
        calls = queries.calls_in(unit) if not is_aside(unit.path) else ()
        yield from [call for call in calls if call.method == "step" and _of_scaler(call)][:1]


def _of_scaler(call: Place) -> bool:
    return call.receiver is not None and is_scaler(call.receiver)


def _clipped(queries: Queries, stepping: set[Unit]) -> Iterator[Place]:
    """What clips before a scaler steps, in one function or in what that calls, where nothing unscales."""
    scaled = {call.unit for call in queries.named_anywhere("scale") if _of_scaler(call)} if stepping else set()
    if not scaled:
        return
    asking = {call.unit for call in queries.named_anywhere("unscale_", "get_scale")}
    clips = [
        call
        for call in queries.named_anywhere(*queries.flow.models.gradients["bounding"])
        if not is_aside(call.unit.path)
    ]
    to_step, to_clip = queries.reaching(stepping), queries.reaching({clip.unit for clip in clips})
    to_scale, to_asking = queries.reaching(scaled), queries.reaching(asking)
    to_size = queries.reaching({call.unit for call in queries.named_anywhere("get_scale")})
    for unit in sorted(to_step & to_clip, key=lambda each: each.place):
        around = queries.reaching({unit})
        if around.isdisjoint(to_scale):
            continue
        anywhere = _may_ask(queries, around, to_asking)
        calls = [] if anywhere and not around.isdisjoint(to_size) else list(queries.calls_in(unit))
        step = next((call for call in calls if _comes_to(queries, call, to_step, stepping, "step")), None)
        first = next((call.number for call in calls if _is_called(call, "scale")), -1)
        for call in calls if step is not None else ():
            if step is not None and first < call.number < step.number:
                if anywhere and _may_be_unscaled(queries, call, to_asking):
                    continue
                below = queries.reached(queries.targets(call))
                found = [clip for clip in clips if clip == call or clip.unit in below]
                trained = {unit, *below, *scaled, *stepping}
                if not _may_ask(queries, below, to_asking) and not _is_told_otherwise(queries, trained):
                    yield from found


def _may_ask(queries: Queries, units: Iterable[Unit], asking: frozenset[Unit]) -> bool:
    """Whether one of some units unscales or asks for the scale, or calls something by the name of what does."""
    named = _asking_names(asking)
    return any(unit in asking or any(c.method in named for c in queries.calls_in(unit)) for unit in units)


def _asking_names(asking: frozenset[Unit]) -> set[str]:
    return {unit.name for unit in asking} | {"unscale_", "get_scale"}


def _may_be_unscaled(queries: Queries, call: Place, asking: frozenset[Unit]) -> bool:
    """Whether some way leads to a call on which its function scales no loss, or may unscale since the last update."""
    named = _asking_names(asking)
    before = [each for each in ways_back(call, lambda each: _is_called(each, "update")) if each is not None]
    asks = (c.method in named or not asking.isdisjoint(queries.targets(c)) for c in before if c.value.op == "call")
    return None in ways_back(call, lambda each: _is_called(each, "scale")) or any(asks)


def _is_called(place: Place, name: str) -> bool:
    return place.value.op == "call" and place.method == name and _of_scaler(place)


def _comes_to(queries: Queries, call: Place, ways: frozenset[Unit], ends: set[Unit], name: str) -> bool:
    """Whether a call is a scaler's method, or runs what calls it."""
    own = call.method == name and call.unit in ends and _of_scaler(call)
    return own or not ways.isdisjoint(queries.targets(call))


def _is_told_otherwise(queries: Queries, units: set[Unit]) -> bool:
    """Whether a file says that the scale is asked for or off, or something else is trained beside, whose gradients are
    not scaled."""
    modules = {unit.module for unit in units}
    if any(word in module.source.text for module in modules for word in ("enabled=False", "get_scale")):
        return True
    calls = (call for call in queries.named_anywhere("backward") if call.unit.module in modules)
    backwards = (call for call in calls if not queries.targets(call))
    losses = [call.receiver for call in backwards if call.receiver is not None]
    return any(not (loss.root.value.op == "call" and loss.root.method == "scale") for loss in losses)


def _finding(call: Place, what: str, help: str = "") -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.operand(0).text}` in `{call.unit.qualname}` {what}",
        help=help or "call `scaler.unscale_(optimizer)` before clipping, `scaler.update()` after each step",
        context=f"{call.unit.qualname}:{call.operand(0).text}",
    )


_TRAINING = """
import torch
from torch.nn.utils import clip_grad_norm_

def main(batches):
    model = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for batch in batches:
        optimizer.zero_grad()
        scaler.scale(model(batch).mean()).backward()
        {clip}
        scaler.step(optimizer)
        {update}

main([torch.ones(4)])
"""

_CLIP = "clip_grad_norm_(model.parameters(), 1.0)"

_UNSCALE = "scaler.unscale_(optimizer)"

INCORRECT = [
    _TRAINING.replace("{clip}", f"{_CLIP}  # error: MP562").replace("{update}", "scaler.update()"),
    _TRAINING.replace("{clip}", f"{_CLIP}  # error: MP562\n        {_UNSCALE}").replace("{update}", "scaler.update()"),
    _TRAINING.replace("{clip}", "pass").replace("(optimizer)\n        {update}", "(optimizer)  # error: MP562"),
]

_ENGINE = """
import torch
from torch.nn.utils import clip_grad_norm_

class Precision:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cuda")

    def backward(self, loss):
        self.scaler.scale(loss).backward()

    def prepare(self, optimizer):
        self.scaler.unscale_(optimizer)

    def apply(self, optimizer):
        self.scaler.step(optimizer)
        self.scaler.update()

class Runner:
    def __init__(self, model, optimizer):
        self.model, self.optimizer, self.precision = model, optimizer, Precision()

    def clip(self):
        return clip_grad_norm_(self.model.parameters(), 1.0){mark}

    def step(self):
        {first}
        {second}
        self.precision.apply(self.optimizer)

    def run(self, batch):
        self.precision.backward(self.model(batch).mean())
        self.step()
"""
_ACCELERATED = """
import argparse

import torch
from accelerate import Accelerator

def main(model, optimizer, loader):
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixed_precision", default="no", choices=["no", "fp16", "bf16"])
    args = parser.parse_args()
    accelerator = Accelerator(mixed_precision={precision})
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch).loss)
        {clip}
        optimizer.step()
        optimizer.zero_grad()
"""
_BY_TORCH = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
_PREPARE = "self.precision.prepare(self.optimizer)"

INCORRECT += [
    _ENGINE.format(mark="  # error: MP562", first="self.clip()", second="self.optimizer.zero_grad()"),
    _ACCELERATED.format(precision="args.mixed_precision", clip=f"{_BY_TORCH}  # error: MP562"),
    """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Runner:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = FSDP(model), optimizer
        self.scaler = torch.amp.GradScaler("cuda")  # error: MP562

    def step(self, batch):
        self.scaler.scale(self.model(batch).mean()).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
""",
]

CORRECT = [
    _ENGINE.format(mark="", first=_PREPARE, second="self.clip()"),
    _ENGINE.format(mark="", first="for hook in self.hooks:", second="    hook.prepare(self.optimizer)").replace(
        "self.precision.apply", "self.clip()\n        self.precision.apply"
    ),
    _TRAINING.replace("{clip}", f"{_UNSCALE}\n        {_CLIP}").replace("{update}", "scaler.update()"),
    _TRAINING.replace("{clip}", "pass").replace("{update}", "scaler.update()"),
    # two networks: both unscaled ahead of one of them, and a round without an update
    """
import torch
from torch.nn.utils import clip_grad_norm_

def both(scaler: torch.amp.GradScaler, one, other, first, second):
    scaler.scale(one.mean()).backward()
    scaler.unscale_(first)
    scaler.scale(other.mean()).backward()
    clip_grad_norm_(first.param_groups[0]["params"], 1.0)
    scaler.unscale_(second)
    clip_grad_norm_(second.param_groups[0]["params"], 1.0)
    scaler.step(first)
    scaler.step(second)
    scaler.update()

def main(model, batches, optimizer, every):
    scaler = torch.amp.GradScaler("cuda")
    for number, batch in enumerate(batches):
        scaler.scale(model(batch).mean()).backward()
        if number % every == 0:
            scaler.unscale_(optimizer)
        if number % every == every - 1:
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return both(scaler, model(1), model(2), optimizer, optimizer)
""",
    _ACCELERATED.format(precision='"bf16"', clip=_BY_TORCH),
    _ACCELERATED.format(precision="args.mixed_precision", clip="accelerator.clip_grad_norm_(model.parameters(), 1.0)"),
    _ACCELERATED.format(precision='"fp16"', clip=f"accelerator.unscale_gradients()\n        {_BY_TORCH}"),
    """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.nn.parallel import DistributedDataParallel as DDP

class Runner:
    def __init__(self, model, sharded):
        self.model = FSDP(model) if sharded else DDP(model)
        self.scaler = ShardedGradScaler() if sharded else torch.amp.GradScaler("cuda")

    def step(self, batch, optimizer):
        self.scaler.scale(self.model(batch).mean()).backward()
        self.scaler.step(optimizer)
        self.scaler.update()
""",
]

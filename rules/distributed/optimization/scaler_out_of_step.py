"""Gradients that are clipped while they are scaled, or a scale that is never updated.

What it does
    Follows `GradScaler`: reports `clip_grad_norm_` and `clip_grad_value_` between `scaler.scale(loss).backward()` and
    `scaler.step(optimizer)` of one function, where nothing in its file asks for the scale or unscales and nothing else
    is trained beside, and `scaler.step(optimizer)` in a project that never calls `update()` of a scaler.

Why is this bad
    The gradients are as many times too large as the scale says (65,536 at first), so that clipping makes nearly every
    step one of the full length. Without `update()` the scale never adapts, and a step after an overflow is skipped for
    ever.

References
    https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping
    https://docs.pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.update
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.optimizers import is_scaler
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP562", "scaler-out-of-step", "warning", "1.0", tokens=("GradScaler",), solves=True)

_CLIPPING = frozenset({"clip_grad_norm_", "clip_grad_value_", "clip_grad_norm"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    steps = list(_steps(queries))
    updated = not steps or any(_of_scaler(call) for call in queries.named_anywhere("update"))
    for step in steps:
        if not updated:
            yield _finding(step, "is never followed by `update()`: the scale of the loss stays as it is")
        for clip in _clipped(queries, step.unit, step):
            yield _finding(clip, "clips gradients that are still multiplied by the scale of the loss")


def _steps(queries: Queries) -> Iterator[Place]:
    """The first step of a scaler in each function."""
    for unit in queries.mentioning("step"):
        calls = queries.calls_in(unit) if not is_aside(unit.path) else ()
        yield from [call for call in calls if call.method == "step" and _of_scaler(call)][:1]


def _of_scaler(call: Place) -> bool:
    return call.receiver is not None and is_scaler(call.receiver)


def _clipped(queries: Queries, unit: Unit, step: Place) -> Iterator[Place]:
    """What clips between the backward pass of a scaled loss and the step, where nothing unscales."""
    calls = list(queries.calls_in(unit))
    scaled = [call.number for call in calls if call.method == "scale" and _of_scaler(call)]
    if not scaled or any(word in unit.module.source.text for word in ("unscale_", "get_scale", "enabled=False")):
        return
    losses = [call.receiver for call in calls if call.method == "backward" and call.receiver is not None]
    if any(not (loss.root.value.op == "call" and loss.root.method == "scale") for loss in losses):
        return  # something else is trained beside, whose gradients are not scaled
    for call in calls:
        if call.method in _CLIPPING and scaled[0] < call.number < step.number:
            yield call


def _finding(call: Place, what: str) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.operand(0).text}` in `{call.unit.qualname}` {what}",
        help="call `scaler.unscale_(optimizer)` before clipping, `scaler.update()` after each step",
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

INCORRECT = [
    _TRAINING.replace("{clip}", f"{_CLIP}  # error: MP562").replace("{update}", "scaler.update()"),
    _TRAINING.replace("{clip}", "pass").replace("(optimizer)\n        {update}", "(optimizer)  # error: MP562"),
]

CORRECT = [
    _TRAINING.replace("{clip}", f"scaler.unscale_(optimizer)\n        {_CLIP}").replace("{update}", "scaler.update()"),
    _TRAINING.replace("{clip}", "pass").replace("{update}", "scaler.update()"),
]

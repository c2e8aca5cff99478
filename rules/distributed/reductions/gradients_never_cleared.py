"""A training loop that never clears the gradients.

What it does
    Reports `step()` of an optimizer of torch in a loop that also calls `backward()`, where neither the function nor
    anything that it runs clears a gradient: no `zero_grad`, no store to `grad`.

Why is this bad
    `backward` adds to the gradients that are there. Each step then goes along the sum of all gradients so far: the loss
    falls at first, and training looks as if its learning rate were too high.

References
    https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.program import Unit
from validator.flow.queries.base import Place, Queries, blocks_of
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP594", "gradients-never-cleared", "error", "0.5.0", tokens=("backward(",), solves=True)

_CLEARING = frozenset({"zero_grad", "grad", "set_to_none"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.flow.mentions.calling("backward"):
        if is_test(unit.path) or not _CLEARING.isdisjoint(unit.words):
            continue
        calls = list(queries.calls_in(unit))
        steps = [call for call in calls if call.method == "step" and call.receiver is not None]
        backward = {call.value.block for call in calls if call.method == "backward"}
        for step in steps:
            loop = unit.code.blocks[step.value.block].loop
            if loop >= 0 and not backward.isdisjoint(blocks_of(unit.code, loop)) and _optimizes(step):
                if not any(_clears(each) for each in queries.reached([unit])):
                    yield _finding(step)
                break


def _optimizes(step: Place) -> bool:
    """Whether it is surely an optimizer of torch that takes a step."""
    made = step.receiver.origin if step.receiver is not None else step
    called = made.operand(0).val.objs if made.value.op == "call" else frozenset()
    return bool(called) and all(o[0] == "ext" and str(o[1]).startswith("torch.optim.") for o in called)


def _clears(unit: Unit) -> bool:
    return not _CLEARING.isdisjoint(unit.words)


def _finding(step: Place) -> Finding:
    assert step.receiver is not None
    return RULE.finding(
        step.unit.path,
        step.at,
        f"`{step.unit.qualname}` lets `{step.receiver.text}` take a step in each round, and nothing clears the"
        " gradients: those of all rounds add up",
        help=f"call `{step.receiver.text}.zero_grad()` before `backward()`",
        context=f"{step.unit.qualname}:{step.receiver.text}",
    )


INCORRECT = [
    """
import torch

def train(model, loader, criterion):
    optimizer = torch.optim.AdamW(model.parameters())
    for data, label in loader:
        criterion(model(data), label).backward()
        optimizer.step()  # error: MP594
""",
]

CORRECT = [
    """
import torch

def train(model, loader, criterion):
    optimizer = torch.optim.AdamW(model.parameters())
    for step, (data, label) in enumerate(loader):
        criterion(model(data), label).backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
""",
    """
import torch

def clear(model):
    for param in model.parameters():
        param.grad = None

def train(model, loader, criterion, engine):
    optimizer = torch.optim.AdamW(model.parameters())
    for data, label in loader:
        clear(model)
        criterion(model(data), label).backward()
        optimizer.step()
    for data, label in loader:
        engine.backward(criterion(model(data), label))
        engine.step()
""",
]

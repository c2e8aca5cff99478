"""A strategy that works out gradient accumulation and steps its optimizer on every micro-batch all the same.

What it does
    Reports the `step()` of an optimizer in an operation that callers run for each micro-batch, where the class
    computes a number of accumulation steps, but nothing on the way (the operation, `backward`, and what they call)
    looks at it or at any other sign of accumulation, and no caller does before calling.

Why is this bad
    The effective batch is one micro-batch on each rank instead of the batch that was asked for, and the learning
    rate is too high for it. With the sibling whose engine accumulates by itself the same command is right.

References
    https://www.deepspeed.ai/docs/config-json/#batch-size-related-parameters
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.families import Family
from validator.analysis.interfaces.reach import Reach, self_name, words
from validator.analysis.interfaces.uses import Use, called_in, open_uses
from validator.facts.model import Assign, Call
from validator.finding import Finding, Related
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP111", "accumulation-ignored", "error", stable_since="0.1.0", solves=True)

_STEPPING = ("optimizer_step", "step", "train_step")
_SIGNS = ("accum", "sync_grad", "no_sync", "micro_step", "is_boundary")


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        for cls in family.members:
            count = _count(cls)
            for name in _STEPPING if count is not None else ():
                method = cls.methods.get(name)
                if method is not None and count is not None:
                    yield from _check(project, family, cls, method, count)


def _count(cls: ClassDef) -> Assign | None:
    """Where the class computes its number of accumulation steps."""
    for method in cls.every_method():
        for row in method.facts.assigns:
            attribute = row.target.removeprefix(f"{self_name(method)}.")
            ours = attribute != row.target and "accum" in attribute and "." not in attribute
            if ours and "batch" in row.value and "/" in row.value:
                return row
    return None


def _check(project: Project, family: Family, cls: ClassDef, method: Method, count: Assign) -> Iterator[Finding]:
    step = _bare_step(method)
    uses = [use for use in open_uses(project, family, method.name) if cls in use.classes]
    if step is None or not uses or any(_caller_counts(use) for use in uses):
        return
    reach = project.analysis(Reach)
    backward = cls.find("backward")
    way = [*reach.below(cls, method), *(reach.below(cls, backward) if backward is not None else ())]
    if any(_shows_accumulation(function) for function in way):
        return
    attribute = count.target.rpartition(".")[2]
    yield RULE.finding(
        method.path,
        step.at,
        f"`{cls.name}.{method.name}` steps the optimizer on every call, although the class computes "
        f"`{attribute}`; neither it nor `backward` looks at that",
        help=f"divide the loss by `{attribute}` and step only when that many micro-batches are done",
        related=[Related(cls.path, count.at[0], f"`{attribute}` is computed here"), *called_in(uses)],
        context=f"{cls.qualname}.{method.name}",
    )


def _bare_step(method: Method) -> Call | None:
    """The call that steps an optimizer handed in, if no condition can hold it back."""
    names = [p.name for p in method.facts.params if "optim" in p.name]
    for call in method.facts.calls:
        if call.method == "step" and call.receiver in names and not any(g.kind == "if" for g in call.guards):
            return call
    return None


def _caller_counts(use: Use) -> bool:
    return any(g.kind == "if" and ("%" in g.text or "accum" in g.text) for g in use.guards)


def _shows_accumulation(function: Method) -> bool:
    texts = [*words(function), *(g.text for row in function.facts.calls for g in row.guards)]
    return any(sign in text for text in texts for sign in _SIGNS)


_EXAMPLE = """
class FsdpStrategy:
    def __init__(self, batch_size, micro_batch_size, world_size):
        self.accumulated_gradient = batch_size // micro_batch_size // world_size

    def backward(self, loss, model):
        {loss}.backward()

    def optimizer_step(self, optimizer, model):
        self.steps = getattr(self, "steps", 0) + 1
        {step}

def get_strategy(args):
    return FsdpStrategy(args.batch_size, args.micro_batch_size, args.world_size)

def train(args, model, optimizer):
    strategy = get_strategy(args)
    for batch in model.batches:
        strategy.backward(model(batch), model)
        {call}
"""
_CALL = "strategy.optimizer_step(optimizer, model)"
_GUARDED = f"if batch.index % strategy.accumulated_gradient == 0:\n            {_CALL}"

INCORRECT = [_EXAMPLE.format(loss="loss", step="optimizer.step()  # error: MP111", call=_CALL)]
CORRECT = [
    _EXAMPLE.format(
        loss="(loss / self.accumulated_gradient)",
        step="if self.steps % self.accumulated_gradient == 0: optimizer.step()",
        call=_CALL,
    ),
    _EXAMPLE.format(loss="loss", step="optimizer.step()", call=_GUARDED),
]

"""A dummy forward, meant to keep ranks in step, that not all of them run in full.

What it does
    Finds a sub-module that is called where an optional input is there (`pixel_values is not None`) and called again,
    on made-up input, where it is not. Reported: the second call stands under a further condition (`model.training`),
    or it throws away a part of the result that the first call uses.

Why is this bad
    Under FSDP or ZeRO-3 a forward gathers parameters and a backward scatters gradients on all ranks. A rank without
    images must do both as often as a rank with images; a part of the output that does not reach the loss has no
    backward, and the others wait for it.

References
    https://pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.models import models
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP504", "dummy-forward-incomplete", "error", "0.1.0", tokens=("pixel_values", "images", "video", "audio"))

_NAMES = "|".join(sorted(models().likely["optional"], key=len, reverse=True))
_PRESENT = re.compile(rf"\b({_NAMES}) is not None")
_ABSENT = re.compile(rf"\b({_NAMES}) is None")

INCORRECT = [
    """
import torch
import torch.distributed

def embed(model, pixel_values, embeds):
    if pixel_values is not None:
        embeds = merge(embeds, model.visual(pixel_values))
    if model.training and pixel_values is None:
        dummy = torch.zeros(16, 1176)
        embeds += 0.0 * model.visual(dummy).mean()  # error: MP504
    return embeds
""",
    """
import torch
import torch.distributed

def embed(model, pixel_values, embeds):
    if pixel_values is not None:
        image, deep = model.visual(pixel_values)
        embeds = merge(embeds, image, deep)
    if pixel_values is None:
        image, _ = model.visual(torch.zeros(16, 1176))  # error: MP504
        embeds += 0.0 * image.mean()
    return embeds
""",
]

CORRECT = [
    """
import torch
import torch.distributed

def embed(model, pixel_values, embeds):
    if pixel_values is not None:
        embeds = merge(embeds, model.visual(pixel_values))
    else:
        embeds += 0.0 * model.visual(torch.zeros(16, 1176)).mean()
    return embeds
""",
    """
def embed(model, pixel_values, embeds):
    if pixel_values is not None:
        embeds = merge(embeds, model.visual(pixel_values))
    return embeds
""",
]


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        real = {c.target: c for c in function.facts.calls if "." in c.target and _holds(c, _PRESENT, False)}
        for call in function.facts.calls:
            if call.target in real and _holds(call, _ABSENT, True):
                yield from _judge(function, real[call.target], call)


def _holds(call: Call, pattern: re.Pattern[str], absent: bool) -> bool:
    """Whether a call stands where the optional input is there (or, with `absent`, is not)."""
    other = _ABSENT if pattern is _PRESENT else _PRESENT
    for guard in call.guards:
        if guard.kind == "if" and (pattern if not guard.negated else other).search(guard.text):
            return True
    return False


def _judge(function: Method, real: Call, dummy: Call) -> Iterator[Finding]:
    where = f"`{function.qualname}`"
    related = [Related(function.path, real.at[0], "the forward that this one stands in for")]
    tests = [g.text for g in dummy.guards if g.kind == "if" and not g.negated and _ABSENT.search(g.text)]
    parts = [part.strip() for text in tests for part in text.split(" and ")]
    further = [part for part in parts if not _ABSENT.search(part) and " or " not in part]
    if further:
        yield RULE.finding(
            function.path, dummy.at,
            f"in {where} ranks without the input call `{dummy.target}` only where `{further[0]}`, ranks with it always",
            help=f"drop `{further[0]}` from the condition, so that all ranks gather the parameters of the sub-module",
            related=related, context=f"{function.qualname}:{dummy.target}:condition",
        )  # fmt: skip
    discarded = _discarded(function, dummy) - _discarded(function, real)
    if discarded:
        yield RULE.finding(
            function.path, dummy.at,
            f"in {where} the dummy call of `{dummy.target}` throws away a part of the result that the real one uses",
            help="add every output, times zero, to what reaches the loss, so that its backward runs on all ranks",
            related=related, context=f"{function.qualname}:{dummy.target}:discarded",
        )  # fmt: skip


def _discarded(function: Method, call: Call) -> set[str]:
    """Which parts of an unpacked result go to `_`."""
    rows = (a for a in function.facts.assigns if a.value == call.target and a.at[0] <= call.at[0] <= a.at[2])
    return {a.kind for a in rows if a.target == "_" and a.kind.startswith("unpack")}

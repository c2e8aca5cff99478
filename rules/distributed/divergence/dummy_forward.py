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

from collections.abc import Iterator
from typing import NamedTuple

from validator.effects.condition_keys import Key
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP504", "dummy-forward-incomplete", "warning", "0.1.0", tokens=("pixel_values", "images", "video", "audio")
)


class Forward(NamedTuple):
    """A call of a sub-module where an optional input is known to be there, or not to be."""

    call: Place
    optional: Key
    there: bool
    tests: dict[Key, tuple[Place, bool]]  # what else holds where it runs


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.spelling(*sorted(queries.flow.models.likely["optional"])):
        forwards = list(_forwards(queries, unit))
        judged: set[int] = set()
        for dummy in forwards:
            if dummy.call.number in judged:
                continue
            real = next((each for each in forwards if _stands_in(dummy, each)), None)
            if real is not None:
                judged.add(dummy.call.number)
                called = dummy.call.operand(0).key
                served = {each.optional for each in forwards if each.there and each.call.operand(0).key == called}
                yield from _judge(real, dummy, served)


def _forwards(queries: Queries, unit: Unit) -> Iterator[Forward]:
    for call in queries.calls_in(unit):
        if call.receiver is None or call.operand(0).val.of("ext"):
            continue  # a function of a library is no part of the model
        known = list(_known(call))
        for key, test, holds in known:
            optional = _optional(test, key[2]) if key[:2] == ("compare", "Is") else None
            if optional is not None:
                rest = {k: (t, h) for k, t, h in known if k != key and not _leaves(t)}
                yield Forward(call, optional, not holds, rest)


def _known(call: Place) -> Iterator[tuple[Key, Place, bool]]:
    """The conditions that hold where a call runs, or do not: of `a and b` each part."""
    stack = list(call.settled_tests)[::-1]
    while stack:
        test, holds = stack.pop()
        test = test.origin
        kind = test.unit.connective(test.number)
        if test.value.op == "unary" and test.value.data == "Not":
            stack.append((test.operand(0), not holds))
        elif kind and holds is (kind == "and"):
            stack += [(test.operand(i), holds) for i in reversed(range(len(test.value.args)))]
        else:
            key, positive = test.condition
            yield key, test, holds is positive


def _optional(test: Place, asked: Key) -> Key | None:
    """What is compared with None, if it is named as an input that some batches lack."""
    name = _named(asked) or (test.operand(0).hint if test.value.op == "compare" else "")
    return asked if name in test.flow.models.likely["optional"] else None


def _named(key: Key) -> str:
    """The name under which a value is passed or kept: of a parameter, an attribute, a key."""
    if key[0] == "param":
        return str(key[1].code.params[key[2]][0])
    if key[0] in ("attr", "name"):
        return str(key[-1])
    by_key = key[0] == "item" or key[0] == "call" and key[2][0] == "attr" and key[2][2] == "get" and len(key) > 3
    return str(key[3][2]) if by_key and key[3][0] == "const" else ""


def _leaves(test: Place) -> bool:
    """Whether a test only decides that a function is left early."""
    code = test.unit.code
    return any(about.leaves for b, about in code.tests.items() if code.blocks[b].end[1:2] == (test.number,))


def _stands_in(dummy: Forward, real: Forward) -> bool:
    """Whether the second forward is the first one's, where the input is there."""
    called, optional = dummy.call.operand(0).key, dummy.optional
    return real.there and not dummy.there and real.optional == optional and real.call.operand(0).key == called


def _judge(real: Forward, dummy: Forward, served: set[Key]) -> Iterator[Finding]:
    """What a dummy lacks. `served`: the inputs with which the same sub-module is called, whichever of them is there."""
    unit, call = dummy.call.unit, dummy.call
    where, name = f"`{unit.qualname}`", call.operand(0).text
    related = [Related(unit.path, real.call.at[0], "the forward that this one stands in for")]
    others = {k: row for k, row in dummy.tests.items() if k not in real.tests and k[2:3] not in {(o,) for o in served}}
    further = [f"{'' if holds else 'not '}{t.text}" for t, holds in others.values()]
    if further:
        yield RULE.finding(
            unit.path, call.at,
            f"in {where} ranks without the input call `{name}` only where `{further[0]}`, ranks with it always",
            help=f"drop `{further[0]}` from the condition, so that all ranks gather the parameters of the sub-module",
            related=related, context=f"{unit.qualname}:{name}:condition",
        )  # fmt: skip
    taken_apart = any(user.value.op == "unpack" for user in call.users)
    if taken_apart and _used(real.call) - _used(call):
        yield RULE.finding(
            unit.path, call.at,
            f"in {where} the dummy call of `{name}` throws away a part of the result that the real one uses",
            help="add every output, times zero, to what reaches the loss, so that its backward runs on all ranks",
            related=related, context=f"{unit.qualname}:{name}:discarded",
        )  # fmt: skip


def _used(call: Place) -> set[int]:
    """Which parts of a result that is taken apart are used; none where it is used as a whole."""
    parts = [user for user in call.users if user.value.op == "unpack"]
    return {part.value.data[0] for part in parts if part.users}


INCORRECT = [
    # the input gets another type where it is there
    """
import torch
import torch.distributed

def embed(model, pixel_values, embeds):
    if pixel_values is not None:
        pixel_values = pixel_values.type(model.visual.dtype)
        embeds = merge(embeds, model.visual(pixel_values))
    if model.training and pixel_values is None:
        embeds += 0.0 * model.visual(torch.zeros(16, 1176)).mean()  # error: MP504
    return embeds
""",
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
    """
import torch
import torch.distributed

class Embedding:
    def lacks_images(self, batch):
        return batch["pixel_values"] is None

    def embed(self, batch, embeds):
        if not self.lacks_images(batch):
            embeds = merge(embeds, self.visual(batch["pixel_values"]))
        elif self.training:
            embeds += 0.0 * self.visual(torch.zeros(16, 1176)).mean()  # error: MP504
        return embeds
""",
]

CORRECT = [
    # two inputs of one sub-module; a tensor that stands in for an image is made by a library
    """
import torch
import torch.distributed

def embed(model, pixel_values, pixel_values_videos, embeds):
    if pixel_values is not None:
        pixel_values = pixel_values.type(model.visual.dtype)
        embeds = merge(embeds, model.visual(pixel_values))
    if pixel_values_videos is not None:
        pixel_values_videos = pixel_values_videos.type(model.visual.dtype)
        embeds = merge(embeds, model.visual(pixel_values_videos))
    if pixel_values is None and pixel_values_videos is None:
        embeds += 0.0 * model.visual(torch.zeros(16, 1176)).mean()
    return embeds

def inputs(kind, image, size, ids):
    if image is not None:
        ids = torch.zeros(size)
    if image is None and kind == "image":
        ids = torch.zeros(size)
    return ids
""",
    """
import torch
import torch.distributed

def embed(model, batch, embeds):
    here = batch["pixel_values"] is not None
    if here:
        image, deep = model.visual(batch["pixel_values"])
        embeds = merge(embeds, image, deep)
    else:
        outputs = model.visual(torch.zeros(16, 1176))
        embeds += sum(0.0 * each.mean() for each in outputs)
    return embeds
""",
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

"""Gradients that are cleared before they are used, or bounded after, or before all of them are there.

What it does
    Goes back, on every way through a function, from a step of an optimizer and from a call that clips gradients.
    Reports a step before which gradients were cleared and none computed; a clip whose gradients have been used by a
    step before; and gradients that are cleared, or clipped, in each round of a loop whose number tells in which
    rounds the optimizer steps. So does Accelerate: reported is what clips inside `accelerator.accumulate(…)` without
    a test of `accelerator.sync_gradients`, where the `Accelerator` adds up gradients of several rounds. Silent where
    something that is not known runs in between and the function computes no gradients itself.

Why is this bad
    The step finds no gradients and changes nothing; what is clipped late has changed the weights already; and of
    several rounds whose gradients are to add up only the last one counts. Nothing fails: the model learns little or
    nothing. What clips in each round bounds sums that are not complete, and fails with float16: the scale may be taken
    out once before each step (`unscale_() has already been called`).

References
    https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
    https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html
    https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from validator.finding import Finding, Related, Severity
from validator.flow.queries.base import Place, Queries, ways_back
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.cleared_gradients import Gradients, computes, holds_gradient, is_open
from validator.flow.queries.training.loop_ways import Way, coincide, deciding
from validator.flow.queries.training.optimizers import ACCELERATOR, is_accelerator, name_of, optimizer_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP566", "gradients-out-of-order", "error", "1.0", tokens=("step",), solves=True)

_CLEARING = "zero_grad"
_CLIPPING = ("clip_grad_norm_", "clip_grad_value_")


def check_project(project: Project) -> Iterator[Finding]:
    queries, gradients = project.analysis(Queries), project.analysis(Gradients)
    for unit in queries.flow.mentions.calling("step"):
        if is_aside(unit.path):
            continue
        calls = list(queries.calls_in(unit))
        steps = [(call, made) for call in calls if call.method == "step" and (made := optimizer_of(call)) is not None]
        order = _Order(gradients, calls)
        alone = len({name_of(optimizer) for _, optimizer in steps}) == 1
        for step, optimizer in steps:
            yield from order.of_step(step, name_of(optimizer), alone)
        for clip in calls if len(steps) == 1 else ():
            if clip.method.startswith("clip_grad") and not clip.users:
                yield from order.of_clip(clip, *steps[0])
    yield from _clipped_in_part(queries)


def _clipped_in_part(queries: Queries) -> Iterator[Finding]:
    """What Accelerate clips in each of several rounds whose gradients it adds up."""
    makers = list(queries.calls_anywhere(ACCELERATOR))
    for clip in queries.named_anywhere(*_CLIPPING) if any(map(_adds_up, makers)) else ():
        managers = [clip.value_at(number) for number in clip.unit.managers(clip.number)]
        beside = [maker for maker in makers if maker.unit.module is clip.unit.module] or makers
        if (
            _is_accelerators(clip, *_CLIPPING)
            and any(_is_accelerators(manager, "accumulate") for manager in managers)
            and all(map(_adds_up, beside))
            and not any("sync_gradients" in test.words for test in clip.tests_inside)
            and not is_aside(clip.unit.path)
        ):
            yield _finding(
                clip,
                f"`{clip.method}`{clip.where} runs in each round of those whose gradients `Accelerator` adds up, and"
                " bounds sums that are not complete; with float16 it fails",
                "clip where `accelerator.sync_gradients` is true",
                Related(beside[0].unit.path, beside[0].at[0], "`gradient_accumulation_steps` is passed here"),
                "warning",
            )


def _is_accelerators(call: Place, *methods: str) -> bool:
    """Whether a value is a call of a method of an `Accelerator`."""
    return call.value.op == "call" and call.method in methods and is_accelerator(call.receiver)


def _adds_up(maker: Place) -> bool:
    """Whether an `Accelerator` is told that gradients add up over several rounds."""
    steps = maker.argument("gradient_accumulation_steps")
    plugin = maker.argument("gradient_accumulation_plugin")
    return steps is not None and steps.closed.constant() != 1 or plugin is not None


class _Order:
    """The order in which a function clears, computes, clips and uses gradients."""

    def __init__(self, gradients: Gradients, calls: list[Place]) -> None:
        self.gradients = gradients
        self.calls = calls
        self.own = [call for call in calls if self._computes(call)]

    def of_step(self, step: Place, name: str, alone: bool) -> Iterator[Finding]:
        """What is wrong with a step: nothing was computed behind the last clearing, or rounds are lost. `alone`: no
        other optimizer steps in the function, in rounds of its own."""
        cleared = [call for call in self.calls if call.method == _CLEARING and _is_of(call, name)]
        if not cleared:
            return
        last, crossed = self._last(step, lambda place: place in cleared)
        if last is not None and self._is_in_training(step):
            yield _finding(
                step,
                f"`{name}` takes a step in `{step.unit.qualname}` right after its gradients were cleared:"
                " it changes nothing",
                f"call `{name}.zero_grad()` before `backward()`, or after the step",
                Related(step.unit.path, last.at[0], "they are cleared here"),
                "warning" if crossed else None,
            )
            return
        lost = next((call for call in cleared if alone and self._loses_rounds(call, step)), None)
        if lost is not None:
            yield _finding(
                lost,
                f"`{name}` steps in some rounds only, and its gradients are cleared in each:"
                " those of the others are lost",
                "clear them in the rounds in which the optimizer steps",
                Related(step.unit.path, step.at[0], "the step"),
                "warning",
            )

    def of_clip(self, clip: Place, step: Place, optimizer: Place) -> Iterator[Finding]:
        last, crossed = self._last(clip, lambda place: place == step)
        if last is not None and (not crossed or self.own):
            yield _finding(
                clip,
                f"`{clip.method}` in `{clip.unit.qualname}` comes after the step of `{name_of(optimizer)}` that has"
                " used these gradients",
                "clip between `backward()` and the step",
                Related(step.unit.path, step.at[0], "the step"),
                "warning" if crossed else None,
            )
        elif last is None and self._loses_rounds(clip, step):
            yield _finding(
                clip,
                f"`{name_of(optimizer)}` steps in some rounds only, and `{clip.method}` bounds their gradients in each,"
                " while they still add up",
                "clip in the rounds in which the optimizer steps",
                Related(step.unit.path, step.at[0], "the step"),
                "warning",
            )

    def _last(self, place: Place, is_asked: Callable[[Place], bool]) -> tuple[Place | None, bool]:
        """What all ways back to the last gradients come by, if anything is, and whether something unknown runs behind
        it."""
        found: list[Place] = []
        crossed = False
        for each in ways_back(place, lambda p: is_asked(p) or self._fills(p)):
            if each is None or not is_asked(each) and self._fills(each):
                return None, False
            if is_asked(each):
                found.append(each)
            elif each.value.op == "call" and is_open(each):
                crossed = True
        return (found[0] if found else None), crossed

    def _fills(self, place: Place) -> bool:
        """Whether a value computes gradients, runs what may, or puts something into them."""
        return place.value.op == "call" and self._computes(place) or holds_gradient(place)

    def _computes(self, call: Place) -> bool:
        if call.method.startswith("clip_grad") or call.method == "unscale_":
            return False
        known = self.gradients.queries.targets(call)
        return computes(call) or any(each in self.gradients.touching for each in known)

    def _is_in_training(self, step: Place) -> bool:
        """Whether the function computes gradients in the rounds of a step: else the step may be there to do nothing,
        before a schedule goes on to where it was."""
        own = [call.unit.control.loops_around(call.value.block) for call in self.own]
        around = step.unit.control.loops_around(step.value.block)
        return any(not each and not around or around and around[0] in each for each in own)

    def _loses_rounds(self, clear: Place, step: Place) -> bool:
        """Whether gradients are cleared, or clipped, in rounds of a loop that the optimizer leaves out, by the loop's
        number."""
        loop = clear.unit.code.blocks[step.value.block].loop
        if loop < 0 or any(_decided(call, loop) for call in (clear, *self.own)):
            return False
        inside = [call for call in self.own if call.unit.code.blocks[call.value.block].loop == loop]
        if any(map(holds_gradient, self.gradients.queries.values(step.unit, "attr", "store_attr"))):
            return False  # they may be added up elsewhere
        leaving = (Way((switch._replace(holds=not switch.holds),)) for switch in deciding(step))
        return bool(inside) and any(coincide(way, way) for way in leaving)


def _decided(call: Place, loop: int) -> bool:
    """Whether a call is not made in each round of a loop, or in one around or inside of it."""
    code = call.unit.code
    own = code.blocks[call.value.block].loop
    tests = call.unit.control.around(call.value.block)
    return own != loop or any(code.blocks[branch].loop == loop and branch != loop for branch in tests)


def _is_of(clear: Place, name: str) -> bool:
    return clear.receiver is not None and name_of(clear.receiver) == name


def _finding(place: Place, message: str, help: str, related: Related, severity: Severity | None) -> Finding:
    unit = place.unit
    return RULE.finding(
        unit.path,
        place.at,
        message,
        help=help,
        related=[related],
        context=f"{unit.qualname}:{place.method}",
        severity=severity,
    )


_LOOP = """
import torch

def train(model, loader, criterion, every):
    optimizer = torch.optim.AdamW(model.parameters())
    for number, (data, label) in enumerate(loader):
"""

_ACCELERATED = """
import argparse
from accelerate import Accelerator

def train(model, optimizer, loader, args):
    accelerator = Accelerator(gradient_accumulation_steps={steps})
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).loss)
            {clip}
            optimizer.step()
            optimizer.zero_grad()
"""

INCORRECT = [
    _LOOP
    + """
        criterion(model(data), label).backward()
        optimizer.zero_grad()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # error: MP566
""",
    _LOOP
    + """
        optimizer.zero_grad()
        loss = criterion(model(data), label)
        optimizer.step()  # error: MP566
        loss.backward()
""",
    _LOOP
    + """
        optimizer.zero_grad()
        criterion(model(data), label).backward()
        optimizer.step()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # error: MP566
""",
    _LOOP
    + """
        optimizer.zero_grad()  # error: MP566
        (criterion(model(data), label) / every).backward()
        if (number + 1) % every == 0:
            optimizer.step()
""",
    """
class Trainer:
    def round(self, batch, number):
        self.optimizer.zero_grad()
        if self.scaler is not None:
            self.scaler.step(self.optimizer)  # error: MP566
            self.scaler.update()
        else:
            self.optimizer.step()  # error: MP566
        self.model(batch).loss.backward()
""",
    _LOOP
    + """
        (criterion(model(data), label) / every).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # error: MP566
        if (number + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()
""",
    _ACCELERATED.format(steps=4, clip="accelerator.clip_grad_norm_(model.parameters(), 1.0)  # error: MP566"),
    _ACCELERATED.format(steps="args.every", clip="accelerator.clip_grad_value_([], 1.0)  # error: MP566"),
]

CORRECT = [
    _LOOP
    + """
        (criterion(model(data), label) / every).backward()
        if (number + 1) % every == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
""",
    # for each group of rounds; where a test clears them that says so; the norm is asked for; what is not known computes
    _LOOP
    + """
        if number % every == 0:
            optimizer.zero_grad()
        loss = criterion(model(data), label)
        if not torch.isfinite(loss):
            optimizer.zero_grad()
            continue
        loss.backward()
        if number % every == every - 1:
            optimizer.step()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
            print(norm)

def resumed(model, schedule, optimizer, loader, first):
    optimizer.zero_grad()
    optimizer.step()
    for _ in range(first):
        schedule.step()
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()

def in_turns(model, first, second, loader):
    for number, batch in enumerate(loader):
        first.zero_grad()
        second.zero_grad()
        model(batch).mean().backward()
        if number % 2 == 0:
            first.step()
        else:
            second.step()

def added_elsewhere(model, optimizer, loader, sums, every):
    for number, batch in enumerate(loader):
        optimizer.zero_grad()
        model(batch).mean().backward()
        for total, parameter in zip(sums, model.parameters()):
            total.add_(parameter.grad)
        if (number + 1) % every == 0:
            optimizer.step()

def given(optimizer, compute, batches, gradients, params):
    for batch in batches:
        optimizer.zero_grad()
        compute(batch)
        optimizer.step()
        optimizer.zero_grad()
        for param, gradient in zip(params, gradients):
            param.grad = gradient
        optimizer.step()
""",
    """
def accumulate(model, batch):
    model(batch).loss.backward()

def train(model, first, second, loader):
    for batch in loader:
        first.zero_grad()
        second.zero_grad()
        accumulate(model, batch)
        first.step()
        second.step()

def alternate(model, judge, first, second, loader):
    for batch in loader:
        first.zero_grad()
        model(batch).loss.backward()
        first.step()
        second.zero_grad()
        judge(batch).loss.backward()
        second.step()
""",
    _ACCELERATED.format(steps=1, clip="accelerator.clip_grad_norm_(model.parameters(), 1.0)"),
    _ACCELERATED.format(
        steps=4,
        clip="""if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)""",
    ),
    _ACCELERATED.format(
        steps=4,
        clip="""complete = accelerator.sync_gradients
            if complete and args.bound is not None:
                accelerator.clip_grad_norm_(model.parameters(), args.bound)""",
    ),
]

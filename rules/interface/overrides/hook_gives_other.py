"""An override that gives back what the library cannot use.

What it does
    Holds what the methods of classes give back that inherit from callbacks, trainers, stopping criteria, processors of
    logits (transformers), samplers and schedulers of the learning rate (PyTorch) against what the library makes of
    it, by the table `hook_results.toml` beside this rule (silent where the class, or one of its family, has its own of
    the methods that call it, and where classes below override it too): a callback gives back nothing, or the control; a
    criterion, a processor, `compute_loss`, a sampler's `__iter__` and `get_lr` give back something; `prediction_step`
    gives three. An error where no way through the method fits, a warning where one does not. Silent about what is not
    known, about methods that only raise, and in tests.

Why is this bad
    Mostly nothing fails in the method itself: the library goes on with what it got, and raises one call later, or in
    the first evaluation, far from the method that is wrong.

References
    https://huggingface.co/docs/transformers/main_classes/callback
    https://huggingface.co/docs/transformers/internal/generation_utils
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.Sampler
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

from validator.facts.model import At
from validator.files.tables import load_toml
from validator.finding import Finding
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.flow.values import NONE_OBJ, Obj
from validator.project import ClassDef, Project
from validator.rule import Rule

RULE = Rule("MP164", "hook-gives-other", "error", "1.0", tokens=("transformers", "torch"), solves=True)

_PLAIN = frozenset({"const", "tuple", "seq", "dict", "unordered", "tensor"})


class _Row(NamedTuple):
    """A row of the table: see there."""

    bases: tuple[str, ...]
    methods: frozenset[str]
    gives: str | int
    then: str
    other: str
    by: frozenset[str]


@cache
def _rows() -> tuple[_Row, ...]:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook_results.toml")
    return tuple(
        _Row(
            tuple(row["bases"]),
            frozenset(row["methods"]),
            row["gives"],
            row["then"],
            row.get("or", ""),
            frozenset(row.get("by", ())),
        )
        for row in load_toml(path)["row"]
    )


def check_project(project: Project) -> Iterator[Finding]:
    flow = project.analysis(Flow)
    for cls in project.classes():
        bases = {f"{base.partition('.')[0]}.{base.rpartition('.')[2]}" for base in cls.external_bases}
        for row in _rows() if bases and not is_test(cls.path) else ():
            if any(fnmatchcase(base, each) for base in bases for each in row.bases):
                yield from _check(flow, cls, row)


def _check(flow: Flow, cls: ClassDef, row: _Row) -> Iterator[Finding]:
    for name in sorted(row.methods & cls.methods.keys()):
        method = cls.methods[name]
        facts, unit = method.facts, flow.unit_of(method)
        if unit is None or unit.code.is_generator or facts.stub or facts.is_abstract or facts.decorators:
            continue
        if any(not row.by.isdisjoint(each.methods) for each in cls.relatives) or _is_for_others(cls, name):
            continue
        wrong = [place for place in _given_back(flow, unit) if _refused(place, row)]
        if wrong and (row.gives != "something" or len(wrong) == len(unit.code.returned)):
            yield _report(cls, unit, row, wrong)


def _is_for_others(cls: ClassDef, name: str) -> bool:
    """Whether classes below override a method too: what this one gives may be for them alone."""
    return any(each is not cls and name in each.methods for each in cls.descendants())


def _given_back(flow: Flow, unit: Unit) -> Iterator[Place]:
    return (Place(flow, unit, number) for number in unit.code.returned)


def _refused(place: Place, row: _Row) -> bool:
    """Whether a value may be something that the library does not take."""
    known = place.closed.each
    if row.gives == "something":
        return bool(known) and all(o == NONE_OBJ for o in known)
    if row.gives == "nothing":
        return any(o[0] in _PLAIN and o != NONE_OBJ for o in known) or _may_be_truth(place)
    lengths = {_length(o) for o in known}
    return None not in lengths and bool(lengths) and row.gives not in lengths


def _may_be_truth(place: Place) -> bool:
    """Whether a value may be the outcome of a comparison."""
    place = place.root
    value = place.value
    if place.unit.connective(place.number):
        return any(_may_be_truth(place.operand(i)) for i in range(len(value.args)))
    return value.op == "compare" or value.op == "unary" and value.data == "Not"


def _length(o: Obj) -> int | None:
    return len(o[1]) if o[0] == "tuple" else None


def _report(cls: ClassDef, unit: Unit, row: _Row, wrong: list[Place]) -> Finding:
    place = wrong[0]
    given = place.text if place.value.op != "const" or place.value.data is not None else "nothing"
    takes = {"something": "something", "nothing": f"nothing, or a `{row.other}`"}.get(
        str(row.gives), f"{row.gives} parts"
    )
    sure = len(wrong) == len(unit.code.returned) and all(_is_surely(each, row) for each in wrong)
    return RULE.finding(
        unit.path,
        _where(place) if given != "nothing" else unit.scope.facts.name_at,
        f"`{cls.name}.{unit.name}` gives back {given if given == 'nothing' else f'`{given}`'}, where the library takes"
        f" {takes}: {row.then}",
        help="return what the base's method returns" if row.gives != "nothing" else "return nothing, or the control",
        context=f"{unit.qualname}:{given}",
        severity="error" if sure else "warning",
    )


def _where(place: Place) -> At:
    """Where a value is given back: in the `return` in which it is computed, or that names its variable."""
    rows = place.unit.scope.facts.returns
    inside = [row.at for row in rows if row.at[:2] <= place.at[:2] and place.at[2:] <= row.at[2:]]
    named = [row.at for row in rows if row.value == place.unit.variables.get(place.root.number)]
    return next(iter(inside + named), place.at)


def _is_surely(place: Place, row: _Row) -> bool:
    known = place.closed.each
    return row.gives != "nothing" or bool(known) and all(o[0] in _PLAIN and o != NONE_OBJ for o in known)


INCORRECT = [
    """\
from transformers import LogitsProcessor, StoppingCriteria, Trainer, TrainerCallback


class Preempt(TrainerCallback):
    def __init__(self, sdk, interval):
        self.sdk = sdk
        self.interval = interval

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.interval == 0:
            wanted = self.sdk is not None and self.sdk.termination_requested()
            if wanted:
                control.should_training_stop = True
            return wanted  # error: MP164

    def on_save(self, args, state, control, **kwargs):
        control.should_log = True
        return True  # error: MP164


class Stop(StoppingCriteria):
    def __call__(self, input_ids, scores, **kwargs):  # error: MP164
        self.done = (input_ids[:, -1] == 2).all()


class Ban(LogitsProcessor):
    def __call__(self, input_ids, scores):  # error: MP164
        scores[:, 0] = -float("inf")


class Pairs(Trainer):
    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        loss = self.compute_loss(model, inputs)
        return loss, inputs["labels"]  # error: MP164

    def get_eval_dataloader(self, eval_dataset=None):  # error: MP164
        self.loader = super().get_eval_dataloader(eval_dataset)
""",
]

CORRECT = [
    """\
import torch
from transformers import LogitsProcessor, StoppingCriteria, Trainer, TrainerCallback


class Preempt(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 8 == 0:
            control.should_save = True
            return control
        return None

    def on_save(self, args, state, control, **kwargs):
        control.should_log = True


class Stop(StoppingCriteria):
    def __call__(self, input_ids, scores, **kwargs):
        return torch.zeros(len(input_ids), dtype=torch.bool)


class Ban(LogitsProcessor):
    def __call__(self, input_ids, scores):
        scores[:, 0] = -float("inf")
        return scores


class Pairs(Trainer):
    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        loss = self.compute_loss(model, inputs)
        if prediction_loss_only:
            return loss, None, None
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    def get_eval_dataloader(self, eval_dataset=None):
        return super().get_eval_dataloader(eval_dataset)

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        raise NotImplementedError

""",
    """\
import torch


class Sampled(torch.utils.data.Sampler):
    def __iter__(self):
        yield from range(8)
""",
]

"""An iterator that is used up by the first of two loops.

What it does
    Reports a variable that holds a generator (`model.parameters()`, `filter(…)`, `map(…)`, `zip(…)`, a generator
    expression), or a parameter that some call passes one to, that a function goes through twice on one path without
    making a list of it. A single read that hands it on to a call counts as going through it. A parameter that is
    annotated `Iterator`, `Generator` or as an `Iterable` of tensors, which `model.parameters()` is, is a warning.

Why is this bad
    `model.parameters()` is a generator. The second pass sees nothing and says nothing: gradients are measured and
    then not clipped, weights are counted and then not sent.

References
    https://docs.python.org/3/glossary.html#term-generator-iterator
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.finding import Finding, Related, Severity
from validator.flow.annotations import spelled
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP534", "exhausted-iterator", "error", "0.1.0", tokens=("torch", "Itera"))

_ANNOTATED = re.compile(r"\b(Iterator|Generator|Iterable\[[^\]]*(Tensor|Parameter))\b")
_LISTS = re.compile(r"\b(Sequence|list|List|tuple|Tuple|Collection|Dataset|DataLoader|str)\b")
_GENERATORS = frozenset({"filter", "map", "zip", "iter", "enumerate"})
_MAKERS = frozenset({"parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules"})
_CONSUMING = frozenset({"list", "tuple", "sum", "max", "min", "any", "all", "set", "sorted", "dict"})
_HANDED = frozenset({"clip_grad_norm_", "clip_grads_with_norm_", "get_total_norm"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    annotated = (
        m for m in project.functions() if any(_says_iterator(project, m, p.annotation) for p in m.facts.params)
    )
    making = queries.mentioning(*_MAKERS, *_HANDED)
    units = {*making, *queries.flow.units(annotated), *(u for unit in making for u in _given(queries, unit))}
    for unit in sorted(units, key=lambda unit: unit.place):
        if is_aside(unit.path):
            continue
        passes: dict[int, list[Place]] = {}
        for number in range(len(unit.code.values)):
            place = Place(queries.flow, unit, number)
            for each in _gone_through(place):
                passes.setdefault(each.root.number, []).append(place)
        for source, places in passes.items():
            origin = places[0].value_at(source)
            pair = _one_after_the_other(places) if len(places) > 1 else None
            if pair is not None and (_is_iterator(origin) or _is_passed_one(queries, origin)):
                yield _report(origin, *pair, "error")
            elif pair is not None and _is_annotated(origin):
                yield _report(origin, *pair, "warning")


def _given(queries: Queries, unit: Unit) -> Iterator[Unit]:
    """The units to which a unit passes generators."""
    for number, value in enumerate(unit.code.values):
        place = Place(queries.flow, unit, number)
        if value.op == "call" and any(_is_iterator(place.value_at(n).root) for n in value.args[1:] if n >= 0):
            yield from queries.targets(place)


def _says_iterator(project: Project, method: Method, annotation: str) -> bool:
    """Whether an annotation, whatever names the file gives to what it imports, is that of an iterator."""
    return bool(annotation) and _ANNOTATED.search(spelled(project, method, annotation)) is not None


def _gone_through(place: Place) -> Iterator[Place]:
    """The values that an instruction goes through to the end."""
    value = place.value
    if value.op in ("iter", "yield from"):
        yield place.operand(0)
    elif value.op == "call":
        name = place.method
        if name in _CONSUMING | (_GENERATORS - {"iter"}) and place.receiver is None or name in _HANDED:
            yield from (place.value_at(n) for n in value.args[1:])


def _is_annotated(place: Place) -> bool:
    """Whether a value is a parameter that may be gone through only once, as its annotation has it."""
    value, method, project = place.value, place.unit.method, place.flow.project
    return method is not None and value.op == "param" and any(
        p.name == value.data[1]
        and p.kind in ("any", "kw", "pos")
        and _says_iterator(project, method, p.annotation)
        and not _LISTS.search(spelled(project, method, p.annotation))
        for p in method.facts.params
    )  # fmt: skip


def _is_passed_one(queries: Queries, place: Place) -> bool:
    """Whether a value is a parameter to which some call passes what can be gone through only once."""
    if place.value.op != "param":
        return False
    position, name = place.value.data
    calls = queries.calls_of(place.unit)
    passed = (call.argument(name, position - place.unit.has_receiver) for call in calls if call.value.op == "call")
    return any(each is not None and _is_iterator(each.root) for each in passed)


def _is_iterator(place: Place) -> bool:
    """Whether a value can be gone through only once."""
    value = place.value
    if value.op == "collect":
        return bool(value.data[0] == "generator")
    if value.op != "call":
        return False
    if place.val.objs and all(o[0] == "generator" for o in place.val.each):
        return True
    if any(o[0] == "bound" and not o[1].code.is_generator for o in place.operand(0).val.each):
        return False  # a method of the project that is called so
    return place.method in (_GENERATORS if place.receiver is None else _MAKERS)


def _one_after_the_other(places: list[Place]) -> tuple[Place, Place] | None:
    """Two of the places of which one leads to the other."""
    for first in places:
        for second in places:
            if first.number != second.number and _leads(first.unit, first.number, second.number):
                return first, second
    return None


def _leads(unit: Unit, first: int, second: int) -> bool:
    blocks, values = unit.code.blocks, unit.code.values
    start, end = values[first].block, values[second].block
    if start == end and blocks[start].values.index(first) < blocks[end].values.index(second):
        return True
    stack, seen = [start], set()
    while stack:
        for following in blocks[stack.pop()].successors():
            if following == end:
                return values[first].at < values[second].at
            if following not in seen:
                seen.add(following)
                stack.append(following)
    return False


def _report(origin: Place, first: Place, second: Place, severity: Severity) -> Finding:
    unit, value = origin.unit, origin.value
    name = str(value.data[1]) if value.op == "param" else _name(first) or origin.text
    what = "is a generator" if severity == "error" else "may be a generator (`model.parameters()`) by its annotation"
    return RULE.finding(
        unit.path,
        first.at,
        f"`{unit.qualname}` goes through `{name}` twice, which {what}: the second pass sees nothing",
        severity=severity,
        help=f"begin with `{name} = list({name})`",
        related=[Related(unit.path, second.at[0], f"`{name}` is gone through again here")],
        context=f"{unit.qualname}:{name}",
    )


def _name(place: Place) -> str:
    """The variable that an instruction goes through, as the source has it."""
    return place.text if place.value.op == "iter" and place.text.isidentifier() else ""


INCORRECT = [
    """
import torch
from collections.abc import Iterable

def clip(parameters: Iterable[torch.Tensor], max_norm: float):
    grads = [p.grad for p in parameters if p.grad is not None]  # error: MP534
    norm = torch.nn.utils.get_total_norm(grads)
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm
""",
    """
import torch.distributed as dist

def sync(model):
    params = model.parameters()
    total = sum(p.numel() for p in params)  # error: MP534
    for p in params:
        dist.broadcast(p, 0)
    return total

def count(parameters):
    total = sum(p.numel() for p in parameters)  # error: MP534
    return total, sum(p.numel() for p in parameters if p.requires_grad)

def show(model):
    print(count(model.parameters()))
""",
]

CORRECT = [
    # a loader passes lists, whatever the annotation admits
    # a method of the project of the name of one that makes an iterator
    """
import torch


class Signature:
    def parameters(self):
        return (1, 2)


def count(params):
    return len([p for p in params]) + len([p for p in params if p > 1])


def main():
    signature = Signature()
    return count(signature.parameters()), torch.zeros(1)
""",
    """
import torch
from collections.abc import Iterable
from torch.utils.data import DataLoader

def collate(rows: Iterable[dict]):
    return torch.stack([row["x"] for row in rows]), torch.stack([row["y"] for row in rows])

def loader(data):
    return DataLoader(data, collate_fn=collate)
""",
    """
import torch
from collections.abc import Iterable

def clip(parameters: Iterable[torch.Tensor], max_norm: float):
    parameters = list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, torch.nn.utils.get_total_norm(grads))
""",
    """
import torch.distributed as dist

def sync(model, reverse):
    params = model.parameters()
    if reverse:
        return [p for p in params]
    for p in params:
        dist.broadcast(p, 0)
""",
    """
import torch.distributed as dist
from collections.abc import Sequence

def sync(params: Sequence):
    total = sum(p.numel() for p in params)
    for p in params:
        dist.broadcast(p, 0)
    return total
""",
]

"""An error that is kept until all ranks have met, by a handler that does not take all errors of its block.

What it does
    Looks at `except` clauses that keep the exception while ranks meet in a collective, and raise or send it then: an
    error of one rank must not leave the others waiting. Reports those that do not take what the `try` block itself
    raises, or functions of the project that it calls.

Why is this bad
    Such an exception leaves the function before the collective. The other ranks wait for this one until the time-out
    of the process group; the error for which the handler was written is the only one that is told.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.monitored_barrier
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.effects.divergence import Divergences
from validator.effects.exceptions import Classes, Failures, Handler, raised, takes
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import follows
from validator.ir.model import RawAt
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP583", "error-not-deferred", "warning", "0.4.0", tokens=("except",))


class _Escape(NamedTuple):
    """An exception that a `try` block may raise, and where."""

    classes: Classes
    unit: Unit
    at: RawAt


def check_project(project: Project) -> Iterator[Finding]:
    effectful = project.analysis(Divergences).traces.effectful
    queries = project.analysis(Queries)
    failures = Failures(queries.flow)
    for unit in sorted(effectful, key=lambda unit: unit.place):
        if is_aside(unit.path):
            continue
        for block in dict.fromkeys(h for each in unit.code.blocks for h in each.handlers):
            handler = failures.handler(unit, block)
            meeting = _meeting(queries, effectful, unit, handler)
            escape = next(_escapes(failures, unit, handler), None) if meeting is not None else None
            if meeting is not None and escape is not None:
                yield _report(unit, handler, meeting, escape)


def _meeting(queries: Queries, effectful: frozenset[Unit], unit: Unit, handler: Handler) -> Place | None:
    """The collective between a handler that keeps its exception and the place that raises or sends it."""
    if handler.caught < 0 or handler.is_broad or "?" in handler.names:
        return None
    caught = Place(queries.flow, unit, handler.caught)
    kept = _kept(caught)
    raises = [block for block, each in enumerate(unit.code.blocks) if each.end[0] == "raise"]
    raises = [b for b in raises if unit.code.blocks[b].end[1] in kept or not kept.isdisjoint(_tests(unit, b))]
    for number, site in sorted(queries.flow.result(unit).sites.items()):
        meets = site.operations or any(target.unit in effectful for target in site.targets)
        place = caught.value_at(number)
        if not meets or site.away or not follows(caught, place):
            continue
        if site.operations and not kept.isdisjoint(unit.code.values[number].args):
            return place
        if not _reached(unit, place.value.block).isdisjoint(raises):
            return place
    return None


def _tests(unit: Unit, block: int) -> Iterator[int]:
    """The tests that all ways to a block have passed since they last met."""
    while True:
        preds = [pred for pred, raising in unit.code.blocks[block].preds if not raising]
        if len(preds) != 1:
            return
        (block,) = preds
        if unit.code.blocks[block].end[0] == "branch":
            yield unit.code.blocks[block].end[1]


def _reached(unit: Unit, block: int) -> set[int]:
    """The blocks to which a way leads from a block."""
    found, stack = {block}, [block]
    while stack:
        for following in unit.code.blocks[stack.pop()].successors():
            if following not in found:
                found.add(following)
                stack.append(following)
    return found


def _kept(caught: Place) -> set[int]:
    """The values that a caught exception becomes a part of."""
    values, found, stack = caught.unit.code.values, {caught.number}, [caught.number]
    holding = ("phi", "mut", "call", "tuple", "list", "dict", "join", "compare")
    while stack:
        for user in caught.unit.users.get(stack.pop(), ()):
            if user not in found and values[user].op in holding:
                found.add(user)
                stack.append(user)
    return found


def _escapes(failures: Failures, unit: Unit, handler: Handler) -> Iterator[_Escape]:
    """What a `try` block may raise that no handler around takes."""
    for block, each in enumerate(unit.code.blocks):
        if handler.block in each.handlers:
            yield from _let_through(failures, unit, block, set())


def _raised_in(failures: Failures, unit: Unit, block: int, seen: set[Unit]) -> Iterator[_Escape]:
    """The exceptions that a block raises, itself or by functions of the project that it calls."""
    code = unit.code
    end = code.blocks[block].end
    classes = raised(failures.flow, unit, end[1]) if end[0] == "raise" and end[1] >= 0 else ()
    if classes and "NotImplementedError" not in classes:  # what nobody wrote fails whoever asks for it
        yield _Escape(classes, unit, code.values[end[1]].at)
    sites = failures.flow.result(unit).sites
    for number in code.blocks[block].values:
        site = sites.get(number)
        for target in site.targets if site is not None and not site.away else ():
            if target.unit not in seen:
                seen.add(target.unit)
                yield from _leaving(failures, target.unit, seen)


def _leaving(failures: Failures, unit: Unit, seen: set[Unit]) -> Iterator[_Escape]:
    """The exceptions that leave a function."""
    for block, _ in enumerate(unit.code.blocks):
        yield from _let_through(failures, unit, block, seen)


def _let_through(failures: Failures, unit: Unit, block: int, seen: set[Unit]) -> Iterator[_Escape]:
    """What a block raises and no handler around it in its function takes."""
    handlers = [failures.handler(unit, each) for each in unit.code.blocks[block].handlers]
    for escape in _raised_in(failures, unit, block, seen):
        if not any(h.caught >= 0 and takes(h, escape.classes) is not False for h in handlers):
            yield escape


def _report(unit: Unit, handler: Handler, meeting: Place, escape: _Escape) -> Finding:
    clause = unit.code.values[handler.caught]
    name = next(iter(o.name for o in meeting.operations), meeting.method)
    return RULE.finding(
        unit.path,
        unit.at((clause.at[0], clause.at[1], clause.at[0], clause.at[1] + 6)),
        f"`{unit.qualname}` keeps `{clause.data}` until all ranks have met in `{name}`, but its block also raises"
        f" `{escape.classes[0]}`, with which a rank leaves before that",
        help="take `Exception`, or all that the block raises, and raise it again behind the collective",
        related=[
            Related(escape.unit.path, escape.unit.at(escape.at)[0], f"`{escape.classes[0]}` is raised here"),
            Related(unit.path, meeting.at[0], "the other ranks wait here"),
        ],
        context=f"{unit.qualname}:{clause.data}:{escape.classes[0]}",
    )


INCORRECT = [
    """
import torch.distributed as dist

class DatasetError(Exception):
    pass

class EmptyError(Exception):
    pass

def prepare(load, path):
    error, data = None, None
    try:
        data = load(path)
        if len(data) == 0:
            raise EmptyError(path)
    except DatasetError as e:  # error: MP583
        error = e
    dist.barrier()
    if error is not None:
        raise RuntimeError(path)
    return data
""",
    """
import json
import torch.distributed as dist

def parse(text):
    if not text:
        raise ValueError("empty")
    return json.loads(text)

def read(path):
    box = [None, None]
    if dist.get_rank() == 0:
        try:
            with open(path) as file:
                box[0] = parse(file.read())
        except OSError as error:  # error: MP583
            box = [None, repr(error)]
    dist.broadcast_object_list(box, src=0)
    return box[0]
""",
]

CORRECT = [
    """
import torch.distributed as dist

class EmptyError(Exception):
    pass

def prepare(load, path):
    error, data = None, None
    try:
        data = load(path)
        if len(data) == 0:
            raise EmptyError(path)
    except Exception as e:
        error = e
    dist.barrier()
    if error is not None:
        raise error
    return data
""",
    """
import torch.distributed as dist

class DatasetError(Exception):
    pass

class EmptyError(DatasetError):
    pass

def check(data):
    if len(data) == 0:
        raise EmptyError("empty")

def prepare(load, path):
    error, data = None, None
    try:
        data = load(path)
        check(data)
        try:
            check(data[0])
        except EmptyError:
            data = data[1:]
        if data is None:
            raise ValueError(path)
    except DatasetError as e:
        error = e
    except (ValueError, TypeError) as e:
        error = e
    dist.barrier()
    if error is not None:
        raise error
    return data

def told(load, path):
    error = None
    try:
        data = load(path)
        check(data)
    except DatasetError as e:
        error = e
    dist.barrier()
    if error is not None:
        raise RuntimeError(path)

def retried(load, path):
    try:
        data = load(path)
        if data is None:
            raise ValueError(path)
    except DatasetError as e:
        print(e)
        data = []
    dist.barrier()
    return data
""",
]

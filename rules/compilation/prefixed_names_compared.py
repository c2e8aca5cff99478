"""Names of a wrapped model's parameters that are compared with names as they are without the wrapper.

What it does
    Follows the names that `named_parameters()`, `named_buffers()` and `named_modules()` give, into the functions that
    get them, to `name.startswith(…)`. Reports where the model comes out of `torch.compile`, `DistributedDataParallel`
    or `DataParallel` on a way to it, and none of the texts fits a name that begins with `_orig_mod.` or `module.`.
    Silent where a function on the way has that prefix in it, and where the model is kept in an attribute that holds it
    without the wrapper, too.

Why is this bad
    All names of such a model begin with the prefix, so that the test never holds: all parameters fall into one group,
    with the learning rate, the decay or the freezing of the others. Nothing fails.

References
    https://docs.pytorch.org/docs/stable/generated/torch.compile.html
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.origins import sources
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.saved_states import COMPILED, DDP
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP610", "prefixed-names-compared", "warning", "1.0", tokens=("startswith",), solves=True)

_WRAPPING = {
    "torch.compile": COMPILED,
    "torch.nn.parallel.DistributedDataParallel": DDP,
    "torch.nn.DataParallel": DDP,
}
_LOOKING = ("split", "partition", "rpartition", "rsplit", "endswith", "find", "index", "replace", "removeprefix")
_NAMING = ("named_parameters", "named_buffers", "named_modules")


class _Wrapped(NamedTuple):
    """A call that wraps a model, what stands before its names then, and where the model is handed on, or asked."""

    call: Place
    prefix: str
    at: Place


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    told: set[Place] = set()
    for asked in queries.named_anywhere(*_NAMING):
        model = asked.receiver
        if model is None or is_aside(asked.unit.path):
            continue
        for wrapped in _wrapped(queries, model, asked):
            test = next(_never(queries, asked, wrapped.prefix), None)
            if test is not None and wrapped.at not in told:
                told.add(wrapped.at)
                yield _finding(asked, wrapped, test)


def _wrapped(queries: Queries, model: Place, asked: Place) -> Iterator[_Wrapped]:
    """The wrappers that a model may come out of, where it is known on all ways what it is."""
    queue, seen = [(model.root, asked)], {model.root}
    for here, at in queue:
        before: list[tuple[Place, Place]] = []
        if here.value.op == "call":
            names = {queries.flow.models.named(o[1]) for o in here.operand(0).val.of("ext")}
            yield from (_Wrapped(here, _WRAPPING[name], at) for name in names & _WRAPPING.keys())
        elif here.value.op == "phi":
            before = [(here.value_at(number).root, at) for number in here.value.args if number >= 0]
        elif here.value.op == "param":
            before = _passed(queries, here)
        elif here.value.op in ("attr", "name", "free") and not _is_passed(here):
            kept = {each.root for each in sources(here) or ()}
            before = [(each, at) for each in kept if len(kept) == 1]
        fresh = [row for row in before if row[0] not in seen]
        seen.update(place for place, _ in fresh)
        queue += fresh


def _is_passed(place: Place) -> bool:
    """Whether an attribute is a field that whoever makes the object may pass, or of an object that is not known."""
    owners = place.operand(0).closed.each if place.value.op == "attr" else ()
    known = place.value.op != "attr" or bool(owners) and all(o[0] in ("inst", "self") for o in owners)
    return not known or any(each.fields_are_parameters for o in owners for each in (*o[1].mro, *o[1].descendants()))


def _passed(queries: Queries, parameter: Place) -> list[tuple[Place, Place]]:
    """What calls pass for a parameter, each with the call."""
    found = []
    for call in queries.calls_of(parameter.unit):
        given = argument_of(call.unit, call.number, parameter.unit, parameter.value.data[0])
        if given is not None:
            found.append((call.value_at(given).root, call))
    return found


def _never(queries: Queries, asked: Place, prefix: str) -> Iterator[Place]:
    """The tests for the beginning of a name that hold for none which begins with a prefix."""
    queue, seen = list(_names(asked)), {asked}
    for name in queue:
        if any(prefix.rstrip(".") in str(v.data) for v in name.unit.code.values if v.op in ("const", "attr")):
            continue
        users = list(_users(name))
        tests = [user for user in users if user.value.op == "attr" and user.value.data == "startswith"]
        if tests and any(_looks(user) and not _is_behind_test(user) for user in users):
            continue  # another test may find what this one does not
        for user in (each for each in _users(name) if each not in seen):
            seen.add(user)
            if user.value.op == "attr" and user.value.data == "startswith":
                yield from (call for call in user.taken_by if call.value.op == "call" and _never_fits(call, prefix))
            elif user.value.op == "call":
                queue += _parameters(queries, user, name)


def _names(asked: Place) -> Iterator[Place]:
    """The names among the pairs that a call gives."""
    for pairs in (each for each in asked.taken_by if each.value.op == "iter"):
        pair = (each for each in pairs.taken_by if each.value.op == "next")
        parts = (part for each in pair for part in each.taken_by if part.value.op == "unpack")
        yield from (part for part in parts if part.value.data[:2] == (0, 2))


def _users(name: Place) -> Iterator[Place]:
    """What a name is used in, under whatever variable."""
    for number in range(len(name.unit.code.values)):
        if name.unit.root(number) == name.number:
            yield from name.value_at(number).taken_by


def _looks(user: Place) -> bool:
    """Whether a name is looked into otherwise than at its beginning."""
    return user.value.op == "compare" or user.value.data in _LOOKING


def _is_behind_test(user: Place) -> bool:
    """Whether a name is only looked into where its beginning was found."""
    return any(holds and test.method == "startswith" for test, holds in user.settled_tests if test.value.op == "call")


def _parameters(queries: Queries, call: Place, name: Place) -> Iterator[Place]:
    """The parameters of functions of the project for which a call passes a name."""
    for target in queries.targets(call):
        for parameter in queries.values(target, "param"):
            given = argument_of(call.unit, call.number, target, parameter.value.data[0])
            if given is not None and call.unit.root(given) == name.number:
                yield parameter


def _never_fits(call: Place, prefix: str) -> bool:
    """Whether none of the texts that a name is asked for begins a name with a prefix."""
    given = call.operand(1) if len(call.value.args) == 2 else None
    objects = given.closed.each if given is not None else ()
    texts = [part.constant() for o in objects for part in (o[1] if o[0] == "tuple" else ())]
    texts += [o[2] for o in objects if o[0] == "const"]
    if not texts or any(o[0] not in ("tuple", "const") for o in objects):
        return False
    return all(isinstance(text, str) and _is_of_model(text) and not prefix.startswith(text) for text in texts)


def _is_of_model(text: str) -> bool:
    """Whether a text is no part of what wrappers put before names."""
    return not text.startswith(("_", *set(_WRAPPING.values())))


def _finding(asked: Place, wrapped: _Wrapped, test: Place) -> Finding:
    at, wrapper = wrapped.at, wrapped.call.operand(0).text
    return RULE.finding(
        at.unit.path,
        at.at,
        f"`{at.operand(0).text}`{at.where} gets a model out of `{wrapper}`: names of its parameters begin with"
        f" `{wrapped.prefix}`, and `{test.text}` never holds",
        help=f'take the names of the model inside, or `name.removeprefix("{wrapped.prefix}")`',
        related=[
            Related(wrapped.call.unit.path, wrapped.call.at[0], "the model is wrapped here"),
            Related(test.unit.path, test.at[0], "this test never holds"),
        ],
        context=f"{at.unit.qualname}:{at.operand(0).text}",
    )


_PROGRAM = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def depth_of(name):
    {inside}
    return 0 if name.startswith(("stem", "embed")) else 1

def groups_of(model, lr):
    groups = {{0: [], 1: []}}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups[depth_of(name)].append(parameter)
    return [{{"params": found, "lr": lr / (2 - depth)}} for depth, found in groups.items()]

def main(net, compiles, rank):
    if compiles:
        {wrapped} = {wrapper}
    return torch.optim.AdamW(groups_of(net, 0.1)){mark}
"""


def _program(wrapper: str, wrapped: str = "net", inside: str = "pass", mark: str = "") -> str:
    return _PROGRAM.format(wrapper=wrapper, wrapped=wrapped, inside=inside, mark=mark)


_MARK = "  # error: MP610"

INCORRECT = [
    _program("torch.compile(net)", mark=_MARK),
    _program("DDP(net, device_ids=[rank])", mark=_MARK),
]

CORRECT = [
    _program("torch.compile(net)", "other"),
    _program("torch.compile(net)", inside='name = name.removeprefix("_orig_mod.")'),
    _program("DDP(net, device_ids=[rank])").replace('"stem", ', '"module.stem", '),
    _program("torch.compile(net)").replace('("stem", "embed")', '"module."'),
    # the attribute held the model itself before
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Trainer:
    def __init__(self, model):
        self.model = model
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad = name.startswith("head")
        self.model = DDP(self.model)
""",
    """
from dataclasses import dataclass

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

@dataclass
class Trainer:
    model: torch.nn.Module

    def __post_init__(self):
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad = name.startswith("head")
        self.model = DDP(self.model)
""",
]

"""A name that is bound only while a flag holds, and read whether it holds or not.

What it does
    Reports a local name that a branch on a flag binds and that is read after it, where the function itself sets the
    flag, on a way that does not bind the name, so that the branch is not taken. Only where it is read on every way from
    there: another condition may be known to hold by whoever wrote it.

Why is this bad
    UnboundLocalError on the rare path: the first step whose gradients overflow ends the run that the flag was
    meant to save.

References
    https://docs.python.org/3/library/exceptions.html#UnboundLocalError
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.effects.choices import conditions_at
from validator.effects.condition_keys import Assumed, assume, holding, keys_of
from validator.facts.model import At, Function
from validator.finding import Finding, Related
from validator.flow import Flow
from validator.flow.control import reachable
from validator.flow.program.unit import Unit
from validator.flow.queries.base import blocks_of
from validator.ir.model import Code
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP206", "unbound-after-flag", "error", stable_since="0.1.0", tokens=("False",), solves=True)


class Read(NamedTuple):
    """A read of a name that may not be bound there: the value that is read, its block, and its place."""

    number: int
    block: int
    at: At


class Back(NamedTuple):
    """A place on the way back from a read: the value of the name at the end of a block, and behind the branch of a
    flag the value of the flag there, whether it holds, the block of the branch, and the way that was not taken."""

    block: int
    name: int
    flag: int = -1
    holds: bool = False
    branch: int = -1
    other: int = -1


def check_project(project: Project) -> Iterator[Finding]:
    flow = project.analysis(Flow)
    for module in project.modules.values():
        functions = [each for each in module.source.facts.functions if _has_flag(each)]
        units = flow.units_of(module) if functions else {}
        for function in functions:
            unit = units.get(function.qualname)
            if unit is not None:
                yield from _findings(flow, unit, function)


def _has_flag(function: Function) -> bool:
    """Whether a function gives a name both constants, which facts tell without its code."""
    flags = [{row.target for row in function.assigns if row.value == text} for text in ("True", "False")]
    return function.qualname != "<module>" and not flags[0].isdisjoint(flags[1])


def _findings(flow: Flow, unit: Unit, function: Function) -> Iterator[Finding]:
    code = unit.code
    for unbound in [n for n, value in enumerate(code.values) if value.op == "undefined"]:
        reads = sorted(_reads(unit, unbound, function), key=lambda read: read.at)
        blocks = frozenset(read.block for read in reads)
        ways = ((read, flag) for read in reads for flag in _flags(unit, unbound, read) if _is_met(code, flag, blocks))
        found = next((way for way in ways if _is_possible(flow, unit, code.values[unbound].data, *way)), None)
        if found is not None:
            read, flag = found
            yield _report(unit, code.values[unbound].data, read, flag.branch)


def _reads(unit: Unit, unbound: int, function: Function) -> Iterator[Read]:
    """The reads of what may be unbound."""
    code, waiting, seen = unit.code, [unbound], {unbound}
    while waiting:
        number = waiting.pop()
        for user in unit.users.get(number):
            value = code.values[user]
            if value.op != "phi":
                yield Read(number, value.block, unit.at(value.at))
            elif value.data == code.values[unbound].data and user not in seen:
                seen.add(user)
                waiting.append(user)
        rows = [row.at for row in function.returns if row.value == code.values[unbound].data]
        for block in code.in_order():
            if code.blocks[block].end == ("return", number):
                yield Read(number, block, rows[-1] if rows else unit.at(code.values[number].at))


def _flags(unit: Unit, unbound: int, read: Read) -> Iterator[Back]:
    """The branches of flags that are not set on a way to a read on which the name stays unbound.

    Walked from the read back, what the name and the flag are changes only at their phis, and at both together.
    """
    code = unit.code
    waiting: list[Back] = [Back(read.block, read.number)]
    seen: set[Back] = set()
    while waiting:
        back = waiting.pop()
        if back in seen:
            continue
        seen.add(back)
        if back.name == unbound and back.branch >= 0 and _is_lowered(unit, back):
            yield back
        rounds = blocks_of(code, back.block) if back.block in code.loops else ()  # a round before is another matter
        for index, (block, raised) in enumerate(code.blocks[back.block].preds):
            if not raised and block not in rounds:
                waiting += _before(code, _entered(code, back, index), block)


def _is_met(code: Code, flag: Back, reads: frozenset[int]) -> bool:
    """Whether a read follows on every way from where a flag was not set, exceptions left out: no other
    condition leads past all of them."""
    asked, _ = _test(code, flag.branch)
    waiting, seen, met = [flag.branch], set(), False
    while waiting:
        block = waiting.pop()
        end = code.blocks[block].end
        met = met or block in reads
        if block in seen or block in reads or end[0] == "raise":
            continue
        seen.add(block)
        if end[0] == "return":
            return False
        test, holds = _test(code, block)
        decided = test == asked >= 0
        waiting += [end[2] if holds is flag.holds else end[3]] if decided else code.blocks[block].successors()
    return met


def _is_possible(flow: Flow, unit: Unit, name: str, read: Read, flag: Back) -> bool:
    """Whether a read can follow where the flag is not set without a binding between, by what else is known there: where
    `kind == "a"` takes the flag back, a later `kind != "b"` holds."""
    code, keys, start = unit.code, keys_of(flow, unit), unit.code.values[flag.flag].block
    assumed: Assumed = {}
    for key, holds in conditions_at(flow, unit, start):
        assumed = assume(assumed, key, holds)
    bindings = (code.values[number] for number in code.definitions.get(name, ()))
    bound = {value.block for value in bindings if value.op not in ("phi", "undefined")}
    waiting, seen = [start], {start}
    while waiting:
        block = waiting.pop()
        if block == read.block:
            return True
        end = code.blocks[block].end
        following = code.blocks[block].successors()
        if end[0] == "branch":
            key, positive = keys.test(end[1])
            known = holding(key, assumed)
            following = following if known is None else (end[2] if known is positive else end[3],)
        fresh = [each for each in following if each not in seen and each not in bound]
        seen.update(fresh)
        waiting += fresh
    return False


def _test(code: Code, block: int) -> tuple[int, bool]:
    """What the branch at the end of a block asks, and whether its first way is the one on which that holds."""
    end, holds = code.blocks[block].end, True
    if end[0] != "branch":
        return -1, holds
    test = end[1]
    while code.values[test].op == "unary" and code.values[test].data == "Not":
        test, holds = code.values[test].args[0], not holds
    return test, holds


def _is_lowered(unit: Unit, back: Back) -> bool:
    """Whether a flag is a False here with which it does not begin, and holds where the name is bound."""
    code, control = unit.code, unit.control
    flag, name = code.values[back.flag], code.values[back.name].data
    if flag.op != "const" or flag.data is not False or back.holds:
        return False
    if back.branch not in reachable(code, but=flag.block):
        return False  # every way comes through it: so the flag begins
    bound = (code.values[number].block for number in code.definitions.get(name, ()))
    return any(control.leads(block, back.branch, back.other) for block in bound)


def _entered(code: Code, back: Back, index: int) -> Back:
    """What the name and the flag were where a block was entered from one of those before it."""

    def earlier(number: int) -> int:
        value = code.values[number]
        return value.args[index] if number >= 0 and value.op == "phi" and value.block == back.block else number

    return back._replace(name=earlier(back.name), flag=earlier(back.flag))


def _before(code: Code, back: Back, block: int) -> Iterator[Back]:
    """The place at the end of a block before, with its flag where it asks for one; none where it goes the other way."""
    end = code.blocks[block].end
    if end[0] == "branch" and end[2] != end[3]:
        test, first = _test(code, block)
        holds = first is (end[2] == back.block)
        if test == back.flag and holds is not back.holds:
            return
        if back.branch < 0 and code.values[test].op == "phi":
            yield Back(block, back.name, test, holds, block, end[3] if end[2] == back.block else end[2])
    yield back._replace(block=block)


def _report(unit: Unit, name: str, read: Read, flag: int) -> Finding:
    test = unit.code.tests[flag]
    said = unit.text(test.test)
    return RULE.finding(
        unit.path,
        read.at,
        f"`{name}` may be unbound here: `{unit.qualname}` itself sets what decides `{said}` so that nothing binds it",
        help=f"bind `{name}` before the branches, or return before it is read",
        related=[Related(unit.path, test.at[0], f"`{name}` is bound behind this test only")],
        context=f"{unit.qualname}:{name}",
    )


INCORRECT = (
    """import torch.distributed as dist


def step(optimizer, check):
    valid = True
    if check:
        overflow = optimizer.prepare()
        if overflow:
            valid = False
        else:
            norm = optimizer.norm()
    if valid:
        norm = optimizer.step()
    optimizer.zero_grad()
    return {}, norm  # error: MP206
""",
    # read on both ways of another condition
    """import math


def step(optimizer, check, last, loss):
    valid = True
    if check:
        if optimizer.prepare():
            valid = False
        else:
            norm = optimizer.norm()
            valid = not math.isnan(norm)
    if valid:
        done, norm = optimizer.step()
    for buffer in optimizer.buffers:
        buffer.zero()
    if last:
        return loss, norm  # error: MP206
    return {}, norm
""",
)

CORRECT = (
    """import torch.distributed as dist


def step(optimizer, overflow):
    valid = True
    norm = None
    if overflow:
        valid = False
    if valid:
        norm = optimizer.step()
    return norm
""",
    """import torch.distributed as dist


def step(optimizer, overflow):
    valid = True
    if overflow:
        valid = False
        norm = 0.0
    if valid:
        norm = optimizer.step()
    return norm
""",
    """import torch.distributed as dist


def step(optimizer, overflow):
    valid = True
    if overflow:
        valid = False
    if valid:
        norm = optimizer.step()
    if not valid:
        return None
    return norm
""",
    # where the flag is taken back, the same attribute lets nothing come to the read without a binding
    """
class Head:
    def step(self, strategy, batch):
        flag = True
        if self.kind == "standard":
            flag = False
        if flag:
            loss = strategy.loss(batch)
        if self.kind != "prefix":
            loss = strategy.other(batch)
        return loss
""",
)

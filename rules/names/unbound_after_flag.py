"""A name that is bound only while a flag holds, and read whether it holds or not.

What it does
    Reports a local name that a branch on a flag binds and that is read after it, where the function itself sets the
    flag, on a way that does not bind the name, so that the branch is not taken. Only where no other condition is
    asked from there to the read, which may be known to hold by whoever wrote it.

Why is this bad
    UnboundLocalError on the rare path: the first step whose gradients overflow ends the run that the flag was
    meant to save.

References
    https://docs.python.org/3/library/exceptions.html#UnboundLocalError
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.facts.model import At, Function
from validator.finding import Finding, Related
from validator.flow import Flow
from validator.flow.program import Unit
from validator.ir.model import Code
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP206", "unbound-after-flag", "error", stable_since="0.1.0", tokens=("False",), solves=True)


class Read(NamedTuple):
    """A read of a name that is not bound there: the value that is read, its block, and its place if it is known."""

    number: int
    block: int
    at: At | None


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
                yield from _findings(unit, function)


def _has_flag(function: Function) -> bool:
    """Whether a function gives a name both constants, which facts tell without its code."""
    flags = [{row.target for row in function.assigns if row.value == text} for text in ("True", "False")]
    return function.qualname != "<module>" and not flags[0].isdisjoint(flags[1])


def _findings(unit: Unit, function: Function) -> Iterator[Finding]:
    code = unit.code
    for unbound in [n for n, value in enumerate(code.values) if value.op == "undefined"]:
        reads = sorted(_reads(unit, unbound, function), key=lambda read: (read.at is None, read.at))
        found = next(((read, flag) for read in reads if read.at and (flag := _skipped(unit, unbound, read)) >= 0), None)
        if found is not None:
            yield _report(unit, code.values[unbound].data, *found)


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
                yield Read(number, block, rows[-1] if rows else None)


def _skipped(unit: Unit, unbound: int, read: Read) -> int:
    """The block of the flag that is not set on a way to a read on which the name stays unbound; -1 for none.

    Walked from the read back, what the name and the flag are changes only at their phis, and at both together.
    """
    code = unit.code
    deciding = unit.control.deciding(read.block)
    waiting: list[Back] = [Back(read.block, read.number)]
    seen: set[Back] = set()
    while waiting:
        back = waiting.pop()
        if back in seen:
            continue
        seen.add(back)
        if back.name == unbound and back.branch >= 0 and _is_lowered(unit, back):
            return back.branch
        if back.block in code.loops:
            continue  # a round before is another matter
        for index, (block, raised) in enumerate(code.blocks[back.block].preds):
            if not raised:
                waiting += _before(code, _entered(code, back, index), block, deciding)
    return -1


def _is_lowered(unit: Unit, back: Back) -> bool:
    """Whether a flag is a False here with which it does not begin, and holds where the name is bound."""
    code, control = unit.code, unit.control
    flag, name = code.values[back.flag], code.values[back.name].data
    if flag.op != "const" or flag.data is not False or back.holds or not control.deciding(flag.block):
        return False
    bound = (code.values[number].block for number in code.definitions.get(name, ()))
    return any(control.leads(block, back.branch, back.other) for block in bound)


def _entered(code: Code, back: Back, index: int) -> Back:
    """What the name and the flag were where a block was entered from one of those before it."""

    def earlier(number: int) -> int:
        value = code.values[number]
        return value.args[index] if number >= 0 and value.op == "phi" and value.block == back.block else number

    return back._replace(name=earlier(back.name), flag=earlier(back.flag))


def _before(code: Code, back: Back, block: int, deciding: frozenset[int]) -> Iterator[Back]:
    """The place at the end of a block before; none where its branch goes the other way, or asks for something else."""
    end = code.blocks[block].end
    if end[0] == "branch" and end[2] != end[3]:
        test, holds = end[1], end[2] == back.block
        while code.values[test].op == "unary" and code.values[test].data == "Not":
            test, holds = code.values[test].args[0], not holds
        if test == back.flag and holds is not back.holds:
            return
        if back.branch < 0 and code.values[test].op == "phi":
            yield Back(block, back.name, test, holds, block, end[3] if end[2] == back.block else end[2])
        if back.branch < 0 and block in deciding:
            return
    yield back._replace(block=block)


def _report(unit: Unit, name: str, read: Read, flag: int) -> Finding:
    test = unit.code.tests[flag]
    said = unit.text(test.test)
    assert read.at is not None
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
)

"""The tests by which a program of the project refuses sizes itself, asked about what a launch gives it.

`if config.mini_batch % self.dp_size != 0: raise …` is a constraint like those of the table, stated by the program. It
is asked where all of its sizes are options of the program (or the world, or heads of a known model), are bound
once, and nothing decides whether it is reached; in a loop over literal texts (`for name in ("actor", "critic")`) once
for each of them.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from rules.launch._reading.configuration import Configuration, Said
from rules.launch._reading.own_values import Pass, Values, number
from validator.analysis.commands.programs import Programs
from validator.analysis.sizes.quotients import Check, Quotients
from validator.project import ClassDef, Module, Project

_LAST_WORD = re.compile(r"[A-Z][a-z0-9]*$|[A-Z]+$")


class Refusal(NamedTuple):
    """A test of the program that fails. `said` is what the launch gives the sizes, `left` and `right` are theirs."""

    check: Check
    said: tuple[Said, ...]
    left: int
    right: int


class _Test(NamedTuple):
    """A check that ends the program, in one pass of the loop around it."""

    check: Check
    loop: Pass


def refusals(project: Project, configuration: Configuration) -> Iterator[Refusal]:
    """The tests of a program of the project that refuse a configuration."""
    module = configuration.module
    if module is None or not any(number(offer) is not None for offer in configuration.offers):
        return
    own = frozenset(project.analysis(Programs).modules(module))
    tests = [test for test in project.analysis(_Tests).all if test.check.function.module in own]
    checks = [test.check for test in tests]
    values = Values(project, configuration, module)
    refused = []
    passed: Counter[str] = Counter()
    for check, loop in tests:
        left, right = (values.of(check.function, side, loop) for side in (check.left, check.right))
        if left is None or right is None or right[0] < 1:
            continue
        if left[0] % right[0] == 0:
            passed.update({said.flag for said in (*left[1], *right[1])})
        elif _is_only_way(check, checks, own, project):
            refused.append(Refusal(check, (*left[1], *right[1]), left[0], right[0]))
    for refusal in refused:  # what other tests accept is not what to change
        yield refusal._replace(said=tuple(sorted(refusal.said, key=lambda said: passed[said.flag])))


class _Tests:
    """The tests of a project that end its programs, whatever else holds."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def all(self) -> list[_Test]:
        checks = self.project.analysis(Quotients).tested()
        rows = ((check, list(_passes(check))) for check in checks)  # one by name is already that of one pass
        return [_Test(check, loop) for check, loops in rows for loop in (loops[:1] if check.by_name else loops)]


def _passes(check: Check) -> Iterator[Pass]:
    """The passes in which a remainder ends the program; none where something decides that."""
    function = check.function.node
    if check.tests or function is None or not isinstance(check.node, ast.BinOp):
        return
    for statement in function.body:
        if isinstance(statement, ast.For) and any(child is check.node for child in ast.walk(statement)):
            yield from _of_loop(statement, check.node)
            return
        if _holds(statement, check.node):
            if _refuses(statement, check.node):
                yield {}
            return
        if any(isinstance(child, ast.Return) for child in ast.walk(statement)):
            return


def _of_loop(loop: ast.For, node: ast.BinOp) -> Iterator[Pass]:
    """The passes of a loop over literal texts, where a test in its body is always made."""
    texts = loop.iter.elts if isinstance(loop.iter, ast.Tuple | ast.List) else []
    values = [text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)]
    if not isinstance(loop.target, ast.Name) or len(values) != len(texts):
        return
    for statement in loop.body:
        if _holds(statement, node):
            yield from ({loop.target.id: value} for value in values if _refuses(statement, node))
            return
        if any(isinstance(child, ast.Return | ast.Continue | ast.Break) for child in ast.walk(statement)):
            return


def _refuses(statement: ast.stmt, node: ast.BinOp) -> bool:
    """Whether a remainder ends the program, all alone: `if a % b: raise`, `assert a % b == 0`."""
    if isinstance(statement, ast.Assert):
        return _ends(statement.test, node, wanted=False)
    if not isinstance(statement, ast.If) or not isinstance(statement.body[0], ast.Raise):
        return False
    return _ends(statement.test, node, wanted=True)


def _holds(statement: ast.stmt, node: ast.expr) -> bool:
    test = statement.test if isinstance(statement, ast.If | ast.Assert) else None
    return test is not None and any(child is node for child in ast.walk(test))


def _ends(test: ast.expr, node: ast.expr, *, wanted: bool) -> bool:
    """Whether a remainder makes a test `wanted`, all alone."""
    if test is node:
        return wanted
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _ends(test.operand, node, wanted=not wanted)
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or if wanted else ast.And):
        inside = next((v for v in test.values if any(child is node for child in ast.walk(v))), None)
        return inside is not None and _ends(inside, node, wanted=wanted)
    if isinstance(test, ast.Compare) and test.left is node and len(test.ops) == 1:
        zero = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value == 0
        return zero and isinstance(test.ops[0], (ast.NotEq | ast.Gt) if wanted else ast.Eq)
    return False


def _is_only_way(check: Check, checks: list[Check], own: frozenset[Module], project: Project) -> bool:
    """Whether no class stands beside that of the test, to be used in its place, that does not test the same."""
    cls = check.function.cls
    if cls is None:
        return True
    word = _LAST_WORD.search(cls.name)
    beside = [c for c in project.classes() if c.module in own and c is not cls and word and c.name.endswith(word[0])]
    testing: set[ClassDef | None] = {c.function.cls for c in checks if str(c.right) == str(check.right)}
    return all(each in testing or each in cls.mro or cls in each.mro for each in beside)


__all__ = ["Refusal", "refusals"]

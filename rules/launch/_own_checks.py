"""The tests by which a program of the project refuses sizes itself, asked about what a launch gives it.

`if config.mini_batch % self.dp_size != 0: raise …` is a constraint like those of the table, stated by the program. It
is asked where all of its sizes are options of the program (or the world, or heads of a known model), are bound
once, and nothing decides whether it is reached.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from rules.launch._configuration import Configuration, Offer, Said
from validator.analysis.dimensions import Factor, Size
from validator.analysis.programs import Programs
from validator.analysis.quotients import Check, Quotients
from validator.project import ClassDef, Method, Module, Project

_HOLDERS = re.compile(r"^(self|cls|args|cfg|config|conf|opts?|hparams|params|\w+_(args|cfg|config))$")
_HEADS = {"num_attention_heads": "heads", "num_key_value_heads": "kv_heads"}
_LAST_WORD = re.compile(r"[A-Z][a-z0-9]*$|[A-Z]+$")
_DEPTH = 4


class Refusal(NamedTuple):
    """A test of the program that fails. `said` is what the launch gives the sizes, `left` and `right` are theirs."""

    check: Check
    said: tuple[Said, ...]
    left: int
    right: int


def refusals(project: Project, configuration: Configuration) -> Iterator[Refusal]:
    """The tests of a program of the project that refuse a configuration."""
    module = configuration.module
    if module is None or not any(_number(offer) is not None for offer in configuration.offers):
        return
    own = frozenset(project.analysis(Programs).modules(module))
    checks = [check for check in project.analysis(_Tests).all if check.function.module in own]
    values = _Values(project, configuration, module)
    for check in checks:
        left, right = values.of(check.function, check.left), values.of(check.function, check.right)
        if left is None or right is None or right[0] < 1 or left[0] % right[0] == 0:
            continue
        if _is_only_way(check, checks, own, project):
            yield Refusal(check, (*left[1], *right[1]), left[0], right[0])


class _Tests:
    """The tests of a project that end its programs, whatever else holds."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def all(self) -> list[Check]:
        return [check for check in self.project.analysis(Quotients).tested() if _refuses(check)]


def _refuses(check: Check) -> bool:
    """Whether a remainder ends the program, and nothing decides that: `if a % b: raise`, `assert a % b == 0`."""
    function = check.function.node
    if check.tests or function is None or not isinstance(check.node, ast.BinOp):
        return False
    for statement in function.body:
        if _holds(statement, check.node):
            if isinstance(statement, ast.Assert):
                return _ends(statement.test, check.node, wanted=False)
            raises = isinstance(statement, ast.If) and isinstance(statement.body[0], ast.Raise)
            return raises and isinstance(statement, ast.If) and _ends(statement.test, check.node, wanted=True)
        if any(isinstance(child, ast.Return) for child in ast.walk(statement)):
            return False
    return False


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


class _Values:
    """What a launch gives the names in a program's source."""

    def __init__(self, project: Project, configuration: Configuration, module: Module) -> None:
        self.configuration = configuration
        self.text = project.analysis(Programs).text(module)
        self.offers: dict[str, list[Offer]] = {}
        for offer in configuration.offers:
            self.offers.setdefault(offer.path[-1], []).append(offer)

    def of(self, function: Method, size: Size) -> tuple[int, list[Said]] | None:
        """The number that a size is, and where its factors are said; None where one is not known."""
        over = [self._factor(function, each) for each in size.over]
        under = [self._factor(function, each) for each in size.under]
        known = [each for each in (*over, *under) if each is not None]
        if size.rounded or len(known) != len(over) + len(under) or not known:
            return None
        top, bottom = (prod(each.value for each in side if each is not None) for side in (over, under))
        return (top // bottom, known) if bottom > 0 and top % bottom == 0 else None

    def _factor(self, function: Method, factor: Factor) -> Said | None:
        if factor.text.isdigit():
            return Said(int(factor.text), "")
        if factor.tag == "world":
            return self._world()
        if factor.tag == "heads" and (quantity := _HEADS.get(factor.text.rpartition(".")[2])) is not None:
            value = self.configuration.value(quantity)
            return Said(value, "") if isinstance(value, int) else None
        return self._named(function, factor.text, 0)

    def _world(self) -> Said | None:
        said = self.configuration.said.get("world_size")
        if said is not None:
            return said if isinstance(said.value, int) else None
        parts = [self._only(re.compile(rf"^(n|num)?_?{each}$")) for each in ("gpus_per_node", "(nnodes|nodes)")]
        if any(part is None for part in parts):
            return None
        return Said(prod(part.value for part in parts if part is not None), "")

    def _only(self, name: re.Pattern[str]) -> Said | None:
        found = [offer for leaf, rows in self.offers.items() if name.search(leaf) for offer in rows]
        return _number(found[0]) if len(found) == 1 else None

    def _named(self, function: Method, text: str, depth: int) -> Said | None:
        """The option that a path means: by all of its links, or by the last where only one option has it."""
        holder, _, leaf = text.rpartition(".")
        rows = self.offers.get(leaf, [])
        if not holder:
            bound = [row for row in function.facts.assigns if row.target == text]
            if len(bound) == 1 and bound[0].kind == "path" and depth < _DEPTH:
                return self._named(function, bound[0].value, depth + 1)
            return None
        if not _HOLDERS.match(holder.split(".")[0]) or self._is_bound_anew(function, leaf):
            return None
        exact = [offer for offer in rows if f".{text}".endswith("." + ".".join(offer.path)) and len(offer.path) > 1]
        chosen = exact if len(exact) == 1 else rows
        return _number(chosen[0]) if len(chosen) == 1 else None

    def _is_bound_anew(self, function: Method, leaf: str) -> bool:
        """Whether the program may give an option another value before the test."""
        own = "\n".join(function.module.source_text.lines[function.facts.at[0] - 1 : function.facts.at[2]])
        text = self.text.replace(own, own.split("%", 1)[0])
        for match in re.finditer(rf"\.{leaf}\s*([-+*/%]|//)?=(?!=)([^\n]*)", text):
            if match[1] or not re.search(rf"\b{leaf}\b", match[2]) or re.search(r"[-+*/%]|max\(|min\(", match[2]):
                return True
        return False


def _number(offer: Offer) -> Said | None:
    value: Any = offer.said.value if offer.said is not None else None
    if offer.said is None or value is None or not re.fullmatch(r"[0-9]{1,12}", str(value)):
        return None
    return offer.said._replace(value=int(value))


__all__ = ["Refusal", "refusals"]

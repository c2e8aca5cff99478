"""A text that is compared with a number: the two are never equal.

What it does
    Reports `==`, `!=`, `in` and `not in` between what can only be a text, such as a variable of the environment, and
    numbers. Silent where one of the two may be anything else, and in tests.

Why is this bad
    `os.environ.get("STAGE", "0") == 3` is False whatever is set, and nothing fails: the branch for that stage is dead.
    Variables of the environment are texts, those that launchers set included.

References
    https://docs.python.org/3/library/os.html#os.environ
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from validator.finding import Finding
from validator.flow.program.symbols import is_plain
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import returned
from validator.flow.queries.outside_program import is_test
from validator.flow.values import NONE_OBJ, Obj, Val
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP311", "text-compared-with-number", "error", "1.0", tokens=("environ", "getenv"), solves=True)

_ALWAYS = {"Eq": "False", "NotEq": "True", "In": "False", "NotIn": "True"}


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program():
        for test in queries.values(unit, "compare"):
            if test.value.data in _ALWAYS and not is_test(unit.path) and _never_equal(test):
                yield _report(test)


def _never_equal(test: Place) -> bool:
    """Whether one side is a text, and the other one a number, or holds numbers only."""
    one, other = test.operand(0), test.operand(1)
    if test.value.data in ("In", "NotIn"):
        rows = other.closed.of("tuple")
        inside = rows[0][1] if len(rows) == 1 and len(other.closed.objs) == 1 else ()
        numbers = frozenset(o for each in inside for o in each.objs)
        return bool(inside) and all(map(_are_numbers, inside)) and _is_always_text(one, numbers)
    return any(
        _are_numbers(b.closed) and _is_called_as_written(b) and _is_always_text(a, b.closed.objs)
        for a, b in ((one, other), (other, one))
    )


def _is_called_as_written(place: Place) -> bool:
    """Whether nothing but the calls of the project fills the parameters of which a value is made: no decorator that
    is unknown passes others (`@configurable`)."""
    units = [place.unit]
    if place.root.value.op == "attr":
        name, flow = place.root.value.data, place.flow
        units += [unit for unit in map(flow.unit_of, flow.stores.writers(name)) if unit is not None]
    return all(unit.method is None or is_plain(unit.method.facts.decorators) for unit in units)


def _is_always_text(place: Place, numbers: frozenset[Obj]) -> bool:
    """Whether a value can only be a text, or none of the numbers; of a variable that others see, what each of them
    stores."""
    place = place.root
    are_texts = partial(_are_texts, numbers=numbers)
    if not are_texts(place.closed):
        return False
    op, data = place.value.op, place.value.data
    if op == "phi":
        return all(_is_always_text(place.operand(i), numbers) for i in range(len(place.value.args)))
    if op == "attr":
        units = place.flow.mentions.units(data)
        rows = [value for unit in units for _, value in place.flow.result(unit).stored.get(data, ())]
        return bool(rows) and all(map(are_texts, rows))
    if op == "name":
        units = tuple(place.flow.whole_units(place.unit.module))
        rows = [value for unit in units for value in place.flow.result(unit).globals.get(data, ())]
        return bool(rows) and all(map(are_texts, rows))
    if op == "call" and (site := place.result.sites.get(place.number)) is not None and site.targets:
        given = returned(place)  # what a function computes besides is no text, as far as is known
        return given is not None and all(_is_always_text(each, numbers) for each in given)
    return op in ("call", "item", "const", "join")


def _are_texts(value: Val, numbers: frozenset[Obj]) -> bool:
    """Whether a value is a text, nothing, or another number than some."""
    asked = {o[2] for o in numbers}
    others = [o for o in value.each if not _is_text(o)]
    return len(others) < len(value.each) and all(o == NONE_OBJ or _is_number(o) and o[2] not in asked for o in others)


def _are_numbers(value: Val) -> bool:
    return bool(value.objs) and all(map(_is_number, value.each))


def _is_text(o: Obj) -> bool:
    return o[0] in ("str", "environment") or o[:2] == ("const", "str")


def _is_number(o: Obj) -> bool:
    return o[:2] in (("const", "int"), ("const", "float"))


def _report(test: Place) -> Finding:
    unit = test.unit
    return RULE.finding(
        unit.path,
        test.at,
        f"`{test.text}`{test.where} is always {_ALWAYS[str(test.value.data)]}: one is a text, the other a number",
        help="convert the text first (`int(…)`), or compare it with a text",
        context=f"{unit.qualname}:{test.text}",
    )


INCORRECT = (
    """
import os

class Trainer:
    def __init__(self):
        self.stage = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "0")
        self.generates_together = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "0") == 3  # error: MP311

    def gathers(self):
        return self.stage in (2, 3)  # error: MP311

    def is_first(self):
        return os.environ["NODE_INDEX"] != 0  # error: MP311
""",
)

CORRECT = (
    # a decorator passes what a configuration says
    """
import os
import functools

KIND = os.environ.get("KIND", "visible")

def configurable(function):
    @functools.wraps(function)
    def inner(self, cfg, **given):
        return function(self, **cfg.arguments(), **given)
    return inner

class Head:
    @configurable
    def __init__(self, *, normalizer=1.0):
        self.normalizer = normalizer
        if normalizer == "visible" or normalizer == KIND:
            self.scale = 1

    def forward(self, x):
        return x if self.normalizer == "visible" else x / self.normalizer

def build(cfg, x):
    return Head(cfg).forward(x)
""",
    # how often a text was counted
    """
import os
from collections import Counter

class Builder:
    def __init__(self):
        self.symbols = Counter()

    def add(self, *symbols):
        self.symbols.update(symbols)

    def build(self, pad="<pad>", eos=os.environ.get("EOS", "</s>")):
        if self.symbols[pad] == 0:
            self.add(pad)
        if self.symbols[eos] == 0:
            self.add(eos)
        return self.symbols

Builder().build()
""",
    """
import os

class Trainer:
    def __init__(self):
        self.stage = int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "0"))
        self.generates_together = os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "0") == "3"

    def gathers(self):
        return self.stage in (2, 3)

    def is_first(self):
        return os.environ.get("NODE_INDEX", 0) != 0
""",
    """
import os

LEVEL = os.environ.get("LEVEL", "1")
if LEVEL.isdigit():
    LEVEL = int(LEVEL)

def is_high(level=None):
    return LEVEL == 3 or (level or os.environ.get("LEVEL")) == 3
""",
    # a number, or a text that says why there is none
    """
import os


def calculator(expression):
    if not isinstance(expression, str):
        return "no text"
    return float(eval(expression.strip()))


def check():
    return calculator("2 + 3") == 5.0, os.environ.get("HOME")
""",
)

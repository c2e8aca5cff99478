"""A parameter that is given another value before it is ever read.

What it does
    Reports a parameter of which nothing reads what was passed: on every way to each place that reads the name, it has
    been given another value first. Its default must say something (not None, False, zero or nothing), or a call of the
    project that runs nothing else must pass something for it. A note where constants take its place: somebody may have
    switched it off. Silent where another class of the project has a method of that name with that parameter, or a class
    of a library above may ask for it, where the call passes the very expression that is put there, or what the function
    gets for another parameter, too, or reads of the function around it, for `_names`, after `del`, and where `locals()`
    or a function inside may read it.

Why is this bad
    What callers pass is dropped without a word, and so is the default: the program runs with something else than the
    signature says.

References
    https://docs.python.org/3/tutorial/controlflow.html#defining-functions
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.overrides import HARMLESS
from validator.facts.model import Param
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit, implicit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.values.reads import is_inside, is_read, may_be_read_inside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP156", "parameter-overwritten", "warning", "1.0", solves=True)

_SAYING_NOTHING = frozenset({"None", "False", "0", "0.0", "''", '""', "()", "[]", "{}", "dict()", "list()", "..."})
_KINDS = ("pos", "any", "kw")


class Lost(NamedTuple):
    """A parameter, with the values that take its place before it is read."""

    param: Place
    declared: Param
    by: list[Place]


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    asked = _asked_for(project)
    for unit in queries.of_program():
        for lost in _lost(queries, unit):
            if not _is_asked_for(unit, lost.declared.name, asked):
                passing = next(_passing(queries, lost), None)
                if passing is not None or lost.declared.default not in (None, *_SAYING_NOTHING):
                    yield _report(lost, passing)


def _lost(queries: Queries, unit: Unit) -> Iterator[Lost]:
    """The parameters of a function that are bound anew before anything reads them."""
    if unit.method is None or unit.code.kind != "function":
        return
    declared = {param.name: param for param in unit.method.facts.params if param.kind in _KINDS}
    for place in queries.values(unit, "param"):
        name = place.value.data[1]
        bound = (place.value_at(n) for n in unit.code.definitions.get(name, ()) if n != place.number)
        anew = [each for each in bound if each.value.op != "phi"]
        if not anew or name not in declared or name.startswith("_") or unit.is_receiver(place.number):
            continue
        taken = [each for each in anew if is_read(each)]
        deleted = any(each.value.op == "undefined" for each in anew)
        if taken and not deleted and not is_read(place) and not may_be_read_inside(queries, unit, name):
            yield Lost(place, declared[name], taken)


def _asked_for(project: Project) -> dict[tuple[str, str], int]:
    """By the name of a method and of a parameter how many classes have them."""
    found: dict[tuple[str, str], int] = {}
    for function in project.functions():
        for param in function.facts.params if function.cls is not None else ():
            key = (function.name, param.name)
            found[key] = found.get(key, 0) + 1
    return found


def _is_asked_for(unit: Unit, name: str, asked: dict[tuple[str, str], int]) -> bool:
    """Whether others than the function itself may say that it has the parameter: a base, a class beside it."""
    cls = unit.cls
    if cls is None or unit.name == "__init__":
        return False
    outer = {base.removesuffix("[]").rpartition(".")[2] for base in cls.external_bases}
    return not outer <= HARMLESS or asked.get((unit.name, name), 0) > 1


def _passing(queries: Queries, lost: Lost) -> Iterator[Place]:
    """What calls that run the function, and nothing else, pass for the parameter, where it says something else than
    what takes its place."""
    unit, (index, name) = lost.param.unit, lost.param.value.data
    own = {each.root.text for each in lost.by}
    for call in queries.calls_of(unit):
        given = call.argument(name, index - implicit(call.unit, call.value, unit))
        if given is None or set(queries.targets(call)) != {unit} or given.root.text in own:
            continue
        if given.root.value.op != "const" and _gets_otherwise(unit, call, given):
            continue
        if given.root.value.op != "const" or given.text not in _SAYING_NOTHING:
            yield given


def _gets_otherwise(unit: Unit, call: Place, given: Place) -> bool:
    """Whether a function knows what a call passes from elsewhere: it gets it for another parameter, too, or stands
    inside the caller and reads its variable."""
    roots = [call.value_at(number).root.number for number in call.value.args[1:]]
    if roots.count(given.root.number) > 1:
        return True
    around = unit.outer
    if around is None or call.unit is not around and not is_inside(call.unit, around):
        return False
    return any(value.op == "free" and given.text in (value.data, value.data[-1]) for value in unit.code.values)


def _report(lost: Lost, passing: Place | None) -> Finding:
    unit, param, first = lost.param.unit, lost.declared, min(lost.by, key=lambda each: each.at)
    dropped = "its default" if passing is None else f"what callers pass (`{passing.text}`)"
    related = [Related(unit.path, param.at[0], "the parameter")]
    if passing is not None:
        related.append(Related(passing.unit.path, passing.at[0], "it is passed here"))
    constant = all(each.value.op == "const" for each in lost.by)
    return RULE.finding(
        unit.path,
        first.at,
        f"`{param.name}` of `{unit.qualname}` is given another value before anything reads it: {dropped} has no effect",
        help="use the parameter, give the new value another name, or drop the parameter",
        related=related,
        context=f"{unit.qualname}:{param.name}",
        severity="note" if constant else RULE.severity,
    )


INCORRECT = (
    # a default that says something, and keywords that are told apart under its name
    """
def split(prefix, options):
    own = {name[len(prefix):]: value for name, value in options.items() if name.startswith(prefix)}
    return own, {name: value for name, value in options.items() if not name.startswith(prefix)}

class Model:
    def __init__(self, dim, quantizer_options: dict = dict(gamma=4.0), **options):
        quantizer_options, options = split("quantizer_", options)  # error: MP156
        self.dim, self.options = dim, options
        self.quantizer = dict(**quantizer_options)

Model(8, quantizer_options=dict(gamma=1.0))
""",
    # on both ways; by a loop
    """
def schedule(steps, warmup, name="cosine"):
    if steps > 100:
        warmup = steps // 10  # error: MP156
    else:
        warmup = steps // 2
    for name in ("linear", "constant"):  # error: MP156
        print(name)
    return warmup

def train(args):
    return schedule(args.steps, args.warmup)
""",
    # switched off: a note
    """
def settings(offload, compiled=False):
    compiled = False  # error: MP156
    return {"offload": offload, "compiled": compiled}

def train(args):
    return settings(args.offload, compiled=args.compiled)
""",
)

CORRECT = (
    # read first, on one way at least, by what it becomes, by a function inside, by all variables
    """
def split(prefix, options):
    return {}, options

def first(rate=0.1, steps=10, warmup=5, kind="cosine", decay=0.5):
    rate = float(rate)
    if steps is None:
        steps = 100
    try:
        warmup = int(warmup)
    except ValueError:
        print(warmup)
    def inner():
        return kind
    before = inner()
    kind = "linear"
    return rate, steps, warmup, before, kind, decay

def second(rate=0.1):
    before = dict(locals())
    rate = 2
    return before, rate

first(1, 2, 3, "a", 1)
second(3)
""",
    # nothing is passed, or just what is put there; deleted; a name that says so
    """
import argparse

def main(args=None):
    args = argparse.ArgumentParser().parse_args()
    return args

def place(config, device, _step=1, unused=2):
    del unused
    device = config.device
    _step = 2
    return device, _step

def run(config):
    main()
    main(None)
    return place(config, config.device)
""",
    # others say what it takes: a base, a class beside it, a library
    """
import argparse
from lightning import Callback

class Base:
    def step(self, batch, rate=0.1):
        return batch, rate

class Fixed(Base):
    def step(self, batch, rate=0.1):
        rate = self.rate
        return batch, rate

class Hook(Callback):
    def on_epoch(self, trainer, epoch=1):
        epoch = trainer.epoch
        return epoch

def fit(kind, batch):
    Hook().on_epoch(batch, 3)
    Fixed().step(batch, 0.2)
    return Base().step(batch, 0.2)
""",
    # the function gets what is passed all the same
    """
def rounded(frames, requested, step):
    frames = requested // step * step
    return frames

def sample(count, step):
    return rounded(count, count, step)

def plan(kinds, seed):
    def build(kind, seed_of_all):
        seed_of_all = kinds[kind]
        return seed_of_all, seed

    return [build(kind, seed) for kind in kinds], sample(3, 2)

plan({"a": 1}, 7)
""",
)

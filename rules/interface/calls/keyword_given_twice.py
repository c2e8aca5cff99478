"""A keyword that a call gets by its name and once more through `**kwargs`.

What it does
    Reports calls `f(step=x, **kwargs)` where the `**kwargs` of the function around holds `step` as well: because a
    caller passes it and the function has no parameter of that name. Where nobody passes it, but the method overrides
    one that takes it, a note: whether somebody ever does is not in the source, and to fix the value may be what the
    override is for. Also `f(step=x, **options)` where `options` is a dictionary that is known to hold the key.
    Silent where the key is taken out before (`pop`, `del`, a decorator), or the dictionary may be another one.

Why is this bad
    It raises TypeError: got multiple values for keyword argument. A renamed parameter is enough: what was bound to it
    before now falls into `**kwargs`.

References
    https://docs.python.org/3/reference/expressions.html#calls
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.binding import keeps_signature
from validator.finding import Finding, Related, Severity
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.values.demands import only_target
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP137", "keyword-given-twice", "error", stable_since="0.3.0", solves=True)

_CHANGING = frozenset({"pop", "clear", "update"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program():
        for call in queries.calls_in(unit):
            names = call.value.data.names
            named = [name for name in names if name not in (None, "*", "**", "@")]
            for index, name in enumerate(names) if named else ():
                if name == "**":
                    yield from _given_twice(queries, call, call.operand(index + 1), named)


def _given_twice(queries: Queries, call: Place, spread: Place, named: list[str]) -> Iterator[Finding]:
    root = spread.root
    position = root.value.data[0] if root.value.op == "param" else -1
    if position >= 0 and call.unit.code.params[position][1] == "**":
        if call.unit.method is not None and not keeps_signature(call.unit.method):
            return  # what a decorator takes out of the keywords does not arrive
        own = {name for name, _ in call.unit.code.params}
        for name in named:
            if name not in own and not _is_taken_out(call.unit, root.number, name):
                yield from _of_callers(queries, call, name)
    elif root.value.op in ("dict", "call", "attr", "item", "param"):
        held = spread.closed
        units = [call.unit, *({each.unit for each in queries.calls_of(call.unit)} if position >= 0 else ())]
        for name in named:
            if _is_taken_out(call.unit, root.number, name) or any(_takes_out(unit, name) for unit in units):
                continue
            has = held.objs and all(o[0] == "dict" and any(key == name for key, _ in o[1]) for o in held.each)
            if has and not any(_puts_at_times(unit, name) for unit in (*units, *queries.targets(root))):
                yield _report(call, name, "the dictionary that it unpacks holds it too", [], RULE.severity)


def _of_callers(queries: Queries, call: Place, name: str) -> Iterator[Finding]:
    """A keyword that callers of the function pass, or would pass to the method that it overrides."""
    callers = [caller for caller in queries.calls_of(call.unit) if only_target(caller) is call.unit]
    if call.unit.method is not None and call.unit.method.facts.decorators:  # what decorates it calls it
        callers = list(_asking(queries, call.unit.method))
    passing = [caller for caller in callers if name in caller.value.data.names]
    if passing:
        at = [Related(caller.unit.path, caller.at[0], f"`{name}` is passed here") for caller in passing[:4]]
        yield _report(call, name, "callers pass it, and it falls into `**kwargs`", at, RULE.severity)
    elif (base := _base_with(call.unit.method, name)) is not None:
        at = [Related(base.path, base.facts.name_at[0], f"`{base.qualname}` is defined here")]
        yield _report(call, name, f"who calls it as `{base.qualname}` passes it, into `**kwargs`", at, "note")


def _asking(queries: Queries, method: Method) -> Iterator[Place]:
    """The calls of the program that ask an object of its class for a method."""
    objects = queries.project.analysis(Objects)
    for call in queries.called_in_program(frozenset({method.name})):
        receiver = call.receiver
        if receiver is not None and method.cls in objects.held(receiver, call).classes:
            yield call


def _base_with(method: Method | None, name: str) -> Method | None:
    """The method that one overrides, where that has a parameter of a name."""
    for above in method.cls.mro[1:] if method is not None and method.cls is not None else ():
        base = above.methods.get(method.name) if method is not None else None
        if base is not None:
            return base if any(param.name == name for param in base.facts.params) and base.name != "__init__" else None
    return None


def _takes_out(unit: Unit, name: str) -> bool:
    """Whether a unit takes a key of that name out of whatever dictionary."""
    values = unit.code.values
    calls = (value for value in values if value.op == "call" and len(value.args) > 1)
    return any(values[call.args[0]].data == "pop" and values[call.args[1]].data == name for call in calls)


def _puts_at_times(unit: Unit, name: str) -> bool:
    """Whether a unit puts a key of that name into a dictionary under a condition: it may as well not be there."""
    values = unit.code.values
    for value in values:
        if value.op == "store_item":
            puts = values[value.args[1]].data == name
        else:
            puts = value.op == "call" and values[value.args[0]].data == "update" and name in value.data.names
        if puts and unit.control.deciding(value.block):
            return True
    return False


def _is_taken_out(unit: Unit, number: int, name: str) -> bool:
    """Whether a unit takes a key out of a dictionary, or puts other things in its place."""
    values = unit.code.values
    for value in values:
        if value.op == "delete" and unit.root(value.args[0]) == number:
            return True
        callee = values[value.args[0]] if value.op == "call" else value
        if callee.op == "attr" and callee.data in _CHANGING and unit.root(callee.args[0]) == number:
            key = values[value.args[1]] if callee.data == "pop" and len(value.args) > 1 else None
            if key is None or key.op != "const" or key.data == name:
                return True
    return False


def _report(call: Place, name: str, why: str, related: list[Related], severity: Severity) -> Finding:
    given = next(i for i, each in enumerate(call.value.data.names) if each == name)
    return RULE.finding(
        call.unit.path,
        call.operand(given + 1).seen_from(call),
        f"`{call.text}`{call.where} passes `{name}` twice: {why}",
        help=f"make `{name}` a parameter of the function, or take it out of what is unpacked",
        related=related,
        context=f"{call.unit.qualname}:{call.method}:{name}",
        severity=severity,
    )


_TRACKERS = """\
class Tracker:
    def log(self, values, step=None, **kwargs):
        raise NotImplementedError


class Console(Tracker):
    def __init__(self, run):
        self.run = run

    def log(self, values, {step}=None, **kwargs):
        self.run.log(values, step={step}, **kwargs){mark}


def train(strategy, run):
    Console(run).log({{"loss": 1.0}}, step=3, commit=True)
"""

INCORRECT = (
    _TRACKERS.format(step="global_step", mark="  # error: MP137"),
    """\
class Tracker:
    def log(self, values, step=None, **kwargs):
        raise NotImplementedError


class Board(Tracker):
    def __init__(self, run):
        self.run = run

    def log(self, values, global_step=None, **kwargs):
        self.run.log(values, step=global_step, **kwargs)  # error: MP137


def ask(strategy, agent_name):
    query = {"prompt": "", "agent_name": agent_name}
    return strategy.generate(agent_name=agent_name, **query)  # error: MP137
""",
    # called through a decorator that hands everything on
    """\
from functools import wraps


def on_main(function):
    @wraps(function)
    def run(self, *args, **kwargs):
        if self.is_main:
            return function(self, *args, **kwargs)
        return None

    return run


class Board:
    def __init__(self, run, is_main):
        self.run, self.is_main = run, is_main

    @on_main
    def log(self, values, global_step=None, **kwargs):
        self.run.log(values, step=global_step, **kwargs)  # error: MP137


def train(strategy, run, trackers):
    for tracker in [Board(run, strategy.is_main())]:
        tracker.log({"loss": 1.0}, step=3)
""",
    """
from dataclasses import asdict, dataclass

@dataclass
class Averaging:
    bandwidth: float = 0.0
    timeout: float = 1.0

def averager(timeout, bandwidth=0.0):
    return timeout + bandwidth

def optimizer(options):
    return averager(timeout=2.0, **options)  # error: MP137

def main():
    return optimizer({**asdict(Averaging())})
""",
)

CORRECT = (
    _TRACKERS.format(step="step", mark=""),
    """\
from transformers.utils import can_return_tuple


def build(strategy, **kwargs):
    kwargs.pop("dtype", None)
    return strategy.make(dtype="bf16", **kwargs)


@can_return_tuple
def encode(strategy, **kwargs):
    return strategy.tower(return_dict=True, **kwargs)


def main(strategy, options):
    build(strategy, dtype="fp32")
    encode(strategy, return_dict=False)
    return strategy.make(dtype="bf16", **options)
""",
    """
from dataclasses import asdict, dataclass

@dataclass
class Averaging:
    bandwidth: float = 0.0

def averager(timeout, bandwidth=0.0):
    return timeout + bandwidth

def optimizer(options):
    return averager(timeout=2.0, **options)

def taken_out(options):
    timeout = options.pop("timeout")
    return averager(timeout=timeout, **options)

def also(options):
    return taken_out(options) + taken_out(dict(timeout=1.0, bandwidth=2.0))

def main(averaging, more):
    return optimizer({**asdict(Averaging())}) + optimizer(asdict(averaging)) + optimizer({"timeout": 1.0, **more})
""",
    # the key is there only for some rows
    """
def collate(rows):
    batch = dict(inputs=[row["inputs"] for row in rows])
    if "image" in rows[0]:
        batch["images"] = [row["image"] for row in rows]
    return batch

def evaluate(model, rows, images):
    return score(model, **collate(rows), images=images)

def score(model, inputs, images=None):
    return model(inputs, images)
""",
)

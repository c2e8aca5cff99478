"""A literal is passed where the function does something that values of its kind cannot do.

What it does
    Takes calls that pass a literal (a number, True or False, a text, a list, a tuple, a dictionary), and follows the
    parameter that gets it through the function and those that it is passed on to. Reports that the function goes
    through it, takes an item of it, calls it, asks for its length or for an attribute, where no value of its kind has
    that: `decode(batch, True)` for `def decode(batch, sizes=None)` that goes through `sizes`. An error where nothing
    else decides whether that is reached, a warning elsewhere. Tests of the parameter are followed (`if sizes is None:`,
    `isinstance(sizes, list)`), and silence what they ask in other ways. Silent where more than one function may be
    called, and in tests.

Why is this bad
    It raises TypeError or AttributeError. Mostly a parameter has come in between, and what is passed by position is
    meant for the one behind it.

References
    https://docs.python.org/3/reference/datamodel.html#emulating-container-types
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.values.demands import Demand, Demands, only_target, passed_to
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP162", "kind-refused", "error", "1.1", solves=True)

_DISPLAYS: dict[str, tuple[Any, Any]] = {"list": ([], [None]), "tuple": ((), (None,)), "dict": ({}, {None: None})}
_LITERALS = (bool, int, float, str, bytes, complex)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    demands = Demands(queries)
    for unit in queries.of_program():
        for call in queries.calls_in(unit) if not is_test(unit.path) else ():
            if any(_literal(call.value_at(number).root) is not None for number in call.value.args[1:]):
                yield from _refused(demands, call)


def _refused(demands: Demands, call: Place) -> Iterator[Finding]:
    target = _target(call)
    if target is None:
        return
    known, given = _constants(call, target)
    for position, place in given.items():
        literal = known[position]
        wanted = demands.of(target, position, known)
        refused = next((each for each in wanted if not each.is_met_by(type(literal))), None)
        if refused is not None:
            yield _report(call, place, literal, target, position, refused)


def _literal(place: Place) -> Any:
    """A constant that is written in a call, or one that stands for the list, tuple or dictionary there."""
    if place.value.op == "const" and isinstance(place.value.data, _LITERALS):
        return place.value.data
    return _DISPLAYS[place.value.op][bool(place.value.args)] if place.value.op in _DISPLAYS else None


def _target(call: Place) -> Unit | None:
    """The one function that a call surely runs, as it is written: a decorator may make something else of arguments."""
    target = only_target(call) if not (call.operations or call.is_tried) else None
    plain = target is not None and target.method is not None and not target.method.facts.decorators
    return target if plain else None


def _constants(call: Place, target: Unit) -> tuple[dict[int, Any], dict[int, Place]]:
    """The parameters that are constants in a call, by position, with the defaults of those that it does not pass; and
    where those stand that it does."""
    known: dict[int, Any] = {}
    given: dict[int, Place] = {}
    told = not any(name in ("*", "**") for name in call.value.data.names)
    for position, number in passed_to(call, target):
        if number is not None:
            place = call.value_at(number).root
            if (literal := _literal(place)) is not None:
                known[position], given[position] = literal, place
            elif place.value.op == "const" and place.value.data is None:
                known[position] = None
        elif told:
            default = call.flow.parameters.default(target, target.code.params[position][0])
            if default.constant() is not None or default.is_const(None):
                known[position] = default.constant()
    return known, given


def _report(call: Place, given: Place, literal: Any, target: Unit, position: int, refused: Demand) -> Finding:
    name, kind = target.code.params[position][0], type(literal).__name__
    where = refused.place.unit
    return RULE.finding(
        call.unit.path,
        given.seen_from(call),
        f"`{given.text}`{call.where} is passed for `{name}` of `{target.qualname}`, and `{where.qualname}`"
        f" {refused.told}: no `{kind}` can do that",
        help="pass it by keyword to the parameter that it is meant for",
        related=[Related(where.path, refused.place.at[0], "that is done here")],
        context=f"{call.unit.qualname}:{target.qualname}:{name}",
        severity="error" if refused.sure else "warning",
    )


_DECODER = """\
class Trainer:
    def decode(self, prompts, samples, prompt_sizes=None, append_eos=False):
        if prompt_sizes is None:
            prompt_sizes = [prompts.shape[1]] * len(prompts)
        found = []
        for prompt, sample, size in zip(prompts, samples, prompt_sizes):
            found.append(sample[size:])
        return found

    def rollout(self, batch, samples):
        return self.decode(batch.input_ids, samples, {given})
"""

INCORRECT = (
    _DECODER.format(given="True)  # error: MP162").replace("MP162)", "MP162"),
    """\
def add_hooks(model, hooks, name):
    for hook in hooks:
        model.register(hook)
    return name.lower()


def setup(model, settings, verbose):
    if verbose:
        add_hooks(model, 3, "a")  # error: MP162
    add_hooks(model, [print], 1.5)  # error: MP162


def save(writer, tags):
    return write(writer, tags)


def write(writer, tags):
    if writer.ready:
        writer.put(tags["step"])


save(open("log"), True)  # error: MP162
""",
)

CORRECT = (
    _DECODER.format(given="append_eos=True"),
    """\
def widths(sizes, count, reader, scale=1):
    if isinstance(sizes, int):
        sizes = [sizes] * count
    if not callable(reader):
        reader = open
    if hasattr(scale, "item"):
        scale = scale.item()
    try:
        names = list(scale)
    except TypeError:
        names = [scale]
    return [reader(each) for each in sizes], names


def one(kind, value):
    if kind == "list":
        return [each for each in value]
    return value


def first(sizes):
    if not sizes:
        return sizes.strip()
    return sizes[0]


widths(3, 2, "text", 2)
print(one("number", 4), one("list", "text"), "text"[0], len([1]), first([3]))
""",
    # a method that a decorator of the class puts in the place of another
    """\
def traced(name):
    def decorator(controller):
        process = controller.process

        def new_process(self, tasks):
            self.traces[name] = tasks
            return process(self, tasks)

        controller.process = new_process
        return controller

    return decorator


@traced("chat")
class Maker:
    def __init__(self):
        self.traces = {}

    def process(self, tasks):
        yield from tasks

    def generate(self, prompt):
        yield from self.process([prompt])


print(list(Maker().generate("a")))
""",
    # what is no object of a class of the project is made one; a test of which nothing is known
    """\
from rows import is_plain


class Batch(dict):
    def rows(self):
        return [self]


def log(found):
    if not isinstance(found, Batch):
        found = Batch(found)
    return found.rows()


def count(found):
    if is_plain(found):
        found = Batch(found)
    return found.rows()


print(log({"loss": 1.0}), count({"loss": 1.0}))
""",
)

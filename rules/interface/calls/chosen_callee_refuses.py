"""A call of one of several classes or functions, of which one does not take what is passed.

What it does
    Follows calls of what a condition, a table or a registry chose before: `cls = Sharded if args.sharded else Plain`,
    `import … as` in the arms of an `if`, `MODELS[name](config)`. Each of the classes and functions of the project that
    the function itself chooses among is asked by Python's rules whether it takes the arguments. Reported is the one
    that does not, where another does. Silent where a condition around the call has a name of those that choose, where
    callers pass what is called, where `**` or `*` passes something unknown, where something else may be called that
    nobody knows, where a decorator may change the signature, in tests, and for methods (MP103, MP133).

Why is this bad
    It raises TypeError with this one choice, which the configuration makes.

References
    https://docs.python.org/3/reference/expressions.html#calls
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.binding import Misfit, advice, misfit_of, written
from validator.analysis.interfaces.chosen import is_chosen_here
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.flow.callgraph.refusable_calls import Suspects
from validator.flow.objects import Callee, Objects, with_given
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP168", "chosen-callee-refuses", "warning", stable_since="1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    objects, suspects = project.analysis(Objects), project.analysis(Suspects)
    for function in project.functions():
        if is_test(function.path):
            continue
        for call in function.facts.calls:
            if any(argument.keyword in ("*", "**") for argument in call.args):
                continue
            if not suspects.may_refuse(function, call, False):
                continue
            place = objects.call_at(function.module, call.at)
            if place is not None and not place.is_switched_off and is_chosen_here(place):
                yield from _refusing(objects, function, call, place)


def _refusing(objects: Objects, function: Method, call: Call, place: Place) -> Iterator[Finding]:
    reached = objects.reached_by(place.operand(0), place)
    if len({each.place for each in reached.callees}) < 2:
        return
    rows = [(each, misfit_of(each.params, with_given(call, each))) for each in reached.callees]
    fitting = [each for each, misfit in rows if misfit is None]
    refusing = [(each, misfit) for each, misfit in rows if misfit is not None]
    if fitting and refusing:
        yield _report(function, place, call, fitting, refusing)


def _report(
    function: Method, place: Place, call: Call, fitting: list[Callee], refusing: list[tuple[Callee, Misfit]]
) -> Finding:
    (callee, misfit), *others = refusing
    apart = len({each.name for each in (*fitting, callee)}) > 1
    takes = " and ".join(f"`{_named(each, apart)}`" for each in fitting[:3])
    what = place.operand(0).text
    where = "" if function.qualname == "<module>" else f" in `{function.qualname}`"
    return RULE.finding(
        function.module.path,
        misfit.at if misfit.kind != "missing" else call.name_at,
        f"`{what}(…)`{where} may call `{_named(callee, apart)}`, which refuses it: "
        f"`{written(callee.name, callee.params)}` {misfit.message}; it fits {takes}",
        help=f"{advice(misfit)}, or pass each what it takes",
        related=[
            Related(each.place.path, each.place.facts.name_at[0], f"`{written(each.name, each.params)}` {why.message}")
            for each, why in ((callee, misfit), *others)
        ],
        context=f"{function.qualname}:{what}:{callee.name}",
    )


def _named(callee: Callee, apart: bool) -> str:
    """What tells one of several from the others: its name, or its module if they are named alike."""
    return callee.name if apart else f"{callee.place.module.name}.{callee.name}"


INCORRECT = (
    # a class that a flag chooses
    """\
import argparse


class Naive:
    def __init__(self, tokenizer, config):
        self.tokenizer, self.config = tokenizer, config


class Prime:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--prime", action="store_true")
    args = parser.parse_args()
    if args.prime:
        manager = Prime
    else:
        manager = Naive
    print(manager("tokenizer", config=None).tokenizer)  # error: MP168


if __name__ == "__main__":
    main()
""",
    # an entry of a table, and what a function gives
    """\
def constant(step, warmup):
    return 1.0 if step > warmup else step / warmup


def exponential(step, rate, total):
    return rate ** (step / total)


SCHEDULES = {"constant": constant, "exp": exponential}


def schedule(smooth):
    return exponential if smooth else constant


class Optimizer:
    def __init__(self, groups):
        self.groups = groups

    def step(self, step):
        for group in self.groups:
            if group["total"] > 0:
                chosen = SCHEDULES[group["schedule"]]
                group["lr"] *= chosen(step, group["warmup"])  # error: MP168


def rate(step, smooth):
    return schedule(smooth)(step, 0.9, 100)  # error: MP168
""",
)

CORRECT = (
    # a condition around the call, before it, or on what was set beside, tells which it is; who is not taken is caught
    """\
class Plain:
    def __init__(self, config):
        self.config = config


class Sharded:
    def __init__(self, config, world):
        self.config, self.world = config, world


MODELS = {"plain": Plain, "sharded": Sharded}


def build(args, config):
    model = Sharded if args.sharded else Plain
    if args.sharded:
        return model(config, 8)
    return model(config)


def with_world(args, config):
    world, model = None, Plain
    if args.sharded:
        world, model = 8, Sharded
    return model(config, world) if world else model(config)


def sized(args, config):
    world = 8 if args.sharded else None
    model = Sharded if args.sharded else Plain
    return model(config, world) if world else model(config)


def by_name(name, config):
    model = MODELS[name]
    if name == "sharded":
        return model(config, 8)
    return model(config)


def refused(name, config):
    if name == "sharded":
        raise ValueError(name)
    return MODELS[name](config)


def asserted(name, config):
    assert name != "sharded"
    return MODELS[name](config)


class Built:
    def __init__(self, kind, config):
        self.is_sharded = kind == "sharded"
        if kind == "sharded":
            model = Sharded
        else:
            model = Plain
        if self.is_sharded:
            self.model = model(config, 8)
        else:
            self.model = model(config)


def asked(name, config):
    model = MODELS[name]
    return model(config, 8) if issubclass(model, Sharded) else model(config)


def tried(name, config):
    try:
        return MODELS[name](config, 8)
    except TypeError:
        return MODELS[name](config)
""",
    # what callers choose, what all take, what a dictionary passes
    """\
class Plain:
    def __init__(self, config, **kwargs):
        self.config = config


class Sharded:
    def __init__(self, config, world=1):
        self.config, self.world = config, world


def build(cls, config):
    return cls(config)


def chosen(args, config, kwargs):
    model = Sharded if args.sharded else Plain
    return model(config, world=8), model(config, **kwargs)
""",
)

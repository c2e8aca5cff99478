"""One counter for all the models that a strategy steps.

What it does
    Reports a method that callers use for several models (different `name=` or different model arguments) and
    that counts its calls in one attribute (`self.n += 1`) which decides, by `%`, when something happens. A counter
    for each model (`self.n[name] += 1`, an attribute of the model or the optimizer) is silent.

Why is this bad
    With two models the count runs twice as fast: each optimizer steps after half of its micro-batches, or one of
    them always and the other never.

References
    https://pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.interfaces.binding import bind
from validator.analysis.interfaces.families import Family
from validator.analysis.interfaces.reach import self_name
from validator.analysis.interfaces.uses import Use, Uses, called_in, open_uses
from validator.facts.model import At
from validator.finding import Finding, Related
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP110", "counter-shared-by-models", "warning", stable_since="0.1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        names = project.analysis(Uses).names(family)
        for cls in family.members:
            for name in names:
                method = cls.methods.get(name)
                for counter, at in _counters(method) if method is not None else ():
                    gate = _gate(cls, counter)
                    if method is not None and gate is not None:
                        yield from _check(project, family, cls, method, counter, at, gate)


def _counters(method: Method) -> Iterator[tuple[str, At]]:
    """Attributes of the object that a method increments by one, with the place."""
    own = self_name(method)
    for row in method.facts.assigns:
        attribute = row.target.removeprefix(f"{own}.")
        if attribute == row.target or not attribute.isidentifier():
            continue
        if row.kind == "aug" and row.value == "1" or row.value == f"{row.target} + 1":
            yield attribute, row.at


def _gate(cls: ClassDef, counter: str) -> tuple[Method, int] | None:
    """The condition that takes the counter modulo something: its method and line."""
    modulo = re.compile(rf"\bself\.{counter}\s*%")
    for method in cls.methods.values():
        facts = method.facts
        rows = (facts.calls, facts.returns, facts.assigns, facts.refs)
        for guard in (guard for kind in rows for row in kind for guard in row.guards):
            if guard.kind == "if" and modulo.search(guard.text):
                return method, guard.line
    return None


def _check(
    project: Project, family: Family, cls: ClassDef, method: Method, counter: str, at: At, gate: tuple[Method, int]
) -> Iterator[Finding]:
    uses = [use for use in open_uses(project, family, method.name) if cls in use.classes]
    gated = [use for use in open_uses(project, family, gate[0].name) if cls in use.classes]
    models = sorted(_models(method, uses) or _models(gate[0], gated))
    if len(models) < 2:
        return
    listed = " and for ".join(f"`{model}`" for model in models[:2])
    yield RULE.finding(
        method.path,
        at,
        f"`{cls.name}.{method.name}` counts the calls for {listed} together in `self.{counter}`; "
        f"`{gate[0].name}` goes by that count and so acts at the wrong time for each of them",
        help=f"keep one count for each model, for example a dict by name: `self.{counter}[name] += 1`",
        related=[Related(gate[0].path, gate[1], "the count decides here"), *called_in(uses)],
        context=f"{cls.qualname}.{method.name}:{counter}",
    )


def _models(method: Method, uses: list[Use]) -> set[str]:
    """What callers tell the models apart by: names, else the model arguments."""
    found: dict[str, set[str]] = {"name": set(), "model": set()}
    for use in uses:
        arguments = bind(method, use.call)
        for key, values in found.items():
            argument = arguments.get(key) or use.call.keyword(key)
            if argument is not None and argument.kind in ("const", "path"):
                values.add(argument.value.rpartition(".")[2].strip("'\""))
    return found["name"] if len(found["name"]) > 1 else found["model"] - {"model", "self"}


_EXAMPLE = """
class FsdpStrategy:
    def __init__(self, every):
        self.every = every
        self.count = {start}

    def backward(self, loss, model, name="model"):
        (loss / self.every).backward()
        {increment}

    def optimizer_step(self, optimizer, name="model"):
        if {test} % self.every != 0:
            return
        optimizer.step()

def get_strategy(args):
    return FsdpStrategy(args.every)

def train(args, actor, critic):
    strategy = get_strategy(args)
    strategy.backward(actor.loss, actor, name="actor")
    strategy.optimizer_step(actor.optimizer, name="actor")
    {second}
"""
_CRITIC = 'strategy.backward(critic.loss, critic, name="critic")'
_ONE = {"start": "0", "increment": "self.count += 1", "test": "self.count"}
_EACH = {"start": "{}", "increment": "self.count[name] = self.count.get(name, 0) + 1", "test": "self.count[name]"}

INCORRECT = [_EXAMPLE.format(**{**_ONE, "increment": "self.count += 1  # error: MP110"}, second=_CRITIC)]
CORRECT = [
    _EXAMPLE.format(**_EACH, second=_CRITIC),
    _EXAMPLE.format(**_ONE, second="print(strategy.every)"),
]

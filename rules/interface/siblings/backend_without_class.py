"""A backend that can be chosen and for which the factory has no class, or the other way round.

What it does
    Reads which option a factory of a family looks at (`args.backend`, `getattr(args, "backend", …)`) and which values
    it tells apart, and compares them with the `choices` of that option in the project's parsers. Reports a choice
    that the factory neither knows nor means by its default class, and a value that it tests and no parser offers.

Why is this bad
    `--backend megatron` is accepted and quietly trains with the default backend; or a backend that was written
    cannot be chosen.

References
    https://docs.python.org/3/library/argparse.html#choices
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.bodies import Bodies
from validator.analysis.interfaces.families import Family
from validator.facts.model import At
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP113", "backend-without-class", "error", stable_since="0.1.0", solves=True)


class Offer(NamedTuple):
    """An option of some parser: where it is added, its choices (None: any text) and their place."""

    function: Method
    choices: tuple[str, ...] | None
    at: At


class Test(NamedTuple):
    """A value that a factory compares an option with."""

    option: str
    value: str
    line: int
    column: int


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        if family.factory is None or not project.analysis(Objects).results(family.factory):
            continue
        tests = list(_tests(project, family.factory))
        for option in sorted({test.option for test in tests}):
            offers = list(_offers(project, option))
            if offers:
                known = [test for test in tests if test.option == option]
                yield from _unknown_choices(project, family, family.factory, option, known, offers)
                yield from _never_offered(family.factory, option, known, offers)


def _unknown_choices(
    project: Project, family: Family, factory: Method, option: str, tests: list[Test], offers: list[Offer]
) -> Iterator[Finding]:
    known = {test.value for test in tests}
    names = [_plain(cls.name) for cls in project.analysis(Objects).results(factory)]
    for offer in offers:
        rest = [choice for choice in offer.choices or () if choice not in known]
        nameless = [choice for choice in rest if not any(_plain(choice) in name for name in names)]
        # one value that the factory does not test is its default, whatever it is called
        for choice in nameless if len(rest) > 1 else ():
            yield RULE.finding(
                offer.function.path,
                offer.at,
                f'`--{option}` offers "{choice}", for which `{factory.name}` has no class: it falls through to '
                f"the default",
                help=f"give `{factory.name}` a branch for it, or take it out of the choices",
                related=[Related(factory.path, factory.facts.name_at[0], "the factory")],
                context=f"{option}={choice}",
            )


def _never_offered(factory: Method, option: str, tests: list[Test], offers: list[Offer]) -> Iterator[Finding]:
    if any(offer.choices is None for offer in offers):
        return
    offered = {choice for offer in offers for choice in offer.choices or ()}
    for test in tests:
        if test.value not in offered:
            yield RULE.finding(
                factory.path,
                (test.line, test.column, test.line, test.column + len(test.value) + 2),
                f'`{factory.name}` tests for `{option}` "{test.value}", which no parser offers '
                f"(they offer {', '.join(sorted(offered))})",
                help="add it to the choices of the option, or remove the branch",
                related=[Related(offers[0].function.path, offers[0].at[0], "the option is defined here")],
                context=f"{option}={test.value}",
            )


def _plain(text: str) -> str:
    return re.sub(r"[\W_]", "", text).lower()


# -- what the factory tells apart ------------------------------------------------------------------------------


def _tests(project: Project, factory: Method) -> Iterator[Test]:
    node = project.analysis(Bodies).node(factory)
    if node is None:
        return
    bound: dict[str, str] = {}
    for each in ast.walk(node):
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            bound[each.targets[0].id] = _option(each.value)
    text = factory.module.source_text
    for each in ast.walk(node):
        if isinstance(each, ast.Compare) and len(each.ops) == 1:
            left = each.left
            name = bound.get(left.id, "") if isinstance(left, ast.Name) else _option(left)
            for value in _values(each.comparators[0]) if name else ():
                at = text.at(value)
                yield Test(name, str(value.value), at[0], at[1])


def _option(node: ast.expr) -> str:
    """The option that an expression reads: `args.backend`, `getattr(args, "backend", …)`; else empty."""
    if isinstance(node, ast.Attribute) and "args" in ast.unparse(node.value):
        return node.attr
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
        holder, name = node.args[:2]
        return str(name.value) if "args" in ast.unparse(holder) and isinstance(name, ast.Constant) else ""
    return ""


def _values(node: ast.expr) -> list[ast.Constant]:
    parts = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return [part for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


# -- what parsers offer ----------------------------------------------------------------------------------------


def _offers(project: Project, option: str) -> Iterator[Offer]:
    for function, call in project.calls("add_argument"):
        names = [a.value.strip("'\"").lstrip("-").replace("-", "_") for a in call.positional]
        if any(name == option or name.rpartition(".")[2] == option for name in names):
            choices = call.keyword("choices")
            yield Offer(function, _literal(choices.value) if choices is not None else None, call.at)


def _literal(text: str) -> tuple[str, ...] | None:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list | tuple | set) else None


_EXAMPLE = """
import argparse

class DeepspeedStrategy:
    def backward(self, loss, model): model.backward(loss)

class FsdpStrategy:
    def backward(self, loss, model): loss.backward()

def get_strategy(args):
    if args.backend == {tested}:
        return FsdpStrategy()
    return DeepspeedStrategy()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices={choices}
    get_strategy(parser.parse_args()).backward(None, None)
"""

INCORRECT = [
    _EXAMPLE.format(tested='"fsdp"', choices='["deepspeed", "fsdp", "megatron"])  # error: MP113'),
    _EXAMPLE.format(tested='"fsdp2"', choices='["deepspeed", "fsdp"])').replace(
        'if args.backend == "fsdp2":', 'if args.backend == "fsdp2":  # error: MP113'
    ),
]
CORRECT = [
    _EXAMPLE.format(tested='"fsdp"', choices='["deepspeed", "fsdp"])'),
    _EXAMPLE.format(tested='"fsdp"', choices='["zero", "fsdp"])'),
    _EXAMPLE.format(tested='"fsdp"', choices="BACKENDS)"),
]

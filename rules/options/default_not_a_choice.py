"""A default that is none of the option's own choices.

What it does
    Reports a literal default of an `add_argument(…)`, of a field whose metadata lists `choices`, or of a field or a
    parameter that is annotated with `Literal[…]`, that is not among them; and the default of an option that the
    program hands on to a place which takes some names only (`OPTIMIZERS[args.optim]`, see MP315) and not this one.

Why is this bad
    `argparse` does not check defaults: the program starts, and fails or takes another way where the value is used; this
    is a warning. A parser that is made from data classes refuses it at once.

References
    https://docs.python.org/3/library/argparse.html#choices
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from validator.analysis.options.accepted import Accepted
from validator.analysis.options.parsers import Options
from validator.facts.model import At
from validator.finding import Finding
from validator.flow import Flow
from validator.flow.annotations import choices
from validator.flow.program.unit import Unit
from validator.flow.values import BOTTOM, join
from validator.ir.model import Value
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule(
    "MP305",
    "default-not-a-choice",
    "error",
    stable_since="0.2.0",
    tokens=("choices", "Literal", "default"),
    solves=True,
)


def check_project(project: Project) -> Iterator[Finding]:
    flow = project.analysis(Flow)
    for module in project.modules.values():
        if "choices" in module.source.text:
            for unit in flow.whole_units(module):
                yield from _of_calls(unit)
        if "Literal" in module.source.text:
            for cls in module.classes.values():
                yield from _of_fields(flow, cls)
            for function in module.functions.values():
                yield from _of_parameters(function)
    yield from _of_options(project)


def _of_options(project: Project) -> Iterator[Finding]:
    """Defaults that the program looks up in vain, or refuses."""
    if not project.analysis(Options).parsers:
        return
    told = set()
    for (parser, name), rows in project.analysis(Accepted).options.items():
        option = parser.option(name)
        text = option.default if option is not None and option.type in ("", "str") else None
        asked = next((each for each in rows if isinstance(text, str) and each.refuses(text)), None)
        if option is None or asked is None or not isinstance(text, str) or (option.path, option.at) in told:
            continue
        told.add((option.path, option.at))
        yield RULE.finding(
            option.path,
            option.at,
            f"the default {text!r} of `{option.flags[0] if option.flags else name}`: {asked.told(text)}",
            help=asked.advice(text),
            related=[asked.related],
            context=f"{name}:{text}",
            severity="warning",
        )


def _of_calls(unit: Unit) -> Iterator[Finding]:
    """`add_argument("--sync", choices=[…], default=…)`, `field(default=…, metadata={"choices": […]})`."""
    for call in unit.code.values:
        if call.op != "call" or "default" not in call.data.names or "nargs" in call.data.names:
            continue
        default = unit.code.values[call.args[1 + call.data.names.index("default")]]
        if default.op == "const":
            checked = "metadata" in call.data.names
            yield from _check(
                unit.path, unit.at(default.at), unit.qualname, default.data, _choices(unit, call), checked
            )


def _of_fields(flow: Flow, cls: ClassDef) -> Iterator[Finding]:
    """`mode: Literal["disk", "nccl"] = "xccl"`, or with a `field(default=…)`."""
    body = flow.body_of(cls)
    rows = cls.module.functions.get(f"{cls.qualname}.<class>")
    for name, annotation in cls.facts.attributes if body is not None and rows is not None else ():
        allowed = choices(annotation) if "Literal" in annotation else None
        held = join(flow.result(body).class_names.get(name, ())) if allowed and body is not None else BOTTOM
        at = next((row.at for row in rows.facts.assigns if row.target == name), None) if rows is not None else None
        for o in held.each if at is not None else ():
            if o[0] == "const" and at is not None:
                yield from _check(cls.path, at, f"{cls.qualname}.{name}", o[2], allowed)


def _of_parameters(function: Method) -> Iterator[Finding]:
    for param in function.facts.params:
        allowed = choices(param.annotation) if param.default is not None and "Literal" in param.annotation else None
        if allowed:
            try:
                default = ast.literal_eval(param.default or "")
            except (ValueError, SyntaxError):
                continue
            yield from _check(function.path, param.at, f"{function.qualname}:{param.name}", default, allowed)


def _choices(unit: Unit, call: Value) -> list[object] | None:
    for name, number in zip(call.data.names, call.args[1:], strict=True):
        value = unit.code.values[number]
        if name == "choices":
            return _elements(unit, number)
        if name == "metadata" and value.op == "dict":
            for key, held in zip(value.args[::2], value.args[1::2], strict=True):
                if key >= 0 and unit.code.values[key].data == "choices":
                    return _elements(unit, held)
    return None


def _elements(unit: Unit, number: int) -> list[object] | None:
    """The elements of a literal list; None where one of them is computed."""
    value = unit.code.values[number]
    parts = [unit.code.values[each] for each in value.args]
    if value.op not in ("list", "tuple", "set") or any(part.op != "const" for part in parts):
        return None
    return [part.data for part in parts]


def _check(
    path: str, at: At, context: str, default: object, known: list[object] | None, checked: bool = True
) -> Iterator[Finding]:
    if not known or default is None or default in known:
        return
    if not all(type(each) is type(default) for each in known if each is not None):
        return
    listed = ", ".join(repr(each) for each in known[:6] if each is not None)
    yield RULE.finding(
        path,
        at,
        f"the default {default!r} is none of the choices {listed}",
        help="take one of them, or add it",
        context=f"{context}:{default}",
        severity="error" if checked else "warning",
    )


_MODES = """from dataclasses import dataclass, field
from typing import Literal, Optional


@dataclass
class Weights:
    mode: Literal["disk", "xccl"] = "{mode}"{mark}
    loss: Optional[Literal["sigmoid", "hinge"]] = field(default="{loss}"){mark}
    any: Literal["fast"] | str = "slow"


def send(weights, how: Literal["push", "pull"] = "{how}"):{mark}
    return weights, how
"""
_LOOKED_UP = """import argparse

OPTIMIZERS = dict(adam=dict, sgd=list)


def build(name):
    return OPTIMIZERS[name]()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--optim", default="{name}"){mark}
    args = parser.parse_args()
    {test}build(args.optim)


main()
"""

INCORRECT = (
    _LOOKED_UP.format(name="adamw", mark="  # error: MP305", test=""),
    _MODES.format(mode="nccl", loss="dpo", how="poll", mark="  # error: MP305"),
    """import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--sync", choices=["disk", "xccl"], default="nccl")  # error: MP305
""",
    """from dataclasses import dataclass, field


@dataclass
class Weights:
    mode: str = field(
        default="nccl",  # error: MP305
        metadata={"help": "how weights are sent", "choices": ["disk", "xccl"]},
    )
""",
)
CORRECT = (
    _LOOKED_UP.format(name="sgd", mark="", test=""),
    _LOOKED_UP.format(name="none", mark="", test='if args.optim != "none": '),
    _MODES.format(mode="xccl", loss="hinge", how="pull", mark=""),
    """import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--sync", choices=["disk", "xccl"], default="xccl")
parser.add_argument("--stage", choices=[0, 1, 2, 3], default=None)
parser.add_argument("--axes", choices=["dp", "tp"], default="dp,tp", nargs="*")
parser.add_argument("--level", type=int, choices=[1, 2], default="1")
""",
    """from dataclasses import dataclass, field


@dataclass
class Weights:
    mode: str = field(default="xccl", metadata={"choices": ["disk", "xccl"]})
""",
)

"""A default that is none of the option's own choices.

What it does
    Reports a literal default of an `add_argument(…)`, or of a field whose metadata lists `choices`, that is not among
    them.

Why is this bad
    `argparse` does not check defaults: the program starts, and fails or takes another way where the value is used. A
    parser that is made from data classes refuses it at once.

References
    https://docs.python.org/3/library/argparse.html#choices
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.ir.model import Value
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP305", "default-not-a-choice", "error", stable_since="0.2.0", tokens=("choices",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    from validator.flow import Flow, Unit

    flow = project.analysis(Flow)

    def literals(unit: Unit, number: int) -> list[object] | None:
        """The elements of a literal list; None where one of them is computed."""
        value = unit.code.values[number]
        parts = [unit.code.values[each] for each in value.args]
        if value.op not in ("list", "tuple", "set") or any(part.op != "const" for part in parts):
            return None
        return [part.data for part in parts]

    def choices(unit: Unit, call: Value) -> list[object] | None:
        for name, number in zip(call.data.names, call.args[1:], strict=True):
            value = unit.code.values[number]
            if name == "choices":
                return literals(unit, number)
            if name == "metadata" and value.op == "dict":
                for key, held in zip(value.args[::2], value.args[1::2], strict=True):
                    if key >= 0 and unit.code.values[key].data == "choices":
                        return literals(unit, held)
        return None

    for module in project.modules.values():
        if "choices" not in module.source.text:
            continue
        for unit in flow.units_of(module).values():
            for call in unit.code.values:
                if call.op != "call" or "default" not in call.data.names:
                    continue
                known = choices(unit, call)
                default = unit.code.values[call.args[1 + call.data.names.index("default")]]
                if not known or default.op != "const" or default.data is None or default.data in known:
                    continue
                if not all(type(each) is type(default.data) for each in known) or "nargs" in call.data.names:
                    continue
                listed = ", ".join(map(repr, known[:6]))
                yield RULE.finding(
                    unit.path,
                    unit.at(default.at),
                    f"the default {default.data!r} is none of the choices {listed}",
                    help="take one of them, or add it",
                    context=f"{unit.qualname}:{default.data}",
                )


INCORRECT = (
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

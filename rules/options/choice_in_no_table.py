"""A choice that an option offers, and under which the program looks something up in vain.

What it does
    Follows the value of an option with `choices` to the tables in which the program looks it up: a dictionary that is
    written out, with all that code adds to it, or the names of a module (`getattr(models, args.model)`). Reports a
    choice that such a table does not have. Silent where the table is handed on or filled with what is not known, where
    the error is caught, and where a condition on the way, or any comparison with the option, names the choice: it may
    be dealt with there.

Why is this bad
    The help offers it, and whoever takes it gets a KeyError, often after the model and the data were loaded. The name
    was changed in one of the two places.

References
    https://docs.python.org/3/library/argparse.html#choices
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.accepted import Accepted, Asked
from validator.analysis.options.option import Option
from validator.analysis.options.parsers import Options
from validator.errors import nearest
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP326", "choice-in-no-table", "warning", "1.0", tokens=("choices",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    if not project.analysis(Options).parsers:
        return
    told: set[tuple[object, ...]] = set()
    for (parser, name), rows in project.analysis(Accepted).options.items():
        option = parser.option(name)
        for text, asked in _refused(option, rows) if option is not None else ():
            if option is not None and (option.path, option.at, text) not in told:
                told.add((option.path, option.at, text))
                yield _report(option, name, text, asked)


def _refused(option: Option, rows: list[Asked]) -> Iterator[tuple[str, Asked]]:
    """The choices of an option that a table lacks in which it is surely looked up; a default is another rule's."""
    asking = [each for each in rows if each.is_certain and (each.taken.table or each.taken.module is not None)]
    for text in option.choices if isinstance(option.choices, list | tuple) else ():
        asked = next((each for each in asking if isinstance(text, str) and each.refuses(text)), None)
        if isinstance(text, str) and asked is not None and text != option.default:
            yield text, asked


def _report(option: Option, name: str, text: str, asked: Asked) -> Finding:
    return RULE.finding(
        option.path,
        option.at,
        f"the choice {text!r} of `{option.flags[0] if option.flags else name}`: {asked.told(text)}",
        help=f"offer what is there, or add it{nearest(text, sorted(asked.taken.names))}",
        related=[asked.related],
        context=f"{name}:{text}",
    )


_TRAIN = """
import argparse

import torch


def dtype_of(args):
    {before}return {{"none": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}}[args.mixed_precision]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixed-precision", default="bf16", choices=["{choice}", "fp16", "bf16"]){mark}
    args = parser.parse_args()
    print(dtype_of(args))
"""

INCORRECT = [_TRAIN.format(before="", choice="fp32", mark="  # error: MP326")]

CORRECT = [
    _TRAIN.format(before="", choice="none", mark=""),
    _TRAIN.format(
        before='if args.mixed_precision == "fp32":\n        return torch.float32\n    ', choice="fp32", mark=""
    ),
]

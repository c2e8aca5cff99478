"""An option whose `type` makes of the text what nobody means: `type=bool`, `type=list`.

What it does
    Reports `add_argument(…, type=bool)`: the text is asked whether it is empty, so `--flag False` is `True`. An error
    where a script of the project gives such an option a text that says no; a warning where the default is true, since
    then nothing but an empty text turns it off; else a note. Likewise `type=list`, `tuple` and `set`, which take the
    text apart into letters, and `type=dict`, which refuses every text: an error where a script gives the option a
    value, else a note. Silent for parsers that are made from data classes: these read a `bool` as what it says.

Why is this bad
    What was switched off is on: the run trains with dropout, with offloading, without the reference model.

References
    https://docs.python.org/3/library/argparse.html#type
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.launch._reading.common import set_at
from validator.analysis.commands.command_line import CommandLines, Given
from validator.analysis.options.option import Option
from validator.analysis.options.parsers import Options
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP313", "made-of-letters", "error", "1.0", tokens=("add_argument",), solves=True)

_NO = frozenset({"false", "0", "no", "off", "none", "f", "n"})
_LETTERS = frozenset({"list", "tuple", "set"})


def check_project(project: Project) -> Iterator[Finding]:
    options = project.analysis(Options)
    rows = [option for parser in options.parsers if not parser.from_dataclasses for option in parser.options]
    wrong = {(o.path, o.at): o for o in [*rows, *(option for _, option in options.strays)] if _takes_apart(o)}
    if not wrong:
        return
    for launch, line in project.analysis(CommandLines).all:
        for given in line.given:
            option = given.option
            if option is not None and (option.path, option.at) in wrong and (why := _misread(given, option)):
                yield _of_script(given, launch.name, option, why)
    yield from map(_of_option, wrong.values())


def _takes_apart(option: Option) -> bool:
    return (
        option.type in _LETTERS | {"bool", "dict"}
        and option.action == "store"
        and (option.nargs in (None, "?") or option.type == "dict")
        and option.choices is None
    )


def _misread(given: Given, option: Option) -> str:
    """What becomes of a value that a script gives; empty where it is what was meant, or not known."""
    texts = [value.text for value in given.values]
    if not texts or any(value.many or "$" in value.text for value in given.values):
        return ""
    if option.type == "bool":
        return "is `True`: no text but an empty one is false" if texts[0].lower() in _NO else ""
    if option.type == "dict":
        return "is refused: `dict` does not take a text"
    return f"becomes a {option.type} of its letters" if len(texts[0]) > 1 else ""


def _of_script(given: Given, program: str, option: Option, why: str) -> Finding:
    return RULE.finding(
        given.flag.place.path,
        given.at,
        f"`{given.flag.text} {given.values[0].text}` of `{program}` {why}",
        help=_help(option),
        related=[*set_at(given), Related(option.path, option.at[0], f"`type={option.type}` is said here")],
        context=f"{program}:{given.flag.text}",
    )


def _of_option(option: Option) -> Finding:
    name = option.flags[0] if option.flags else option.dest
    if option.type == "bool":
        says = f"`{name} False` is `True`: `bool` asks a text only whether it is empty"
    elif option.type == "dict":
        says = f"`{name}` refuses every value: `dict` does not take a text"
    else:
        says = f"`{name}` takes its value apart into letters: `{option.type}` of a text"
    on = option.type == "bool" and option.default is True
    return RULE.finding(
        option.path,
        option.at,
        says + ("; it is on unless it is given, so nothing turns it off" if on else ""),
        help=_help(option),
        context=f"{name}:{option.type}",
        severity="warning" if on else "note",
    )


def _help(option: Option) -> str:
    if option.type == "bool":
        return "use `action=argparse.BooleanOptionalAction` or `store_true`, or a function that reads the text"
    return "use `nargs`" if option.type in _LETTERS else "use `type=json.loads`"


_PROGRAM = """# file: train.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--sync-bn", type=bool, default=True)  # error: MP313
parser.add_argument("--offload", type=bool, default=False)  # error: MP313
parser.add_argument("--targets", type=list)  # error: MP313
parser.add_argument("--extra", type=dict)  # error: MP313
args = parser.parse_args()
print(args.sync_bn, args.offload, args.targets, args.extra)
"""

INCORRECT = [
    _PROGRAM
    + """# file: run.sh
torchrun --nproc_per_node 8 train.py \\
    --sync-bn True \\
    --offload False \\  # error: MP313
    --targets q_proj,v_proj \\  # error: MP313
    --extra a=1  # error: MP313
""",
]

CORRECT = [
    """# file: train.py
import argparse


def truth(text):
    return text.lower() in ("true", "1")


parser = argparse.ArgumentParser()
parser.add_argument("--sync-bn", type=truth, default=True)
parser.add_argument("--offload", action=argparse.BooleanOptionalAction)
parser.add_argument("--targets", type=str, nargs="+")
parser.add_argument("--flags", type=bool, nargs="*", default=[])
args = parser.parse_args()
print(args.sync_bn, args.offload, args.targets, args.flags)
# file: run.sh
torchrun train.py --sync-bn False --no-offload --targets q_proj v_proj
""",
    """# file: train.py
from dataclasses import dataclass

from transformers import HfArgumentParser


@dataclass
class Settings:
    offload: bool = True


print(HfArgumentParser((Settings,)).parse_args_into_dataclasses()[0].offload)
# file: run.sh
python train.py --offload False
""",
]

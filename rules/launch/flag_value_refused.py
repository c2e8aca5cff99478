"""A launch script gives an option a value that the program refuses.

What it does
    Reports a value that is not of the option's type (`int`, `float`), that is none of its choices, an option that
    takes a value and gets none, and too few values for `nargs=N`. What the script does not set is not judged.

Why is this bad
    argparse ends the program with "invalid int value" or "invalid choice": on every node, after the queue.

References
    https://docs.python.org/3/library/argparse.html#type
    https://docs.python.org/3/library/argparse.html#choices
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.launch._reading.common import LANGUAGES, TOKENS, set_at
from validator.analysis.commands.command_line import CommandLine, CommandLines, Given, refused
from validator.analysis.commands.launch import Launch
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP702", "flag-value-refused", "error", stable_since="0.1.0", tokens=TOKENS, languages=LANGUAGES)


def check_project(project: Project) -> Iterator[Finding]:
    for launch, line in project.analysis(CommandLines).all:
        if launch.parser is None:
            continue
        for given in line.given:
            if given.option is not None and (why := _why(given, line)):
                yield _report(given, why, launch)


def _why(given: Given, line: CommandLine) -> str:
    option = given.option
    assert option is not None
    if not option.takes_value:
        return ""
    needed = option.nargs if isinstance(option.nargs, int) else 1 if option.nargs in (None, "+") else 0
    if len(given.values) < needed and not line.open and not any(value.many for value in given.values):
        got = f"only {len(given.values)}" if given.values else "none"
        return f"takes {needed} value{'s' if needed > 1 else ''} and gets {got}"
    for value in given.values:
        if why := refused(value, option):
            return f"is given `{value.text}`, which {why}"
    return ""


def _report(given: Given, why: str, launch: Launch) -> Finding:
    option = given.option
    assert option is not None
    choices = option.choices if isinstance(option.choices, list | tuple) else []
    texts = [str(choice) for choice in choices]
    value = given.values[0].text if given.values else ""
    if texts:
        help = f"choose one of {', '.join(texts)}{nearest(value, texts)}"
    else:
        help = f"give it {_article(option.type)}" if option.type in ("int", "float") else "give it its value"
    return RULE.finding(
        given.flag.place.path,
        given.at,
        f"`{given.flag.text}` of `{launch.name}` {why}",
        help=help,
        related=[*set_at(given), Related(option.path, option.at[0], f"`{given.flag.text}` is defined here")],
        context=f"{launch.name}:{given.flag.text}",
    )


def _article(type: str) -> str:
    return "a whole number" if type == "int" else "a number"


_TRAIN = """# file: train.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--backend", choices=["deepspeed", "fsdp2"], default="deepspeed")
parser.add_argument("--zero_stage", type=int, default=2)
parser.add_argument("--adam_betas", type=float, nargs=2, default=(0.9, 0.95))
parser.add_argument("--learning_rate", type=float)
parser.add_argument("--pretrain")
args = parser.parse_args()
"""

_CLASSES = """# file: rl/__init__.py
# file: rl/train.py
from dataclasses import dataclass
from typing import Literal, Optional

from transformers import HfArgumentParser


class Parser(HfArgumentParser):
    def parse(self):
        return self.parse_args_into_dataclasses()[0]


@dataclass
class Settings:
    priority: Literal["low", "normal"] = "normal"
    steps: Optional[int] = None
    offload: bool = False


if __name__ == "__main__":
    print(Parser((Settings,)).parse())
# file: submit.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--gpus", type=int)
print(parser.parse_known_args())
"""

INCORRECT = (
    _TRAIN
    + """# file: run.sh
STAGE=two
python train.py \\
    --backend fsdp \\  # error: MP702
    --zero_stage $STAGE \\  # error: MP702
    --adam_betas 0.9 \\  # error: MP702
    --pretrain \\  # error: MP702
    --learning_rate 5e-6x  # error: MP702
""",
    # the fields of a data class are the options, of a program that another one starts
    _CLASSES
    + """# file: run.sh
python submit.py --gpus 8 -- source setup.sh \\&\\& python rl/train.py \\
    --priority urgent \\  # error: MP702
    --steps 1e3 \\  # error: MP702
    --offload
""",
)

CORRECT = (
    # an action of the project's own says how many values it takes
    """# file: train.py
import argparse


class StoreBoolean(argparse.Action):
    def __init__(self, option_strings, dest, **more):
        super().__init__(option_strings, dest, nargs="?", const=True, **more)

    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, str(values).lower() == "true")


parser = argparse.ArgumentParser()
parser.add_argument("--offload", action=StoreBoolean)
parser.add_argument("--steps", type=int)
print(parser.parse_args())
# file: run.sh
python train.py --offload --steps 100
""",
    _CLASSES
    + """# file: run.sh
python submit.py --gpus 8 -- python rl/train.py --priority low --steps 1000 --offload true
""",
    _TRAIN
    + """# file: run.sh
torchrun --nproc_per_node 8 train.py --backend=fsdp2 --zero_stage ${STAGE:-3} --adam_betas 0.9 0.95 \\
    --learning_rate 5e-6 --pretrain $MODEL
python train.py --zero_stage $1 --backend <backend> --learning_rate {rate}
""",
    _TRAIN
    + """# file: run.sh
for stage in 1 2 3; do
    python train.py --zero_stage $stage --adam_betas $BETAS
done
python train.py --zero_stage $((1 + 1)) $OPTIONS --pretrain
""",
)

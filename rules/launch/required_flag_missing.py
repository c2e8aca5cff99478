"""A launch script leaves out an option that the program requires.

What it does
    Reports a launch without an option that the program's parser defines with `required=True`. Silent where options
    may come from variables that the script does not set, from its own arguments (`"$@"`), or where the parser is not
    fully known.

Why is this bad
    argparse ends the program with "the following arguments are required": on every node, after the queue.

References
    https://docs.python.org/3/library/argparse.html#required
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.launch._reading.common import LANGUAGES, TOKENS, span
from validator.analysis.commands.command_line import CommandLines, missing
from validator.analysis.options.option import Option
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP703", "required-flag-missing", "error", stable_since="0.1.0", tokens=TOKENS, languages=LANGUAGES)

_ASKS = {"-h", "--help", "--version"}


def check_project(project: Project) -> Iterator[Finding]:
    for launch, parser, line in project.analysis(CommandLines).checked:
        if line.open or _ASKS & {given.flag.text for given in line.given}:
            continue
        if parser.reads_files and not line.given:
            continue  # `train.py recipe.json`
        lacking = {_flag(option): option for option in missing(line, parser)}
        if launch.tells_local_rank:
            lacking = {flag: option for flag, option in lacking.items() if option.dest != "local_rank"}
        if lacking:
            flags = " and ".join(f"`{flag}`" for flag in lacking)
            yield RULE.finding(
                launch.program.place.path,
                span(launch.program),
                f"`{launch.name}` is started without {flags}, which it requires",
                help=f"pass {flags}",
                related=[Related(o.path, o.at[0], f"`{flag}` is defined here") for flag, o in lacking.items()],
                context=f"{launch.name}:{flags}",
            )


def _flag(option: Option) -> str:
    return next((flag for flag in option.flags if flag.startswith("--")), option.flags[0])


_TRAIN = """# file: train.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--pretrain", type=str, required=True)
parser.add_argument("--dataset", type=str, required=False)
args = parser.parse_args()
"""

_HELPED = """# file: own/__init__.py
# file: own/arguments.py
import argparse


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pretrain", required=True)
    return parser.parse_args()
# file: own/train.py
from own.arguments import parse_args

if __name__ == "__main__":
    args = parse_args()
    print(args.pretrain)
"""

_COMMANDS = """# file: merge.py
import argparse


def parse_args():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    merge = commands.add_parser("merge")
    merge.add_argument("--path", required=True)
    test = commands.add_parser("test")
    test.add_argument("--reference", required=True)
    return parser.parse_args()


args = parse_args()
"""

INCORRECT = (
    _HELPED
    + """# file: run.sh
torchrun --nproc_per_node 8 -m own.train --pretrained model  # error: MP703
""",
    _TRAIN
    + """# file: run.sh
torchrun --nproc_per_node 8 \\
    train.py \\  # error: MP703
    --dataset data
""",
)

CORRECT = (
    # the launcher passes it; what is added under a condition is not required for certain
    """# file: train.py
import argparse


def options(stage):
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, required=True)
    if stage == "linear":
        parser.add_argument("--pretrained", required=True)
    return parser.parse_args()


if __name__ == "__main__":
    print(options("pretrain"))
# file: run.sh
python -m torch.distributed.launch --nproc_per_node 8 train.py
deepspeed train.py
""",
    _HELPED
    + """# file: run.sh
torchrun --nproc_per_node 8 -m own.train --pretrain model
""",
    _COMMANDS
    + """# file: run.sh
python merge.py merge --path here
""",
    _TRAIN
    + """# file: run.sh
python train.py --pretrain model
python train.py --pretrain=$MODEL
python train.py "$@"
python train.py $ARGUMENTS
python train.py --help
""",
    # the options stand in a file
    """# file: train.py
import sys
from dataclasses import dataclass

from transformers import HfArgumentParser


@dataclass
class Arguments:
    pretrain: str


if __name__ == "__main__":
    parser = HfArgumentParser(Arguments)
    if len(sys.argv) == 2:
        print(parser.parse_json_file(sys.argv[1]))
    else:
        print(parser.parse_args_into_dataclasses())
# file: run.sh
python train.py recipe.json
python train.py --pretrain model
""",
    _TRAIN
    + """# file: run.sh
ARGS=(--dataset data)
if [ -n "$MODEL" ]; then
    ARGS+=(--pretrain "$MODEL")
else
    ARGS+=(--pretrain other)
fi
python train.py "${ARGS[@]}"
""",
)

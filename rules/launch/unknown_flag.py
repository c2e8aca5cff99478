"""A launch script passes an option that the program does not have.

What it does
    Resolves the program that a script starts (`-m package.module`, a path) to its argparse parser, and reports each
    option that the parser lacks, with the nearest one that it has, and a value given to an option that takes none.
    Options below a prefix that the parser does not know at all (`--ds.…`) are reported together, at the first.
    Silent where the parser is not fully known, where it lets unknown options pass (`parse_known_args`), and about
    options in variables that the script does not set.

Why is this bad
    argparse ends the program with "unrecognized arguments": on every node, after the queue.

References
    https://docs.python.org/3/library/argparse.html#the-parse-args-method
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.launch._reading.common import LANGUAGES, TOKENS, span
from validator.analysis.commands.command_line import CommandLines, Given
from validator.analysis.commands.fields import Field
from validator.analysis.commands.launch import Launch
from validator.analysis.options.parsers import Parser
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP701", "unknown-flag", "error", stable_since="0.1.0", tokens=TOKENS, languages=LANGUAGES)


def check_project(project: Project) -> Iterator[Finding]:
    for launch, parser, line in project.analysis(CommandLines).checked:
        unknown = [given for given in line.given if given.is_unknown]
        for together in _by_prefix(unknown, parser):
            yield _unknown(together, launch, parser)
        for word, before in line.stray:
            if before is not None and _follows_a_switch(word, before, parser):
                yield _stray(word, before, launch)


def _by_prefix(unknown: list[Given], parser: Parser) -> list[list[Given]]:
    """The options one by one, but those of a prefix that the parser does not know together."""
    groups: dict[str, list[Given]] = {}
    for given in unknown:
        prefix = given.flag.text.partition(".")[0] + "."
        lost = prefix in given.flag.text and not any(flag.startswith(prefix) for flag in parser.flags)
        groups.setdefault(prefix if lost else f"{given.flag.text} {given.flag.place}", []).append(given)
    return list(groups.values())


def _follows_a_switch(word: Field, before: Given, parser: Parser) -> bool:
    option = before.option
    if (
        option is None
        or option.takes_value
        or not word.known
        or not word.text
        or any(not o.flags for o in parser.options)
    ):
        return False
    return word.home == before.flag.home and word.place.path == before.flag.place.path


def _unknown(together: list[Given], launch: Launch, parser: Parser) -> Finding:
    given = together[0]
    flag = given.flag.text
    flags = list(dict.fromkeys(each.flag.text for each in together))
    known = sorted(flag for flag in parser.flags if flag.startswith("--"))
    meant = [each for each in known if each.startswith(flag)]
    told = f", and short for {' and '.join(f'`{each}`' for each in meant[:3])}" if len(meant) > 1 else ""
    return RULE.finding(
        given.flag.place.path,
        span(given.flag),
        f"{_listed(flags)} no option{'s' if len(flags) > 1 else ''} of `{launch.name}`{told}",
        help="write the option out that is meant"
        if told
        else f"drop it, or pass an option that exists{nearest(flag, known) or _by_last_link(flag, known)}",
        related=[Related(parser.function.path, parser.at[0], f"the parser of `{parser.name}`"), *_places(together[1:])],
        context=f"{launch.name}:{flag}",
    )


def _places(others: list[Given]) -> list[Related]:
    return [Related(o.flag.place.path, o.flag.place.line, f"`{o.flag.text}` is passed here") for o in others]


def _listed(flags: list[str]) -> str:
    if len(flags) == 1:
        return f"`{flags[0]}` is"
    return f"{', '.join(f'`{flag}`' for flag in flags[:-1])} and `{flags[-1]}` are"


def _by_last_link(flag: str, known: list[str]) -> str:
    """`--zero_stage` is `--ds.zero_stage` today."""
    last = flag.lstrip("-").rpartition(".")[2]
    same = [each for each in known if each.lstrip("-").rpartition(".")[2] == last]
    return f" (did you mean {same[0]!r}?)" if len(same) == 1 else ""


def _stray(word: Field, before: Given, launch: Launch) -> Finding:
    place = word.place
    assert before.option is not None
    return RULE.finding(
        place.path,
        (place.line, place.column, place.line, max(word.end, place.column + 1)),
        f"`{word.text}` follows `{before.flag.text}` of `{launch.name}`, which takes no value",
        help=f"pass `{before.flag.text}` alone, or leave it out",
        related=[Related(before.option.path, before.option.at[0], f"`{before.flag.text}` is defined here")],
        context=f"{launch.name}:{before.flag.text}:value",
    )


_TRAIN = """# file: demo/__init__.py
# file: demo/train.py
import argparse

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ds.zero_stage", type=int, default=2)
    parser.add_argument("--train.batch_size", type=int, default=128)
    parser.add_argument("--packing_samples", action="store_true")
    args = parser.parse_args()
"""

_HELPED = """# file: demo/__init__.py
# file: demo/arguments.py
import argparse


def add_sizes(parser):
    parser.add_argument("--tp_size", type=int, default=1)
    return parser


def build_parser():
    return add_sizes(argparse.ArgumentParser(description="training"))


def read(parser):
    return parser.parse_args()
# file: demo/train.py
from demo.arguments import build_parser


def main():
    args = build_parser().parse_args()
    print(args.tp_size)


if __name__ == "__main__":
    main()
# file: demo/tune.py
from demo.arguments import build_parser, read


def main():
    parser = build_parser()
    parser.add_argument("--trials", type=int)
    print(read(parser).trials)
# file: tune.py
from demo.tune import main

main()
# file: demo/serve.py
from demo.arguments import add_sizes, build_parser
from elsewhere import add_server

print(add_sizes(add_server(build_parser())).parse_args())
"""

_CLASSES = """# file: rl/__init__.py
# file: rl/arguments.py
from dataclasses import dataclass, field

import tyro


@dataclass
class Optimizer:
    learning_rate: float = 1e-6


@dataclass
class Settings:
    ppo_epochs: int = 1
    use_cache: bool = True
    optimizer: Optimizer = field(default_factory=Optimizer)


@dataclass
class Evaluation:
    num_samples: int = 8


def read(cls=Settings):
    return tyro.cli(cls)
# file: rl/train.py
from rl.arguments import Settings, read

args = read(Settings)
# file: rl/evaluate.py
from rl.arguments import Evaluation, read

args = read(Evaluation)
"""

_OF_TABLES = """\
# file: demo/options.py
import argparse


def add_table(parser, table):
    for name, value in table.items():
        if isinstance(value, bool):
            parser.add_argument(f"--{name}", default=value, action=argparse.BooleanOptionalAction)
            continue
        kind = str if value is None else type(value)
        parser.add_argument(f"--{name}", default=value, type=kind)


def of_models():
    return dict(width=64, use_kl=False)
# file: demo/sample.py
import argparse
from demo.options import add_table, of_models


def arguments():
    table = dict(batch=16, path="")
    table.update(of_models())
    parser = argparse.ArgumentParser()
    add_table(parser, table)
    return parser.parse_args()


if __name__ == "__main__":
    print(arguments())
# file: demo/train.py
import argparse
from demo.options import add_table, of_models


def arguments():
    parser = argparse.ArgumentParser()
    add_table(parser, {"rate": 0.1, **of_models()})
    return parser.parse_args()


if __name__ == "__main__":
    print(arguments())
"""

_PROVIDED = """# file: lib/__init__.py
# file: lib/arguments.py
import argparse


def base():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser


def parse_args(extra=None):
    parser = base()
    if extra is not None:
        parser = extra(parser)
    return parser.parse_args()
# file: lib/initialize.py
import lib.arguments


def initialize(extra_args_provider=None):
    args = lib.arguments.parse_args(extra_args_provider)
    print(args.lr)
    return args
# file: main.py
import lib.initialize


def add_tasks(parser):
    group = parser.add_argument_group(title="tasks")
    group.add_argument("--task", type=str, required=True)
    return parser


if __name__ == "__main__":
    print(lib.initialize.initialize(extra_args_provider=add_tasks).task)
# file: plain.py
import lib.initialize

if __name__ == "__main__":
    lib.initialize.initialize()
# file: run.sh
python main.py --lr 3e-4 {task}
python plain.py --lr 3e-4
"""

_ABBREVIATED = """# file: tools/__init__.py
# file: tools/train.py
import argparse

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset_name")
    {more}
    args = parser.parse_args()
    print(args.dataset_name)
# file: scripts/train.sh
BASE="/data/project"
OPTIONS="--dataset squad"{mark}
CMD="torchrun --nproc_per_node 2 ${{BASE}}/tools/train.py ${{OPTIONS}}"
${{CMD}}
"""

INCORRECT = (
    _TRAIN
    + """# file: scripts/train.sh
set -x
read -r -d '' training_commands <<EOF
demo.train \\
   --fsdp.zero_stage 2 \\  # error: MP701
   --fsdp.offload \\
   --train.batch_sise ${BATCH:-128} \\  # error: MP701
   --packing_samples True  # error: MP701
EOF
if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
""",
    _TRAIN
    + """# file: scripts/train.slurm
#!/bin/bash
ARGS=(
    --ds.zero_stage 3
    --zero_stage 2  # error: MP701
)
srun --nodes=1 bash -c "cd /work; torchrun --nproc_per_node 8 -m demo.train \\
    --learning_rate 1e-5 \\  # error: MP701
    --ds.zero_stage 3"
ray job submit --address="http://127.0.0.1:8265" -- python3 -m demo.train "${ARGS[@]}"
""",
    _TRAIN
    + """# file: tests/test_train.py
import subprocess
import sys

subprocess.run([sys.executable, "-m", "demo.train", "--zero-stage", "3"], check=True)  # error: MP701

def start(fast):
    command = ["torchrun", "--nproc_per_node", "8", "-m", "demo.train"]
    command += ["--zero_stagge", "3"]  # error: MP701
    if fast:
        command.append("--no-such-flag")
    subprocess.check_call(command)
""",
    _TRAIN
    + """# file: evaluation.py
import os
import subprocess
import sys


class Job:
    def __init__(self, processes):
        self.processes = processes

    def command(self, size, more):
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(self.processes)]
        command += ["-m", "demo.train"]
        options = {"ds.zero_stage": 3, "batch-size": size}
        for name, value in options.items():
            command += [f"--{name}", str(value)]  # error: MP701
        return command + ["--train.batch_size", "8", "--learning_rate", "1e-5"]  # error: MP701

    def run(self, size):
        subprocess.run(self.command(size, []), check=True)


def start(path, stage):
    os.system(f"python demo/train.py --ds.zero_stage {stage} --out {path}")  # error: MP701
    subprocess.run("python -m demo.train --zero_stagge 3 > log", shell=True)  # error: MP701


Job(8).run(16)
start("log", 3)
""",
    _HELPED
    + """# file: run.sh
torchrun --nproc_per_node 8 -m demo.train --tp_size 2 \\
    --trials 3  # error: MP701
python tune.py --tp_size 2 --trials 3 --tp 3 \\
    --n_trials 4  # error: MP701
""",
    _CLASSES
    + """# file: run.sh
python -m rl.train --ppo-epochs 2 --optimizer.learning-rate 1e-6 \\
    --num_ppo_epochs 1 \\  # error: MP701
    --learning_rate 1e-6  # error: MP701
python -m rl.evaluate --ppo_epochs 2  # error: MP701
""",
    # options that a loop over a table makes, each caller with its own table
    _OF_TABLES
    + """# file: run.sh
python -m demo.sample --width 8 --rate 0.2 --use_kl --batch 4  # error: MP701
python -m demo.train --rate 0.2 --use_kl True  # error: MP701
""",
    # options of a function that the program gives
    _PROVIDED.format(task="--tasks MNLI  # error: MP701"),
    # an abbreviation of two options, for a program that is named by where the project lies elsewhere
    _ABBREVIATED.format(more='parser.add_argument("--dataset_path")', mark="  # error: MP701"),
)

CORRECT = (
    _TRAIN
    + """# file: evaluation.py
import os
import subprocess


def start(path, stage, more, fast):
    options = {"zero_stage": stage}
    if fast:
        options = {}
    command = ["python", "-m", "demo.train"]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    subprocess.run(command + more)
    os.system(f"python demo/train.py --ds.zero_stage {stage} {more} | tee --append {path}")
    os.system("echo python demo/train.py --zero_stagge 3")


start("log", 3, [], False)
""",
    _CLASSES
    + """# file: run.sh
python -m rl.train --ppo_epochs 2 --no-use_cache --optimizer.learning_rate 1e-6
python -m rl.evaluate --num-samples 4
""",
    _TRAIN
    + """# file: scripts/train.sh
# --no_such_flag
torchrun --nproc_per_node=8 --master_port 29500 -m demo.train --ds.zero_stage=3 $EXTRA "$@" \\
    --packing --train.batch_size $((8 * 16)) 2>&1 | tee log
python -m other.program --anything 3
python $SOMEWHERE/train.py --anything 3
""",
    """# file: demo/__init__.py
# file: demo/train.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int)
args, rest = parser.parse_known_args()
# file: demo/generate.py
import argparse

import megatron

parser = argparse.ArgumentParser()
megatron.add_options(parser)
args = parser.parse_args()
# file: run.sh
python -m demo.train --steps 3 trainer.nnodes=2 --other
python demo/generate.py --anything
""",
    _HELPED
    + """# file: run.sh
torchrun --nproc_per_node 8 -m demo.train --tp_size 2
python tune.py --tp_size 2 --trials 3
python -m demo.serve --port 80 --anything
""",
    _OF_TABLES
    + """# file: run.sh
python -m demo.sample --width 8 --no-use_kl --batch 4 --path x
python -m demo.train --rate 0.2 --use_kl
""",
    # the same as they are called
    _PROVIDED.format(task="--task MNLI"),
    _ABBREVIATED.format(more="pass", mark=""),
)

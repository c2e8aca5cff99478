"""Parsers as the project builds them, and where their namespaces go."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.analysis.options.namespaces import Namespaces
from validator.analysis.options.parsers import Options, Parser
from validator.flow.literals import UNKNOWN
from validator.project import Project
from validator.source import SourceFile


def project_of(folder: Path, files: dict[str, str]) -> Project:
    sources = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sources.append(SourceFile(name, str(path)))
    return Project(sources)


def parser_of(folder: Path, text: str, **others: str) -> Parser:
    files = {"main.py": text, **{f"{name}.py": body for name, body in others.items()}}
    (parser,) = project_of(folder, files).analysis(Options).parsers
    return parser


def test_every_property_of_an_option(tmp_path: Path) -> None:
    parser = parser_of(
        tmp_path,
        """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-n", "--num-gpus", type=int, default=8, choices=[4, 8], required=True, help="how many")
parser.add_argument("--betas", nargs=2, type=float, dest="adam_betas")
parser.add_argument("--max-mem", type=float, default=float("inf"))
parser.add_argument("--bf16", action=argparse.BooleanOptionalAction)
parser.add_argument("model", nargs="?")
args = parser.parse_args()
""",
    )
    gpus, betas = parser.flags["-n"], parser.flags["--betas"]
    assert (gpus.dest, gpus.type, gpus.default, gpus.choices, gpus.required) == ("num_gpus", "int", 8, [4, 8], True)
    assert gpus.flags == ("-n", "--num-gpus")
    assert (betas.dest, betas.nargs, betas.takes_value) == ("adam_betas", 2, True)
    assert parser.flags["--max-mem"].default is UNKNOWN
    assert not parser.flags["--no-bf16"].takes_value
    assert parser.option("model") is not None
    assert not parser.open


def test_options_are_followed_to_helpers_groups_parents_and_loops(tmp_path: Path) -> None:
    parser = parser_of(
        tmp_path,
        """import argparse
from helpers import add_data, PREFIXES

base = argparse.ArgumentParser(add_help=False)
base.add_argument("--seed", type=int)


def make():
    parser = argparse.ArgumentParser(parents=[base])
    add_data(parser.add_argument_group("data"))
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--fsdp", action="store_true")
    for prefix in ("actor", "critic"):
        for name, kind in [("lr", float), ("wd", float)]:
            pass
        parser.add_argument(f"--{prefix}.adam.lr", type=float)
        parser.add_argument("--" + prefix + ".optim")
    return parser


def main():
    parser = make()
    parser.add_argument("--late")
    parser.set_defaults(start=print)
    return parser.parse_known_args()


args, rest = main()
""",
        helpers="""PREFIXES = ("a", "b")


def add_data(target):
    target.add_argument("--data.max_len", type=int)
""",
    )
    expected = {
        "seed",
        "data.max_len",
        "fsdp",
        "actor.adam.lr",
        "critic.adam.lr",
        "actor.optim",
        "critic.optim",
        "late",
        "start",
        "help",
    }
    assert parser.dests >= expected
    assert parser.inner == {"data", "actor", "critic", "actor.adam", "critic.adam"}


@pytest.mark.parametrize(
    "line",
    [
        "parser.add_argument(*flags)",
        "parser.add_argument(f'--{name()}')",
        "library.add_options(parser)",
        "parser = argparse.ArgumentParser(parents=[library.base])",
    ],
)
def test_what_cannot_be_followed_leaves_the_parser_open(tmp_path: Path, line: str) -> None:
    text = (
        f"import argparse\nimport library\n\nparser = argparse.ArgumentParser()\n{line}\nargs = parser.parse_args()\n"
    )
    parsers = project_of(tmp_path, {"main.py": text}).analysis(Options).parsers
    assert any(parser.open and parser.why for parser in parsers)


def test_entry_points_are_found_by_the_name_that_starts_them(tmp_path: Path) -> None:
    train = "import argparse\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--{}')\nparser.parse_args()\n"
    files = {"cli/__init__.py": "", "cli/train_sft.py": train.format("sft"), "cli/train_ppo.py": train.format("ppo")}
    options = project_of(tmp_path, files).analysis(Options)
    sft, ppo = options.entry("cli.train_sft"), options.entry("cli.train_ppo")
    assert sft is not None
    assert ppo is not None
    assert "--sft" in sft.flags
    assert "--ppo" not in sft.flags
    assert options.entry("cli.train_rm") is None


NAMES = st.text("abcdefghij_", min_size=2, max_size=8).filter(lambda s: s.isidentifier() and s.strip("_"))
FLAGS = st.lists(st.tuples(st.sampled_from(["--", "-"]), NAMES), min_size=1, max_size=3, unique=True)
_COUNTER = itertools.count()


@given(rows=st.lists(st.tuples(FLAGS, st.none() | NAMES), min_size=1, max_size=5))
def test_destinations_are_those_of_argparse(rows: list, tmp_path_factory: pytest.TempPathFactory) -> None:
    real = argparse.ArgumentParser(conflict_handler="resolve")
    lines = ["import argparse", "parser = argparse.ArgumentParser(conflict_handler='resolve')"]
    expected = {"help"}
    for flags, dest in rows:
        names = ["-".join([dashes + name.replace("_", "-")]) for dashes, name in flags]
        extra = {} if dest is None else {"dest": dest}
        expected.add(real.add_argument(*names, **extra).dest)
        lines.append(f"parser.add_argument({', '.join(map(repr, names))}{'' if dest is None else f', dest={dest!r}'})")
    lines.append("args = parser.parse_args()\n")
    folder = tmp_path_factory.mktemp(f"p{next(_COUNTER)}")
    assert parser_of(folder, "\n".join(lines)).dests == expected


SHARED = {
    "rl/__init__.py": "",
    "rl/strategy.py": """class Strategy:
    def __init__(self, args):
        self.args = args

    def prepare(self):
        return self.args.zero_stage

    def sleep(self):
        return self.args.enable_sleep


def get_strategy(args):
    return Strategy(args)
""",
    "rl/sft.py": """import argparse
from rl.strategy import get_strategy

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--zero_stage")
    args = parser.parse_args()
    get_strategy(args).prepare()
""",
    "rl/ppo.py": """import argparse
from rl.strategy import get_strategy


def main(options):
    strategy = get_strategy(args=options)
    strategy.prepare()
    strategy.sleep()


parser = argparse.ArgumentParser()
parser.add_argument("--zero_stage")
parser.add_argument("--enable_sleep", action="store_true")
main(parser.parse_args())
""",
}


def test_a_namespace_is_followed_and_reads_are_charged_to_those_who_lead_there(tmp_path: Path) -> None:
    project = project_of(tmp_path, SHARED)
    namespaces = project.analysis(Namespaces)
    sft = namespaces.options.entry("rl.sft")
    ppo = namespaces.options.entry("rl.ppo")
    assert sft is not None
    assert ppo is not None
    (sleep,) = [read for read in namespaces.reads if read.name == "enable_sleep"]
    assert {held.parser.name for held in sleep.held} == {"rl.sft", "rl.ppo"}
    assert sleep.function in namespaces.reached(ppo)
    assert sleep.function not in namespaces.reached(sft)


def test_a_namespace_that_goes_round_in_circles_is_followed_to_the_end(tmp_path: Path) -> None:
    text = """import argparse


def first(args, n):
    second(args, n - 1)


def second(args, n):
    print(args.lr)
    if n:
        first(args, n)


parser = argparse.ArgumentParser()
parser.add_argument("--lr")
second(None, 0)
first(parser.parse_args(), 3)
"""
    namespaces = project_of(tmp_path, {"main.py": text}).analysis(Namespaces)
    assert [read.name for read in namespaces.reads] == ["lr"]


def test_a_parser_that_is_given_back_beside_something_else_is_one_of_each_call(tmp_path: Path) -> None:
    text = """import argparse


def task_and_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim")
    return "task", parser


task, first = task_and_parser()
first.add_argument("--lr")
print(first.parse_args().lr)
_, second = task_and_parser()
print(second.parse_args().dim)
"""
    parsers = project_of(tmp_path, {"main.py": text}).analysis(Options).parsers
    assert [[each.dest for each in parser.options if each.dest != "help"] for parser in parsers] == [
        ["dim", "lr"],
        ["dim"],
    ]

"""A flag that one parser is given twice.

What it does
    Collects the options of a parser, from all functions and data classes that add to it. Reports the second of two that
    bear the same flag. Silent where no way through the program comes by both (`if … else`), where a function that adds
    one of them is only called under a condition, and where a parser is told how conflicts are resolved.

Why is this bad
    `argparse` raises ArgumentError ("conflicting option string") as soon as the parser is made: the program does not
    start, not even with `--help`. Two branches that each added the option, merged, mostly.

References
    https://docs.python.org/3/library/argparse.html#conflict-handler
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from validator.analysis.options.option import Option
from validator.analysis.options.parsers import Options, Parser
from validator.finding import Finding, Related
from validator.flow import Flow
from validator.flow.control import reachable
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.project import ClassDef, Project
from validator.rule import Rule

RULE = Rule(
    "MP314", "flag-added-twice", "error", stable_since="1.0", tokens=("add_argument", "HfArgumentParser"), solves=True
)


_LISTS = ("tuple", "list")


def check_project(project: Project) -> Iterator[Finding]:
    resolved = any("conflict_handler" in module.source.text for module in project.modules.values())
    told: set[tuple[str, int]] = set()
    for parser in () if resolved else project.analysis(Options).parsers:
        classes = _classes(project, parser)
        for first, second, flag in _twice(parser):
            meet = (
                _are_fields(classes, first, second)
                if parser.from_dataclasses
                else _meet(project, parser, first, second)
            )
            if (second.path, second.at[0]) not in told and meet:
                told.add((second.path, second.at[0]))
                yield _finding(parser, first, second, flag)


def _twice(parser: Parser) -> Iterator[tuple[Option, Option, str]]:
    """The options of a parser that bear a flag which another one has already."""
    known: dict[str, Option] = {}
    rows = parser.options
    if parser.from_dataclasses:
        rows = sorted(rows, key=lambda each: (each.path, each.at))
    for option in rows:
        for flag in option.flags:
            first = known.setdefault(flag, option)
            if (first.path, first.at) != (option.path, option.at):
                yield first, option, flag


def _meet(project: Project, parser: Parser, first: Option, second: Option) -> bool:
    """Whether a program that adds one of two options adds the other one as well."""
    places = [_place(project, option) for option in (first, second)]
    if any(place is None for place in places):
        return False
    one, other = (place for place in places if place is not None)
    if _has_commands(one, other) and (one.unit is not other.unit or _parser_of(one) != _parser_of(other)):
        return False  # each command has a parser of its own
    if one.unit is other.unit:
        blocks = one.value.block, other.value.block
        code = one.unit.code
        loops = {code.blocks[block].loop for block in blocks}
        header = loops.pop() if len(loops) == 1 else -1  # the next round of a loop adds options of other names
        ways = [reachable(code, header, block) for block in blocks]
        return blocks[1] in ways[0] or blocks[0] in ways[1]
    return all(map(partial(_always, project, parser), (one, other)))


def _classes(project: Project, parser: Parser) -> list[ClassDef]:
    """The data classes that the call which makes a parser names."""
    call = project.analysis(Objects).call_at(parser.module, parser.at) if parser.from_dataclasses else None
    given = call.operand(1).root if call is not None and len(call.value.args) > 1 else None
    parts = [given.value_at(number) for number in given.value.args] if given and given.value.op in _LISTS else []
    return [o[1] for part in parts if len(part.val.objs) == 1 for o in part.val.of("class")]


def _are_fields(classes: list[ClassDef], *options: Option) -> bool:
    """Whether options are fields of different ones of some classes."""
    found = {cls for cls in classes for each in options if cls.path == each.path and _is_in(cls, each)}
    return len(found) == len(options)


def _is_in(cls: ClassDef, option: Option) -> bool:
    return cls.facts.at[0] <= option.at[0] <= cls.facts.at[2]


def _has_commands(*places: Place) -> bool:
    return any("add_parser" in place.unit.module.source.text for place in places)


def _parser_of(call: Place) -> Place | None:
    return call.receiver.root if call.receiver is not None else None


def _place(project: Project, option: Option) -> Place | None:
    module = next((each for each in project.modules.values() if each.path == option.path), None)
    return project.analysis(Objects).call_at(module, option.at) if module is not None else None


def _always(project: Project, parser: Parser, place: Place, seen: frozenset[Unit] = frozenset()) -> bool:
    """Whether whoever makes a parser comes to a call: under no condition, by calls of nothing else."""
    flow, unit = project.analysis(Flow), place.unit
    if unit.control.around(place.value.block) or unit in seen:
        return False
    if unit.method is parser.function:
        return True
    calls = [Place(flow, caller, passed.site) for caller, passed in flow.calls_of(unit)]
    sites = [call.result.sites.get(call.number) for call in calls]
    alone = all(site is not None and len(site.targets) == 1 for site in sites)
    return bool(calls) and alone and all(_always(project, parser, call, seen | {unit}) for call in calls)


def _finding(parser: Parser, first: Option, second: Option, flag: str) -> Finding:
    return RULE.finding(
        second.path,
        second.at,
        f"`{parser.name}` has the flag `{flag}` already: ArgumentError as soon as its parser is made",
        help="remove one of the two, or give it another name",
        related=[Related(first.path, first.at[0], f"`{flag}` is added here first")],
        context=f"{parser.name}:{flag}",
    )


INCORRECT = (
    """\\
import argparse


def add_training(parser):
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--steps", type=int)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning-rate", "--lr", type=float)  # error: MP314
    add_training(parser)
    group = parser.add_argument_group("data")
    group.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seed", type=int, default=2)  # error: MP314
    return parser.parse_args()


if __name__ == "__main__":
    main()
""",
    """\\
from dataclasses import dataclass

from transformers import HfArgumentParser


@dataclass
class ModelArguments:
    path: str = "model"
    cache_dir: str = "cache"


@dataclass
class DataArguments:
    data: str = "data"
    cache_dir: str = "data-cache"  # error: MP314


if __name__ == "__main__":
    HfArgumentParser((ModelArguments, DataArguments)).parse_args_into_dataclasses()
""",
)

CORRECT = (
    """\\
import argparse
import sys


def add_ppo(parser):
    parser.add_argument("--kl", type=float)


def add_dpo(parser):
    parser.add_argument("--kl", type=float)


def main(kind):
    parser = argparse.ArgumentParser()
    if kind == "ppo":
        parser.add_argument("--beta", type=float)
        add_ppo(parser)
    else:
        parser.add_argument("--beta", type=float, default=0.1)
        add_dpo(parser)
    return parser.parse_args()


if __name__ == "__main__":
    main(sys.argv[1])
""",
    """\\
import argparse
from dataclasses import dataclass

from transformers import HfArgumentParser


@dataclass
class BaseArguments:
    cache_dir: str = "cache"


@dataclass
class TrainArguments(BaseArguments):
    cache_dir: str = "train-cache"


def programs():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    train, evaluate = commands.add_parser("train"), commands.add_parser("evaluate")
    train.add_argument("--path")
    evaluate.add_argument("--path")
    return parser.parse_args()


if __name__ == "__main__":
    programs()
    HfArgumentParser(TrainArguments).parse_args_into_dataclasses()
""",
    # another round of the loop is another name
    """\\
import argparse


def main(size):
    parser = argparse.ArgumentParser()
    for name, value in {"size": size, "path": ""}.items():
        if isinstance(value, bool):
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", default=value)
    return parser.parse_args()


if __name__ == "__main__":
    main(1)
""",
)

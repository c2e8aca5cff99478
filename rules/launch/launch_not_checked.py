"""What in a launch script cannot be checked, because it is set elsewhere.

What it does
    Notes each value that a constraint needs and that the script does not tell: a variable that nothing sets, the
    output of a command, a model whose shape is not known. One note for each place, with the constraints that wait
    for it. Notes each program of the project, too, whose options cannot be checked because what reads them was not
    found or accepts more than can be seen. Shown with `--notes` only.

Why is this bad
    It is not: but "no findings" would say more than is known.

References
    rules/CONSTRAINTS.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rules.launch._reading.common import TOKENS, span, starts_or_configures
from validator.analysis.commands.command_line import CommandLine, CommandLines, strict
from validator.analysis.commands.launch import Launch
from validator.analysis.commands.program_parsers import ProgramParsers
from validator.analysis.recipes.composed import Compositions
from validator.finding import Finding
from validator.project import Module, Project
from validator.rule import Rule

if TYPE_CHECKING:
    from rules.constraints import Constraint, Quantities
    from rules.launch._reading.configuration import Configuration, Said

RULE = Rule("MP710", "launch-not-checked", "note", "0.1.0", tokens=TOKENS, languages=("shell", "python"))

_SHOWN = 4
_TRIVIAL = ("positive-", "query-groups", "processes-product")  # nobody waits for these


def check_project(project: Project) -> Iterator[Finding]:
    if not starts_or_configures(project):
        return
    yield from _unchecked_options(project)
    from rules.constraints import TABLE
    from rules.launch._reading.quantities import configurations

    for configuration in configurations(project):
        quantities = configuration.quantities()
        waiting: dict[tuple[str, object, str], list[str]] = {}
        places: dict[tuple[str, object, str], Said] = {}
        for constraint in (c for c in TABLE if not c.id.startswith(_TRIVIAL)):
            for said in _lacking(constraint, configuration, quantities):
                key = (said.path, said.span, said.why)
                waiting.setdefault(key, []).append(constraint.id)
                places[key] = said
        for place, identifiers in waiting.items():
            yield _note(places[place], identifiers, configuration)


def _unchecked_options(project: Project) -> Iterator[Finding]:
    """One note for each program that is given options which nothing here holds against what it accepts."""
    found: dict[Module, tuple[Launch, str]] = {}
    scripts: dict[Module, set[str]] = {}
    for launch, line in project.analysis(CommandLines).all:
        if launch.module is None or not line.given:
            continue
        if why := _why_unchecked(project, launch, line):
            found.setdefault(launch.module, (launch, why))
            scripts.setdefault(launch.module, set()).add(launch.path)
    for module, (launch, why) in found.items():
        others = len(scripts[module]) - 1
        more = f"; so it is in {others} more file{'s' if others > 1 else ''}" if others else ""
        message = f"options of `{launch.name}` cannot be checked: {why}{more}"
        yield RULE.finding(launch.program.place.path, span(launch.program), message, context=f"{module.name}:options")


def _why_unchecked(project: Project, launch: Launch, line: CommandLine) -> str:
    """Why options of a launch are held against no parser; empty where they are."""
    parser = launch.parser
    if parser is not None:
        unknown = next((given.flag.text for given in line.given if given.option is None), None)
        if strict(parser) or unknown is None:
            return ""
        rest = f"`{unknown}` is none of those that were found"
        return f"{parser.reason}, and {rest}" if parser.open else f"`parse_known_args` leaves others, and {rest}"
    if launch.module is None or project.analysis(Compositions).of(launch) is not None:
        return ""
    return project.analysis(ProgramParsers).why_unknown(launch.module)


def _lacking(constraint: Constraint, configuration: Configuration, quantities: Quantities) -> Iterator[Said]:
    """What a constraint that applies, as far as is known, lacks."""
    lacking = [name for name in dict.fromkeys((*constraint.given, *constraint.needs)) if _unknown(name, configuration)]
    if any(getattr(quantities, name) is None and name not in lacking for name in constraint.given):
        return  # nobody asked about it
    for condition in constraint.when:
        if condition.evaluate(quantities) is not True and condition.quantity not in lacking:
            return
    for name in lacking:
        yield configuration.said[name]


def _unknown(name: str, configuration: Configuration) -> bool:
    said = configuration.said.get(name)
    return said is not None and said.value is None and bool(said.why) and said.span is not None


def _note(said: Said, identifiers: list[str], configuration: Configuration) -> Finding:
    shown = ", ".join(dict.fromkeys(identifiers[:_SHOWN]))
    more = f" and {len(identifiers) - _SHOWN} more" if len(identifiers) > _SHOWN else ""
    assert said.span is not None
    return RULE.finding(
        said.path,
        said.span,
        f"cannot be checked: {said.why} ({shown}{more})",
        help=f"give `{said.flag}` a value or a default, `${{NAME:-value}}`, to have it checked",
        context=f"{configuration.name}:{said.flag}",
    )


INCORRECT = (
    """# file: train.sh
torchrun --nproc_per_node=8 -m openrlhf.cli.train_sft --backend fsdp2 \\
    --pretrain $MODEL \\  # error: MP710
    --train_batch_size 128 --micro_train_batch_size 2 \\
    --fsdp_tensor_parallel_size 2 \\
    --ring_attn_size $1 --packing_samples  # error: MP710
""",
    """# file: own/__init__.py
# file: own/options.py
import argparse

import elsewhere


def build():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    return elsewhere.Holder(parser)


def extended():
    parser = argparse.ArgumentParser()
    return elsewhere.add_options(parser)
# file: own/train.py
from own.options import build

print(build().parser.parse_args())
# file: own/tune.py
from own.options import extended

print(extended().parse_args())
# file: own/plain.py
import sys

print(sys.argv[1])
# file: own/known.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
print(parser.parse_known_args())
# file: run.sh
python own/known.py --lr 1 --wd 3  # error: MP710
torchrun --nproc_per_node 8 -m own.train --lr 1  # error: MP710
python -m own.tune --lr 1  # error: MP710
python own/plain.py --lr=1  # error: MP710
torchrun --nproc_per_node 8 -m own.train --lr 2
""",
)

CORRECT = (
    """# file: train.sh
MODEL=${MODEL:-meta-llama/Meta-Llama-3-8B}
torchrun --nproc_per_node=8 -m openrlhf.cli.train_sft --backend fsdp2 --pretrain $MODEL \\
    --train_batch_size 128 --micro_train_batch_size 2 --fsdp_tensor_parallel_size ${TP:-2} --save_path $OUTPUT
""",
    """# file: serve.sh
python -m http.server $PORT
torchrun --nproc_per_node=8 train.py --lr $LR
# file: own/train.py
import argparse


def build():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    return parser


print(build().parse_args().lr)
# file: own/plain.py
import sys

print(sys.argv[1])
# file: own/known.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
print(parser.parse_known_args())
# file: run.sh
python own/known.py --lr 1 trainer.steps=3
python own/train.py --lr 1
python own/plain.py somewhere
""",
)

"""An option is given twice in one command, with different values.

What it does
    Reports an option that stands twice in the same command, here-document or array with two values that differ, and
    that keeps only the last of them. Silent about options that collect their values, about a later argument that
    overrides one from another variable, and about options given twice with the same value.

Why is this bad
    The first value does nothing: whoever edits it trains with the other one.

References
    https://docs.python.org/3/library/argparse.html#action
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.launch._reading.common import LANGUAGES, TOKENS
from validator.analysis.commands.command_line import CommandLines, Given
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP704", "flag-given-twice", "warning", stable_since="0.1.0", tokens=TOKENS, languages=LANGUAGES)


def check_project(project: Project) -> Iterator[Finding]:
    found: dict[tuple[str, str, str, str], list[tuple[Given, Given]]] = {}
    for launch, line in project.analysis(CommandLines).all:
        seen: dict[str, Given] = {}
        for given in line.given:
            if given.option is None or given.option.action != "store":
                continue
            before = seen.get(given.option.dest)
            seen[given.option.dest] = given
            if before is not None and before.flag.home == given.flag.home and _differ(before, given):
                key = (launch.name, given.flag.text, _shown(before), _shown(given))
                found.setdefault(key, []).append((before, given))
    for (program, flag, first, second), rows in found.items():  # copies of one script are one mistake
        yield _report(program, flag, first, second, rows)


def _report(program: str, flag: str, first: str, second: str, rows: list[tuple[Given, Given]]) -> Finding:
    (before, given), *others = rows
    places = [(before.flag.place, f"{first} is given here"), *((o.flag.place, "here, too") for _, o in others)]
    return RULE.finding(
        given.flag.place.path,
        given.at,
        f"`{flag}` of `{program}` is given twice: {first}, and then {second}, which wins",
        help="leave one of them",
        related=[Related(place.path, place.line, text) for place, text in places],
        context=f"{program}:{flag}",
    )


def _differ(one: Given, other: Given) -> bool:
    return [value.text for value in one.values] != [value.text for value in other.values]


def _shown(given: Given) -> str:
    return f"`{' '.join(value.text for value in given.values)}`"


_TRAIN = """# file: train.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--train_batch_size", type=int)
parser.add_argument("--tag", action="append")
parser.add_argument("--packing", action="store_true")
args = parser.parse_args()
"""

INCORRECT = (
    _TRAIN
    + """# file: run.sh
python train.py \\
    --train_batch_size 128 \\
    --packing \\
    --train_batch_size 256  # error: MP704
""",
)

CORRECT = (
    _TRAIN
    + """# file: run.sh
COMMON="--train_batch_size 128"
python train.py $COMMON --train_batch_size 256
python train.py --train_batch_size 256 --packing --packing --train_batch_size 256
""",
    _TRAIN
    + """# file: run.sh
python train.py --tag a --tag b --train_batch_size 8
""",
)

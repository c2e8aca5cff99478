"""Programs for `torch.distributed` after the error classes of MPI-CorrBench, each wrong one beside a right one.

    python -m tests.rules.corrbench [--show] [--run]

MPI-CorrBench (Lehr, Jammer, Bischof, 2021; github.com/tudasc/MPI-Corrbench) names its wrong programs
`ErrorClass-Call-Argument`; a row here bears the name of the program that it was carried over from. Each stands in three
places, as in the sets `coll` and `conflo`: at the top level of a function, in a helper that gets what is wrong as an
argument, and on one of two ways. A wrong program counts as found where an error or a warning of the rules for
distributed code stands in it, a right one as silent where none does.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import NamedTuple

import tomllib
from tabulate import tabulate

from tests.rules.programs import Ranks
from validator.registry import load_rules
from validator.run.checker import Check, check_sources
from validator.run.config import Config
from validator.source import SourceFile

FAMILIES = ("MP5", "MP6")
TABLE = Path(__file__).parent.parent / "data" / "corrbench.toml"


class Case(NamedTuple):
    """What is wrong, and what is right; `before` stands in front of both. `wrong` and `right` are lines of a body, or
    (where they begin with `=`) an expression for the `{}` in `call`."""

    name: str
    wrong: str
    right: str
    before: str = ""
    call: str = ""


def cases() -> list[Case]:
    return [Case(**row) for row in tomllib.loads(TABLE.read_text())["case"]]


_HEAD = "import sys\n\nimport torch\nimport torch.distributed as dist\n\n\n"
_INIT = 'dist.init_process_group("gloo")\n'
_START = "rank = dist.get_rank()\nsize = dist.get_world_size()\n"
_VARIABLES = ("tensor", "parts", "group", "rank", "size")
_REPEATED = "[{} for _"  # a new tensor in each round


def texts(case: Case, wrong: bool) -> Iterator[tuple[str, str]]:
    """The programs of one case: (where it stands, text)."""
    given, other = (case.wrong if wrong else case.right), case.right
    front = _START + (case.before + "\n" if case.before else "")
    known = ", ".join(name for name in _VARIABLES if f"{name} = " in front)
    if not given.startswith("="):
        yield "coll", _program(front + given)
        yield "conflo-call", _program(front + f"exchange({known})", f"def exchange({known}):\n" + indent(given, "    "))
        yield (
            "conflo-way",
            _program(front + f"if len(sys.argv) > 1:\n{indent(given, '    ')}\nelse:\n{indent(other, '    ')}"),
        )
        return
    given, other, call, read = given[1:], other[1:], case.call, "given"
    yield "coll", _program(front + call.replace("{}", given))
    if _REPEATED in call:
        given, other, read = f"lambda: {given}", f"lambda: {other}", "given()"
    helper = f"def exchange({known}, given):\n" + indent(call.replace("{}", read), "    ")
    yield "conflo-call", _program(front + f"exchange({known}, {given})", helper)
    ways = f"given = {other}\nif len(sys.argv) > 1:\n    given = {given}\n"
    yield "conflo-way", _program(front + ways + call.replace("{}", read))


def _program(body: str, helper: str = "") -> str:
    return (
        _HEAD
        + (helper + "\n\n\n" if helper else "")
        + "def main():\n"
        + indent(_INIT + body, "    ")
        + "\n\n\nmain()\n"
    )


def found(text: str) -> list[str]:
    """The errors and warnings of the rules for distributed code in a program."""
    rules = load_rules()
    source = SourceFile("program.py", "/program.py", text.encode())
    result = check_sources([source], Check(Config(root="/"), rules, rules))
    assert not result.errors, result.errors
    rows = [f for f in result.findings if f.severity != "note" and f.code.startswith(FAMILIES)]
    return [f"{f.code} {f.span.line}: {f.message}" for f in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description="Score the validator on programs after MPI-CorrBench.")
    parser.add_argument("--show", action="store_true", help="print what is missed and what is reported wrongly")
    parser.add_argument("--run", action="store_true", help="run the right programs on four gloo ranks: do they finish?")
    args = parser.parse_args()
    ranks = Ranks() if args.run else None
    rows: dict[str, Counter[str]] = {}
    for case in cases():
        for wrong in (True, False):
            for where, text in texts(case, wrong):
                hits = found(text)
                outcome = ("found" if hits else "missed") if wrong else "false" if hits else "silent"
                for name in (case.name.partition("-")[0], where, "all"):
                    rows.setdefault(name, Counter())[outcome] += 1
                if args.show and outcome in ("missed", "false"):
                    print(outcome, case.name, where, *hits[:1])
                if ranks is not None and not wrong and (end := ranks.run(_runnable(text))) != "finish":
                    print(f"said to be right, but does {end}: {case.name} {where}")
    if ranks is not None:
        ranks.close()
    names = ("found", "missed", "silent", "false")
    print(
        tabulate([[name, *(row[n] for n in names)] for name, row in rows.items()], ["class", *names], tablefmt="github")
    )
    whole = rows["all"]
    recall, precision = (whole["found"] / (whole["found"] + whole[other]) for other in ("missed", "false"))
    print(f"recall {recall:.3f}, precision {precision:.3f}")
    return 0


def _runnable(text: str) -> str:
    """A program without what starts it: the ranks are there already."""
    return text.replace(_INIT, "pass\n").removesuffix("main()\n")


if __name__ == "__main__":
    sys.exit(main())

"""`getattr(args, "x", default)` where no parser has an option `x`.

What it does
    Reports `getattr` with a literal name and a default on a parsed command line, where none of the parsers
    whose namespace may come there, nor any other of the project, defines that option and no code sets it. A note where
    no option has a similar name, or the same one in another group: then it may be one that other programs have.

Why is this bad
    The default is all that is ever seen: the option was renamed or never added, and the setting is ignored
    without a word. A training run with another configuration than the one asked for is worse than one that stops.

References
    https://docs.python.org/3/library/functions.html#getattr
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.namespaces import Namespaces, Read
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP302", "default-of-no-option", "warning", stable_since="0.1.0", tokens=("getattr",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    namespaces = project.analysis(Namespaces)
    parsers = namespaces.options.parsers
    defined = {dest for p in parsers for dest in p.dests | p.inner}
    for read in namespaces.reads:
        if (
            read.how != "default"
            or namespaces.is_written(read.held, read.name)
            or any(h.parser.open or h.parser in namespaces.filled for h in read.held)
        ):
            continue
        if not any(h.below(read.name) in defined for h in read.held):
            yield _report(read, sorted(defined))


def _report(read: Read, defined: list[str]) -> Finding:
    parsers = sorted({h.parser for h in read.held}, key=lambda p: p.name)
    option = next(iter(read.held)).below(read.name)
    names = [f"`{p.name}`" for p in parsers[:3]]
    meant = nearest(option, defined)
    elsewhere = any(each.rpartition(".")[2] == option.rpartition(".")[2] for each in defined)
    return RULE.finding(
        read.function.path,
        read.at,
        f"no parser defines the option `{option}` that `{read.function.qualname}` reads from `{read.receiver}`: "
        "only the default is ever seen",
        help=f"read the option by its name, or add it to {', '.join(names)}{meant}",
        related=[Related(p.module.path, p.at[0], f"the parser of `{p.name}`") for p in parsers[:3]],
        context=f"{read.function.qualname}:{option}",
        severity=RULE.severity if meant or elsewhere else "note",
    )


INCORRECT = (
    """import argparse


class Strategy:
    def __init__(self, args):
        self.offload = getattr(args, "fsdp_offload", "none")  # error: MP302
        self.seed = getattr(args, "seed", 42)


parser = argparse.ArgumentParser()
parser.add_argument("--fsdp2_offload", default="none")
parser.add_argument("--seed", type=int)
strategy = Strategy(parser.parse_args())
""",
)

CORRECT = (
    """import argparse


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    args = parser.parse_args()
    args.run_name = "run"
    if hasattr(args, "rank"):
        return None
    return getattr(args, "seed", 42), getattr(args, "run_name", ""), getattr(parser, "anything", None)
""",
    """import argparse

import deepspeed

parser = argparse.ArgumentParser()
other.extend(parser)
args = parser.parse_args()
print(getattr(args, "from_elsewhere", None))
""",
)

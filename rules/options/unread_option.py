"""An option that nothing reads.

What it does
    Reports an option of a parser whose value no code of the project uses: no `args.x` or `getattr(args, "x")`
    in a place its namespace may come to, and no `.x` at all on something of unknown origin. Silent: options
    that launchers and libraries read (`local_rank`, DeepSpeed's own), namespaces that are given as a whole to
    code outside the project or taken apart with `vars(args)`. Printing and logging the namespace is no reading.

Why is this bad
    The flag is accepted and does nothing: whoever sets it believes in a configuration that is not the one that
    runs.

References
    https://docs.python.org/3/library/argparse.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.namespaces import Namespaces
from validator.analysis.option_calls import Option
from validator.analysis.options import Options, Parser
from validator.analysis.uses import is_test
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP303", "unread-option", "warning", stable_since="0.1.0", tokens=("add_argument",), solves=True)

# read by launchers and libraries, or taken for compatibility with them
_FOREIGN = re.compile(
    r"^(help|version|(\w+[._])?local_rank|local-rank|deepspeed\w*|deepscale\w*|node_rank|config_file|_.*|f|unused\w*)$"
)
_BY_NAME = ("getattr", "hasattr", "setattr")
_MANY = 4  # entry points that share an unread option before they are told together
_HIDDEN = re.compile(r"deprecat|compat|ignored|unused|no longer", re.I)


def check_project(project: Project) -> Iterator[Finding]:
    options = project.analysis(Options)
    parsers = [p for p in options.parsers if not p.from_dataclasses and not p.open]
    if not parsers:
        return
    namespaces = project.analysis(Namespaces)
    read = _read(namespaces)
    loose = _loose_names(project, namespaces)
    seen: set[tuple[str, int, str]] = set()
    unread: dict[tuple[str, ...], list[tuple[Option, Parser]]] = {}
    for parser in parsers:
        whole = {h.prefix for h in namespaces.handed_on if h.parser is parser}
        if not any(parser is p for p, _ in read) or "" in whole:
            continue
        for option in parser.options:
            key = (option.path, option.at[0], option.dest)
            if (
                key in seen
                or _foreign(option)
                or _tried(option, parser)
                or any(option.dest.startswith(prefix + ".") for prefix in whole)
            ):
                continue
            name = option.dest.rpartition(".")[2]
            if (parser, option.dest) not in read and name not in loose and option.dest not in loose:
                seen.add(key)
                unread.setdefault(option.flags or (option.dest,), []).append((option, parser))
    for rows in unread.values():
        if len(rows) > _MANY:  # one shared reader was lost: once is enough
            yield _report(*rows[0], parsers, read, rows[1:])
        else:
            for option, parser in rows:
                yield _report(option, parser, parsers, read, [])


def _tried(option: Option, parser: Parser) -> bool:
    """Whether a test tries the parser of a program: it reads what it asserts, and the program is another."""
    return is_test(parser.module.path) and option.path != parser.module.path


def _foreign(option: Option) -> bool:
    """Whether something outside the project reads the option, or its help says that nothing does."""
    if _FOREIGN.match(option.dest) or option.action in ("help", "version"):
        return True
    return "SUPPRESS" in option.help or _HIDDEN.search(option.help) is not None


def _read(namespaces: Namespaces) -> set[tuple[Parser, str]]:
    """The (parser, option) pairs that some code reads."""
    found = set()
    for read in namespaces.reads:
        for held in read.held:
            dest = held.below(read.name)
            found.add((held.parser, dest))
            if dest in held.parser.inner and not read.kept:  # what becomes of the part is not known
                found.update((held.parser, d) for d in held.parser.dests if d.startswith(dest + "."))
    return found


def _loose_names(project: Project, namespaces: Namespaces) -> set[str]:
    """Attributes read from values of unknown origin that look like a command line, and names in texts."""
    holders = {read.receiver.rpartition(".")[2] for read in namespaces.reads} | {
        "args",
        "config",
        "cfg",
        "opt",
        "hparams",
    }
    found: set[str] = set()
    for function in project.functions():
        for ref in function.facts.refs:
            links = ref.path.split(".")
            found.update(_after(links, holders, function, namespaces) if ref.context != "store" else ())
        for call in function.facts.calls:
            found.update(_after(call.target.split("."), holders, function, namespaces))
            named = call.target in _BY_NAME and len(call.args) > 1 and call.args[1].kind == "const"
            if named and not namespaces.of(function, call.args[0].value):
                found.add(call.args[1].value.strip("'\""))
    return found


def _after(links: list[str], holders: set[str], function: object, namespaces: Namespaces) -> Iterator[str]:
    """The links after one that looks like a namespace and is not known to be one."""
    for index, link in enumerate(links[:-1]):
        if link in holders and not namespaces.of(function, ".".join(links[: index + 1])):  # type: ignore[arg-type]
            yield from (rest.partition("[")[0].partition("(")[0] for rest in links[index + 1 :])
            return


def _report(
    option: Option,
    parser: Parser,
    parsers: list[Parser],
    read: set[tuple[Parser, str]],
    same: list[tuple[Option, Parser]],
) -> Finding:
    flag = option.flags[-1] if option.flags else option.dest
    users = sorted({p.name for p in parsers if (p, option.dest) in read})
    other = f" (only `{users[0]}` reads its own)" if users else ""
    more = f" and {len(same)} other entry points" if same else ""
    return RULE.finding(
        option.path,
        option.at,
        f"the option `{flag}` of `{parser.name}`{more} is never read{other}: setting it changes nothing",
        help=f"use `args.{option.dest}`, or remove the option",
        related=[Related(o.path, o.at[0], f"`{flag}` of `{p.name}`") for o, p in same],
        context=option.dest,
    )


INCORRECT = (
    """import argparse


class Controller:
    def __init__(self, coefficient):
        self.coefficient = coefficient


parser = argparse.ArgumentParser()
parser.add_argument("--init_kl", type=float, default=0.01)
parser.add_argument("--kl_target", type=float)  # error: MP303
args = parser.parse_args()
print(args)
controller = Controller(args.init_kl)
""",
)

CORRECT = (
    """import argparse


def build(**options):
    return options


parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--betas", type=float, nargs=2)
args = parser.parse_args()
build(**vars(args))
print(args.lr)
""",
    """import argparse

import deepspeed

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int)
parser.add_argument("--old", help="deprecated, has no effect")
parser.add_argument("--model", required=True)
args = parser.parse_args()
engine = deepspeed.initialize(args=args, model=args.model)
""",
    """import argparse

import trainer

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--wd", type=float)
args = parser.parse_args()
print(args.lr)
trainer.run(args)
""",
    """# file: train.py
import argparse


def parser():
    p = argparse.ArgumentParser()
    p.add_argument("--lr", type=float)
    p.add_argument("--seed", type=int)
    return p


if __name__ == "__main__":
    args = parser().parse_args()
    print(args.lr, args.seed)
# file: tests/test_train.py
import train


def test_lr():
    args = train.parser().parse_args([])
    assert args.lr is None
""",
)

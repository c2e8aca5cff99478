"""An option that nothing reads.

What it does
    Reports an option of a parser whose value no code of the project uses: no `args.x` or `getattr(args, "x")`
    in a place its namespace may come to, and no `.x` at all on something of unknown origin. Silent: options
    that launchers and libraries read (`local_rank`, DeepSpeed's own), namespaces that are given as a whole to
    code outside the project or taken apart with `vars(args)`. Printing and logging the namespace is no reading. A flag
    that excludes one which is read says by that what it means. Where
    code outside of the project adds options, too, reported is only what nothing reads while a name that is nearly the
    same is read, which nothing defines: one of the two was renamed. A note where no script or recipe of the project
    sets the option, and of an option that programs share, one of which reads it.

Why is this bad
    The flag is accepted and does nothing: whoever sets it believes in a configuration that is not the one that
    runs.

References
    https://docs.python.org/3/library/argparse.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from validator.analysis.options.namespaces import Namespaces
from validator.analysis.options.option import Option
from validator.analysis.options.parsers import Options, Parser
from validator.files.languages import language
from validator.finding import Finding, Related
from validator.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_test
from validator.flow.values import TOP
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP303", "unread-option", "warning", stable_since="0.1.0", tokens=("add_argument",), solves=True)

# read by launchers and libraries, or taken for compatibility with them
_FOREIGN = re.compile(
    r"^(help|version|(\w+[._])?local_rank|local-rank|deepspeed\w*|deepscale\w*|node_rank|config_file|_.*|f|unused\w*)$"
)
_BY_NAME = ("getattr", "hasattr", "setattr")
_LIKELY = {"args", "config", "cfg", "opt", "hparams"}
_READING = ("parse_args", "parse_known_args", "get_args")
_NEARLY = 0.93  # how like two names are of which one may be the other renamed (`difflib`)
_MANY = 4  # entry points that share an unread option before they are told together
_HIDDEN = re.compile(r"deprecat|compat|ignored|unused|no longer", re.I)


def check_project(project: Project) -> Iterator[Finding]:
    options = project.analysis(Options)
    parsers = [p for p in options.parsers if not p.from_dataclasses and not p.open]
    namespaces = project.analysis(Namespaces)
    read = _read(namespaces)
    loose = _loose_names(project, namespaces)
    yield from _renamed(options, {name for _, name in read}, loose)
    alternatives = _alternatives(project)
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
            group = alternatives.get((option.path, option.at[0]), set()) if not option.takes_value else set()
            dests = {o.dest for o in parser.options if (o.path, o.at[0]) in group} | {option.dest}
            used = any((each, dest) in read for each in (parser, *parser.grown) for dest in dests)
            if not used and name not in loose and option.dest not in loose:
                seen.add(key)
                unread.setdefault(option.flags or (option.dest,), []).append((option, parser))
    for rows in unread.values():
        many = len(rows) > _MANY  # one shared reader was lost: once is enough
        for option, parser in rows[:1] if many else rows:
            found = _report(option, parser, parsers, read, rows[1:] if many else [])
            shared = _is_read_elsewhere(option, parsers, read)
            yield found._replace(severity="note") if shared or not _is_given(project, option) else found


def _is_read_elsewhere(option: Option, parsers: list[Parser], read: set[tuple[Parser, str]]) -> bool:
    """Whether an option stands in a function that several programs share, of which one reads it."""
    users = (parser for parser in parsers if (parser, option.dest) in read)
    return any((each.path, each.at) == (option.path, option.at) for parser in users for each in parser.options)


def _is_given(project: Project, option: Option) -> bool:
    """Whether a script or a recipe of the project sets an option, and so believes in it."""
    flags = [flag.encode() for flag in option.flags or (option.dest,)]
    files = (source.data for path, source in project.files.items() if language(path) != "python")
    return any(flag in data for data in files for flag in flags)


def _renamed(options: Options, read: set[str], loose: dict[str, Related]) -> Iterator[Finding]:
    """Options of parsers to which others add, too, that nothing reads while a name nearly like theirs is read, which
    nothing defines."""
    project = options.project
    rows = [(parser.function, option) for parser in options.parsers if parser.open for option in parser.options]
    rows += options.strays
    defined = {option.dest for _, option in rows}.union(*(parser.dests | parser.inner for parser in options.parsers))
    stored = set(project.analysis(Flow).stores.written) | {function.name for function in project.functions()}
    wanted = {name: at for name, at in loose.items() if name not in defined and name not in stored}
    asked = _asked_for(project)
    seen: set[tuple[str, int]] = set()
    for function, option in rows:
        key = option.path, option.at[0]
        if key not in seen and not {option.dest, option.dest.rpartition(".")[2]} & (read | loose.keys() | asked):
            seen.add(key)
            for name in get_close_matches(option.dest, wanted, 1, _NEARLY) if not _foreign(option) else ():
                yield _left(option, function, name, wanted[name])


def _asked_for(project: Project) -> set[str]:
    """The names of all attributes that are read or called, of whatever object: one that is may be the option."""
    found: set[str] = set()
    for function in project.functions():
        for ref in function.facts.refs:
            if ref.context != "store":
                found.update(ref.path.split(".")[1:])
        for call in function.facts.calls:
            found.update(call.target.split(".")[1:])
    return found


def _alternatives(project: Project) -> dict[tuple[str, int], set[tuple[str, int]]]:
    """By the place of an option the places of those of which a command gives one: they are in one exclusive group."""
    groups: dict[tuple[Method, str], set[tuple[str, int]]] = {}
    for function, call in project.calls("add_argument"):
        rows = (row for row in function.facts.assigns if row.target == call.receiver and row.kind == "call")
        if any(row.value.endswith(".add_mutually_exclusive_group") for row in rows):
            groups.setdefault((function, call.receiver), set()).add((function.path, call.at[0]))
    return {place: group for group in groups.values() for place in group}


def _left(option: Option, function: Method, name: str, at: Related) -> Finding:
    flag = option.flags[-1] if option.flags else option.dest
    return RULE.finding(
        option.path,
        option.at,
        f"the option `{flag}` of `{function.module.name}` is never read, and nothing defines `{name}`, which is read",
        help=f"read `args.{option.dest}`, or name the option `--{name.replace('_', '-')}` as its readers do",
        related=[at],
        context=option.dest,
    )


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


def _loose_names(project: Project, namespaces: Namespaces) -> dict[str, Related]:
    """Attributes read from values of unknown origin that look like a command line, and names in texts; where."""
    holders = {read.receiver.rpartition(".")[2] for read in namespaces.reads} | _LIKELY
    found: dict[str, Related] = {}
    for unit in project.analysis(Flow).all_units():
        loose: set[int] = set()  # what is read of such values, and of that
        for place in namespaces.queries.values(unit, "attr", "call"):
            name, owner = place.value.data, place.operand(0)
            if place.value.op == "call":
                by_name = place.method in _BY_NAME and len(place.value.args) > 2
                name, owner = (place.operand(2).val.constant(), place.operand(1)) if by_name else ("", owner)
                asked = isinstance(name, str) and bool(name)
            else:
                root = unit.root(owner.number)
                asked = root in loose or _last(unit, root) in holders or unit.variables.get(owner.number) in holders
            if asked and (TOP in owner.closed.objs or not namespaces.held(owner)):
                loose.add(place.number)
                found.setdefault(name, Related(unit.path, place.at[0], f"`{name}` is read here"))
    return found


def _last(unit: Unit, number: int) -> str:
    """The last link of the path by which the source calls a value; a command line that is asked for is one."""
    value = unit.code.values[number]
    if value.op == "call" and unit.known_as(value.args[0]) in _READING:
        return "args"
    name = value.data[1] if value.op in ("param", "free") else value.data if value.op in ("attr", "name") else ""
    return str(name or unit.variables.get(number, ""))


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
    # of a parser that a library makes
    """from megatron.training.arguments import parse_args


def provider(parser):
    parser.add_argument("--update-weight-interval", type=int, default=1)  # error: MP303
    parser.add_argument("--rollout-seed", type=int, default=1)
    return parser


def train(strategy, steps):
    args = parse_args(provider)
    for step in range(steps):
        if step % args.update_weights_interval == 0:
            strategy.update(args.tensor_model_parallel_size)
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
    # asked a first time for what decides about its other options
    """import argparse


def build(words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="slurm")
    known, _ = parser.parse_known_args(words)
    if known.backend == "slurm":
        parser.add_argument("--partition", type=str)
    return parser


def main(words=None):
    args = build(words).parse_args(words)
    print(args.backend)
    return args.partition.split(",")
""",
    # one of two that exclude each other says what the other one does not
    """\
import argparse

parser = argparse.ArgumentParser()
mode = parser.add_mutually_exclusive_group(required=True)
mode.add_argument("--check", action="store_true")
mode.add_argument("--fix", action="store_true")
args = parser.parse_args()
print("fixed" if args.fix else "checked")
""",
    # read of what may be anything, where another program's options come as well
    """# file: runner.py
import os


class Runner:
    def __init__(self, args, serves=False):
        self.args = args
        self.tasks = [] if serves else self.listed()

    def listed(self):
        args, tasks = self.args, []
        for number in range(10):
            tasks.append((args.method, number, args))
        return tasks

    def one(self, method, number, args, process=0):
        print(method, number, args.key, process)

    def run(self):
        left = []
        for task in self.tasks:
            if not os.path.exists(task[0]):
                left.append(task)
        for _, task in enumerate(left):
            self.one(*task, process=1)
# file: serve.py
import argparse

from runner import Runner

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", default="x")
    parser.add_argument("--key", default="x")
    args = parser.parse_args()
    Runner(args, serves=True).one("a", 1, args)
# file: work.py
import argparse

from runner import Runner

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", default="x")
    parser.add_argument("--key", default="x")
    Runner(parser.parse_args()).run()
""",
)

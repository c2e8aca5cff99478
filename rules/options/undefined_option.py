"""An option that is read and that the parser of the entry point does not define.

What it does
    Follows the namespace that `parse_args()` returns through assignments, attributes, arguments and results to every
    `args.x` in the project, one parser for each entry point. Reports `x` where no parser whose namespace may come there
    defines it, and where the calls that start at an entry point lead to the read although that entry point's own parser
    lacks it (not where a condition on anything but options decides). Known: groups, subparsers, `parents=`, helpers
    that add options, loops over literal names, `dest=`, `set_defaults`, `args.x = …` and `setattr` anywhere, dotted
    options that become nested namespaces. Silent: parsers that code outside the project adds to, places where a
    namespace may come that the program makes of others (`Namespace(**vars(args), **vars(known))`), namespaces that take
    in the keys of a configuration file or that a library that is not at hand gets, code that only a value of an option
    leads to which the parser does not know (neither a choice nor the default), places behind `hasattr`, `"x" in args`
    or `except AttributeError`, reads by `getattr` with a default.

Why is this bad
    AttributeError, when the line runs. A strategy shared by all entry points that reads an option of one of
    them breaks all the others.

References
    https://docs.python.org/3/library/argparse.html#the-namespace-object
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.options.namespaces import Held, Namespaces, Read
from validator.analysis.options.parsers import Parser
from validator.errors import nearest
from validator.facts.model import Guard
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP301", "undefined-option", "error", "0.1.0", tokens=("parse_args", "parse_known_args", "args."), solves=True
)


_SHOWN = 8  # parsers told of one read


class Verdict(NamedTuple):
    """What is made of a read: the parsers that certainly lack the option, or why nothing is said."""

    lacking: list[Held]
    everywhere: bool = False
    silent: str = ""


def check_project(project: Project) -> Iterator[Finding]:
    namespaces = project.analysis(Namespaces)
    seen: set[tuple[str, str, str]] = set()
    for read in namespaces.reads:
        key = (read.function.path, read.function.qualname, f"{read.receiver}.{read.name}")
        if key in seen:
            continue
        verdict = _judged(read, namespaces)
        if not verdict.silent:
            seen.add(key)
            yield _report(read, verdict.lacking, verdict.everywhere)


def _judged(read: Read, namespaces: Namespaces) -> Verdict:
    if read.how != "attribute":
        return _silent("it is read with a default, or only asked for")
    if read.place.is_called:
        return _silent("it is called, and no option is a function: something else comes here")
    if namespaces.is_written(read.held, read.name):
        return _silent("code sets that name, or one that is computed, on a namespace")
    if any(is_test(h.parser.function.path) for h in read.held):
        return _silent("it is of a test, whose calls are not followed to where options are added")
    there = list(_asked_for(read))
    lacking = [h for h in read.held if not _defines(h, read.name) and all(_defines(h, name) for name in there)]
    if not lacking:
        return _silent("each of them defines it")
    if _excused(read.guards, read.name):
        return _silent("a test around it asks whether it is there, or the error is caught")
    opened = sorted((h.parser for h in read.held if h.parser.open), key=lambda parser: parser.name)
    if opened:
        return _silent(f"the parser of `{opened[0].name}` may have more options: {opened[0].reason}")
    if namespaces.may_be_another(read):
        return _silent("what comes here may as well be a namespace that the program makes of others")
    if any(h.parser in namespaces.filled for h in read.held):
        return _silent("the namespace takes in the keys of a configuration file")
    if any(h.parser in namespaces.filled_outside for h in read.held):
        return _silent("a library that is not at hand gets the namespace, and may set anything")
    return _certain(read, lacking, namespaces)


def _silent(why: str) -> Verdict:
    return Verdict([], silent=why)


def _certain(read: Read, lacking: list[Held], namespaces: Namespaces) -> Verdict:
    """Whether what lacks the option is certain to come to the read."""
    leads = [h for h in lacking if read.function in namespaces.reached(h.parser) and not _decided(read, h, namespaces)]
    everywhere, parsers = len(lacking) == len(read.held), namespaces.options.parsers
    if everywhere and (leads or not any(_defines(Held(p, h.prefix), read.name) for h in lacking for p in parsers)):
        return Verdict(lacking, everywhere)
    if _depends(read):
        return _silent("a condition around it may tell the programs apart of which some lack it")
    if not leads:
        return _silent("no calls are known to lead here from a program that lacks it")
    return Verdict(leads, everywhere)


def about_line(project: Project, path: str, line: int) -> Iterator[str]:
    """Which parsers are asked about the options that a line reads, and why nothing is reported."""
    namespaces = project.analysis(Namespaces)
    here = [r for r in namespaces.reads if r.function.path == path and r.at[0] <= line <= r.at[2]]
    for read in dict.fromkeys(here):
        yield f"  {RULE.code}: `{read.receiver}.{read.name}` is read of the namespace of"
        known = sorted(
            {(h.parser.name, h.parser.function.path, h.parser.at[0], _told(h, read.name)) for h in read.held}
        )
        yield from (
            f"    the parser of `{name}` ({where}:{at}), which {told}" for name, where, at, told in known[:_SHOWN]
        )
        yield from (f"    … and {len(known) - _SHOWN} more" for _ in known[_SHOWN : _SHOWN + 1])
        silent = _judged(read, namespaces).silent
        yield f"    silent: {silent}" if silent else "    reported, at its first place in the function"
    followed = {f"{read.receiver}.{read.name}" for read in here}
    for name in sorted(_not_followed(project, namespaces, path, line) - followed):
        yield f"  {RULE.code}: `{name}` is not known to be read of what a parser gives"
        yield "    silent: " + (
            "what comes here cannot be followed" if namespaces.options.parsers else "there is no parser"
        )


def _told(held: Held, name: str) -> str:
    more = f", but may have more: {held.parser.reason}" if held.parser.open else ""
    return "defines it" if _defines(held, name) else f"has no `{held.below(name)}`{more}"


def _not_followed(project: Project, namespaces: Namespaces, path: str, line: int) -> set[str]:
    """What a line reads of something that is called as namespaces of options are."""
    holders = {"args"} | {read.receiver.rpartition(".")[2] for read in namespaces.reads}
    refs = (ref for function in project.functions() if function.path == path for ref in function.facts.refs)
    links = (ref.path.split(".") for ref in refs if ref.context == "load" and ref.at[0] <= line <= ref.at[2])
    return {".".join(each[: n + 2]) for each in links for n in range(len(each) - 1) if each[n] in holders}


def _defines(held: Held, name: str) -> bool:
    dest = held.below(name)
    return dest in held.parser.dests or dest in held.parser.inner


def _asked_for(read: Read) -> Iterator[str]:
    """The names that surely are there where a read is: `if hasattr(args, "beta1"):` around it lets in no program that
    lacks this one, and then mostly others, too."""
    code = read.place.unit.code
    for branch, way in read.place.unit.control.settled(read.place.value.block):
        _, number, holds, _ = code.blocks[branch].end
        test = read.place.value_at(number)
        parts = [test.value_at(n) for n in test.value.args] if test.unit.connective(number) == "and" else [test]
        for part in parts if way == holds else ():
            if part.value.op == "call" and part.method == "hasattr" and len(part.value.args) == 3:
                name = part.operand(2).value.data
                yield from [name] if isinstance(name, str) and part.operand(2).value.op == "const" else []


def _excused(guards: tuple[Guard, ...], name: str) -> bool:
    word = re.compile(rf"['\"][\w.]*\b{re.escape(name)}['\"]")
    for guard in guards:
        if guard.kind == "try" and any(e in guard.text for e in ("AttributeError", "Exception", "*")):
            return True
        if guard.kind == "if" and word.search(guard.text):
            return True
    return False


def _depends(read: Read) -> bool:
    """Whether the read is taken under a condition about something else than options, and than which rank this is: every
    program has all ranks."""
    ranks = {test.text for test in read.place.tests_inside if test.varies("rank")}
    return any(g.kind == "if" and f"{read.receiver}." not in g.text and g.text not in ranks for g in read.guards)


def _decided(read: Read, held: Held, namespaces: Namespaces) -> bool:
    """Whether the read depends on what is no option of the parser, but what code writes: `args.deepspeed = False`."""
    tested = re.compile(rf"\b{re.escape(read.receiver)}\.(\w+)")
    names = {name for guard in read.guards if guard.kind == "if" for name in tested.findall(guard.text)}
    return any(namespaces.is_written(frozenset({held}), name) and not _defines(held, name) for name in names)


def _report(read: Read, lacking: list[Held], everywhere: bool) -> Finding:
    parsers = sorted({h.parser for h in lacking}, key=lambda p: p.name)
    option = lacking[0].below(read.name)
    where = "" if read.function.qualname == "<module>" else f", which `{read.function.qualname}` reads,"
    names = _names(parsers)
    reached = "" if everywhere else ", whose code leads there"
    choices = sorted({dest for p in parsers for dest in p.dests})
    near = nearest(option, choices) or nearest(read.name, [c.rpartition(".")[2] for c in choices])
    return RULE.finding(
        read.function.path,
        (read.at[0], read.at[1], read.at[0], read.at[1] + len(read.receiver) + 1 + len(read.name)),
        f"`{read.receiver}.{read.name}`{where} is no option of {names}{reached}",
        help=f"add `--{option}` to the parser, or read an option that exists{near}",
        related=[Related(p.module.path, p.at[0], f"the parser of `{p.name}`") for p in parsers[:5]],
        context=f"{read.function.qualname}:{read.receiver}.{read.name}",
    )


def _names(parsers: list[Parser]) -> str:
    names = [f"`{p.name}`" for p in parsers]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


INCORRECT = (
    # what is set is there already
    """import argparse


class Pairs(argparse.Action):
    def __call__(self, parser, args, values, option=None):
        setattr(args, self.dest, dict(each.split("=") for each in values))


def defaults(model):
    return {"lr": 1e-3 if model == "small" else 1e-4}


parser = argparse.ArgumentParser()
parser.add_argument("--model")
parser.add_argument("--lr", type=float)
parser.add_argument("--kwargs", nargs="*", action=Pairs)
args = parser.parse_args()
for name, value in defaults(args.model).items():
    if getattr(args, name) is None:
        setattr(args, name, value)
print(args.learning_rate, args.kwargs)  # error: MP301
""",
    # another program of the project fills its own options from a file
    """# file: evaluate.py
import argparse
import json

parser = argparse.ArgumentParser()
parser.add_argument("--config")
args = parser.parse_args()
for name, value in json.load(open(args.config)).items():
    setattr(args, name, value)
print(args.learning_rate)
# file: train.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr")
args = parser.parse_args()
print(args.learning_rate)  # error: MP301
""",
    # which rank it is decides nothing about the program
    """# file: common.py
import os


def set_up(args):
    rank = int(os.environ.get("RANK", 0))
    quiet = rank != 0 and not args.log_every_rank  # error: MP301
    print(quiet, args.level)
# file: sft.py
import argparse

from common import set_up

parser = argparse.ArgumentParser()
parser.add_argument("--level")
set_up(parser.parse_args())
# file: rm.py
import argparse

from common import set_up

parser = argparse.ArgumentParser()
parser.add_argument("--level")
parser.add_argument("--log_every_rank", action="store_true")
set_up(parser.parse_args())
""",
    # a part of the namespace that a function gets
    """import argparse
from types import SimpleNamespace


def nested(args):
    root = {}
    for key, value in vars(args).items():
        section, _, name = key.partition(".")
        root.setdefault(section, {})[name] = value
    return SimpleNamespace(**{key: SimpleNamespace(**rows) for key, rows in root.items()})


def train(args):
    print(args.data.max_len)
    print(args.data.mox_len)  # error: MP301


parser = argparse.ArgumentParser()
parser.add_argument("--data.max_len", type=int)
train(nested(parser.parse_args()))
""",
    """# file: rl/__init__.py
# file: rl/options.py
import argparse


def with_model(parser):
    parser.add_argument("--model")
    return parser


def build():
    return with_model(argparse.ArgumentParser())
# file: rl/train.py
from rl.options import build, with_model


class Trainer:
    def __init__(self, options):
        self.options = options

    def fit(self):
        return self.options.learning_rate  # error: MP301


if __name__ == "__main__":
    args = build().parse_args()
    print(args.modle)  # error: MP301
    Trainer(args).fit()
    print(build().parse_args([]).seed)  # error: MP301
""",
    """import argparse


def train(args):
    print(args.kl_estimate)  # error: MP301


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kl_estimator", default="k1")
    args = parser.parse_args()
    train(args)
""",
    """# file: rl/__init__.py
# file: rl/strategy.py
class Strategy:
    def __init__(self, args):
        self.args = args

    def prepare(self, model):
        return self.config(model)

    def config(self, model):
        return {"stage": self.args.zero_stage, "compile": self.args.deepcompile}  # error: MP301


def get_strategy(args):
    return Strategy(args=args)
# file: rl/train_ppo.py
import argparse

from rl.strategy import get_strategy

parser = argparse.ArgumentParser()
parser.add_argument("--zero_stage", type=int)
parser.add_argument("--deepcompile", action="store_true")
get_strategy(parser.parse_args()).prepare(None)
# file: rl/train_sft.py
import argparse

from rl.strategy import get_strategy


def add_options(parser):
    group = parser.add_argument_group("zero")
    group.add_argument("--zero_stage", type=int)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    add_options(parser)
    args = parser.parse_args()
    strategy = get_strategy(args)
    strategy.prepare(None)
""",
    """import argparse
from types import SimpleNamespace


def hierarchize(args):
    root = {}
    for key, value in vars(args).items():
        root.setdefault(key.partition(".")[0], {})[key.partition(".")[2]] = value
    return SimpleNamespace(**{key: SimpleNamespace(**value) for key, value in root.items()})


parser = argparse.ArgumentParser()
parser.add_argument("--ds.zero_stage", type=int)
args = hierarchize(parser.parse_args())
print(args.ds.zero_stage, args.zero_stage)  # error: MP301
print(args.ds.offload)  # error: MP301
""",
)

CORRECT = (
    # two namespaces are made one
    """# file: rl/__init__.py
# file: rl/arguments.py
import argparse


def get_args(args=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    return parser.parse_args(args)
# file: rl/train.py
def train(args, make_dataset):
    print(args.lr)
    return make_dataset(args)
# file: finetune.py
import argparse

from rl.arguments import get_args
from rl.train import train


def make_dataset(args):
    return [args.sample_length]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--sample_length", type=int, default=80)
    known, rest = parser.parse_known_args()
    args = get_args(rest)
    args = argparse.Namespace(**vars(args), **vars(known))
    train(args, make_dataset=make_dataset)
""",
    # a variable of a file that holds another parser when its functions run
    """import argparse

config_parser = parser = argparse.ArgumentParser(add_help=False)
parser.add_argument("--config")

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)


def parse():
    config, rest = config_parser.parse_known_args()
    return parser.parse_args(rest), config.config


args, config = parse()
print(args.lr)
""",
    """# file: rl/__init__.py
# file: rl/options.py
import argparse

import megatron


def build():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    return parser


def widened(parser):
    megatron.add_options(parser)
    return parser
# file: rl/train.py
from rl.options import build, widened

args = build().parse_args()
print(args.lr)
rest = widened(build()).parse_args()
print(rest.tp_size)
""",
    """import argparse

parser = argparse.ArgumentParser()
for prefix in ("actor", "critic"):
    parser.add_argument(f"--{prefix}.optim", default="adam")
    parser.add_argument(f"--{prefix}.no_fused", dest=f"{prefix}.fused", action="store_false")
args, rest = parser.parse_known_args()
print(args.actor.optim, args.critic.fused, vars(args))
args.world = 8
print(args.world)
if hasattr(args, "extra"):
    print(args.extra)
""",
    """import argparse

import megatron


def options():
    parser = argparse.ArgumentParser(parents=[base()])
    megatron.add_options(parser)
    return parser


def main():
    args = options().parse_args()
    parser = options()
    args = parser.parse_args()
    return args.anything
""",
    # the keys of a configuration file
    """import argparse
import json


def load(args):
    values = vars(args)
    values.update(json.load(open(args.config)))
    return argparse.Namespace(**values)


parser = argparse.ArgumentParser()
parser.add_argument("--config")
args = load(parser.parse_args())
print(args.layers)
""",
    # what only another program's value of an option leads to
    """# file: rl/__init__.py
# file: rl/data.py
def make(args):
    if args.dataset == "pairs":
        return pairs(args)
    return args.path


def pairs(args):
    return args.margin
# file: rl/train_pairs.py
import argparse

from rl.data import make

parser = argparse.ArgumentParser()
parser.add_argument("--dataset", default="pairs")
parser.add_argument("--margin", type=float)
parser.add_argument("--path")
make(parser.parse_args())
# file: rl/train.py
import argparse

from rl.data import make

parser = argparse.ArgumentParser()
parser.add_argument("--dataset", default="rows")
parser.add_argument("--path")
make(parser.parse_args())
""",
    """import argparse


def main(argv=None):
    parser = argparse.ArgumentParser()
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--seed", type=int)
    commands = parser.add_subparsers(dest="command")
    run = commands.add_parser("run", parents=[common])
    run.add_argument("-n", "--dry-run", action="store_true")
    run.set_defaults(function=print)
    args = parser.parse_args(argv)
    return args.function(args.dry_run, args.command, args.seed)
""",
    # shared code that first asks whether the program has the option
    """# file: rl/__init__.py
# file: rl/shared.py
def load(model, args):
    return model.load(args.initial)

def build(model, args):
    if hasattr(args, "initial") and args.initial is not None:
        return load(model, args)
    if hasattr(args, "first_beta") and args.first_beta is not None:
        return args.first_beta, args.second_beta
    return model

# file: rl/export.py
import argparse
from rl.shared import build

def main(model):
    parser = argparse.ArgumentParser()
    parser.add_argument("--output")
    args = parser.parse_args()
    build(model, args).save(args.output)

# file: rl/train.py
import argparse
from rl.shared import build

def main(model):
    parser = argparse.ArgumentParser()
    parser.add_argument("--initial")
    build(model, parser.parse_args())
""",
    # options of several commands at once
    """\
import argparse


def train(args):
    print(args.model, args.length)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    dump = commands.add_parser("dump")
    dump.set_defaults(func=print)
    learn = commands.add_parser("train")
    learn.set_defaults(func=train)
    for command in [dump, learn]:
        command.add_argument("--model", required=True)
        command.add_argument("--length", default="2xC")
    args = parser.parse_args()
    print(args.length)
    args.func(args)
""",
    # simple_parsing: one attribute for all fields of a class
    """from dataclasses import dataclass

from simple_parsing import ArgumentParser


@dataclass
class Settings:
    lr: float = 0.1


if __name__ == "__main__":
    parser = ArgumentParser()
    parser.add_argument("--model")
    parser.add_arguments(Settings, dest="settings")
    args = parser.parse_args()
    print(args.model, args.settings.lr)
""",
    # a library that is not at hand gets the namespace for what it does with it
    """import argparse

import toolbox.misc as misc

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float)
    args = parser.parse_args()
    misc.init_distributed_mode(args)
    print(args.lr, args.gpu)
""",
    # options that come to nobody: the class does not take this call (MP168)
    """import argparse


class Config:
    hidden = 8


class Sized:
    def __init__(self, args, config, labels):
        self.size = config.hidden * labels


class Plain:
    def __init__(self, config, labels):
        self.size = config.hidden * labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sized", action="store_true")
    args = parser.parse_args()
    model = Sized if args.sized else Plain
    print(model(args, Config(), labels=2).size)


if __name__ == "__main__":
    main()
""",
)

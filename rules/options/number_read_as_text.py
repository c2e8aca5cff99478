"""A number of a YAML file that PyYAML reads as a text: `4e-5`.

What it does
    Finds the numbers of YAML files that YAML 1.1 takes for texts: with an exponent, and without a dot or without a
    sign in the exponent (`4e-5`, `1E5`, `1.0e5`). Reports them where PyYAML reads the file and the key is used as a
    number: it is laid over the options of a command line (`setattr(args, key, value)`, `vars(args).update(config)`)
    of which the one of that name takes a number; it sets a field of a data class that is annotated as one
    (`C(**config)`, `parse_yaml_file` of transformers); code compares or computes with it (`config["lr"] * 0.1`), or
    gives it to an optimizer; or it stands in a section that names what it makes (`_target_: torch.optim.AdamW`), a
    function of the project unpacks such sections, and what is named is an optimizer, or takes a number there. Where
    no text, option or script names the file, most of its keys must be options, or be
    read there, and nothing else in the project may read YAML.
    Silent where code makes a number of something of that name (`float(config["lr"])`) or of every value, before or
    after it is laid over something, in `__post_init__` too; for models of pydantic; and for `set_defaults(**config)`,
    whose texts argparse reads as it reads those of the command line.

Why is this bad
    `yaml.safe_load` gives `"4e-5"`. The first computation raises TypeError, after the models were loaded; what is only
    formatted or handed on goes on as a text. OmegaConf, jsonargparse and YAML 1.2 read a number, so the file may have
    worked elsewhere.

References
    https://yaml.org/type/float.html
    https://github.com/yaml/pyyaml/issues/173
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from validator.analysis.named import Named
from validator.analysis.options.exponents import Exponent, Exponents
from validator.analysis.options.option import Option
from validator.analysis.options.parsers import Options
from validator.analysis.options.set_anew import SetAnew, attribute_set, is_made
from validator.analysis.recipes.laid_over import LaidOver, laid_over
from validator.definitions import ClassDef, Method
from validator.facts.model import At
from validator.finding import Finding, Related
from validator.flow import Flow
from validator.flow.callgraph.receivers import meeting
from validator.flow.constructors import Constructors
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.values import Obj
from validator.project import Project
from validator.rule import Rule
from validator.settings.filled import Filled

RULE = Rule("MP317", "number-read-as-text", "warning", "1.0", languages=("yaml",), solves=True)

_NUMBERS = frozenset({"float", "int"})
_WORDS = re.compile(r"\w+")
_TESTING = frozenset({"isinstance", "len", "type"})
_ORDERING = frozenset({"Lt", "LtE", "Gt", "GtE"})
_COMPUTING = frozenset({"Sub", "Div", "FloorDiv", "Pow", "Mult"})


class _Use(NamedTuple):
    """Why a text of a file has to be a number, and where that is said. `known`: whether the file is surely read."""

    text: Exponent
    why: str
    related: Related
    known: bool


def check_project(project: Project) -> Iterator[Finding]:
    exponents = project.analysis(Exponents)
    if not exponents.all:
        return
    seen = set()
    finders = (_of_options, _of_reads, _of_fields, _of_made)
    for use in (use for find in finders for use in find(project, exponents)):
        if use.text not in seen and use.text.name not in exponents.converted:
            seen.add(use.text)
            yield _report(use)


def _report(use: _Use) -> Finding:
    basis = "" if use.known else "; nothing names the file: that it is read there rests on its keys"
    text = use.text
    return RULE.finding(
        text.source.path,
        text.setting.value_at,
        f"`{'.'.join(text.setting.path)}: {text.text}` is a text for PyYAML, not a number, and {use.why}{basis}",
        help=f"write `{text.advice}`, or make a number of it where it is read",
        related=[use.related],
        context=".".join(text.setting.path),
    )


def _of_options(project: Project, exponents: Exponents) -> Iterator[_Use]:
    """What is laid over options of a command line, past their types."""
    for laid in laid_over(project):
        for parser in laid.parsers if not laid.typed else ():
            names = {option.dest for option in parser.options}
            for o in laid.section.closed.of("section"):
                for option in filter(_is_number, parser.options):
                    texts, known = exponents.read(o, option.dest)
                    made = _is_made(project, laid, o, option.dest) if texts else True
                    for text in texts if not made else ():
                        if known or _is_most(text, names):
                            yield _of_option(text, option, laid.call, known)


def _is_made(project: Project, laid: LaidOver, o: Obj, name: str) -> bool:
    """Whether a number is made of a value before it is set, or after that, as of each."""
    set_anew = project.analysis(SetAnew)
    anew = (*set_anew.of_options(laid.parsers), *set_anew.of_section(o))
    return (laid.value is not None and is_made(laid.value, name)) or any(each.makes(name) for each in anew)


def _is_number(option: Option) -> bool:
    kind = type(option.default)
    return option.type in _NUMBERS or not option.type and kind in (int, float)


def _is_most(text: Exponent, names: Collection[str]) -> bool:
    """Whether most keys at the top of the file have one of some names."""
    keys = [each.path[0] for each in text.source.facts.extra["settings"].settings if len(each.path) == 1]
    return 2 * sum(key in names for key in keys) > len(keys)


def _of_option(text: Exponent, option: Option, call: Place, known: bool) -> _Use:
    what = f"`type={option.type}`" if option.type else f"the default {option.default!r}"
    why = f"`{call.unit.text(call.value.at)}`{call.where} sets the option `{option.dest}` to it, past {what}"
    return _Use(text, why, Related(call.unit.path, call.at[0], "the options are set here"), known)


def _of_reads(project: Project, exponents: Exponents) -> Iterator[_Use]:
    """What code computes with."""
    reads = [(read, name, o) for read, name, owner in _all_reads(project) for o in owner]
    asked: dict[object, set[str]] = {}  # by the calls that read a file the keys at its top for which code asks
    for _, name, o in reads:
        asked.setdefault(o[1], set()).add((o[2] or name).partition(".")[0])
    for read, name, o in reads:
        user = next((each for each in read.users if _computes(each, read)), None)
        texts, known = exponents.read(o, name) if user is not None else ([], False)
        if texts and any(anew.makes(name) for anew in project.analysis(SetAnew).of_section(o)):
            continue
        for text in texts:
            if user is not None and (known or _is_most(text, asked[o[1]])):
                why = f"`{user.unit.text(user.value.at)}`{user.where} takes it for a number"
                yield _Use(text, why, Related(user.unit.path, user.at[0], "it is used here"), known)


def _all_reads(project: Project) -> Iterator[tuple[Place, str, list[Obj]]]:
    queries = project.analysis(Queries)
    for unit in meeting(queries.flow, "section"):
        for read in queries.values(unit, "item", "attr", "call") if not is_aside(unit.path) else ():
            name, owner = _key(read)
            if name:
                yield read, name, owner


def _key(read: Place) -> tuple[str, list[Obj]]:
    """The key that is read of a section, and the sections."""
    if read.value.op == "attr":
        return str(read.value.data), read.operand(0).closed.of("section")
    if read.value.op == "item":
        key = read.operand(1).val.constant()
        return (key, read.operand(0).closed.of("section")) if isinstance(key, str) else ("", [])
    if read.method == "get" and read.receiver is not None and len(read.value.args) > 1:
        key = read.operand(1).val.constant()
        return (key, read.receiver.closed.of("section")) if isinstance(key, str) else ("", [])
    return "", []


def _computes(user: Place, read: Place) -> bool:
    """Whether a user of a value fails where that is a text."""
    if user.value.op == "call":
        named = zip(user.value.data.names, user.value.args[1:], strict=True)
        passed = {keyword for keyword, number in named if number == read.number}
        optimizers = (o[0] == "ext" and o[1].startswith("torch.optim.") for o in user.operand(0).closed.each)
        return bool(passed) and any(optimizers)
    computes = user.value.op == "binary" and user.value.data in _COMPUTING
    orders = user.value.op == "compare" and user.value.data in _ORDERING
    return computes or orders


def _of_fields(project: Project, exponents: Exponents) -> Iterator[_Use]:
    """What sets fields of data classes that are annotated as numbers."""
    parsed = _parsed(project) if exponents.is_plain else frozenset()
    for fills in project.analysis(Filled).all if exponents.is_plain else ():
        for fill in fills:
            open_ = not fill.schema.is_strict and not _makes_fields(project, fill.schema.cls)
            for setting, field in fill.fields if open_ else ():
                path = fill.schema.cls.path
                text = exponents.all.get((fill.section.path, *setting.at[:2]))
                is_number = not _NUMBERS.isdisjoint(_WORDS.findall(field.annotation))
                if text is not None and is_number and (fill.declared or (path, field.at) in parsed):
                    why = f"sets `{fill.schema.cls.name}.{field.name}`, which is `{field.annotation}`"
                    yield _Use(text, why, Related(path, field.at[0], "the field"), fill.declared)


def _makes_fields(project: Project, cls: ClassDef) -> bool:
    """Whether a class makes something else of the values of its fields, one like the other, once they are set."""
    method = cls.find("__post_init__")
    unit = project.analysis(Flow).unit_of(method) if isinstance(method, Method) else None
    calls = project.analysis(Queries).calls_in(unit) if unit is not None else ()
    stores = (attribute_set(call) for call in calls if call.method in ("setattr", "__setattr__"))
    return any(store is not None and store[1].value.root.value.op == "call" for store in stores)


def _parsed(project: Project) -> frozenset[tuple[str, At]]:
    """The fields of classes of which a parser of transformers makes objects as the file says."""
    if not any(project.calls("parse_yaml_file")):
        return frozenset()
    parsers = (parser for parser in project.analysis(Options).parsers if parser.from_dataclasses)
    return frozenset((option.path, option.at) for parser in parsers for option in parser.options)


def _of_made(project: Project, exponents: Exponents) -> Iterator[_Use]:
    """What stands in sections that name what they make, where a function of the project unpacks such sections."""
    targets = project.analysis(Flow).models.targets
    queries = project.analysis(Queries)
    makers = {key: maker for key in targets if exponents.is_plain and (maker := _maker(queries, key))}
    for text in exponents.all.values():
        for key, maker in makers.items():
            inside, above = targets[key], text.setting.path[:-1]
            if inside and above[-1:] != (inside,):
                continue
            named = text.source.facts.extra["settings"].get(*(above[:-1] if inside else above), key)
            made = named.value if named is not None else None
            if isinstance(made, str) and _takes_number(project, made, text.name):
                why = f"`{maker.unit.text(maker.value.at)}`{maker.where} makes `{made}` of it"
                yield _Use(text, why, Related(maker.unit.path, maker.at[0], "the section is unpacked here"), False)


def _maker(queries: Queries, key: str) -> Place | None:
    """The call that unpacks a section which names under a key what it makes; None where the function that does so, or
    another one, may make something else of the values."""
    found = None
    for module in queries.flow.mentions.spelling(key):
        for unit in queries.flow.whole_units(module) if not is_aside(module.path) else ():
            if any(place.value.data == key for place in queries.values(unit, "const")):
                calls = list(queries.calls_in(unit))
                if any(_takes_value(call) for call in calls):
                    return None
                unpacks = (call for call in calls if "**" in call.value.data.names)
                found = found or next((call for call in unpacks if call.operand(0).root.value.op == "call"), None)
    return found


def _takes_value(call: Place) -> bool:
    """Whether a call gets one of the values through which its function goes, other than to ask what it is."""
    if call.method in (*_TESTING, call.unit.code.name):
        return False
    given = [call.value_at(number).root for number in call.value.args[1:]]
    return any((each.operand(0).root if each.value.op == "unpack" else each).value.op == "next" for each in given)


def _takes_number(project: Project, made: str, name: str) -> bool:
    """Whether what a section makes takes a number under a key."""
    if made.startswith("torch.optim."):
        return True
    symbol = project.analysis(Named).of(made)
    if isinstance(symbol, ClassDef):
        params = project.analysis(Constructors).of(symbol) or ()
    else:
        params = symbol.facts.params if isinstance(symbol, Method) else ()
    return any(param.name == name and not _NUMBERS.isdisjoint(_WORDS.findall(param.annotation)) for param in params)


_OPTIONS = """# file: options.py
import argparse

import yaml{more}


def read():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--min_lr", type=float)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--run")
    args = parser.parse_args()
    with open(args.config) as file:
        config = yaml.safe_load(file)
    {laid}
    return args


args = read()
print(args.lr, args.min_lr, args.steps, args.run)
# file: configs/base.yaml
lr: 1e-4{first}
min_lr: 4e-5{second}
steps: 1.0e+5
run: 3e7
"""
_EACH = "for key, value in config.items():\n        {converted}setattr(args, key, value)"
_LR = 'if key == "lr":\n            value = float(value)\n        '
_ALL = "if isinstance(value, str):\n            value = float(value)\n        "

_LATER = """
    for key, value in vars(args).items():
        if key != "config" and isinstance(value, str):
            setattr(args, key, float(value))"""
_AS_TYPES = """
    for action in parser._actions:
        if action.type is not None and isinstance(getattr(args, action.dest, None), str):
            setattr(args, action.dest, action.type(getattr(args, action.dest)))"""
_BEFORE = "for key, value in config.items():\n        if key != 'run':\n            config[key] = float(value)\n    "

_READS = """# file: rl/__init__.py
# file: rl/train.py
from dataclasses import dataclass

import torch
import yaml


@dataclass
class Schedule:
    warmup: int
    decay: float = 0.1
    name: str = "cosine"


def train(model):
    with open("conf/train.yaml") as file:
        config = yaml.safe_load(file)
    schedule = Schedule(**config["schedule"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["optimizer"]["lr"])
    if config["limit"] > 3:
        print(schedule, config["optimizer"].get("eps", 0.1){plus}, float(config["decay"]) * 2)
    return optimizer
# file: conf/train.yaml
optimizer:
  lr: {lr}
  eps: {eps}
schedule:
  warmup: {warmup}
  decay: 0.1
  name: 1e5
limit: {limit}
decay: 1e-3
"""

_PARSED = """# file: train.py
from dataclasses import dataclass
from typing import Optional

from transformers import HfArgumentParser


@dataclass
class Arguments:
    beta: float = 0.1
    gamma: Optional[float] = None
    rate: float = 1e-4
    steps: int = 10


arguments, = HfArgumentParser(Arguments).{how}
print(arguments.beta, arguments.gamma, arguments.rate, arguments.steps)
# file: base.yaml
beta: 1e-2{mark}
gamma: 5e-1{mark}
rate: 1.0e-4
steps: 20
"""

_NAMED_BY_NOBODY = """# file: train.py
import sys

import yaml

with open(sys.argv[1]) as file:
    config = yaml.safe_load(file)
print(config["lr"] * 0.5, config["steps"] - 1)
# file: configs/small.yaml
lr: 1e-4{mark}
steps: 10
# file: serving.yaml
lr: 1e-4
port: 80
host: localhost
"""

_MADE = """# file: build.py
import importlib

import yaml


def build(section, *given):
    options = dict(section)
    module, name = options.pop("_target_").rsplit(".", 1)
    {more}
    return getattr(importlib.import_module(module), name)(*given, **options)


def main(path, model):
    with open(path) as file:
        config = yaml.safe_load(file)
    return build(config["optimizer"], model.parameters()), build(config["decay"])
# file: decay.py
class Decay:
    def __init__(self, rate: float, run: str):
        self.rate, self.run = rate, run
# file: large.yaml
optimizer:
  _target_: torch.optim.AdamW
  lr: 6e-5{mark}
decay:
  _target_: decay.Decay
  rate: 1e-3{mark}
  run: 1e3
"""

_MARK = "  # error: MP317"

INCORRECT = (
    _OPTIONS.format(more="", laid=_EACH.format(converted=""), first=_MARK, second=_MARK),
    _OPTIONS.format(more="", laid=_EACH.format(converted=_LR), first="", second=_MARK),
    _OPTIONS.format(more="", laid="vars(args).update(config)", first=_MARK, second=_MARK),
    _READS.format(plus=" - 1", lr=f"1e-5{_MARK}", eps=f"1.0e8{_MARK}", warmup=f"1e3{_MARK}", limit=f"2E+6{_MARK}"),
    _NAMED_BY_NOBODY.format(mark=_MARK),
    _MADE.format(more="print(name)", mark=_MARK),
    _PARSED.format(how='parse_yaml_file("base.yaml")', mark=_MARK),
)

CORRECT = (
    _OPTIONS.format(more="", laid=_EACH.format(converted=_ALL), first="", second=""),
    _OPTIONS.format(more="", laid="parser.set_defaults(**config)\n    args = parser.parse_args()", first="", second=""),
    _OPTIONS.format(more="\nfrom omegaconf import OmegaConf", laid=_EACH.format(converted=""), first="", second=""),
    # numbers are made of all options once they are laid, as of the texts of the command line, or before
    _OPTIONS.format(more="", laid=_EACH.format(converted="") + _LATER, first="", second=""),
    _OPTIONS.format(more="", laid=_EACH.format(converted="") + _AS_TYPES, first="", second=""),
    _OPTIONS.format(more="", laid=_BEFORE + _EACH.format(converted=""), first="", second=""),
    """# file: train.py
from dataclasses import dataclass

import yaml


@dataclass
class Schedule:
    rate: float = 1e-4
    warmup: int = 10

    def __post_init__(self):
        for name, kind in self.__annotations__.items():
            setattr(self, name, kind(getattr(self, name)))


def number(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def mend(part):
    for key, value in part.items():
        if isinstance(value, dict):
            mend(value)
        else:
            part[key] = number(value)


with open("conf.yaml") as file:
    schedule = Schedule(**yaml.safe_load(file))
with open("optim.yaml") as file:
    config = yaml.safe_load(file)
mend(config)
print(schedule.rate * 0.5, config["adamw"]["lr"] * 0.1)
# file: conf.yaml
rate: 1e-3
warmup: 30
# file: optim.yaml
adamw:
  lr: 1e-3
""",
    _MADE.format(more="options = {key: typed(value) for key, value in options.items()}", mark=""),
    _READS.format(plus="", lr="1.0e-5", eps="1e-8", warmup="1000", limit="2.0e+6"),
    _PARSED.format(how="parse_args_into_dataclasses()", mark=""),
)

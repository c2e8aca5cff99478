"""Command-line options: which parsers a project builds, and what each of them accepts.

A parser is what the flow knows by the calls that made it (`("parser", calls, …)`): through groups, subparsers, helpers
that add options to it, and factories, for each caller of which it is another one; loops over literal values are
unrolled. What cannot be followed makes a parser *open*: it may accept more than is known here.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from validator.analysis.options.class_parsers import ClassParsers, library_class
from validator.analysis.options.option import Option, options_of
from validator.analysis.options.provided import Providers
from validator.facts.model import At, Call
from validator.flow.callgraph.receivers import meeting
from validator.flow.literals import UNKNOWN, Round, literal, text
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.values import Obj, Val, elements, parts_of
from validator.models.signatures import Signature
from validator.project import ClassDef, Method, Module, Project

# what deepspeed.add_config_arguments adds, with the actions (deepspeed 0.19)
_DEEPSPEED = {
    "deepspeed": "store_true", "deepspeed_config": "store", "deepscale": "store_true", "deepscale_config": "store",
}  # fmt: skip
_STRICT = frozenset({"parse_args", "parse_intermixed_args"})
_CLASSES = frozenset({"parse_args_into_dataclasses", "parse_args_and_config"})  # of transformers, of trl
_LENIENT = ("return_remaining_strings", "fail_with_unknown_args")
_READING = _STRICT | _CLASSES | {"parse_known_args"}
_OF_FILES = frozenset({"parse_json_file", "parse_yaml_file", "parse_dict"})  # which ask no command line
_WITH_CONFIG = "trl.TrlParser"  # it reads the file that `--config` names first
_HARMLESS = frozenset({"print", "isinstance", "len", "id", "type", "str", "repr", "hasattr", "getattr"})
_SETTING_UP = frozenset({"parse_known_args", "append"})
_OWN = frozenset(name for name in dir(argparse.ArgumentParser) if not name.startswith("__"))  # the rest libraries add

Calls = tuple[Any, ...]  # the calls that made a parser, the outermost first: (unit, number)


class Site(NamedTuple):
    """A call of `parse_args` or its like. `strict`: it refuses options that it does not know."""

    function: Method
    call: Call
    strict: bool
    place: Place | None = None

    @property
    def of_file(self) -> bool:
        """Whether it asks a file, or a dictionary, instead of the command line."""
        return self.call.method in _OF_FILES


@dataclass(eq=False)
class Parser:
    """A parser as an entry point uses it. `open`: it may accept more than `options`; `why` says why. `taken`: classes
    of libraries whose fields are options, too, in the releases that have them."""

    function: Method
    at: At
    options: list[Option] = field(default_factory=list)
    defaults: set[str] = field(default_factory=set)
    sites: list[Site] = field(default_factory=list)
    why: str = ""
    taken: list[Signature] = field(default_factory=list)
    from_dataclasses: bool = False
    grown: list[Parser] = field(default_factory=list)  # what it is where functions that hand it back are called
    parents: list[Calls] = field(default_factory=list)
    made: Calls = ()

    @property
    def open(self) -> bool:
        return bool(self.reason)

    @property
    def reason(self) -> str:
        """Why it may accept more than its options."""
        return self.why or ", ".join(
            f"it has the fields of `{each.name}` of {each.library.package}" for each in self.taken
        )

    @property
    def refuses_others(self) -> bool:
        """Whether it refuses what is neither one of its options nor a field of the classes in `taken`."""
        asking = [site.strict for site in self.sites if not site.of_file]
        return not self.why and all(asking) and (bool(asking) or not self.sites)

    @property
    def reads_files(self) -> bool:
        """Whether the options may stand in a file that the command line names, instead of flags."""
        return any(site.of_file for site in self.sites)

    @property
    def module(self) -> Module:
        return self.function.module

    @property
    def name(self) -> str:
        """How people call it: the module that is started."""
        return self.module.name

    @cached_property
    def dests(self) -> frozenset[str]:
        return frozenset(option.dest for option in self.options) | frozenset(self.defaults)

    @cached_property
    def inner(self) -> frozenset[str]:
        """The nodes above dotted destinations: `ds` and `ds.lora` for `ds.lora.rank`."""
        found: set[str] = set()
        for dest in self.dests:
            links = dest.split(".")
            found.update(".".join(links[:n]) for n in range(1, len(links)))
        return frozenset(found)

    @cached_property
    def flags(self) -> dict[str, Option]:
        """Every spelling of every option (`-m`, `--no_x`) that a command line may use."""
        return {flag: option for option in self.options for flag in option.flags}

    def option(self, dest: str) -> Option | None:
        return next((option for option in self.options if option.dest == dest), None)


def _open_to_strangers(parsers: Iterable[Parser]) -> None:
    """Where the function that makes a parser adds options to what is not followed (`for p in commands: …`), the parser
    may have them."""
    known = {(option.path, option.at) for parser in parsers for option in parser.options}
    for parser in parsers:
        calls = parser.function.facts.calls if not parser.why else ()
        if any(c.method == "add_argument" and (parser.function.path, c.at) not in known for c in calls):
            parser.why = "options are added to what is not followed"


class Options:
    """The parsers of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.queries = project.analysis(Queries)
        self.objects = project.analysis(Objects)
        self.flow = self.queries.flow
        self._classes = ClassParsers(project)
        self._passed: dict[tuple[Calls, Unit], list[Round]] = {}  # by parser and function that adds options to it

    @cached_property
    def parsers(self) -> tuple[Parser, ...]:
        """Every parser whose command line is really read, in the order of the files."""
        read = [parser for parser in self.made.values() if parser.sites]
        found = (*self._of_classes(), *sorted(read, key=lambda parser: (parser.function.path, parser.at)))
        _open_to_strangers(found)
        return found

    @cached_property
    def made(self) -> dict[Calls, Parser]:
        """The parsers by the calls that made them, with what is done with them."""
        named = self.flow.mentions.naming(*self._makers) if self._makers else ()
        calls = [p for unit in (meeting(self.flow, "parser") if named else ()) for p in self.queries.calls_in(unit)]
        found: dict[Calls, Parser] = {}
        for place in calls:
            made = (each for each in _parsers_in(place.val) if each[0] == (place.unit, place.number))
            found |= {each: self._new(place, each) for each in made}
        for place in calls:
            self._used(found, place)
        _complete(found)
        return found

    @cached_property
    def _makers(self) -> tuple[str, ...]:
        """The names of the classes of libraries that are parsers."""
        names = (name for name in self.flow.models.calls if self.flow.models.method(name, "parse_args") is not None)
        return tuple(dict.fromkeys(name.rpartition(".")[2] for name in names))

    @cached_property
    def strays(self) -> list[tuple[Method, Option]]:
        """Options that are added to parsers which nobody here makes: a library's, in a function that it is given."""
        known = {(option.path, option.at) for parser in self.parsers for option in parser.options}
        calls = self.project.calls("add_argument")
        return [
            (function, option)
            for function, call in calls
            if (function.path, call.at) not in known
            if (place := self.objects.call_at(function.module, call.at)) is not None
            for option in options_of(place, call) or ()
        ]

    def _of_classes(self) -> Iterator[Parser]:
        """The parsers that one call makes of a class and asks at once: `tyro.cli(Settings)`."""
        for reading in self._classes.readings():
            options, complete = self._classes.options(reading.cls)
            for flag in reading.more:
                at = reading.cls.facts.name_at
                options.append(Option(flag[2:], (flag,), "", "store", UNKNOWN, None, None, False, reading.cls.path, at))
            site = Site(reading.function, reading.call, strict=True)
            parser = Parser(reading.function, reading.call.at, options, set(), [site], from_dataclasses=True)
            if not (complete and reading.plain):
                parser.why = f"not all options of `{reading.cls.name}` are known"
            yield parser

    def entry(self, module: str) -> Parser | None:
        """The parser of the entry point that is started as `-m module`: made in it, or in what it imports."""
        own = [p for p in self.parsers if p.name == module or any(s.function.module.name == module for s in p.sites)]
        return own[0] if len(own) == 1 else next((p for p in own if p.name == module), None)

    # -- making --------------------------------------------------------------------------------------------

    def _new(self, place: Place, calls: Calls) -> Parser:
        """The parser that a call makes, or that it gets from a function that makes one."""
        parser, callee = Parser(place.unit.scope, place.at, made=calls), Place(self.flow, *calls[-1]).operand(0).closed
        classes = [o[1] for o in callee.of("class")]
        names = [*(base for cls in classes for base in cls.external_bases), *(o[1] for o in callee.of("ext"))]
        rows = (self.flow.models.call(name) for name in names)
        parser.from_dataclasses = any(row is not None and row.classes is not None for row in rows)
        if len(calls) > 1:
            return parser
        for cls in classes:
            if _adds_options(cls):
                parser.why = f"`{cls.name}` may add options of its own"
        if parser.from_dataclasses:
            self._add_dataclasses(parser, place)
        self._take_over(parser, place)
        path, helps = place.unit.path, place.argument("add_help")
        if helps is None or not helps.closed.is_const(False):
            parser.options.append(Option("help", ("-h", "--help"), "", "help", None, None, None, False, path, place.at))
        if any(self.flow.models.named(name) == _WITH_CONFIG for name in names):
            parser.options.append(Option("config", ("--config",), "", "store", None, None, None, False, path, place.at))
        return parser

    @staticmethod
    def _take_over(parser: Parser, place: Place) -> None:
        """Note the parsers whose options one takes over (`parents=`); those that are not known leave it open."""
        given = place.argument("parents")
        inside = elements(given.closed) if given is not None else None
        parser.parents += [o[1] for o in inside.of("parser")] if inside is not None else []
        if given is not None and inside is not None and not inside.of("parser"):
            parser.why = f"the parents `{given.text}` cannot be followed"

    def _add_dataclasses(self, parser: Parser, place: Place) -> None:
        """`HfArgumentParser((ModelArguments, DataArguments))`: the fields of the classes are the options."""
        classes, taken, all_known = self._classes.given(place)
        parser.taken += taken
        if not all_known:
            parser.why = "not all its classes are known"
        for cls in classes:
            options, complete = self._classes.options(cls, nested=False)
            parser.options += options
            inherited = library_class(cls)
            if inherited is not None:
                parser.taken.append(inherited)
            elif not complete:
                parser.why = f"not all fields of `{cls.name}` are known"

    # -- what is done with parsers -------------------------------------------------------------------------

    def _used(self, parsers: dict[Calls, Parser], place: Place) -> None:
        """Note what a call does with parsers: its receiver, or its arguments."""
        vals, receiver = place.result.vals, place.receiver
        called = self._parsers(place, vals[receiver.number]) if receiver is not None else ()
        given = [o for number in place.value.args[1:] for o in self._parsers(place, vals[number])]
        said = self.objects.spelled(place) if called or given else None
        if said is not None:
            for o in called:
                self._called(parsers[o[1]], place, *said, of_command=o[2])
            for o in given:
                self._given(parsers[o[1]], place, *said)

    def _parsers(self, place: Place, value: Val) -> list[Obj]:
        """The parsers that a value may be, with what callers pass."""
        return (self.flow.close(value, place.unit) if value.holes else value).of("parser") if value.objs else []

    def _called(self, parser: Parser, place: Place, function: Method, call: Call, of_command: bool) -> None:
        method = place.method
        if method == "add_argument":
            options = self._added(parser, place, call)
            # one command requires it, the others do not know it; so of what is added under a condition
            conditions = place.unit.control.deciding(place.value.block).difference(place.unit.code.loops)
            always = not (of_command or conditions)
            parser.options += [each._replace(required=each.required and always) for each in options]
        elif method == "add_parser":
            self._take_over(parser, place)
        elif method == "add_subparsers" and (dest := place.argument("dest")) is not None:
            parser.defaults.add(text(dest) or "")
        elif method == "set_defaults":
            parser.defaults.update(a.keyword for a in call.args if a.keyword and a.keyword not in ("*", "**"))
        elif method in _READING or parser.from_dataclasses and method.startswith("parse"):
            parser.sites.append(Site(function, call, _is_strict(call), place))
        elif method not in _OWN and not self.objects.run_by(place):  # `add_arguments` of simple_parsing
            parser.why = f"`{call.target}` may add options"

    def _added(self, parser: Parser, place: Place, call: Call) -> list[Option]:
        spread = [a.keyword for a in call.args]
        if not call.positional and "**" in spread or "*" in spread:
            parser.why = "an option is added from unpacked arguments"
            return []
        key = (parser.made, place.unit)
        if key not in self._passed:
            self._passed[key] = list(self._passed_with(parser, place.unit)) or [{}]
        found: list[Option] = []
        for options in (options_of(place, call, given) for given in self._passed[key]):
            if options is None:
                parser.why = "the name of an option is computed"
            found += [each for each in options or () if each not in found]
        return found

    def _passed_with(self, parser: Parser, unit: Unit) -> Iterator[Round]:
        """What the parameters of a function hold in each call that passes a parser to it."""
        values = unit.code.values
        numbers = {value.data[0]: n for n, value in enumerate(values) if value.op == "param"}
        for caller, passed in self.flow.calls_of(unit):
            given = {p: argument_of(caller, passed.site, unit, p) for p in numbers}
            places = {p: Place(self.flow, caller, number) for p, number in given.items() if number is not None}
            if any(o[1] == parser.made for place in places.values() for o in self._parsers(place, place.val)):
                yield {numbers[p]: literal(place) for p, place in places.items()}

    def _given(self, parser: Parser, place: Place, function: Method, call: Call) -> None:
        """Note that a call is given a parser."""
        if ("ext", "deepspeed.add_config_arguments") in place.operand(0).closed.objs:
            for name, action in _DEEPSPEED.items():
                flags = (f"--{name}",)
                parser.options.append(Option(name, flags, "", action, None, None, None, False, function.path, call.at))
        elif place.method not in _HARMLESS | _SETTING_UP and not self.objects.run_by(place):
            parser.why = f"`{call.target}` may add options"
        elif place.operand(0).root.value.op == "param":  # a function that callers give
            self._provided(parser, place, call)

    def _provided(self, parser: Parser, place: Place, call: Call) -> None:
        """Note what functions add that are passed as values, as far as the flow has not brought the parser there."""
        known = {(option.path, option.at) for option in parser.options}
        for number in place.value.args[1:]:
            if any(o[1] == parser.made for o in self._parsers(place, place.result.vals[number])):
                provided = Providers(self.objects).of_call(place, number)
                parser.options += [each for each in provided.options if (each.path, each.at) not in known]
                if not provided.complete:
                    parser.why = f"`{call.target}` may add options"


def _parsers_in(value: Val) -> Iterator[Calls]:
    """The parsers that a value is or holds, at any depth: a function may give one back beside something else."""
    for o in value.each:
        if o[0] == "parser":
            yield o[1]
        else:
            for part in parts_of(o):
                yield from _parsers_in(part)


def _complete(parsers: dict[Calls, Parser]) -> None:
    """Give parsers what they had before functions handed them back, and the options of their parents."""
    for calls, parser in sorted(parsers.items(), key=lambda row: -len(row[0])):
        for start in range(1, len(calls)):
            before = parsers[calls[start:]]
            before.grown.append(parser)
            parser.options[:0] = before.options
            parser.defaults |= before.defaults
            parser.parents += before.parents
            parser.taken += before.taken
            parser.why = parser.why or before.why
    own = {calls: (list(parser.options), list(parser.taken)) for calls, parser in parsers.items()}
    for calls, parser in parsers.items():
        for above in _above(parsers, calls)[1:]:
            options, taken = own[above]
            parser.options += [each for each in options if each not in parser.options]
            parser.taken += taken
            parser.why = parser.why or parsers[above].why


def _above(parsers: dict[Calls, Parser], calls: Calls) -> list[Calls]:
    """A parser, its parents, and theirs."""
    found = [calls]
    for each in found:
        found += [parent for parent in parsers[each].parents if parent not in found]
    return found


def _is_strict(call: Call) -> bool:
    """Whether a call that reads a command line refuses options that it does not know."""
    whole = call.method in _CLASSES and all(call.keyword(each) is None for each in _LENIENT)
    return call.method in _STRICT or whole and not call.positional


def _adds_options(cls: ClassDef) -> bool:
    """Whether a class of parsers of the project may add options by itself."""
    calls = {call.method for each in cls.mro for method in each.every_method() for call in method.facts.calls}
    return cls.find("__init__") is not None or not calls.isdisjoint(("add_argument", "add_argument_group"))

"""Command-line options: which parsers a project builds, and what each of them accepts.

A parser is followed from the place that makes it through groups, subparsers, `parents=`, helpers that add
options to it (in other modules too) and factories that return it; loops over literal values are unrolled. What
cannot be followed makes a parser *open*: it may accept more than is known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from validator.analysis.binding import bind
from validator.analysis.class_parsers import ClassParsers
from validator.analysis.option_calls import UNKNOWN, Option, loop_passes, option_of, text_of, value_of
from validator.analysis.places import call_bound, within
from validator.facts.model import Argument, Assign, At, Call
from validator.flow.objects import Objects
from validator.project import ClassDef, Method, Module, Project, Value

_MAKERS = (
    "argparse.ArgumentParser",
    "configargparse.ArgumentParser",
    "configargparse.ArgParser",
    "simple_parsing.ArgumentParser",
)
_DATACLASS_MAKERS = re.compile(r"(^|\.)(HfArgumentParser|TrlParser)$")
_BELOW = re.compile(r"\.(add_argument_group|add_mutually_exclusive_group|add_subparsers|add_parser)(?:\(\))?$")
_LINKS = re.compile(r"(\.(add_argument_group|add_mutually_exclusive_group|add_subparsers|add_parser)\(\))+")
# what deepspeed.add_config_arguments adds, with the actions (deepspeed 0.19)
_DEEPSPEED = {
    "deepspeed": "store_true", "deepspeed_config": "store", "deepscale": "store_true", "deepscale_config": "store",
}  # fmt: skip
_STRICT = frozenset({"parse_args", "parse_intermixed_args"})
_READING = _STRICT | {"parse_known_args", "parse_args_into_dataclasses"}
_FACTORIES = 4  # functions through which a parser is handed back
_HARMLESS = frozenset({"print", "isinstance", "len", "id", "type", "str", "repr", "hasattr", "getattr"})


class Site(NamedTuple):
    """A call of `parse_args` or its like. `strict`: it refuses options that it does not know."""

    function: Method
    call: Call
    strict: bool


@dataclass(eq=False)
class Parser:
    """A parser as an entry point uses it. `open`: it may accept more than `options`; `why` says why."""

    function: Method
    at: At
    options: list[Option] = field(default_factory=list)
    defaults: set[str] = field(default_factory=set)
    sites: list[Site] = field(default_factory=list)
    open: bool = False
    why: str = ""
    from_dataclasses: bool = False
    grown: list[Parser] = field(default_factory=list)  # what it is where functions that hand it back are called
    handed: dict[Method, set[Method]] = field(default_factory=dict)  # the functions that are given it, and by whom

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

    def copy(self, function: Method, call: Call) -> Parser:
        """The parser as another function gets it, with nothing parsed yet."""
        defaults = set(self.defaults)
        return Parser(function, call.at, list(self.options), defaults, [], self.open, self.why, self.from_dataclasses)

    def option(self, dest: str) -> Option | None:
        return next((option for option in self.options if option.dest == dest), None)


class Options:
    """The parsers of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._busy: set[tuple[Method, str]] = set()
        self._classes = ClassParsers(project)

    @cached_property
    def parsers(self) -> tuple[Parser, ...]:
        """Every parser whose command line is really read, in the order of the files."""
        found = [*self._of_classes()]
        for function, maker in self._made():
            for parser in self._grown(function, maker):
                if parser.sites:
                    found.append(parser)
        return tuple(found)

    @cached_property
    def strays(self) -> list[tuple[Method, Option]]:
        """Options that are added to parsers which nobody here makes: a library's, in a function that it is given."""
        known = {(option.path, option.at) for parser in self.parsers for option in parser.options}
        calls = self.project.calls("add_argument")
        return [
            (function, option)
            for function, call in calls
            if (function.path, call.at) not in known
            for option in _options_of(function, call) or ()
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
                parser.open, parser.why = True, f"not all options of `{reading.cls.name}` are known"
            yield parser

    def entry(self, module: str) -> Parser | None:
        """The parser of the entry point that is started as `-m module`: made in it, or in what it imports."""
        own = [p for p in self.parsers if p.name == module or any(s.function.module.name == module for s in p.sites)]
        return own[0] if len(own) == 1 else next((p for p in own if p.name == module), None)

    # -- making --------------------------------------------------------------------------------------------

    def _made(self) -> Iterator[tuple[Method, Call]]:
        for function in self.project.functions():
            for call in function.facts.calls:
                if "Parser" in call.method and self._is_maker(function, call.target):
                    yield function, call

    def _is_maker(self, function: Method, path: str) -> bool:
        symbol = self.project.lookup(function, path)
        if isinstance(symbol, ClassDef):
            return any(base in _MAKERS or _DATACLASS_MAKERS.search(base) for base in symbol.external_bases)
        dotted = self.project.dotted(function, path)
        return dotted in _MAKERS or _DATACLASS_MAKERS.search(dotted) is not None

    def _grown(self, function: Method, maker: Call) -> Iterator[Parser]:
        """The parser with all its options; one for every caller, where the function is a factory."""
        parser = self._new(function, maker)
        handed_back = self._used(parser, function, maker)
        if parser.sites or not handed_back:
            yield parser
        if handed_back:
            yield from self._made_by(parser, function, 0)

    def _made_by(self, parser: Parser, factory: Method, depth: int) -> Iterator[Parser]:
        """What a parser grows to where each caller of the function that hands it back uses it."""
        for caller, call in self.project.analysis(Objects).callers(factory) if depth < _FACTORIES else ():
            grown = parser.copy(caller, call)
            parser.grown.append(grown)
            handed_back = caller is not factory and self._used(grown, caller, call)
            yield grown
            if handed_back:
                yield from self._made_by(grown, caller, depth + 1)

    def _used(self, parser: Parser, function: Method, call: Call, depth: int = 0) -> bool:
        """Follow the parser that a call results in; whether the function hands it back.

        It may be bound (`parser = build()`), used on the spot (`build().parse_args()`), or given to another call.
        """
        handed_back = call.use == "return"
        for row in function.facts.assigns:
            if row.kind == "call" and row.value == call.target and within(call.at, row.at):
                parser.at = row.at
                self._follow(parser, function, row.target)
                handed_back = handed_back or self._returns(function, row.target)
        result = f"{call.target}()"
        for other in function.facts.calls:
            if other.at[:2] == call.at[:2] and result in other.target:
                self._called(parser, function, other, {result})
            given = [a for a in other.args if a.kind == "call" and a.at == call.at]
            if given and other.target not in _HARMLESS:
                self._handed_on(parser, function, other, given)
                if depth < _FACTORIES and self._passes_on(function, other, given):
                    handed_back = self._used(parser, function, other, depth + 1) or handed_back
        return handed_back

    def _returns(self, function: Method, variable: str) -> bool:
        """Whether a function hands back what a variable holds, as it is or through helpers that add to it."""
        names = self._names(function, variable)
        if any(row.kind == "path" and row.value in names for row in function.facts.returns):
            return True
        returned = (call for call in function.facts.calls if call.use == "return")
        return any(self._passes_on(function, call, _of_names(call, names)) for call in returned)

    def _passes_on(self, function: Method, call: Call, given: list[Argument]) -> bool:
        """Whether a call results in the parser that it is given: `add_model_options(parser)`."""
        for target in self.project.analysis(Objects).targets(function, call) if given else ():
            returned = {row.value for row in target.facts.returns if row.kind == "path"}
            if any(argument in given and name in returned for name, argument in bind(target, call).items()):
                return True
        return False

    def _new(self, function: Method, maker: Call) -> Parser:
        bound = (row for row in function.facts.assigns if row.kind == "call" and within(maker.at, row.at))
        at = next((row.at for row in bound if row.value == maker.target), maker.at)
        parser = Parser(function, at)
        symbol = self.project.lookup(function, maker.target)
        if isinstance(symbol, ClassDef) and _adds_options(symbol):
            parser.open, parser.why = True, f"`{symbol.name}` may add options of its own"
        names = (
            symbol.external_bases if isinstance(symbol, ClassDef) else (self.project.dotted(function, maker.target),)
        )
        if any(_DATACLASS_MAKERS.search(name) for name in names):
            parser.from_dataclasses = True
            self._add_dataclasses(parser, function, maker)
        self._add_parents(parser, function, maker)
        if (add_help := maker.keyword("add_help")) is None or add_help.value != "False":
            parser.options.append(
                Option("help", ("-h", "--help"), "", "help", None, None, None, False, function.path, at)
            )
        return parser

    def _add_parents(self, parser: Parser, function: Method, call: Call) -> None:
        parents = call.keyword("parents")
        for name in re.findall(r"[A-Za-z_][\w.]*", parents.value) if parents is not None else ():
            self._add_parent(parser, function, name)

    def _add_parent(self, parser: Parser, function: Method, name: str) -> None:
        scope = self._scope_of(function, name)
        variable = name.rpartition(".")[2]
        rows = [row for row in scope.facts.assigns if row.target == variable] if scope is not None else []
        if scope is None or not any(row.kind == "call" and self._is_maker(scope, row.value) for row in rows):
            parser.open, parser.why = True, f"the parent `{name}` cannot be followed"
            return
        self._follow(parser, scope, variable)

    def _scope_of(self, function: Method, name: str) -> Method | None:
        """The function, or the top level of a module, whose variable a name means."""
        scope: Method | None = function
        while scope is not None and scope.qualname != "<module>":
            if name in scope.facts.bound:
                return scope
            scope = scope.enclosing
        symbol = self.project.lookup(function, name)
        return symbol.module.top if isinstance(symbol, Value) else None

    def _add_dataclasses(self, parser: Parser, function: Method, maker: Call) -> None:
        """`HfArgumentParser((ModelArguments, DataArguments))`: the fields of the classes are the options."""
        classes, all_known = self._classes.given(function, maker)
        if not all_known:
            parser.open, parser.why = True, "not all its classes are known"
        for cls in classes:
            options, complete = self._classes.options(cls, nested=False)
            parser.options += options
            if not complete:
                parser.open, parser.why = True, f"not all fields of `{cls.name}` are known"

    # -- following -----------------------------------------------------------------------------------------

    def _follow(self, parser: Parser, function: Method, variable: str) -> None:
        """Add everything that the places that see `variable` of `function` do with it."""
        if (function, variable) in self._busy:
            return
        self._busy.add((function, variable))
        for place in self._places(function, variable):
            names = self._names(place, variable)
            methods = {row.target: row.value for row in place.facts.assigns if _is_method(row, names)}
            for call in place.facts.calls:
                self._called(parser, place, call._replace(target=methods.get(call.target, call.target)), names)
        self._busy.discard((function, variable))

    def _places(self, function: Method, variable: str) -> list[Method]:
        """The functions that can see a variable: nested ones, the module's for a global, the class's for `self.x`."""
        if "." in variable and function.cls is not None:
            return list(function.cls.every_method())
        if function.qualname == "<module>":
            others = (f for f in function.module.functions.values() if variable not in f.facts.bound)
            return [function, *(f for f in others if f is not function)]
        return [function, *(f for f in self.project.nested(function) if variable not in f.facts.bound)]

    def _names(self, function: Method, variable: str) -> set[str]:
        """The paths that mean the parser, one of its groups or one of its subparsers."""
        names = {variable}
        for _ in range(3):
            size = len(names)
            for row in function.facts.assigns:
                if (
                    row.kind == "call"
                    and _made_below(row.value, names)
                    or row.kind in ("path", "for")
                    and row.value in names
                    or row.kind == "call"
                    and row.target not in names
                    and (call := call_bound(function, row)) is not None
                    and self._passes_on(function, call, _of_names(call, names))
                ):
                    names.add(row.target)
            if len(names) == size:
                break
        return names

    def _called(self, parser: Parser, function: Method, call: Call, names: set[str]) -> None:
        receiver, method = _plain(call.receiver), call.method
        if receiver in names:
            if method in ("add_argument", "add_parser"):
                self._extend(parser, function, call)
            elif method == "add_subparsers" and (dest := call.keyword("dest")) is not None:
                parser.defaults.add(str(value_of(dest, "")))
            elif method == "set_defaults":
                parser.defaults.update(a.keyword for a in call.args if a.keyword and a.keyword not in ("*", "**"))
            elif method in _READING or parser.from_dataclasses and method.startswith("parse"):
                parser.sites.append(Site(function, call, _is_strict(call)))
            return
        given = [
            a
            for a in call.args
            if a.kind == "path" and a.value in names or a.kind == "call" and _made_below(a.value, names)
        ]
        if given and call.target not in _HARMLESS:
            self._handed_on(parser, function, call, given)

    def _extend(self, parser: Parser, function: Method, call: Call) -> None:
        """Add an option, or those that a subparser takes over from its parents."""
        before = len(parser.options)
        if call.method == "add_argument":
            self._add(parser, function, call)
        else:
            self._add_parents(parser, function, call)
        if call.method == "add_parser" or _is_subparser(function, call.receiver):
            # one command requires it, the others do not know it
            parser.options[before:] = [option._replace(required=False) for option in parser.options[before:]]

    def _handed_on(self, parser: Parser, function: Method, call: Call, given: list[Argument]) -> None:
        targets = self.project.analysis(Objects).targets(function, call)
        if self.project.dotted(function, call.target) == "deepspeed.add_config_arguments":
            for name, action in _DEEPSPEED.items():
                parser.options.append(
                    Option(name, (f"--{name}",), "", action, None, None, None, False, function.path, call.at)
                )
            return
        if not targets and call.method not in ("append", "parse_known_args"):
            parser.open, parser.why = True, f"`{call.target}` may add options"
        for target in targets:
            for name, argument in bind(target, call).items():
                if argument in given:
                    parser.handed.setdefault(target, set()).add(function)
                    self._follow(parser, target, name)

    # -- one option ----------------------------------------------------------------------------------------

    @staticmethod
    def _add(parser: Parser, function: Method, call: Call) -> None:
        if (
            not call.positional
            and any(a.keyword == "**" for a in call.args)
            or any(a.keyword == "*" for a in call.args)
        ):
            parser.open, parser.why = True, "an option is added from unpacked arguments"
            return
        options = _options_of(function, call)
        if options is None:
            parser.open, parser.why = True, "the name of an option is computed"
        parser.options += options or []


def _options_of(function: Method, call: Call) -> list[Option] | None:
    """The options that a call of `add_argument` adds; None where their names are computed."""
    known: dict[str, Argument] = {a.keyword: a for a in call.args if a.keyword}
    found: list[Option] = []
    for values in loop_passes(call, function):
        flags = tuple(text_of(a, values) for a in call.positional)
        dest = text_of(known["dest"], values) if "dest" in known else ""
        if None in flags or dest is None or not flags:
            return None
        found.append(option_of([f for f in flags if f], dest, known, function.path, call.at))
    return found


def _is_method(row: Assign, names: set[str]) -> bool:
    """Whether a variable is a method of a parser: `add = parser.add_argument`."""
    return row.kind == "path" and row.value.rpartition(".")[0] in names


def _is_strict(call: Call) -> bool:
    """Whether a call that reads a command line refuses options that it does not know."""
    rest = call.method == "parse_args_into_dataclasses" and call.keyword("return_remaining_strings") is None
    return call.method in _STRICT or rest and not call.positional


def _adds_options(cls: ClassDef) -> bool:
    """Whether a class of parsers of the project may add options by itself."""
    calls = {call.method for each in cls.mro for method in each.every_method() for call in method.facts.calls}
    return cls.find("__init__") is not None or not calls.isdisjoint(("add_argument", "add_argument_group"))


def _of_names(call: Call, names: set[str]) -> list[Argument]:
    """The arguments of a call that are one of some paths."""
    return [argument for argument in call.args if argument.kind == "path" and argument.value in names]


def _is_subparser(function: Method, receiver: str) -> bool:
    """Whether what options are added to is the parser of one command: `commands.add_parser("merge")`."""
    made = {row.target for row in function.facts.assigns if row.kind == "call" and row.value.endswith(".add_parser")}
    return ".add_parser(" in receiver or receiver in made


def _made_below(target: str, names: set[str]) -> bool:
    """`parser.add_argument_group` as the value of an argument: the group that the call makes."""
    return (match := _BELOW.search(target)) is not None and _plain(target[: match.start()]) in names


def _plain(receiver: str) -> str:
    """`parser.add_argument_group()` without what leads to the group."""
    return _LINKS.sub("", receiver) if "(" in receiver else receiver

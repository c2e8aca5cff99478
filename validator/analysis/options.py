"""Command-line options: which parsers a project builds, and what each of them accepts.

A parser is followed from the place that makes it through groups, subparsers, `parents=`, helpers that add
options to it (in other modules too) and factories that return it; loops over literal values are unrolled. What
cannot be followed makes a parser *open*: it may accept more than is known here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from validator.analysis.binding import bind
from validator.facts.model import Argument, Assign, At, Call
from validator.project import ClassDef, Method, Module, Project, Value

UNKNOWN = object()  # a value that the source does not tell

_MAKERS = (
    "argparse.ArgumentParser",
    "configargparse.ArgumentParser",
    "configargparse.ArgParser",
    "simple_parsing.ArgumentParser",
)
_DATACLASS_MAKERS = re.compile(r"(^|\.)(HfArgumentParser|TrlParser)$")
_BELOW = re.compile(r"\.(add_argument_group|add_mutually_exclusive_group|add_subparsers|add_parser)(?:\(\))?$")
_LINKS = re.compile(r"(\.(add_argument_group|add_mutually_exclusive_group|add_subparsers|add_parser)\(\))+")
_LOOP = re.compile(r"^(.+?) in (.+)$")
_HOLE = re.compile(r"\{(\w+)(?:![rsa])?\}")
_FLAG_ACTIONS = ("store_true", "store_false", "store_const", "count", "append_const", "help", "version")
# what deepspeed.add_config_arguments adds, with the actions (deepspeed 0.19)
_DEEPSPEED = {
    "deepspeed": "store_true", "deepspeed_config": "store", "deepscale": "store_true", "deepscale_config": "store",
}  # fmt: skip
_HARMLESS = frozenset({"print", "isinstance", "len", "id", "type", "str", "repr", "hasattr", "getattr"})


class Option(NamedTuple):
    """One option or positional. `flags` is empty for a positional; unknown properties are `UNKNOWN`.

    `type` is the source text (`int`, `str2bool`), `action` the action's name, `nargs` an int, text or None;
    `help` is the source text of its beginning.
    """

    dest: str
    flags: tuple[str, ...]
    type: str
    action: str
    nargs: Any
    choices: Any
    default: Any
    required: bool
    path: str
    at: At
    help: str = ""

    @property
    def takes_value(self) -> bool:
        return self.action not in _FLAG_ACTIONS and "BooleanOptionalAction" not in self.action


class Site(NamedTuple):
    """A call of `parse_args` or `parse_known_args`."""

    function: Method
    call: Call


@dataclass(eq=False)
class Parser:
    """A parser as an entry point uses it. `open`: it may accept more than `options`; `why` says why."""

    function: Method
    variable: str
    at: At
    options: list[Option] = field(default_factory=list)
    defaults: set[str] = field(default_factory=set)
    sites: list[Site] = field(default_factory=list)
    open: bool = False
    why: str = ""
    from_dataclasses: bool = False

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


class Options:
    """The parsers of one project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._busy: set[tuple[Method, str]] = set()

    @cached_property
    def parsers(self) -> tuple[Parser, ...]:
        """Every parser whose command line is really read, in the order of the files."""
        found = []
        for function, variable, at, maker in self._made():
            for parser in self._grown(function, variable, at, maker):
                if parser.sites:
                    found.append(parser)
        return tuple(found)

    def entry(self, module: str) -> Parser | None:
        """The parser of the entry point that is started as `-m module`: made in it, or in what it imports."""
        own = [p for p in self.parsers if p.name == module or any(s.function.module.name == module for s in p.sites)]
        return own[0] if len(own) == 1 else next((p for p in own if p.name == module), None)

    # -- making --------------------------------------------------------------------------------------------

    def _made(self) -> Iterator[tuple[Method, str, At, Call]]:
        for function in self.project.functions():
            calls = {call.at: call for call in function.facts.calls}
            for row in function.facts.assigns:
                if row.kind != "call" or not row.value.rpartition(".")[2].endswith(("Parser", "ArgParser")):
                    continue
                if self._is_maker(function, row.value):
                    call = next(
                        (
                            c
                            for c in calls.values()
                            if c.target == row.value and c.at[:2] >= row.at[:2] and c.at[2:] <= row.at[2:]
                        ),
                        None,
                    )
                    if call is not None:
                        yield function, row.target, row.at, call

    def _is_maker(self, function: Method, path: str) -> bool:
        symbol = self.project.lookup(function, path)
        if isinstance(symbol, ClassDef):
            return any(base in _MAKERS for base in symbol.external_bases)
        dotted = self.project.dotted(function, path)
        return dotted in _MAKERS or _DATACLASS_MAKERS.search(dotted) is not None

    def _grown(self, function: Method, variable: str, at: At, maker: Call) -> Iterator[Parser]:
        """The parser with all its options; one for every caller, where the function is a factory."""
        parser = self._new(function, variable, at, maker)
        self._follow(parser, function, variable)
        returns = any(row.kind == "path" and row.value == variable for row in function.facts.returns)
        if parser.sites or not returns:
            yield parser
        if not returns:
            return
        for caller, call in self.project.types.callers.get(function, ()):
            for row in caller.facts.assigns:
                if row.kind == "call" and row.value == call.target and row.at[0] == call.at[0]:
                    grown = Parser(
                        caller,
                        row.target,
                        row.at,
                        list(parser.options),
                        set(parser.defaults),
                        [],
                        parser.open,
                        parser.why,
                    )
                    self._follow(grown, caller, row.target)
                    yield grown

    def _new(self, function: Method, variable: str, at: At, maker: Call) -> Parser:
        parser = Parser(function, variable, at)
        symbol = self.project.lookup(function, maker.target)
        if isinstance(symbol, ClassDef):
            parser.open, parser.why = True, f"`{symbol.name}` may add options of its own"
        if _DATACLASS_MAKERS.search(self.project.dotted(function, maker.target)):
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
        text = " ".join(a.value for a in maker.args if a.keyword in (None, "dataclass_types"))
        for name in re.findall(r"[A-Za-z_][\w.]*", text):
            symbol = self.project.lookup(function, name)
            if not isinstance(symbol, ClassDef) or symbol.external_bases:
                parser.open, parser.why = True, f"the fields of `{name}` are not known"
                continue
            parser.options += [option for cls in symbol.mro for option in _fields(cls)]

    # -- following -----------------------------------------------------------------------------------------

    def _follow(self, parser: Parser, function: Method, variable: str) -> None:
        """Add everything that the places that see `variable` of `function` do with it."""
        if (function, variable) in self._busy:
            return
        self._busy.add((function, variable))
        for place in self._places(function, variable):
            names = self._names(place, variable)
            for call in place.facts.calls:
                self._called(parser, place, call, names)
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
                parser.defaults.add(str(_value(dest, "")))
            elif method == "set_defaults":
                parser.defaults.update(a.keyword for a in call.args if a.keyword and a.keyword not in ("*", "**"))
            elif method in ("parse_args", "parse_known_args", "parse_intermixed_args", "parse_args_into_dataclasses"):
                parser.sites.append(Site(function, call))
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
        targets = self.project.types.targets(function, call)
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
                    self._follow(parser, target, name)

    # -- one option ----------------------------------------------------------------------------------------

    def _add(self, parser: Parser, function: Method, call: Call) -> None:
        known: dict[str, Argument] = {a.keyword: a for a in call.args if a.keyword}
        if "*" in known or "**" in known and not call.positional:
            parser.open, parser.why = True, "an option is added from unpacked arguments"
            return
        for values in _loops(call, function):
            flags = tuple(_text(a, values) for a in call.positional)
            dest = _text(known["dest"], values) if "dest" in known else ""
            if None in flags or dest is None or not flags:
                parser.open, parser.why = True, "the name of an option is computed"
                return
            parser.options.append(_option([f for f in flags if f], dest, known, function.path, call.at))


def _fields(cls: ClassDef) -> Iterator[Option]:
    """The options that a dataclass means to HfArgumentParser; their defaults are not read."""
    for name, annotation in cls.facts.attributes:
        if annotation and name not in cls.methods:
            flags = (f"--{name}", f"--{name.replace('_', '-')}") if "_" in name else (f"--{name}",)
            action = "store_true" if annotation == "bool" else "store"
            at = cls.facts.name_at
            yield Option(name, flags, annotation, action, UNKNOWN, None, UNKNOWN, False, cls.path, at)


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


def _option(flags: list[str], dest: str, known: dict[str, Argument], path: str, at: At) -> Option:
    dashed = tuple(f for f in flags if f.startswith("-"))
    if not dest:
        long = next((f for f in dashed if f.startswith("--")), dashed[0] if dashed else flags[0])
        dest = long.lstrip("-").replace("-", "_") if dashed else flags[0]
    action = _value(known.get("action"), "store")
    if not isinstance(action, str):
        action = known["action"].value
    opposite = ("--no-" + dashed[0].lstrip("-"),) if dashed and "BooleanOptionalAction" in action else ()
    return Option(
        dest=dest,
        flags=dashed + opposite,
        type=known["type"].value if "type" in known else "",
        action=action,
        nargs=_value(known.get("nargs"), None),
        choices=_value(known.get("choices"), None),
        default=_value(known.get("default"), None),
        required=_value(known.get("required"), False) is True,
        path=path,
        at=at,
        help=known["help"].value if "help" in known else "",
    )


def _value(argument: Argument | None, otherwise: Any) -> Any:
    """The literal value of an argument; `UNKNOWN` where it is computed."""
    if argument is None:
        return otherwise
    try:
        return _literal(argument.value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN


@lru_cache(maxsize=4096)  # parsers of one project say the same again and again
def _literal(text: str) -> Any:
    return ast.literal_eval(text)


def _text(argument: Argument, values: dict[str, str]) -> str | None:
    """The text of a literal or of an f-string whose holes are known; None where it is computed."""
    text = argument.value
    if argument.kind == "path" and text in values:
        return values[text]
    found = _value(argument, "")
    if isinstance(found, str):
        return found
    match = re.fullmatch(r"[fF]([\"'])(.*)\1", text)
    if match is None:
        return _sum(text, values)
    holes = _HOLE.findall(match[2])
    if any(hole not in values for hole in holes) or "{" in _HOLE.sub("", match[2]):
        return None
    return _HOLE.sub(lambda m: values[m[1]], match[2])


def _sum(text: str, values: dict[str, str]) -> str | None:
    """`"--" + prefix + ".lr"`."""
    parts = [part.strip() for part in text.split("+")]
    if len(parts) < 2:
        return None
    found = []
    for part in parts:
        if part in values:
            found.append(values[part])
        elif re.fullmatch(r"\"[^\"]*\"|'[^']*'", part):
            found.append(part[1:-1])
        else:
            return None
    return "".join(found)


def _loops(call: Call, function: Method) -> Iterable[dict[str, str]]:
    """The values of the loop variables around a call, once for each pass over literal values."""
    rows: list[dict[str, str]] = [{}]
    for guard in call.guards:
        if guard.kind != "loop" or (match := _LOOP.match(guard.text)) is None:
            continue
        names = [name.strip() for name in match[1].strip("() ").split(",")]
        items = _items(match[2], function)
        if items is None:
            continue
        passes = []
        for item in items:
            parts = list(item) if isinstance(item, tuple | list) and len(names) > 1 else [item]
            if len(parts) == len(names):
                passes.append({n: str(v) for n, v in zip(names, parts, strict=True)})
        rows = [{**outer, **inner} for outer in rows for inner in passes]
    return rows


def _items(text: str, function: Method) -> list[Any] | None:
    """The values a loop runs over: a literal, or a name bound to one."""
    scope: Method | None = function
    for _ in range(3):
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            rows: list[Assign] = []
            while scope is not None and not rows:
                rows = [
                    r for r in scope.facts.assigns if r.target == text and r.kind in ("tuple", "const", "path", "other")
                ]
                scope = scope.enclosing or (scope.module.top if scope is not scope.module.top else None)
            if len(rows) != 1:
                return None
            text = rows[0].value
            continue
        return list(found) if isinstance(found, tuple | list | set | dict | frozenset) else None
    return None

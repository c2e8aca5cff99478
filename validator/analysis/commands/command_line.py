"""A command line read as argparse reads it: what each option is given, and what the parser would refuse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.commands.fields import Field
from validator.analysis.commands.launch import Launch, Launches, arguments_of
from validator.analysis.options.option import Option
from validator.analysis.options.parsers import Parser
from validator.project import Project

_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$|-\d+[eE][+-]?\d+$")
_SHORT = re.compile(r"-[A-Za-z]")


class CommandLines:
    """The command lines of a project's launches, each with the parser that reads it where that is known."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def all(self) -> tuple[tuple[Launch, CommandLine], ...]:
        return tuple(_read_all(self.project.analysis(Launches).all))

    @cached_property
    def shown(self) -> tuple[tuple[Launch, CommandLine], ...]:
        """Those that pages show."""
        return tuple(_read_all(self.project.analysis(Launches).shown))

    @cached_property
    def checked(self) -> tuple[tuple[Launch, Parser, CommandLine], ...]:
        """Those whose parser refuses what it does not know."""
        return tuple((o, o.parser, line) for o, line in self.all if o.parser is not None and strict(o.parser))


class Given(NamedTuple):
    """An option as it is given. `option` is None where the parser has none of that name, or is not known."""

    flag: Field
    name: str
    option: Option | None
    values: tuple[Field, ...]

    @property
    def is_unknown(self) -> bool:
        """Whether the parser has no such option for sure: a single dash may be the value of an option before it, or
        short options run together."""
        return self.option is None and self.flag.known and self.flag.text.startswith("--")

    @property
    def at(self) -> tuple[int, int, int, int]:
        """The flag and, where it stands on the same line, its value."""
        start, end = self.flag.place, self.flag.end
        last = self.values[-1] if self.values else None
        if last is not None and last.place[:2] == start[:2] and last.place.column >= start.column:
            end = max(end, last.end)
        return start.line, start.column, start.line, max(end, start.column + 1)


class CommandLine(NamedTuple):
    """`open`: words that are not known may hold further options. `stray`: words that belong to no option, with
    the option before them."""

    given: tuple[Given, ...]
    open: bool
    stray: tuple[tuple[Field, Given | None], ...]

    def last(self, *names: str) -> Given | None:
        """What an option ends up with: the last of several wins."""
        return next((g for g in reversed(self.given) if g.name in names), None)

    def given_to(self, dest: str) -> Given | None:
        """The same of an option of the parser, by the name of its value."""
        return next((g for g in reversed(self.given) if g.option is not None and g.option.dest == dest), None)


def _read_all(launches: Iterable[Launch]) -> Iterator[tuple[Launch, CommandLine]]:
    return ((launch, read(arguments_of(launch), launch.parser)) for launch in launches if not launch.broken)


def read(arguments: Iterable[Field], parser: Parser | None) -> CommandLine:
    """Read a command line; without a parser, what follows an option and is none itself is taken for its value."""
    fields = list(arguments)
    given: list[Given] = []
    stray: list[tuple[Field, Given | None]] = []
    unknown = False
    index = 0
    while index < len(fields):
        each = fields[index]
        index += 1
        if not _is_flag(each):
            if each.many or (not each.known and not each.lead):
                unknown = True
            stray.append((each, given[-1] if given else None))
            continue
        parts = each.split("=")
        flag, attached = parts if parts is not None else (each, None)
        option = _find(flag.text, parser)
        if attached is not None:
            given.append(Given(flag, _canonical(flag.text, option), option, (attached,)))
            continue
        values = _values(fields[index:], option, parser)
        index += len(values)
        unknown = unknown or any(value.many for value in values[1:])
        given.append(Given(flag, _canonical(flag.text, option), option, tuple(values)))
    return CommandLine(tuple(given), unknown, tuple(stray))


def _canonical(text: str, option: Option | None) -> str:
    """The full name of an option that may be abbreviated."""
    if option is not None and text not in option.flags:
        return next((flag for flag in option.flags if flag.startswith(text)), text)
    return text


def _is_flag(each: Field) -> bool:
    lead = each.text if each.known else each.lead
    if lead.startswith("--"):
        return len(lead) > 2
    return each.known and bool(_SHORT.match(lead)) and not _NUMBER.match(lead) and " " not in lead


def _find(text: str, parser: Parser | None) -> Option | None:
    if parser is None:
        return None
    plain = text.replace("_", "-") if parser.from_dataclasses else text  # the libraries take either, and both in one
    if (option := parser.flags.get(text) or parser.flags.get(plain)) is not None:
        return option
    if not text.startswith("--"):
        return parser.flags.get(text[:2])
    matching = {flag: option for flag, option in parser.flags.items() if flag.startswith(text)}
    return next(iter(matching.values())) if len({o.dest for o in matching.values()}) == 1 else None


def _values(following: list[Field], option: Option | None, parser: Parser | None) -> list[Field]:
    """The words that an option takes."""
    free = []
    for each in following:
        if _is_flag(each) or each.text == "--":
            break
        free.append(each)
    if option is None:
        return free[:1] if parser is None else free
    if not option.takes_value:
        return []
    match option.nargs:
        case None | "?":
            return free[:1]
        case int(count):
            return free[:count]
        case _:  # any number, or not known
            return free


def refused(value: Field, option: Option) -> str:
    """Why argparse refuses a value: `is no int`, or one of the choices; empty if it does not."""
    if not value.known:
        return ""
    choices = [str(choice) for choice in option.choices] if isinstance(option.choices, list | tuple | set) else []
    if choices and value.text not in choices:
        return "is none of its choices"
    if option.type == "int" and not re.fullmatch(r"\s*[+-]?\d+(_\d+)*\s*", value.text):
        return "is no int"
    if option.type == "float" and not _is_float(value.text):
        return "is no number"
    return ""


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def missing(line: CommandLine, parser: Parser) -> list[Option]:
    """The options that the parser requires and that are not given."""
    seen = {given.option.dest for given in line.given if given.option is not None}
    return [option for option in parser.options if option.required and option.flags and option.dest not in seen]


def strict(parser: Parser) -> bool:
    """Whether the parser refuses what it does not know."""
    return parser.refuses_others and not parser.taken

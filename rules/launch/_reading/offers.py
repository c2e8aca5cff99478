"""What a program of the project is given: by its options, by the keys that compose its configuration, and by the
configuration file that its command line names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rules.launch._reading.common import origin
from rules.launch._reading.configuration import Offer, Said
from validator.analysis.commands.command_line import CommandLine, Given
from validator.analysis.commands.fields import Field
from validator.analysis.commands.launch import Launch
from validator.analysis.commands.programs import UNKNOWN as COMPUTED
from validator.analysis.commands.programs import SettingsClass
from validator.analysis.options.option import Option
from validator.analysis.options.parsers import Parser
from validator.analysis.recipes.composed import Composition, Node
from validator.facts.config_files import MAPPING, Settings
from validator.flow.literals import UNKNOWN

_FILES = (".toml", ".yaml", ".yml", ".json")
_LIBRARIES = re.compile(
    r"\b(?:tyro\.cli|simple_parsing\.parse|pyrallis\.parse|draccus\.parse)\(\s*(?:config_class=)?(\w+)"
)
_OFF = ("enabled", "enable")


class Offers(NamedTuple):
    """`complete`: the program has no option beside these."""

    rows: list[Offer]
    complete: bool


def of_options(launch: Launch, line: CommandLine, classes: list[SettingsClass]) -> Offers:
    """The options of a program: as given, or with their defaults; and the `key=value` words of one without a parser.

    The fields of a settings class are options where a library makes them so (`HfArgumentParser`, `tyro.cli`).
    """
    if launch.parser is None and (read := _read_by_library(launch, classes)) is not None:
        given = {each.name.lstrip("-").replace("-", "_"): each for each in line.given}
        rows = [_of_field(name, default, given.get(name), line) for name, default in read.fields.items()]
        return Offers(rows, True)
    if launch.parser is None:
        rows = [_given(each.name, each.values, each.at, each.flag) for each in line.given]
        words = [(key, said) for field, _ in line.stray for key, said in _word(field)]
        return Offers([*rows, *(Offer(tuple(key.split(".")), said) for key, said in words)], False)
    defaults = {name: value for each in classes for name, value in each.fields.items()}
    options = [option for option in launch.parser.options if option.flags and option.type != "float"]
    rows = [_of_option(option, line, defaults) for option in options]  # `--dp 0.1` is dropout
    return Offers(rows, not launch.parser.open)


def _read_by_library(launch: Launch, classes: list[SettingsClass]) -> SettingsClass | None:
    """The settings class that a program hands to a library which makes options of its fields."""
    match = _LIBRARIES.search(launch.module.source.text) if launch.module is not None else None
    found = [each for each in classes if match is not None and each.cls.name == match[1]]
    return found[0] if len(found) == 1 else None


def _of_field(name: str, default: object, given: Given | None, line: CommandLine) -> Offer:
    if given is not None:
        return Offer((name,), _given(given.name, given.values, given.at, given.flag).said)
    known = default is not COMPUTED and default is not None and not line.open
    return Offer((name,), Said(str(default), f"--{name}") if known else None)


def _of_option(option: Option, line: CommandLine, defaults: Mapping[str, object]) -> Offer:
    path = tuple(option.dest.split("."))
    given = line.last(*option.flags)
    if given is not None and option.takes_value:
        return Offer(path, _given(given.name, given.values, given.at, given.flag).said)
    if not option.takes_value:
        switched = (given is not None) is (option.action == "store_true")
        return Offer(path, None if line.open and given is None else Said(str(switched), option.flags[0]))
    default = defaults.get(option.dest, COMPUTED) if option.default is UNKNOWN else option.default
    if line.open or default is COMPUTED or default is None:
        return Offer(path, None)
    return Offer(path, Said(str(default), option.flags[0]))


def _given(name: str, values: tuple[Field, ...], at: tuple[int, int, int, int], flag: Field) -> Offer:
    path = tuple(name.lstrip("-").split("."))
    if len(values) != 1:
        return Offer(path, None)
    value = values[0]
    text = value.text if value.known else None
    return Offer(path, Said(text, flag.text, flag.place.path, at, value.why, related=tuple(origin(value))))


def of_composition(arguments: Sequence[Field], composition: Composition) -> Offers:
    """The keys of a composed configuration: as a word of the command sets them, or as the files do."""
    leaves: dict[str, Said | None] = {}
    closed = _leaves(composition.root, (), leaves) and not composition.open
    for each in arguments:
        for key, said in _word(each):
            if "." not in key or composition.root.find(key.split(".")[:-1]) is not None:
                leaves[key] = said
    return Offers([Offer(tuple(key.split(".")), said) for key, said in leaves.items()], closed)


def _word(word: Field) -> Iterator[tuple[str, Said]]:
    """What `key=value` says."""
    parts = word.split("=")
    if parts is None or not parts[0].known or word.text.startswith("-"):
        return
    key, value, place = parts[0].text.lstrip("+"), parts[1], word.place
    at = (place.line, place.column, place.line, max(word.end, place.column + 1))
    text = value.text if value.known else None
    yield key, Said(text, key, place.path, at, value.why, related=tuple(origin(value)))


def _leaves(node: Node, links: tuple[str, ...], found: dict[str, Said | None]) -> bool:
    """Add the scalars below a node that is not switched off; whether all of them are known."""
    if any(name in node.children and node.children[name].value is False for name in _OFF):
        return True
    closed = not node.open
    for name, child in node.children.items():
        path = (*links, name)
        if child.kind == "scalar":
            computed = child.value is None or isinstance(child.value, str) and "${" in child.value
            said = Said(str(child.value), ".".join(path), default=(child.path, child.at) if child.path else None)
            found[".".join(path)] = None if computed else said
        elif child.kind == MAPPING:
            closed = _leaves(child, path, found) and closed
    return closed


def of_file(path: str, settings: Settings, classes: list[SettingsClass]) -> Offers:
    """The keys of a configuration file, and what the settings class that it fills has for the others."""
    off = {each.path[:-1] for each in settings.settings if each.path[-1] in _OFF and each.value is False}
    rows = []
    for each in settings.settings:
        if each.kind == "scalar" and not any(each.path[: len(section)] == section for section in off):
            line, column, _, end = each.at
            said = Said(str(each.value), ".".join(each.path), path, (line, column, line, max(end, column + 1)))
            rows.append(Offer(each.path, said if each.value is not None else None))
    filled = fills(settings, classes)
    named = {link for row in rows for link in row.path}  # a field that holds a section is no value
    beside = [other for other in classes if any(other.cls.module is each.cls.module for each in filled)]
    for each_class in beside:
        for name, default in each_class.fields.items():
            if name not in named:
                named.add(name)
                computed = default is COMPUTED or default is None
                rows.append(Offer((name,), None if computed else Said(str(default), name)))
    return Offers(rows, bool(filled))


def fills(settings: Settings, classes: list[SettingsClass]) -> list[SettingsClass]:
    """The settings classes that the keys of a file are fields of: for each of its sections, most of its keys."""
    sections: dict[tuple[str, ...], set[str]] = {}
    for each in settings.settings:
        if each.kind == "scalar" and each.path[-1].isidentifier():
            sections.setdefault(each.path[:-1], set()).add(each.path[-1])
    everything = set().union(*sections.values()) if sections else set()
    whole = next((c for c in classes if _covers(c, everything)), None)
    if whole is not None:
        return [whole]
    found = [next((c for c in classes if _covers(c, keys)), None) for keys in sections.values()]
    return [each for each in found if each is not None] if found and all(found) else []


def _covers(settings_class: SettingsClass, keys: set[str]) -> bool:
    strangers = len(keys - set(settings_class.fields))
    return strangers <= max(1, len(keys) // 4) and len(keys) - strangers > strangers


def are_all_keys(options: Offers, keys: Offers, path: str) -> bool:
    """Whether the options that are given name the configuration file, and for the rest keys of it."""
    known = {key.path[-1] for key in keys.rows}
    others = (each for each in options.rows if each.said is None or each.said.value != path)
    return all(each.path[-1] in known for each in others)


def files_named(line: CommandLine, parser: Parser | None) -> Iterator[str]:
    """The configuration files that a command line names, as written, or that its program takes where it names none."""
    words = [value for given in line.given for value in given.values]
    for each in [*words, *(field for field, _ in line.stray)]:
        if each.known and each.text.endswith(_FILES) and not each.text.startswith("-"):
            yield each.text.rpartition("=")[2]
    for option in parser.options if parser is not None and not line.open else ():
        if isinstance(option.default, str) and option.default.endswith(_FILES) and line.last(*option.flags) is None:
            yield option.default


__all__ = ["Offers", "are_all_keys", "files_named", "fills", "of_composition", "of_file", "of_options"]

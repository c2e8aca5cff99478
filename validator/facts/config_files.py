"""Facts of configuration files: every key of a YAML, JSON or TOML file with its value and place.

What does not parse (a template, a fragment) has no settings and is no finding: such files are data, and another
program's to judge. JSON is read by the YAML parser, which knows places; its grammar holds JSON's.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from validator.facts.model import At, FileFacts
from validator.files import tables
from validator.files.languages import MAX_CONFIGURATION

if TYPE_CHECKING:
    from validator.source import SourceFile

Scalar = str | int | float | bool | None
MAPPING, LIST = "{}", "[]"

# JSON is mostly data: only files with one of these words can say how to train
_JSON_WORDS = (b"zero_optimization", b"train_batch_size", b"train_micro_batch_size_per_gpu", b"num_attention_heads")
_YAML_NOT = (b"apiVersion:", b"\njobs:", b"\nservices:")  # of clusters, pipelines, containers

_MAX_ALIASED = 1_000  # settings that are there only by aliases, beyond one for each character
_MAX_BRACKETS = 300  # open at once
_STAIRS = re.compile(r"(?:^|(?<=\n)) {300}|(?:[-?:][ \t]+){30}")  # block nesting: by indentation, or on one line


class Setting(NamedTuple):
    """A key: its path from the root, its value (`MAPPING` or `LIST` as `kind` for what has parts), its place.

    Items of a list have their index as last link. `at` is that of the key, `value_at` that of the value.
    """

    path: tuple[str, ...]
    kind: str  # scalar, {}, []
    value: Scalar
    at: At
    value_at: At


class Settings(NamedTuple):
    """The settings of one file, in its order. `comment`: its first comment lines (`# @package _global_`)."""

    settings: tuple[Setting, ...] = ()
    comment: str = ""

    def get(self, *path: str) -> Setting | None:
        return next((each for each in self.settings if each.path == path), None)

    def below(self, *path: str) -> tuple[Setting, ...]:
        """The settings directly below a path."""
        return tuple(e for e in self.settings if len(e.path) == len(path) + 1 and e.path[: len(path)] == path)


def extract(source: SourceFile, language: str) -> FileFacts:
    """The facts of a configuration file. Never raises on bad input."""
    data = source.data
    empty = FileFacts(language=language)
    if len(data) > MAX_CONFIGURATION or b"\0" in data or not _relevant(data, language):
        return empty
    try:
        settings = read(source.text, language)
    except Exception:  # what a parser may raise on text that is no configuration has no common base
        return empty
    return FileFacts(language=language, lines=source.text.count("\n") + 1, extra={"settings": settings})


def settings_of(source: SourceFile) -> Settings:
    """The settings of a file, of JSON too in which nothing told that it says how to train: asked for by who knows that
    a program reads it."""
    known = source.facts.extra.get("settings")
    if known is not None or source.facts.language != "json":
        return known or Settings()
    try:
        return read(source.text, "json") if len(source.data) <= MAX_CONFIGURATION else Settings()
    except Exception:  # see `extract`
        return Settings()


def too_deep(text: str) -> bool:
    """Whether YAML or JSON is nested deeper than a parser may be asked to go: some recurse in C and crash.

    Brackets inside strings count too; no configuration holds hundreds of unclosed ones.
    """
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > _MAX_BRACKETS:
            return True
    return _STAIRS.search(text) is not None


def _relevant(data: bytes, language: str) -> bool:
    if language == "json":
        return any(word in data for word in _JSON_WORDS)
    return language == "toml" or not any(word in data for word in _YAML_NOT)


def read(text: str, language: str) -> Settings:
    """The settings of a text. Raises what the parser of the language raises."""
    if language == "toml":
        return Settings(tuple(_toml(text)))
    import yaml

    if too_deep(text):
        raise ValueError("nested too deeply")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    if language == "json":
        text = text.replace("\t", " ")  # YAML has no tabs between tokens; places stay the same
    nodes = [node for node in yaml.compose_all(text, Loader=loader) if node is not None]
    head = "\n".join(line for line in text.split("\n", 5)[:5] if line.startswith("#"))
    if len(nodes) != 1:
        return Settings((), head)
    # Aliases of aliases stand for more than was written, a billion times more if someone means it.
    settings = tuple(islice(_yaml(nodes[0], ()), len(text) + _MAX_ALIASED))
    if len(settings) == len(text) + _MAX_ALIASED:
        raise ValueError("too many aliases")
    return Settings(settings, head)


def _yaml(node: Any, path: tuple[str, ...]) -> Iterator[Setting]:
    if len(path) > 30:  # an alias may hold itself
        return
    if node.id == "mapping":
        for key, value in node.value:
            if key.id != "scalar":
                continue
            link = (*path, str(key.value))
            yield _setting(link, value, _at(key))
            yield from _yaml(value, link)
    elif node.id == "sequence":
        for index, value in enumerate(node.value):
            link = (*path, str(index))
            yield _setting(link, value, _at(value))
            yield from _yaml(value, link)


def _setting(path: tuple[str, ...], node: Any, at: At) -> Setting:
    kind = {"mapping": MAPPING, "sequence": LIST}.get(node.id, "scalar")
    value = scalar(node.value, node.tag) if kind == "scalar" else None
    return Setting(path, kind, value, at, _at(node))


def _at(node: Any) -> At:
    start, end = node.start_mark, node.end_mark
    return start.line + 1, start.column + 1, end.line + 1, end.column + 1


def scalar(text: str, tag: str) -> Scalar:
    """The value of a YAML scalar by its resolved tag (`1e-5`, which YAML 1.1 takes for text, is a number)."""
    if len(text) > 400:  # converting digits is quadratic
        return text
    try:
        if tag.endswith(":int"):
            return int(text.replace("_", ""), 0 if text.lstrip("+-")[:2].lower() in ("0x", "0o", "0b") else 10)
        if tag.endswith(":float"):
            return float(text.replace("_", ""))
    except ValueError:
        return text
    if tag.endswith(":bool"):
        return text.lower() in ("true", "yes", "on", "y")
    if tag.endswith(":null"):
        return None
    if re.fullmatch(r"[+-]?\d+(\.\d*)?[eE][+-]?\d+", text):
        return float(text)
    return text


_TOML_HEADER = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_TOML_KEY = re.compile(r"(\s*)((?:[\w-]+|\"[^\"]*\")(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"))*)\s*=\s*(\S.*)?$")


def _toml(text: str) -> Iterator[Setting]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    if tables.too_dotted(text):
        raise ValueError("a key of too many parts")
    root = tomllib.loads(text)
    places = dict(_toml_places(text))
    yield from _toml_below(root, (), places)


def _toml_places(text: str) -> Iterator[tuple[tuple[str, ...], tuple[At, At]]]:
    """Where each key stands; tomllib does not say. Keys inside multi-line values may be taken for more: unused."""
    section: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > 2_000:  # the patterns are quadratic in white space
            continue
        if match := _TOML_HEADER.match(line):
            section = _links(match[1])
            at = (number, match.start(1) + 1, number, match.end(1) + 1)
            yield section, (at, at)
        elif match := _TOML_KEY.match(line):
            at = (number, match.start(2) + 1, number, match.end(2) + 1)
            end = len(line.partition("#")[0].rstrip()) if match[3] else match.end()
            start = match.start(3) if match[3] else match.end()
            yield (*section, *_links(match[2])), (at, (number, start + 1, number, end + 1))


def _links(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip('"') for part in re.findall(r"\"[^\"]*\"|[^.]+", dotted))


def _toml_below(
    table: dict[str, Any], path: tuple[str, ...], places: dict[tuple[str, ...], tuple[At, At]]
) -> Iterator[Setting]:
    nowhere = ((1, 1, 1, 1), (1, 1, 1, 1))
    for key, value in table.items():
        link = (*path, key)
        at, value_at = places.get(link, places.get(path, nowhere))
        if isinstance(value, dict):
            yield Setting(link, MAPPING, None, at, value_at)
            yield from _toml_below(value, link, places)
        elif isinstance(value, list):
            yield Setting(link, LIST, None, at, value_at)
        else:
            plain = value if isinstance(value, str | int | float | bool) else str(value)
            yield Setting(link, "scalar", plain, at, value_at)

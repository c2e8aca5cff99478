"""What callables of libraries take in which of their releases, and how libraries call what users override.

One table for each library, read off its releases by `tests/library_releases.py`; grammar at the head of each. Of torch
`torch_tables` tells the same.
"""

from __future__ import annotations

import os
from functools import cache, cached_property
from typing import Any, NamedTuple

from validator.facts.model import Param
from validator.files.tables import load_toml

Version = tuple[int, int]
_TABLES = {
    "transformers": "transformers", "trl": "trl", "accelerate": "accelerate", "peft": "peft",
    "deepspeed": "deepspeed", "pytorch_lightning": "lightning", "lightning": "lightning",
}  # fmt: skip
PACKAGES = tuple(_TABLES)
DISTRIBUTIONS = {"pytorch_lightning": "pytorch-lightning"}  # where it is not called as the package is
_NOWHERE = (0, 0, 0, 0)


class Word(NamedTuple):
    """A row of a table, with the first and last release that has it."""

    text: str
    first: Version
    last: Version

    def is_in(self, release: Version) -> bool:
        return self.first <= release <= self.last


class HookCall(NamedTuple):
    """How methods of a library call one that users override, in the releases from the first to the last. `callers` are
    these methods, `optional` those among them that do so only where a setting asks for it."""

    positional: int
    keywords: tuple[str, ...]
    callers: frozenset[str]
    optional: frozenset[str]
    first: Version
    last: Version

    def is_in(self, release: Version) -> bool:
        return self.first <= release <= self.last


class Library:
    """The table of one library."""

    def __init__(self, package: str, table: dict[str, Any]) -> None:
        self.package = package
        self.distribution = DISTRIBUTIONS.get(package, package)
        self.releases = tuple(version(each) for each in table["releases"].split())
        self.calls: dict[str, list[str]] = table["calls"]
        self.instead: dict[str, str] = table["instead"]  # by class and old parameter, the new one
        self._hooks: dict[str, list[str]] = table["hooks"]

    def hook_calls(self, cls: str, method: str) -> list[HookCall]:
        """How the library calls a method on objects of classes that inherit from one of its own."""
        found = []
        for text, first, last in map(self.word, self._hooks.get(f"{cls}.{method}", ())):
            count, *words = text.split()
            keywords = tuple(word for word in words if not word.startswith("@"))
            callers = [word[1:] for word in words if word.startswith("@")]
            optional = frozenset(name[:-1] for name in callers if name.endswith("?"))
            calling = frozenset(name.rstrip("?") for name in callers)
            found.append(HookCall(int(count), keywords, calling, optional, first, last))
        return found

    @cached_property
    def _by_name(self) -> dict[str, str]:
        return {name.rpartition(".")[2]: name for name in self.calls}

    def known_as(self, dotted: str) -> str | None:
        """The name in the table of what a dotted name means: a class wherever it is, a function in its own module."""
        _, *between, last = dotted.split(".")
        name = self._by_name.get(last)
        if name is None or any(part[:1].isupper() for part in between):
            return None
        is_class = last[:1].isupper()
        return name if is_class or not between or name.rpartition(".")[0] == ".".join(between) else None

    def word(self, text: str) -> Word:
        """`eval_strategy= 4.41-`, `2 grad_norm @log 4.46-`: what stands before its releases, and these."""
        before, _, last = text.rpartition(" ")
        low, between, high = last.strip("()").partition("-")
        if not between or not (low or high) or not (low + high).replace(".", "").isdigit():
            before, low, high = text, "", ""
        return Word(before, version(low) if low else self.releases[0], version(high) if high else self.releases[-1])


class Signature:
    """What calling something takes, release by release."""

    def __init__(self, library: Library, name: str) -> None:
        self.library = library
        self.name = name
        words = library.calls[name]
        there = library.word(words[0]) if words and words[0].startswith("(") else None
        self._words = [library.word(each) for each in words[there is not None :]]
        self.releases = [each for each in library.releases if there is None or there.is_in(each)]

    def parameters(self, release: Version) -> tuple[Param, ...]:
        """The parameters in one release, in their order."""
        found: dict[str, Param] = {}
        kind = "any"
        for word in self._words:
            text = word.text
            if text.startswith("&"):
                found.update((name, param) for name, param in _ever(text[1:]))
            elif text == "*":
                kind = "kw"
            elif word.is_in(release):
                stars = text[: len(text) - len(text.lstrip("*"))]
                name = text.strip("*=")
                found[name] = Param(name, stars or kind, "…" if text.endswith("=") else None, "", _NOWHERE)
                kind = "kw" if stars == "*" else kind
        return tuple(found.values())


@cache
def _ever(dotted: str) -> tuple[tuple[str, Param], ...]:
    """The parameters that a class of another library has in any of its releases."""
    above = signature(dotted)
    assert above is not None, dotted
    return tuple((param.name, param) for each in above.releases for param in above.parameters(each))


def version(text: str) -> Version:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


@cache
def library(package: str) -> Library | None:
    if package not in _TABLES:
        return None
    folder = os.path.dirname(os.path.abspath(__file__))
    return Library(package, load_toml(os.path.join(folder, f"{_TABLES[package]}.toml")))


@cache
def signature(dotted: str) -> Signature | None:
    """What a callable of a library takes, by its dotted name; None where no table has it."""
    table = library(dotted.partition(".")[0])
    name = table.known_as(dotted) if table is not None else None
    return Signature(table, name) if table is not None and name is not None else None

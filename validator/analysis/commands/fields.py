"""What the words of a shell script become: fields, made of bits that know where they stand.

A bit whose text is not known (an unset variable, the output of a command) says why, and its text is how it was
written. Nothing is ever guessed: a field with such a bit is not `known`, but what surrounds it may be used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_PLACEHOLDER = re.compile(r"@[^@]*@|<[^<>]*>|\{[ \w-]+\}|\[[A-Z_ -]+\]|\.\.\.|…|YOUR_\w+|your[_-]\w+|XXX+|x{3,}")


class Place(NamedTuple):
    """A place in a file; line and column from 1."""

    path: str
    line: int
    column: int


class Bit(NamedTuple):
    """A run of characters with one history.

    `place` is where the reader sees it, `width` how wide it is there; `origin` is where its text comes from when
    that is elsewhere; `home` is the statement, heredoc or array that it is written in. `why` says why the text is
    not known (empty: it is). `unset`: a variable that nothing sets. `many`: it may be no word, or several. `name`: the
    variable that stands there for the text, in Python also the attribute (`config.eval.limit`).
    """

    text: str
    place: Place
    width: int
    home: Place
    quoted: bool = False
    origin: Place | None = None
    why: str = ""
    unset: bool = False
    many: bool = False
    name: str = ""


class Field:
    """One argument of a command."""

    __slots__ = ("bits", "known", "text", "why")

    def __init__(self, bits: Iterable[Bit]) -> None:
        self.bits = tuple(bits)
        self.text = "".join(bit.text for bit in self.bits)
        self.why = next((bit.why for bit in self.bits if bit.why), "")
        if not self.why and _PLACEHOLDER.fullmatch(self.text):
            self.why = f"`{self.text.strip('@')}` is to be filled in"
        self.known = not self.why

    def __repr__(self) -> str:
        return f"<Field {self.text!r}{'' if self.known else '?'}>"

    @property
    def place(self) -> Place:
        return next((bit.place for bit in self.bits if bit.width), self.bits[0].place)

    @property
    def home(self) -> Place:
        return self.bits[0].home

    @property
    def origin(self) -> Place | None:
        """Where the text is set, if that is not where it stands."""
        return next((bit.origin for bit in self.bits if bit.origin is not None and bit.origin != bit.place), None)

    @property
    def name(self) -> str:
        """The variable or attribute that the whole field is, or the key of `key=value`; else empty."""
        shown = [bit for bit in self.bits if bit.text or bit.why]
        names = {bit.name for bit in shown}
        if len(names) == 1 and "" not in names:
            return names.pop()
        key, equals, _ = shown[0].text.partition("=") if shown and not shown[0].why else ("", "", "")
        return (
            key.lstrip("-+") if equals and key.lstrip("-+").replace(".", "_").replace("-", "_").isidentifier() else ""
        )

    @property
    def many(self) -> bool:
        """Whether it may stand for any number of words."""
        return any(bit.many for bit in self.bits) and not any(bit.text and not bit.why for bit in self.bits)

    @property
    def end(self) -> int:
        """The column behind its last character on its first line."""
        start = self.place
        ends = [bit.place.column + bit.width for bit in self.bits if bit.place[:2] == start[:2]]
        return max(ends, default=start.column)

    @property
    def lead(self) -> str:
        """The known text that it begins with."""
        found = ""
        for bit in self.bits:
            if bit.why:
                break
            found += bit.text
        return found

    @property
    def tail(self) -> str:
        """The known text that it ends with."""
        found = ""
        for bit in reversed(self.bits):
            if bit.why:
                break
            found = bit.text + found
        return found

    def split(self, separator: str) -> tuple[Field, Field] | None:
        """What stands before and after the first `separator`, which must be known."""
        for index, bit in enumerate(self.bits):
            if bit.why:
                return None
            at = bit.text.find(separator)
            if at >= 0:
                before, after = _cut(bit, at), _cut_from(bit, at + len(separator))
                return Field((*self.bits[:index], before)), Field((after, *self.bits[index + 1 :]))
        return None

    def without(self, prefix: str) -> Field:
        """The field without the known text that it begins with."""
        left = len(prefix)
        bits = list(self.bits)
        while left and bits:
            taken = min(left, len(bits[0].text))
            bits[0] = _cut_from(bits[0], taken)
            left -= taken
            if not bits[0].text and len(bits) > 1:
                del bits[0]
        return Field(bits)

    def integer(self) -> int | None:
        """The value as a whole number, if it is one."""
        return int(self.text) if self.known and re.fullmatch(r"[+-]?[0-9]{1,18}", self.text.strip()) else None


def _cut(bit: Bit, at: int) -> Bit:
    return bit._replace(text=bit.text[:at], width=at if bit.width == len(bit.text) else bit.width)


def _cut_from(bit: Bit, at: int) -> Bit:
    if bit.width != len(bit.text):
        return bit._replace(text=bit.text[at:])
    place = bit.place._replace(column=bit.place.column + at)
    return bit._replace(text=bit.text[at:], width=bit.width - at, place=place)


def split_words(bits: Iterable[Bit]) -> Iterator[Field]:
    """The fields that bits become: cut at the white space of what is not quoted."""
    current: list[Bit] = []
    for bit in bits:
        if bit.why or bit.quoted:
            current.append(bit)
            continue
        start = 0
        for match in re.finditer(r"\s+|$", bit.text):
            if match.start() > start:
                current.append(_cut_from(_cut(bit, match.start()), start))
            if match.end() > match.start() and current:
                yield Field(current)
                current = []
            start = match.end()
    if current:
        yield Field(current)

"""Names that a project at most asks objects for: nothing in it defines, stores, passes or spells them.

Members under computed names come from names that are spelled somewhere: as a text, a key of a file, another name, or
the beginning or end of a text that is put together. What is in none of them an object of the project cannot have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cached_property

from validator.definitions import ClassDef, Module
from validator.flow import Flow
from validator.flow.program.unit import Unit
from validator.ir import Value
from validator.models.members import is_telling
from validator.project import Project

_WORDS = re.compile(r"[^\W\d][\w-]*")
FILLED_IN = re.compile(r"\{[^{}]*\}|%\(\w+\)[a-z]|%[-\d.]*[a-z]")  # places of a text that `format` or `%` fills in
_NAME = re.compile(r"[\w./-]*")
_CLOSE = 0.85  # of the letters of two names, one of which is the other misspelt
_LETTERS = 3  # so many letters of a text that is put together say something about what it is the name of


class Unspelled:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self._forms: dict[Module, frozenset[tuple[str, str]]] = {}  # how names begin and end that code puts together

    def is_nobodys(self, name: str) -> bool:
        """Whether a telling name is given to nothing in the project, and no text of it may be it."""
        told = not is_telling(name) or not name.isidentifier() or name in self.spelled
        return not told and not self.may_be_formed(name)

    def may_be_formed(self, name: str) -> bool:
        """Whether code puts texts together that may be the name."""
        return any(self.may_be_formed_in(module, name) for module in self.project.modules.values())

    def may_be_formed_in(self, module: Module, name: str) -> bool:
        """The same of the code of one file."""
        return any(self._fits(name, *form) for form in self._forms_of(module))

    def may_be_begun(self, name: str) -> bool:
        """Whether code puts texts together that begin with the first words of a name, and end as it does."""
        words = name.split("_")
        starts = {"_".join([*words[:end], ""]) for end in range(1, len(words)) if any(words[:end])}
        return any(start in starts and name.endswith(end) for start, end in self._begun)

    @cached_property
    def _begun(self) -> frozenset[tuple[str, str]]:
        """The forms of names of which the code of the project spells whole words in the beginning."""
        rows = (form for module in self.project.modules.values() for form in self._forms_of(module))
        return frozenset(form for form in rows if form[0].endswith("_"))

    def _forms_of(self, module: Module) -> frozenset[tuple[str, str]]:
        if module not in self._forms:
            units = self.flow.whole_units(module)
            self._forms[module] = frozenset(f for unit in units for f in _forms(unit) if any(f))
        return self._forms[module]

    def _fits(self, name: str, start: str, end: str) -> bool:
        if not (name.startswith(start) and name.endswith(end)) or len(name) <= len(start) + len(end):
            return False
        rest = name[len(start) : len(name) - len(end)]
        return sum(map(str.isalpha, start + end)) >= _LETTERS or rest in self.spelled or rest.isdigit()

    def unasked_like(self, name: str, cls: ClassDef, *, called: bool) -> str | None:
        """A member of a class like a name that nobody has, for which no code asks: what that is called now, it seems. A
        method where one is called."""
        rows = (each for each in sorted(cls.attributes) if is_method(cls, each) == called and are_alike(each, name))
        return next((each for each in rows if is_telling(each) and each not in self._asked), None)

    def unread_like(self, name: str, cls: ClassDef) -> str | None:
        """An attribute of a class like a name that the class lacks, which no code reads, whoever fills it."""
        rows = (each for each in sorted(cls.attributes) if not is_method(cls, each) and are_alike(each, name))
        return next((each for each in rows if is_telling(each) and each not in self._read), None)

    @cached_property
    def _asked(self) -> frozenset[str]:
        """The names that the project reads, passes or spells."""
        passed = {name for unit in self._units for name in _passed(unit)}
        return self._read | passed | self.in_files

    @cached_property
    def _read(self) -> frozenset[str]:
        """The names that the project reads or spells in its code."""
        return frozenset(name for unit in self._units for name in _read(unit))

    @cached_property
    def in_files(self) -> frozenset[str]:
        """The words of configuration files and their like."""
        files = (source for source in self.project.files.values() if source.facts.language != "python")
        return frozenset(word for source in files for word in _words(source.data.decode(errors="replace")))

    @cached_property
    def spelled(self) -> frozenset[str]:
        """Every word of the project but the names of attributes and variables that are only read."""
        found: set[str] = set(self.project.given)
        for unit in self._units:
            found.update(_given(unit))
        return frozenset(found | self.in_files)

    @cached_property
    def _units(self) -> tuple[Unit, ...]:
        return tuple(unit for module in self.project.modules.values() for unit in self.flow.whole_units(module))


def are_alike(one: str, other: str) -> bool:
    """Whether one name is the other with its words in another order, a word more, less or replaced, or misspelt. Names
    that differ by a number (`response`, `response_1`) are two of a row."""
    first, second = (Counter(word for word in name.lower().split("_") if word) for name in (one, other))
    shared, most = (first & second).total(), max(first.total(), second.total())
    if shared == most or shared > 1 and shared == most - 1:
        return one != other and not any(map(str.isdigit, (first - second) + (second - first)))
    match = SequenceMatcher(None, one, other)
    ratios = (match.real_quick_ratio, match.quick_ratio, match.ratio)  # the first two are bounds of the third
    return all(ratio() > _CLOSE for ratio in ratios) and _letters(one) != _letters(other)


def _letters(name: str) -> str:
    return "".join(letter for letter in name if not letter.isdigit())


def is_method(cls: ClassDef, name: str) -> bool:
    method = cls.find(name)
    return method is not None and not method.facts.is_property


def _passed(unit: Unit) -> Iterator[str]:
    """The keywords of a function's calls."""
    calls = (value for value in unit.code.values if value.op == "call")
    return (name for call in calls for name in call.data.names if name)


def _read(unit: Unit) -> Iterator[str]:
    """The names that a function reads or spells."""
    for value in unit.code.values:
        if value.op in ("attr", "name"):
            yield value.data
        elif value.op == "const" and isinstance(value.data, str):
            yield from _words(value.data)
        elif value.op == "import" and value.data[1]:
            yield value.data[1]


def _given(unit: Unit) -> Iterator[str]:
    for value in unit.code.values:
        if value.op == "const" and isinstance(value.data, str):
            yield from _words(value.data)
        elif value.op in ("store_attr", "store_global", "store_free", "store_class"):
            yield value.data
        elif value.op == "param":
            yield value.data[1]
    yield from _passed(unit)
    yield from unit.code.definitions
    yield from unit.qualname.split(".")


def _words(text: str) -> Iterator[str]:
    for word in _WORDS.findall(text):
        yield word.replace("-", "_").rstrip("_") if "-" in word else word
        if "-" in word:
            yield from word.split("-")


def _forms(unit: Unit) -> Iterator[tuple[str, str]]:
    values = unit.code.values
    for value in values:
        if value.op == "join" or value.op == "binary" and value.data in ("Add", "Mod"):
            yield from _form([_text(values[each]) for each in value.args])
        elif value.op == "const" and isinstance(value.data, str) and FILLED_IN.search(value.data):
            first, *others = FILLED_IN.split(value.data)
            yield from _form([first, *(part for other in others for part in (None, other))])


def _form(parts: list[str | None]) -> Iterator[tuple[str, str]]:
    """The beginning and the end of a name that is put together of known and unknown parts."""
    if all(part is None or _NAME.fullmatch(part) for part in parts) and None in parts:
        yield _last(parts[0] or "", ends=True), _last(parts[-1] or "", ends=False)


def _last(part: str, *, ends: bool) -> str:
    return re.split(r"[./-]", part)[-1] if ends or part else part


def _text(value: Value) -> str | None:
    return value.data if value.op == "const" and isinstance(value.data, str) else None

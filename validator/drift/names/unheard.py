"""Values that are given, since a change, under a name by which nothing asks for them.

A setting, an attribute or a key that is stored for others has readers that look for it by its name, mostly with a
default (`getattr(config, "use_flash", False)`): nothing fails where nobody gives it any more. So a change that gives a
value another name is told wrong by what it left: who asks for the old name still, or all others who give the same kind
of thing the old one, while nothing in the project asks for the new one.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.interfaces.handed_on import HandedOn, functions_run
from validator.analysis.interfaces.swallowed import keys_read
from validator.definitions import ClassDef, Method
from validator.drift.change import Change
from validator.drift.interfaces.calls import constructor
from validator.drift.names.given import Given, GivenOtherwise
from validator.drift.names.neighbours import Company, is_read, passes_to_library
from validator.drift.names.occurrences import Occurrence, in_unit, variable_or_link
from validator.drift.names.places import given_with, is_of_another, link_at, owner_at
from validator.drift.names.readers import Readers, called_with, named_parameters
from validator.drift.names.removed import Names
from validator.drift.names.texts import Replaced, Texts
from validator.drift.settings.asked_settings import AskedSettings
from validator.drift.statements.drops import Drops
from validator.facts.config_files import settings_of
from validator.facts.model import At
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.models.members import is_telling, of_libraries

_GIVING = frozenset({"attribute", "key", "keyword", "setting"})
_TAKING = frozenset({"parameter", "field", "option", "function", "class", "variable", "import"})
_READING = frozenset({"asks", "tries", "spells"})
_NO_KEYS = frozenset({"attribute", "variable", "function", "class", "import"})
_FILE = re.compile(r"[\w.-]*\w\.\w{2,5}")
_OTHERS = 2  # places of one kind that all say the old name


class Unheard(NamedTuple):
    """A value under a name that nothing asks for. `readers`: where the old name is asked for; `others`: where what is
    of the same kind is given the old one; `takers`: the functions whose parameter the keyword was, and that drop it, or
    hand it on to where nothing is known (`is_handed_on`)."""

    given: Given
    readers: tuple[Occurrence, ...] = ()
    others: tuple[Occurrence, ...] = ()
    takers: tuple[Method, ...] = ()
    is_handed_on: bool = False


class UnheardNames:
    """The values that a change gives in vain."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.after = change.after
        self.asked: AskedSettings = change.analysis(AskedSettings)
        self.readers: Readers = change.analysis(Readers)

    @cached_property
    def rows(self) -> list[Unheard]:
        told = {lost.name for lost in (*self.change.analysis(Names).lost, *self.asked.lost) if not lost.kept}
        told |= {stale.lost.name for stale in self.change.analysis(Company).stale if not stale.is_idle}
        texts = {(row.old, row.new) for row in self.change.analysis(Texts).rows if row.sought}
        found: dict[tuple[str, str, str], Unheard] = {}
        for given in self.change.analysis(GivenOtherwise).rows:
            key = (given.old, given.new.name, given.new.path)
            if key in found or given.old in told or key[:2] in texts or self._is_given_too(given):
                continue
            row = self._dropped(given) or self._asked_otherwise(given)
            if row is not None:
                found[key] = row
        return list(found.values())

    def _asked_otherwise(self, given: Given) -> Unheard | None:
        if self._is_passed_to_library(given.new):
            return None
        readers = tuple(self.readers.of(given))
        link = link_at(given.new)
        of_one = link if any(self.readers.is_called_alike(given.new, row) for row in readers) else ""
        if self._is_heard(given, of_one):
            return None
        if readers:
            return Unheard(given, readers)
        others = tuple(self._others(given))
        return Unheard(given, others=others) if others else None

    # -- who asks by another name --------------------------------------------------------------------------

    @cached_property
    def ungiven(self) -> list[Replaced]:
        """The texts by which an attribute or key is asked for since the change (`getattr(config, "use_flash", False)`),
        and that nothing gives, while what was asked for before is still given to what is called like the object, or
        written to the file that it comes from."""
        found: dict[tuple[str, str], Replaced] = {}
        told = {(row.old, row.new) for row in self.change.analysis(Texts).rows}
        for unit, at, old, new in (*self._reworded(), *self._respelled()):
            if (old, new) in told or (old, new) in found or not is_telling(new) or is_foreign(unit.path):
                continue
            rows = [row for row in self.after.occurrences(new) if not is_test(row.path)]
            asking = next((row for row in rows if row.path == unit.path and row.at == at), None)
            if asking is None or asking.kind not in ("getattr", "key") or self._is_given(asking, rows):
                continue
            stored = [(row.path, row.at[0]) for row in self._given_to(asking, old)]
            if stored and (is_telling(old) or asking.kind == "key"):
                found[old, new] = Replaced(unit, at, old, new, tuple(stored))
        return list(found.values())

    def _reworded(self) -> Iterator[tuple[Unit, At, str, str]]:
        """The texts that stand for another one in a statement that is else as it was."""
        for drop in self.change.analysis(Drops).drops:
            old, new = (each.value if isinstance(each, ast.Constant) else None for each in (drop.old, drop.new))
            if drop.kind == "text" and isinstance(old, str) and isinstance(new, str):
                yield drop.pair.new, drop.pair.new.module.source_text.at(drop.new), old, new

    def _respelled(self) -> Iterator[tuple[Unit, At, str, str]]:
        """The keys for which a function asks now that it did not ask for, with one that it asked for and does not now,
        which is the same spelled otherwise; whatever else was changed there."""
        for pair in self.change.pairs:
            was, now = ({row.name: row for row in in_unit(unit) if _asks_by_key(row)} for unit in pair)
            for old, new in itertools.product(was.keys() - now.keys(), now.keys() - was.keys()):
                if _is_respelled(old, new):
                    yield pair.new, now[new].at, old, new

    def _is_given(self, asking: Occurrence, rows: list[Occurrence]) -> bool:
        """Whether anything but who asks has a name, or had it before the change. `rows`: where it stands now."""
        earlier = [row for row in self.change.before.occurrences(asking.name) if not is_test(row.path)]
        if asking.kind == "key":  # an attribute, or a variable, of that name is something else
            return any(row.kind not in _NO_KEYS and row.at != asking.at for row in (*earlier, *rows))
        return any(self.change.before.occurrences(asking.name)) or any(row.kind != "getattr" for row in rows)

    def _given_to(self, asking: Occurrence, old: str) -> list[Occurrence]:
        """Where the old name is given still to what an object is that is asked for another one: to what is called like
        it; of a key, to what is put into the file from which it comes, or all that is put under it, where nothing asks
        for it any more and the new name is the old one spelled otherwise."""
        found = [row for row in self.after.occurrences(old) if not is_test(row.path)]
        rows = [row for row in found if row.role == "defines"]
        if asking.kind == "key":  # whatever is called alike, a library may have put keys there
            files, keys = self._file_names(asking), [row for row in rows if row.kind == "key"]
            if is_telling(old) and _is_respelled(old, asking.name) and not any(row.role in _READING for row in found):
                return keys
            return [row for row in keys if files & self._file_names(row)]
        link = link_at(asking)
        return [row for row in rows if row.kind == "attribute" and link and link_at(row) == link]

    @staticmethod
    def _file_names(row: Occurrence) -> frozenset[str]:
        """The names of files, with an ending, that a function spells."""
        values = row.unit.code.values if row.unit is not None else ()
        return frozenset(
            v.data for v in values if v.op == "const" and isinstance(v.data, str) and _FILE.fullmatch(v.data)
        )

    # -- keywords ------------------------------------------------------------------------------------------

    def _dropped(self, given: Given) -> Unheard | None:
        """A keyword for which no function has a parameter that the call may run, or that gets it handed on, while one
        has it of the old name; their `**` drops it."""
        if given.new.kind != "keyword" or given.new.unit is None:
            return None
        call = Place(self.after.flow, given.new.unit, given.new.number)
        if {"*", "**", given.old} & set(call.value.data.names):
            return None
        callee = called_with(call)
        ends = self._handed_on.ends(callee)
        first = [each for each in functions_run(callee) if each is not None]
        if first and ends is None:
            return self._left_to_default(given, first)
        takers, on_the_way = (ends.takers, ends.on_the_way) if first and ends is not None else (None, set[str]())
        takers = self._named_like(call, given) if takers is None else takers
        taking = tuple(each for each in dict.fromkeys((*first, *takers)) if given.old in named_parameters(each))
        for taker in takers:
            keys = keys_read(self.after.flow, taker)
            if keys is None:
                return self._left_to_default(given, [*takers, *(each for each in taking if each not in takers)])
            if given.new.name in keys | on_the_way | named_parameters(taker):
                return None
        return Unheard(given, takers=taking) if taking else None

    def _left_to_default(self, given: Given, run: list[Method]) -> Unheard | None:
        """A keyword that a `**` carries to where nothing is known, in place of one that was a parameter on the way:
        that one has its default now. The name of now stands nowhere else, and no library's object has it."""
        name = given.new.name
        taking = tuple(each for each in dict.fromkeys(run) if _has_default(each, given.old))
        if not taking or not is_telling(name) or not is_telling(given.old):
            return None
        others = [row for row in self.after.occurrences(name) if (row.unit, row.kind) != (given.new.unit, "keyword")]
        alone = not others and not any(self.change.before.occurrences(name))
        return Unheard(given, takers=taking, is_handed_on=True) if alone else None

    def _named_like(self, call: Place, given: Given) -> list[Method]:
        """The methods of the project that a call of an object of which nothing is known may run, as the keyword of
        before tells: those of the name that take it, if none takes the one of now."""
        callee = call.operand(0)
        mention = self.after.mention(callee.unit, callee.number) if callee.value.op == "attr" else None
        if mention is None or mention.symbol is not None or not is_telling(given.old):
            return []
        found = self.after.methods.get(str(callee.value.data), ())
        if any(given.new.name in named_parameters(each) for each in found):
            return []
        return [each for each in found if each.cls is not None and given.old in named_parameters(each)]

    @cached_property
    def _handed_on(self) -> HandedOn:
        found: HandedOn = self.after.project.analysis(HandedOn)
        return found

    def _is_passed_to_library(self, row: Occurrence) -> bool:
        return row.kind == "keyword" and row.unit is not None and passes_to_library(self.after, row.unit, row.number)

    # -- the new name --------------------------------------------------------------------------------------

    def _is_heard(self, given: Given, link: str) -> bool:
        """Whether anything may ask for the new name, or gave it before the change. `link`: what the object is called
        that is given it and is asked for the old one; others that are called otherwise have names of their own."""
        name, own = given.new.name, (given.new.path, given.new.at)
        if given.new.kind == "attribute" and name in of_libraries() or self._is_own_constant(given.new):
            return True
        before = [row for row in self.change.before.occurrences(name) if not is_test(row.path)]
        after = [row for row in self.after.occurrences(name) if not is_test(row.path) and (row.path, row.at) != own]
        rows = [*before, *(row for row in after if _may_ask(row))]
        return any(
            not (link and self._is_about_another(row, link)) and self._is_of_kind(row, given.new) for row in rows
        )

    def _is_about_another(self, row: Occurrence, link: str) -> bool:
        """Whether a place speaks of another thing than what is called so: of an object that is called otherwise, of a
        section of settings with another name, of a parameter, where nothing spreads the thing into a call."""
        if row.kind == "parameter":
            return link not in self._spread_out
        return is_of_another(row, link) or row.unit is None and row.link not in ("", link)

    @cached_property
    def _spread_out(self) -> frozenset[str]:
        """How the mappings are called that calls spread (`**batch.meta`)."""
        return frozenset(
            variable_or_link(unit, number)
            for module in self.after.project.modules.values()
            if b"**" in module.source.data
            for unit in self.after.units(module).values()
            for value in unit.code.values
            if value.op == "call"
            for name, number in zip(value.data.names, value.args[1:], strict=True)
            if name == "**"
        )

    def _is_own_constant(self, given: Occurrence) -> bool:
        """Whether the file that gives a variable its value reads it itself."""
        units = self.after.units(given.unit.module).values() if given.unit is not None else ()
        return given.kind == "variable" and any(is_read(unit, given.name) for unit in units)

    def _is_of_kind(self, row: Occurrence, given: Occurrence) -> bool:
        """Whether a place where a name stands may be about what is given: not what a function calls its parameter, or
        an object its own attribute, where a mapping is given that nothing hands on as a whole."""
        if given.kind == "attribute":
            return row.kind != "parameter" or self.asked.is_filled(row)
        if row.kind == "parameter":
            return self.asked.is_filled(row) or self._is_made_by_name(given)
        if row.kind in ("attribute", "variable", "function", "class"):
            return row.kind == given.kind or row.role != "defines" and not self.asked.is_own(row)
        return row.kind != "keyword" or given.kind == "keyword" or self._is_of_mapping(row)

    def _is_made_by_name(self, given: Occurrence) -> bool:
        """Whether the mapping that has a setting, or the one around it, names a class that it is for."""
        if given.unit is not None:
            return bool(self._kind(given))
        for each in settings_of(self.after.project.files[given.path]).settings:
            near = each.path[:-1] in (given.above, given.above[:-1])
            if near and isinstance(each.value, str) and (self._is_defined(each.value) or "." in each.value):
                return True
        return False

    def _is_of_mapping(self, row: Occurrence) -> bool:
        """Whether a keyword goes into a mapping, or may: the function that is called has no parameter of the name."""
        call = owner_at(row)
        name = row.unit.known_as(row.unit.code.values[call].args[0]) if row.unit is not None and call >= 0 else ""
        taken: list[Collection[str]] = [named_parameters(method) for method in self.after.methods.get(name, ())]
        taken += [{p.name for p in constructor(cls) or ()} for cls in self._classes.get(name, ())]
        return not any(row.name in names for names in taken)

    def _is_given_too(self, given: Given) -> bool:
        """Whether the function, or the mapping, that gives the new name gives the old one as well."""
        for row in self.after.occurrences(given.old):
            if row.role == "defines" and row.path == given.new.path and row.unit is given.new.unit:
                same = row.above == given.new.above if row.unit is None else owner_at(row) == owner_at(given.new)
                if same and row.kind == given.new.kind:
                    return True
        return False

    # -- what others of the kind say -----------------------------------------------------------------------

    def _others(self, given: Given) -> Iterator[Occurrence]:
        """Where what is made of the same class or by the same function is given the old name: everywhere else."""
        kind = self._kind(given.new)
        if not kind or given.new.kind == "attribute":
            return
        rows = [row for row in self.after.occurrences(given.old) if row.role == "defines" and row.kind in _GIVING]
        alike = [row for row in rows if not is_test(row.path) and self._kind(row) == kind]
        if len(alike) >= _OTHERS:
            yield from alike

    def _kind(self, row: Occurrence) -> str:
        """The class or function of the project for which a mapping holds the arguments, as one of its values says, or
        that a call runs."""
        if row.unit is None:
            rows = settings_of(self.after.project.files[row.path]).settings
            texts = [each.value for each in rows if each.path[:-1] == row.above]
        else:
            values = row.unit.code.values
            call = owner_at(row) if row.kind == "keyword" else -1
            runs = row.unit.known_as(values[call].args[0]) if call >= 0 else ""
            if runs in self._classes or runs in self.after.methods:
                return runs
            texts = [values[number].data for _, number in given_with(row) if values[number].op == "const"]
        said = {text.rpartition(".")[2] for text in texts if isinstance(text, str) and self._is_defined(text)}
        return said.pop() if len(said) == 1 else ""

    def _is_defined(self, text: str) -> bool:
        name = text.rpartition(".")[2]
        return name[:1].isupper() and name in self._classes

    @cached_property
    def _classes(self) -> dict[str, list[ClassDef]]:
        found: dict[str, list[ClassDef]] = {}
        for cls in self.after.project.classes():
            found.setdefault(cls.name, []).append(cls)
        return found


def _has_default(method: Method, name: str) -> bool:
    """Whether a function has a parameter that callers may leave out."""
    return any(p.name == name and p.kind in ("any", "kw") and p.default is not None for p in method.facts.params)


def _asks_by_key(row: Occurrence) -> bool:
    return row.kind == "key" and row.role in _READING


def _is_respelled(old: str, new: str) -> bool:
    """Whether two names are of the same words, in capital letters or small ones, with dashes or underscores."""
    first, second = (Counter(name.lower().replace("-", "_").split("_")) for name in (old, new))
    return first == second


def _may_ask(row: Occurrence) -> bool:
    return row.role not in ("defines", "is set", "sets") or row.kind in _TAKING

"""Names whose last definition a change took away, while something in the project still asks for them.

A name is lost where the change removes definitions of it and nothing in the project defines it any more, in whatever
role: a function, an attribute, a key, an option, a setting, a keyword that some call passes on. Then every place that
asked for it before and still does was left behind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import cached_property
from typing import NamedTuple

from validator.definitions import PLAIN_BASES, ClassDef, External, Missing, Module, Unknown
from validator.domains.axes import axes_of
from validator.drift.change import Change, Side
from validator.drift.names.dispatched import Asked, asked_by_name
from validator.drift.names.occurrences import Occurrence, link_of
from validator.drift.names.renames import Renames
from validator.drift.names.saved_keys import is_expected
from validator.drift.statements.drops import Drops
from validator.drift.statements.intention import words_in
from validator.facts.model import At
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.ir.model import Value
from validator.models.members import is_known, is_telling, of_libraries

# A definition that by itself says what the name is; keywords, settings and texts may define it by passing it on.
_PLAIN = frozenset({"function", "class", "variable", "attribute", "key", "field", "option"})
_WRITING = frozenset({"setattr", "vars", "__setattr__", "__dict__"})
_LIKE = 0.6  # of the letters of two names
_CALLABLE = frozenset({"function", "class"})
_GIVEN = frozenset({"option", "field", "key", "setting"})  # what users and files give a value
_NAMES_OF_CLASSES = ("__name__", "__qualname__")
_SET = frozenset({"setting", "flag", "override", "environment"})


class Lost(NamedTuple):
    """A name without a definition: where it was last defined, what it is called now (if that can be told), and the
    places that still ask for it. `kept`: what was written before may still have it."""

    name: str
    kind: str
    old: Occurrence
    renamed: str
    new: Occurrence | None
    stale: tuple[Occurrence, ...]
    kept: bool = False


class Names:
    """The names that a change defines no longer."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.before = change.before
        self.after = change.after

    @cached_property
    def removed(self) -> dict[str, list[Occurrence]]:
        """By name the definitions in changed files that no file that changed has any more."""
        found: dict[str, list[Occurrence]] = {}
        kept: set[str] = set()
        for side, into in ((self.before, found), (self.after, None)):
            for path in self.change.changed:
                source = side.by_absolute.get(path)
                rows = side.of_file(source) if source is not None and source.facts.problem is None else {}
                for name, places in rows.items():
                    plain = [row for row in places if row.role == "defines" and (row.kind in _PLAIN | {"setting"})]
                    if into is None:
                        kept.update([name] if plain else ())
                    elif plain := [row for row in plain if not self._is_taken_in(row)]:
                        into.setdefault(name, []).extend(plain)
        return {name: rows for name, rows in found.items() if name not in kept and not _is_common(name)}

    def _is_taken_in(self, row: Occurrence) -> bool:
        """Whether what a definition belonged to comes from outside of the project now: its file imports it."""
        source = self.before.project.files[row.path]
        module = self.after.module(source.absolute)
        if module is None or row.unit is None:
            return False
        owner = row.unit.qualname.partition(".")[0]
        for each in module.facts.imports:
            if each.bound_as in (owner, row.name):
                return isinstance(self.after.project.imported(module, each), External | Unknown)
        return False

    @cached_property
    def lost(self) -> list[Lost]:
        found = []
        for name, rows in sorted(self.removed.items()):
            here = [row for row in rows if not is_test(row.path) and not is_foreign(row.path) and _is_owned(row)]
            if here and (lost := self._lost(name, here)) is not None:
                found.append(lost)
        return found + [lost for name, rows in self._thinned.items() if (lost := self._half_renamed(name, rows))]

    @cached_property
    def _thinned(self) -> dict[str, list[Occurrence]]:
        """By name the attributes that files which changed set in fewer places than before, but still do."""
        found: dict[str, list[Occurrence]] = {}
        for path in self.change.changed:
            sides = [(side, side.by_absolute.get(path)) for side in (self.before, self.after)]
            before, after = (side.of_file(source) if source is not None else {} for side, source in sides)
            for name, rows in before.items():
                stores, left = (_stores(each) for each in (rows, after.get(name, [])))
                if len(stores) > len(left) > 0 and is_telling(name) and not is_test(stores[0].path):
                    found.setdefault(name, []).extend(stores)
        return found

    def _half_renamed(self, name: str, rows: list[Occurrence]) -> Lost | None:
        """An attribute that was read before, that everybody reads under a new name now, and that is still set."""
        now = [row for row in self.after.occurrences(name) if not is_test(row.path)]
        if not self._was_asked(name) or any(row not in _stores(now) for row in now):
            return None
        renamed = self.renamed(rows[0])
        return Lost(name, "attribute", rows[0], renamed.name, renamed, tuple(now)) if renamed is not None else None

    def _lost(self, name: str, rows: list[Occurrence]) -> Lost | None:
        kind = Counter(row.kind for row in rows).most_common(1)[0][0]
        now = self._near(rows, list(self.after.occurrences(name)))
        code = [row for row in now if row.kind != "setting"]
        if kind == "attribute" and (stores := self._unread(rows, now)):
            renamed = self.renamed(rows[0])
            return Lost(name, kind, rows[0], renamed.name, renamed, tuple(stores)) if renamed else None
        here = [row for row in code if not is_test(row.path)]
        if here and kind == "key" and name in self._replaced and all(map(_is_default, here)):
            return Lost(name, kind, rows[0], "", None, tuple(here))
        of_ranks = here and all(map(_is_of_environment, (*rows, *now))) and any(map(_tells_rank, rows))
        if (
            of_ranks
            and name not in self.after.flow.models.ranks["environment"]
            and all(r.role == "tries" for r in here)
        ):
            return Lost(name, kind, rows[0], "", None, tuple(here))  # each reader has its default now
        if defining := [row for row in here if _defines(row, kind)]:
            given = self._handed_on(rows, code, defining) if kind in _GIVEN else None
            return given or self._spelled_in_vain(rows, code)
        asking = {"asks", "tries"} if kind == "setting" else {"asks"}
        if any(row.role in asking for row in code) and len(code) < len(now):
            return None  # a file of settings may give it
        defined = any(_defines(row, kind) for row in now)  # by tests, for themselves
        stale = [row for row in now if not (defined and is_test(row.path)) and self._is_stale(row, name, rows)]
        if not stale and not any(row.role in ("asks", "tries", "spells") for row in now):
            stale = self._settings(name, rows, now)
        if not stale:
            return None
        renamed = self.renamed(rows[0])
        keys = renamed is None and all(row.kind == "key" for row in stale)
        kept = keys and not any(row.unit is not None and self.after.twin(row.unit) for row in rows if row.kind == "key")
        return Lost(name, kind, rows[0], renamed.name if renamed else "", renamed, tuple(stale), kept)

    def _near(self, rows: list[Occurrence], now: list[Occurrence]) -> list[Occurrence]:
        """Without the places in copies that are complete: no program imports them together with what changed, and they
        define what they ask for."""
        changed = self._together({row.path for row in rows})
        apart = {row.path for row in now if row.unit is not None} - changed
        if not changed or not apart:
            return now
        kinds = {row.kind for row in rows}
        own = {row.path for row in now if row.path in apart and row.role == "defines" and row.kind in kinds}
        copies = self._together(own) - changed
        asking = {row.path for row in now if row.role in ("asks", "tries") and row.path in copies}
        return [row for row in now if row.path not in copies] if asking else now

    def _together(self, paths: set[str]) -> set[str]:
        """The files that some program has together with one of some files."""
        files = (self.after.project.files.get(path) for path in paths)
        modules = (self.after.module(source.absolute) for source in files if source is not None)
        return {path for module in modules if module is not None for path in self.after.beside(module)}

    def _unread(self, rows: list[Occurrence], now: list[Occurrence]) -> list[Occurrence]:
        """The places that still set an attribute of another object, which nothing reads since the change."""
        here = [row for row in now if not is_test(row.path)]
        asked = any(row.role == "asks" and _owner(row) for row in self.before.occurrences(rows[0].name))
        if not asked or not is_telling(rows[0].name) or any(row.kind != "attribute" for row in here):
            return []
        return here if all(row.role == "defines" and not _is_own(row) for row in here) else []

    def _is_stale(self, row: Occurrence, name: str, rows: list[Occurrence]) -> bool:
        """Whether a place asks for the name that was lost and not for one of a library."""
        if row.role == "spells":
            listed = rows[0].kind == "class" and (self._is_listed(row, rows) or self._is_name_of_class(row))
            return listed or rows[0].kind == "function" and self._is_dispatched(row)
        if row.role == "tries":
            return self._is_tried_in_vain(row, rows)
        if row.role != "asks" or is_foreign(row.path):
            return False
        if row.kind == "target" and row.unit is not None:
            return False  # a text of code may have dots for another reason: `Targets` follows it
        if row.kind == "target":
            return any(each.kind in _CALLABLE and _is_target(row.link, each) for each in rows)
        if row.kind == "attribute":
            assert row.unit is not None
            asked = row.unit.code.values[row.number]
            owned = [each for each in rows if each.kind not in ("key", "setting")]
            if not owned and all(each.kind == "setting" for each in rows):
                return (
                    is_telling(name) and self.renamed(rows[0]) is not None and not row.unit.is_receiver(asked.args[0])
                )
            told = self.renamed(rows[0]) is not None or self._are_of_one_program(row, owned)
            if not owned or all(each.kind == "option" for each in owned) and not told:
                return False
            return self._may_mean(self.after, row, owned) and not _is_told_missing(row)
        if (
            not any(each.kind == "key" for each in rows)
            or self._is_tested_for(row)
            or _is_told_missing(row, "KeyError", "LookupError")
        ):
            return False
        told = self.renamed(rows[0]) is not None or name in self._replaced
        return is_telling(name) or told and len(name) > 3 and name not in of_libraries()

    def _is_name_of_class(self, row: Occurrence) -> bool:
        """Whether a text is compared with the name of a class (`type(x).__name__ == "Wrapper"`), by itself: in a row of
        several it may be a library's. Not where the change wrote that line, or code gives classes other names."""
        if row.unit is None or row.number < 0 or self.change.wrote(row.path, row.at[0]):
            return False
        unit, values = row.unit, row.unit.code.values
        compared = (values[user] for user in unit.users.get(row.number, ()) if values[user].op == "compare")
        asked = (values[unit.root(each)] for value in compared for each in value.args)
        if not any(each.op == "attr" and each.data in _NAMES_OF_CLASSES for each in asked):
            return False
        after = self.after.project.modules.values()
        units = (
            each for module in after if b"__name__" in module.source.data for each in self.after.units(module).values()
        )
        return not any(v.op == "store_attr" and v.data in _NAMES_OF_CLASSES for each in units for v in each.code.values)

    def _are_of_one_program(self, row: Occurrence, rows: list[Occurrence]) -> bool:
        """Whether a place was in some program together with one of several definitions."""
        assert row.unit is not None
        module = self.before.module(row.unit.module.source.absolute)
        near = self.before.beside(module) if module is not None else frozenset[str]()
        return any(each.path in near for each in rows)

    def _handed_on(self, rows: list[Occurrence], code: list[Occurrence], defining: list[Occurrence]) -> Lost | None:
        """What users gave a value, where all that bears the old name now is handed on from there under that name:
        `self.old = args.old`, `Model(old=getattr(args, "old", 3))`."""
        old = rows[0]
        renamed = self.renamed(old)
        if renamed is None or not is_telling(old.name):
            return None
        asking = [row for row in code if row.role in ("asks", "tries") and row.unit is not None]
        fed = {(row.unit, at): row for row in asking for at in _handed_to(row)}
        if any((row.unit, row.at) not in fed and not _is_of_parameter(row) for row in defining):
            return None
        givers = dict.fromkeys(row for row in fed.values() if self._is_of_options(row, renamed))
        stale = tuple(row for row in givers if row.role == "asks" or self._is_tried_in_vain(row, rows))
        return Lost(old.name, old.kind, old, renamed.name, renamed, stale) if stale else None

    def _spelled_in_vain(self, rows: list[Occurrence], code: list[Occurrence]) -> Lost | None:
        """An option that nothing asks for by its new name, while a text still leads to a `hasattr` of the old one."""
        old = rows[0]
        renamed = self.renamed(old) if old.kind == "option" and is_telling(old.name) else None
        if renamed is None or any(row.role != "defines" for row in self.after.occurrences(renamed.name)):
            return None
        asked = ((row, self._asked_by_name(row)) for row in code if not is_test(row.path))
        stale = tuple(row for row, found in asked if found is not None and found.objects)
        return Lost(old.name, old.kind, old, renamed.name, renamed, stale) if stale else None

    def _is_of_options(self, row: Occurrence, renamed: Occurrence) -> bool:
        """Whether a place asks the object that other places of its file ask for what stands beside the new name."""
        source = self.after.project.files[renamed.path]
        beside = {name for name, places in self.after.of_file(source).items() if _has(places, renamed.kind)}
        assert row.unit is not None
        owner = asked_of(row.unit, row)
        if owner < 0 or row.unit.is_receiver(owner):
            return False
        link = link_of(row.unit.code.values[owner])
        here = self.after.of_file(row.unit.module.source)
        return any(each.link == link != "" for name in beside - {row.name} for each in here.get(name, ()))

    def _is_tried_in_vain(self, row: Occurrence, rows: list[Occurrence]) -> bool:
        """Whether a place that was there before asks, with a default, for what has another name now: it gets the
        default for ever. One that knows the new name too reads what was saved under the old one."""
        renamed = self.renamed(rows[0])
        given = any(each.kind in _GIVEN for each in rows)
        if renamed is None or not given or not is_telling(row.name) or is_foreign(row.path):
            return False
        assert row.unit is not None
        before = self.before.twin(row.unit)
        earlier = before is not None and any(
            each.unit is before and each.role == "tries" for each in self.before.occurrences(row.name)
        )
        return earlier and all(each.unit is not row.unit for each in self.after.occurrences(renamed.name))

    @cached_property
    def _replaced(self) -> frozenset[str]:
        """The texts in whose place the change wrote others."""
        drops = (drop for drop in self.change.analysis(Drops).drops if drop.kind == "text")
        return frozenset(drop.text.strip("'\"") for drop in drops)

    def _is_tested_for(self, row: Occurrence) -> bool:
        """Whether a unit that looks a key up first asks for it alone: a dictionary of before may have it."""
        assert row.unit is not None
        rows = self.after.of_file(row.unit.module.source).get(row.name, ())
        return any(each.unit is row.unit and each.role == "tries" for each in rows) and not is_expected(self.after, row)

    def _is_listed(self, row: Occurrence, rows: list[Occurrence]) -> bool:
        """Whether a text stands in a list beside a class of the same file that bore its name: by such names libraries
        find the classes of a model (`_no_split_modules = ["Block"]`)."""
        if row.unit is None or row.path not in {each.path for each in rows} or self.renamed(rows[0]) is None:
            return False
        users = (row.unit.code.values[user].op for user in row.unit.users.get(row.number, ()))
        return sum(letter.isupper() for letter in row.name) > 1 and any(op in ("list", "tuple", "set") for op in users)

    def _is_dispatched(self, row: Occurrence) -> bool:
        """Whether a text is passed to a call of the project as the name of what it is to call."""
        asked = self._asked_by_name(row)
        return asked is not None and (bool(asked.objects) or not asked.known)

    def _asked_by_name(self, row: Occurrence) -> Asked | None:
        """The objects that are asked for what a text names which some call is given; None where there is no such call,
        or the text is a word that may mean anything."""
        unit = row.unit
        if unit is None or row.role != "spells" or not row.name.count("_"):
            return None
        users = [unit.code.values[user] for user in unit.users.get(row.number, ())]
        passed = any(user.op == "call" and row.number in user.args[1:] for user in users)
        return asked_by_name(self.after, unit, row.number) if passed else None

    def _may_mean(self, side: Side, row: Occurrence, rows: list[Occurrence]) -> bool:
        """Whether the object that is asked may be of a class that lost the name."""
        assert row.unit is not None
        if row.unit.name == row.name or _owned_by(row.unit, rows):
            return False  # a function of that name which hands the call on to an object that it wraps
        mention = side.mention(row.unit, row.number)
        if mention is None or isinstance(mention.symbol, External | Module):
            return False  # what a module lacks is a rule of its own
        if side.is_of_library(row.unit, row.number) or self._is_made_elsewhere(side, row, rows):
            return False
        classes = side.classes_of(row.unit, row.number)
        if not classes and side.is_made_by_library(row.unit, row.number):
            return False
        if not classes:
            owner = row.unit.code.values[row.unit.root(row.unit.code.values[row.number].args[0])]
            foreign = owner.op == "param" and owner.data == (
                0,
                "self",
            )  # of a function that replaces a library's method
            renamed = self.renamed(rows[0])
            return is_telling(row.name) and not foreign and (renamed is not None or not _is_inherited(rows))
        owners = {_owner(each) for each in rows}
        kin = {each.qualname for cls in classes for each in cls.relatives}
        if not kin & owners:
            return False
        told = self.renamed(rows[0]) is not None
        return not any(given_by_library(cls, row.name, told) for cls in classes)

    def _is_made_elsewhere(self, side: Side, row: Occurrence, rows: list[Occurrence]) -> bool:
        """Whether the object is made by a class of a library that bears the name of the one that had the member, or by
        one whose import leads nowhere, which is told there."""
        unit = row.unit
        assert unit is not None
        made = unit.code.values[unit.root(unit.code.values[row.number].args[0])]
        direct = link = made
        while made.op in ("attr", "item", "unpack"):  # `model.config` of `tokenizer, model = load(…)`
            link, made = made, unit.code.values[unit.root(made.args[0])]
        if made.op == "param" and unit.method is not None:
            said = next((p.annotation for p in unit.method.facts.params if p.name == made.data[1]), None)
            return bool(said) and isinstance(side.project.lookup(unit.method, str(said).strip("'\"")), Missing)
        callee = unit.code.values[made.args[0]] if made.op == "call" else made
        symbol = side.flow.symbol(unit, callee) if callee.op in ("name", "import") else None
        if isinstance(symbol, External) and made is not direct:
            return made.op == "call" and link.op == "attr" and _has_by_itself(side, symbol, made, str(link.data))
        if isinstance(symbol, External):
            return symbol.path.rpartition(".")[2] in {_owner(each) for each in rows}
        return isinstance(symbol, Missing)

    def _settings(self, name: str, rows: list[Occurrence], now: list[Occurrence]) -> list[Occurrence]:
        """The places of files of settings and scripts that set what no code knows any more."""
        if not any(row.kind in ("field", "option") for row in rows) and not self._was_asked(name):
            return []
        if not is_telling(name):
            return []
        if self.renamed(rows[0]) is None:
            return []  # a library that the program hands its options to may know it
        known = [row for row in self.before.occurrences(name) if row.kind in _SET]
        places = {row.path for row in known}
        return [row for row in now if row.kind in _SET and row.path in places and row.kind != "environment"]

    # -- names of modules ----------------------------------------------------------------------------------

    @cached_property
    def imports(self) -> list[Lost]:
        """Names that modules no longer have, while other modules import them."""
        gone: dict[str, str] = {}  # by name the module that had it
        for old, new in self.change.modules:
            if old is not None:
                kept = new.facts.names if new is not None else {}
                for name in set(old.facts.names) - set(kept):
                    if name not in gone or name in old.functions or name in old.classes:
                        gone[name] = old.path
        found = []
        for name, path in sorted(gone.items()):
            stale = list(self._importing(name))
            if stale:
                was = Occurrence(name, "defines", "variable", None, -1, path, (1, 1, 1, 1))
                found.append(Lost(name, "variable", was, "", None, tuple(stale)))
        return found

    def _importing(self, name: str) -> Iterator[Occurrence]:
        """The imports of a name that led somewhere before and do not now."""
        for source in self.after.mentioning(name):
            module = self.after.module(source.absolute)
            earlier = self.before.module(source.absolute)
            if module is None or earlier is None:
                continue
            for row in module.facts.imports:
                if row.name != name or not isinstance(self.after.project.imported(module, row), Missing):
                    continue
                if not isinstance(self.before.project.imported(earlier, row), Missing | Unknown | External):
                    yield Occurrence(name, "asks", "import", None, -1, source.path, row.at)

    # -- members of classes --------------------------------------------------------------------------------

    @cached_property
    def members(self) -> list[Lost]:
        """Members that a class and all its relatives no longer have, while their objects are asked for them."""
        known = {lost.name for lost in self.lost}
        found = []
        for old, new in self.change.classes:
            if is_test(new.path) or is_foreign(new.path) or not self.after.is_made(new):
                continue
            for name, row in self._gone(old, new).items():
                if name in known:
                    continue
                renamed = self.renamed(row)
                stale = self._stored_in_vain(new, name) if renamed is not None else []
                if not stale and not self._has_member(new, name, renamed is not None):
                    stale = [each for each in self.after.occurrences(name) if self._asks_class(each, new)]
                if stale:
                    now = renamed.name if renamed else ""
                    found.append(Lost(name, row.kind, row, now, renamed, tuple(stale)))
        return found

    def _stored_in_vain(self, cls: ClassDef, name: str) -> list[Occurrence]:
        """The places that still store an attribute on objects of a class, of which nothing asks for it any more."""
        kin, stores = set(cls.relatives), list[Occurrence]()
        if any(name in each.attributes for each in kin):
            return []
        for row in self.after.occurrences(name):
            if row.unit is None or row.number < 0 or row.kind not in ("attribute", "getattr"):
                continue
            classes = set(self.after.classes_of(row.unit, row.number))
            if row.role != "defines" and (not classes or classes & kin):
                return []
            if row.role == "defines" and classes and classes <= kin and not is_test(row.path):
                stores.append(row)
        return stores

    def _gone(self, old: ClassDef, new: ClassDef) -> dict[str, Occurrence]:
        """The members that a class itself defined and does not any more."""
        before = self._own(self.before, old)
        after = self._own(self.after, new)
        return {name: row for name, row in before.items() if name not in after and not _is_common(name)}

    def _own(self, side: Side, cls: ClassDef) -> dict[str, Occurrence]:
        found: dict[str, Occurrence] = {}
        for rows in side.of_file(cls.module.source).values():
            for row in rows:
                if _owner(row) == cls.qualname and row.role == "defines" and _is_member(row):
                    found.setdefault(row.name, row)
        return found

    def _has_member(self, cls: ClassDef, name: str, renamed: bool) -> bool:
        """Whether anything may give objects of a class, or of one below it, the member."""
        for each in cls.relatives:
            if (
                name in each.attributes  # registered as a buffer, say
                or given_by_library(each, name, renamed)
                or each.is_open
                and not each.is_opaque
                or self._writes_itself(each)
            ):
                return True
        names = {each.qualname for each in cls.relatives}
        for row in self.after.occurrences(name):
            if row.role == "defines" and row.unit is not None and (row.kind != "parameter" and row.kind != "keyword"):
                if _owner(row) in names and _is_member(row):
                    return True
                if row.kind == "attribute" and not _is_own(row):
                    return True  # stored on an object of whatever class
        return False

    def _writes_itself(self, cls: ClassDef) -> bool:
        """Whether a class stores attributes under names that only show when it runs."""
        units = (self.after.unit_of(method) for method in cls.every_method())
        values = (value for unit in units if unit is not None for value in unit.code.values)
        return any(value.op in ("attr", "name") and value.data in _WRITING for value in values)

    def _asks_class(self, row: Occurrence, cls: ClassDef) -> bool:
        if (asked := self._asked_by_name(row)) is not None:
            owners = [unit.cls if unit.is_receiver(number) else None for unit, number in asked.objects]
            return bool(owners) and all(owner is not None and owner in cls.relatives for owner in owners)
        if row.role != "asks" or row.kind != "attribute" or row.unit is None or _is_told_missing(row):
            return False
        classes = self.after.classes_of(row.unit, row.number)
        return bool(classes) and all(each in cls.relatives for each in classes)

    def _was_asked(self, name: str) -> bool:
        """Whether code that is no test asked for a name before."""
        return any(row.role == "asks" and not is_test(row.path) for row in self.before.occurrences(name))

    def renamed(self, old: Occurrence) -> Occurrence | None:
        """What the definition is called now: the new definition that stands in its place where it was used, or the one
        that is called nearly so."""
        source = self.after.project.files.get(old.path)
        earlier = self.before.project.files.get(old.path)
        if source is None or earlier is None:
            return None
        gone = {name for name, rows in self.before.of_file(earlier).items() if _has(rows, old.kind)}
        here = self.after.of_file(source)
        fresh = [name for name, rows in here.items() if name not in gone and _has(rows, old.kind)]
        words = set(old.name.split("_"))
        near = [name for name in fresh if words & set(name.split("_")) or are_like(name, old.name)]
        told = self.change.analysis(Renames).of(old.path, old.name)
        chosen = [told] if told in fresh else near
        if len(chosen) != 1:
            return None
        return next(row for row in here[chosen[0]] if row.role == "defines" and row.kind == old.kind)


def _has_by_itself(side: Side, symbol: External, made: Value, name: str) -> bool:
    """Whether an object of a library's class has something that nobody gives it: not by a keyword, and no code of the
    project stores or defines anything of that name."""
    is_class = symbol.path.rpartition(".")[2][:1].isupper()
    return is_class and name not in made.data.names and not any(r.role == "defines" for r in side.occurrences(name))


def are_like(one: str, other: str) -> bool:
    return SequenceMatcher(None, one, other).ratio() > _LIKE


def _is_of_environment(row: Occurrence) -> bool:
    """Whether a place sets a variable of the environment, or asks for it."""
    if row.kind != "key" or row.unit is None:
        return False
    owner = asked_of(row.unit, row) if row.role == "tries" else -1
    return row.link == "environ" or owner >= 0 and row.unit.code.values[owner].data == "environ"


def _tells_rank(row: Occurrence) -> bool:
    """Whether what is kept under a key speaks of a rank or a group: no reader has it from elsewhere."""
    if row.unit is None:
        return False
    values = row.unit.code.values
    users = (values[user] for user in row.unit.users.get(row.number, ()))
    kept = [values[user.args[2]].at for user in users if user.op == "store_item"]
    names = (name for at in kept if at for name in words_in(row.unit.text(at)))
    return any("rank" in name.lower() or axes_of(name) for name in names)


def _stores(rows: list[Occurrence]) -> list[Occurrence]:
    return [row for row in rows if row.role == "defines" and row.kind == "attribute"]


def _is_owned(row: Occurrence) -> bool:
    """Whether a definition says whose name it is: not one that is stored on an object from elsewhere."""
    if is_test(row.path) or is_foreign(row.path):
        return False
    return row.kind != "attribute" or _is_own(row)


def _is_default(row: Occurrence) -> bool:
    """Whether a text is what an option is by default: `add_argument("--best", default="error")`."""
    if row.role != "spells" or row.unit is None:
        return False
    values = row.unit.code.values
    calls = [values[user] for user in row.unit.users.get(row.number, ()) if values[user].op == "call"]
    return bool(calls) and all(_passes_default(call, row.number) for call in calls)


def _passes_default(call: Value, number: int) -> bool:
    given = zip(call.data.names, call.args[1:], strict=True)
    return all((name or "").startswith("default") for name, each in given if each == number)


def _is_inherited(rows: list[Occurrence]) -> bool:
    """Whether all definitions stand in classes that a library may ask for the name."""
    owners = [row.unit.cls for row in rows if row.unit is not None]
    return all(owner is not None and owner.is_opaque for owner in owners)


def _is_target(text: str, row: Occurrence) -> bool:
    """Whether a dotted text leads to a definition: through the names of its module."""
    above = text.replace(":", ".").split(".")[:-1]
    module = row.unit.module.name.split(".") if row.unit is not None else []
    return len(set(above) & set(module)) >= min(2, len(above))


def _is_common(name: str) -> bool:
    return len(name) < 3 or name.startswith("__")


def _has(rows: list[Occurrence], kind: str) -> bool:
    return any(row.role == "defines" and row.kind == kind for row in rows)


def _defines(row: Occurrence, kind: str) -> bool:
    """Whether a place may define a name that was of a kind."""
    if row.role == "defines":
        return row.kind != "parameter"
    return row.role == "spells" and kind not in _CALLABLE


def _owner(row: Occurrence) -> str:
    """The class to which a definition belongs, or an empty text."""
    unit = row.unit
    while unit is not None and unit.code.kind != "class" and unit.cls is None:
        unit = unit.outer
    if unit is None:
        return ""
    return unit.cls.qualname if unit.cls is not None else unit.qualname.removesuffix(".<class>")


def _owned_by(unit: Unit, rows: list[Occurrence]) -> bool:
    """Whether a unit is the function that bore the name, under the name that it has now."""
    made = [each for each in rows if each.kind == "function"]
    return any(each.path == unit.path and _owner(each) and each.at[0] == unit.at(unit.code.at)[0] for each in made)


def _asking(unit: Unit, row: Occurrence) -> int:
    """The value that a place that asks for a name gets: of an attribute itself, of a text the call or subscript."""
    if unit.code.values[row.number].op == "attr":
        return row.number
    return next((user for user in unit.users.get(row.number, ()) if unit.code.values[user].op in ("call", "item")), -1)


def asked_of(unit: Unit, row: Occurrence) -> int:
    """The object that is asked for a name; -1 where the name is only held against something."""
    number = _asking(unit, row)
    if number < 0:
        return -1
    value = unit.code.values[number]
    if value.op in ("attr", "item"):
        return value.args[0]
    callee = unit.code.values[value.args[0]] if value.op == "call" else value
    return callee.args[0] if callee.op == "attr" else value.args[1] if value.op == "call" else -1


def _handed_to(row: Occurrence) -> Iterator[At]:
    """Where the value that is asked for gets the same name elsewhere: an attribute, a keyword, a key, a variable."""
    unit = row.unit
    assert unit is not None
    values = unit.code.values
    waiting, seen = [_asking(unit, row)], set[int]()
    while waiting:
        number = waiting.pop()
        for user in unit.users.get(number, ()):
            value = values[user]
            if value.op in ("store_attr", "store_global", "store_class") and value.data == row.name:
                yield unit.at(value.at)
            elif value.op == "call":
                shape = zip(value.data.names, value.args[1:], strict=True)
                yield from (unit.at(values[number].at) for name, held in shape if (name, held) == (row.name, number))
            elif value.op == "dict":
                pairs = zip(value.args[::2], value.args[1::2], strict=True)
                keys = (values[key] for key, held in pairs if held == number and key >= 0)
                yield from (unit.at(key.at) for key in keys if key.data == row.name)
            elif value.op == "store_item" and value.args[2] == number and values[value.args[1]].data == row.name:
                yield unit.at(values[value.args[1]].at)
            elif value.op == "phi" and user not in seen:
                seen.add(user)
                waiting.append(user)


def _is_of_parameter(row: Occurrence) -> bool:
    """Whether an attribute keeps a parameter of its name: whoever calls gave it."""
    if row.unit is None or row.number < 0 or row.kind != "attribute":
        return False
    value = row.unit.code.values[row.number]
    held = row.unit.code.values[value.args[-1]]
    return value.op == "store_attr" and held.op == "param" and held.data[1] == row.name


def _is_member(row: Occurrence) -> bool:
    """Whether a definition gives a class or its objects a member."""
    assert row.unit is not None
    if row.unit.code.kind == "class":
        return row.kind in ("function", "class", "variable", "field")
    return row.kind == "attribute" and _is_own(row)


def _is_own(row: Occurrence) -> bool:
    """Whether an attribute is stored on the object whose method it is."""
    unit = row.unit
    if unit is None or row.number < 0 or unit.code.values[row.number].op != "store_attr":
        return False
    owner = unit.root(unit.code.values[row.number].args[0])
    return unit.is_receiver(owner) or unit.code.values[owner].op == "free"


def given_by_library(cls: ClassDef, name: str, renamed: bool = False) -> bool:
    """Whether a base outside of the project may have what the project's classes lack: one of a library of which nothing
    is known, unless the change gave the name up for another one."""
    if not cls.is_opaque:
        return False
    bases = _bases_of_libraries(cls)
    if bases and all(is_known(base) for base in bases):
        return name in of_libraries()
    return not is_telling(name) or not renamed and bool(bases)


def _bases_of_libraries(cls: ClassDef) -> list[str]:
    return [base for base in cls.external_bases if base.removesuffix("[]") not in PLAIN_BASES]


def _is_told_missing(row: Occurrence, *errors: str) -> bool:
    """Whether a place reckons with the attribute or key missing: an exception is caught there; of the classes that are
    named, if some are."""
    assert row.unit is not None
    code = row.unit.code
    handlers = code.blocks[code.values[row.number].block].handlers
    caught = [
        code.values[n] for handler in handlers for n in code.blocks[handler].values if code.values[n].op == "caught"
    ]
    return any(not errors or any(name in str(each.data) for name in errors) for each in caught)

"""Texts and names by which places of a project find each other, replaced in some of them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.drift.change import Change, Side
from validator.drift.names.occurrences import Occurrence, option_name
from validator.drift.statements.drops import Drop, Drops
from validator.drift.statements.surroundings import last_name
from validator.facts.config_files import Setting
from validator.facts.model import At
from validator.flow.program.unit import Unit
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.ir.model import Value
from validator.models.members import is_telling
from validator.source import SourceFile

_TELLING = re.compile(r"(?=.{5,80}$)(?=.*[A-Za-z])[\w./{}:%-]*\w[._/-]\w[\w./{}:%-]*")  # several words, no spaces
_FILE = re.compile(r"[\w.-]*\w\.[a-z]\w{1,11}")  # a file of that name is looked for
_PREFIX = re.compile(r"[A-Za-z]\w{2,}[_-]")  # with which names begin: that of a file that ends in a number
# How a pattern goes on where a number follows, and nothing but the end of a name behind it.
_NUMBERED = re.compile(r"\(*(?:\\d|\[\d-\d\]|\*)[+*]?\)*(?:\\?\.\w+)?[$/]?")
_SEVERAL = 2  # edits that replace one word by the same other one
_SHORT = 3
_NAMED = frozenset({"attribute", "field", "option", "parameter", "keyword", "function", "class"})  # kinds of names
_SOUGHT = frozenset({"key", "keyword", "attribute", "field", "option", "parameter", "getattr", "target", "setting"})


class Replaced(NamedTuple):
    """A text or a name that stands for another one since the change; `others`: where the old one still stands;
    `sought`: whether something looks for one of them: it is a key, a name, a choice that is compared."""

    unit: Unit
    at: At
    old: str
    new: str
    others: tuple[tuple[str, int], ...]
    sought: bool = True


class Texts:
    """The texts and names that a change replaced in some places alone, each with the first of them."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[Replaced]:
        found: list[Replaced] = []
        seen: set[tuple[str, str]] = set()
        for drop in self.change.analysis(Drops).drops:
            row = self._attribute(drop) if drop.kind == "name" else None
            if drop.kind == "text":
                row = self._text(drop)
            elif drop.kind == "template" and (templates := _templates(drop)) is not None:
                row = self._template(drop, *templates)
            if row is not None and (row.old, row.new) not in seen:
                seen.add((row.old, row.new))
                found.append(row)
        return found

    def _text(self, drop: Drop) -> Replaced | None:
        assert isinstance(drop.old, ast.Constant)
        assert isinstance(drop.new, ast.Constant)
        old, new = drop.old.value, drop.new.value
        if not isinstance(old, str) or not isinstance(new, str):
            return None
        if (templates := _templates(drop)) is not None:
            return self._template(drop, *templates)
        here = drop.pair.new.code.values
        stays = any(value.op == "const" and value.data == old for value in here)
        if stays and self._pairs[old, new] < _SEVERAL:
            return self._key(drop, old, new)  # it still stands in the function: something came before it
        if self._is_of_a_name(drop, old, new):
            return None
        told = not stays and any(all(form.fullmatch(text) for text in (old, new)) for form in (_TELLING, _PREFIX))
        others = self._found(old, new) if told else self._spelled(old, new)
        if not others and not (others := self._left_by_its_value(drop, old)):
            return None
        sought = any(_is_sought(self.change.after, text) for text in (old, new))
        sought = sought or self._pairs[old, new] < _SEVERAL and all(_FILE.fullmatch(text) for text in (old, new))
        return Replaced(drop.pair.new, drop.pair.new.module.source_text.at(drop.new), old, new, tuple(others), sought)

    def _is_of_a_name(self, drop: Drop, old: str, new: str) -> bool:
        """Whether a text follows a variable of its name that the same statement asks for under another one."""
        beside = (each for each in self.change.analysis(Drops).drops if each.edit is drop.edit and each.kind == "name")
        return any(last_name(each.old) == old and last_name(each.new) == new for each in beside)

    def _template(self, drop: Drop, old: str, new: str) -> Replaced | None:
        """An f-string: the same one, with whatever in its places, that another function still has as it was."""
        if (pattern := self._pattern(drop)) is not None:
            return pattern
        if not (_TELLING.fullmatch(old) and _TELLING.fullmatch(new)) or any(_joined(self.change.before, new)):
            return None
        others = list(_joined(self.change.after, old))
        places = list(_joined(self.change.after, new))
        here = {(unit.path, unit.at(unit.code.values[number].at)[0]) for unit, number in places}
        if len(places) > 1:
            both = {unit.path for unit, _ in places}
            others = [each for each in others if each[0].path not in both]  # who has both goes by either
        if not others or not here or not here <= self._edited:
            return None
        lines = tuple((unit.path, unit.at(unit.code.values[number].at)[0]) for unit, number in others)
        # given as the same setting in all places: each has a value of its own, and none looks for another one
        kinds = {_setting(unit, number) for unit, number in (*places, *others)}
        at = drop.pair.new.module.source_text.at(drop.new)
        return Replaced(drop.pair.new, at, old, new, lines, sought=len(kinds) > 1 or "" in kinds)

    def _pattern(self, drop: Drop) -> Replaced | None:
        """A name with a number in it (`f"step_{step}"`) that a pattern of the program still looks for as it was, and
        none as it is."""
        old, new = _file_name(drop.old), _file_name(drop.new)
        if not (_PREFIX.fullmatch(old) and _PREFIX.fullmatch(new)) or any(_beginning(self.change.after, new)):
            return None
        here = drop.pair.new.path
        found = dict.fromkeys(_patterns(self.change.after, old))
        lines = tuple(each for each in found if each[0] == here or not self._has_names_of_its_own(each[0], old))
        at = drop.pair.new.module.source_text.at(drop.new)
        return Replaced(drop.pair.new, at, old, new, lines) if lines else None

    def _has_names_of_its_own(self, path: str, prefix: str) -> bool:
        """Whether the file of a pattern puts such names together itself: those are what it looks for."""
        texts = (text for text, unit, _ in _texts_with(self.change.after, prefix) if unit.path == path)
        return any(text.endswith(prefix) for text in texts)

    def _key(self, drop: Drop, old: str, new: str) -> Replaced | None:
        """A key under which a value is kept, while the function itself still looks it up under the old one; a key that
        is looked up where the function has asked whether the old one is there."""
        rows = self.change.after.of_file(drop.pair.new.module.source)
        at = drop.pair.new.module.source_text.at(drop.new)
        looked_up = [row for row in rows.get(new, ()) if row.kind == "key" and row.role == "asks" and row.at == at]
        for row in looked_up:
            alone = set(_places(self.change.after, new)) <= self._edited
            if alone and (tested := _tested_around(row, old)):
                return Replaced(drop.pair.new, at, old, new, tuple((row.path, line) for line in tested))
        kept = any(row.role == "defines" and row.kind == "key" and row.at == at for row in rows.get(new, ()))
        asked = [
            row for row in rows.get(old, ()) if row.kind == "key" and row.role == "asks" and row.unit is drop.pair.new
        ]
        if (
            not kept
            or not asked
            or any(row.kind == "key" and row.role in ("asks", "tries") for row in self._asked(new))
        ):
            return None
        return Replaced(drop.pair.new, at, old, new, tuple((row.path, row.at[0]) for row in asked))

    def _left_by_its_value(self, drop: Drop, old: str) -> list[tuple[str, int]]:
        """Where a key is still looked up that was the name of the value kept under it (`info["top_p"] = args.top_p`)
        and is another one now, however common."""
        kept = _kept_under(drop.edit.new.node, drop.new) if drop.edit.new is not None else None
        if kept is None or last_name(kept.value) != old or not is_telling(old):
            return []
        asked = (row for row in self._asked(old) if row.kind == "key" and row.role in ("asks", "tries"))
        same = (row for row in asked if row.unit is not None and _receiver_of(row) == last_name(kept.target))
        return list(dict.fromkeys((row.path, row.at[0]) for row in same if not self.change.wrote(row.path, row.at[0])))

    def _asked(self, name: str) -> list[Occurrence]:
        """Where a name stands in the program as it is now, but for tests."""
        return [row for row in self.change.after.occurrences(name) if not is_test(row.path)]

    def _found(self, old: str, new: str) -> list[tuple[str, int]]:
        """Where the old text still stands, if the new one has no meaning but by these edits."""
        if _places(self.change.before, new) or not set(_places(self.change.after, new)) <= self._edited:
            return []
        if self._is_written_for_itself(old, new) or self._is_made_a_name(new):
            return []  # who puts it and who takes it have it of the change
        others = [each for each in _places(self.change.after, old) if not self._is_own_option(each[0], old)]
        if self._are_both_replaced(old, new):
            others = [each for each in others if not self._is_of_a_member(each, old)]
        asked = old.isidentifier() or old.startswith("--")  # by an attribute
        if not asked and len(taking := _given_to(self.change.before, old)) == 1 and "" not in taking:
            return []  # all hand it to one function that reports it: nobody looks for it
        given = {row.path for row in self._asked(old) if row.role == "defines"}
        others.sort(key=lambda place: place[0] in given)  # first who has it of elsewhere
        return others if len(others) < len(_places(self.change.before, old)) else []

    def _are_both_replaced(self, old: str, new: str) -> bool:
        """Whether the change gave a key another name where it is put and where it is looked up."""
        roles = {row.role for row in self._asked(new) if row.kind == "key"}
        return self._pairs[old, new] >= _SEVERAL and {"defines", "asks"} <= roles

    def _is_of_a_member(self, place: tuple[str, int], text: str) -> bool:
        """Whether a text names a member that the program has (`get_attr(key="steps")`), and is no key itself."""
        rows = self._asked(text)
        here = [row for row in rows if (row.path, row.at[0]) == place]
        members = any(row.role == "defines" and row.kind in ("attribute", "function") for row in rows)
        return members and not any(row.kind in ("key", "setting") for row in here)

    def _is_own_option(self, path: str, text: str) -> bool:
        """Whether a text is an option that a file defines for itself: of another program."""
        if not text.startswith("--") or self.change.is_changed(path):
            return False
        rows = self.change.after.of_file(self.change.after.project.files[path]).get(option_name(text), ())
        return any(row.role == "defines" and row.kind == "option" for row in rows)

    def _spelled(self, old: str, new: str) -> list[tuple[str, int]]:
        """Where a single word still stands by itself, if the change replaced it in several places and the new one was
        nowhere before: a value was given another name."""
        if self._pairs[old, new] < _SEVERAL or not (old.isidentifier() and new.isidentifier()) or len(old) < _SHORT:
            return []
        if any(row.role in ("spells", "asks", "defines") for row in self.change.before.occurrences(new)):
            return []
        rows = (row for row in self.change.after.occurrences(old) if not is_test(row.path) and not is_foreign(row.path))
        found = [row for row in rows if row.kind in ("key", "value") or row.role == "spells"]
        about = {name for row in self.change.after.occurrences(new) for name in _about(row)} - {""}
        if about:  # a word has many meanings: only where it is said of the same
            found = [row for row in found if not about.isdisjoint(_about(row))]
        # where the change itself writes the old word it knows of it: an alias, say
        return [(row.path, row.at[0]) for row in found if not self.change.wrote(row.path, row.at[0])]

    @cached_property
    def _pairs(self) -> Counter[tuple[object, object]]:
        """How often the change replaced a text by another one."""
        drops = (d for d in self.change.analysis(Drops).drops if d.kind == "text")
        pairs = (
            (d.old.value, d.new.value)
            for d in drops
            if isinstance(d.old, ast.Constant) and isinstance(d.new, ast.Constant)
        )
        count: Counter[tuple[object, object]] = Counter(pairs)
        for path in self.change.changed:
            sources = [side.by_absolute.get(path) for side in (self.change.before, self.change.after)]
            old, new = ({each.path: each.value for each in _settings(source)} for source in sources)
            count.update((value, new[key]) for key, value in old.items() if new.get(key, value) != value)
        return count

    @cached_property
    def _edited(self) -> set[tuple[str, int]]:
        """The lines of what the change wrote otherwise: statements, and settings of recipes."""
        found: set[tuple[str, int]] = set()
        for pair, _, _, changed in self.change.analysis(Drops).edited:
            nodes = [edit.new.node for edit in changed if edit.new is not None]
            found.update((pair.new.path, n) for node in nodes for n in range(node.lineno, (node.end_lineno or 0) + 1))
        for path in self.change.changed:
            old, new = (side.by_absolute.get(path) for side in (self.change.before, self.change.after))
            before = {(each.path, each.value) for each in _settings(old)}
            if new is not None:
                found.update((new.path, each.at[0]) for each in _settings(new) if (each.path, each.value) not in before)
        return found

    def _is_made_a_name(self, text: str) -> bool:
        """Whether the change made a text the name of a field, say, that was none before."""
        named = any(row.kind in _NAMED for row in self._asked(text))
        return named and not any(row.kind in _NAMED for row in self.change.before.occurrences(text))

    def _is_written_for_itself(self, old: str, new: str) -> bool:
        """Whether a statement that the change wrote has the new text and stands for none that had the old one."""
        return any(
            edit.new is not None and new in edit.new.text and (edit.old is None or old not in edit.old.text)
            for _, _, _, changed in self.change.analysis(Drops).edited
            for edit in changed
        )

    def _attribute(self, drop: Drop) -> Replaced | None:
        """An attribute that is asked for in place of another and that nothing defines."""
        old, new = drop.old, drop.new
        if (
            not isinstance(old, ast.Attribute)
            or not isinstance(new, ast.Attribute)
            or not isinstance(new.ctx, ast.Load)
        ):
            return None
        if old.attr == new.attr or not is_telling(new.attr) or ast.dump(old.value) != ast.dump(new.value):
            return None
        rows = list(self.change.after.occurrences(new.attr))
        if any(row.role in ("defines", "spells") for row in rows) or len(rows) > 1:
            return None  # written in several places it is meant
        if any(row.role == "asks" for row in self.change.before.occurrences(new.attr)):
            return None  # it was asked for before: something that is not here has it
        if not any(row.role == "defines" for row in self.change.after.occurrences(old.attr)):
            return None
        if any(row.unit is not None and self.change.after.mention(row.unit, row.number) is None for row in rows):
            return None  # a library's module or object has it
        return Replaced(drop.pair.new, drop.pair.new.module.source_text.at(new), old.attr, new.attr, ())


class _Kept(NamedTuple):
    """A value that is kept under a key of something: `info["top_p"] = args.top_p`."""

    target: ast.expr
    value: ast.expr


def _kept_under(node: ast.AST, key: ast.AST) -> _Kept | None:
    """What a statement keeps under a key."""
    for each in ast.walk(node):
        targets = each.targets if isinstance(each, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Subscript) and target.slice is key and isinstance(each, ast.Assign):
                return _Kept(target.value, each.value)
    return None


def _receiver_of(row: Occurrence) -> str:
    """The last name of what is asked for a key: `info` of `prompts.info.get("top_p")`."""
    assert row.unit is not None
    unit, values = row.unit, row.unit.code.values
    for user in unit.users.get(row.number, ()):
        value = values[user]
        if value.op == "item" or value.op == "call" and values[value.args[0]].op == "attr":
            held = value.args[0] if value.op == "item" else values[value.args[0]].args[0]
            asked = values[unit.root(held)]
            return str(asked.data) if asked.op == "attr" else unit.variables.get(unit.root(held), "")
    return ""


def _is_sought(side: Side, text: str) -> bool:
    """Whether the program looks for a text: as a key or a name, or among those with which it compares things. On what
    is only handed on, a default, say, no other place depends."""
    if any(row.kind in _SOUGHT and not is_test(row.path) for row in side.occurrences(text)):
        return True
    for unit, number in constants(side, text):
        for user in (number, *_holders(unit, number)):
            for value in (unit.code.values[each] for each in unit.users.get(user, ())):
                if value.op in ("compare", "item") or value.op == "dict" and user in value.args[::2]:
                    return True
    return False


def _holders(unit: Unit, number: int) -> Iterator[int]:
    """The rows of several in which a value stands."""
    return (user for user in unit.users.get(number, ()) if unit.code.values[user].op in ("tuple", "list", "set"))


def _units_with(side: Side, text: str, foreign: bool = True) -> Iterator[Unit]:
    """The units of the files that have a text, but for tests. `foreign`: also of what the program brings along."""
    data = text.encode()
    for source in side.project.files.values():
        module = side.project.modules.get(source.absolute)
        left_out = is_test(source.path) or not foreign and is_foreign(source.path)
        if module is not None and data in source.data and not left_out:
            yield from side.units(module).values()


def constants(side: Side, text: str) -> Iterator[tuple[Unit, int]]:
    """Where a text stands in the program, but for tests."""
    for unit in _units_with(side, text):
        rows = enumerate(unit.code.values)
        yield from ((unit, number) for number, v in rows if v.op == "const" and v.data == text)


def _templates(drop: Drop) -> tuple[str, str] | None:
    """The f-strings, with `{}` in their places, of which a piece changed; None where it is a text by itself."""
    found = []
    for edit, piece in ((drop.edit.old, drop.old), (drop.edit.new, drop.new)):
        joined = (n for n in ast.walk(edit.node) if isinstance(n, ast.JoinedStr)) if edit is not None else ()
        whole = next((n for n in joined if n is piece or any(v is piece for v in n.values)), None)
        if whole is None:
            return None
        found.append("".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in whole.values))
    return found[0], found[1]


def _file_name(node: ast.AST | None) -> str:
    """The last part of a path that a text is, or with which it ends."""
    text = node.value if isinstance(node, ast.Constant) else ""
    return text.rpartition("/")[2] if isinstance(text, str) else ""


def _texts_with(side: Side, part: str) -> Iterator[tuple[str, Unit, int]]:
    """The texts of the program that have a part, with the place of each."""
    for unit in _units_with(side, part):
        for value in unit.code.values:
            if value.op == "const" and isinstance(value.data, str) and part in value.data:
                yield value.data, unit, unit.at(value.at)[0]


def _patterns(side: Side, prefix: str) -> Iterator[tuple[str, int]]:
    """Where a regular expression or a wildcard looks for names that are a text with a number behind it."""
    for text, unit, line in _texts_with(side, prefix):
        before, _, rest = text.partition(prefix)
        if (not before or before[-1] in "^/") and _NUMBERED.fullmatch(rest):
            yield unit.path, line


def _beginning(side: Side, prefix: str) -> Iterator[str]:
    """The texts with which names may be compared that begin so, or the patterns that look for them."""
    texts = (text for text, _, _ in _texts_with(side, prefix))
    return (text for text in texts if text == prefix or _NUMBERED.match(text.partition(prefix)[2]))


def _joined(side: Side, template: str) -> Iterator[tuple[Unit, int]]:
    """The f-strings of a side that have given pieces between their places."""
    for unit in _units_with(side, max(template.split("{}"), key=len), foreign=False):
        values = unit.code.values
        for number, value in enumerate(values):
            if value.op == "join" and template == "".join(_piece(values[each]) for each in value.args):
                yield unit, number


def _setting(unit: Unit, number: int) -> str:
    """What a value is given for, if it is only given for that: a keyword of a call."""
    users = unit.users.get(number, ())
    value = unit.code.values[users[0]] if len(users) == 1 else None
    if value is None or value.op != "call":
        return ""
    name = next((name for name, each in zip(value.data.names, value.args[1:], strict=True) if each == number), None)
    return f"{unit.known_as(value.args[0])}({name}=)" if name else ""


def _piece(value: Value) -> str:
    return value.data if value.op == "const" and isinstance(value.data, str) else "{}"


def _given_to(side: Side, text: str) -> set[str]:
    """The names of the functions that are handed a text and give nothing back for it; an empty one for each other place
    where it stands."""
    found = set()
    for source in side.project.files.values():
        if text.encode() not in source.data:
            continue
        module = side.project.modules.get(source.absolute)
        units = side.units(module).values() if module is not None else ()
        rows = [
            (unit, number)
            for unit in units
            for number, v in enumerate(unit.code.values)
            if v.op == "const" and v.data == text
        ]
        found |= {_receiver(unit, number) for unit, number in rows} if rows else {""}
    return found


def _receiver(unit: Unit, number: int) -> str:
    """The name of the one function that is called with a value for what it does; empty if there is none."""
    users = unit.users.get(number, ())
    if len(users) != 1 or unit.code.values[users[0]].op != "call":
        return ""
    used = any(unit.code.values[user].op != "mut" for user in unit.users.get(users[0], ()))
    used = used or any(block.end[1] == users[0] for block in unit.code.blocks if block.end[0] in ("return", "branch"))
    return "" if used else unit.known_as(unit.code.values[users[0]].args[0])


def _settings(source: SourceFile | None) -> tuple[Setting, ...]:
    found = source.facts.extra.get("settings") if source is not None else None
    return found.settings if found is not None else ()


def _about(row: Occurrence) -> Iterator[str]:
    """What a text is the value of: a keyword, a variable, an attribute, a key, or what it is compared with."""
    if row.unit is None or row.number < 0:
        yield row.link
        return
    values = row.unit.code.values
    yield from (name for name, made in row.unit.code.definitions.items() if row.number in made)
    for user in row.unit.users.get(row.number, ()):
        value = values[user]
        if value.op == "call":
            shape = zip(value.data.names, value.args[1:], strict=True)
            yield from (name or row.unit.known_as(value.args[0]) for name, operand in shape if operand == row.number)
        elif value.op == "compare":
            yield from (_last(row.unit, other) for other in value.args if other != row.number)
        elif value.op in ("store_attr", "store_global", "store_class"):
            yield str(value.data)
        elif value.op in ("dict", "store_item"):
            keys = value.args[::2] if value.op == "dict" else value.args[1:2]
            at = value.args.index(row.number) - 1
            named = [values[key] for key in keys if key >= 0 and value.args.index(key) == at]
            yield from (str(key.data) for key in named if key.op == "const")
        elif value.op in ("tuple", "list", "set"):
            yield from _about(row._replace(number=user))


def _tested_around(row: Occurrence, key: str) -> list[int]:
    """The lines of conditions around a look-up which ask the same object for another key, and not for this one."""
    unit = row.unit
    assert unit is not None
    values = unit.code.values
    item = next((values[user] for user in unit.users.get(row.number, ()) if values[user].op == "item"), None)
    if item is None:
        return []
    owner, found = unit.text(values[item.args[0]].at), dict[object, int]()
    for branch in unit.control.deciding(item.block):
        test = values[unit.code.blocks[branch].end[1]]
        if test.op == "compare" and test.data == "In" and unit.text(values[test.args[1]].at) == owner:
            found[values[test.args[0]].data] = unit.at(test.at)[0]
    return [found[key]] if key in found and row.name not in found else []


def _last(unit: Unit, number: int) -> str:
    """The last name of what a text is compared with; of a call that of what is called."""
    value = unit.code.values[number]
    if value.op == "call":
        return unit.known_as(value.args[0])
    return str(value.data[1]) if value.op in ("param", "free") else str(value.data)


def _places(side: Side, text: str) -> list[tuple[str, int]]:
    """Where a text stands between quotes, or in a part of a path between them."""
    data = text.encode()
    pattern = re.compile(rb"(?<![\w-])" + re.escape(data) + rb"(?![\w-])")  # `full-shard` is no part of `full-shard-2`
    found = []
    for source in side.project.files.values():
        if data in source.data and not is_test(source.path) and not is_foreign(source.path):
            for match in pattern.finditer(source.data):
                start = source.data.rfind(b"\n", 0, match.start()) + 1
                before = source.data[start : match.start()]
                quoted = before.count(b'"') % 2 or before.count(b"'") % 2 or source.facts.language != "python"
                if b"#" not in before and quoted:
                    found.append((source.path, source.data.count(b"\n", 0, match.start()) + 1))
    return found

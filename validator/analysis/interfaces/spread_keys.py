"""The keywords that a call passes by `**`: those that are surely in the dictionary where the call stands.

`make(**{"path": p})`, `options = dict(path=p); options["size"] = 2; make(**options)`, `Model(**asdict(config))`,
`Model(**vars(self))`, `Model(**self.to_dict())` where such a method does no more than that.
"""

from __future__ import annotations

from typing import NamedTuple

from validator.definitions import ClassDef
from validator.facts.model import Argument, At, Call
from validator.flow.constructors import fields_of
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.project import Project

_KIND = "spread"  # of an argument that a `**` passes
_SHOWING = frozenset({"vars", "dataclasses.asdict"})  # of Python: a function of the project may leave something out
_LOOKING = frozenset({"get", "keys", "values", "items", "copy"})
_ADDING = frozenset({"setdefault", "update"})  # what these add is not listed; nothing goes
_CHANGING = frozenset({"pop", "popitem", "clear", *_LOOKING, *_ADDING})
_READERS = frozenset({"print", "len", "str", "repr", "sorted", "list", "set", "bool", "isinstance", "id", "dict"})


class Keys(NamedTuple):
    """The keys that a dictionary surely has, with where each is put, and whether it has no others. `looped`: these are
    what a turn of a loop adds, and `taken` what it takes away, of keys that the dictionary has before it."""

    found: dict[str, At]
    complete: bool
    looped: bool = False
    taken: frozenset[str] = frozenset()

    def without(self, names: frozenset[str]) -> Keys:
        left = {key: at for key, at in self.found.items() if key not in names}
        return self._replace(found=left, taken=self.taken | names)


_NOBODY_KNOWS = Keys({}, False)


class SpreadKeys:
    """Asked for with `project.analysis(SpreadKeys)`."""

    def __init__(self, project: Project) -> None:
        self.objects = project.analysis(Objects)

    def spelled_out(self, place: Place | None, call: Call) -> Call:
        """A call with the keywords that it passes by `**` written out."""
        names = place.value.data.names if place is not None and place.value.op == "call" else ()
        if place is None or "**" not in names or len(names) != len(call.args):
            return call
        args: list[Argument] = []
        for position, argument in enumerate(call.args):
            if argument.keyword != "**":
                args.append(argument)
                continue
            keys = self.of(place.operand(position + 1))
            args += [Argument(key, _KIND, key, argument.at) for key in keys.found]
            args += [] if keys.complete else [argument]
        return call._replace(args=tuple(args))

    def of(self, place: Place) -> Keys:
        """The keys of a dictionary as it is at a place."""
        return self._of(place, frozenset())

    def _of(self, place: Place, joins: frozenset[int]) -> Keys:
        """The same. `joins`: those passed on the way back from where it is asked; a loop leads to one of them again."""
        return _NOBODY_KNOWS if self._gets_about(place) else self._at(place, joins)

    def _at(self, place: Place, joins: frozenset[int]) -> Keys:
        """The same, where nothing else has the dictionary."""
        taken: frozenset[str] = frozenset()
        added: dict[str, At] = {}
        complete = True
        while (value := place.value).op == "mut":
            change = place.operand(1)
            if change.value.op == "store_item":
                key = change.operand(1).val.constant()
                complete = complete and isinstance(key, str)
                if isinstance(key, str) and key not in taken:
                    added.setdefault(key, change.at)
            elif change.method == "pop" and value.data == -1:
                key = change.operand(1).val.constant() if len(change.value.args) > 1 else None
                if not isinstance(key, str):
                    return _NOBODY_KNOWS
                taken |= {key}
            elif value.data == -1 and change.method in _ADDING:
                complete = False
            elif value.data >= 0 and change.value.op == "call" and change.value.data.names[value.data] == "**":
                pass  # what is called gets a dictionary of its own
            elif not (value.data == -1 and change.method in _LOOKING or change.method in _READERS):
                return _NOBODY_KNOWS
            place = place.operand(0)
        made = self._joined(place, joins) if value.op == "phi" else self._made(place, joins)
        left = made.without(taken)
        return left._replace(found={**left.found, **added}, complete=left.complete and complete)

    def _joined(self, place: Place, joins: frozenset[int]) -> Keys:
        """The keys that a dictionary has on each way to a place."""
        if place.number in joins:
            return Keys({}, True, looped=True)
        ways = [self._at(place.value_at(each), joins | {place.number}) for each in place.value.args]
        first = [way for way in ways if not way.looped] or ways
        looped = first is ways
        taken = frozenset[str]().union(*(way.taken for way in ways if way.looped))
        common = set[str].intersection(*(set(way.found) for way in first)) - taken
        same = all(way.complete and way.found.keys() == common for way in first)
        kept = all(way.complete and way.found.keys() <= common for way in ways)
        found = {key: at for key, at in first[0].found.items() if key in common}
        return Keys(found, same and kept, looped, taken if looped else frozenset())

    def _made(self, place: Place, joins: frozenset[int]) -> Keys:
        """The keys of a dictionary where it is made."""
        value = place.value
        if value.op == "dict":
            return self._displayed(place, joins)
        if value.op == "attr" and value.data == "__dict__":
            return self._fields(place.operand(0), place.at, True)
        if value.op != "call":
            return _NOBODY_KNOWS
        if place.method == "dict" and place.receiver is None and value.data.names and None not in value.data.names:
            whole = {name: place.at for name in value.data.names if name not in ("*", "**")}
            spread = [self._of(place.operand(i), joins) for i, name in enumerate(value.data.names, 1) if name == "**"]
            return _together(whole, spread)
        if len(value.args) == 2 and any(o[0] == "ext" and o[1] in _SHOWING for o in place.operand(0).val.each):
            return self._fields(place.operand(1), place.at, place.method == "vars")
        return self._shown_by_method(place)

    def _displayed(self, place: Place, joins: frozenset[int]) -> Keys:
        args = place.value.args
        own: dict[str, At] = {}
        spread: list[Keys] = []
        complete = True
        for i in range(0, len(args), 2):
            if args[i] < 0:
                spread.append(self._of(place.value_at(args[i + 1]), joins))
                continue
            key = place.value_at(args[i]).val.constant()
            if isinstance(key, str):
                own[key] = place.at
            else:
                complete = False
        return _together(own, spread, complete)

    def _shown_by_method(self, call: Place) -> Keys:
        """What a method gives that does nothing but to make a dictionary of the fields of its object."""
        receiver = call.receiver
        targets = self.objects.queries.targets(call) if receiver is not None and len(call.value.args) == 1 else []
        returned = targets[0].code.returned if len(targets) == 1 else []
        if receiver is None or len(returned) != 1:
            return _NOBODY_KNOWS
        given = Place(call.flow, targets[0], returned[0])
        asked = given.operand(1) if given.value.op == "call" and len(given.value.args) == 2 else given
        if not targets[0].is_receiver(asked.root.number):
            return _NOBODY_KNOWS
        own, theirs = self.of(given), self._fields(receiver, call.at, False)
        known = own.found and own.found.keys() <= theirs.found.keys()
        return theirs._replace(complete=own.complete and theirs.complete) if known else _NOBODY_KNOWS

    def _fields(self, place: Place, at: At, all_attributes: bool) -> Keys:
        """The fields of the data class of which an object is; objects of a class below it have them, too. Of all its
        attributes there may be more, or fewer where something takes one away."""
        held = self.objects.held(place)
        rows = [fields_of(cls) for cls in held.classes]
        if not held.complete or not rows or None in rows:
            return _NOBODY_KNOWS
        common = frozenset.intersection(*(row for row in rows if row is not None))
        if all_attributes and self._are_taken_away(place.unit, held.classes):
            return _NOBODY_KNOWS
        same = len(set(rows)) == 1 and not held.below and not all_attributes
        return Keys(dict.fromkeys(sorted(common), at), same)

    def _are_taken_away(self, unit: Unit, classes: frozenset[ClassDef]) -> bool:
        """Whether code beside, or of the classes, takes attributes away, or changes the dictionary that holds them."""
        modules = {unit.module, *(each.module for cls in classes for each in cls.relatives)}
        units = [each for module in modules for each in self.objects.flow.units_of(module).values()]
        deletes = any(value.op == "delete" for each in units for value in each.code.values)
        return deletes or any(each.named.keys() & {"delattr", "pop", "clear", "popitem"} for each in units)

    def _gets_about(self, place: Place) -> bool:
        """Whether a dictionary is known to something else that may change it: a function inside, an object, a list."""
        unit = place.unit
        chain = _same(unit, place.number)
        names = {name for name, numbers in unit.code.definitions.items() if not chain.isdisjoint(numbers)}
        inside = (each for each in self.objects.flow.units_of(unit.module).values() if each.outer is unit)
        if any(value.op == "free" and value.data[1] in names for each in inside for value in each.code.values):
            return True
        users = ((each, user) for each in chain for user in unit.users.get(each, ()) if user not in chain)
        return any(not _is_harmless(unit, each, user) for each, user in users)


def _same(unit: Unit, number: int) -> set[int]:
    """All values that are one dictionary: as it was before changes and after them, on one of several ways."""
    values = unit.code.values
    found, front = set[int](), [number]
    while front:
        each = front.pop()
        if each not in found:
            found.add(each)
            front += {"mut": values[each].args[:1], "phi": values[each].args}.get(values[each].op, ())
    front = list(found)
    while front:
        each = front.pop()
        for user in unit.users.get(each, ()):
            value = values[user]
            joined = value.op == "phi" and all(arg in found or arg == user for arg in value.args)
            if user not in found and (joined or value.op == "mut" and value.args[0] == each):
                found.add(user)
                front.append(user)
    return found


def _is_harmless(unit: Unit, number: int, user: int) -> bool:
    """Whether a use of a dictionary is one that is looked at elsewhere, or only reads it."""
    value = unit.code.values[user]
    if value.op == "call":
        passed = [name for name, each in zip(value.data.names, value.args[1:], strict=True) if each == number]
        callee = unit.code.values[value.args[0]]
        return all(name == "**" for name in passed) or callee.op == "name" and callee.data in _READERS
    if value.op == "attr":
        return value.data in _CHANGING
    if value.op == "store_item":
        return bool(value.args[0] == number and number not in value.args[1:])
    if value.op == "dict":  # `{**options}` makes another one
        return all(value.args[i] < 0 for i in range(0, len(value.args), 2) if value.args[i + 1] == number)
    return value.op in ("item", "mut", "compare", "iter", "more", "next")


def _together(own: dict[str, At], spread: list[Keys], complete: bool = True) -> Keys:
    """The keys of a dictionary that has those of others, too; what one of a loop has before it is not known here."""
    found = {key: at for keys in spread for key, at in keys.found.items()}
    return Keys({**found, **own}, complete and all(keys.complete and not keys.looped for keys in spread))

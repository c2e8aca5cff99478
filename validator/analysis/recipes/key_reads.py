"""Of which sections of a configuration code may read a key, as far as the ways show by which it has them.

A section is known by the keys that lead to it, of which the last ones are enough: whoever asks `cfg.actor.rollout.n`,
or `section.n` in a function that is given `cfg.actor.rollout`, does not read `actor.n`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from validator.flow.foreign import is_unknown
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.values.text_origins import text_origins
from validator.flow.values import NONE_OBJ
from validator.project import Project

_ASKING = frozenset({"get", "pop", "getattr", "hasattr", "setdefault", "select"})
_READING = frozenset({"get", "pop", "setdefault", "getattr"})
_ALL = frozenset({"items", "values", "keys", "copy"})
_HOLDING = frozenset({"iter", "next", "collect", "dict", "list", "tuple", "set", "store_item"})
_OF_PROJECT = frozenset({"inst", "self"})
Links = tuple[str, ...]


class KeyReads:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.queries = project.analysis(Queries)
        self._owners: dict[str, frozenset[Links]] = {}

    def may_read(self, section: Links, name: str, packed: bool = False) -> bool:
        """Whether any code may read a key of a section: by its name, as an argument, or because it takes all there
        is. `packed`: whether the section may stand below more keys."""
        if name in self.taken or any(_is_end(owner, section, packed) for owner in self.owners(name)):
            return True
        return self._is_taken_whole(section, packed)

    @cached_property
    def taken(self) -> frozenset[str]:
        """The names of the parameters and fields of the project: a section may be unpacked into them."""
        params = (param.name for function in self.project.functions() for param in function.facts.params)
        fields = (name for cls in self.project.classes() for name, _ in cls.facts.attributes)
        return frozenset((*params, *fields))

    def reads(self, section: Links, name: str) -> bool:
        """Whether code is seen to read a key of a section."""
        return any(owner and _is_end(owner, section, packed=True) for owner in self.owners(name))

    def owners(self, name: str) -> frozenset[Links]:
        """The last keys of the sections that are asked for a key; empty ones of a section that is not known."""
        known = self._owners.get(name)
        if known is None:
            found = (links for place in self._places(name) for links in self._of_read(place, name))
            known = self._owners[name] = frozenset(found)
        return known

    def _places(self, name: str) -> Iterator[Place]:
        flow = self.queries.flow
        for module in self.project.modules.values():
            for unit in flow.whole_units(module) if name.encode() in module.source.data else ():
                yield from self.queries.values(unit, "attr", "const")

    def _of_read(self, place: Place, name: str) -> Iterator[Links]:
        if place.value.op == "attr" and place.value.data == name:
            yield from self._owned(place.operand(0), name)
        elif place.value.op == "const" and str(place.value.data).endswith(f".{name}"):
            yield ()  # a path in a text may lead anywhere
        elif place.value.op == "const" and place.value.data == name:
            for user in place.users or [place]:
                owner = asked_of(user, place)
                yield from self._owned(owner, name) if owner is not None else [()]

    def _owned(self, owner: Place, name: str) -> Iterator[Links]:
        held = [o for o in owner.closed.each if o[0] in _OF_PROJECT]
        if not held or is_unknown(owner.closed):
            yield from _links(owner, frozenset())
        elif not all(name in o[1].attributes for o in held):
            yield ()  # code may lay a section over the object

    def _is_taken_whole(self, section: Links, packed: bool) -> bool:
        """Whether a section is unpacked, gone through or handed to code that is not the project's, or one around it to
        a library of which nothing is known."""
        around = {("", *section[:end]) for end in range(len(section) + 1)}
        given = any(links in around or links == section[: len(links)] for links in self._given_away)
        return given or any(map(_goes_away, self.places_of(section, packed)))

    def goes_away(self, section: Links) -> bool:
        """Whether code is not seen to take a section, or takes all that it finds in it."""
        places = list(self.places_of(section, packed=True))
        return not places or any(map(_goes_away, places))

    def places_of(self, section: Links, packed: bool) -> Iterator[Place]:
        """Where code takes a section of what it is a part of."""
        for place in self._places_of(section[-1]) if section else ():
            if any(_is_end(links, section, packed) for links in _links(place, frozenset())):
                yield place

    @cached_property
    def _given_away(self) -> frozenset[Links]:
        """The last keys of what is given to libraries of which nothing is known, and may be a section; empty ones of
        what is asked for keys, too."""
        found: set[Links] = set()
        for unit in self.queries.of_program():
            for call in self.queries.calls_in(unit):
                for number in call.value.args[1:] if call.calls_unknown_library else ():
                    given = call.value_at(number).root
                    asked = any(key_of(user) and owner_of(user) == given for user in given.users)
                    if is_unknown(given.closed) and (asked or given.closed.of("section")):
                        found.update(_links(given, frozenset()))
        return frozenset(found)

    def _places_of(self, name: str) -> Iterator[Place]:
        for unit in self.queries.flow.mentions.units(name):
            for place in self.queries.values(unit, "attr", "item", "call"):
                if key_of(place) == name:
                    yield place


def asked_of(user: Place, key: Place) -> Place | None:
    """What a user of a text looks up by it; None where it does something else with it."""
    if user.value.op == "item" and user.value.args[1] == key.number:
        return user.operand(0)
    if user.value.op == "compare" and user.value.data in ("In", "NotIn") and user.value.args[0] == key.number:
        return user.operand(1)
    if user.value.op == "call" and user.method in _ASKING:
        by_name = user.method in ("getattr", "hasattr", "select")
        return user.operand(1) if by_name else user.receiver
    return None


def key_of(place: Place) -> str:
    """The key by which a value is read of another; empty where it is none."""
    if place.value.op == "attr":
        return str(place.value.data)
    by_name = place.value.op == "call" and place.method == "getattr"
    at = 2 if by_name else {"item": 1, "call": 1}.get(place.value.op)
    if at is None or len(place.value.args) <= at or place.value.op == "call" and place.method not in _READING:
        return ""
    key = place.operand(at).val.constant()
    return key if isinstance(key, str) else ""


def owner_of(place: Place) -> Place | None:
    """What a value is read of by a key."""
    if place.value.op == "call":
        return place.operand(1) if place.method == "getattr" else place.receiver
    return place.operand(0)


def _is_read_of_section(place: Place) -> bool:
    """Whether a value is what stands under a key, and not what an object of the project keeps."""
    owner = owner_of(place) if key_of(place) else None
    return owner is not None and not any(o[0] in _OF_PROJECT for o in owner.closed.each)


def _links(place: Place, above: frozenset[Place]) -> Iterator[Links]:
    """The last keys of the sections that a value may be: none of what is no section, empty ones where nobody knows."""
    for origin in text_origins(place, _is_read_of_section):
        here = origin.place.root
        owner = owner_of(here) if _is_read_of_section(here) else None
        objs = here.closed.objs - {NONE_OBJ}
        if sections := here.closed.of("section"):
            yield from (("", *o[2].split(".")) if o[2] else ("",) for o in sections)
        elif owner is not None and here not in above and is_unknown(here.closed):
            yield from ((*links, key_of(here)) for links in set(_links(owner, above | {here})) or {()})
        elif not objs or is_unknown(here.closed):
            yield ()


def _is_end(links: Links, section: Links, packed: bool) -> bool:
    """Whether keys may be the last ones of a path; of a whole file they begin with an empty one."""
    if links[:1] == ("",):
        return links[1:] == section or packed and links[1 + max(0, len(links) - 1 - len(section)) :] == section
    shared = min(len(links), len(section))
    return links[len(links) - shared :] == section[len(section) - shared :]


def _goes_away(place: Place) -> bool:
    """Whether code takes what it finds in a section, whatever that is, or keeps it where it is not followed."""
    waiting, seen = [place], {place}
    for each in waiting:
        if any(_takes_all(user, each) for user in each.users):
            return True
        # the same object, after a call that it is passed to or asked by
        changed = {user for user in each.users if user.value.op == "mut" and user.value.args[0] == each.number} - seen
        seen |= changed
        waiting += sorted(changed, key=lambda user: user.number)
    return False


def _takes_all(user: Place, section: Place) -> bool:
    if user.value.op == "call":
        return user.value.args[0] != section.number and not _is_followed(user)
    if user.value.op == "attr":
        return user.value.data in _ALL
    if user.value.op == "store_global":
        return _is_read_elsewhere(user)
    return user.value.op in _HOLDING


def _is_followed(call: Place) -> bool:
    """Whether a call runs code of the project alone, that names what it reads."""
    return call.flow.result(call.unit).sites.get(call.number) is not None and "**" not in call.value.data.names


def _is_read_elsewhere(store: Place) -> bool:
    """Whether anything but the statements of its own module may read a variable of the module."""
    name = store.value.data
    units = (unit for unit in store.flow.mentions.units(name) if unit is not store.unit)
    values = (value for unit in units for value in unit.code.values)
    return any(value.op in ("name", "attr", "import") and value.data == name for value in values)

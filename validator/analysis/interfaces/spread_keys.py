"""The keywords that a call passes by `**`: those that are surely in the dictionary where the call stands.

`make(**{"path": p})`, `options = dict(path=p); options["size"] = 2; make(**options)`, `Model(**asdict(config))`,
`Model(**vars(self))`, `Model(**self.to_dict())` where such a method goes through the fields of its data class.
"""

from __future__ import annotations

from typing import NamedTuple

from validator.definitions import PLAIN_BASES, ClassDef
from validator.facts.model import Argument, At, Call
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.project import Project

KIND = "spread"  # of an argument that a `**` passes
_SHOWING = frozenset({"vars", "asdict"})
_FIELDS = frozenset({"fields", "asdict", "vars", "__dict__", "__dataclass_fields__"})
_LOOKING = frozenset({"get", "keys", "values", "items", "copy"})
_ADDING = frozenset({"setdefault", "update"})  # what these add is not listed; nothing goes
_LISTS = frozenset({"list", "tuple", "set"})
_READERS = frozenset({"print", "len", "str", "repr", "sorted", "list", "set", "bool", "isinstance", "id"})


class Keys(NamedTuple):
    """The keys that a dictionary surely has, with where each is put, and whether it has no others. `sure`: they do not
    depend on what an object's fields hold."""

    found: dict[str, At]
    complete: bool
    sure: bool = True

    def without(self, names: frozenset[str]) -> Keys:
        return self._replace(found={key: at for key, at in self.found.items() if key not in names})


_NOBODY_KNOWS = Keys({}, False)


class SpreadKeys:
    """Asked for with `project.analysis(SpreadKeys)`."""

    def __init__(self, project: Project) -> None:
        self.objects = project.analysis(Objects)

    def spelled_out(self, place: Place | None, call: Call) -> tuple[Call, bool]:
        """A call with the keywords that it passes by `**` written out, and whether these are sure to be passed."""
        names = place.value.data.names if place is not None and place.value.op == "call" else ()
        if place is None or "**" not in names or len(names) != len(call.args):
            return call, True
        args: list[Argument] = []
        sure = True
        for position, argument in enumerate(call.args):
            if argument.keyword != "**":
                args.append(argument)
                continue
            keys = self.of(place.operand(position + 1))
            args += [Argument(key, KIND, key, argument.at) for key in keys.found]
            args += [] if keys.complete else [argument]
            sure = sure and keys.sure
        return call._replace(args=tuple(args)), sure

    def of(self, place: Place) -> Keys:
        """The keys of a dictionary as it is at a place."""
        taken: frozenset[str] = frozenset()
        added: dict[str, At] = {}
        complete = True
        while (value := place.value).op == "mut":
            change = place.operand(1)
            if change.value.op == "store_item":
                key = change.operand(1).val.constant()
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
        if any(each.operand(0).root == place.root for each in self.objects.queries.values(place.unit, "delete")):
            return _NOBODY_KNOWS
        made = self._made(place).without(taken)
        return Keys({**made.found, **added}, made.complete and complete, made.sure)

    def _made(self, place: Place) -> Keys:
        """The keys of a dictionary where it is made."""
        value = place.value
        if value.op == "dict":
            return self._displayed(place)
        if value.op == "attr" and value.data == "__dict__":
            return self._fields(place.operand(0), place.at)
        if value.op != "call":
            return _NOBODY_KNOWS
        if place.method == "dict" and place.receiver is None and value.data.names and None not in value.data.names:
            whole = {name: place.at for name in value.data.names if name not in ("*", "**")}
            spread = [self.of(place.operand(i)) for i, name in enumerate(value.data.names, 1) if name == "**"]
            return _together(whole, spread)
        if place.method in _SHOWING and len(value.args) == 2:
            return self._fields(place.operand(1), place.at)
        return self._shown_by_method(place)

    def _displayed(self, place: Place) -> Keys:
        args = place.value.args
        own: dict[str, At] = {}
        spread: list[Keys] = []
        complete = True
        for i in range(0, len(args), 2):
            if args[i] < 0:
                spread.append(self.of(place.value_at(args[i + 1])))
                continue
            key = place.value_at(args[i]).val.constant()
            if isinstance(key, str):
                own[key] = place.at
            else:
                complete = False
        return _together(own, spread, complete)

    def _shown_by_method(self, call: Place) -> Keys:
        """What a method gives that makes a dictionary of the fields of its object: some of them it may leave out."""
        receiver = call.receiver
        targets = self.objects.queries.targets(call) if receiver is not None else []
        if receiver is None or len(targets) != 1 or not self._goes_through_fields(targets[0]):
            return _NOBODY_KNOWS
        held = self._fields(receiver, call.at)
        named: set[str] = set()  # what it is told to leave out
        for given in (call.value_at(number) for number in call.value.args[1:]):
            parts = [given.operand(i) for i in range(len(given.value.args))] if given.value.op in _LISTS else [given]
            constants = [part.val.constant() for part in parts]
            if any(not isinstance(each, str | bool) for each in constants):
                return _NOBODY_KNOWS
            named.update(map(str, constants))
        held = held.without(frozenset(named))
        dictionary = (
            any(o[0] == "dict" for o in call.closed.each) or "Dict" in targets[0].scope.facts.returns_annotation
        )
        return held._replace(complete=False, sure=False) if dictionary else _NOBODY_KNOWS

    def _goes_through_fields(self, unit: Unit) -> bool:
        """Whether a function, or one inside of it, asks for the fields of a data class."""
        inside = self.objects.flow.units_of(unit.module).values()
        return any(each.named.keys() & _FIELDS for each in inside if each is unit or each.outer is unit)

    def _fields(self, place: Place, at: At) -> Keys:
        """The fields of the data class of which an object is; objects of a class below it have them, too."""
        held = self.objects.held(place)
        rows = [fields_of(cls) for cls in held.classes]
        if not held.complete or not rows or None in rows:
            return _NOBODY_KNOWS
        common = frozenset.intersection(*(row for row in rows if row is not None))
        same = len(set(rows)) == 1 and not held.below
        return Keys(dict.fromkeys(sorted(common), at), same, len(set(rows)) == 1)


def _together(own: dict[str, At], spread: list[Keys], complete: bool = True) -> Keys:
    found = {key: at for keys in spread for key, at in keys.found.items()}
    return Keys({**found, **own}, complete and all(keys.complete for keys in spread), all(keys.sure for keys in spread))


def fields_of(cls: ClassDef) -> frozenset[str] | None:
    """The fields of a data class; None of other classes, and of those whose fields are not all plain."""
    found: set[str] = set()
    for each in cls.mro:
        names = [name for name, annotation in each.facts.attributes if annotation]
        if names and not any(d.rpartition(".")[2].startswith("dataclass") for d in each.facts.decorators):
            return None
        texts = dict(each.facts.attributes)
        found |= {name for name in names if "ClassVar" not in texts[name] and "InitVar" not in texts[name]}
    return frozenset(found) if found and PLAIN_BASES.issuperset(cls.external_bases) else None

"""What a function puts into containers, takes out of them and stores in attributes, itself and in what it calls.

Told are the path by which the container is reached from the function's own values, the key, and the conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from validator.domains.spmd import Causes
from validator.flow.access_paths import Path, paths_of
from validator.flow.merging.conditions import truth_of
from validator.flow.merging.one_rank import is_turn
from validator.flow.program.answers import Site as Calls
from validator.flow.program.answers import Target
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import argument_of
from validator.flow.substitution import instantiated_causes
from validator.flow.values import Val
from validator.ir.model import Value

# Under what something is put: `("const", key)`; `("param", position)`: what is passed; `("keys", position)`: each of
# the keys of what is passed; `("new",)`: as one element more; `("unknown",)`.
Key = tuple[Any, ...]
NEW: Key = ("new",)
UNKNOWN_KEY: Key = ("unknown",)
Site = tuple[Unit, int]

_ADDING = frozenset({"append", "appendleft", "extend", "insert"})
_TAKING = frozenset({"pop", "popleft", "popitem", "clear", "remove", "discard", "intersection_update"})
_CONTAINERS = frozenset({"list", "set", "dict", "collections.OrderedDict", "collections.defaultdict"})
_DISPLAYS = frozenset({"list", "set", "dict"})
_JOINING = frozenset({"Add", "BitOr"})


class Change(NamedTuple):
    """One change of a container, or of the attribute that it is.

    `kind`: `put`, `read` (of an element, which a `defaultdict` then has), `take`, `store` (of an attribute).
    `guards`: by which causes each branch around it varies. `sites`: where, the outermost call first. `sure`: whether
    those calls run nothing else. `stored`: the path of what is stored; None where that is no other object of the unit.
    """

    kind: str
    path: Path
    key: Key
    guards: frozenset[Causes]
    sites: tuple[Site, ...]
    sure: bool = True
    stored: Path | None = None


class Changes:
    """The changes that the units of a program make to containers whose names are among some (the last attribute by
    which they are reached), and to what callers pass."""

    def __init__(self, flow: Flow, names: frozenset[str]) -> None:
        self.flow = flow
        self.names = names
        self._known: dict[Unit, tuple[Change, ...]] = {}

    def of(self, unit: Unit) -> tuple[Change, ...]:
        """The changes that a unit makes. One that calls itself again makes them in that call, too."""
        stack = [unit]
        begun: set[Unit] = set()
        while stack:
            each = stack[-1]
            if each in begun or each in self._known:
                stack.pop()
                if each not in self._known:
                    self._known[each] = _first_of_each(self._made(each))
                continue
            begun.add(each)
            called = (target.unit for _, site in self._calls(each) for target in site.targets)
            stack += [callee for callee in called if callee not in self._known and callee not in begun]
        return self._known[unit]

    def _made(self, unit: Unit) -> Iterator[Change]:
        for number, value in enumerate(unit.code.values):
            yield from self._own(unit, number, value)
        for number, site in self._calls(unit):
            for target in site.targets:
                yield from self._called(unit, number, target, len(site.targets) == 1 and not site.others)

    def _calls(self, unit: Unit) -> list[tuple[int, Calls]]:
        """The calls of a unit that run in its process, in their order."""
        rows = sorted(self.flow.result(unit).sites.items(), key=lambda row: row[0])
        return [(n, site) for n, site in rows if not site.away and unit.code.values[n].op == "call"]

    def guards(self, unit: Unit, number: int) -> frozenset[Causes]:
        """By which causes each of the branches of a unit around a value varies."""
        vals, blocks = self.flow.result(unit).vals, unit.code.blocks
        deciding = unit.control.deciding(unit.code.values[number].block)
        rows = (truth_of(vals[blocks[b].end[1]]) for b in deciding if not is_turn(unit, vals, b))
        return frozenset(causes for causes in rows if causes)

    # -- in the unit itself --------------------------------------------------------------------------------

    def _own(self, unit: Unit, number: int, value: Value) -> Iterator[Change]:
        kind, owner, keys = self._change(unit, number, value)
        path = path_of(unit, owner) if kind else None
        if path is None or not self._is_asked(unit, path):
            return
        stored = path_of(unit, value.args[1]) if kind == "store" else None
        if kind == "store":
            path = (*path, f".{value.data}")
        guards = self.guards(unit, number)
        for key in keys:
            yield Change(kind, path, key, guards, ((unit, number),), True, stored)

    def _is_asked(self, unit: Unit, path: Path) -> bool:
        """Whether a container may be one that is asked for: by its name, or passed, or made here."""
        last = path[-1]
        return not isinstance(last, str) or last[:1] != "." or last[1:] in self.names

    def _change(self, unit: Unit, number: int, value: Value) -> tuple[str, int, list[Key]]:
        """What an instruction does to which value, under which keys; an empty word where it does nothing of that."""
        joined = _joined(unit, number, value)
        if joined is not None:
            return "put", joined.args[0], [NEW] if joined.data == "Add" else list(_keys_of(unit, joined.args[1]))
        if value.op == "store_attr":
            return "store", value.args[0], [UNKNOWN_KEY]
        if value.op == "store_item" and unit.code.values[value.args[1]].op == "slice":
            return "take", value.args[0], [UNKNOWN_KEY]
        if value.op == "store_item":
            return "put", value.args[0], [key_of(unit, value.args[1])]
        if value.op == "item" and unit.code.values[value.args[1]].op != "slice" and not _is_of_itself(unit, value):
            return "read", value.args[0], [key_of(unit, value.args[1])]
        if value.op == "delete" and len(value.args) > 1:
            return "take", value.args[0], [UNKNOWN_KEY]
        callee = unit.code.values[value.args[0]] if value.op == "call" else None
        site = self.flow.result(unit).sites.get(number)
        if callee is not None and site is not None and site.operations and len(value.args) > 1:
            return "take", value.args[1], [UNKNOWN_KEY]  # what others bring may stand there then
        if callee is None or callee.op != "attr" or site is not None and site.targets:
            return "", -1, []
        name, owner, given = callee.data, callee.args[0], value.args[1:]
        if name in _TAKING:
            return "take", owner, [UNKNOWN_KEY]
        if name in _ADDING and given:
            return "put", owner, [NEW]
        if name in ("add", "setdefault") and given:
            return "put", owner, [key_of(unit, given[0])]
        if name == "update":
            return "put", owner, list(_updated(unit, value))
        return "", -1, []

    # -- in what it calls ----------------------------------------------------------------------------------

    def _called(self, unit: Unit, number: int, target: Target, alone: bool) -> Iterator[Change]:
        """The changes that a call makes, in terms of the caller."""
        around = None
        for change in self._known.get(target.unit, ()):
            path = seen_from(unit, number, target.unit, change.path)
            if path is None:
                continue
            around = self.guards(unit, number) if around is None else around
            given = (self._passed(causes, target) for causes in change.guards)
            stored = seen_from(unit, number, target.unit, change.stored) if change.stored else None
            guards = around | {causes for causes in given if causes}
            for key in _passed_keys(unit, number, target.unit, change.key):
                sites = ((unit, number), *change.sites)
                yield Change(change.kind, path, key, guards, sites, change.sure and alone, stored)

    def _passed(self, causes: Causes, target: Target) -> Causes:
        def argument(position: int) -> Val:
            given = target.argument(position)
            name = target.unit.code.params[position][0]
            return given if given is not None else self.flow.parameters.default(target.unit, name)

        return instantiated_causes(causes, argument)


def _first_of_each(changes: Iterable[Change]) -> tuple[Change, ...]:
    """The changes that a unit makes, one for each instruction that a call of it comes to: by which calls further in
    is told of one way, for there are too many."""
    found: dict[Change, Change] = {}
    for change in changes:
        found.setdefault(change._replace(sites=(change.sites[0], change.sites[-1])), change)
    return tuple(found.values())


# -- paths -------------------------------------------------------------------------------------------------


def path_of(unit: Unit, number: int) -> Path | None:
    """The path to a value of a unit from a parameter, or from a value that is made there; None of what is neither."""
    first, *rest = paths_of(unit).path(number)
    if not isinstance(first, int):
        return None
    root = _before(unit, first)
    value = unit.code.values[root]
    if value.op == "call" and unit.code.values[value.args[0]].data == "super":
        root = next((n for n, v in enumerate(unit.code.values) if v.op == "param" and v.data[0] == 0), root)
    return (root, *rest) if unit.code.values[root].op in ("param", "call", *_DISPLAYS) else None


def _before(unit: Unit, number: int) -> int:
    """The container that a variable holds, before more was put into it (`rows += more`) on some of the ways to it."""
    found, seen, stack = set(), set(), [number]
    while stack:
        root = unit.root(stack.pop())
        if root in seen:
            continue
        seen.add(root)
        value = unit.code.values[root]
        if value.op == "phi":
            stack += value.args
        elif value.op == "binary" and _joined(unit, root, value) is not None:
            stack.append(value.args[0])
        else:
            found.add(root)
    return found.pop() if len(found) == 1 else unit.root(number)


def _joined(unit: Unit, number: int, value: Value) -> Value | None:
    """The operation by which an instruction puts more into a variable, or an attribute: `rows += more`."""
    if value.op == "store_attr":
        made = unit.code.values[unit.root(value.args[1])]
        paths = paths_of(unit)
        same = made.op == "binary" and paths.path(made.args[0]) == (*paths.path(value.args[0]), f".{value.data}")
        return made if same and made.data in _JOINING else None
    name = unit.variables.get(number) if value.op == "binary" and value.data in _JOINING else None
    left = unit.code.values[value.args[0]] if name is not None else None
    if left is None:
        return None
    before = left.data if left.op == "phi" else unit.variables.get(unit.root(value.args[0]))
    return value if name == before else None


def seen_from(caller: Unit, call: int, callee: Unit, path: Path) -> Path | None:
    """A path of a function that is called as the caller sees it; None of what it cannot see."""
    first, *rest = path
    value = callee.code.values[first] if isinstance(first, int) else None
    if value is None or value.op != "param":
        returned = {callee.root(number) for number in callee.code.returned}
        return (call, *rest) if returned == {first} else None
    given = argument_of(caller, call, callee, value.data[0])
    outer = path_of(caller, given) if given is not None else None
    return (*outer, *rest) if outer is not None else None


def is_fresh(place: Place) -> bool:
    """Whether a value is a container that is made right there, or makes one for each object (`default_factory`)."""
    return place.value.op in _DISPLAYS or not _CONTAINERS.isdisjoint(_makers(place))


def is_list(made: Place) -> bool:
    """Whether a container that is made at a place has no keys."""
    return made.value.op == "list" or "list" in _makers(made)


def is_default(made: Place) -> bool:
    """Whether a container has what is asked for from then on: a `defaultdict`."""
    return "collections.defaultdict" in _makers(made)


def _makers(place: Place) -> set[str]:
    """The functions of libraries by one of which a value is made, or that it is."""
    made = place.operand(0) if place.value.op == "call" else place
    return {o[1] for o in made.val.each if o[0] == "ext"}


def first_keys(made: Place) -> list[Key]:
    """The keys of a container where it is made."""
    value = made.value
    if value.op == "dict":
        return list(_keys_of(made.unit, made.number))
    if value.op in _DISPLAYS:
        return [key_of(made.unit, number) for number in value.args]
    if value.op != "call":
        return []
    named: list[Key] = [("const", name) for name in value.data.names if name not in (None, "*", "**")]
    others = len(value.args) - 1 - len(named) - is_default(made)
    return [*named, UNKNOWN_KEY] if others > 0 else named


def made_for_field(owner: Place, name: str) -> Place | None:
    """What makes the field of a data class that the constructor of an object is not passed (`default_factory`)."""
    flow, call = owner.flow, owner.value
    classes = [o[1] for o in owner.closed.each if o[0] == "inst"]
    if call.op != "call" or len(classes) != 1 or not set(call.data.names).isdisjoint({None, "*", "**", name}):
        return None
    for body in filter(None, map(flow.body_of, classes[0].mro)):
        numbers = body.code.definitions.get(name, ())
        field = Place(flow, body, numbers[0]) if len(numbers) == 1 else None
        if field is not None:
            return field.argument("default_factory") if field.value.op == "call" else None
    return None


# -- keys --------------------------------------------------------------------------------------------------


def key_of(unit: Unit, number: int) -> Key:
    """The key that a value is."""
    value = unit.code.values[unit.root(number)]
    if value.op == "const":
        return ("const", value.data)
    if value.op == "param":
        return ("param", value.data[0])
    if value.op == "unpack" and value.data == (0, 2, -1):
        value = unit.code.values[unit.root(value.args[0])]
        return _each_key(unit, value, "items")
    return _each_key(unit, value, "keys")


def _each_key(unit: Unit, value: Value, method: str) -> Key:
    """The key that a round of a loop over a parameter brings."""
    if value.op != "next":
        return UNKNOWN_KEY
    gone = unit.code.values[unit.root(value.args[0])]
    through = unit.code.values[unit.root(gone.args[0])] if gone.op == "iter" else gone
    if through.op == "call" and len(through.args) == 1:
        callee = unit.code.values[through.args[0]]
        through = unit.code.values[unit.root(callee.args[0])] if callee.data == method else callee
    elif method == "items":
        return UNKNOWN_KEY
    return ("keys", through.data[0]) if through.op == "param" else UNKNOWN_KEY


def _is_of_itself(unit: Unit, item: Value) -> bool:
    """Whether an element is asked for by a key that a loop over the same container brings."""
    paths = paths_of(unit)
    owner, key = paths.path(item.args[0]), unit.root(item.args[1])
    return any(paths.place(each)[: len(owner)] == owner for each in (key, *unit.code.values[key].args[:1]))


def _updated(unit: Unit, call: Value) -> Iterator[Key]:
    """The keys that `update` puts into a dictionary."""
    for keyword, number in zip(call.data.names, call.args[1:], strict=True):
        if keyword in (None, "**"):
            yield from _keys_of(unit, number)
        else:
            yield ("const", keyword) if keyword != "*" else UNKNOWN_KEY


def _keys_of(unit: Unit, number: int) -> Iterator[Key]:
    """The keys of a dictionary."""
    value = unit.code.values[unit.root(number)]
    if value.op == "param":
        yield ("keys", value.data[0])
    elif value.op != "dict":
        yield UNKNOWN_KEY
    else:
        for key, held in zip(value.args[::2], value.args[1::2], strict=True):
            if key < 0:
                yield from _keys_of(unit, held)
            else:
                yield key_of(unit, key)


def _passed_keys(caller: Unit, call: int, callee: Unit, key: Key) -> Iterable[Key]:
    """The keys that a key of a function stands for where it is called."""
    if key[0] not in ("param", "keys"):
        return (key,)
    name, kind = callee.code.params[key[1]]
    if key[0] == "keys" and kind == "**":
        return tuple(_spread(caller, caller.code.values[call], {each for each, _ in callee.code.params} - {name}))
    given = argument_of(caller, call, callee, key[1])
    if given is None or kind in ("*", "**"):
        return (UNKNOWN_KEY,)
    return (key_of(caller, given),) if key[0] == "param" else tuple(_keys_of(caller, given))


def _spread(caller: Unit, call: Value, named: set[str]) -> Iterator[Key]:
    """The keywords of a call that no parameter takes."""
    for keyword, number in zip(call.data.names, call.args[1:], strict=True):
        if keyword == "**":
            yield from _keys_of(caller, number)
        elif keyword not in (None, "*", "@", *named):
            yield ("const", keyword)

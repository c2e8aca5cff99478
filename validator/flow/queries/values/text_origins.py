"""Where a text comes from: back through variables, attributes, what callers pass, to what names it.

Followed back are values as they are, and in another case (`name.lower()`). What conditions on the way say about the
value is kept: behind `if name != "none":` it is not "none". What one object keeps is not what was given to another one,
although both have it from the same base; what a function gives back of its arguments to one call is what that call
passes, not what others do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from validator.definitions import ClassDef
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.origins import sources, stores
from validator.flow.queries.pure_functions import computed
from validator.flow.values import Val

_FOLDING = frozenset({"lower", "upper", "casefold", "title", "capitalize"})
_SAME = frozenset({"strip", "str"})
_COMPARING = frozenset({"Eq", "NotEq", "Is", "IsNot"})
_REPLACED = frozenset({"phi", "attr", "name"})
Classes = frozenset[ClassDef] | None  # those that an object may be of; None: any
Entered = tuple[tuple[Place, Classes], ...]
_COMPUTED = frozenset({"binary", "unary", "next", "unpack"})  # what is computed with such a value says nothing of texts


class Origin(NamedTuple):
    """A value that another one was before, where it is not known what it was before that.

    `said`: texts that conditions on the way name, and that the value may not be behind them. `folded`: its case does
    not matter. `conditional`: whether something else decides on the way. `kept`: the attributes that held it, and the
    functions that gave it back. `typed`: whether something on the way makes a text of it, or asks for something else
    than texts (`isinstance(name, int)`). `call`: the one that passes it on first, if any does.
    """

    place: Place
    said: frozenset[str] = frozenset()
    folded: bool = False
    conditional: bool = False
    kept: frozenset[str] = frozenset()
    typed: bool = False
    call: Place | None = None


def text_origins(place: Place, is_origin: Callable[[Place], bool], user: Place | None = None) -> Iterator[Origin]:
    """The origins of a value; of one that a place uses those are left out that a condition on the way tests for
    something else than what text it is, and what a call passes that may be meant for another function. `is_origin`
    says of a value that it need not be followed further."""
    queue = [_Way(Origin(place), tuple(user.tests_inside) if user is not None else ())]
    seen: set[tuple[Unit, int, Classes, Entered]] = set()
    for each in queue:
        here = each.origin.place.root
        if (here.unit, here.number, each.classes, each.entered) in seen:
            continue
        seen.add((here.unit, here.number, each.classes, each.entered))
        way = each.at(here)
        if way is None:
            continue
        steps = None if here.value.op == "const" or is_origin(here) else list(_before(here, way))
        if (
            steps
            and user is not None
            and here.value.op in _REPLACED
            and any(_is_looked_up(step.source) for step in steps)
        ):
            continue  # on some way it is replaced by what stands for it: `name = ALIASES[name]`
        if not steps:
            yield way.origin._replace(conditional=way.origin.conditional or bool(way.tests))
        for step in steps or ():
            if user is None:
                classes, entered = way.behind(step)
                found = way.origin._replace(place=step.source)
                queue.append(way._replace(origin=found, classes=classes, entered=entered))
            elif step.alone:
                queue.append(way.before(step))


class _Way(NamedTuple):
    """A value on the way back, and the conditions of its unit that have not asked for anything on the way yet.

    `classes`: those of the object in whose method the value is, where an attribute of it was on the way. `entered`: the
    calls whose results led into the function where the value is, the innermost last, with the classes around each.
    """

    origin: Origin
    tests: tuple[Place, ...]
    classes: Classes = None
    entered: Entered = ()

    def at(self, here: Place) -> _Way | None:
        """The way at a value, with what conditions say about it; None where they ask something else of it."""
        said, left, key = self.origin.said, [], here.key if self.tests else ()
        typed = self.origin.typed or _is_call(here, _FOLDING | _SAME)
        for test in self.tests:
            parts = list(test.parts)
            if not any(part.root.key == key for part in parts if part.value.op != "const"):
                left.append(test)
            elif all(_is_plain(part) for part in parts):
                constants = [part.value.data for part in parts if part.value.op == "const"]
                said |= {text for text in constants if isinstance(text, str)}
                typed |= not all(isinstance(each, str) for each in constants)
                typed |= any(part.value.op == "call" for part in parts)
            elif here.value.op in _COMPUTED:
                left.append(test)
            else:
                return None
        folded = self.origin.folded or _is_call(here, _FOLDING)
        return self._replace(
            origin=self.origin._replace(place=here, said=said, folded=folded, typed=typed), tests=tuple(left)
        )

    def behind(self, step: _Step) -> tuple[Classes, Entered]:
        """The classes and the calls around a value one step before."""
        if step.inside:
            return self.classes, self.entered
        if step.enters is not None:
            again = any(call == step.enters for call, _ in self.entered)  # a function that calls itself
            return step.classes, () if again else (*self.entered, (step.enters, self.classes))
        return step.classes, self.entered[:-1] if step.leaves else ()

    def before(self, step: _Step) -> _Way:
        if step.inside:
            return self._replace(origin=self.origin._replace(place=step.source), tests=(*self.tests, *step.tests))
        conditional = self.origin.conditional or bool(self.tests)
        kept = self.origin.kept | ({step.attribute} if step.attribute else frozenset())
        call = step.call or self.origin.call
        found = self.origin._replace(place=step.source, conditional=conditional, kept=kept, call=call)
        return _Way(found, tuple(step.tests), *self.behind(step))


def _is_looked_up(place: Place) -> bool:
    """Whether a value is taken out of something, or given by what nobody knows."""
    root = place.root
    if root.value.op == "call" and not _is_call(root, _FOLDING | _SAME):
        return computed(root.flow, root.unit, root.number) is None
    return root.value.op in ("item", "unpack", "next")


def _is_plain(part: Place) -> bool:
    """Whether a part of a condition only compares with what is written there, or names what is compared."""
    value = part.value
    if value.op == "compare" and value.data in ("In", "NotIn"):
        return part.operand(1).root.value.op in ("tuple", "list", "set", "const")
    if value.op == "compare":
        return value.data in _COMPARING
    if value.op == "call":
        return _is_call(part, _FOLDING | _SAME | {"isinstance"})
    return value.op not in ("next", "item", "collect")


def _is_call(place: Place, names: frozenset[str]) -> bool:
    return place.value.op == "call" and place.method in names


class _Step(NamedTuple):
    """What a value was one step before, and the conditions between.

    `inside`: in the same function, before the same conditions. `alone`: it was meant for nothing else. `attribute`: the
    one that held it, or the function that gave it back. `call`: the one that passes it. `classes`: those of the object
    in whose method the source is. `enters`: the call whose result it is; `leaves`: back to the call that was entered.
    """

    source: Place
    tests: Sequence[Place] = ()
    inside: bool = False
    alone: bool = True
    attribute: str = ""
    call: Place | None = None
    classes: Classes = None
    enters: Place | None = None
    leaves: bool = False


def _before(place: Place, way: _Way) -> Iterator[_Step]:
    """What a value on the way was one step before; nothing where that is not known."""
    unit, value = place.unit, place.value
    if value.op == "phi":
        yield from _ways(place)
    elif _is_call(place, _FOLDING | _SAME):
        source = place.receiver if place.method != "str" else place.argument("object", 0)
        yield from [_Step(source, inside=True)] if source is not None else ()
    elif value.op == "attr" and value.data == "value":  # of a member of an enumeration
        yield _Step(place.operand(0), inside=True)
    elif value.op == "attr":
        for store in stores(place):
            meeting = _meeting(store, place, way.classes)
            if store.unit.is_receiver(store.value.args[0]) and (meeting is None or meeting):
                yield _Step(store.operand(1), store.tests_inside, attribute=str(value.data), classes=meeting)
    elif value.op == "param" and not unit.is_receiver(place.number):
        yield from _given(place, way)
    elif value.op == "call":
        name = place.method
        yield from (_Step(each, each.tests_inside, attribute=name, enters=place) for each in sources(place) or ())
    elif value.op in ("free", "name"):
        yield from map(_Step, sources(place) or ())


def _meeting(store: Place, read: Place, classes: Classes) -> Classes:
    """The classes of the objects that run both the method that stores an attribute of its own object and the one that
    reads it; None where that is not known. A class whose constructor does not call the one above has nothing of it."""
    reader, writer = read.unit.method, store.unit.method
    if writer is None:
        return None
    if reader is None or reader.cls is None or not read.unit.is_receiver(read.value.args[0]):
        held = _classes(read.operand(0).closed)
        return frozenset(cls for cls in held if cls.runs(writer)) if held is not None else None
    return frozenset(
        cls for cls in (reader.cls.relatives if classes is None else classes) if cls.runs(reader) and cls.runs(writer)
    )


def _classes(held: Val | None) -> Classes:
    """The classes of which an object may be; None where it may be something else."""
    if held is None or not held.each or any(o[0] not in ("inst", "self") for o in held.each):
        return None
    return frozenset(o[1] for o in held.each).union(*(o[1].descendants() for o in held.each if o[0] == "self"))


def _is_on_itself(call: Place) -> bool:
    """Whether one method of an object calls another one of the same: `self.set(x)`, `super().__init__(x)`."""
    receiver = call.receiver.root if call.value.op == "call" and call.receiver is not None else None
    if receiver is None:
        return False
    return call.unit.is_receiver(receiver.number) or receiver.value.op == "call" and receiver.method == "super"


def _ways(place: Place) -> Iterator[_Step]:
    """What comes on each way to a place where several meet, with the conditions that are on that way alone."""
    unit, blocks = place.unit, place.unit.code.blocks
    common = unit.control.deciding(place.value.block)
    for (pred, _), number in zip(blocks[place.value.block].preds, place.value.args, strict=False):
        end = blocks[pred].end
        branches = sorted((unit.control.deciding(pred) | ({pred} if end[0] == "branch" else set())) - common)
        yield _Step(place.value_at(number), [place.value_at(blocks[branch].end[1]) for branch in branches], True)


def _given(place: Place, way: _Way) -> Iterator[_Step]:
    """What a parameter is given: by the call whose result led here, else by all calls that may meet the classes."""
    flow, unit, position = place.flow, place.unit, place.value.data[0]
    if way.entered:
        call, classes = way.entered[-1]
        step = _passed(call, unit, position)
        yield from [step._replace(classes=classes, leaves=True)] if step is not None else ()
        return
    for caller in flow.callers(unit):
        for row in flow.result(caller).passed.get(unit, ()):
            call = Place(flow, caller, row.site)
            made = _classes(row.argument(0)) if way.classes is not None else None
            left = way.classes & made if way.classes is not None and made is not None else way.classes
            step = _passed(call, unit, position) if left is None or left else None
            if step is not None:
                yield step._replace(classes=left if step.call is not None and _is_on_itself(call) else None)


def _passed(call: Place, unit: Unit, position: int) -> _Step | None:
    """What a call of a function passes for a parameter, or its default; None where that is not known."""
    number = argument_of(call.unit, call.number, unit, position)
    site = call.result.sites.get(call.number)
    alone = site is None or all(target.unit is unit for target in site.targets)
    if number is not None:
        return _Step(call.value_at(number), call.tests_inside, alone=alone, call=call)
    default = unit.code.defaults.get(unit.code.params[position][0])
    if default is not None and unit.outer is not None and not _is_spread(call):
        return _Step(Place(call.flow, unit.outer, default), call.tests_inside, alone=alone)
    return None


def _is_spread(call: Place) -> bool:
    return call.value.op != "call" or any(name in ("*", "**") for name in call.value.data.names)

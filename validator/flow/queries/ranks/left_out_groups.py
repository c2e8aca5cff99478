"""Collectives on all ranks in functions that work in a group: one that they are given, or that their others take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import LOCAL, NODE, UNKNOWN, WHOLE, WORLD
from validator.flow.calls.groups import axes_in
from validator.flow.control import comes_after
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import Index
from validator.flow.queries.values.sums import is_sum
from validator.ir.model import Value

_WORDS = frozenset({"group", "pg", "mesh"})  # the last word of what a process group or a mesh is called
_TYPES = ("ProcessGroup", "DeviceMesh")
_AXES = frozenset({WORLD, UNKNOWN, NODE, LOCAL})
_WAYS = ("forward", "backward")
_FUNCTIONS = ("torch.autograd.Function", "torch.autograd.function.Function")


class LeftOut(NamedTuple):
    """A collective on all ranks (`call`), and the group in which it should work: `taken` there, by `why`."""

    call: Place
    group: str
    taken: Place
    why: str


def left_out(queries: Queries, names: tuple[str, ...]) -> Iterator[LeftOut]:
    """The collectives of some names that leave the group out."""
    index = Index(queries.flow)
    moving: dict[Unit, list[Place]] = {}
    for call in queries.collectives():
        if call.operations[0].row.reads is None and call.method not in names:
            continue  # meeting, or loading what all ranks have
        if call.unit.code.kind == "function":
            moving.setdefault(call.unit, []).append(call)
    for unit, calls in moving.items():
        without = [call for call in calls if _leaves_out(call)]
        if not without:
            continue
        summing = (call for call in without if not _reduces(call, "MAX", "MIN"))  # which agree on what suits all
        unused = (each for call in summing if (each := _unused(index, unit, call)) is not None)
        found = next(unused, None) if not _counts_all(without[0]) else None
        found = found or _beside(without, [call for call in calls if call not in without]) or _twin(moving, without)
        if found is not None:
            yield found


def _counts_all(call: Place) -> bool:
    """Whether a collective has a part for each rank, and its function reckons with the number of all."""
    row = call.operations[0].row
    if row.each is None and row.into is None and row.times is None:
        return False
    values = enumerate(call.unit.code.values)
    sizes = (call._replace(number=n).closed for n, v in values if v.op in ("param", "call", "attr"))
    return any(size.objs and all(o[0] == "size" and axes_in(o[1]) == WHOLE for o in size.each) for size in sizes)


def _leaves_out(call: Place) -> bool:
    """Whether a collective surely is one on all ranks, for want of a group."""
    rows = [operation.row for operation in call.operations]
    if len(rows) != 1 or rows[0].group is None or not call.operations[0].sure or call.group != frozenset({WORLD}):
        return False
    return call.argument(*rows[0].group) is None and not {"*", "**"} & set(call.value.data.names)


def _group(call: Place) -> Place | None:
    row = call.operations[0].row
    return call.argument(*row.group) if row.group is not None else None


def _is_group(place: Place, annotation: str = "") -> bool:
    """Whether a value is a process group or a mesh; where nothing is known of it, by its type or name."""
    known = place.likely
    if known.of("group") or known.of("mesh"):
        return True
    if any(name in annotation for name in _TYPES):
        return True
    told = [o for o in known.each if o[0] not in ("const", "top", "param", "made")]
    name = place.unit.variables.get(place.number, "") if place.value.op != "param" else place.hint
    return not told and name.lower().split("_")[-1] in _WORDS


def _unused(index: Index, unit: Unit, call: Place) -> LeftOut | None:
    """A group that a function is given, or asks for, and does nothing with."""
    method = unit.method
    annotations = {p.name: p.annotation for p in method.facts.params} if method is not None else {}
    for number, value in enumerate(unit.code.values):
        place = call._replace(number=number)
        of_parameter = value.op == "param" and not unit.is_receiver(number)
        if not of_parameter and (value.op not in ("call", "item", "attr") or number not in unit.variables):
            continue
        if _is_used(place) or _is_read_inside(index, unit, number):
            continue
        if not comes_after(unit.code, call.value, call.number, value, number) and not of_parameter:
            continue
        if _is_group(place, annotations.get(place.hint, "") if of_parameter else ""):
            return LeftOut(call, unit.variables.get(number, place.hint), place, "unused")
    return None


def _is_used(place: Place) -> bool:
    """Whether something is done with a group, at once or behind a branch, but that its size is asked for."""
    seen, queue = {place.number}, [place]
    for each in queue:
        if each.number in each.unit.code.returned:
            return True
        for user in each.users:
            op, args = user.value.op, user.value.args
            if op == "mut" and not _is_size(user._replace(number=args[1])) or op == "call" and not _is_size(user):
                return True
            if op == "attr" and not all(_is_size(call) for call in user.users):
                return True
            if op not in ("mut", "call", "attr", "phi") and not _keeps(each.unit, user.value):
                return True
            if op in ("mut", "phi") and user.number not in seen:
                seen.add(user.number)
                queue.append(user)
    return any(block.end[0] == "branch" and block.end[1] in seen for block in place.unit.code.blocks)


def _is_size(call: Place) -> bool:
    """Whether a call asks for the size of a group."""
    known = call.val
    return call.value.op in ("call", "mut") and bool(known.of("size")) and len(known.objs) == 1


def _keeps(unit: Unit, value: Value) -> bool:
    """Whether a value is only kept for the `backward` of a `forward`."""
    return value.op == "store_attr" and _is_autograd(unit) and unit.code.values[value.args[0]].op in ("param", "mut")


def _is_read_inside(index: Index, unit: Unit, number: int) -> bool:
    """Whether a variable is read by a function inside."""
    return any(number in numbers and index.free(unit, name) for name, numbers in unit.code.definitions.items())


def _beside(without: list[Place], others: list[Place]) -> LeftOut | None:
    """The one collective of a function that leaves out the group in which all others work that it goes with."""
    groups = [group for call in others if (group := _group(call)) is not None]
    if len(without) != 1 or not groups or len(groups) != len(others):
        return None
    call, (first, *_) = without[0], groups
    given = first.root.value.op == "param" or _is_autograd(call.unit)
    if not all(_is_same(group, first) for group in groups) or len(groups) < (1 if given else 2):
        return None
    if first.root.value.op != "param" and (not first.spanned[0] or first.spanned[0] & _AXES):
        return None
    tensor = _tensor(call)
    if tensor is None or any(other is None or other.root == tensor.root for other in map(_tensor, others)):
        return None
    if _asks(call, first) or _reduces(call, "AVG"):
        return None
    if not _goes_with(call, others, given) and not (given and any(_is_alike(call, other) for other in others)):
        return None
    return LeftOut(call, first.text, others[0], "others")


def _is_same(a: Place, b: Place) -> bool:
    if a.key == b.key or bool(a.closed.of("group")) and a.closed.objs == b.closed.objs:
        return True
    one, other = a.root, b.root  # two calls of one function without arguments, of which nothing else is known
    plain = one.value.op == other.value.op == "call" and len(one.value.args) == len(other.value.args) == 1
    return plain and one.operand(0).key == other.operand(0).key


def _tensor(call: Place) -> Place | None:
    """What a collective moves."""
    row = call.operations[0].row
    which = row.reads or row.equal or row.alike
    return call.argument(*which) if which is not None else None


def _asks(call: Place, group: Place) -> bool:
    """Whether a condition around a collective is about the group."""
    root = group.root.number
    return any(part.root.number == root for test in call.tests_inside for part in test.parts)


def _goes_with(call: Place, others: list[Place], given: bool) -> bool:
    """Whether a collective does the same to values that are computed from what the others give, or they from it. What
    comes last may be the result, of which all ranks want the sum, but where the group is given."""
    before = any(_leads(other, call, given) for other in others)
    behind = any(_leads(call, other, given) for other in others)
    return behind or before and given


def _is_alike(call: Place, other: Place) -> bool:
    """Whether two collectives stand under the same conditions and do the same to numbers that are made of the same
    data: of one element of a loop, or of what the function is given."""
    deciding = call.unit.control.deciding
    if call.method != other.method or deciding(call.value.block) != deciding(other.value.block):
        return False
    row = call.operations[0].row
    ways = [each.argument(*row.operation) for each in (call, other)] if row.operation is not None else []
    if not all(map(is_sum, ways)) and len({way.closed.objs if way is not None else None for way in ways}) > 1:
        return False
    one, another = _tensor(call), _tensor(other)
    shared = set(_data(one)) & set(_data(another)) if one is not None and another is not None else set()
    return bool(shared)


def _data(tensor: Place) -> Iterator[int]:
    """The elements of loops, else the parameters, of which a number is made, without what is read of an object: devices
    and settings are no data."""
    queue, seen = [tensor.root.number], {tensor.root.number}
    for number in queue:
        place = tensor.value_at(number)
        value = place.value
        if value.op == "next" or value.op == "param" and not place.unit.is_receiver(number):
            yield number
        elif value.op != "attr" or place.is_called:
            args = value.args[:1] if value.op == "mut" else value.args
            fresh = [each for each in args if each >= 0 and each not in seen]
            seen.update(fresh)
            queue += fresh


def _leads(early: Place, late: Place, given: bool) -> bool:
    tensor = _tensor(late)
    if early.method != late.method and not given or tensor is None:
        return False
    after = comes_after(late.unit.code, late.value, late.number, early.value, early.number)
    return after and any(part.number == early.number for part in tensor.sources)


def _reduces(call: Place, *how: str) -> bool:
    """Whether a collective reduces so. What is averaged over all ranks is a result that is shown."""
    row = call.operations[0].row
    given = call.argument(*row.operation) if row.operation is not None else None
    return given is not None and given.root.value.op == "attr" and given.root.value.data in how


def _twin(moving: dict[Unit, list[Place]], without: list[Place]) -> LeftOut | None:
    """The backward of a forward, in one class, where the other of both works in a group."""
    call = without[0]
    unit = call.unit
    if unit.cls is None or unit.name not in _WAYS or not _is_autograd(unit):
        return None
    other = next((each for each in moving if each.cls is unit.cls and each is not unit and each.name in _WAYS), None)
    calls = moving[other] if other is not None else []
    groups = [(each, group) for each in calls if (group := _group(each)) is not None and not group.val.is_const(None)]
    if not groups or len(groups) != len(calls):
        return None
    return LeftOut(call, groups[0][1].text, groups[0][0], "twin")


def _is_autograd(unit: Unit) -> bool:
    return unit.cls is not None and any(base in _FUNCTIONS for base in unit.cls.external_bases)

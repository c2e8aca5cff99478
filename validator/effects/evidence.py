"""On what evidence a branch is said to tell ranks apart: whether its condition itself asks who the process is, or what
the process holds.

That a value differs between ranks is a fact about all that may reach it: what other calls, other objects and other ways
bring is joined. Where the condition asks for the rank, or is decided by a test of the rank in the same function, that
fact is about this very branch. Elsewhere one of the ways that were joined may be the reason, and not be taken here.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import ClassDef
from validator.domains.spmd import NONE, Causes, only, unsure
from validator.flow.control import reachable
from validator.flow.foreign import is_unknown
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.ranks.random_draws import drawn_apart, draws, rows_of
from validator.flow.values import BOTTOM, Obj, Val

_LEAVES = frozenset({"param", "attr", "name", "free", "next", "call"})  # what brings a value into a test
_OF_RANKS = ("rank", "member", "data", "failure")
_PARTS = frozenset({
    "phi", "unary", "binary", "compare", "tuple", "list", "slice", "item", "unpack", "iter", "more", "next", "mut",
    "collect", "join", "call",
})  # fmt: skip


def asks_for_rank(place: Place) -> bool:
    """Whether the rank that runs this decides a value by what is written here, in helpers and in what attributes are
    made of: no argument of a call of the project, no result of a collective and no comparison that comes out alike on
    all ranks (`rank != -1`) counts."""
    seen: set[tuple[Unit, int]] = set()
    stack = [place]
    while stack:
        each = stack.pop()
        if (each.unit, each.number) in seen:
            continue
        seen.add((each.unit, each.number))
        if each.val.of("ordinal") or each.val.of("environment") or _is_named(each):
            return True
        if not each.operations and (each.value.op != "compare" or only(each.likely.v, *_OF_RANKS)):
            stack += _made_of(each)
    return False


def comes_where_it_lacks(flow: Flow, unit: Unit, block: int) -> bool:
    """Whether a branch on who the process is stands where something is absent that only some ranks have: these come
    there only if they, too, have not made it, and whether a job of several ranks knows such a case is not written."""
    for branch, way in unit.control.settled(block):
        kind, test, *ways = unit.code.blocks[branch].end
        place, holds = Place(flow, unit, test).asserted(way == ways[0]) if kind == "branch" else (None, False)
        if place is not None and place.is_none(holds) and only(place.operand(0).closed.p, "rank", "member"):
            return True
    return False


def reads_data(place: Place) -> bool:
    """Whether a condition asks for a number that is made, in the same function, of what tensors of this rank hold (a
    sum, a count, an element), for elements of this rank's share of something, or, in what it calls too, for what a
    library gives to each process. That something is there at all, or of which kind it is, mostly is the batch's or the
    job's; what a function of the project likely gives to each, it may make alike."""
    table = place.flow.models.tensors
    numbers = frozenset({*table["reducing"], *table["counting"], *table["testing"], "item", "tolist"})
    seen: set[Place] = set()
    stack = [place]
    while stack:
        each = stack.pop().root
        if each in seen or each.operations:
            continue
        seen.add(each)
        value = each.value
        if only(each.closed.n, "share"):
            return True
        if value.op == "call" and only(each.closed.v, "data"):
            if (each.method in numbers or _brings_own(each)) if each.unit is place.unit else _is_of_process(each):
                return True
            stack += _given_back(each)
        if value.op in _PARTS:
            stack += [each.value_at(number) for number in value.args if number >= 0]
            if value.op == "call" and (receiver := each.receiver) is not None:
                stack.append(receiver)
    return False


def _brings_own(call: Place) -> bool:
    """Whether a call brings what differs itself: a clock, a drawing, the files of a folder."""
    given = (call.value_at(number).closed.v for number in call.value.args)
    site = call.result.sites.get(call.number)
    known = site is None or not site.targets or any(c.sure for c in call.closed.v if c.kind == "data")
    return known and not any(only(v, "data", "param") for v in given)


def _is_of_process(call: Place) -> bool:
    """Whether a library gives a call what each process has for itself: its clock, a random number."""
    return any(row is not None and row.result in ("own", "drawn") for _, row in rows_of(call))


def _given_back(call: Place) -> list[Place]:
    """What the one function of the project that is called gives back: it may ask the clock."""
    site = call.result.sites.get(call.number)
    if site is None or len(site.targets) != 1 or site.others:
        return []
    unit = site.targets[0].unit
    return [Place(call.flow, unit, number) for number in unit.code.returned]


def is_drawn_alike(test: Place) -> bool:
    """Whether a test differs between ranks, as far as is known, by numbers alone that a library draws, and the seeds in
    force where it draws them are the same on all ranks."""
    drawn = [part for part in test.parts if part.value.op == "call" and draws(part)]
    within = {part for draw in drawn for part in draw.parts}
    others = (part for part in test.parts if part.value.op in _LEAVES and part not in within)
    alike = bool(drawn) and not any(drawn_apart(draw) for draw in drawn)
    return alike and not any(part.varies(*_OF_RANKS) for part in others)


def likely_told(test: Place) -> Causes:
    """By what a test likely tells ranks apart that asks an unknown object for an attribute: by what that varies in the
    one family of classes which has it."""
    flow = test.flow
    found: Causes = NONE
    for part in test.parts:
        if part.value.op != "attr" or not is_unknown(part.closed):
            continue
        cls = flow.guessed.holder(str(part.value.data))
        if cls is not None:
            found |= unsure(only(_held(flow, cls, str(part.value.data)).v, "rank", "member"))
    return found


def _held(flow: Flow, cls: ClassDef, name: str) -> Val:
    """What the objects of a class have under a name: in a field, or as a property gives it."""
    method = cls.find(name)
    unit = flow.unit_of(method) if method is not None and method.facts.is_property else None
    if unit is not None:
        return flow.close(flow.result(unit).returned, unit)
    settled: Val = flow.solver.settled(("field", cls, name, False)) if method is None else BOTTOM
    return settled


def _is_named(place: Place) -> bool:
    """Whether a table knows a value by its name as one that tells the rank."""
    value, ranks = place.value, place.flow.models.ranks
    if value.op == "call":
        return place.method in ranks["methods"] | ranks["stages"]
    names = ranks["names"] | ranks["attributes"]
    if value.op == "attr" and any(_tells(place, str(o[1])) for o in place.operand(0).val.of("made")):
        return True
    return value.op in ("attr", "param", "free", "name") and place.hint in names


def _tells(place: Place, library: str) -> bool:
    """Whether the tables say of an attribute of a library's objects that it tells the rank."""
    word = place.flow.models.attribute(library, str(place.value.data))
    return isinstance(word, str) and word.partition(":")[0] in ("rank", "number")


def _made_of(place: Place) -> Iterator[Place]:
    """The values of which a value is made, and the conditions that choose between them."""
    flow, unit, value = place.flow, place.unit, place.value
    if value.op == "attr":
        yield from _stored(flow, unit, place.number, str(value.data))
    elif value.op in ("name", "import"):
        yield from _of_module(flow, unit, value.data)
    elif value.op == "free":
        outer = unit.above(value.data[0])
        numbers = outer.code.definitions.get(value.data[1], ()) if outer is not None else ()
        yield from (Place(flow, outer, number) for number in numbers if outer is not None)
    if value.op == "phi":
        for branch in _choosing(unit, value.block):
            yield Place(flow, unit, unit.code.blocks[branch].end[1])
    targets = place.result.sites[place.number].targets if place.number in place.result.sites else ()
    for target in targets:
        yield from (Place(flow, target.unit, number) for number in target.unit.code.returned if number >= 0)
        for block in target.unit.code.in_order():
            if target.unit.code.blocks[block].end[0] == "return":
                ends = (target.unit.code.blocks[b].end[1] for b in target.unit.control.deciding(block))
                yield from (Place(flow, target.unit, number) for number in ends)
    if value.op in _PARTS and not targets:
        yield from (place.value_at(number) for number in value.args if number >= 0)
        if value.op == "call" and (receiver := place.receiver) is not None:
            yield receiver


def _choosing(unit: Unit, block: int) -> frozenset[int]:
    """The branches that decide from where a block is entered."""
    control = unit.control
    found: set[int] = set()
    for pred, raised in unit.code.blocks[block].preds:
        if not raised:
            end = unit.code.blocks[pred].end
            found |= {pred} if end[0] == "branch" else set()
            found |= set(control.deciding(pred))
    return frozenset(found - set(control.deciding(block)))


def _stored(flow: Flow, unit: Unit, number: int, name: str) -> Iterator[Place]:
    """What is stored in an attribute, under which conditions, by functions that see objects of the same class, or the
    same namespace."""
    owner = flow.result(unit).vals[unit.code.values[number].args[0]]
    classes = {o[1] for o in owner.each if o[0] in ("self", "inst")}
    family = {each for cls in classes for each in (*cls.mro, *cls.descendants())}
    holders = _holders(flow, unit, owner) if not family else frozenset()
    block = unit.code.values[number].block
    for method in flow.stores.writers(name):
        writer = flow.unit_of(method)
        if writer is None or writer.cls not in family and not holders:
            continue
        for value in writer.code.values:
            if value.op == "store_attr" and value.data == name:
                held = flow.result(writer).vals[value.args[0]]
                if writer.cls not in family and holders.isdisjoint(_holders(flow, writer, held)):
                    continue
                if holders and writer is unit and block not in reachable(unit.code, start=value.block):
                    continue  # it comes later
                yield Place(flow, writer, value.args[1])
                if holders:
                    continue  # what stores under a test may be another program's, or come later
                ends = (writer.code.blocks[branch].end[1] for branch in writer.control.deciding(value.block))
                yield from (Place(flow, writer, end) for end in ends)


def _holders(flow: Flow, unit: Unit, owner: Val) -> frozenset[Obj]:
    """The namespaces that a value may be."""
    return frozenset(o for o in flow.close(owner, unit).each if o[0] == "made" and len(o) > 2)


def _of_module(flow: Flow, unit: Unit, name: object) -> Iterator[Place]:
    """What functions of the same file store in a variable of the module, and under which conditions."""
    for writer in flow.whole_units(unit.module):
        for value in writer.code.values:
            if value.op == "store_global" and value.data == name:
                yield Place(flow, writer, value.args[0])
                ends = (writer.code.blocks[branch].end[1] for branch in writer.control.deciding(value.block))
                yield from (Place(flow, writer, end) for end in ends)

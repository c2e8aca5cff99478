"""What a value was before: through variables, attributes, results and what callers pass, to the calls that made it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from validator.definitions import Value as Variable
from validator.flow.callgraph.spelled_arguments import origins
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import argument_of


def makers(place: Place) -> list[Place] | None:
    """The constructor calls of which a value may be the object; None where it may come from elsewhere. None itself is
    left out: nothing can be asked of it."""
    return calls_behind(place, lambda call: any(o[0] == "class" for o in call.operand(0).closed.each))


def calls_behind(place: Place, ends: Callable[[Place], bool]) -> list[Place] | None:
    """The calls of one kind of which a value may be the result; None where it may come from elsewhere."""
    return values_behind(place, lambda each: each.value.op == "call" and ends(each))


def values_behind(
    place: Place, ends: Callable[[Place], bool], step: Callable[[Place], list[Place] | None] | None = None
) -> list[Place] | None:
    """The values of one kind that a value may be, by what each was one step before; None where it may come from
    elsewhere."""
    found: dict[Place, None] = {}
    seen, queue = {(place.unit, place.root.number)}, [place.root]
    for each in queue:
        if ends(each):
            found[each] = None
            continue
        before = (step or sources)(each)
        if before is None:
            return None
        fresh = [root for source in before if ((root := source.root).unit, root.number) not in seen]
        seen.update((source.unit, source.number) for source in fresh)
        queue += fresh
    return list(found)


def trail(place: Place, through: frozenset[str]) -> list[Place]:
    """A value and all that it may have been before, as far as that is known; also before calls of functions of
    libraries that give their first argument back in another form, and of what nobody knows (`model = prepare(model)`)
    where the variable stays the same."""
    found = [place.root]
    for each in found:
        before = sources(each) or _under_same_name(each)
        if each.value.op == "call" and len(each.value.args) > 1:
            callee = each.operand(0).val.each
            before += [each.operand(1)] if any(o[0] == "ext" and o[1] in through for o in callee) else []
        found += [root for source in before if (root := source.root) not in found]
    return found


def _under_same_name(place: Place) -> list[Place]:
    """The arguments of a call whose result, or a part of it, is given to the variable that held them, or the object
    on which it was made (`data = data.map(f)`)."""
    variables, call = place.unit.variables, place.operand(0).root if place.value.op == "unpack" else place
    name = variables.get(place.number)
    owner = (call.receiver.number,) if call.value.op == "call" and call.receiver is not None else ()
    given = (*owner, *call.value.args[1:]) if call.value.op == "call" and name is not None else ()
    return [place.value_at(number) for number in given if variables.get(place.unit.root(number)) == name]


def sources(place: Place) -> list[Place] | None:
    """The values, one step before, that a value may be; None where they are not all known."""
    unit, value = place.unit, place.value
    if value.op == "phi":
        return [place.value_at(number) for number in origins(unit, place.number)]
    if value.op == "const":
        return [] if value.data is None else None
    if value.op == "call":
        return returned(place)
    if value.op == "attr":
        return [each.operand(1) for each in stores(place)] or None
    if value.op == "param":
        return _passed(place)
    if value.op == "free":
        outer = unit.above(value.data[0])
        numbers = outer.code.definitions.get(value.data[1], ()) if outer is not None else ()
        return [Place(place.flow, outer, number) for number in numbers if outer is not None] or None
    if value.op == "name":
        return list(_of_module(place)) or None
    return None


def returned(call: Place) -> list[Place] | None:
    """What the functions that a call surely runs return, on all ways; None where that is not known."""
    site = call.result.sites.get(call.number)
    known = site is not None and bool(site.targets) and not (site.away or site.others or site.operations)
    if not known or site is None or any(o[0] not in ("unit", "bound") for o in call.operand(0).val.each):
        return None
    found: dict[Place, None] = {}
    for unit in dict.fromkeys(target.unit for target in site.targets):
        code = unit.code
        if code.kind not in ("function", "lambda") or code.is_async or code.is_generator:
            return None
        ends = (code.blocks[block].end for block in code.in_order())
        found.update((Place(call.flow, unit, end[1]), None) for end in ends if end[0] == "return")
    return list(found)


def passed_from(call: Place, inner: Place) -> Place:
    """What a value of a function that a call runs is in terms of the caller: what is passed, if it is a parameter."""
    root = inner.root
    given = argument_of(call.unit, call.number, inner.unit, root.value.data[0]) if root.value.op == "param" else None
    return call.value_at(given) if given is not None and call.unit is not inner.unit else inner


def stores(place: Place) -> Iterator[Place]:
    """What stores something in the attribute of the objects of which it is read."""
    owners = {o[1] for o in place.operand(0).closed.each if o[0] in ("inst", "self")}
    family = frozenset(each for cls in owners for each in cls.relatives)
    for store in _storing(place):
        if any(o[0] in ("inst", "self") and o[1] in family for o in store.operand(0).closed.each):
            yield store


def stores_on_namespace(place: Place) -> list[Place]:
    """What the program itself stores in the attribute of the namespace of options of which it is read."""
    owners = {o for o in place.operand(0).closed.each if o[0] == "made" and len(o) > 2}
    stores = _storing(place) if owners else ()
    return [store.operand(1) for store in stores if not owners.isdisjoint(store.operand(0).closed.each)]


def _storing(place: Place) -> Iterator[Place]:
    """What stores an attribute of the name that is read, in whatever object."""
    name = place.value.data
    for unit in place.flow.units(iter(place.flow.stores.writers(name))):
        yield from (Place(place.flow, unit, number) for number in unit.stored.get(name, ()))


def _passed(place: Place) -> list[Place] | None:
    """What the calls of a function pass for a parameter; None where one does not show it."""
    if place.unit.is_receiver(place.number):
        return None
    given = [given for _, given in passing(place)]
    known = [each for each in given if each is not None]
    return known if known and len(known) == len(given) else None


def passing(parameter: Place) -> list[tuple[Place, Place | None]]:
    """The calls of the function whose parameter a value is, each with what it passes for it, where it shows that."""
    flow, unit, position = parameter.flow, parameter.unit, parameter.value.data[0]
    calls = [
        Place(flow, caller, passed.site)
        for caller in flow.callers(unit)
        for passed in flow.result(caller).passed.get(unit, ())
    ]
    numbers = [(call, argument_of(call.unit, call.number, unit, position)) for call in calls]
    return [(call, call.value_at(number) if number is not None else None) for call, number in numbers]


def _of_module(place: Place) -> Iterator[Place]:
    """What is stored in a variable of a module."""
    symbol = place.flow.symbol(place.unit, place.value)
    for unit in place.flow.whole_units(symbol.module) if isinstance(symbol, Variable) else ():
        for number, value in enumerate(unit.code.values):
            if value.op == "store_global" and isinstance(symbol, Variable) and value.data == symbol.name:
                yield Place(place.flow, unit, number).operand(0)


def stored_here(place: Place) -> list[Place]:
    """What the same function has stored in the attribute of the same object before it is read."""
    values, owner = place.unit.code.values, place.unit.root(place.value.args[0])
    return [
        place.value_at(number).operand(1)
        for number, value in enumerate(values[: place.number])
        if value.op == "store_attr" and value.data == place.value.data and place.unit.root(value.args[0]) == owner
    ]

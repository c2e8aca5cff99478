"""Values that are the same on all ranks although they are random: all that is drawn for them is drawn alike."""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import UNIFORM, only
from validator.flow.calls.libraries.computed import PLACING
from validator.flow.queries.base import Place, numbers_of
from validator.flow.queries.origins import sources
from validator.flow.queries.ranks.random_draws import Seeds, changes_nothing, generator_of, rows_of
from validator.models import Row

# What is an object that computes something of what it is given, or says how to: not what is computed.
_TOOLS = frozenset({"ext", "unit", "bound", "class", "inst", "self", "made", "keeping", "partial"})
_NUMBERS = frozenset({"const", "size"})
_NAMED = frozenset({"unit", "class"})
_COMPUTED = frozenset({
    "binary", "unary", "compare", "item", "unpack", "tuple", "list", "dict", "slice", "phi", "collect", "iter", "next",
    "attr",
})  # fmt: skip
_ELSEWHERE = frozenset({"param", "free", "name"})


def draw_behind(value: Place) -> Place | None:
    """A call whose random numbers a value is made of, if the value is surely the same on all ranks: each draw in it is
    from a generator that all ranks are known to seed alike, and all else in it is told by the program itself, by
    options or by models. None where anything else may be in it."""
    draws, queue, seen = [], [value.root], {value.root}
    for here in queue:
        drawing = next((row for _, row in rows_of(here) if row is not None and row.result == "drawn"), None)
        before = _seeds(here, drawing) if drawing is not None else _parts(here)
        if before is None or only(here.closed.v, "rank", "member", "data") and UNIFORM not in here.closed.v:
            return None
        if drawing is not None:
            before += _arguments(here)
            draws.append(here)
        fresh = dict.fromkeys(each for each in before if each not in seen)
        seen.update(fresh)
        queue += fresh
    alike = [draw for draw in draws if not only(draw.under, "rank", "member", "data")]
    return alike[0] if alike and len(alike) == len(draws) else None


def _seeds(draw: Place, row: Row) -> list[Place] | None:
    """The seeds of what a call draws from; None where one is not known."""
    generator = generator_of(draw, row)
    if generator is None:
        seeds = [seed.value for seed in Seeds.of(draw.flow, row.draws).before(draw)]
    else:
        seeds = list(_seeds_of(generator))
    known = [seed for seed in seeds if seed is not None]
    return known if known and len(known) == len(seeds) else None


def _seeds_of(generator: Place) -> Iterator[Place | None]:
    """What a generator is seeded with where it is made, and later in the same function."""
    made = generator.root
    for call in (made.value_at(number) for number in numbers_of(made.unit, ("call",))):
        receiver = call.receiver
        if call == made or receiver is not None and receiver.root == made:
            yield from (call.argument(*row.seed) for _, row in rows_of(call) if row is not None and row.seed)


def _parts(place: Place) -> list[Place] | None:
    """What a value is computed from; None where that is not known."""
    if place.value.op in ("const", "import") or _is_told(place):
        return []
    if place.value.op == "mut":
        changing = [] if changes_nothing(place.operand(1)) else [place.operand(1)]
        return [place.operand(0), *changing]
    if place.value.op == "call":
        return _of_call(place)
    if place.value.op == "attr" and any(o[0] in ("inst", "self") for o in place.operand(0).closed.each):
        return sources(place)
    if place.value.op in _COMPUTED:
        return [place.value_at(number) for number in place.value.args if number >= 0]
    return sources(place) if place.value.op in _ELSEWHERE else None


def _is_told(place: Place) -> bool:
    """Whether a value is what the program itself says, or an option of it."""
    objects, computes = place.closed.each, place.flow.models.computes
    kinds = {o[0] for o in objects if o[0] != "ext" or not computes(o[1])}
    if place.value.op in ("name", "import") and objects:
        return kinds <= _NUMBERS | _NAMED
    if place.value.op == "attr" and not kinds <= _NUMBERS:
        return _is_told(place.operand(0).root)
    return bool(kinds) and (kinds <= _NUMBERS or "namespace" in kinds)


def _of_call(call: Place) -> list[Place] | None:
    """What a call computes from: its arguments, and what it is called on, unless that is a model or another tool."""
    receiver = call.receiver
    tensors = call.flow.models.same_methods
    objects = receiver.closed.each if receiver is not None else ()
    is_tool = bool(objects) and all(o[0] in _TOOLS for o in objects) and call.method not in tensors
    given = _arguments(call)
    if receiver is not None and not is_tool:
        return [receiver, *given]
    told = all(_is_told(each) for each in given)  # by what it is given nobody knows then what it gives
    return given if not told or _computes(call) else sources(call)


def _computes(call: Place) -> bool:
    """Whether a call is of functions of libraries that compute what they give of their arguments alone."""
    models, called = call.flow.models, call.operand(0).val.each
    return bool(called) and all(o[0] == "ext" and models.computes(o[1]) for o in called)


def _arguments(call: Place) -> list[Place]:
    """What a call is given to compute with: not where to, nor the tools that functions of the program are lent."""
    named = zip(call.value.data.names, call.value.args[1:], strict=True)
    given = (call.value_at(number) for name, number in named if name not in PLACING and name != "generator")
    if _computes(call):
        return list(given)
    return [each for each in given if not each.closed.each or any(o[0] not in _TOOLS for o in each.closed.each)]

"""Evaluates a call: each object that may be called by what it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from validator.domains.spmd import NONE, UNIFORM, Causes
from validator.flow.calls.arguments import NO_SPREADS, SPREADS, Arguments, bind, told_apart
from validator.flow.calls.construction import construct, object_of
from validator.flow.calls.groups import of_group
from validator.flow.calls.in_hand import Call
from validator.flow.calls.libraries.external import call_made, external
from validator.flow.calls.libraries.placement import placed
from validator.flow.calls.meshes import method_of_mesh
from validator.flow.calls.mutations import growth, work_in_place
from validator.flow.calls.own_units import call_object, call_unit, guess_units
from validator.flow.calls.sharded_models import run_sharded
from validator.flow.calls.sites import note_away, note_choice
from validator.flow.calls.unknown import unknown
from validator.flow.foreign import is_unknown
from validator.flow.substitution import instantiated
from validator.flow.values import (
    ANYTHING,
    BOTTOM,
    MORE,
    NOT_YET,
    UNKNOWN,
    Obj,
    Val,
    bare,
    join,
    obj,
    of_one,
    picked,
    tuple_of,
)
from validator.ir import Value as Instruction

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.unit import Unit

_OUTSIDE = frozenset({"ext", "made", "top", "more", "const"})
_UNTOLD = frozenset({"top", "param", "part"})  # what says nothing of what is called


def call(at: Evaluation, number: int, value: Instruction) -> Val:
    """What the call `number` gives; what it runs, and what becomes of its arguments, is noted in the evaluation."""
    if number in at.unit.wraps[1]:
        return BOTTOM  # whoever calls this unit calls what it wraps
    callee = at.operand(value.args[0])
    hand = _Dispatched(at, number, value)
    kinds = {o[0] for o in callee.each}
    result = _of_callee(hand, callee, kinds)
    if hand.is_of_attribute:
        result = _on_receiver(hand, result)
    if value.data.names == ("@",) and kinds <= _OUTSIDE:
        return hand.arguments[0][1]  # `@torch.no_grad()`: a decorator of a library leaves the function what it is
    return placed(hand, result)


def part(at: Evaluation, number: int, value: Instruction) -> Val:
    """A function whose body follows here: it is told what it is passed, nothing else happens."""
    call(at, number, value)
    if (site := at.sites.pop(number, None)) is not None:
        at.parts[number] = site
    return BOTTOM


def _of_callee(call: Call, callee: Val, kinds: set[str]) -> Val:
    """What all the objects give that may be called, and what nobody knows."""
    call.certain = "top" not in kinds
    found = _alternatives([call.apply(o, call.arguments) for o in callee.each])
    call.certain = True
    note_choice(call.at, call.number, callee)
    if not callee.each or not kinds.isdisjoint(_UNTOLD):
        nobody = unknown(call)
        told = call.told and kinds == {"param"}
        found.append(Val(NONE, nobody.v, nobody.n, nobody.p, nobody.state) if told else nobody)
    if call.is_of_attribute and is_unknown(callee):
        guess_units(call.at, call.number, call.name, call.arguments)
    run_sharded(call, callee)
    return join([*found, ANYTHING] if MORE in callee.objs else found)


def _on_receiver(call: Call, result: Val) -> Val:
    """What a method gives that may change its receiver; what becomes of that is noted."""
    if change := growth(call.name, call.arguments):
        call.at.after[call.number, -1] = change
    elif change := work_in_place(call):
        call.at.after[call.number, -1] = change
        return change(result)
    return result


def _alternatives(found: list[Val]) -> list[Val]:
    """What one of several functions gives, nobody knows which: that only some of them vary is not certain."""
    known = [value for value in found if value is not NOT_YET]
    if len(known) < 2:
        return found

    def weakened(causes: Causes, facet: str) -> Causes:
        return frozenset(
            c if not c.sure or c == UNIFORM or all(c in getattr(value, facet) for value in known)
            else c._replace(sure=False) for c in causes
        )  # fmt: skip

    return [
        value if value is NOT_YET or not (value.v or value.n or value.p)
        else Val(value.objs, weakened(value.v, "v"), weakened(value.n, "n"), weakened(value.p, "p"), value.state)
        for value in found
    ]  # fmt: skip


class _Dispatched(Call):
    """A call that runs whatever is called."""

    __slots__ = ()

    def apply(self, o: Obj, arguments: Arguments) -> Val:
        of_kind = _BY_KIND.get(o[0])
        return of_kind(self, o, arguments) if of_kind is not None else UNKNOWN


def _unit(call: Call, o: Obj, arguments: Arguments) -> Val:
    return call_unit(call.at, call.number, o[1], [], arguments)


def _bound(call: Call, o: Obj, arguments: Arguments) -> Val:
    return call_unit(call.at, call.number, o[1], [o[2]], arguments)


def _class(call: Call, o: Obj, arguments: Arguments) -> Val:
    made = construct(call.at, call.number, o[1], arguments)
    return obj("self", o[1]).placed(made.state) if call.at.unit.is_receiver(call.value.args[0]) else made  # `cls(…)`


def _making(call: Call, o: Obj, arguments: Arguments) -> Val:
    """What a class method of a library gives: an object of the class, of which the library fills what it has."""
    at = call.at
    callee = at.code.values[call.value.args[0]]
    own = callee.op == "attr" and (at.unit.is_receiver(callee.args[0]) or at.operand(callee.args[0]).of("super"))
    # `cls.from_pretrained(…)`: of the class, or of one below. Where its parameters are is for the library to say.
    made = (obj("self", o[1]) if own else object_of(at, call.number, o[1])).placed(UNKNOWN.state)
    beside = at.models.constructors[o[2]].beside
    several = next((value for name, value in arguments if beside and name == beside), None)
    return tuple_of([made, UNKNOWN]) if several is not None and not several.is_const(False) else made


def _object(call: Call, o: Obj, arguments: Arguments) -> Val:
    return call_object(call.at, call.number, o, arguments)


def _external(call: Call, o: Obj, arguments: Arguments) -> Val:
    return external(call, o[1], arguments)


def _keeping(call: Call, o: Obj, arguments: Arguments) -> Val:
    """A wrapper calls what it wraps."""
    return join(call.apply(each, arguments) for each in picked(o[1], "module").each)


def _partial(call: Call, o: Obj, arguments: Arguments) -> Val:
    positional = [(None, v) for v in o[2]]
    return join(call.apply(c, [*positional, *arguments, *o[3]]) for c in o[1].each)


def _remote(call: Call, o: Obj, arguments: Arguments) -> Val:
    """What runs in a process of its own, and is waited for later."""
    found = []
    for each in o[1].each:
        if each[0] == "class":
            construct(call.at, call.number, each[1], arguments)
            found.append(obj("handle", each[1]))
        else:
            found.append(obj("future", bare(call.apply(each, arguments))))
    note_away(call.at, call.number)
    return join(found)


def _fetch(call: Call, o: Obj, arguments: Arguments) -> Val:
    return o[1]  # type: ignore[no-any-return]


def _parameter(call: Call, o: Obj, arguments: Arguments) -> Val:
    """What the functions do and give that callers pass: other callers may pass something else."""
    passed: Val = call.at.flow.get("argument", call.at.unit, o[1])
    if _is_one(call.at, passed):
        return join(call.apply(each, arguments) for each in passed.each)
    call.certain = False
    found = [external(call, each[1], arguments) for each in passed.each if each[0] == "ext"]
    given = [_given_by(call, each, passed, arguments) for each in passed.each]
    call.told = call.told and bool(given) and None not in given
    return join([*(each for each in given if each is not None), *found])


def _is_one(at: Evaluation, passed: Val) -> bool:
    """Whether all callers pass what runs one and the same function when it is called: it runs here, then."""
    ran = [_run_by(at, o)[0] for o in _held(passed)]
    return bool(ran) and None not in ran and len(set(ran)) == 1


def _held(passed: Val) -> list[Obj]:
    """The objects that are called where some are passed: of a wrapper what it wraps."""
    keeping = passed.of("keeping")
    inside = [each for o in keeping for each in picked(o[1], "module").each]
    around = {"keeping", "made"} if inside else {"keeping"}  # the wrapper itself, beside what it is known to keep
    return [*inside, *(o for o in passed.each if o[0] not in around)]


def _given_by(call: Call, o: Obj, passed: Val, arguments: Arguments) -> Val | None:
    """What a function, a class or an object gives that a caller passes; None where it is not known. What it does
    besides is not noted: one caller may pass what another does not."""
    at = call.at
    if o[0] == "keeping":
        held = [_given_by(call, each, passed, arguments) for each in picked(o[1], "module").each]
        return join(value for value in held if value is not None) if held and None not in held else None
    if o[0] == "made" and picked(join(Val(frozenset({each})) for each in passed.of("keeping")), "module").objs:
        return BOTTOM  # what it wraps is called
    if o[0] == "class":
        return object_of(at, call.number, o[1])
    unit, first = _run_by(at, o)
    if unit is None or unit.code.is_generator or any(name in SPREADS for name, _ in arguments):
        return None
    positional, keywords = told_apart(unit, first, arguments, NO_SPREADS)
    bindings = defaultdict(lambda: UNKNOWN, bind(at, unit, positional, keywords))
    return instantiated(at.flow.part(("unit", unit), "returned"), bindings.__getitem__)


def _run_by(at: Evaluation, o: Obj) -> tuple[Unit | None, list[Val]]:
    """The unit that calling an object runs, with what it gets before the arguments."""
    if o[0] == "unit":
        return o[1], []
    if o[0] == "bound":
        return o[1], [o[2]]
    if o[0] in ("inst", "self"):
        method = o[1].find("__call__") or o[1].find("forward")
        return (at.flow.unit_of(method) if method is not None else None), [of_one(o)]
    return None, []


def _mesh_method(call: Call, o: Obj, arguments: Arguments) -> Val:
    return method_of_mesh(o, arguments)


def _group_method(call: Call, o: Obj, arguments: Arguments) -> Val:
    return of_group(o[1], o[2])


def _sequence(call: Call, o: Obj, arguments: Arguments) -> Val:
    """Of modules: no list can be called. Only the first gets what is passed, the others what the one before gave."""
    given = [(name, join([value, UNKNOWN])) for name, value in arguments]
    return join(call.apply(each, given) for each in o[1].each)


def _nothing(call: Call, o: Obj, arguments: Arguments) -> Val:
    return BOTTOM


_BY_KIND: dict[str, Callable[[Call, Obj, Arguments], Val]] = {
    "unit": _unit, "bound": _bound, "class": _class, "inst": _object, "self": _object, "ext": _external,
    "making": _making, "made": call_made, "keeping": _keeping, "partial": _partial, "remote": _remote, "fetch": _fetch,
    "param": _parameter, "mesh method": _mesh_method, "group method": _group_method, "seq": _sequence,
    "top": _nothing, "const": _nothing,
}  # fmt: skip

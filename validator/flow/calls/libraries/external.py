"""Calls of functions and objects of libraries, and of what the language itself defines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from validator.domains.axes import LOCAL, WHOLE, asks_own_rank, axes_of
from validator.domains.placement import PLAIN
from validator.domains.spmd import NONE, Causes, combined, held, only, rank, unsure
from validator.flow.attributes import attribute
from validator.flow.calls.arguments import Arguments
from validator.flow.calls.construction import as_dictionary, construct
from validator.flow.calls.elements import element
from validator.flow.calls.libraries.computed import padded_alike, same
from validator.flow.calls.libraries.containers import COPYING, LAZY
from validator.flow.calls.libraries.environment import environment
from validator.flow.calls.libraries.rows import by_row
from validator.flow.calls.own_units import call_unit, own_class
from validator.flow.calls.protocols import ask_object, drain
from validator.flow.calls.sites import note_switch
from validator.flow.foreign import NOBODY
from validator.flow.merging.even_shares import is_evened
from validator.flow.values import (
    BOTTOM,
    NOTHING,
    STRING,
    UNKNOWN,
    Obj,
    Val,
    const,
    dictionary_of,
    is_dictionary,
    is_text,
    join,
    join2,
    obj,
    sequence,
    tuple_of,
)
from validator.ir.expressions import MADE_UP
from validator.models.members.classes import members_of

if TYPE_CHECKING:
    from validator.flow.calls.in_hand import Call
    from validator.flow.evaluation import Evaluation

# Builtins that look at an object without going through what is in it.
_LOOKING = frozenset({
    "len", "str", "repr", "hash", "bool", "print", "isinstance", "issubclass", "type", "id", "callable", "vars", "dir",
})  # fmt: skip
_NAMED = frozenset({"named_parameters", "named_buffers", "named_modules", "named_children"})
_ASKING_OBJECTS = {
    "len": "__len__", "next": "__next__", "str": "__str__", "repr": "__repr__", "hash": "__hash__", "bool": "__bool__",
    "reversed": "__reversed__",
}  # fmt: skip


def external(call: Call, dotted: str, arguments: Arguments) -> Val:
    """What a call of a library's function gives, by its dotted name."""
    if dotted in ("functools.partial", "partial") and arguments:
        return _partial(arguments)
    if arguments and _decorates(call):
        return arguments[0][1]  # a decorator of a library: the function stays what it is
    special = _SPECIAL.get(dotted)
    if special is not None and (found := special(call, dotted, arguments)) is not None:
        return found
    for state in call.at.models.sets.get(dotted, ()):
        note_switch(call.at, call.number, state)
    if dotted in _ASKING_OBJECTS and arguments:
        ask_object(call.at, call.number, arguments[0][1], _ASKING_OBJECTS[dotted])
    owner, _, method = dotted.rpartition(".")
    row = call.at.models.call(dotted) or call.at.models.method(owner, method)
    if row is not None:
        return by_row(call, row, arguments, BOTTOM)
    if call.at.models.library(owner).generates:
        return Val(v=held(call.receiver.v | frozenset().union(*(v.v for _, v in arguments))))
    return _undescribed(call.at, call.number, dotted, arguments)


def call_made(call: Call, o: Obj, arguments: Arguments) -> Val:
    """What a call of an object of a library gives."""
    row = call.at.models.method(o[1], "__call__")
    if row is not None:
        return by_row(call, row, arguments, BOTTOM)
    return Val(v=carried_over(arguments), state=frozenset({"?"}))


def carried_over(arguments: Arguments) -> Causes:
    """What an unknown function may carry over from its arguments: data, never who the process is."""
    return combined(*(unsure(only(value.v, "data", "param", "uniform")) for _, value in arguments))


def _decorates(call: Call) -> bool:
    return call.value.op == "call" and call.value.data.names == ("@",)


def _partial(arguments: Arguments) -> Val:
    (_, callee), *rest = arguments
    positional = tuple(v for n, v in rest if n is None)
    keywords = [(n, v) for n, v in rest if n not in (None, "*", "**")]
    for name, spread in rest:
        if name == "**" and is_dictionary(spread):
            keywords += [(str(key), held) for o in spread.each for key, held in o[1]]
        elif name in ("*", "**"):
            return UNKNOWN  # nobody knows which parameters it fills
    return obj("partial", callee, positional, tuple(keywords))


# What the language itself defines: each gives None where it says nothing of such arguments.


def _dictionary(call: Call, dotted: str, arguments: Arguments) -> Val | None:
    if len(arguments) == 1 and arguments[0][0] is None and (made := _of_pairs(call, arguments[0][1])) is not None:
        return made
    if not arguments or any(n in (None, "*") and not v.of("dict") for n, v in arguments):
        return None
    return dictionary_of((None if n in (None, "**") else n, v) for n, v in arguments)


def _of_pairs(call: Call, pairs: Val) -> Val | None:
    """`dict(pairs)`: keys that are texts stand beside it as in a state, one goes through them."""
    rows = [o[1] for o in element(call.at, pairs).of("tuple")] if pairs.of("seq") and not pairs.of("dict") else []
    if len(rows) != 1 or len(rows[0]) != 2:
        return None
    keys, held = rows[0]
    texts = sequence(keys).objs if is_text(keys) else NOTHING
    return Val(texts | dictionary_of([((), held)]).objs, pairs.v, pairs.n, state=pairs.state)


def _empty(call: Call, dotted: str, arguments: Arguments) -> Val | None:
    return None if arguments else tuple_of(())


def _of_factory(call: Call, dotted: str, arguments: Arguments) -> Val | None:
    """A dictionary that makes what it is asked for, of the objects of the project or the lists that it makes."""
    if len(arguments) != 1 or arguments[0][0] is not None:
        return None
    factories = arguments[0][1].each
    made = [value for o in factories if (value := _made_by(call, o)) is not None]
    return obj("dict", (), join(made)) if made and len(made) == len(factories) else None


def _made_by(call: Call, factory: Obj) -> Val | None:
    """What a class or a function of the project makes that is called without arguments; `list`: some list."""
    if factory == ("ext", "list"):
        return sequence(BOTTOM)
    if factory[0] == "class":
        return construct(call.at, call.number, factory[1], [])
    if factory[0] == "unit" and not factory[1].code.params:
        return call_unit(call.at, call.number, factory[1], [], [])
    return None


def _fields(call: Call, dotted: str, arguments: Arguments) -> Val | None:
    return as_dictionary(call.at, call.number, arguments[0][1]) if arguments else None


def _receiver(call: Call, dotted: str, arguments: Arguments) -> Val | None:
    return call.receiver


def _itself(call: Call, dotted: str, arguments: Arguments) -> Val | None:
    return obj("ext", "~itself") if dotted != "~itself" or not arguments else arguments[0][1]


def _super(call: Call, dotted: str, arguments: Arguments) -> Val | None:
    named = [o[1] for o in arguments[0][1].each if o[0] == "class"] if len(arguments) > 1 else []
    # `super(C)`: nobody's
    cls = named[0] if len(named) == 1 else own_class(call.at) if not arguments else None
    return obj("super", cls) if cls is not None else UNKNOWN


def _attribute(call: Call, dotted: str, arguments: Arguments) -> Val | None:
    if len(arguments) < 2:
        return None
    owner, names = arguments[0][1], call.at.flow.close(arguments[1][1], call.at.unit).each
    if not names or any(o[:2] != ("const", "str") for o in names):
        return _made_up(call, owner) if dotted == "getattr" else UNKNOWN
    value = join(attribute(call.at, call.number, owner, o[2]) for o in names)
    if dotted == "hasattr":
        return Val(v=value.p)
    return join2(value, arguments[2][1]) if len(arguments) > 2 else value


def _made_up(call: Call, owner: Val) -> Val:
    """An attribute whose name the program makes up: what its class stores under such names, or anything."""
    has = call.at.flow.fields.has_made_up
    keeping = Val(frozenset(o for o in owner.each if o[0] in ("inst", "self") and has(o[1])))
    return join2(attribute(call.at, call.number, keeping, MADE_UP), UNKNOWN) if keeping.objs else UNKNOWN


def _environment(call: Call, dotted: str, arguments: Arguments) -> Val | None:
    if not arguments:
        return None
    default = next((value for name, value in arguments[1:] if name in (None, "default")), const(None))
    return environment(call.at.models, arguments[0][1], default)


_SPECIAL: dict[str, Callable[[Call, str, Arguments], Val | None]] = {
    "list": _empty, "set": _empty,
    "dict": _dictionary, "collections.defaultdict": _of_factory,
    "dataclasses.asdict": _fields, "~receiver": _receiver, "functools.wraps": _itself,
    "~itself": _itself, "super": _super, "getattr": _attribute, "hasattr": _attribute, "os.getenv": _environment,
    "os.environ.get": _environment,
}  # fmt: skip


def _comes_out_even(at: Evaluation, number: int, named: str) -> bool:
    """Whether a range goes from place to place by a step of which the function sees to it that nothing is left over."""
    bounds = at.code.values[number].args[1:]
    return named == "range" and len(bounds) == 3 and is_evened(at.unit, bounds[2])


def _undescribed(at: Evaluation, number: int, dotted: str, arguments: Arguments) -> Val:
    """A call of a library that no row describes: a function of its arguments, or nobody knows."""
    named = at.models.named(dotted)
    last = named.rpartition(".")[2]
    if last in _NAMED:
        return sequence(tuple_of([STRING, UNKNOWN]))
    if not arguments and (last in at.models.ranks["methods"] | at.models.ranks["names"] or asks_own_rank(last)):
        return Val(v=rank({LOCAL} if LOCAL in last else axes_of(last) - WHOLE or WHOLE, sure=False))
    if named not in LAZY | _LOOKING and not named.startswith("torch.utils.data"):
        for _, value in arguments:
            drain(at, number, value)
    making = any(named.startswith(m + ".") for m in at.models.making)
    if making and last[:1].isupper() and last not in ("Parameter", "Buffer"):
        return Val(frozenset({("made", named)}), state=PLAIN)
    if named in at.models.same or any(named.startswith(m + ".") for m in at.models.same_modules):
        given = arguments[:1] if last in COPYING else arguments  # `tqdm(rows, disable=…)` gives the rows
        found = same(at, number, last, given, BOTTOM, named)
        if named == "torch.nn.functional.pad" and padded_alike(at, number) or _comes_out_even(at, number, named):
            found = Val(found.objs, found.v, NONE, found.p, found.state)
        is_object = not found.objs and last[:1].isupper() and not last.endswith("Tensor")
        if is_object and members_of(named) is not None:
            return Val(frozenset({("made", named)}), found.v, found.n, found.p, found.state)
        return found
    return Val(frozenset({("made", NOBODY if named.startswith(f"{NOBODY}.") else named)}), state=frozenset({"?"}))

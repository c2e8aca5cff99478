"""When two conditions are one: the expression that a value is, as a tree of its parts.

Two values with one key are equal where they stand, unless something changed an attribute in between; parameters are
replaced by what a call passes, so the same test in caller and callee has one key.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from validator.definitions import Method, Module, Value
from validator.flow.program.flow import Flow
from validator.flow.program.unit import Unit
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.pure_functions import Computed, computed
from validator.ir.model import Value as Instruction

Key = tuple[Any, ...]
Assumed = dict[Key, bool]
_LARGE = 24  # parts of a key beyond which a value is only itself; long expressions are no tests that are repeated
# Comparisons of a rank that tell the first one, and what they say of it: no rank is less than 0.
_OF_FIRST = {("Gt", 0): "NotEq", ("GtE", 1): "NotEq", ("Lt", 1): "Eq", ("LtE", 0): "Eq"}
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "Is": lambda a, b: a is b if a is None or b is None else type(a) is type(b) and a == b, "Eq": operator.eq,
    "In": lambda a, b: a in b, "Lt": operator.lt, "LtE": operator.le,
}  # fmt: skip
_OF_CONSTANTS = ("Eq", "In", "Lt", "LtE")
_OTHER = object()  # equal to no constant
_NEGATED = {"NotEq": "Eq", "IsNot": "Is", "NotIn": "In", "GtE": "Lt", "Gt": "LtE"}


class Keys:
    """The keys of the values of one unit."""

    def __init__(self, flow: Flow, unit: Unit) -> None:
        self.flow = flow
        self.unit = unit
        self._known: dict[int, Key] = {}

    def of(self, number: int) -> Key:
        known = self._known.get(number)
        if known is None:
            self._known[number] = ("value", self.unit.module.path, self.unit.code.key, number)  # within itself
            known = self._made(number, self.unit.code.values[number])
            if _size(known) > _LARGE:
                known = ("value", self.unit.module.path, self.unit.code.key, number)
            self._known[number] = known
        return known

    def _root(self, number: int) -> int:
        value = self.unit.code.values[number]
        return self._root(value.args[0]) if value.op == "mut" else number

    def test(self, number: int) -> tuple[Key, bool]:
        """The key of a condition and whether the condition holds where the key does."""
        return stripped(self.of(number))

    def from_inside(self, key: Key, made: Computed, call: int) -> Key | None:
        """A key of a function that only computes in the terms of a call of it; None where it is not all known."""
        given: dict[int, Key] = {}
        for position in _parameters(key, made.unit):
            number = argument_of(self.unit, call, made.unit, position)
            default = made.unit.code.defaults.get(made.unit.code.params[position][0])
            if number is not None:
                given[position] = self.of(number)
            elif default is not None and "**" not in self.unit.code.values[call].data.names:
                held = made.unit.outer.code.values[default] if made.unit.outer is not None else None
                if held is None or held.op != "const":
                    return None
                given[position] = ("const", type(held.data).__name__, held.data)
            else:
                return None
        return substituted(key, made.unit, given.__getitem__) if _is_closed(key) else None

    def _made(self, number: int, value: Instruction) -> Key:
        op = value.op
        if op == "const":
            return ("const", type(value.data).__name__, value.data)
        if op == "param":
            return ("param", self.unit, value.data[0])
        if op == "name":
            symbol = self.flow.project.lookup(self.unit.scope, value.data)
            return (
                ("global", symbol.module.name, symbol.name)
                if isinstance(symbol, Value | Method)
                else ("name", value.data)
            )
        if op == "import":
            return ("name", value.data)
        if op in ("mut", "phi") and (root := self.unit.root(number)) != number:
            return self.of(root)
        if op == "phi" and (kind := self.unit.connective(number)):
            return ("bool", kind, *(self.of(a) for a in value.args))
        if op == "attr":
            return ("attr", self.of(value.args[0]), value.data)
        if op in ("item", "unary", "binary", "unpack"):
            return (op, value.data, *(self.of(a) for a in value.args))
        if op == "compare":
            left, right = value.args
            absent = value.data in ("Is", "IsNot", "Eq", "NotEq") and self.unit.code.values[right].data is None
            first = _OF_FIRST.get((value.data, self.unit.code.values[right].data))
            if first is not None and self.flow.result(self.unit).vals[left].of("ordinal"):
                return _compared(first, self.of(left), ("const", "int", 0))
            return _compared(value.data, self.of(self._there(left) if absent else left), self.of(right))
        made = computed(self.flow, self.unit, number) if op == "call" else None
        if made is not None:
            inside = self.from_inside(keys_of(self.flow, made.unit).of(made.number), made, number)
            if inside is not None:
                return inside
        if op == "call" and self._repeatable(number):
            return ("call", value.data.names, *(self.of(a) for a in value.args))
        if op in ("tuple", "list", "set"):
            return (op, *(self.of(a) for a in value.args))
        return ("value", self.unit.module.path, self.unit.code.key, number)

    def _there(self, number: int) -> int:
        """The value that is there where another one is: `x` for what `if x is not None: x = x.to(device)` leaves."""
        value = self.unit.code.values[self.unit.root(number)]
        if value.op != "phi" or len(value.args) != 2:
            return number
        for base, other in (value.args, value.args[::-1]):
            made = self.unit.code.values[self.unit.root(other)]
            callee = self.unit.code.values[made.args[0]] if made.op == "call" else made
            if made.op == "call" and callee.op == "attr" and self.unit.root(callee.args[0]) == self.unit.root(base):
                return base
        return number

    def _repeatable(self, number: int) -> bool:
        """Whether a call gives the same when it is made again: it reads who and how many we are, or only computes."""
        value = self.unit.code.values[number]
        callee = self.flow.result(self.unit).vals[value.args[0]]
        if not callee.objs:
            return False
        for o in callee.each:
            if o[0] == "ext":
                row = self.flow.models.call(o[1])
                named = self.flow.models.named(o[1])
                if row is not None and row.result in ("rank", "size", "several") or named in self.flow.models.same:
                    continue
                return False
            if o[0] == "bound" or o[0] == "unit":
                if _is_small(o[1]):
                    continue
                return False
            if o[0] == "top":
                instruction = self.unit.code.values[value.args[0]]
                ranks = self.flow.models.ranks
                if instruction.op == "attr" and instruction.data in ranks["methods"] | ranks["stages"] | {"get"}:
                    continue
            return False
        return True


def _compared(op: str, left: Key, right: Key) -> Key:
    if right == ("const", "NoneType", None):
        op = {"Eq": "Is", "NotEq": "IsNot"}.get(op, op)
    return ("compare", op, left, right)


def stripped(key: Key, holds: bool = True) -> tuple[Key, bool]:
    """A condition without its negations, and whether it holds where the key does."""
    while key[:2] == ("unary", "Not"):
        key, holds = key[2], not holds
    if key[0] == "compare" and key[1] in _NEGATED:
        return _compared(_NEGATED[key[1]], key[2], key[3]), not holds
    return key, holds


def holding(key: Key, assumed: Assumed) -> bool | None:
    """Whether a condition holds under what is assumed; None where that does not say."""
    key, positive = stripped(key)
    found = assumed.get(key)
    if found is None and key[0] == "bool":
        parts = [holding(part, assumed) for part in key[2:]]
        ending = key[1] == "or"  # one part that holds decides
        found = ending if ending in parts else None if None in parts else not ending
    if found is None:
        found = decided(key)
    if found is None:
        found = _implied(key, assumed)
    return found if found is None else found is positive


def _implied(key: Key, assumed: Assumed) -> bool | None:
    """Whether a comparison with constants holds, by what others say of the same value: of a whole number that is not in
    `[-1, 0]` that it is not 0, of a text that is "a" that it is not "b"."""
    if not _is_of_constants(key):
        return None
    rows = [row for row in assumed.items() if _is_of_constants(row[0]) and row[0][2] == key[2]]
    if not rows:
        return None
    compared = (key, *(row[0] for row in rows))
    candidates = _candidates({each[1] for each in compared}, {one for each in compared for one in _constants(each[3])})
    left = [one for one in candidates if all(_compares(each, one) is holds for each, holds in rows)]
    answers = {_compares(key, one) for one in left}
    return answers.pop() if len(answers) == 1 else None


def _candidates(operators: set[str], constants: set[Any]) -> set[Any]:
    """Values between which comparisons with constants turn, one for each way in which they may come out; none where
    these have no order."""
    if all(type(each) is int for each in constants):
        return {one + step for one in constants for step in (-1, 0, 1)}
    return set() if operators & {"Lt", "LtE"} else {*constants, _OTHER}


def same(key: Key, other: Key) -> bool:
    """Whether two conditions are one, or compare one whole number with constants."""
    key, other = stripped(key)[0], stripped(other)[0]
    return key == other or _is_of_numbers(key) and _is_of_numbers(other) and key[2] == other[2]


def _is_of_numbers(key: Key) -> bool:
    """Whether a key is a comparison of some value with whole numbers."""
    return _is_of_constants(key) and all(type(each) is int for each in _constants(key[3]))


def _is_of_constants(key: Key) -> bool:
    """Whether a key is a comparison of some value with whole numbers, or texts."""
    if key[0] != "compare" or key[1] not in _OF_CONSTANTS or key[1] == "In" and key[3][0] == "const":
        return False  # a text that holds another one has no such cases
    return bool(_constants(key[3]))


def _constants(key: Key) -> tuple[int | str, ...]:
    """The whole numbers and texts that a key spells: one, or those of a list."""
    try:
        constant = _constant(key)
    except LookupError:
        return ()
    found = constant if isinstance(constant, tuple) else (constant,)
    return found if all(type(each) in (int, str) for each in found) else ()


def _compares(key: Key, value: Any) -> bool:
    return _COMPARED[key[1]](value, _constant(key[3]))


def assume(assumed: Assumed, key: Key, holds: bool) -> Assumed:
    """What is assumed where a condition holds, or does not, as well: of `a and b` that both do."""
    found = dict(assumed)
    stack = [(key, holds)]
    while stack:
        key, holds = stack.pop()
        key, positive = stripped(key)
        found[key] = holds is positive
        if key[0] == "bool" and found[key] is (key[1] == "and"):
            stack += [(part, found[key]) for part in key[2:]]
    return found


def keys_of(flow: Flow, unit: Unit) -> Keys:
    """The keys of a unit, made once."""
    known: Keys | None = unit.__dict__.get("_keys")
    if known is None:
        known = unit.__dict__["_keys"] = Keys(flow, unit)
    return known


def _parameters(key: Key, unit: Unit) -> set[int]:
    """The parameters of a unit of which a key speaks."""
    if len(key) == 3 and key[0] == "param" and key[1] is unit:
        return {key[2]}
    return {position for part in key if isinstance(part, tuple) for position in _parameters(part, unit)}


def _is_closed(key: Key) -> bool:
    """Whether a key says all of a value: one that is only itself is another one in each call."""
    return key[:1] != ("value",) and all(_is_closed(part) for part in key if isinstance(part, tuple))


def _is_small(unit: Unit) -> bool:
    """Whether a function only computes: it stores nothing and has one way through."""
    values = unit.code.values
    return not any(v.op.startswith("store") or v.op in ("mut", "next", "yield", "await") for v in values)


def _size(key: Any) -> int:
    count, stack = 0, [key]
    while stack and count <= _LARGE:
        each = stack.pop()
        count += 1
        if isinstance(each, tuple):
            stack += [part for part in each if isinstance(part, tuple)]
    return count


def substituted(key: Key, unit: Unit, argument: Callable[[int], Key]) -> Key:
    """A key of a unit in the terms of its caller."""
    if len(key) == 3 and key[0] == "param" and key[1] is unit:
        return argument(key[2])
    return tuple([substituted(part, unit, argument) if isinstance(part, tuple) else part for part in key])


def _constant(key: Key) -> Any:
    """The constant that a key is. Raises LookupError for what is none."""
    if key[0] == "const":
        return key[2]
    if key[:2] == ("unary", "USub"):
        return -_constant(key[2])
    if key[0] in ("tuple", "list", "set"):
        return tuple(_constant(part) for part in key[1:])
    raise LookupError(key)


def decided(key: Key) -> bool | None:
    """Whether a condition on constants holds; None for all else."""
    if key[0] == "const":
        return bool(key[2])
    if key[0] in ("tuple", "list", "dict"):
        return len(key) > 1
    if key[0] == "compare" and key[1] in _COMPARED:
        left, right = key[2], key[3]
        try:
            return bool(_COMPARED[key[1]](_constant(left), _constant(right)))
        except (LookupError, TypeError, ArithmeticError):
            pass  # not all of it is constant, or it cannot be compared
        if right == ("const", "NoneType", None) and left[0] in ("tuple", "list", "global_unit", "binary", "compare"):
            return False
    if key[0] == "unary" and key[1] == "Not":
        inner = decided(key[2])
        return None if inner is None else not inner
    return None


__all__ = [
    "Assumed", "Key", "Keys", "Module", "assume", "decided", "holding", "keys_of", "same", "stripped", "substituted",
]  # fmt: skip

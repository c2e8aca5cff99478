"""By which path a value is reached in its unit: a variable, then attributes, elements and parts.

`path` names a value of this very moment: in a loop over tensors, `t` is the element of this round. `place` also says of
which container it is an element, so that two loops over one list meet.
"""

from __future__ import annotations

from validator.flow.program.unit import Unit
from validator.ir.model import Value

# The number of a value, then steps: `.attribute`, `#position`, `[key]`, `*` for any element.
Path = tuple[int | str, ...]
ELEMENT = "*"
_SAME_CONTENT = frozenset({"data"})  # attributes that are another view of the same tensor
_VIEWS = frozenset({
    "view", "view_as", "detach", "squeeze", "unsqueeze", "transpose", "permute",
    "t", "expand", "requires_grad_", "narrow", "chunk", "split", "unbind",
})  # fmt: skip
_INDICES = frozenset({  # what names one element or a slice; by a tensor, elements are copied
    "const", "slice", "next", "unpack", "phi", "param", "binary", "unary", "name", "free", "attr",
})  # fmt: skip
_MEMBERS = frozenset({
    "parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules", "children",
    "named_children", "values", "items", "state_dict",
})  # fmt: skip
_PASSING = frozenset({"list", "tuple", "reversed", "sorted", "iter", "deque", "tqdm", "filter", "islice"})
_TAKING = frozenset({"pop", "popleft"})


class Paths:
    """The paths of one unit's values."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.values = unit.code.values
        self._known: dict[tuple[int, bool], Path] = {}

    def path(self, number: int) -> Path:
        return self._of(number, False)

    def place(self, number: int) -> Path:
        return self._of(number, True)

    def _of(self, number: int, whole: bool) -> Path:
        known = self._known.get((number, whole))
        if known is None:
            self._known[number, whole] = (number,)  # where it depends on itself
            known = self._known[number, whole] = self._made(number, self.values[number], whole)
        return known

    def _made(self, number: int, value: Value, whole: bool) -> Path:
        op, args = value.op, value.args
        if op in ("mut", "enter", "await", "iter"):
            return self._of(args[0], whole)
        if op == "attr":
            owner = self._of(args[0], whole)
            return owner if value.data in _SAME_CONTENT else (*owner, f".{value.data}")
        if op == "item" and self.values[args[1]].op in _INDICES:
            return (*self._of(args[0], whole), self._key(args[1]))
        if op == "unpack":
            return self._part(number, value, whole)
        if op == "next":
            return self._element(number, args[0], whole)
        if op in ("free", "name"):
            return (f"{value.data}",)  # whatever reads it, as long as nobody assigns it
        if op == "phi":
            if (root := self.unit.root(number)) != number:  # also around loops, where each phi is an operand of others
                return self._of(root, whole)
            different = {self._of(each, whole) for each in args} - {(number,)}
            return different.pop() if len(different) == 1 else (number,)
        return self._called(number, value, whole) if op == "call" else (number,)

    def _key(self, number: int) -> str:
        value = self.values[number]
        if value.op == "const" and isinstance(value.data, int) and value.data >= 0:
            return f"#{value.data}"
        return f"[{value.data!r}]" if value.op == "const" else f"[%{self._of(number, False)}]"

    def _part(self, number: int, value: Value, whole: bool) -> Path:
        position, _, star = value.data
        owner = self.values[value.args[0]]
        if owner.op == "next" and star < 0:
            iterated = self._iterated(owner.args[0])
            given = self._parallel(iterated, position)
            if given is not None:
                return (*self._of(given, True), ELEMENT) if whole else (number,)
        return (*self._of(value.args[0], whole), f"#{position}")

    def _iterated(self, iterator: int) -> int:
        value = self.values[iterator]
        return value.args[0] if value.op == "iter" else iterator

    def _parallel(self, number: int, position: int) -> int | None:
        """What gives the element at a position of the tuples that `zip` or `enumerate` gives."""
        value = self.values[number]
        if value.op != "call" or any(name is not None for name in value.data.names):
            return None
        name = self.values[value.args[0]].data
        if name == "enumerate" and position == 1 and len(value.args) > 1:
            return value.args[1]
        return value.args[1 + position] if name == "zip" and position + 1 < len(value.args) else None

    def _element(self, number: int, iterator: int, whole: bool) -> Path:
        return (*self._of(self._iterated(iterator), True), ELEMENT) if whole else (number,)

    def _asks_for_all(self, value: Value) -> bool:
        """Whether a call passes nothing but what is so without it: `parameters(recurse=True)`."""
        return all(self.values[each].op == "const" and self.values[each].data is True for each in value.args[1:])

    def _called(self, number: int, value: Value, whole: bool) -> Path:
        callee = self.values[value.args[0]]
        if callee.op == "attr":
            owner = callee.args[0]
            if callee.data in _VIEWS:
                return self._of(owner, whole)
            if callee.data in _MEMBERS and self._asks_for_all(value):
                return (*self._of(owner, whole), f".{callee.data}()")
            if callee.data in _TAKING:
                return (*self._of(owner, True), ELEMENT) if whole else (number,)
        if callee.data in _PASSING and len(value.args) > 1:
            return self._of(value.args[-1] if callee.data == "filter" else value.args[1], whole)
        return (number,)


def paths_of(unit: Unit) -> Paths:
    known: Paths | None = unit.__dict__.get("_paths")
    if known is None:
        known = unit.__dict__["_paths"] = Paths(unit)
    return known


def holds(path: Path, inner: Path) -> bool:
    """Whether what lies at `inner` is an element of the container at `path`."""
    rest = inner[len(path) :]
    return bool(rest) and inner[: len(path)] == path and all(isinstance(s, str) and s[0] in "*#[" for s in rest)

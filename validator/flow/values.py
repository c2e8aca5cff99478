"""What a value may be: a set of objects, the causes by which it varies, and how it is placed.

Objects are tuples whose first element says what they are:

| object | meaning |
| --- | --- |
| `("const", type, value)` | a constant |
| `("unit", unit)` | a function of the project, `("class", ClassDef)` a class, `("module", Module)` a module |
| `("inst", ClassDef)` | an instance of just this class; `("self", ClassDef)`: of it or a class below |
| `("bound", unit, value)` | a method with its receiver |
| `("ext", dotted)` | something outside the project; `("made", dotted)`: what calling it gives |
| `("tuple", values)` | a tuple or list of known length; `("seq", value)`: of any length; `("dict", items, rest)` |
| `("group", axes)` | a process group; `("mesh", dimensions)`: a device mesh, dimensions None where not known |
| `("partial", callee, arguments, keywords)` | `functools.partial` |
| `("remote", value)` | a call that runs in another process; `("generator", unit, bindings)`: a generator at work |
| `("param", position)` | whatever the caller passes |
| `("top",)` | anything |

A value nests at most `_DEEP` deep and holds at most `_MANY` objects: what is more is anything. Both are closure
operators on sets, so the least solution does not depend on the order in which it is reached.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from validator.domains.placement import is_symbolic
from validator.domains.spmd import NONE, Causes

Obj = tuple[Any, ...]
_DEEP = 3
_MANY = 16
TOP: Obj = ("top",)
NOTHING: frozenset[Any] = frozenset()


class Val:
    """An abstract value. `v`, `n`, `p`: by which causes the value, its length, its presence vary between ranks.

    `state`: how a model, a parameter or a tensor may be placed, in the words of `validator.domains.placement`.
    `depth`: how deep it nests; `symbolic`: whether a parameter stands in it. There is one object for equal values.
    """

    __slots__ = ("depth", "n", "objs", "p", "state", "symbolic", "v")
    _all: ClassVar[dict[tuple[Any, ...], Val]] = {}
    objs: frozenset[Obj]
    v: Causes
    n: Causes
    p: Causes
    state: frozenset[str]
    depth: int
    symbolic: bool

    def __new__(
        cls, objs: frozenset[Obj] = NOTHING, v: Causes = NONE, n: Causes = NONE, p: Causes = NONE,
        state: frozenset[str] = NOTHING,
    ) -> Val:  # fmt: skip
        key = (objs, v, n, p, state)
        known = cls._all.get(key)
        if known is None:
            known = cls._all[key] = object.__new__(cls)
            known.objs, known.v, known.n, known.p, known.state = key
            parts = [part for o in objs for part in _parts(o)]
            known.depth = max((1 + part.depth for part in parts), default=0)
            known.symbolic = (
                any(o[0] == "param" for o in objs)
                or any(part.symbolic for part in parts)
                or any(c.kind == "param" for causes in (v, n, p) for c in causes)
                or is_symbolic(state)
            )
        return known

    def __repr__(self) -> str:
        rest = ", ".join(f"{name}={sorted(map(str, part))}" for name in "vnp" if (part := getattr(self, name)))
        return f"Val({', '.join(sorted(map(str, self.objs)))}{'; ' + rest if rest else ''}; {sorted(self.state)})"

    def placed(self, state: frozenset[str]) -> Val:
        """The same value, placed otherwise."""
        return Val(self.objs, self.v, self.n, self.p, state)

    @property
    def placements(self) -> frozenset[str]:
        """How the value and all that lies in it may be placed."""
        return self.state.union(*(part.placements for o in self.objs for part in _parts(o)))

    def of(self, kind: str) -> list[Obj]:
        return [o for o in self.objs if o[0] == kind]

    def constant(self) -> Any:
        """The one constant that the value is; None if it is not one (or None itself)."""
        if len(self.objs) == 1:
            (only,) = self.objs
            if only[0] == "const":
                return only[2]
        return None

    def is_const(self, value: object) -> bool:
        return self.objs == frozenset({const_obj(value)})

    def may_be_none(self) -> bool:
        return NONE_OBJ in self.objs

    def with_causes(self, v: Causes = NONE, n: Causes = NONE, p: Causes = NONE) -> Val:
        if v <= self.v and n <= self.n and p <= self.p:
            return self
        return Val(self.objs, self.v | v, self.n | n, self.p | p, self.state)


def const_obj(value: object) -> Obj:
    if isinstance(value, str | bytes) and len(value) > 200:
        return ("const", type(value).__name__, value[:200])
    return ("const", type(value).__name__, value)


NONE_OBJ = const_obj(None)


def const(value: object) -> Val:
    return Val(frozenset({const_obj(value)}))


def obj(*parts: Any) -> Val:
    return Val(frozenset({parts}))


def _parts(o: Obj) -> Iterable[Val]:
    """The values inside an object."""
    kind = o[0]
    if kind == "tuple":
        return o[1]  # type: ignore[no-any-return]
    if kind in ("seq", "remote"):
        return (o[1],)
    if kind == "bound":
        return (o[2],)
    if kind == "dict":
        return [*(v for _, v in o[1]), *([o[2]] if o[2] is not None else ())]
    if kind == "partial":
        return [o[1], *o[2], *(w for _, w in o[3])]
    return [v for _, v in o[2]] if kind == "generator" else ()


BOTTOM = Val()
UNKNOWN = Val(frozenset({TOP}), state=frozenset({"?"}))
_joins: dict[tuple[int, int], Val] = {}


def forget() -> None:
    """Forget the values of an earlier project."""
    Val._all.clear()
    _joins.clear()
    for value in (BOTTOM, UNKNOWN):
        Val._all[value.objs, value.v, value.n, value.p, value.state] = value


def join(values: Iterable[Val]) -> Val:
    """The least value above all of some."""
    result: Val | None = None
    for value in values:
        if result is None or result is value:
            result = value
        else:
            result = join2(result, value)
    return result if result is not None else BOTTOM


def join2(a: Val, b: Val) -> Val:
    if a is b or b is BOTTOM:
        return a
    if a is BOTTOM:
        return b
    known = _joins.get((id(a), id(b)))
    if known is None:
        objs = a.objs | b.objs
        if len(objs) > 1:
            objs = limited(objs)
        known = _joins[id(a), id(b)] = Val(objs, a.v | b.v, a.n | b.n, a.p | b.p, a.state | b.state)
    return known


def limited(objs: frozenset[Obj]) -> frozenset[Obj]:
    """Sequences are joined into one; too many objects are anything."""
    sequences = [o for o in objs if o[0] == "seq"]
    if len(sequences) > 1:
        merged = join(o[1] for o in sequences)
        objs = frozenset(o for o in objs if o[0] != "seq") | {("seq", merged)}
    if len(objs) > _MANY or TOP in objs and len(objs) > 8:
        return frozenset({TOP})
    return objs


def shallow(value: Val) -> Val:
    """A value as it may become a part of another: what nests too deep is anything."""
    if value.depth < _DEEP:
        return value
    objs = frozenset(TOP if any(part.depth + 1 >= _DEEP for part in _parts(o)) else o for o in value.objs)
    return Val(objs, value.v, value.n, value.p, value.state)


def elements(value: Val) -> Val:
    """What iterating gives, as far as the objects tell."""
    found = []
    for o in value.objs:
        if o[0] == "tuple":
            found += o[1]
        elif o[0] == "seq":
            found.append(o[1])
        elif o[0] == "dict":
            found += [const(key) for key, _ in o[1]]
        elif o[0] == "top":
            found.append(UNKNOWN)
    return join(found)


def sequence(value: Val) -> Val:
    return obj("seq", shallow(value))


def tuple_of(values: Iterable[Val]) -> Val:
    return obj("tuple", tuple(shallow(v) for v in values))

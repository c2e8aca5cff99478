"""What a value may be: a set of objects, the causes by which it varies, and how it is placed.

Objects are tuples whose first element says what they are:

| object | meaning |
| --- | --- |
| `("const", type, value)` | a constant |
| `("unit", unit)` | a function of the project, `("class", ClassDef)` a class, `("module", Module)` a module |
| `("inst", ClassDef)` | an instance of just this class; `("self", ClassDef)`: of it or a class below |
| `("bound", unit, value)` | a method with its receiver |
| `("making", ClassDef, name)` | a method that a library gives the class, which makes an object of it |
| `("ext", dotted)` | something outside the project; `("made", dotted)`: what calling it gives |
| `("made", dotted, unit)` | a namespace that the code of this unit makes, on which the program sets attributes |
| `("made", dotted, unit, "named")` | the same, made with attributes that the call names one by one: no options beside |
| `("tuple", values)` | a tuple or list of known length; `("seq", value)`: of any length |
| `("dict", items, rest)` | a dictionary; `rest`: what other keys have; None: none; `BOTTOM`: not known; `PLAIN`: data |
| `("group", axes, ranks, backend)` | a process group; `"several"`: one of several, `"every"`: these fill the job |
| `("mesh", dimensions, whole)` | a device mesh, dimensions None where not known; whether it holds all that were made |
| `("mesh", dimensions, whole, "flat")` | one whose dimensions have been made one |
| `("size", group)` | how many ranks a group (a value) has; `("counted", group)`: beside a list, that it is as long |
| `("beyond", group, k)` | `k` more than a group has ranks (k is not 0); `("miscounted", group, k)`: a list so long |
| `("several", True)` | a test that fails in a job of one process; False: that holds there, and only there |
| `("as long", number)` | beside a list: it has as many elements as a caller says (a value) |
| `("environment", name, among)` | the text of an environment variable that spells a rank |
| `("ordinal", among, axes)` | the number of a rank, among `job`, `group` or `node`; `job` of a group: of its member |
| `("unordered", why, value)` | beside a list: ranks go through it in orders of their own: `set`, `listing`, `keys` |
| `("tensor", shape, dtype)` | a tensor of known layout: sizes (or None), element type; `("str",)`: a text |
| `("partial", callee, arguments, keywords)` | `functools.partial` |
| `("remote", value)` | a call that runs in another process; `("generator", unit, bindings)`: a generator at work |
| `("generator", unit, bindings, "beside")` | beside a sequence: it runs when that is gone through (`enumerate`) |
| `("future", value)` | what another process or thread will give; `("handle", ClassDef)`: an object that lives there |
| `("keeping", table)` | beside what a library made: the arguments that it keeps, by attribute (a dictionary) |
| `("reader", classes)` | beside a parser, of which classes it makes objects |
| `("parser", calls, command)` | beside an object: a parser of command lines, by the calls that made it, outer first |
| `("namespace", parsers, prefix)` | beside an object: what they make of a command line; the part of one taken apart |
| `("section", calls, path)` | beside anything: a part of a configuration, by the calls that read it and its keys |
| `("param", position)` | whatever the caller passes; `("part", position, key)`: an element of that |
| `("top",)` | anything; with `("more",)`: so many that they are not told apart |

A value nests at most `_DEEP` deep and holds at most `_MANY` objects, and `_MANY_DEFINED` that the program itself
defines: what is more is anything. Both are closure operators on sets, so the least solution does not depend on the
order in which it is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any, ClassVar

from validator.domains.placement import UNPLACED, parameters
from validator.domains.spmd import NONE, UNIFORM, Causes, decided_by, on_ways, only, varying

Obj = tuple[Any, ...]
_COUNTING = ("size", "beyond", "counted", "miscounted", "as long")
COUNTED = ("counted", "miscounted", "as long")  # what stands beside a list whose length is told by a number of ranks
_DEEP = 3
_MANY = 16
_MANY_DEFINED = 64  # of what a program defines, as a registry of it has it: no operation makes more of these
_OF_DEFINITIONS = frozenset({"unit", "class", "module", "inst", "self", "bound"})
_SYMBOLIC = ("param", "part")
TOP: Obj = ("top",)
MORE: Obj = ("more",)  # there were too many: nothing that is added changes anything
_ANYTHING = frozenset({TOP, MORE})
NOTHING: frozenset[Any] = frozenset()
_numbers = count()
_single: dict[Obj, Val] = {}  # by object the value that is just this one
_HOLDING_ONE = frozenset({"seq", "remote", "future", "fetch", "reader", "namespace", "keeping", *_COUNTING})


class Val:
    """An abstract value. `v`, `n`, `p`: by which causes the value, its length, its presence vary between ranks.

    `state`: how a model, a parameter or a tensor may be placed, in the words of `validator.domains.placement`.
    `each`: the objects in an order that is the same in every run: what is asked first may matter to what is answered.
    `depth`: how deep it nests; `holes`: the parameters that stand in it; `number`: in the order in which values were
    made. There is one object for equal values.
    """

    __slots__ = ("depth", "each", "holes", "n", "number", "objs", "p", "state", "v")
    _all: ClassVar[dict[tuple[Any, ...], Val]] = {}
    _sets: ClassVar[dict[frozenset[Any], frozenset[Any]]] = {}  # one for equal ones: values differ in few of theirs
    objs: frozenset[Obj]
    v: Causes
    n: Causes
    p: Causes
    state: frozenset[str]
    depth: int
    holes: tuple[int, ...]
    number: int
    each: tuple[Obj, ...]

    def __new__(
        cls, objs: frozenset[Obj] = NOTHING, v: Causes = NONE, n: Causes = NONE, p: Causes = NONE,
        state: frozenset[str] = NOTHING,
    ) -> Val:  # fmt: skip
        key: tuple[Any, ...] = (objs, v, n, p, state)
        known = cls._all.get(key)
        if known is None:
            rows = [(o, part) for o in objs for part in parts_of(o)]
            depth = max((part.depth + _weight(o) for o, part in rows), default=0)
            if depth > _DEEP:
                known = cls._all[key] = cls(_cut(objs), v, n, p, state)
                return known
            key = tuple([cls._sets.setdefault(each, each) for each in key])
            known = cls._all[key] = object.__new__(cls)
            known.objs, known.v, known.n, known.p, known.state = key
            known.number = next(_numbers)
            known.each = tuple(objs) if len(objs) < 2 else tuple(sorted(objs, key=_place))
            known.depth = depth
            holes = {o[1] for o in objs if o[0] in _SYMBOLIC}.union(*(part.holes for _, part in rows if part.holes))
            holes.update(c.position for causes in (v, n, p) for c in causes if c.kind == "param")
            holes.update(parameters(state))
            known.holes = tuple(sorted(holes)) if holes else ()
        return known

    def __repr__(self) -> str:
        rest = ", ".join(f"{name}={sorted(map(str, part))}" for name in "vnp" if (part := getattr(self, name)))
        return f"Val({', '.join(sorted(map(str, self.objs)))}{'; ' + rest if rest else ''}; {sorted(self.state)})"

    @property
    def symbolic(self) -> bool:
        """Whether a parameter stands in it."""
        return bool(self.holes)

    def placed(self, state: frozenset[str]) -> Val:
        """The same value, placed otherwise."""
        return self if self is NOT_YET else Val(self.objs, self.v, self.n, self.p, state)

    @property
    def placements(self) -> frozenset[str]:
        """How the value and all that lies in it may be placed."""
        return self.state.union(*(part.placements for o in self.objs for part in parts_of(o)))

    @property
    def held(self) -> frozenset[str]:
        """How what lies in it may be placed: as it is itself, else as the elements of a list, the values of a table."""
        if self.state - UNPLACED:
            return self.state
        inside = [o[1] for o in self.objs if o[0] == "seq"] + [o[2] for o in self.objs if o[0] == "dict" and o[2]]
        return self.state.union(*(part.held for part in inside))

    def of(self, kind: str) -> list[Obj]:
        return [o for o in self.each if o[0] == kind]

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
        if v <= self.v and n <= self.n and p <= self.p or self is NOT_YET:
            return self
        return Val(self.objs, decided_by(self.v, v), decided_by(self.n, n), decided_by(self.p, p), self.state)

    def alone(self) -> Val:
        """The same in a job of one process, where nothing differs between ranks."""
        if not (self.v or self.n or self.p):
            return self
        return Val(self.objs, only(self.v, UNIFORM.kind), only(self.n, UNIFORM.kind), state=self.state)

    def is_only_alone(self, holds: bool) -> bool:
        """Whether a test, holding or not, is met by a job of one process alone."""
        rows = [o for o in self.each if o[0] != "const" or bool(o[2]) is holds]
        return bool(rows) and all(o == ("several", not holds) for o in rows)

    def without_lengths(self) -> Val:
        """The same, with nothing that its length or layout depends on."""
        return Val(self.objs, self.v, only(self.n, UNIFORM.kind), self.p, self.state) if self.n else self


def const_obj(value: object) -> Obj:
    if isinstance(value, str | bytes) and len(value) > 200:
        return ("const", type(value).__name__, value[:200])
    return ("const", type(value).__name__, value)


NONE_OBJ = const_obj(None)


def const(value: object) -> Val:
    return of_one(const_obj(value))


def obj(*parts: Any) -> Val:
    return of_one(parts)


def of_one(o: Obj) -> Val:
    """The value that is one object."""
    known = _single.get(o)
    if known is None:
        known = _single[o] = Val(frozenset({o}))
    return known


def group_of(axes: frozenset[str], ranks: object = None, backend: str | None = None) -> Val:
    """A process group; see the table of objects."""
    return Val(frozenset({("group", axes, ranks, backend)}))


def parts_of(o: Obj) -> Iterable[Val]:
    """The values inside an object."""
    kind = o[0]
    if kind == "tuple":
        return o[1]  # type: ignore[no-any-return]
    if kind in _HOLDING_ONE:
        return (o[1],)
    if kind == "group method":
        return (o[1],)
    if kind in ("bound", "unordered"):
        return (o[2],)
    if kind == "dict":
        return [*(v for _, v in o[1]), *([o[2]] if o[2] is not None else ())]
    if kind == "partial":
        return [o[1], *o[2], *(w for _, w in o[3])]
    return [v for _, v in o[2]] if kind == "generator" else ()


def _place(o: Obj) -> tuple[str, ...]:
    """Where an object stands among others: by what it is, then by names and places in the source."""
    return (o[0], *(str(part.number) if isinstance(part, Val) else _spelled(part) for part in o[1:]))


def _spelled(part: object) -> str:
    if isinstance(part, frozenset):
        return str(sorted(map(str, part)))
    if isinstance(part, tuple):
        return str([each.number if isinstance(each, Val) else _spelled(each) for each in part])
    place = getattr(part, "place", None)  # a unit
    return str(place) if place is not None else f"{getattr(part, 'path', '')} {part}"


def fetched(value: Val) -> Val:
    """What one has that waits for futures, alone or in lists: what is not known to be one stays as it is."""
    if not any(o[0] in ("future", "seq", "tuple") for o in value.objs):
        return value
    found = [fetched(o[1]) if o[0] == "future" else Val(frozenset({mapped(o, fetched)})) for o in value.each]
    return join([*found, Val(v=value.v, n=value.n, p=value.p, state=value.state)])


def bare(value: Val) -> Val:
    """The objects of a value, without by what it varies: in another process, or in a container among others, that says
    nothing of what is taken out."""
    if value is NOT_YET:
        return value
    return Val(frozenset(mapped(o, bare) for o in value.objs), state=value.state)


BOTTOM = Val()
NOT_YET = object.__new__(Val)  # below all values: nothing has come here yet
NOT_YET.objs, NOT_YET.v, NOT_YET.n, NOT_YET.p, NOT_YET.state = NOTHING, NONE, NONE, NONE, NOTHING
NOT_YET.depth, NOT_YET.holes, NOT_YET.number, NOT_YET.each = 0, (), next(_numbers), ()
STRING: Val = Val(frozenset({("str",)}))
UNKNOWN = Val(frozenset({TOP}), state=frozenset({"?"}))
PLAIN = Val(state=frozenset({"?"}))  # of no interest, but there


def mapped(o: Obj, change: Callable[[Val], Val]) -> Obj:
    """An object with each of the values inside it changed."""
    kind = o[0]
    if kind == "tuple":
        return ("tuple", tuple(change(v) for v in o[1]))
    if kind in _HOLDING_ONE:
        return (kind, change(o[1]), *o[2:])
    if kind == "group method":
        return (kind, change(o[1]), o[2])
    if kind in ("bound", "unordered"):
        return (kind, o[1], change(o[2]))
    if kind == "dict":
        return ("dict", tuple((k, change(v)) for k, v in o[1]), o[2] and change(o[2]))
    if kind == "partial":
        return ("partial", change(o[1]), tuple(change(v) for v in o[2]), tuple((k, change(w)) for k, w in o[3]))
    if kind == "generator":
        return ("generator", o[1], tuple((i, change(v)) for i, v in o[2]), *o[3:])
    return o


def _weight(o: Obj) -> int:
    """How much deeper a value nests by an object: what an object keeps under names is one thing, with its table."""
    return 0 if o[0] == "keeping" else 1


def _cut(objs: frozenset[Obj], deep: int = _DEEP) -> frozenset[Obj]:
    """Objects with anything in the place of what nests too deep in them: from below, so that what is put around such
    an object once more becomes the same again."""
    return frozenset(mapped(o, partial(_shallow, deep=deep - _weight(o))) for o in sorted(objs, key=_place))


def _shallow(value: Val, deep: int) -> Val:
    if value.depth <= deep:
        return value
    return Val(_cut(value.objs, deep), value.v, value.n, value.p, value.state) if deep else UNKNOWN


ANYTHING = Val(_ANYTHING, state=frozenset({"?"}))
_joins: dict[int, Val] = {}  # by the numbers of both
substitutions: dict[tuple[int, ...], Val] = {}  # by the numbers of a value and of what its parameters get


def forget() -> None:
    """Forget the values of an earlier project."""
    Val._all.clear()
    Val._sets.clear()
    _single.clear()
    _joins.clear()
    substitutions.clear()
    for value in (BOTTOM, UNKNOWN, ANYTHING, STRING):
        Val._all[value.objs, value.v, value.n, value.p, value.state] = value


def join(values: Iterable[Val]) -> Val:
    """The least value above all of some."""
    result: Val | None = None
    for value in values:
        result = value if result is None or result is value else join2(result, value)
    return result if result is not None else BOTTOM


_EXACT = frozenset({"ordinal", "tensor", "several", *_COUNTING})


def join_ways(values: Iterable[Val]) -> Val:
    """The join of what comes on several ways: what a number or list is, it is only if it is so on all of them."""
    several = list(values)
    ways = [way for way in several if way is not NOT_YET]
    if several and not ways:
        return NOT_YET
    result = join(ways)
    if any(not way.objs for way in ways) and any(o[0] in _EXACT for o in result.objs):
        kept = frozenset(o for o in result.objs if o[0] not in _EXACT)
        return Val(kept, result.v, result.n, result.p, result.state)
    return result


def in_parts(value: Val, ways: list[Val], causes: Causes) -> Val:
    """A tuple that is another one on some way: those of its parts that differ do so by what decides which way is
    taken."""
    rows = [o[1] for way in ways for o in way.each if o[0] == "tuple"]
    if value is NOT_YET or len(value.objs) != 1 or not value.of("tuple") or len(rows) != len(ways):
        return value
    (known,) = value.of("tuple")
    if any(len(way.objs) != 1 for way in ways) or any(len(row) != len(known[1]) for row in rows):
        return value
    columns = zip(known[1], zip(*rows, strict=True), strict=True)
    parts = tuple(part if len(set(column)) == 1 else part.with_causes(v=causes) for part, column in columns)
    return Val(frozenset({("tuple", parts)}), value.v, value.n, value.p, value.state)


def join_origins(values: Iterable[Val]) -> Val:
    """The join of what all stores, or all callers, bring: it may be that of another object, or of another call.

    Where some of them do not vary, nobody knows whether this object or this call is one of those. A constant is what
    stands there until something else is stored.
    """
    several = list(values)
    result = join_ways(several)
    told = [each.v for each in several if not each.objs or any(o[0] != "const" for o in each.objs)]
    v = on_ways(result.v, told)
    return result if v is result.v else Val(result.objs, v, result.n, result.p, result.state)


def join2(a: Val, b: Val) -> Val:
    if a is b or b is NOT_YET:
        return a
    if a is NOT_YET or a is BOTTOM:
        return b
    if b is BOTTOM:
        return a
    key = a.number << 32 | b.number
    known = _joins.get(key)
    if known is None:
        objs = a.objs | b.objs
        if len(objs) > 1:
            objs = limited(objs, dict.fromkeys((*a.each, *b.each)))
        known = _joins[key] = Val(objs, a.v | b.v, a.n | b.n, a.p | b.p, a.state | b.state)
    return known


def widened(old: Val, new: Val) -> Val:
    """The join of two approximations of one value, the later one last.

    What was equal on all ranks in the first rounds of a loop is not equal on some way of the program: a later
    approximation in which ranks differ replaces that.
    """
    joined = join2(old, new)
    if joined is new or joined is old:
        return joined
    facets = [_outgrown(a, b, c) for a, b, c in ((old.v, new.v, joined.v), (old.n, new.n, joined.n))]
    return Val(joined.objs, facets[0], facets[1], joined.p, joined.state)


def _outgrown(old: Causes, new: Causes, joined: Causes) -> Causes:
    return joined - {UNIFORM} if UNIFORM in old and UNIFORM not in new and varying(new) else joined


def limited(objs: frozenset[Obj], ordered: Iterable[Obj]) -> frozenset[Obj]:
    """One object for what differs only in its parts; too many objects are anything.

    Parsers are not counted: there are as many as programs, and what a function adds to all of them each of them has.

    Of what holds values (sequences, dictionaries, tuples of one length, futures, the bindings of one method) there is
    one object, whose parts are the joins of theirs: otherwise each combination of parts would be an object of its own,
    and a part that is known better later would stand beside what was known of it before.
    """
    groups: dict[tuple[Any, ...], list[Obj]] = {}
    for o in ordered:  # in the same order in every run, which numbers the values that are made
        kind = o[0]
        if kind in ("seq", "dict", "future", "remote", "fetch", "keeping"):
            groups.setdefault((kind,), []).append(o)
        elif kind == "tuple":
            groups.setdefault((kind, len(o[1])), []).append(o)
        elif kind == "generator":
            groups.setdefault((kind, o[1], *o[3:]), []).append(o)
        elif kind in ("bound", "unordered"):
            groups.setdefault((kind, o[1]), []).append(o)
        elif kind == "partial":
            groups.setdefault((kind, len(o[2]), *(name for name, _ in o[3])), []).append(o)
    for same in groups.values():
        if len(same) > 1:
            objs = (objs - frozenset(same)) | {_merged(same)}
    if len(objs) > _MANY:
        defined = sum(o[0] in _OF_DEFINITIONS for o in objs)
        counted = len(objs) - defined - sum(o[0] == "parser" for o in objs)
        if counted > _MANY or defined > _MANY_DEFINED:
            return _ANYTHING
    return _ANYTHING if MORE in objs else objs


def _merged(same: list[Obj]) -> Obj:
    """The object above several of one kind."""
    kind = same[0][0]
    if kind in _HOLDING_ONE:
        return (kind, join(o[1] for o in same))
    if kind == "tuple":
        return ("tuple", tuple(join(parts) for parts in zip(*(o[1] for o in same), strict=True)))
    if kind in ("bound", "unordered"):
        return (kind, same[0][1], join(o[2] for o in same))
    if kind == "partial":
        given = tuple(join(parts) for parts in zip(*(o[2] for o in same), strict=True))
        return ("partial", join(o[1] for o in same), given, _rows([o[3] for o in same]))
    if kind == "generator":
        return ("generator", same[0][1], _rows([o[2] for o in same]), *same[0][3:])
    rests = {o[2] for o in same}
    known = rests - {BOTTOM} or rests  # of what is only put into it another one tells what else it holds
    rest = None if known == {None} else join(each for each in known if each is not None)
    return ("dict", _rows([o[1] for o in same]), rest)


def _rows(several: list[tuple[tuple[Any, Val], ...]]) -> tuple[tuple[Any, Val], ...]:
    """Rows of keys and values joined by key."""
    found: dict[Any, Val] = {}
    for rows in several:
        for key, value in rows:
            found[key] = join2(found[key], value) if key in found else value
    return tuple(sorted(found.items(), key=lambda row: (str(type(row[0])), str(row[0]))))


def elements(value: Val) -> Val:
    """What iterating gives, as far as the objects tell."""
    if value is NOT_YET:
        return value
    found = []
    for o in value.each:
        if o[0] == "tuple":
            found += o[1]
        elif o[0] == "seq":
            found.append(o[1])
        elif o[0] == "dict":
            found += [const(key) for key, _ in o[1]]
        elif o[0] == "top":
            found.append(UNKNOWN)
        elif o[0] == "more":
            found.append(ANYTHING)
    return join(found)


def is_dictionary(value: Val) -> bool:
    """Whether a value is a dictionary of which the values are known."""
    return bool(value.objs) and all(o[0] == "dict" for o in value.objs)


def picked(value: Val, key: int | str) -> Val:
    """The element of a list or a dictionary that a number or a text names, as far as the objects tell."""
    found = []
    for o in value.each:
        if o[0] == "tuple" and isinstance(key, int):
            found += o[1][key : key + 1]
        elif o[0] == "seq" and isinstance(key, int):
            found.append(o[1])
        elif o[0] == "dict" and isinstance(key, str):
            found += [v for k, v in o[1] if k == key] or ([o[2]] if o[2] is not None else [])
        elif o[0] == "param":
            found.append(obj("part", o[1], key))
        elif o[0] in ("top", "part"):
            found.append(UNKNOWN)
        elif o[0] == "more":
            found.append(ANYTHING)
    return join(found)


MANY_KEYS = 64


def dictionary_of(parts: Iterable[tuple[object, Val]]) -> Val:
    """A dictionary of keys and values; where the key is None, of all that the value (a dictionary) holds.

    By what its values vary they say themselves: that one of them does says nothing of the others.
    """
    rows: dict[object, Val] = {}
    rest: Val | None = None
    for key, held in parts:
        if key is None:
            spread = [o for o in held.each if o[0] == "dict"]
            rows.update(row for o in spread for row in o[1])
            if not spread or len(spread) < len(held.objs) or any(o[2] is not None for o in spread):
                rest = UNKNOWN
        elif isinstance(key, str | int):
            rows[key] = held
        else:
            rest = join2(rest or BOTTOM, held)
    if len(rows) > MANY_KEYS:
        rest, rows = join([*rows.values(), rest or BOTTOM]), {}
    return Val(frozenset({("dict", tuple(sorted(rows.items(), key=lambda r: str(r[0]))), rest)}))


def entries(dictionary: Obj, key: Val) -> list[Val]:
    """What may stand under a key of a dictionary; of one that nobody knows, that some entries vary says nothing."""
    constants = [o[2] for o in key.each if o[0] == "const"]
    told = len(constants) == len(key.objs) > 0
    known = [value for name, value in dictionary[1] if not told or name in constants]
    found = known
    if known and not told:
        some = join(known)
        found = [some if some is NOT_YET else Val(some.objs, NONE, some.n, some.p, some.state)]
    return [*found, dictionary[2]] if dictionary[2] is not None and not (told and known) else found


def unordered(why: str, causes: Causes = NONE) -> Obj:
    """What stands beside a list through which ranks go in orders of their own."""
    return ("unordered", why, Val(v=causes))


def beside(value: Val, *kinds: str) -> frozenset[Obj]:
    """What is noted beside a list."""
    return frozenset(o for o in value.objs if o[0] in kinds)


def as_long_as(number: Val) -> frozenset[Obj]:
    """What stands beside a list that has as many elements as a number says."""
    lengths = {"size": "counted", "beyond": "miscounted"}
    known = frozenset((lengths[o[0]], *o[1:]) for o in number.each if o[0] in lengths)
    passed = frozenset(o for o in number.objs if o[0] == "param")
    return known | {("as long", Val(passed))} if passed else known


def holds_alike(value: Val, kinds: frozenset[str]) -> bool:
    """Whether a value that may be a thing of some kinds or a constant, or None, holds whichever of them it is.

    Constants alone do not say so: beside them there may be a comparison, which is no object.
    """
    found = [o for o in value.each if o != NONE_OBJ]
    return any(o[0] in kinds for o in found) and all(o[0] in kinds or o[0] == "const" and o[2] for o in found)


def is_text(value: Val) -> bool:
    """Whether something may be a text whose hash differs from process to process."""
    return any(o[0] == "str" or o[0] == "const" and o[1] == "str" for o in value.objs)


def sequence(value: Val) -> Val:
    return obj("seq", value)


def tuple_of(values: Iterable[Val]) -> Val:
    return obj("tuple", tuple(values))

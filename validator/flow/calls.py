"""What calls do: who runs with what, what comes back, which collectives are issued, which arguments change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from validator.definitions import ClassDef
from validator.domains.axes import LOCAL, SOME, WHOLE, Axes, axes_of, of_dimension, of_parallelism
from validator.domains.axes import UNKNOWN as UNKNOWN_AXIS
from validator.domains.placement import (
    DTENSOR,
    PLAIN,
    SHARDING,
    UNPLACED,
    WRAPPING,
    after,
    certainly,
    inherited,
    may,
    mostly,
    over,
    spanned,
    steps_since,
)  # fmt: skip
from validator.domains.spmd import (
    NONE,
    UNIFORM,
    Cause,
    Causes,
    between,
    combined,
    data,
    equalled,
    held,
    only,
    rank,
    unsure,
    varying,
)
from validator.flow import texts
from validator.flow.annotations import declared, objects_of
from validator.flow.attributes import NOBODY, attribute, described, is_unknown
from validator.flow.callgraph import dataclass_readers as readers
from validator.flow.callgraph import sections
from validator.flow.containers import GROWING
from validator.flow.program.answers import Operation, Site, Target
from validator.flow.program.unit import Unit
from validator.flow.queries import tensors
from validator.flow.substitution import instantiated
from validator.flow.values import (
    ANYTHING,
    BOTTOM,
    COUNTED,
    MORE,
    NONE_OBJ,
    NOT_YET,
    STRING,
    TOP,
    UNKNOWN,
    Obj,
    Val,
    as_long_as,
    bare,
    beside,
    const,
    dictionary_of,
    elements,
    entries,
    fetched,
    group_of,
    is_text,
    join,
    join2,
    mapped,
    obj,
    of_one,
    picked,
    sequence,
    tuple_of,
    unordered,
)  # fmt: skip
from validator.ir import Value as Instruction
from validator.models import Row

if TYPE_CHECKING:
    from validator.flow.transfer import Evaluation

Arguments = list[tuple[str | None, Val]]
Spreads = Mapping[str | None, Val]
NO_SPREADS: Spreads = {}
_SPREADS = ("*", "**")
_LAZY = frozenset(
    {"iter", "enumerate", "zip", "map", "filter", "reversed", "itertools.islice", "itertools.chain", "tqdm.tqdm"}
)
# Builtins that look at an object without going through what is in it.
_LOOKING = frozenset({
    "len", "str", "repr", "hash", "bool", "print", "isinstance", "issubclass", "type", "id", "callable", "vars", "dir",
})  # fmt: skip
_GATHERING = frozenset({
    "all_reduce", "all_gather", "broadcast", "reduce", "gather", "all_gather_object", "broadcast_object_list",
    "gather_object", "all_gather_into_tensor", "gather_for_metrics",
})  # fmt: skip
_PLACING = frozenset({"device", "dtype", "group", "requires_grad", "pin_memory", "layout", "non_blocking"})
_SCALARS = frozenset({"int", "float", "bool", "sum", "min", "max", "any", "all", "abs", "str"})
_NAMED = frozenset({"named_parameters", "named_buffers", "named_modules", "named_children"})
_WITHOUT = frozenset({"torch.no_grad", "torch.inference_mode"})  # gradients
_SETS = frozenset({"set", "frozenset"})
_OUTSIDE = frozenset({"ext", "made", "top", "more", "const"})
_UNTOLD = frozenset({"top", "param", "part"})  # what says nothing of what is called
# Builtins that make containers of what they are given; methods that give parts of what they are called on.
_CONTAINING = _SETS | {
    "list", "tuple", "sorted", "reversed", "iter", "enumerate", "zip", "map", "filter", "dict",
}  # fmt: skip
_PARTING = frozenset({
    "chunk", "split", "tolist", "items", "keys", "values", "unbind", "copy", "islice", "chain", "deepcopy", "get",
    "tqdm",
})  # fmt: skip
_ASKING_OBJECTS = {
    "len": "__len__", "next": "__next__", "str": "__str__", "repr": "__repr__", "hash": "__hash__", "bool": "__bool__",
    "reversed": "__reversed__",
}  # fmt: skip
_OF_TORCH = Row("", draws="torch")  # what draws from PyTorch's own generator
_SELECTING = frozenset({"nonzero", "unique", "masked_select", "argwhere", "unique_consecutive"})


def _over_rows(given: Arguments) -> bool:
    """Whether a reduction goes over the first dimension: how many rows each rank has no longer shows."""
    return any(name in (None, "dim", "axis") and value.constant() == 0 for name, value in given[:1])


def _is_passed_on(value: Val) -> bool:
    """Whether a list or a dictionary of arguments is what the caller passed."""
    return bool(value.objs) and all(o[0] == "param" for o in value.objs)


def _handed_on(spreads: Spreads, index: int, name: str, kind: str) -> list[Val]:
    """What a parameter may get of arguments that are handed on: by its place among them, by its name."""
    by_place = [picked(spreads["*"], index)] if "*" in spreads and index >= 0 and kind != "kw" else []
    by_name = [picked(spreads["**"], name)] if "**" in spreads and kind != "pos" else []
    return by_place + by_name


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


class Calling:
    """The calls of one unit."""

    def __init__(self, at: Evaluation) -> None:
        self.at = at
        self.flow = at.flow
        self.models = at.flow.models
        self._certain = True  # whether what is called is known for certain
        self._receiver = BOTTOM  # of the call in hand

    def call(self, number: int, value: Instruction) -> Val:
        if number in self.at.unit.wraps[1]:
            return BOTTOM  # whoever calls this unit calls what it wraps
        callee = self.at.operand(value.args[0])
        shape = value.data.names
        arguments: Arguments = list(zip(shape, self.at.arguments(value), strict=True))
        instruction = self.at.code.values[value.args[0]]
        name = instruction.data if instruction.op in ("attr", "name") else ""
        receiver = self.at.known(instruction.args[0], value.block) if instruction.op == "attr" else BOTTOM
        self._receiver = receiver
        objs = callee.each
        kinds = {o[0] for o in objs}
        self._certain = "top" not in kinds
        found = _alternatives([self.apply(number, o, arguments, name) for o in objs])
        self._certain = True
        self._chosen(number, callee)
        if not objs or not kinds.isdisjoint(_UNTOLD):
            found.append(self._unknown(number, value, name, receiver, arguments))
        self._on_state(number, value, name, callee, receiver)
        result = join([*found, ANYTHING] if MORE in callee.objs else found)
        if instruction.op == "attr":
            if grown := self._grown(name, arguments):
                self.at.after[number, -1] = grown
            elif worked := self._in_place(name, receiver, arguments):
                self.at.after[number, -1] = worked
                result = worked(result)
        if shape == ("@",) and kinds <= _OUTSIDE:
            return arguments[0][1]  # `@torch.no_grad()`: a decorator of a library leaves the function what it is
        return self._placed(number, value, name, receiver, arguments, result)

    def _chosen(self, number: int, callee: Val) -> None:
        """Ranks may choose differently whom they call."""
        site = self.at.sites.get(number)
        if site is None or not callee.v:
            return
        causes = only(callee.v, "rank", "data", "param", "member")
        causes = frozenset(c for c in causes if c.sure or c.kind != "data")  # a table is looked into alike, mostly
        others = any(o[0] not in ("bound", "unit", "class", "partial") for o in callee.each)
        if causes and len(site.targets) + others > 1:
            self.at.sites[number] = site._replace(chosen=site.chosen | causes, others=others)

    # -- by what is called ---------------------------------------------------------------------------------

    def apply(self, number: int, o: Obj, arguments: Arguments, name: str = "") -> Val:
        """What calling one object gives; what runs is noted at the site."""
        kind = o[0]
        if kind == "unit":
            return self._call_unit(number, o[1], [], arguments)
        if kind == "bound":
            return self._call_unit(number, o[1], [o[2]], arguments)
        if kind == "class":
            callee = self.at.code.values[number].args[0]
            made = self._construct(number, o[1], arguments)
            return obj("self", o[1]).placed(made.state) if self.at.unit.is_receiver(callee) else made  # `cls(…)`
        if kind in ("inst", "self"):
            return self._call_object(number, o, arguments)
        if kind == "ext":
            return self._external(number, o[1], arguments)
        if kind == "made":
            return self._call_made(number, o, arguments)
        if kind == "keeping":  # a wrapper calls what it wraps
            return join(self.apply(number, each, arguments) for each in picked(o[1], "module").each)
        if kind == "partial":
            positional = [(None, v) for v in o[2]]
            return join(self.apply(number, c, [*positional, *arguments, *o[3]]) for c in o[1].each)
        if kind == "remote":
            return self._remote(number, o[1], arguments)
        if kind == "fetch":
            return o[1]  # type: ignore[no-any-return]
        if kind == "param":
            return self._of_passed(o[1], arguments)
        if kind == "mesh method":
            return self._mesh_method(o, arguments)
        if kind == "group method":
            return _of_group(o[1], o[2])
        if kind == "seq":  # of modules: no list can be called
            return join(self.apply(number, each, arguments) for each in o[1].each)
        return BOTTOM if kind in ("top", "const") else UNKNOWN

    def _of_passed(self, position: int, arguments: Arguments) -> Val:
        """What the functions give that callers pass for a parameter."""
        passed: Val = self.flow.get("argument", self.at.unit, position)
        functions = [o[1] for o in passed.of("unit") if not o[1].code.is_generator]
        given = [value for name, value in arguments if name is None]
        found = []
        for unit in functions if len(given) == len(arguments) else ():
            bindings = defaultdict(lambda: UNKNOWN, self.bind(unit, given, {}))
            found.append(instantiated(self.flow.part(("unit", unit), "returned"), bindings.__getitem__))
        return join(found)

    def _call_unit(self, number: int, unit: Unit, first: list[Val], arguments: Arguments) -> Val:
        positional, keywords = [*first], {}
        spreads: Spreads = {n: value for n, value in arguments if n in _SPREADS and _is_passed_on(value)}
        for name, value in arguments:
            if name in spreads:
                continue
            if name is None or name == "@":
                positional.append(value)
            elif name == "*":
                spread = [o for o in value.each if o[0] == "tuple"]
                if len(spread) == 1 and len(value.objs) == 1:
                    positional += spread[0][1]
                else:
                    rest = elements(value)
                    some = Val(rest.objs, state=rest.state) if rest.objs else UNKNOWN  # nobody knows which goes where
                    positional += [some] * max(0, len(unit.code.params) - len(positional))
            elif name == "**":
                for o in value.each:
                    if o[0] == "dict":
                        keywords.update({k: v for k, v in o[1] if isinstance(k, str)})
                    if o[0] != "dict" or o[2] is not None:
                        rest = o[2] if o[0] == "dict" else UNKNOWN
                        keywords["**"] = join2(keywords.get("**", BOTTOM), rest)
            else:
                keywords[name] = value
        return self.run(number, unit, positional, keywords, spreads, self._before_own(number, len(first), positional))

    def _before_own(self, number: int, first: int, positional: list[Val]) -> int:
        """How many parameters are filled before what the call passes: by the receiver, or by a `partial`; below 0
        where what is called is passed itself (`submit(function, argument)`)."""
        instruction = self.at.code.values[number]
        names = instruction.data.names if instruction.op == "call" else ()
        return first if "*" in names else len(positional) - sum(name in (None, "@") for name in names)

    def run(
        self, number: int, unit: Unit, positional: list[Val], keywords: dict[str, Val], spreads: Spreads = NO_SPREADS,
        shift: int = 1,
    ) -> Val:  # fmt: skip
        """Run a unit of the project at a site; what it returns, in terms of this unit. `shift`: how many parameters are
        before the first argument of the call."""
        bindings = self.bind(unit, positional, keywords, spreads)
        lazy = unit.code.is_generator
        if lazy:
            held = tuple(sorted(((i, v) for i, v in bindings.items()), key=lambda r: r[0]))
            return Val(frozenset({("generator", unit, held)}))
        self._note(number, Site((Target(unit, tuple(sorted(bindings.items(), key=lambda r: r[0]))),), ()))
        return self._returned(number, unit, bindings, shift)

    def _returned(self, number: int, unit: Unit, bindings: dict[int, Val], shift: int) -> Val:
        result = self.flow.get("unit", unit)

        def argument(position: int) -> Val:
            given = bindings.get(position)
            if given is not None:
                return given
            return self.flow.parameters.default(unit, unit.code.params[position][0])

        self._changed_arguments(number, unit, argument, shift)
        self._wrapped_by(number, unit, result.returned, shift)
        returned = self._as_passed(unit, result.returned, argument)
        value = instantiated(readers.made_by(returned, self.at.unit, number, unit), argument)
        if (rebuilt := readers.rebuilt(self.flow, unit)) is not None:
            value = join2(value, readers.taken_apart(argument(rebuilt)))
        if unit.method is not None and unit.method.facts.returns_annotation and is_unknown(value):
            said = declared(self.flow.project, unit.method, unit.method.facts.returns_annotation)
            if objects_of(said):
                return Val(said.objs, value.v, value.n, value.p, value.state)
        return value

    def _as_passed(self, unit: Unit, back: Val, argument: Callable[[int], Val]) -> Val:
        """What a unit gives back that only hands on parameters: of one that is passed something known it is that, not
        whatever the parameter is declared to be."""
        gone: set[Obj] = set()
        for position, name in unit.handed_back or ():
            given = argument(position)
            if not given.objs or given is NOT_YET or TOP in given.objs:
                return back
            gone |= objects_of(self.flow.parameters.declared(unit, name))
        return Val(back.objs - gone, back.v, back.n, back.p, back.state) if gone & back.objs else back

    def _changed_arguments(self, number: int, unit: Unit, argument: Callable[[int], Val], shift: int) -> None:
        instruction = self.at.code.values[number]
        if instruction.op != "call":
            return
        names = [n if kind not in _SPREADS else None for n, kind in unit.code.params]  # of `*args` each is a part
        for place, keyword in enumerate(instruction.data.names):
            position = place + shift if keyword is None else names.index(keyword) if keyword in names else -1
            known = 0 <= position < len(names) and names[position] is not None
            out = self.flow.part(("unit", unit), ("outs", position)) if known else ()
            if out:
                self.at.steps[number, place] = steps_since(out.state, position)
                self.at.after[number, place] = partial(_replaced, now=instantiated(out, argument))

    def _wrapped_by(self, number: int, unit: Unit, returned: Val, shift: int) -> None:
        """The arguments that a unit returns placed otherwise (`model = strategy.shard(model)`)."""
        instruction = self.at.code.values[number]
        placements = returned.placements
        if instruction.op != "call" or not any(each[0] == "$" and "+" in each for each in placements):
            return
        for position, (name, kind) in enumerate(unit.code.params):
            steps = steps_since(placements, position) if kind not in _SPREADS else ()
            for place, keyword in enumerate(instruction.data.names if steps else ()):
                if (keyword is None and place + shift == position) or keyword == name:
                    self.at.wrapped[number, place] = steps

    def bind(
        self, unit: Unit, positional: list[Val], keywords: dict[str, Val], spreads: Spreads = NO_SPREADS
    ) -> dict[int, Val]:
        """Which parameter gets what. `spreads`: what is handed on as it came (`*args`, `**kwargs`)."""
        bindings: dict[int, Val] = {}
        given = list(positional)
        left = dict(keywords)
        rest = left.pop("**", None)
        for position, (name, kind) in enumerate(unit.code.params):
            if kind in ("pos", "any", "kw"):
                if given and kind != "kw":
                    bindings[position] = given.pop(0)
                elif name in left and kind != "pos":
                    bindings[position] = left.pop(name)
                elif spreads and (parts := _handed_on(spreads, position - len(positional), name, kind)):
                    bindings[position] = join([*parts, self.flow.parameters.default(unit, name)])
            elif kind == "*":
                bindings[position] = tuple_of(given) if len(given) < 12 else sequence(join(given))
                if "*" in spreads:  # all of it where nothing stands before it, else some end of it
                    bindings[position] = spreads["*"] if position == len(positional) else sequence(UNKNOWN)
                given = []
            else:
                rows = tuple(sorted((k, v) for k, v in left.items())) if _sortable(left) else ()
                if "**" in spreads and any(each not in ("*", "**", "pos") for _, each in unit.code.params):
                    rest = UNKNOWN  # which of the keys other parameters take is not told apart
                named = Val(frozenset({("dict", rows, rest)}))
                bindings[position] = named if rest is not None else join2(named, spreads.get("**", BOTTOM))
                left = {}
        return bindings

    def _construct(self, number: int, cls: ClassDef, arguments: Arguments) -> Val:
        made = obj("self" if cls.is_abstract and cls.descendants() else "inst", cls)
        if any(self.models.named(base) == "torch.nn.Module" for base in cls.external_bases):
            made = made.placed(PLAIN)
        if any(self._is_parser(base) for base in cls.external_bases):
            made = join2(made, readers.parser(self.at.unit, number, beside=False))
        init = cls.find("__init__")
        unit = self.flow.unit_of(init) if init is not None else None
        if unit is not None:
            self._call_unit(number, unit, [made], arguments)
        else:
            rows = self.flow.fields_of(cls)
            given = []
            for position, (name, value) in enumerate(arguments):
                if name is None and position < len(rows):
                    given.append((rows[position], value))
                elif name not in (None, "*", "**"):
                    given.append((str(name), value))
            self.at.made[number] = {cls: tuple(given)}
            after = cls.find("__post_init__")
            if after is not None and (unit := self.flow.unit_of(after)) is not None:
                self.run(number, unit, [made], {})
        return join2(made, UNKNOWN) if self._gives_another(cls) else made

    def _gives_another(self, cls: ClassDef) -> bool:
        """Whether the `__new__` of a class gives what some other call gives: no object of the class, perhaps."""
        method = cls.find("__new__")
        unit = self.flow.unit_of(method) if method is not None else None
        if unit is None:
            return False
        values = unit.code.values
        given = [values[unit.root(n)] for n in unit.code.returned]
        callees = [values[value.args[0]] for value in given if value.op == "call"]
        return any(callee.op != "attr" or callee.data != "__new__" for callee in callees)

    def _is_parser(self, base: str) -> bool:
        """Whether objects of a class of a library are parsers of command lines."""
        return self.models.method(base, "parse_args") is not None

    def _call_object(self, number: int, o: Obj, arguments: Arguments) -> Val:
        cls: ClassDef = o[1]
        receiver = of_one(o)
        names = ("__call__", "forward") if "__call__" not in cls.methods else ("__call__",)
        for name in names:
            if (method := cls.find(name)) is not None and (unit := self.flow.unit_of(method)) is not None:
                return self._call_unit(number, unit, [receiver], arguments)
        return UNKNOWN

    def _call_made(self, number: int, o: Obj, arguments: Arguments) -> Val:
        row = self.models.method(o[1], "__call__")
        if row is not None:
            return self._row(number, row, arguments, BOTTOM)
        return Val(v=self._derived(arguments), state=frozenset({"?"}))

    def _remote(self, number: int, inner: Val, arguments: Arguments) -> Val:
        found = []
        for o in inner.each:
            if o[0] == "class":
                self._construct(number, o[1], arguments)
                found.append(obj("handle", o[1]))
            else:
                found.append(obj("future", bare(self.apply(number, o, arguments))))
        site = self.at.sites.get(number)
        if site is not None:
            self.at.sites[number] = site._replace(away=True)
        return join(found)

    def _mesh_method(self, o: Obj, arguments: Arguments) -> Val:
        dimensions, name = o[1], o[2]
        given = arguments[0][1].constant() if arguments else None
        dimensions, whole = dimensions
        if whole and dimensions is not None and (not arguments or dimensions == (given,)):
            axes: Axes = WHOLE
        elif isinstance(given, str):
            axes = frozenset({of_dimension(given)})
        elif arguments or dimensions is None:
            axes = SOME
        else:
            axes = frozenset(of_dimension(d) for d in dimensions)
        if name == "size" and dimensions is not None:
            which = (
                dimensions[given] if isinstance(given, int) and -len(dimensions) <= given < len(dimensions) else None
            )
            if which is not None:
                axes = frozenset({of_dimension(which)})
            return obj("size", group_of(axes)) if axes != SOME else Val()
        if name == "get_group":
            several = whole is not None and axes not in (WHOLE, SOME)
            return group_of(axes, "several" if several else None)
        if name in ("get_local_rank", "get_coordinate"):
            return Val(v=rank(axes if axes != SOME else WHOLE, sure=axes != SOME))
        if name == "get_rank":
            return Val(v=rank(WHOLE))
        if name == "_flatten":
            return obj("mesh", dimensions, whole)
        return Val()

    # -- libraries -----------------------------------------------------------------------------------------

    def _external(self, number: int, dotted: str, arguments: Arguments) -> Val:
        if dotted in ("functools.partial", "partial") and arguments:
            (_, callee), *rest = arguments
            positional = tuple(v for n, v in rest if n is None)
            keywords = tuple((n, v) for n, v in rest if n not in (None, "*", "**"))
            return obj("partial", callee, positional, keywords)
        if arguments and self._decorates(number):
            return self._wrapped(dotted, arguments[0][1])
        if dotted == "dict" and arguments and all(n not in (None, "*") or v.of("dict") for n, v in arguments):
            return dictionary_of((None if n in (None, "**") else n, v) for n, v in arguments)
        if dotted == "dataclasses.asdict" and arguments and (shown := self._as_dictionary(number, arguments[0][1])):
            return shown
        if dotted == "~receiver":
            return self._receiver
        if dotted in ("functools.wraps", "~itself"):
            return obj("ext", "~itself") if dotted != "~itself" or not arguments else arguments[0][1]
        if dotted == "super":
            named = [o[1] for o in arguments[0][1].each if o[0] == "class"] if len(arguments) > 1 else []
            cls = named[0] if len(named) == 1 else self._own_class() if not arguments else None  # `super(C)`: nobody's
            return obj("super", cls) if cls is not None else UNKNOWN
        if dotted in ("getattr", "hasattr") and len(arguments) > 1:
            return self._getattr(number, dotted, arguments)
        if dotted in ("os.getenv", "os.environ.get") and arguments:
            default = next((value for name, value in arguments[1:] if name in (None, "default")), const(None))
            return self.at.environment(arguments[0][1].constant(), default)
        for state in self.models.sets.get(dotted, ()):
            self.at.switch(number, state)
        if dotted in _ASKING_OBJECTS and arguments:
            self._asks_object(number, arguments[0][1], _ASKING_OBJECTS[dotted])
        row = self.models.call(dotted)
        if row is not None:
            return self._row(number, row, arguments, BOTTOM)
        owner, _, method = dotted.rpartition(".")
        row = self.models.method(owner, method)
        if row is not None:
            return self._row(number, row, arguments, BOTTOM)
        if self.models.library(owner).generates:
            return Val(v=held(self._receiver.v | frozenset().union(*(v.v for _, v in arguments))))
        return self._plain(number, dotted, arguments)

    def _asks_object(self, number: int, value: Val, name: str) -> None:
        """The language asks an object by a method that the source does not name: `len(sampler)` runs `__len__`."""
        for o in value.each:
            if (unit := self.method_of(o, name)) is not None:
                self.run(number, unit, [of_one(o)], {})

    def method_of(self, o: Obj, name: str) -> Unit | None:
        """The method of that name of an object of the project."""
        method = o[1].find(name) if o[0] in ("inst", "self") else None
        return self.flow.unit_of(method) if method is not None else None

    def _plain(self, number: int, dotted: str, arguments: Arguments) -> Val:
        """A call of a library that no row describes: a function of its arguments, or nobody knows."""
        named = self.models.named(dotted)
        last = named.rpartition(".")[2]
        if last in _NAMED:
            return sequence(tuple_of([STRING, UNKNOWN]))
        if not arguments and last in self.models.ranks["methods"] | self.models.ranks["names"]:
            return Val(v=rank({LOCAL} if LOCAL in last else axes_of(last) - WHOLE or WHOLE, sure=False))
        if named not in _LAZY | _LOOKING and not named.startswith("torch.utils.data"):
            for _, value in arguments:
                self.drain(number, value)
        if (
            any(named.startswith(m + ".") for m in self.models.making)
            and last[:1].isupper()
            and last not in ("Parameter", "Buffer")
        ):
            return Val(frozenset({("made", named)}), state=PLAIN)
        if named in self.models.same or any(named.startswith(m + ".") for m in self.models.same_modules):
            return self._same(last, arguments, BOTTOM, named)
        return Val(frozenset({("made", NOBODY if named.startswith(f"{NOBODY}.") else named)}), state=frozenset({"?"}))

    def _same(self, name: str, arguments: Arguments, receiver: Val, dotted: str = "") -> Val:
        """The result of a function of its arguments."""
        # where a tensor lies is not what it holds
        holding = arguments if name not in self.models.tensors["moves"] else []
        parts = [receiver, *(v for keyword, v in holding if keyword not in _PLACING)]
        spread = (causes for keyword, each in holding if keyword == "**" for causes in _values_of(each))
        v = combined(*(p.v for p in parts), *spread)
        state = receiver.state.union(*(p.placements - UNPLACED for p in parts[1:]))
        if name in ("dim", "ndimension"):
            return Val()
        if dotted == "len" or name in ("numel", "size") or (name == "len" and not dotted):
            inner = arguments[0][1] if arguments and not receiver.objs and dotted else receiver
            ranks = beside(arguments[0][1], "counted") if dotted == "len" and arguments else NONE
            return Val(
                frozenset(("size", o[1]) for o in ranks),
                (arguments[0][1] if dotted == "len" and arguments else inner).n,
            )
        n: Causes = NONE
        settled = False
        objs: frozenset[Obj] = frozenset()
        if dotted in _CONTAINING or name in _PARTING:
            n = frozenset().union(*(p.n for p in parts))
            objs = self._iterates(dotted or name, arguments, receiver)
        if dotted == "range":
            sizes = as_long_as(arguments[0][1]) if len(arguments) == 1 else frozenset()
            bounds = [given.v for _, given in arguments]
            # `range(rank, count, size)` is as long on all ranks where the count can be shared out evenly
            n = between(*bounds) if len(bounds) == 2 else v if len(bounds) < 3 else unsure(v)
            held = v if len(bounds) == 2 else NONE  # what stands in it, though it be as long
            return Val(sequence(_index(sizes)).objs | sizes, held, n)
        if dotted in ("int", "str") and len(arguments) == 1:
            objs = beside(arguments[0][1], "ordinal", "size") | _numbered(arguments[0][1])
        if name == "chunk":  # how many there are does not depend on what they hold
            n |= combined(*(p.v for p in parts[2 if dotted else 1 :]))
        if not dotted or dotted.startswith("torch."):
            tensor = receiver if not dotted else arguments[0][1] if arguments else BOTTOM
            given = arguments if not dotted else arguments[1:]
            objs |= tensors.changed(name, given, tensor, self.models)
            table = self.models.tensors
            settled = tensors.settled(tensor, objs)
            if name in table["keep"] or name in table["casts"] or name in table["shaped"] or name in ("tolist", "to"):
                n |= frozenset().union(*(p.n for p in parts))
                if name in ("to", "type"):
                    n |= frozenset().union(*(w.v for _, w in given if tensors.names_type(w, self.models)))
                if tensors.is_literal(objs) or settled:
                    n = NONE
            over = given[1:] if name == "norm" and given and given[0][0] is None else given  # behind the order
            if name in table["reducing"] and all(keyword in ("dtype", "out", "p") for keyword, _ in over):
                return Val(objs, v, NONE, NONE, state)
            if name in table["reducing"] and _over_rows(given):
                return Val(objs, v, only(frozenset().union(*(p.n for p in parts)), "rank", "member"), NONE, state)
            if name in table["limited"]:
                n |= tensor.n | frozenset().union(*(w.v for _, w in given))
            if name in table["counting"]:
                fixed = any(k == "minlength" for k, _ in arguments)
                n |= NONE if fixed else v | tensor.n
        if not n and dotted not in _SCALARS and not settled and not tensors.is_literal(objs):
            n = combined(*(p.n for p in parts))
        if name in _SELECTING:
            base = join(parts)
            n |= base.v | (data(sure=False) if UNIFORM not in base.v else NONE)
        if dotted == "filter":
            n |= v
        if name in self.models.tensors["testing"] and UNIFORM not in v:
            v |= data(sure=False)  # what overflows is computed of a batch: each rank has its own
        if dotted == "hash" and is_text(parts[-1]):
            v |= data(sure=False)  # of a text each process has one of its own, where PYTHONHASHSEED is not set
        p = arguments[0][1].p | unsure(receiver.v) if name == "get" and arguments else NONE
        return Val(objs, v, n, p, state)

    def _as_dictionary(self, number: int, value: Val) -> Val | None:
        """The fields of an object of one data class as a dictionary; None of anything else."""
        held = self.flow.close(value, self.at.unit) if value.symbolic else value
        classes = {o[1] for o in held.each if o[0] in ("inst", "self")}
        if len(classes) != 1 or len(held.objs) != 1 or not (fields := self.flow.fields_of(next(iter(classes)))):
            return None
        return dictionary_of((name, attribute(self.at, number, held, name)) for name in fields)

    def _iterates(self, name: str, arguments: Arguments, receiver: Val) -> frozenset[Obj]:
        values = [v for n, v in arguments if n is None]
        if name in ("zip",):
            spread = any(n == "*" for n, _ in arguments)  # how many there are is not known
            return sequence(UNKNOWN if spread else tuple_of(self.at.element(v) for v in values)).objs
        if name == "enumerate" and values:
            index = _index(beside(values[0], "counted"))
            return sequence(tuple_of([index, self.at.element(values[0])])).objs | frozenset(
                o for o in values[0].each if o[0] in ("generator", "unordered")
            )
        if (
            name in ("list", "tuple", "sorted", "set", "frozenset", "reversed", "iter", "islice", "itertools.islice")
            and values
        ):
            kept = frozenset(
                o for o in values[-1 if name == "filter" else 0].objs if o[0] == "generator" and name in _LAZY
            )
            if name in ("list", "tuple") and len(values[0].objs) == 1 and values[0].of("tuple"):
                return values[0].objs
            element = self.at.element(values[0])
            return sequence(element).objs | kept | self._order(name, values[0], element)
        if name in ("copy", "copy.copy", "copy.deepcopy", "deepcopy", "tqdm", "tqdm.tqdm", "tqdm.auto.tqdm"):
            return values[0].objs if values else receiver.objs
        if name in ("values", "items"):
            rows = receiver.of("dict")
            found = [v for o in rows for v in (*(each for _, each in o[1]), o[2]) if v is not None]
            inner = join(found) if found else UNKNOWN
            keys = self.at.element(receiver) if receiver.of("seq") else UNKNOWN
            held = sequence(inner if name == "values" else tuple_of([keys, inner])).objs
            return held | beside(receiver, "unordered")
        if name == "keys":
            held = (
                sequence(self.at.element(receiver)).objs if receiver.of("seq") or receiver.of("dict") else frozenset()
            )
            return held | beside(receiver, "unordered")
        if name == "get":
            found = [v for o in receiver.of("dict") for v in entries(o, values[0])] if values else []
            return join([*found, *(values[1:2] or [const(None)])]).objs if found else frozenset()
        if name in ("chunk", "split", "unbind", "tolist", "itertools.chain"):
            return sequence(UNKNOWN).objs
        return frozenset()

    @staticmethod
    def _order(name: str, given: Val, element: Val) -> frozenset[Obj]:
        """What is known of the order and the length of a list that is made of another."""
        if name == "sorted":
            return beside(given, *COUNTED)
        if name in _SETS:
            return frozenset({unordered("set")}) if is_text(element) else frozenset()
        return beside(given, "unordered", *(COUNTED if name in ("list", "tuple", "reversed") else ()))

    def _wrapped(self, dotted: str, function: Val) -> Val:
        """A decorator of a library: the function stays what it is."""
        return function

    def _decorates(self, number: int) -> bool:
        instruction = self.at.code.values[number]
        return instruction.op == "call" and instruction.data.names == ("@",)

    def _own_class(self) -> ClassDef | None:
        unit: Unit | None = self.at.unit
        while unit is not None:
            if unit.cls is not None:
                return unit.cls
            unit = unit.outer
        return None

    def _getattr(self, number: int, dotted: str, arguments: Arguments) -> Val:
        owner, names = arguments[0][1], self.flow.close(arguments[1][1], self.at.unit).each
        if not names or any(o[:2] != ("const", "str") for o in names):
            return UNKNOWN
        value = join(attribute(self.at, number, owner, o[2]) for o in names)
        if dotted == "hasattr":
            return Val(v=value.p)
        return join2(value, arguments[2][1]) if len(arguments) > 2 else value

    # -- rows of the tables --------------------------------------------------------------------------------

    def _row(self, number: int, row: Row, arguments: Arguments, receiver: Val, sure: bool = True) -> Val:
        """What a call that the tables describe does and gives."""
        group = self._group(row, arguments)
        if row.is_collective and self._applies(row, arguments):
            spread = row.spread is None or self._is_spread(row.spread, arguments)
            certain = sure and self._certain and spread and not row.likely
            self._note(number, Site((), (Operation(row.name, group, certain, row),)))
        if row.equal is not None:
            place = self._place(row.equal, arguments)
            if place >= 0:
                axes = axes_in(group)
                self.at.after[number, place] = lambda before: _equal(before, axes)
        if row.state is not None:
            place = self._place((row.state[0], row.state[1]), arguments)
            tag = row.state[2]
            if place >= 0:
                self.at.after[number, place] = lambda before: before.placed(after(before.state, tag))
                self.at.steps[number, place] = (tag,)
        self._wraps(number, row, arguments)
        ran = self._run_given(number, row, arguments) if row.runs is not None else UNKNOWN
        if row.result == "ran":
            return ran
        if row.result == "field":
            default = self._given(row.default, arguments) if row.default is not None else None
            return default or (ran if row.runs is not None and self._place(row.runs, arguments) >= 0 else BOTTOM)
        result = self._result(number, row, arguments, receiver, group)
        if row.mixes is not None:
            drawn = self._drawn(row, arguments)
            self._then(number, self._place(row.mixes, arguments), lambda before: before.with_causes(v=drawn))
        if row.seed is not None:
            seed = self._given(row.seed, arguments)
            causes = held(seed.v) if seed is not None and not seed.is_const(None) else data(sure=False)
            self._then(number, -1, lambda before: Val(before.objs, causes, before.n, before.p, before.state))
            result = result.with_causes(v=causes) if result.objs else result
        if row.wraps is not None and not isinstance(row.result, tuple | list):
            wrapped = self._given(row.wraps, arguments)
            result = result.placed(wrapped.state if wrapped is not None else UNPLACED)
        if row.whole_if is not None:
            return result.placed(frozenset({self._whole_or_shards(row.whole_if, arguments)}))
        if not row.result_state or isinstance(row.result, tuple | list):
            return result
        among = over(axes_in(group)) if row.over is not None and axes_in(group) != WHOLE else ""
        return result.placed(after(after(result.state, among), row.result_state))

    def _whole_or_shards(self, which: tuple[str, int, str], arguments: Arguments) -> str:
        """How the tensors of a state dictionary are placed, as the options say."""
        if any(name in _SPREADS for name, _ in arguments):
            return "?"
        options = self._given(which[:2], arguments)
        if options is None or options.is_const(None):
            return "dtensor"
        said = [picked(o[1], which[2]) for o in options.of("keeping")]
        if not said or len(options.of("made")) + len(said) < len(options.objs):
            return "?"
        if any(each.symbolic for each in said):
            return "?"
        passed = [each for each in said if each.objs != {("made", "~")} and not each.is_const(False)]
        return "whole" if passed else "dtensor"

    def _run_given(self, number: int, row: Row, arguments: Arguments) -> Val:
        """What a function gives that is passed to be called (`to_thread(function, *arguments)`)."""
        place = self._place(row.runs or ("", -1), arguments)
        if place < 0:
            return UNKNOWN
        function = arguments[place][1]
        given = [each for each in arguments[place + 1 + row.skips :] if row.gives is None and each[0] not in row.own]
        if row.gives is not None and (held := self._given(row.gives, arguments)) is not None:
            given = [(None, part) for o in held.of("tuple") for part in o[1]]
        given = [*[(None, Val(v=rank(WHOLE)))] * row.before, *given]  # of one node or of the job: as it is started
        return join(self.apply(number, o, given) for o in function.each)

    def _then(self, number: int, place: int, change: Callable[[Val], Val]) -> None:
        """What the argument at a place (-1: the receiver) becomes; of a place that holds nothing it does not matter."""
        self.at.after[number, place] = change

    def _drawn(self, row: Row, arguments: Arguments) -> Causes:
        """How random numbers differ between ranks: as the seed of their generator does."""
        generator = next((v for name, v in arguments if name == "generator" and not v.is_const(None)), None)
        if generator is not None:
            return held(generator.v)
        return held(self._receiver.v) if not row.draws else self.flow.get("random", row.draws).v

    def _is_spread(self, which: tuple[str, int], arguments: Arguments) -> bool:
        given = self._given(which, arguments)
        return given is not None and mostly(given.state, *SHARDING, *DTENSOR)

    def _applies(self, row: Row, arguments: Arguments) -> bool:
        if row.when and not any(name in row.when for name, _ in arguments):
            return False
        if row.local is not None:
            local = self._given(row.local, arguments)
            return local is None or local.is_const(False)
        if row.arg_state is not None:
            given = self._given((row.arg_state[0], row.arg_state[1]), arguments)
            return given is not None and certainly(given.state, row.arg_state[2])
        return True

    def _result(self, number: int, row: Row, arguments: Arguments, receiver: Val, group: Val) -> Val:
        word = row.result
        if row.layout:
            return tensors.made(row, arguments, receiver, self.models, self.flow.default_dtype)
        if isinstance(word, tuple | list):
            made = described(word)
            if row.result_state and made.objs:
                (o,) = made.objs
                first, *rest = o[1]
                wrapped = self._given(row.wraps, arguments) if row.wraps is not None else None
                state = after(wrapped.state if wrapped is not None else UNPLACED, row.result_state)
                if _asks_for_stage_3(self._given(("config", 6), arguments)):
                    state = after(state, "zero3")
                return tuple_of([join2(first, self._keeping(row, arguments)).placed(state), *rest])
            return made
        if word == "rank":
            axes = self._axes(row, arguments)
            if not axes:
                axes = self._spanned(group) if row.group or row.rank_of else WHOLE
            among = "node" if axes == {LOCAL} else "job" if axes == WHOLE else "group"
            counted = frozenset({("ordinal", among, axes)}) if row.numbers else frozenset()
            told = self._told(number, row, arguments) if axes == SOME else axes
            return Val(counted, rank(told or WHOLE, sure=axes != SOME))
        if word in ("job rank", "job ranks"):
            return self._job_rank(word, row, arguments)
        if word == "size":
            return obj("size", group_of(self._axes(row, arguments)) if row.axes else group) if row.counts else Val()
        if word == "several":
            return obj("several", True)
        if word == "group":
            return self._made_group(number, row, arguments)
        if word == "mesh":
            return self._made_mesh(arguments)
        if word == "uniform":
            equal = _equal(join(v for _, v in arguments), axes_in(group))
            return Val(frozenset(o for o in equal.each if o[0] == "seq"), equal.v, equal.n)
        if word == "own":
            return Val(v=data(sure=False))
        if word == "listing":
            return Val(sequence(STRING).objs | {unordered("listing")})
        if word == "drawn":
            given = (v.v for name, v in arguments if name != "generator")
            return Val(v=combined(self._drawn(row, arguments), *given))
        if word == "each":
            values = [v for name, v in arguments if name is None]
            spread = [elements(v) for name, v in arguments if name == "*"]
            return sequence(join([*values, *spread])) if spread else tuple_of(values)
        if word == "read":
            named = self._given(row.classes, arguments) if row.classes is not None else None
            return readers.read(self.at, number, named or readers.given_to(self._receiver))
        if word == "all read":
            more = any(n in row.when and not v.is_const(False) for n, v in arguments)
            if self.at.code.values[number].op != "call" or readers.grows(self.at, number):
                return UNKNOWN
            return readers.read_all(self.at, number, self._receiver, int(more))
        if word == "section":
            return sections.loaded(self.at.unit, number)
        if word == "sections":
            return join([*(v for _, v in arguments), UNKNOWN])
        if word == "receiver":
            return self._receiver
        if word == "parser":
            return readers.parser(self.at.unit, number)
        if word == "command":
            return readers.command(self._receiver)
        if word in ("namespace", "namespace and rest"):
            made = readers.namespace(self._receiver, self._holder("argparse.Namespace"))
            return made if word == "namespace" else tuple_of([made, readers.OF_NOBODY])
        if isinstance(word, str) and word.startswith("reader:"):
            named = self._given(row.classes, arguments) if row.classes is not None else None
            library = word.partition(":")[2]
            parser = readers.parser(self.at.unit, number, beside=False) if self._is_parser(library) else BOTTOM
            return join2(readers.reader(library, named or UNKNOWN), parser)
        if word == "replaced":
            return self._replaced(number, arguments)
        if word == "fetched":
            got = fetched(arguments[0][1]) if arguments else UNKNOWN
            return got if got.objs else UNKNOWN
        if word == "first":
            return arguments[0][1] if arguments else UNKNOWN
        if word == "second":
            return arguments[1][1] if len(arguments) > 1 else UNKNOWN
        if word == "decorated":
            factory = self.at.vals[self.at.code.values[number].args[0]]
            return next((v for name, v in arguments if name is None or name == "@"), factory)
        if word == "same":
            return self._same(row.name, arguments, receiver)
        if word in ("module", "member"):
            text = arguments[0][1] if arguments else BOTTOM
            return texts.module(self.at, text) if word == "module" else texts.member(self.at, number, text)
        if word == "content":  # of a file of its own: what each rank has for itself
            path = join(v for _, v in arguments[:1])
            return Val(UNKNOWN.objs, unsure(held(path.v)), unsure(held(path.v)), state=UNKNOWN.state)
        if word == "state":  # of a checkpoint: each rank has its part of it, with the same counters
            source = arguments[0][1] if arguments else BOTTOM  # or of what came over the network
            return Val(UNKNOWN.objs, only(source.v, "uniform"), state=UNKNOWN.state)
        if isinstance(word, str) and word.startswith("made:"):
            made = join2(described(word), self._keeping(row, arguments))
            return Val(made.objs | self._holding(row, arguments).objs, state=PLAIN) if row.elements else made
        if isinstance(word, str) and word.startswith("made of:"):
            of = self._same(row.name, arguments, BOTTOM)
            return Val(frozenset({("made", word.partition(":")[2])}), of.v, state=of.state)
        if isinstance(word, str) and word.startswith("holder:"):
            return self._holder(word.partition(":")[2])
        if row.handle and any(n == row.handle and not v.is_const(False) for n, v in arguments):
            return Val(frozenset({("made", "torch.distributed.Work"), NONE_OBJ}))
        return Val()

    def _keeping(self, row: Row, arguments: Arguments) -> Val:
        """What a library makes of arguments that it keeps as attributes; where none is passed, it makes one itself."""
        if not row.under:
            return BOTTOM
        given = {name: self._given(which, arguments) for name, which in sorted(row.under.items())}
        kept = {name: v if v is not None and not v.is_const(None) else readers.OF_NOBODY for name, v in given.items()}
        return obj("keeping", obj("dict", tuple((name, bare(v)) for name, v in kept.items()), None))

    def _holding(self, row: Row, arguments: Arguments) -> Val:
        """The container that stands beside an object for what it holds."""
        assert row.elements is not None
        if row.elements[1] < 0:
            given = [elements(v) if name == "*" else v for name, v in arguments if name in (None, "*")]
            return sequence(join(given)) if given else BOTTOM
        held = self._given(row.elements, arguments) or BOTTOM
        return held if held.of("dict") else sequence(self.at.element(held)) if held.objs else BOTTOM

    def _holder(self, made: str) -> Val:
        """An object on which the program sets attributes, by the unit that makes it."""
        return Val(frozenset({("made", made, self.at.unit)}), state=UNPLACED)

    def _replaced(self, number: int, arguments: Arguments) -> Val:
        """A copy of a data class in which some fields are others: no other field differs for it."""
        copied = arguments[0][1] if arguments else UNKNOWN
        given = tuple((name, value) for name, value in arguments if name not in (None, "*", "**"))
        self.at.made[number] = {o[1]: given for o in copied.each if o[0] in ("inst", "self")}
        return Val(copied.objs, copied.v, copied.n, NONE, copied.state)

    def _spanned(self, group: Val) -> Axes:
        """The axes of a group; of one that callers may pass, where all of them pass groups of one axis."""
        axes = axes_in(group)
        if axes == SOME and group.symbolic:
            passed = axes_in(self.flow.close(group, self.at.unit))
            return passed if len(passed) == 1 else axes
        return axes

    def _job_rank(self, word: str, row: Row, arguments: Arguments) -> Val:
        """The rank in the job of some member of a group: the same for the group, another for other groups."""
        axes = self._spanned(self._group(row, arguments))
        apart = frozenset({Cause("member", UNKNOWN_AXIS, axes != SOME)}) if axes != WHOLE else NONE
        asked = frozenset().union(*(v.v for n, v in arguments[1:])) if word == "job rank" else NONE
        number = Val(frozenset({("ordinal", "job", WHOLE)}), apart | asked)
        counted = ("counted", self._group(row, arguments))
        return number if word == "job rank" else Val(sequence(number).objs | {counted}, apart)

    def _axes(self, row: Row, arguments: Arguments) -> Axes:
        axes = frozenset(row.axes)
        for flag, more in row.widened.items():
            if any(name == flag and value.is_const(True) for name, value in arguments):
                axes |= frozenset(more)
        return axes

    def _group(self, row: Row, arguments: Arguments) -> Val:
        """The group on which a collective works."""
        which = row.group or row.rank_of or row.over
        if row.world or which is None:
            return group_of(WHOLE)
        given = self._given(which, arguments)
        if given is None or given.is_const(None):
            return group_of(WHOLE)
        return given

    def _made_group(self, number: int, row: Row, arguments: Arguments) -> Val:
        axes = self._axes(row, arguments)
        if axes:
            return group_of(axes, "several" if axes != SOME else None)
        given = self._given(("ranks", 0), arguments)
        backend = self._given(("backend", 2), arguments)
        named = backend.constant() if backend is not None else None
        named = named if isinstance(named, str) else None
        if given is None or given.is_const(None):
            return group_of(WHOLE, None, named)
        ranks: object = _literal_ranks(given)
        if ranks is None and any(map(varying, (given.v, given.n, elements(given).v))):  # each rank passes its own
            ranks = "several"
        elif ranks is None and self.at.code.blocks[self.at.code.values[number].block].loop >= 0:
            ranks = "every" if self.at.is_of_every_rank(self.at.code.values[number]) else "several"
        return group_of(SOME, ranks, named)

    def _made_mesh(self, arguments: Arguments) -> Val:
        given = self._given(("mesh_dim_names", 2), arguments)
        for o in given.each if given is not None else ():
            if o[0] == "tuple":
                names = [v.constant() for v in o[1]]
                if all(isinstance(n, str) for n in names):
                    return obj("mesh", tuple(names), True)
        return obj("mesh", None, True)

    @staticmethod
    def _place(which: tuple[str, int], arguments: Arguments) -> int:
        name, position = which
        for place, (keyword, _) in enumerate(arguments):
            if keyword == name or (keyword is None and place == position):
                return place
        return -1

    def _given(self, which: tuple[str, int], arguments: Arguments) -> Val | None:
        place = self._place(which, arguments)
        return arguments[place][1] if place >= 0 else None

    # -- placement -----------------------------------------------------------------------------------------

    def _placed(
        self, number: int, value: Instruction, name: str, receiver: Val, arguments: Arguments, result: Val
    ) -> Val:
        """A result with the placement of its receiver where a method hands that on, in the precision asked for."""
        state = result.state
        if name in self.models.placed and self.at.code.values[value.args[0]].op == "attr":
            state = inherited(state, receiver.state)
        step = self._precision(name, arguments)
        if row := self.models.steps.get(name):
            step = row[0] if not arguments or arguments[0][1].is_const(True) or len(row) < 2 else row[1]
        if step:
            state = after(state or receiver.state, step)
            if self.at.code.values[value.args[0]].op == "attr":
                self.at.after[number, -1] = lambda before: before.placed(after(before.state, step))
                self.at.steps[number, -1] = (step,)
        inside = self._built_inside(number) if any(o[0] in ("inst", "made") for o in result.each) else ""
        state = after(state, inside)
        return result if state == result.state else result.placed(state)

    def _wraps(self, number: int, row: Row, arguments: Arguments) -> None:
        """Which argument lives on in the result, placed otherwise."""
        which = row.wraps or (("", 0) if row.result == "first" else None)
        place = self._place(which, arguments) if which is not None and row.result_state else -1
        if place >= 0:
            self.at.wrapped[number, place] = (row.result_state,)

    def _precision(self, name: str, arguments: Arguments) -> str:
        """The step that an argument asks for which names a floating-point type."""
        for keyword, given in arguments:
            if keyword in ("dtype", "torch_dtype") or (keyword is None and name in ("to", "type")):
                for word, step in (("half", "half"), ("full", "-half")):
                    if given.objs and all(o[-1] in self.models.dtypes.get(word, ()) for o in given.each):
                        return step
        return ""

    def _built_inside(self, number: int) -> str:
        """How what is made here is placed by a context manager around: `zero.Init`, `torch.device("meta")`."""
        values = self.at.code.values
        for manager in self.at.unit.managers(number):
            callee, *given = values[manager].args if values[manager].op == "call" else (manager,)
            first = self.at.vals[given[0]].constant() if given else None
            for o in self.at.vals[callee].each:
                name = self.models.named(o[1]) if o[0] == "ext" else ""
                step = self.models.library(f"{name}({first})").inside or self.models.library(f"{name}()").inside
                if name and step:
                    return step
        return ""

    # -- what is not known ---------------------------------------------------------------------------------

    def _unknown(self, number: int, value: Instruction, name: str, receiver: Val, arguments: Arguments) -> Val:
        """A call on a receiver whose class is not known: by the name of the method, where a table has it."""
        if spelled := texts.by_method(name, receiver, arguments):
            return Val(spelled, combined(receiver.v, *(v.v for _, v in arguments)))
        row = self.models.methods.get(name)
        if row is not None and row.on is not None and "." not in name:
            hint = self.hint(self.at.code.values[value.args[0]].args[0]) if receiver.objs or receiver.v else ""
            if (not row.on or hint in row.on) and (not row.on_state or may(receiver.state, *row.on_state)):
                return self._row(number, row, arguments, receiver, sure=not row.on or bool(hint))
        if name in self.models.ranks["methods"] or name in self.models.ranks["stages"]:
            axes = self._asked_axes(name, value, arguments)
            return Val(v=rank(axes, sure=True))
        if name == "get_group" and arguments and isinstance(dimension := arguments[0][1].constant(), str):
            return group_of(frozenset({of_dimension(dimension)}))
        if name in ("size", "rank") and not arguments and (axes := of_parallelism(self._asked(value))):
            return _of_group(group_of(axes), name, sure=False)
        if name == "get_group" and self._awaited(self.at.code.values[value.args[0]].args[0]):
            return BOTTOM
        if name in _GATHERING:
            return self._gathered(value, arguments)
        if name in _NAMED:
            state = receiver.state if name != "named_buffers" else frozenset({"?"})  # buffers are not sharded
            return sequence(tuple_of([STRING, UNKNOWN.placed(state)])).placed(state)
        if name in self.models.placed and name not in self.models.same_methods:
            keys = sequence(STRING).objs if name == "state_dict" else frozenset()
            derived = self._derived([(None, receiver), *arguments])
            return Val(frozenset({("top",)}) | keys, derived, state=receiver.state)
        if name in self.models.same_methods or name in ("numel", "size", "dim"):
            return self._same(name, arguments, receiver)
        return Val(frozenset({("top",)}), self._derived([(None, receiver), *arguments]), state=frozenset({"?"}))

    def _asked(self, value: Instruction) -> str:
        """The name of the object on which a method is called."""
        callee = self.at.code.values[value.args[0]]
        return self.hint(callee.args[0]) if callee.op == "attr" else ""

    def _awaited(self, number: int) -> bool:
        """Whether a value is an attribute, or lies in one, of which nothing is known yet: it becomes known. To call its
        group anything would stay, where a variable that holds it is kept and put back."""
        values = self.at.code.values
        while values[number].op in ("item", "mut"):
            number = values[number].args[0]
        return values[number].op == "attr" and self.at.vals[number] == BOTTOM

    def _asked_axes(self, name: str, value: Instruction, arguments: Arguments) -> Axes:
        """The axis of a coordinate, by a mesh dimension that is named, or by names of receiver and method."""
        for _, given in arguments:
            constant = given.constant()
            if isinstance(constant, str):
                return frozenset({of_dimension(constant)})
        callee = self.at.code.values[value.args[0]]
        hinted = axes_of(name) or (axes_of(self.hint(callee.args[0])) if callee.op == "attr" else frozenset())
        if name in self.models.ranks["stages"] and not hinted:
            return frozenset({"pp"})
        return hinted - {"world"} or WHOLE

    def _told(self, number: int, row: Row, arguments: Arguments) -> Axes:
        """The axes of which the name of the group speaks, where the group itself is not known."""
        place = self._place(row.group or row.rank_of or ("", -1), arguments)
        value = self.at.code.values[number]
        return axes_of(self.hint(value.args[place + 1])) - WHOLE if place >= 0 and value.op == "call" else frozenset()

    def hint(self, number: int) -> str:
        """The name by which the source knows a value; it ranks candidates and proves nothing."""
        value = self.at.code.values[self.at.root(number)]
        if value.op == "param":
            return str(value.data[1])
        if value.op in ("attr", "phi", "name") and value.data:
            return str(value.data)
        if value.op == "free":
            return str(value.data[1])
        if value.op == "call":
            return self.hint(value.args[0])
        root = self.at.root(number)
        return next((name for name, held in self.at.code.definitions.items() if root in held), "")

    def _gathered(self, value: Instruction, arguments: Arguments) -> Val:
        """What a method with the name of a collective gives: equal over the group that it names, else over all."""
        group = next((v for n, v in arguments if n in ("group", "process_group")), None)
        inner = join(v for n, v in arguments if n not in ("group", "process_group"))
        if group is None or group.is_const(None):
            return Val(v=frozenset({UNIFORM}))
        place = next(i for i, (n, _) in enumerate(arguments) if n in ("group", "process_group"))
        axes = axes_in(group)
        return _equal(inner, axes_of(self.hint(value.args[place + 1])) if axes == SOME else axes)

    def _derived(self, arguments: Arguments) -> Causes:
        """What an unknown function may carry over from its arguments: data, never who the process is."""
        return combined(*(unsure(only(value.v, "data", "param", "uniform")) for _, value in arguments))

    def _on_state(self, number: int, value: Instruction, name: str, callee: Val, receiver: Val) -> None:
        """Models whose parameters are sharded issue collectives where they run."""
        operation = ""
        runs = not receiver.state or not may(receiver.state, *WRAPPING) or name in ("forward", "module")
        spread = may(callee.state, "fsdp1", "fsdp2", "zero3")  # an attribute that holds it also held what was wrapped
        if runs and (spread or certainly(callee.state, *WRAPPING)) and not callee.of("bound"):
            operation = "forward" if spread or self._meets_in_forward(number, callee) else ""
        wrapped = certainly(receiver.state, "fsdp1")
        gathers = name in ("state_dict", "full_state_dict") and (
            wrapped or mostly(receiver.state, "fsdp1") and self._is_for_ranks(value.block)
        )
        if not operation and (gathers or name == "backward" and self._sharded_here(value.args[0], receiver)):
            operation = name
        if operation and not any(self._lets_ranks_differ(manager) for manager in self.at.unit.managers(number)):
            sure = wrapped if gathers else operation != "forward" or certainly(callee.state, *WRAPPING)
            row = Row(operation, collective=True)
            group = group_of(spanned(callee.state | receiver.state))
            self._note(number, Site((), (Operation(operation, group, sure, row),)))

    def _meets_in_forward(self, number: int, model: Val) -> bool:
        """Whether ranks wait for each other where a wrapped model runs: sharded parameters are gathered there; those of
        DDP and of DeepSpeed below ZeRO-3 are whole, and ranks meet in the backward pass, which evaluation lacks."""
        if certainly(model.state, "fsdp1", "fsdp2", "zero3"):
            return True
        managers = (self.at.vals[self.at.code.values[m].args[0]] for m in self.at.unit.managers(number))
        without = any(o[0] == "ext" and self.models.named(o[1]) in _WITHOUT for each in managers for o in each.each)
        return not (without or may(model.state, "eval"))

    def _is_for_ranks(self, block: int) -> bool:
        """Whether nothing but ranks decides over a block: another test may ask how the model is wrapped."""
        deciding = self.at.unit.control.deciding(block)
        return all(only(self.at.conditions(frozenset({each})), "rank", "member") for each in deciding)

    def _lets_ranks_differ(self, manager: int) -> bool:
        """Whether inside a context manager ranks may run a wrapped model unequally often: `model.join()`, `Join`."""
        values = self.at.code.values
        if values[manager].op != "call":
            return False
        callee = values[values[manager].args[0]]
        joins = callee.op == "attr" and callee.data == "join" and may(self.at.vals[callee.args[0]].state, *WRAPPING)
        named = self.at.vals[values[manager].args[0]].of("ext")
        return joins or any(o[1].startswith("torch.distributed.algorithms.") and o[1].endswith(".Join") for o in named)

    def _sharded_here(self, callee: int, loss: Val) -> bool:
        """Whether a backward pass goes through a sharded model: the loss is made of its output, or the class holds just
        one."""
        used = self._states_of(self.at.code.values[callee].args[:1])
        if certainly(loss.state, *WRAPPING) or any(certainly(state, *WRAPPING) for state in used):
            return True
        cls = self._own_class()
        if cls is None or any(o[0] not in ("top", "param", "part") for o in loss.each):
            return False
        names = dict.fromkeys(name for owner in cls.mro for name in owner.instance_attributes)
        fields = (self.flow.placings.on_entry(cls, name, False, self.at.unit) for name in names)
        return any(certainly(held.state, *WRAPPING) for held in fields)

    def _states_of(self, numbers: tuple[int, ...]) -> Iterator[frozenset[str]]:
        """How the values are placed of which others are computed, back to what callers pass."""
        stack, seen = list(numbers), set(numbers)
        while stack:
            number = stack.pop()
            value, state = self.at.code.values[number], self.at.vals[number].state
            if value.op == "param" and not (value.data[0] == 0 and self.at.unit.has_receiver):
                state = self.flow.get("argument", self.at.unit, value.data[0]).state
            if state - {"?"}:
                yield state
            parts = (
                value.args
                if value.op in ("binary", "unary", "mut", "phi", "item", "attr", "unpack")
                else value.args[:1]
            )
            for part in parts if value.op != "name" else ():
                if part >= 0 and part not in seen:
                    seen.add(part)
                    stack.append(part)

    def _grown(self, name: str, arguments: Arguments) -> Callable[[Val], Val] | None:
        """Lists that grow hold what they are given; on which ways they do is seen where the ways meet."""
        if name not in GROWING or not arguments:
            return None
        added = arguments[-1][1]

        def change(before: Val) -> Val:
            if not any(o[0] in ("tuple", "seq") for o in before.each):
                mapping = name == "update" and any(o[0] in ("dict", "param") for o in before.each)
                more = obj("dict", (), UNKNOWN).objs if mapping else NONE  # it may have any key now
                return Val(before.objs | more, before.v, before.n, before.p, before.state)
            part = elements(added) if name in ("extend", "update") else added
            grown = sequence(join2(elements(before), part))
            n = combined(before.n, added.n if name in ("extend", "update") else NONE)
            return Val(grown.objs, combined(before.v, added.v), n, before.p, before.state)

        return change

    def _in_place(self, name: str, receiver: Val, arguments: Arguments) -> Callable[[Val], Val] | None:
        """A tensor that is worked on in place (`x.add_(y)`) differs between ranks as what it is given does."""
        table = self.models.tensors
        works = name.endswith("_") and not name.startswith("_") and not name.endswith("__")
        if not works or name in table["marking"] or any(o[0] in ("inst", "self") for o in receiver.each):
            return None
        drawn = name in table["drawing"]
        made = self._drawn(_OF_TORCH, arguments) if drawn else combined(*(v.v for _, v in arguments))
        new = drawn or name in table["overwriting"]

        def change(before: Val) -> Val:
            objs = frozenset(o for o in before.each if o[0] in ("tensor", "top")) if new else before.objs
            return Val(objs, made if new else combined(before.v, made), before.n, before.p, before.state)

        return change

    # -- generators and context managers -------------------------------------------------------------------

    def drain(self, number: int, value: Val) -> None:
        """Generators that are consumed here run here."""
        for o in value.each:
            if o[0] == "generator":
                self._note(number, Site((Target(o[1], o[2]),), ()))
            elif (unit := self.method_of(o, "__iter__")) is not None:
                self._note(number, Site((Target(unit, ((0, of_one(o)),)),), ()))

    def yielded(self, o: Obj) -> Val:
        bindings = dict(o[2])
        result = self.flow.get("unit", o[1])
        return instantiated(result.yielded, lambda position: bindings.get(position, BOTTOM))

    def iterated(self, o: Obj) -> Val:
        """An element of something whose iteration the tables or the project describe."""
        return UNKNOWN if o[0] != "ext" else BOTTOM

    def enter(self, number: int, manager: Val) -> Val:
        found = []
        for o in manager.each:
            if o[0] == "generator":
                self._note(number, Site((Target(o[1], o[2]),), ()))
                found.append(self.yielded(o))
            elif o[0] in ("inst", "self"):
                if (unit := self.method_of(o, "__enter__")) is not None:
                    found.append(self.run(number, unit, [of_one(o)], {}))
            else:
                found.append(Val(frozenset({o}), state=manager.state))
        return join(found) if found else manager

    def leave(self, number: int, manager: Val) -> None:
        self._asks_object(number, manager, "__exit__")

    def _note(self, number: int, site: Site) -> None:
        site = site._replace(under=self.at.around(number))
        known = self.at.sites.get(number)
        self.at.sites[number] = known.merged(site) if known is not None else site


def _numbered(text: Val) -> frozenset[Obj]:
    """The rank that the text of an environment variable spells."""
    axes = {"node": frozenset({LOCAL}), "job": WHOLE}
    return frozenset(("ordinal", o[2], axes[o[2]]) for o in text.of("environment") if o[2])


def _asks_for_stage_3(config: Val | None) -> bool:
    """Whether a configuration of DeepSpeed that is written out says that parameters are spread over ranks."""
    rows = [dict(o[1]).get("zero_optimization") for o in config.of("dict")] if config is not None else []
    stages = [dict(o[1]).get("stage") for row in rows if row is not None for o in row.of("dict")]
    return bool(stages) and all(stage is not None and stage.is_const(3) for stage in stages)


def axes_in(group: Val) -> Axes:
    """The axes that a group may span; `SOME` where it is not known."""
    found: set[str] = set()
    for o in group.objs - {NONE_OBJ} or group.objs:  # None is what a group is before it is made
        if o[0] == "group":
            found |= o[1]
        elif o[0] == "mesh":
            found |= frozenset(of_dimension(d) for d in o[1]) if o[1] else SOME
        elif o == NONE_OBJ:
            found |= WHOLE
        else:
            found |= SOME
    return SOME if not found or found & SOME else frozenset(found)


def _of_group(group: Val, name: str, sure: bool = True) -> Val:
    """What a group says of itself: how many ranks it has, the caller's rank in it."""
    if name == "size":
        return obj("size", group)
    axes = axes_in(group)
    among = "job" if axes == WHOLE else "group"
    return Val(frozenset({("ordinal", among, axes)}), rank(axes if axes != SOME else WHOLE, sure and axes != SOME))


def _index(counted: frozenset[Obj]) -> Val:
    """A place in a list; in one that is as long as a group, the number of a rank in it."""
    numbers = frozenset(
        ("ordinal", "job" if axes == WHOLE else "group", axes)
        for o in counted
        if o[0] == "counted"
        for axes in (axes_in(o[1]),)
        if axes != SOME
    )
    return Val(numbers, frozenset({UNIFORM}))


def _literal_ranks(given: Val) -> tuple[int, ...] | None:
    """The ranks of a literal list."""
    if len(given.objs) != 1:
        return None
    (o,) = given.objs
    ranks = tuple(v.constant() for v in o[1]) if o[0] == "tuple" else ()
    return ranks if ranks and all(isinstance(r, int) for r in ranks) else None


def _equal(value: Val, axes: Axes) -> Val:
    v, n, p = (equalled(each, axes) or frozenset({UNIFORM}) for each in (value.v, value.n, value.p))
    return Val(frozenset(mapped(o, lambda part: _equal(part, axes)) for o in value.each), v, n, p, value.state)


def _replaced(before: Val, now: Val) -> Val:
    return now if now.objs or now.v else before.placed(now.state)


def _values_of(rows: Val) -> Iterator[Causes]:
    """By what the values of a dictionary vary that a call spreads."""
    return (held.v for o in rows.of("dict") for held in (*(each for _, each in o[1]), o[2]) if held is not None)


def _sortable(rows: dict[str, Val]) -> bool:
    return len(rows) < 16

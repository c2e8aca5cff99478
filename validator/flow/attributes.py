"""What an attribute of a value is: members of modules and classes, fields of objects, what libraries give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.definitions import ClassDef, Method
from validator.domains.axes import WHOLE, axes_of
from validator.domains.placement import NOWHERE, after, inherited
from validator.domains.spmd import NONE, UNIFORM, Causes, data, only, placed_along, rank
from validator.flow.annotations import objects_of
from validator.flow.callgraph import sections
from validator.flow.calls.own_units import run
from validator.flow.foreign import NOBODY, described, is_nobodys, likely_rank, number_named
from validator.flow.program.symbols import is_plain, meaning
from validator.flow.values import (
    ANYTHING,
    BOTTOM,
    MORE,
    NONE_OBJ,
    NOT_YET,
    TOP,
    UNKNOWN,
    Obj,
    Val,
    beside,
    join,
    join2,
    obj,
    of_one,
    picked,
)

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation
    from validator.flow.program.flow import Flow
    from validator.flow.program.unit import Unit

# Attributes that tell of what kind a value is, not what it holds.
_SPREAD = frozenset({"placements", "device_mesh"})  # of a DTensor: the ranks of its mesh share them
_SHAPE = frozenset({"shape", "ndim", "dtype", "device", "size", "requires_grad", "is_cuda", "itemsize", "layout"})
_NOTHING_KNOWN = frozenset({TOP, NONE_OBJ})
_LINKS = 8  # of an external name; what a loop makes longer (`f = f.func`) is no name in any table
# Attributes of a tensor (or of what `topk`, `sort` and their like give) with the same layout.
_VIEWS = frozenset({"data", "grad", "values", "indices"})
_MEMBERED = frozenset({"inst", "self", "class", "module", "ext", "unit", "mesh"})
_FOREIGN = frozenset({
    "ext", "made", "const", "str", "tensor", "tuple", "seq", "dict", "size", "top", "more", "parser", "namespace",
    "section",
})  # fmt: skip


def attribute(at: Evaluation, number: int, owner: Val, name: str) -> Val:
    """The attribute `name` of a value; of what is not the project's it is the same everywhere."""
    known = at.flow.foreign.get((owner.number, name))
    if known is None:
        known = _attribute(at, number, owner, name)
        if all(_is_settled(at, o, name) for o in owner.objs):
            at.flow.foreign[owner.number, name] = known
    return known


def _is_settled(at: Evaluation, o: Obj, name: str) -> bool:
    """Whether an attribute of an object is the same whatever the project does."""
    if o[0] == "ext":
        own = o[1].partition(".")[0] in at.flow.project.finder.spaces  # it is looked up from each file
        return not own and f"{o[1]}.{name}" not in at.models.states
    return o[0] in _FOREIGN and (o[0] != "made" or len(o) == 2)


def _attribute(at: Evaluation, number: int, owner: Val, name: str) -> Val:
    found = [_of(at, number, o, name, owner) for o in _asked(at, owner, name)]
    result = join(found) if found else UNKNOWN
    if result is NOT_YET:
        return result
    if MORE in owner.objs:
        result = join2(result, ANYTHING)
    if name in _SHAPE:
        return Val(result.objs, owner.n | result.v, NONE, NONE)
    if name in _SPREAD and not any(o[0] in _MEMBERED for o in owner.each):
        return Val(result.objs, frozenset({UNIFORM}))
    if name in _VIEWS and not any(o[0] in _MEMBERED for o in owner.each):
        result = Val(result.objs | beside(owner, "tensor"), result.v, result.n | owner.n, result.p, result.state)
    known = any(o[0] in ("inst", "self", "class", "module", "ext", "unit", "made", "group") for o in owner.each)
    if not known:
        if name in at.models.ranks["attributes"]:
            axes = {"local"} if "local" in name else WHOLE
            return Val(number_named(name), rank(axes))
        if name in at.models.ranks["names"] and not any(o[0] == "param" for o in owner.each):
            return likely_rank(name)
    if (result.objs == UNKNOWN.objs or is_nobodys(result)) and name in at.models.ranks["attributes"] and known:
        return Val(number_named(name), rank({"local"} if "local" in name else WHOLE))
    telling = "_" in name  # of nobody's objects: `args.lora.rank` is that of a matrix
    if known and (result == UNKNOWN or telling and is_nobodys(result)) and name in at.models.ranks["names"]:
        return likely_rank(name)
    if TOP in result.objs and UNIFORM not in result.v and name in at.models.likely["columns"]:
        result = result.with_causes(v=data(sure=False))  # a column of a batch, whatever holds it
    if known and any(c.kind == "rank" for c in result.v) and not result.of("ordinal"):
        result = Val(result.objs, placed_along(result.v, axes_of(name)), result.n, result.p, result.state)
    carried = _carried(owner, result)
    placed = owner.state
    if name == "module":  # what DDP wraps knows nothing of it
        placed = frozenset(each for each in placed if each.rpartition("+")[2] != "ddp")
    if placed and (name in at.flow.only_buffers or at.flow.guessed.methods(name)):
        placed = NOWHERE  # nothing of it is spread over ranks, or wrapped: a buffer, a method
    state = inherited(result.state, placed)
    if (step := at.models.tensors["placing"].get(name)) is not None:
        state = after(state, step)
    absent = only(owner.p, "param")
    if state == result.state and carried <= result.v and absent <= result.p:
        return result
    return Val(result.objs, result.v | carried, result.n, result.p | absent, state)


def _asked(at: Evaluation, owner: Val, name: str) -> list[Obj]:
    """The objects that answer for an attribute: what keeps an argument under that name, instead of the library."""
    kept = any(_kept(at, o, name, owner) for o in owner.of("keeping"))
    return [o for o in owner.each if not kept or o[0] != "made"]


def _carried(owner: Val, result: Val) -> Causes:
    """How an attribute varies because its owner does: which method it is only where the owner may be several things."""
    if any(o[0] in ("bound", "unit") for o in result.each):
        return owner.v if len({o[1] for o in owner.each if o[0] in _MEMBERED}) > 1 else NONE
    carried = only(owner.v, "data", "param", "uniform")
    return frozenset(c._replace(facet="a") if c.kind == "param" and c.facet == "v" else c for c in carried)


def _of(at: Evaluation, number: int, o: Obj, name: str, owner: Val) -> Val:
    kind = o[0]
    if kind == "module":
        return meaning(at, o[1].member(name), name)
    if kind == "ext":
        path = f"{o[1]}.{name}"
        if path.count(".") > _LINKS:
            return UNKNOWN
        if path in at.models.states:
            return Val(UNKNOWN.objs, p=at.flow.get("state", path).p)
        inside = at.flow.project.through_folders(at.unit.module, path)
        return obj("module", inside) if inside is not None else obj("ext", path)
    if kind in ("inst", "self"):
        return member_of(at, number, o[1], name, o, exact=kind == "inst")
    if kind == "class":
        return _of_class(at, number, o[1], name, o)
    if kind == "super":
        return _of_super(at, o, name)
    if kind == "made":
        return _of_library(at, o[1], name, owner) if len(o) == 2 else _of_holder(at, o, name)
    if kind == "mesh":
        return _of_mesh(o, name)
    if kind == "size":
        return Val()
    if kind in ("reader", "parser"):
        return BOTTOM  # the object beside it has the methods
    if kind == "keeping":
        found = _kept(at, o, name, owner)
        return join(_of(at, number, each, name, owner) if asked else of_one(each) for each, asked in found)
    if kind == "namespace":
        return BOTTOM if o[2] is None else obj("namespace", o[1], f"{o[2]}.{name}" if o[2] else name)
    if kind == "section":
        return sections.below(o, name)
    if kind == "group":
        return obj("group method", of_one(o), name) if name in ("size", "rank") else UNKNOWN
    if kind == "handle":
        return obj("remote", member_of(at, number, o[1], name, ("inst", o[1]), exact=True))
    if kind == "future":
        return obj("fetch", o[1]) if name in ("result", "get") else UNKNOWN
    if kind in ("bound", "remote") and name == "options":
        return obj("ext", "~receiver")
    if kind in ("unit", "bound", "remote") and name == "remote":
        return obj("remote", of_one(o)) if kind != "remote" else of_one(o)
    if kind == "param":
        return _of_parameter(at, number, o[1], name, any(each[0] == "self" for each in owner.objs))
    return UNKNOWN


def _kept(at: Evaluation, o: Obj, name: str, owner: Val) -> list[tuple[Obj, bool]]:
    """What an object of a library keeps that answers for an attribute: an argument under that name, or (True) the
    module of the project that it stands for, if that has the attribute."""
    kept = picked(o[1], name)
    if kept.objs:
        return [(each, False) for each in kept.each]
    if not any(at.models.library(made[1]).forwards for made in owner.of("made")):
        return []
    modules = [each for each in picked(o[1], "module").each if each[0] in ("inst", "self")]
    return [(each, True) for each in modules if name in each[1].attributes]


def _of_holder(at: Evaluation, o: Obj, name: str) -> Val:
    """What the program itself has set on a namespace; the other attributes are options, of which nothing is known."""
    held: Val = at.flow.get("held", o, name)
    return obj("ext", f"{NOBODY}.{name}") if held is BOTTOM else held


def _of_parameter(at: Evaluation, number: int, position: int, name: str, annotated: bool) -> Val:
    """An attribute of what callers pass: fields that differ between ranks there differ here."""
    passed: Val = at.flow.get("argument", at.unit, position)
    if passed is NOT_YET:
        return passed
    if MORE in passed.objs:
        return ANYTHING
    found = [
        _of(at, number, o, name, passed)
        for o in _asked(at, passed, name)
        if o[0] in ("inst", "self", "class", "module", "ext", "made", "keeping", "mesh", "handle", "section")
    ]
    if found:
        return join(found)
    return BOTTOM if annotated else Val(UNKNOWN.objs, state=frozenset({"?"}))


def member_of(at: Evaluation, number: int, cls: ClassDef, name: str, o: Obj, exact: bool) -> Val:
    """A member of an object of a project class: a field, a method, what a property gives."""
    if name == "__class__":
        return obj("class", cls)
    receiver = of_one(o)
    found: list[Val] = []
    held = at.flow.placings.on_entry(cls, name, exact, at.unit)
    if held != BOTTOM:
        is_method = bool(held.of("unit")) and (
            _is_of_body(cls, name) or at.flow.fields.is_set_on_classes(cls, name, exact)
        )
        found.append(_with_receiver(held, receiver) if is_method else held)
    for method in _methods(at.flow, cls, name, exact, _running(at, number)):
        found.append(_bound(at, number, method, receiver))
    if found and join(found) is NOT_YET:
        return NOT_YET
    if not found:
        library = [_of_library(at, base, name) for base in cls.external_bases]
        found += [v for v in library if v.objs or v.v]
    if not found or all(held.objs <= _NOTHING_KNOWN and not held.v for held in found):
        said = at.flow.fields.declared(cls, name)
        if objects_of(said):
            return Val(said.objs | frozenset(o for held in found for o in held.each if o == NONE_OBJ))
    if not found:
        # what is stored somewhere and not known yet becomes known: to call it anything would stay
        stored = name in cls.attributes or not exact and any(name in c.attributes for c in cls.descendants())
        return BOTTOM if stored else UNKNOWN
    return join(found)


def _running(at: Evaluation, number: int) -> Method | None:
    """The method that asks its own object for an attribute."""
    value = at.unit.code.values[number]
    own = value.op == "attr" and at.unit.is_receiver(value.args[0])
    return at.unit.method if own else None


def _methods(flow: Flow, cls: ClassDef, name: str, exact: bool, running: Method | None) -> list[Method]:
    """The methods of that name that an object may have; not those of classes whose objects are in other processes, or
    do not run the method in which the object asks itself."""
    own = cls.find(name)
    found = [own] if own is not None else []
    for below, each in cls.find_below(name).items() if not exact else ():
        elsewhere = flow.is_remote(below) and not flow.is_remote(cls)
        if each is not None and each not in found and not elsewhere:
            found += [each] if running is None or below.runs(running) else []
    return found


def _bound(at: Evaluation, number: int, method: Method, receiver: Val) -> Val:
    unit = at.flow.unit_of(method)
    if unit is None:
        return UNKNOWN
    if method.facts.is_property:
        return run(at, number, unit, [receiver], {})
    if method.facts.is_static:
        return obj("unit", unit)
    if not is_plain(method.facts.decorators) and method.cls is not None:
        body = at.flow.body_of(method.cls)
        if body is not None:
            rows = at.flow.part(("unit", body), ("class_names", method.name))
            held = join(rows) if rows is not None else NOT_YET
            if held is NOT_YET or held.objs:
                return _with_receiver(held, receiver)
    return obj("bound", unit, receiver)


def _is_of_body(cls: ClassDef, name: str) -> bool:
    """Whether an attribute is set in the body of a class alone: a function there is a method under another name."""
    around = (*cls.mro, *cls.descendants())
    if any(name in each.instance_attributes or each.fields_are_parameters for each in around):
        return False
    return any(name == each for owner in cls.mro for each, _ in owner.facts.attributes)


def _with_receiver(held: Val, receiver: Val) -> Val:
    """What was stored under a method's name, bound to an object."""
    if held is NOT_YET:
        return held
    objs = frozenset(("bound", o[1], receiver) if o[0] == "unit" else o for o in held.each)
    return Val(objs, held.v, held.n, held.p, held.state)


def _of_class(at: Evaluation, number: int, cls: ClassDef, name: str, o: Obj) -> Val:
    if name == "remote":
        return obj("remote", of_one(o))
    if name == "options":
        return obj("ext", "~receiver")
    nested = cls.module.classes.get(f"{cls.qualname}.{name}")
    if nested is not None:
        return obj("class", nested)
    found = cls.find(name)
    if found is not None:
        unit = at.flow.unit_of(found)
        if unit is None:
            return UNKNOWN
        if found.facts.is_classmethod:
            return obj("bound", unit, of_one(o))
        return obj("unit", unit)
    if (entered := _entered(at, cls, name)) is not None:
        return entered
    held: Val = at.flow.get("field", cls, name, True)
    if held == BOTTOM and _is_making(at, cls, name):
        return obj("making", cls, name)
    if held == BOTTOM and (base := next((b for b in cls.external_bases if at.models.method(b, name)), "")):
        return obj("ext", f"{base}.{name}")
    objects = held.of("inst") or held.of("made")
    if objects and any(base.startswith("enum.") for each in cls.mro for base in each.external_bases):
        return UNKNOWN  # a member, whose `value` is what the body of the class says
    if held != BOTTOM and cls.external_bases and name not in cls.attributes:
        return join2(held, UNKNOWN)  # it is stored in what may be another class; this one has the library's
    return held if held != BOTTOM else UNKNOWN


def _is_making(at: Evaluation, cls: ClassDef, name: str) -> bool:
    """Whether a base of a library gives the class a method that makes an object of it."""
    row = at.models.constructors.get(name)
    return row is not None and any(base.partition(".")[0] in row.libraries for base in cls.external_bases)


def _entered(at: Evaluation, cls: ClassDef, name: str) -> Val | None:
    """What a base of a library runs when this attribute of a class is called (`Function.apply`)."""
    rows = (at.models.library(base).entrances.get(name) for base in cls.external_bases)
    method = next((cls.find(row["runs"]) for row in rows if row is not None), None)
    unit = at.flow.unit_of(method) if method is not None else None
    if unit is None:
        return None
    return obj("bound", unit, UNKNOWN) if unit.entrances.get(name) else obj("unit", unit)


def _of_super(at: Evaluation, o: Obj, name: str) -> Val:
    cls: ClassDef = o[1]
    receiver = obj("self", cls)
    first = next((base for base in cls.bases if not isinstance(base, ClassDef) or base.find(name) is not None), None)
    if first is not None and not isinstance(first, ClassDef) and cls.find(name) is not None:
        return UNKNOWN  # a base of a library comes first, which may have it
    for base in cls.mro[1:]:
        if name in base.methods:
            unit = at.flow.unit_of(base.methods[name])
            unbound = base.methods[name].facts.is_static
            if unit is not None and (unbound or _is_of_class(at.unit) and not _is_of_class(unit)):
                return obj("unit", unit)  # in a class method `super()` is bound to the class: what it has is not bound
            return obj("bound", unit, receiver) if unit is not None else UNKNOWN
    if _is_of_class(at.unit) and _is_making(at, cls, name):
        return obj("making", cls, name)
    return _of_library(at, cls.external_bases[0], name) if cls.external_bases else UNKNOWN


def _is_of_class(unit: Unit) -> bool:
    """Whether a method gets the class, not an object."""
    method = unit.scope
    return method.cls is not None and method.facts.is_classmethod and not method.name.startswith("__")


def _of_library(at: Evaluation, made: str, name: str, owner: Val = BOTTOM) -> Val:
    """An attribute of what a library makes."""
    given = at.models.attribute(made, name)
    if given is not None:
        return Val(v=owner.v) if given == "as it" else described(given)
    # what nobody knows stays one thing: `x.lower().lower()` is no longer name in any table
    return obj("ext", f"{made}.{name}" if at.models.tells_of(made) else f"{NOBODY}.{name}")


def _of_mesh(o: Obj, name: str) -> Val:
    if name in ("mesh_dim_names", "ndim", "device_type"):
        return Val()
    return obj("mesh method", (o[1], o[2]), name)

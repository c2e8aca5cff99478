"""The layout of tensors: which calls make one of which shape and element type, and which calls keep it.

What is known of a layout stands in two places: the facet `n` of a value (by which causes its shape or element type
varies between ranks) and the object `("tensor", shape, dtype)` where sizes or the type are literal.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from validator.domains.spmd import NONE, Causes
from validator.flow.values import Obj, Val, join

if TYPE_CHECKING:
    from validator.models import Models, Row

Arguments = list[tuple[str | None, Val]]
Shape = tuple[int | None, ...] | None
# What a factory makes where no element type is given: the default type, unless the project changes it.
DEFAULT = "default"
_ELEMENTWISE = frozenset({"Add", "Sub", "Mult", "Div", "Pow"})
_NUMBERS = frozenset({"const", "ordinal", "size", "beyond"})
_OPTIONS = frozenset({"dtype", "device", "requires_grad", "pin_memory", "layout", "generator", "out", "memory_format"})


def dtype_of(value: Val | None, models: Models) -> str | None:
    """The element type that a value names: `torch.float32` is `float32`."""
    if value is None or len(value.objs) != 1:
        return None
    (o,) = value.objs
    if o[0] != "ext":
        return None
    head, _, name = str(o[1]).rpartition(".")
    return models.tensors["dtypes"].get(name) if head == "torch" else None


def names_type(value: Val, models: Models) -> bool:
    """Whether a value surely is an element type: `torch.float32`, or one of several."""
    known = [o for o in value.each if o[0] == "ext" and str(o[1]).rpartition(".")[0] == "torch"]
    return bool(known) and all(str(o[1]).rpartition(".")[2] in models.tensors["dtypes"] for o in known)


def made(row: Row, arguments: Arguments, receiver: Val, models: Models, default: str) -> Val:
    """What a factory of the tables (`layout = …`) gives."""
    named = {name: value for name, value in arguments if name is not None}
    plain = [value for name, value in arguments if name is None]
    given = named.get("dtype")
    dtype: str | None = row.dtype or None
    if dtype == DEFAULT:
        dtype = default
    n: Causes = NONE
    v: Causes = NONE
    shape: Shape = None
    if row.layout == "sizes":
        sizes = [named["size"]] if "size" in named else plain
        shape, n = _shape(sizes)
    elif row.layout == "size":
        sizes = [named["size"]] if "size" in named else plain[:1]
        shape, n = _shape(sizes)
        v = join([*plain[1:], *(named[k] for k in ("fill_value",) if k in named)]).v
        dtype = None
    elif row.layout == "like":
        source = plain[0] if plain else named.get("input", receiver)
        n = source.n
        shape, dtype = _only(source.objs)
        v = join(plain[1:]).v
    elif row.layout == "range":
        numbers = join([*plain, *(w for k, w in named.items() if k not in _OPTIONS)])
        n, v = numbers.v, numbers.v
    elif row.layout == "contents":
        source = plain[0] if plain else named.get("data", Val())
        n, v = source.n, source.v
        shape, dtype = _literal(source, default)
    elif row.layout == "receiver":
        shape, n = _shape([named["size"]] if "size" in named else plain)
        _, dtype = _only(receiver.objs)
    if given is not None and not given.is_const(None):
        n |= given.v
        dtype = dtype_of(given, models)
    known = shape is not None or dtype is not None
    return Val(frozenset({("tensor", shape, dtype)}) if known else frozenset(), v, n)


def changed(name: str, arguments: Arguments, receiver: Val, models: Models) -> frozenset[Obj]:
    """The layout of a tensor behind a method: kept, cast to another type, or viewed in another shape."""
    table = models.tensors
    if name in table["casts"]:
        dtype = table["casts"][name]
        return frozenset({("tensor", shape, dtype) for _, shape, _ in _tensors(receiver)} or {("tensor", None, dtype)})
    if name in table["keep"]:
        return frozenset(_tensors(receiver))
    if name == "to" and arguments:
        types = [d for _, value in arguments if (d := dtype_of(value, models)) is not None]
        if types:
            shapes = [shape for _, shape, _ in _tensors(receiver)] or [None]
            return frozenset(("tensor", shape, types[0]) for shape in shapes)
        device = any(value.of("const") and isinstance(value.constant(), str | int) for _, value in arguments)
        return frozenset(o if device else ("tensor", o[1], None) for o in _tensors(receiver) if device or o[1])
    if name in table["shaped"]:
        shape, _ = _shape([value for keyword, value in arguments if keyword is None])
        found = {("tensor", shape, dtype) for _, _, dtype in _tensors(receiver) if shape or dtype}
        return frozenset(found or ({("tensor", shape, None)} if shape is not None else ()))
    return frozenset()


def computed(operator: str, left: Val, right: Val) -> frozenset[Obj]:
    """The layout of what arithmetic makes of a tensor and a number, or of two tensors of one layout."""
    rows = [(_only(value.objs), value) for value in (left, right)]
    tensors = [row for row, value in rows if value.of("tensor")]
    if len(tensors) == 2:
        return left.objs if left.objs == right.objs and operator != "Div" else frozenset()
    if len(tensors) != 1 or operator not in _ELEMENTWISE:
        return frozenset()
    number = right if left.of("tensor") else left
    if not number.objs or any(o[0] not in _NUMBERS for o in number.each):
        return frozenset()
    ((shape, dtype),) = tensors
    if dtype is not None and not _is_float(dtype):
        whole = all(o[0] != "const" or isinstance(o[2], int) for o in number.each)
        dtype = dtype if whole and operator != "Div" else None
    return frozenset({("tensor", shape, dtype)}) if shape is not None or dtype is not None else frozenset()


def _is_float(dtype: str) -> bool:
    return dtype == DEFAULT or "float" in dtype


def is_of_floats(tensor: Obj) -> bool:
    return tensor[2] is not None and _is_float(tensor[2])


def size_of(tensor: Obj) -> int | None:
    """How many elements a tensor has, if its shape is literal."""
    shape: Shape = tensor[1]
    known = [size for size in shape or () if size is not None and size >= 0]
    return prod(known) if shape is not None and len(known) == len(shape) else None


def is_literal(objs: frozenset[Obj]) -> bool:
    """Whether a tensor has one layout that is fully known, whatever led to it."""
    shape, dtype = _only(objs)
    return shape is not None and dtype is not None and all(size is not None and size >= 0 for size in shape)


def apart(values: Iterable[Val]) -> bool:
    """Whether some of the values, each on a way of its own, are surely tensors of different layouts."""
    layouts = [_tensors(value) for value in values if len(value.objs) == 1]
    rows = [each[0] for each in layouts if each]
    return any(differ(a, b) for i, a in enumerate(rows) for b in rows[i + 1 :])


def settled(before: Val, after: frozenset[Obj]) -> bool:
    """Whether tensors that differed in their type alone have one layout now."""
    if len(before.objs) < 2 or any(o[0] != "tensor" for o in before.each):
        return False
    differed, differs = (
        any(differ(a, b) for a in rows for b in rows if a != b)
        for rows in (before.of("tensor"), [o for o in after if o[0] == "tensor"])
    )
    return differed and not differs


def differ(a: Obj, b: Obj) -> bool:
    """Whether two tensors surely have another shape or element type."""
    if a[2] is not None and b[2] is not None and a[2] != b[2]:
        loose = {a[2], b[2]} - {DEFAULT}
        if DEFAULT not in (a[2], b[2]) or not loose <= {"float32", "float16", "bfloat16"}:
            return True
    if a[1] is None or b[1] is None:
        return False
    if len(a[1]) != len(b[1]):
        return True
    return any(x != y for x, y in zip(a[1], b[1], strict=True) if x is not None and y is not None and -1 not in (x, y))


def _tensors(value: Val) -> list[Obj]:
    return sorted(value.of("tensor"), key=str)


def _only(objs: frozenset[Obj]) -> tuple[Shape, str | None]:
    found = [o for o in objs if o[0] == "tensor"]
    return (found[0][1], found[0][2]) if len(found) == 1 == len(objs) else (None, None)


def _shape(sizes: list[Val]) -> tuple[Shape, Causes]:
    """The shape that sizes give, one by one or in a tuple, and by which causes it varies."""
    n: Causes = frozenset().union(*(size.v | size.n for size in sizes)) if sizes else NONE
    if len(sizes) == 1 and len(sizes[0].objs) == 1:
        (o,) = sizes[0].objs
        if o[0] == "tuple":
            sizes = list(o[1])
        elif o[0] != "const" or not isinstance(o[2], int):
            return None, n
    elif len(sizes) == 1:
        return None, n
    numbers = [size.constant() for size in sizes]
    shape = tuple(x if isinstance(x, int) else None for x in numbers)
    return (shape if any(x is not None for x in shape) or not shape else None), n


def _literal(source: Val, default: str) -> tuple[Shape, str | None]:
    """The layout of `torch.tensor([1, 2])`."""
    if len(source.objs) != 1:
        return None, None
    (o,) = source.objs
    if o[0] == "const":
        return (), _type([source], default)
    if o[0] != "tuple" or not all(part.of("const") for part in o[1]):
        return ((len(o[1]),), None) if o[0] == "tuple" and _are_numbers(o[1]) else (None, None)
    return (len(o[1]),), _type(list(o[1]), default)


def _are_numbers(parts: tuple[Val, ...]) -> bool:
    """Whether elements surely are single numbers, no lists or tensors."""
    return all(part.objs and all(o[0] in _NUMBERS for o in part.each) for part in parts)


def _type(parts: list[Val], default: str) -> str | None:
    kinds = {type(part.constant()) for part in parts}
    if len(kinds) == 1:
        return {int: "int64", float: default, bool: "bool"}.get(kinds.pop())
    return None

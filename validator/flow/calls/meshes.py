"""Device meshes: what calls make them of, what their methods give, and their parts."""

from __future__ import annotations

from validator.domains.axes import SOME, WHOLE, Axes, of_dimension
from validator.domains.spmd import rank
from validator.flow.calls.arguments import Arguments, argument
from validator.flow.values import Obj, Val, group_of, join, obj


def method_of_mesh(o: Obj, arguments: Arguments) -> Val:
    """What a method of a mesh gives."""
    (dimensions, whole), name = o[1], o[2]
    given = arguments[0][1].constant() if arguments else None
    axes = _axes(dimensions, whole, given, bool(arguments))
    if name == "size" and dimensions is not None:
        which = dimensions[given] if isinstance(given, int) and -len(dimensions) <= given < len(dimensions) else None
        if which is not None:
            axes = frozenset({of_dimension(which)})
        return obj("size", group_of(axes)) if axes != SOME else Val()
    if name == "get_group":
        several = whole is not None and axes not in (WHOLE, SOME)
        return group_of(axes, "several" if several else None)
    if name in ("get_local_rank", "get_coordinate"):
        number = {("ordinal", "job" if axes == WHOLE else "group", axes)} if name == "get_local_rank" else set()
        return Val(frozenset(number), rank(axes if axes != SOME else WHOLE, sure=axes != SOME))
    if name == "get_rank":
        return Val(v=rank(WHOLE))
    if name == "_flatten":
        return obj("mesh", dimensions, whole, "flat")
    return Val()


def dimensions_of(mesh: Obj) -> tuple[str, ...]:
    """The names of the dimensions of a mesh, in their order; none where they are not known, or one was made of all."""
    return mesh[1] if mesh[0] == "mesh" and len(mesh) == 3 and mesh[1] is not None else ()


def _axes(dimensions: tuple[str, ...] | None, whole: bool | None, given: object, is_given: bool) -> Axes:
    """The axes of the dimension that a method is asked about, else of the whole mesh."""
    if whole and dimensions is not None and (not is_given or dimensions == (given,)):
        return WHOLE
    if isinstance(given, str):
        return frozenset({of_dimension(given)})
    if is_given or dimensions is None:
        return SOME
    return frozenset(of_dimension(d) for d in dimensions)


def made_mesh(arguments: Arguments) -> Val:
    """The mesh that a call makes, with the names of its dimensions if they are literal."""
    given = argument(("mesh_dim_names", 2), arguments)
    for o in given.each if given is not None else ():
        if o[0] == "tuple":
            names = [v.constant() for v in o[1]]
            if all(isinstance(n, str) for n in names):
                return obj("mesh", tuple(names), True)
    return obj("mesh", None, True)


def part_of_mesh(mesh: Obj, key: Val) -> Val:
    """`mesh["dp"]`, `mesh["dp", "cp"]`: a part of a mesh, each that the key may name; of all its dimensions it is the
    mesh."""
    keys = [
        [part.constant() for part in o[1]] if o[0] == "tuple" else [o[2] if o[0] == "const" else None] for o in key.each
    ]
    return join(_part(mesh, names) for names in keys or [[None]])


def _part(mesh: Obj, names: list[object]) -> Val:
    if not all(isinstance(name, str) for name in names):
        return obj("mesh", None, None)
    if mesh[1] is None or mesh[2] is None:
        return obj("mesh", tuple(names), None)
    return obj("mesh", tuple(names), mesh[2] and set(names) == set(mesh[1]))

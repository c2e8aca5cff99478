"""What an annotation says a value is: objects of classes of the project, containers of them, or something else."""

from __future__ import annotations

import ast
from functools import lru_cache

from validator.definitions import ClassDef, External, Method, Symbol, Unknown
from validator.flow.values import BOTTOM, NONE_OBJ, STRING, UNKNOWN, Obj, Val, join, obj, parts_of, sequence, tuple_of
from validator.project import Project

# Forms of `typing` that are what stands in their brackets.
_TRANSPARENT = frozenset({"Optional", "Union", "Annotated", "Final", "ClassVar", "Required", "NotRequired"})
_SEQUENCES = frozenset({
    "list", "set", "frozenset", "deque", "List", "Set", "FrozenSet", "Deque", "Sequence", "MutableSequence",
    "Collection", "Iterable", "Iterator",
})  # fmt: skip
_MAPPINGS = frozenset({"dict", "Dict", "Mapping", "MutableMapping", "DefaultDict", "defaultdict", "OrderedDict"})


def declared(project: Project, place: Method | ClassDef, annotation: str) -> Val:
    """The value that an annotation declares, in a function or in the body of a class; what it says of things outside
    the project is that they are unknown."""
    node = _parsed(annotation)
    return _value(project, place, node) if node is not None else BOTTOM


def _meant(project: Project, place: Method | ClassDef, path: str) -> Symbol:
    """What a name means in an annotation: the classes in the body of the class around come first."""
    cls = place.cls if isinstance(place, Method) else place
    nested = place.module.classes.get(f"{cls.qualname}.{path}") if cls is not None else None
    return nested or project.lookup(place.module.top, path)


def classes_of(value: Val) -> frozenset[ClassDef]:
    """The classes of which a declared value may be an object."""
    return frozenset(o[1] for o in value.objs if o[0] == "self")


def objects_of(value: Val) -> frozenset[Obj]:
    """What a declared value says of the project: objects of its classes, and containers in which they are."""
    return frozenset(o for o in value.objs if o[0] == "self" or any(objects_of(part) for part in parts_of(o)))


def choices(annotation: str) -> list[object] | None:
    """The values that an annotation with `Literal[…]` allows; None where it allows others too."""
    node = _parsed(annotation)
    return _literals(node) if node is not None else None


def _literals(node: ast.expr) -> list[object] | None:
    if isinstance(node, ast.Constant) and node.value is None:
        return [None]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _all([node.left, node.right])
    if not isinstance(node, ast.Subscript):
        return None
    name = ast.unparse(node.value).rpartition(".")[2]
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Literal":
        values: list[object] = [part.value for part in parts if isinstance(part, ast.Constant)]
        return values if len(values) == len(parts) else None
    if name not in _TRANSPARENT:
        return None
    found = _all(parts if name == "Union" else parts[:1])
    return [*found, None] if found is not None and name == "Optional" else found


def _all(nodes: list[ast.expr]) -> list[object] | None:
    found = [_literals(node) for node in nodes]
    return None if None in found else [value for values in found if values is not None for value in values]


def spelled(project: Project, function: Method, annotation: str) -> str:
    """An annotation with the full names of what is imported: a file may know `Iterable` by a name of its own."""
    node = _parsed(annotation)
    return ast.unparse(_Spelling(project, function.module.top).visit(node)) if node is not None else annotation


def foreign_classes(project: Project, function: Method, annotation: str) -> frozenset[str]:
    """The full names of the classes of libraries that an annotation names; none where it allows anything."""
    node = _parsed(annotation)
    while isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = _parsed(node.value)
    inner = [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)] if node is not None else []
    held = {id(each.value) for each in inner if isinstance(each, ast.Attribute)}
    meant = [_meant(project, function, ast.unparse(each)) for each in inner if id(each) not in held]
    names = frozenset(each.path for each in meant if isinstance(each, External | Unknown))
    if not names.isdisjoint(("typing.Any", "object", "typing_extensions.Any")):
        return frozenset()
    return frozenset(name for name in names if "." in name and not name.startswith(("typing.", "typing_extensions.")))


@lru_cache(maxsize=4096)
def _parsed(annotation: str) -> ast.expr | None:
    try:
        return ast.parse(annotation.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        return None


class _Spelling(ast.NodeTransformer):
    def __init__(self, project: Project, scope: Method) -> None:
        self.project = project
        self.scope = scope

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self.project.dotted(self.scope, node.id) or node.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.Name(self.project.dotted(self.scope, ast.unparse(node)) or ast.unparse(node))


def _value(project: Project, place: Method | ClassDef, node: ast.expr) -> Val:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        inner = _parsed(node.value)
        return _value(project, place, inner) if inner is not None else UNKNOWN
    if isinstance(node, ast.Constant) and node.value is None:
        return Val(frozenset({NONE_OBJ}))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return join([_value(project, place, node.left), _value(project, place, node.right)])
    if isinstance(node, ast.Subscript):
        return _subscript(project, place, node)
    if not isinstance(node, ast.Name | ast.Attribute):
        return UNKNOWN
    symbol = _meant(project, place, ast.unparse(node))
    if isinstance(symbol, ClassDef):
        return obj("self", symbol) if not symbol.is_protocol else UNKNOWN
    return _builtin(node.id) if isinstance(node, ast.Name) else UNKNOWN


def _builtin(name: str) -> Val:
    """What has the name of a builtin type is no object of the project."""
    if name == "str":
        return STRING
    if name in _MAPPINGS:
        return obj("dict", (), UNKNOWN)
    return sequence(UNKNOWN) if name in _SEQUENCES or name == "tuple" else UNKNOWN


def _subscript(project: Project, place: Method | ClassDef, node: ast.Subscript) -> Val:
    name = ast.unparse(node.value).rpartition(".")[2]
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name in _TRANSPARENT:
        inner = join(_value(project, place, part) for part in (parts if name == "Union" else parts[:1]))
        return join([inner, Val(frozenset({NONE_OBJ}))]) if name == "Optional" else inner
    if name in _SEQUENCES and len(parts) == 1:
        return sequence(_value(project, place, parts[0]))
    if name in _MAPPINGS and len(parts) == 2:
        return obj("dict", (), _value(project, place, parts[1]))
    if name in ("tuple", "Tuple") and parts:
        last = parts[-1]
        if isinstance(last, ast.Constant) and last.value is ...:
            return sequence(_value(project, place, parts[0]))
        return tuple_of(_value(project, place, part) for part in parts)
    symbol = _meant(project, place, ast.unparse(node.value))  # a generic class of the project
    return obj("self", symbol) if isinstance(symbol, ClassDef) else UNKNOWN

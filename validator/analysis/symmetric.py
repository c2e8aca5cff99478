"""Whether a function gives the same for two of its arguments in either order: `def mse(pred, target)`."""

from __future__ import annotations

import ast

# Of libraries: the same with the first two arguments exchanged.
_EITHER_WAY = frozenset({
    "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cosine_similarity", "dist", "pairwise_distance", "maximum",
    "minimum", "max", "min", "dot", "inner", "allclose", "isclose", "equal", "add", "mul", "multiply", "hypot",
})  # fmt: skip
_SIGNLESS = frozenset({"abs", "norm", "square"})
_COMMUTING = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)


def is_symmetric(function: ast.FunctionDef | ast.AsyncFunctionDef, one: str, other: str) -> bool:
    """Whether all that a function does is to give back an expression that is the same with two names exchanged."""
    body = [node for node in function.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return False
    value = body[0].value
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    return {one, other} <= names and _shape(value, {}) == _shape(value, {one: other, other: one})


def _shape(node: ast.AST, names: dict[str, str], signless: bool = False) -> str:
    """An expression under other names, with the operands in one order where their order changes nothing."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.BinOp):
        even = isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant) and node.right.value in (2, 4)
        parts = [_shape(node.left, names, even), _shape(node.right, names)]
        if isinstance(node.op, _COMMUTING) or (signless and isinstance(node.op, ast.Sub)):
            parts.sort()
        return f"({type(node.op).__name__} {' '.join(parts)})"
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else _shape(node.func, {})
        signless = called in _SIGNLESS
        of = _shape(node.func.value, names, signless) if isinstance(node.func, ast.Attribute) else ""
        given = [_shape(each, names, signless) for each in node.args]
        if called in _EITHER_WAY:
            given[:2] = sorted(given[:2])
        named = [f"{each.arg}={_shape(each.value, names)}" for each in node.keywords]
        return f"(call {of}.{called} {' '.join(given + named)})"
    inner = [_shape(child, names) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)]
    plain = [repr(value) for name, value in ast.iter_fields(node) if isinstance(value, str | int | float)]
    return f"({type(node).__name__} {' '.join(plain + inner)})"

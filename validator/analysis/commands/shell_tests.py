"""Whether the test of a shell script holds, and what an expression amounts to, as far as the script tells."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator

from validator.facts.script import Command, Piece, Statement, Word

_NUMERIC = {
    "-eq": lambda a, b: a == b, "-ne": lambda a, b: a != b, "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b, "-gt": lambda a, b: a > b, "-ge": lambda a, b: a >= b,
}  # fmt: skip
_COMPARED = {"==": "-eq", "!=": "-ne", "<": "-lt", "<=": "-le", ">": "-gt", ">=": "-ge"}  # in `((…))`
_OPENING, _CLOSING = ("[", "[[", "test"), ("]", "]]")
_VARIABLE = re.compile(r"\$\{?#?(\w+)(?:\[[^]]*\])?(?::?-(\d+))?\}?")


def decide(test: tuple[Statement, ...], text: Callable[[Word], str | None]) -> bool | None:
    """Whether a test holds; None if that is not known. `text` gives what a word amounts to (unset: empty)."""
    if len(test) != 1 or not isinstance(test[0], Command):
        return None
    words = list(test[0].words)
    parts: list[str | None] = [text(word) for word in words]
    if len(parts) == 5 and parts[0] == "((":
        return _simple([parts[1], _COMPARED.get(parts[2] or ""), parts[3]])
    if not parts or parts[0] not in _OPENING:
        return {"true": True, "false": False}.get(parts[0] or "") if len(parts) == 1 else None
    parts = parts[1:-1] if parts[-1] in _CLOSING else parts[1:]
    negated = False
    while parts and parts[0] == "!":
        negated, parts = not negated, parts[1:]
    held = _simple(parts)
    return held if held is None else held != negated


def _simple(parts: list[str | None]) -> bool | None:
    if any(part is None for part in parts):
        return None
    known = [part for part in parts if part is not None]
    match known:
        case [single]:
            return bool(single)
        case ["-z", value]:
            return not value
        case ["-n", value]:
            return bool(value)
        case [left, "=" | "==", right]:
            return fnmatch.fnmatchcase(left, right)
        case [left, "!=", right]:
            return not fnmatch.fnmatchcase(left, right)
        case [left, operator, right] if operator in _NUMERIC:
            numbers = [int(n) for n in (left, right) if re.fullmatch(r"[+-]?[0-9]{1,18}", n.strip())]
            return bool(_NUMERIC[operator](*numbers)) if len(numbers) == 2 else None
    return None


def equality(test: tuple[Statement, ...]) -> tuple[str, Word] | None:
    """The variable and the literal of `[ "$NAME" = literal ]`."""
    if len(test) != 1 or not isinstance(test[0], Command):
        return None
    words = test[0].words
    if len(words) != 5:
        return None
    left, operator, right = words[1:4]
    names = [piece for piece in left.pieces if piece.kind == "variable"]
    literal = all(piece.kind == "text" and "*" not in piece.value for piece in right.pieces)
    if len(names) == 1 and literal and _written(operator) in ("=", "==", "-eq"):
        return names[0].value, right
    return None


def _written(word: Word) -> str:
    return "".join(piece.value for piece in word.pieces if piece.kind == "text")


def names(statements: Iterable[Statement]) -> set[str]:
    """The variables that tests mention."""
    found: set[str] = set()
    for statement in statements:
        if isinstance(statement, Command):
            for word in statement.words:
                found.update(_names(word.pieces))
        elif isinstance(statement, tuple):
            for part in statement:
                if isinstance(part, tuple) and part and isinstance(part[0], tuple):
                    found |= names(part)
    return found


def _names(pieces: Iterable[Piece]) -> Iterator[str]:
    for piece in pieces:
        if piece.kind == "variable":
            yield piece.value
        elif piece.kind == "arithmetic":
            yield from re.findall(r"[A-Za-z_]\w*", piece.value)
        yield from _names(piece.operand)


def arithmetic(expression: str, number: Callable[[str], int | None]) -> int | None:
    """The value of `$((expression))`; `number` gives that of a variable. None where it is not known."""

    def written(match: re.Match[str]) -> str:
        value = number(match[1])
        return f"({value})" if value is not None else match[2] or f"_{match[1]}"

    plain = _VARIABLE.sub(written, expression)
    try:
        tree = ast.parse(plain.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    return _value(tree, number)


def _value(node: ast.expr, number: Callable[[str], int | None]) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return number(node.id)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _value(node.operand, number)
        return None if inner is None else -inner if isinstance(node.op, ast.USub) else inner
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _value(node.left, number), _value(node.right, number)
    return None if left is None or right is None else _operate(node.op, left, right)


def _operate(operator: ast.operator, left: int, right: int) -> int | None:
    if max(abs(left), abs(right)) > 1 << 62:
        return None
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div() | ast.FloorDiv():
            return None if right == 0 else int(left / right)
        case ast.Mod():
            return None if right == 0 else left - right * int(left / right)
        case ast.Pow() if 0 <= right < 63 and abs(left) <= 1024:
            return int(left**right)
    return None

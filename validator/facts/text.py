"""From syntax nodes to positions, paths and short texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cached_property

from validator.facts.model import At
from validator.files.integers import same

_LONGEST = 160
_WORD = re.compile(r"\w+")


class Text:
    """The lines of a file, with the conversions between the byte offsets of `ast` and characters."""

    def __init__(self, text: str, own_names: Mapping[str, str] | None = None) -> None:
        self._text = text
        self.ascii = text.isascii()
        self.own_names = own_names or {}  # see `validator.facts.own_names`

    @cached_property
    def lines(self) -> list[str]:
        return self._text.split("\n")

    def at(self, node: ast.AST) -> At:
        """The place of a node; columns in characters, from 1."""
        line, column, end_line, end_column = (
            node.lineno, node.col_offset, node.end_lineno, node.end_col_offset,  # type: ignore[attr-defined]
        )  # fmt: skip
        line, end_line = same(line, line), same(end_line, end_line)
        if self.ascii:
            return (line, column + 1, end_line, end_column + 1)
        return (line, self.column(line, column), end_line, self.column(end_line, end_column))

    def column(self, line: int, offset: int) -> int:
        """The column, from 1, of a UTF-8 byte offset in a line."""
        if self.ascii:
            return offset + 1
        text = self.lines[line - 1]
        return offset + 1 if text.isascii() else len(text.encode()[:offset].decode(errors="ignore")) + 1

    def segment(self, node: ast.expr, longest: int = _LONGEST) -> str:
        """The source of an expression with white space folded, cut at `longest` characters."""
        at = self.at(node)
        text = self.between(at)
        if self.own_names:
            text = _WORD.sub(lambda word: self.own_names.get(word[0], word[0]), text)
        return text[:longest] if at[0] == at[2] else " ".join(text.split())[:longest]

    def between(self, at: At) -> str:
        """The source at a place as it is written."""
        line, column, end_line, end_column = at
        if line == end_line:
            return self.lines[line - 1][column - 1 : end_column - 1]
        last = self.lines[end_line - 1][: end_column - 1]
        return "\n".join([self.lines[line - 1][column - 1 :], *self.lines[line : end_line - 1], last])

    def value(self, node: ast.expr) -> tuple[str, str]:
        """The (kind, text) of an expression as `Argument` describes them."""
        kind = type(node)
        if kind is ast.Name or kind is ast.Attribute or kind is ast.Subscript:
            return "path", path_of(node)
        if kind is ast.Call:
            return "call", path_of(node.func)  # type: ignore[attr-defined]
        if kind is ast.Constant or kind is ast.UnaryOp and type(node.operand) is ast.Constant:  # type: ignore[attr-defined]
            return "const", self.segment(node)
        if kind is ast.Tuple or kind is ast.List:
            return "tuple", self.segment(node)
        if kind is ast.Lambda:
            return "lambda", self.segment(node)
        if kind is ast.Await:
            return self.value(node.value)  # type: ignore[attr-defined]
        return "other", self.segment(node)


_LONGEST = 128  # links of a path: generated code chains thousands, and each call of a chain has a path of its own


def path_of(node: ast.expr) -> str:
    """The path of an expression (see `validator.facts.model`)."""
    links: list[str] = []
    while True:
        kind = type(node)
        if len(links) == _LONGEST:
            links.append("?")
            break
        if kind is ast.Name:
            links.append(node.id)  # type: ignore[attr-defined]
            break
        if kind is ast.Attribute:
            links.append("." + node.attr)  # type: ignore[attr-defined]
            node = node.value  # type: ignore[attr-defined]
        elif kind is ast.Call:
            links.append("()")
            node = node.func  # type: ignore[attr-defined]
        elif kind is ast.Subscript:
            links.append("[]")
            node = node.value  # type: ignore[attr-defined]
        elif kind is ast.Await:
            node = node.value  # type: ignore[attr-defined]
        else:
            links.append("?")
            break
    links.reverse()
    return "".join(links)

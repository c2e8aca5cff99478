"""How a function differs between two revisions: statements that went, that came, and that were changed.

Statements are compared as Python reads them, so that white space, comments, brackets and line breaks do not count. Of
a compound statement its first line is one statement and each of its body is one of its own.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

from validator.flow.program.unit import Unit

_LIKE = 0.5  # of the words of two statements that one became the other
_PAIRED = 1_000_000  # pairs of words, beyond which a stretch that was replaced is one that was written anew
_MATCHED = 200_000  # pairs of equal statements, beyond which those that come most often are no landmarks


class Statement(NamedTuple):
    """A statement. `text` is its source as Python reads it; `inside` are the first lines of what it stands in."""

    text: str
    node: ast.stmt
    inside: tuple[str, ...]


class Edit(NamedTuple):
    """One statement that is not what it was; `old` None: it came, `new` None: it went."""

    old: Statement | None
    new: Statement | None


def changed_calls(edit: Edit) -> Iterator[tuple[ast.Call, ast.Call]]:
    """The calls on the own lines of a statement that is another one now, before and after, that call the same."""
    if edit.old is not None and edit.new is not None:
        old, new = ([n for n in in_head(each.node) if isinstance(n, ast.Call)] for each in (edit.old, edit.new))
        yield from ((a, b) for a, b in zip(old, new, strict=False) if alike_syntax(a.func, b.func))


def alike_syntax(one: ast.AST, other: ast.AST) -> bool:
    """Whether two pieces of syntax are alike, wherever they stand."""
    return ast.dump(one) == ast.dump(other)


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


def statements(unit: Unit) -> list[Statement]:
    """The statements of a function, a class body or the top level of a module in their order, without those of
    functions and classes inside it. Empty where Python cannot write one of them out: it is nested too deeply, or holds
    a number of thousands of digits."""
    node = node_of(unit)
    try:
        return list(_flat(node.body, ())) if node is not None else []
    except (RecursionError, ValueError):
        return []


def node_of(unit: Unit) -> Node | None:
    """The syntax of a unit."""
    if unit.code.kind == "module":
        return unit.module.source.tree
    return unit.module.definitions_by_line.get((unit.code.at[0], unit.code.name))


def _flat(body: list[ast.stmt], inside: tuple[str, ...]) -> Iterator[Statement]:
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            continue  # documentation
        head = header(node)
        yield Statement(head, node, inside)
        if isinstance(node, _DEFINITIONS):
            continue
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                mark = head if name == "body" else f"{name} of {head}"
                yield from _flat(inner, (*inside, mark))
        for handler in getattr(node, "handlers", ()):
            caught = ast.unparse(handler.type) if handler.type is not None else ""
            yield from _flat(handler.body, (*inside, f"except {caught}"))
        for case in getattr(node, "cases", ()):
            yield from _flat(case.body, (*inside, f"case {ast.unparse(case.pattern)}"))


def header(node: ast.stmt) -> str:
    """A simple statement as a whole, the first line of a compound one."""
    if not hasattr(node, "body"):
        return ast.unparse(node)
    if isinstance(node, ast.If | ast.While):
        return f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    if isinstance(node, ast.For | ast.AsyncFor):
        return f"for {ast.unparse(node.target)} in {ast.unparse(node.iter)}"
    if isinstance(node, ast.With | ast.AsyncWith):
        return f"with {', '.join(ast.unparse(item) for item in node.items)}"
    if isinstance(node, _DEFINITIONS):
        return f"def {node.name}"
    return f"{type(node).__name__.lower()} {getattr(node, 'name', '')}".strip()


def heads(node: ast.stmt) -> list[ast.AST]:
    """The parts of a statement that its own lines hold, without its body."""
    if isinstance(node, ast.If | ast.While):
        return [node.test]
    if isinstance(node, ast.For | ast.AsyncFor):
        return [node.target, node.iter]
    if isinstance(node, ast.With | ast.AsyncWith):
        return [part for item in node.items for part in (item.context_expr, item.optional_vars) if part is not None]
    return [] if hasattr(node, "body") else [node]


def in_head(node: ast.stmt) -> Iterator[ast.AST]:
    """All syntax on the own lines of a statement."""
    for part in heads(node):
        yield from ast.walk(part)


def paths(node: ast.AST) -> frozenset[str]:
    """The variables and attributes that stand anywhere in a piece of syntax, as they are written."""
    return frozenset(ast.unparse(each) for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute))


def own_paths(node: ast.stmt, context: type[ast.expr_context] = ast.expr_context) -> frozenset[str]:
    """The variables and attributes that a statement reads (`ast.Load`), stores or deletes, on its own lines."""
    rows = (each for each in in_head(node) if isinstance(each, ast.Name | ast.Attribute))
    return frozenset(ast.unparse(each) for each in rows if isinstance(each.ctx, context))


def edits(old: list[Statement], new: list[Statement]) -> list[Edit]:
    """What became of the statements of a function."""
    found: list[Edit] = []
    for kind, a, b, c, d in matcher([s.text for s in old], [s.text for s in new]).get_opcodes():
        if kind != "equal":
            found += _paired(old[a:b], new[c:d])
    return found


def matcher(old: list[str], new: list[str]) -> SequenceMatcher[str]:
    """Matches two rows of texts, in a time that does not grow with the square of what they repeat."""
    counts = Counter(new)
    return SequenceMatcher(None, old, new, autojunk=sum(counts[text] for text in old) > _MATCHED)


def _paired(old: list[Statement], new: list[Statement]) -> Iterator[Edit]:
    """Of a stretch that was replaced: which statement became which; one that gives a name its value is the one that
    did so before."""
    partners: dict[int, int] = {}
    least = 0.0 if len(old) == len(new) == 1 else _LIKE
    before, after = ([_words(each.text) for each in rows] for rows in (old, new))
    if least and sum(map(len, before)) * sum(map(len, after)) > _PAIRED:
        before = []
    for targets in (True, False):
        for place, words in enumerate(before):
            if place in partners:
                continue
            each = old[place]
            best, found = least, -1
            for index, other in enumerate(new):
                if index in partners.values() or type(other.node) is not type(each.node):
                    continue
                if targets and not is_same_target(each.node, other.node):
                    continue
                if (like := _like(words, after[index])) > best:
                    best, found = like, index
            if found >= 0:
                partners[place] = found
    for place, each in enumerate(old):
        yield Edit(each, new[partners[place]] if place in partners else None)
    for index, other in enumerate(new):
        if index not in partners.values():
            yield Edit(None, other)


def is_same_target(one: ast.stmt, other: ast.stmt) -> bool:
    """Whether two assignments give their values to the same names."""
    if not isinstance(one, ast.Assign) or not isinstance(other, ast.Assign):
        return False
    return [ast.dump(each) for each in one.targets] == [ast.dump(each) for each in other.targets]


def _like(one: list[str], other: list[str]) -> float:
    found = SequenceMatcher(None, one, other, autojunk=False)
    return found.ratio() if len(one) * len(other) <= _PAIRED else found.quick_ratio()


def _words(text: str) -> list[str]:
    word, found = "", []
    for letter in text:
        if letter.isalnum() or letter == "_":
            word += letter
            continue
        if word:
            found.append(word)
            word = ""
        if not letter.isspace():
            found.append(letter)
    return [*found, word] if word else found


def similarity(old: list[Statement], new: list[Statement]) -> float:
    """The share of the statements of two functions that are the same, from 0 to 1."""
    if not old or not new:
        return 0.0
    return matcher([s.text for s in old], [s.text for s in new]).ratio()

"""The facts of a shell script: its statements as plain, immutable, picklable records.

Nothing is expanded here: a word is a row of pieces, and what a variable holds is for the analysis to find out
(another script may set it). An `at` is (line, column, end line, end column), from 1, as in `facts.model`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Union

from validator.facts.model import At


class Piece(NamedTuple):
    """A part of a word.

    `kind`: `text` (then `value` is the text, unescaped), `variable` (`value` is its name, `operator` what is done
    with it: `:-`, `%%`, `/`, `#` for the length…, with `operand`; `key` the subscript as written),
    `arithmetic` (`value` is the expression as written), `command` (a command substitution: `script`), or `other`.
    `quoted` pieces are not split at white space.
    """

    kind: str
    value: str
    line: int
    column: int
    quoted: bool = False
    operator: str = ""
    key: str = ""
    operand: tuple[Piece, ...] = ()
    script: Script | None = None
    width: int = 0  # of an expansion, in the source


class Word(NamedTuple):
    """A word as written."""

    pieces: tuple[Piece, ...]
    at: At

    @property
    def text(self) -> str:
        """The pieces one behind another: of an expansion what is expanded."""
        return "".join(piece.value for piece in self.pieces)


class Assign(NamedTuple):
    """`NAME=value`, `NAME+=value`, `NAME=(items…)`; `keyword` is `export`, `local`, … or empty."""

    name: str
    key: str
    append: bool
    value: Word | None
    items: tuple[Word, ...] | None
    at: At
    keyword: str = ""


class Command(NamedTuple):
    """A simple command, or a test (`[`, `[[`, with its parts as words).

    `heredoc` is the text on its standard input; `inner` the script that it is given to run (`bash -c "…"`, a
    here-document read by a shell or written to one); `output` where its output is written to, if literal.
    `broken`: the parser had to guess inside it.
    """

    words: tuple[Word, ...]
    assigns: tuple[Assign, ...]
    heredoc: tuple[Piece, ...] | None
    inner: Script | None
    at: At
    output: str = ""
    broken: bool = False


class Arm(NamedTuple):
    """One branch of an `if` (`test` is run first) or of a `case` (`patterns`)."""

    test: tuple[Statement, ...]
    patterns: tuple[str, ...]
    body: tuple[Statement, ...]


class Branch(NamedTuple):
    """`if` (`subject` is None; an `else` is an arm without test) or `case`."""

    subject: Word | None
    arms: tuple[Arm, ...]
    at: At


class Chain(NamedTuple):
    """`left && right` or `left || right`."""

    left: tuple[Statement, ...]
    operator: str
    right: tuple[Statement, ...]
    at: At


class For(NamedTuple):
    """`for name in words`; `words` is None for `for name` (the arguments) and for C-style loops."""

    name: str
    words: tuple[Word, ...] | None
    body: tuple[Statement, ...]
    at: At


class Loop(NamedTuple):
    """`while` and `until`."""

    test: tuple[Statement, ...]
    body: tuple[Statement, ...]
    at: At


class Function(NamedTuple):
    """A function definition."""

    name: str
    body: tuple[Statement, ...]
    at: At


class Group(NamedTuple):
    """`{ … }`; `isolated`: `( … )`, the parts of a pipeline and what runs in the `background`, whose assignments are
    lost."""

    body: tuple[Statement, ...]
    isolated: bool
    at: At
    background: bool = False


Statement = Union[Assign, Command, Branch, Chain, For, Loop, Function, Group]  # noqa: UP007 (recursive)


class Script(NamedTuple):
    """A script. `directives` are those of `#SBATCH` lines: (option, value, place)."""

    statements: tuple[Statement, ...] = ()
    directives: tuple[tuple[str, str, At], ...] = ()

    def extents(self) -> list[tuple[int, int, int]]:
        """(first line, last line, depth) of its statements; of one that holds others, the first line."""
        return list(_extents(self.statements, 0))

    def every(self) -> list[Statement]:
        """Its statements, with those that others hold."""
        found = list(self.statements)
        for each in found:
            found += [inner for body in _bodies(each) for inner in body]
        return found


def _extents(statements: tuple[Statement, ...], depth: int) -> Iterator[tuple[int, int, int]]:
    for statement in statements:
        inside = [part for part in _bodies(statement) if part]
        if isinstance(statement, Group | Chain):
            for body in inside:
                yield from _extents(body, depth)
        elif inside:
            yield statement.at[0], statement.at[0], depth
            for body in inside:
                yield from _extents(body, depth + 1)
        else:
            yield statement.at[0], statement.at[2], depth


def _bodies(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    if isinstance(statement, Branch):
        return tuple(arm.body for arm in statement.arms)
    if isinstance(statement, Chain):
        return statement.left, statement.right
    return (statement.body,) if isinstance(statement, For | Loop | Function | Group) else ()


def parts(node: object) -> Iterator[Word | Assign]:
    """The words and assignments in a part of a script, those inside of others too."""
    if isinstance(node, Word | Assign):
        yield node
    if isinstance(node, tuple):
        for each in node:
            yield from parts(each)

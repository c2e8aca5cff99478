"""What a shell script takes as its arguments: which variable takes each position, and what comes of one that lacks.

`STEP=$2`, `LIMIT=${4:-100}`, `--model "$1"` name a position; `shift` moves those behind it. A position is optional
where the script has a default for it, tests it, or reads it under a condition. Arguments that a loop goes through
(`getopts`, `while [ $# -gt 0 ]; do … shift`) have no positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from validator.analysis.commands import shell_tests
from validator.facts.model import At
from validator.facts.script import (
    Assign,
    Branch,
    Chain,
    Command,
    For,
    Function,
    Group,
    Loop,
    Piece,
    Script,
    Statement,
    Word,
)
from validator.files.integers import whole

_DEFAULTS = frozenset({":-", "-", ":=", "=", ":+", "+"})
_REFUSES = frozenset({":?", "?"})
_SAYS = frozenset({"echo", "printf", "cat", "usage", "exit"})
_ALL = frozenset({"@", "*"})
_GAP = "\0"  # stands for an expansion in the text before a piece


class Position(NamedTuple):
    """A position. `names`: the variables, options and keys that take it; `at`: where it is first read.

    `lack` says what comes of it where it is not given: `refused` (`${1:?}`), `unset` (an error under `set -u`),
    `option` (an option without its value), `text` (a hole in a path or another text), empty: nothing, or it is not
    known.
    `sure`: the script comes to where it lacks.
    """

    names: tuple[str, ...]
    at: At
    optional: bool
    lack: str
    sure: bool


class Guard(NamedTuple):
    """A test of the number of arguments behind which the script ends, where it holds (`holds`) or does not."""

    test: tuple[Statement, ...]
    holds: bool
    refuses: bool
    at: At


class Signature(NamedTuple):
    """The positions of a script by number. `rest`: it reads further arguments by `$@`, `$*`, `shift` or `getopts`."""

    positions: dict[int, Position]
    rest: bool
    guards: tuple[Guard, ...]

    def refusal(self, count: int) -> At | None:
        """The test that ends the script because of the number of its arguments."""
        for guard in self.guards:
            if shell_tests.decide(guard.test, lambda word: _counted(word, count)) is guard.holds:
                return guard.at if guard.refuses else None
        return None

    def ends(self, count: int) -> bool:
        """Whether the script ends early with that many arguments."""
        return any(
            shell_tests.decide(guard.test, lambda word: _counted(word, count)) is guard.holds for guard in self.guards
        )


class _Read(NamedTuple):
    """A place where a position is read."""

    number: int
    name: str
    operator: str
    at: At
    lone: bool  # whether it is read whenever the script runs
    strict: bool  # under `set -u`
    sure: bool
    use: str


def signature(script: Script) -> Signature:
    """What a script takes by position."""
    reader = _Reader(script)
    reader.all(script.statements)
    numbers = sorted({read.number for read in reader.reads})
    return Signature({n: reader.position(n) for n in numbers}, reader.rest, tuple(reader.guards))


class _Reader:
    """Goes through a script in its order."""

    def __init__(self, script: Script) -> None:
        self.functions = {each.name: each for each in script.every() if isinstance(each, Function)}
        self.reads: list[_Read] = []
        self.guards: list[Guard] = []
        self.rest = False
        self.asked: set[str] = set()  # what tests and defaults speak of: variables and numbers of positions
        self.assigned: dict[str, int] = {}
        self.uses: dict[str, set[str]] = {}
        self.offset: int | None = 0  # None: not known any more
        self.conditions = 0
        self.strict = False
        self.sure = True
        self.sources = False
        self.called: set[str] = set()

    def position(self, number: int) -> Position:
        """What is known of a position after the whole script was read."""
        reads = [read for read in self.reads if read.number == number]
        names = tuple(dict.fromkeys(read.name for read in reads if read.name))
        tested = str(number) in self.asked or any(n in self.asked or self.assigned.get(n, 0) > 1 for n in names)
        optional = tested or all(not read.lone or read.operator in _DEFAULTS for read in reads)
        first = next((read for read in reads if read.lone), reads[0])
        refused = next((read for read in reads if read.lone and read.operator in _REFUSES), None)
        unset = first.lone and first.strict and first.operator not in _DEFAULTS
        if refused is not None:
            return Position(names, refused.at, False, "refused", refused.sure)
        if unset:
            return Position(names, first.at, False, "unset", first.sure)
        uses = {use for read in reads for use in (read.use, *self.uses.get(read.name, ()))}
        lack = next((use for use in ("option", "text") if use in uses), "")
        return Position(names, first.at, optional, "" if optional or self.sources else lack, False)

    # -- statements ----------------------------------------------------------------------------------------

    def all(self, statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            self.one(statement)

    def one(self, statement: Statement) -> None:
        match statement:
            case Assign():
                self.assign(statement)
            case Command():
                self.command(statement)
            case Branch():
                self.branch(statement)
            case Chain():
                self.chain(statement)
            case For():
                if statement.words is None or any(_takes_all(word) for word in statement.words):
                    self.rest = True
                self.words(statement.words or ())
                self.maybe(statement.body)
            case Loop():
                self.loop(statement)
            case Group():
                before = self.offset
                self.all(statement.body)
                self.offset = before if statement.isolated else self.offset

    def assign(self, row: Assign) -> None:
        self.assigned[row.name] = self.assigned.get(row.name, 0) + 1
        self.words(row.items or ())
        if row.value is not None:
            shown = [piece for piece in row.value.pieces if piece.kind != "text" or piece.value]
            self.word(row.value, row.name if len(shown) == 1 and not row.key and not row.append else "", "")

    def command(self, row: Command) -> None:
        for each in row.assigns:
            self.assign(each)
        name, *others = (_plain(word) for word in row.words) if row.words else ("",)
        self.words(row.words)
        for piece in row.heredoc or ():
            self.piece(piece, "", "text", row.at)
        match name:
            case "set":
                self._set(others)
            case "shift":
                self._shift(others)
            case "getopts" | "getopt" | "eval":
                self.rest = True
            case "[" | "[[" | "((" | "test":
                self.asked |= shell_tests.names([row])
            case "exit" | "exec":
                self.sure = self.sure and self.conditions > 0
            case "source" | ".":
                self.sources = True
        function = self.functions.get(name)
        if function is not None and name not in self.called and [_takes_all(word) for word in row.words[1:]] == [True]:
            self.called.add(name)  # `main "$@"`: its arguments are those of the script
            self.all(function.body)

    def _set(self, words: list[str]) -> None:
        for index, word in enumerate(words):
            if word == "--" or not word.startswith(("-", "+")) and words[index - 1] not in ("-o", "+o"):
                self.offset, self.rest = None, True  # other arguments
                return
            named = words[index + 1 : index + 2] == ["nounset"] and word.endswith("o")
            if named or "u" in word[1:]:
                self.strict = word.startswith("-")
            if word[1:].endswith("o"):
                return

    def _shift(self, words: list[str]) -> None:
        count = whole(words[0]) if words else 1
        self.offset = None if self.offset is None or count is None else self.offset + count

    def maybe(self, body: tuple[Statement, ...]) -> bool:
        """Read what runs under a condition; whether the script goes on behind it."""
        before, strict = self.offset, self.strict
        self.conditions += 1
        self.all(body)
        self.conditions -= 1
        after, self.offset = self.offset, before
        ends = _end(body, self.functions) is not None
        if not ends and after != before:
            self.offset, self.rest = None, True
        self.strict = strict
        return not ends

    def branch(self, row: Branch) -> None:
        if row.subject is not None:
            self.word(row.subject, "", "")
            self.asked.update(shell_tests.names([Command((row.subject,), (), None, None, row.at)]))
        before, moved = self.offset, False
        for index, arm in enumerate(row.arms):
            self._test(arm.test)
            self.offset = before
            if not self.maybe(arm.body):
                otherwise = index == 1 and not arm.test and row.subject is None
                test = row.arms[0].test if otherwise else arm.test
                self._ended(test, not otherwise, arm.body, row.at, index == 0 or otherwise)
            moved = moved or self.offset != before
        self.offset = None if moved else before

    def chain(self, row: Chain) -> None:
        self._test(row.left)
        self.all(tuple(each for each in row.left if not _is_test(each)))
        if not self.maybe(row.right):
            self._ended(row.left, row.operator == "&&", row.right, row.at, True)

    def loop(self, row: Loop) -> None:
        words = {_plain(each.words[0]) for each in _within(row) if isinstance(each, Command) and each.words}
        if words & {"shift", "getopts"}:
            self.rest, self.offset = True, None  # it goes through the arguments
        self._test(row.test)
        self.maybe(row.body)

    def _test(self, test: tuple[Statement, ...]) -> None:
        self.asked |= shell_tests.names(test)
        for each in test:
            if isinstance(each, Command):
                self.words(each.words)
            elif isinstance(each, Chain):
                self._test((*each.left, *each.right))

    def _ended(
        self, test: tuple[Statement, ...], holds: bool, body: tuple[Statement, ...], at: At, first: bool
    ) -> None:
        """The script may end here: because of the number of arguments, or for reasons that are not known."""
        if len(test) == 1 and isinstance(loop := test[0], Loop) and not loop.body:  # `! …`
            test, holds = loop.test, not holds
        if shell_tests.names(test) == {"#"} and first and not self.conditions and self.offset == 0:
            self.guards.append(Guard(test, holds, _end(body, self.functions) == "refuses", at))
        elif not self.conditions:
            self.sure = False

    # -- words ---------------------------------------------------------------------------------------------

    def words(self, words: tuple[Word, ...]) -> None:
        before = ""
        for word in words:
            self.word(word, "", before)
            before = _plain(word)

    def word(self, word: Word, name: str, before: str) -> None:
        """Read a word behind another one; `name`: the variable that takes it whole."""
        text = f"{before} "
        for index, piece in enumerate(word.pieces):
            if piece.kind == "text":
                text += piece.value
                continue
            after = "".join(each.value if each.kind == "text" else _GAP for each in word.pieces[index + 1 :])
            option, use = _role(text, after)
            self.piece(piece, name or option, "" if name else use, word.at)
            text += _GAP

    def piece(self, piece: Piece, name: str, use: str, at: At) -> None:
        """Read an expansion."""
        if piece.script is not None:
            self.conditions += 1
            self.all(piece.script.statements)
            self.conditions -= 1
        for each in piece.operand:
            self.piece(each, "", "text", at)
        if piece.kind != "variable":
            return
        if piece.value in _ALL:
            self.rest = True
        number = whole(piece.value) if piece.width != len(piece.value) + 1 or len(piece.value) == 1 else None
        if number:
            self._position(number, piece, name, use)
        elif piece.operator in _DEFAULTS | _REFUSES:
            self.asked.add(piece.value)
        elif use:
            self.uses.setdefault(piece.value, set()).add(use)

    def _position(self, number: int, piece: Piece, name: str, use: str) -> None:
        if self.offset is None:
            self.rest = True
            return
        at = (piece.line, piece.column, piece.line, piece.column + piece.width)
        lone = self.conditions == 0
        operator = piece.operator
        self.reads.append(_Read(number + self.offset, name, operator, at, lone, self.strict, self.sure, use))


def _role(before: str, after: str) -> tuple[str, str]:
    """The option or key whose value an expansion is, and what it is in the words around it."""
    last = before.split()[-1] if before.split() else ""
    whole_word = not after or after[0].isspace()
    if before.endswith(" "):
        if last.startswith("-") and "=" not in last and whole_word and _GAP not in last:
            named = last.lstrip("-")
            return (named if len(named) > 1 else ""), "option"
        return "", "" if whole_word else "text"
    if before.endswith("=") and whole_word and _GAP not in last:
        return last[:-1].lstrip("-+"), "option" if last.startswith("-") else "text"
    return "", "text"


def _counted(word: Word, count: int) -> str | None:
    """The text of a word where a script is given so many arguments."""
    parts = [str(count) if piece.value == "#" and piece.kind == "variable" else piece for piece in word.pieces]
    texts = [each if isinstance(each, str) else each.value if each.kind == "text" else None for each in parts]
    known = [each for each in texts if each is not None]
    return "".join(known) if len(known) == len(texts) else None


def _plain(word: Word) -> str:
    """The text of a word; an expansion in it is a gap."""
    return "".join(piece.value if piece.kind == "text" else _GAP for piece in word.pieces)


def _takes_all(word: Word) -> bool:
    return any(piece.kind == "variable" and piece.value in _ALL for piece in word.pieces)


def _is_test(statement: Statement) -> bool:
    return isinstance(statement, Command) and bool(statement.words) and _plain(statement.words[0]) in ("[", "[[", "((")


def _end(body: tuple[Statement, ...], functions: dict[str, Function]) -> str | None:
    """How a body ends the script: `refuses` (it only tells how it is called, or ends with an error), `done`; None where
    the script goes on."""
    if not body:
        return None
    last = body[-1]
    if isinstance(last, Group):
        return _end(last.body, functions)
    if not isinstance(last, Command) or not last.words:
        return None
    name, *given = (_plain(word) for word in last.words)
    if name in functions:
        return _end(functions[name].body, {each: row for each, row in functions.items() if each != name})
    if name not in ("exit", "exec", "return"):
        return None
    says = all(isinstance(each, Command) and each.words and _plain(each.words[0]) in _SAYS for each in body)
    failed = bool(given) and given[0] != "0"
    return "refuses" if name != "exec" and (failed or says) else "done"


def _within(node: Any) -> Iterator[Any]:
    """All records in a part of a script."""
    if isinstance(node, tuple):
        yield node
        for each in node:
            yield from _within(each)

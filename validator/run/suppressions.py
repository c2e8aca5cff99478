"""Comments that silence findings: their grammar, what they cover, and which of them did something.

    x = f()  # validator: ignore[MP101] the reason        the statement on whose line it stands
    # validator: ignore[MP101] the reason                 alone on its line: the next statement
    def f():  # validator: ignore-block[MP101] the reason the whole block (or alone on the line before it)
    # validator: ignore-file[MP101] the reason            the file, wherever it stands (`meshproof:` means the same)
    x = f()  # noqa: MP101                                the statement; bare `# noqa` silences every rule

The same comments hold in shell scripts (where one above a command covers all its lines, those of a here-document
included, since none can stand between them) and, line by line, in YAML and TOML.

In the brackets stand codes, beginnings of codes, or names, separated by commas.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, NamedTuple

from validator.files.integers import is_whole
from validator.finding import Finding

if TYPE_CHECKING:
    from validator.source import SourceFile

TOKENS = (b"validator:", b"meshproof:", b"noqa", b"NOQA", b"NoQA")

_OURS = re.compile(r"#\s*(?:validator|meshproof):\s*(ignore(?:-block|-file)?)\b\s*(?:\[([^\]]*)\])?[ \t:]*([^#]*)")
_LINE_COMMENT = re.compile(r"(?:^|\s)(#\s*(?:validator:|meshproof:|noqa).*)$", re.IGNORECASE)
_NOQA = re.compile(r"#\s*noqa\b(?::\s*([A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*))?", re.IGNORECASE)


class Suppression(NamedTuple):
    """A comment that silences. `kind`: `ignore`, `ignore-block`, `ignore-file` or `noqa`.

    It covers lines `first` to `last`; `selectors` is empty for a bare `# noqa` (every rule) and for a
    comment of ours that names none (no rule). Columns count from 1.
    """

    kind: str
    selectors: tuple[str, ...]
    reason: str
    first: int
    last: int
    line: int
    column: int
    end_column: int
    removal: tuple[int, int, int, int]  # what to delete so that nothing of it is left

    @property
    def span(self) -> tuple[int, int, int, int]:
        return self.line, self.column, self.line, self.end_column

    def silences(self, finding: Finding) -> str | None:
        """The selector by which this comment silences a finding (`*` for a bare noqa), or None."""
        if self.kind != "ignore-file" and not self.first <= finding.span.line <= self.last:
            return None
        if self.kind == "noqa" and not self.selectors:
            return "*"
        return next((each for each in self.selectors if covers(each, finding.code, finding.name)), None)


class Outcome(NamedTuple):
    """A comment after the run: the selectors that silenced something, those that could not (their rules are
    off), and those that no rule answers to."""

    comment: Suppression
    used: frozenset[str]
    disabled: frozenset[str]
    unknown: frozenset[str]


def covers(selector: str, code: str, name: str) -> bool:
    """Whether a code, a beginning of a code or a name stands for a rule."""
    return selector == name or (is_whole(selector[-1:]) and code.startswith(selector.upper()))


class _Line(NamedTuple):
    """A logical line: its physical lines, its depth of indentation, its first word."""

    first: int
    last: int
    depth: int
    word: str


def comments_of(data: bytes, source: SourceFile) -> tuple[Suppression, ...]:
    """The suppressions of a file, in order, by the grammar of its language."""
    if source.facts.language == "python":
        return find(data, source.text)
    if source.facts.language == "json" or not any(token in data for token in TOKENS):
        return ()
    script = source.facts.extra.get("script")
    extents = script.extents() if script is not None else None
    return _found(source.text, *_scan_lines(source.text, extents))


def find(data: bytes, text: str) -> tuple[Suppression, ...]:
    """The suppressions of a Python file, in order. `data` only tells whether it is worth looking."""
    if not any(token in data for token in TOKENS):
        return ()
    return _found(text, *_scan(text))


def _found(text: str, comments: list[tuple[int, int, str, bool]], lines: list[_Line]) -> tuple[Suppression, ...]:
    found = []
    texts = text.split("\n")
    for line, column, comment, alone in comments:
        for kind, selectors, reason, start, end in _parsed(comment):
            first, last = _covered(kind, line, alone, lines)
            place = line, column + start + 1, column + end + 1
            removal = _removal(texts, *place)
            found.append(Suppression(kind, selectors, reason, first, last, *place, removal))
    return tuple(found)


def _removal(texts: list[str], line: int, column: int, end_column: int) -> tuple[int, int, int, int]:
    """What goes with a comment: the blanks before it, or the line where nothing else is on it."""
    before, after = texts[line - 1][: column - 1], texts[line - 1][end_column - 1 :]
    if after.strip():
        return line, column, line, end_column + len(after) - len(after.lstrip())
    if not before.strip() and line < len(texts):
        return line, 1, line + 1, 1
    return line, len(before.rstrip()) + 1, line, len(texts[line - 1]) + 1


def _parsed(comment: str) -> list[tuple[str, tuple[str, ...], str, int, int]]:
    parsed = []
    for match in _OURS.finditer(comment):
        selectors = tuple(part.strip() for part in (match[2] or "").split(",") if part.strip())
        end = match.start() + len(match[0].rstrip())
        parsed.append((match[1], selectors, match[3].strip(), match.start(), end))
    for match in _NOQA.finditer(comment):
        codes = tuple(re.split(r"[,\s]+", match[1])) if match[1] else ()
        parsed.append(("noqa", codes, "", match.start(), match.end()))
    return parsed


def _scan(text: str) -> tuple[list[tuple[int, int, str, bool]], list[_Line]]:
    """Comments as (line, column from 0, text, alone on its line), and the logical lines."""
    import tokenize

    comments: list[tuple[int, int, str, bool]] = []
    lines: list[_Line] = []
    depth, first, word = 0, 0, ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                alone = not token.line[: token.start[1]].strip() and not first
                comments.append((token.start[0], token.start[1], token.string, alone))
            elif token.type == tokenize.INDENT:
                depth += 1
            elif token.type == tokenize.DEDENT:
                depth -= 1
            elif token.type == tokenize.NEWLINE:
                lines.append(_Line(first or token.start[0], token.start[0], depth, word))
                first, word = 0, ""
            elif token.type not in (tokenize.NL, tokenize.ENDMARKER) and not first:
                first, word = token.start[0], token.string
    except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
        pass  # a broken file keeps the comments before the break
    return comments, lines


def _scan_lines(
    text: str, extents: list[tuple[int, int, int]] | None
) -> tuple[list[tuple[int, int, str, bool]], list[_Line]]:
    """As `_scan`, for a language whose comments run from `#` at the beginning of a word to the end of the line.

    `extents`: (first line, last line, depth) of the statements; None where every line is one.
    """
    comments = []
    texts = text.split("\n")
    for number, line in enumerate(texts, 1):
        if match := _LINE_COMMENT.search(line):
            comments.append((number, match.start(1), match[1], not line[: match.start(1)].strip()))
    if extents is None:
        extents = [(number, number, 0) for number, line in enumerate(texts, 1) if line.strip()[:1] not in ("", "#")]
    return comments, [_Line(first, last, depth, "") for first, last, depth in sorted(extents)]


def _covered(kind: str, line: int, alone: bool, lines: list[_Line]) -> tuple[int, int]:
    """The lines that a comment covers, by the logical lines of the file."""
    if kind == "ignore-file":
        return 1, 1 << 60
    index = _index(line, alone, lines)
    if index is None:
        return line, line
    here = lines[index]
    if kind != "ignore-block":
        # Within a statement of several lines only its first and last line speak for the whole of it.
        whole = alone or line in (here.first, here.last)
        return (here.first, here.last) if whole else (line, line)
    header = index
    while lines[header].word == "@" and header + 1 < len(lines):
        header += 1
    start = index
    while start and lines[start - 1].word == "@" and lines[start - 1].depth == here.depth:
        start -= 1
    end = header
    while end + 1 < len(lines) and lines[end + 1].depth > here.depth:
        end += 1
    return min(lines[start].first, line), lines[end].last


def _index(line: int, alone: bool, lines: list[_Line]) -> int | None:
    """The logical line that holds a physical line or, for a comment of its own, follows it."""
    import bisect

    index = bisect.bisect_left(lines, line, key=lambda each: each.last)
    if index == len(lines) or (not alone and lines[index].first > line):
        return None
    return index


def apply(
    findings: list[Finding], comments: tuple[Suppression, ...]
) -> tuple[list[Finding], list[tuple[Suppression, frozenset[str]]], int]:
    """The findings of one file that are left, each comment with the selectors that were used, and how many
    findings were silenced."""
    used: list[set[str]] = [set() for _ in comments]
    kept = []
    for finding in findings:
        silenced = False
        for comment, selectors in zip(comments, used, strict=True):
            selector = comment.silences(finding) if finding.span != comment.span else None  # not about itself
            if selector is not None:
                selectors.add(selector)
                silenced = True
        if not silenced:
            kept.append(finding)
    pairs = [(comment, frozenset(selectors)) for comment, selectors in zip(comments, used, strict=True)]
    return kept, pairs, len(findings) - len(kept)

"""Syntax that older Pythons refuse: what a file uses, and the oldest Python that can read it.

Found on the text, not on a tree: the file may use a grammar newer than that of the interpreter that runs us,
and the same findings must come out on every version.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from validator.run.concrete import too_deep, too_many_brackets


class Feature(NamedTuple):
    """A use of newer syntax: it needs Python 3.`minor`. Line and columns count from 1."""

    minor: int
    what: str
    line: int
    column: int
    end_column: int


# Asked of every file, so each pattern only where the bytes before it occur (a search for bytes costs nothing).
_CANDIDATES = tuple(
    (needle, re.compile(pattern))
    for needle, pattern in (
        (b'f"', rb'f"[^"\n]*\{[^}"\n]*["\\\n#]'),
        (b"f'", rb"f'[^'\n]*\{[^}'\n]*['\\\n#]"),
        (b'F"', rb'F"[^"\n]*\{[^}"\n]*["\\\n#]'),
        (b"F'", rb"F'[^'\n]*\{[^}'\n]*['\\\n#]"),
        (b'f"""', rb'f"""'),
        (b"f'''", rb"f\'\'\'"),
        (b'fr"', rb'fr"'),
        (b"fr'", rb"fr'"),
        (b":=", rb":="),
        (b"[*", rb"[\w)\]]\[\*"),
        (b"/", rb",[ \t\n]*/[ \t\n]*[,)]"),
        (b"match ", rb"match [^\n]*:[^\n]*\n\s*(?:#[^\n]*\n\s*)*case\b"),
        (b"match(", rb"match\([^\n]*:[^\n]*\n\s*(?:#[^\n]*\n\s*)*case\b"),
        (b"type ", rb"type \w+ *[=\[]"),
        (b"with (", rb"with \("),
        (b"with(", rb"with\([^\n)]*\n"),
        (b"except*", rb"except\*"),
        (b"except *", rb"except \*"),
        (b"except ", rb"except [\w.]+ *,"),
        (b"[", rb"def \w+\["),
        (b"[", rb"class \w+\["),
        (b't"', rb'[\s(=,]t"'),
        (b"t'", rb"[\s(=,]t'"),
    )
)

_WITH = re.compile(r"^[ \t]*(with[ \t]*\((?=[^:]*\bas\b[^:()]*\)[ \t]*:))", re.M)
_STATEMENTS = (
    (14, "an `except` clause without parentheses", re.compile(r"^[ \t]*(except[ \t]+[\w.]+[ \t]*,[^:()\n]*):", re.M)),
    (12, "a `type` statement", re.compile(r"^[ \t]*(type[ \t]+\w+)[ \t]*(?:\[[^\n]*\][ \t]*)?=(?!=)", re.M)),
    (12, "a type parameter list", re.compile(r"^[ \t]*((?:async[ \t]+)?(?:def|class)[ \t]+\w+[ \t]*\[)", re.M)),
    (11, "`except*`", re.compile(r"^[ \t]*(except[ \t]*\*)", re.M)),
    (11, "a starred expression in a subscript", re.compile(r"([\w)\]]\[\*)\w")),
    (10, "a `match` statement", re.compile(r"^[ \t]*(match[ \t(\[{][^\n]*):[ \t]*\n\s*case\b", re.M)),
    (9, "a parenthesised list of context managers", _WITH),
    (8, "an assignment expression (`:=`)", re.compile(r"(:=)")),
    (8, "a positional-only parameter", re.compile(r",\s*(/)(?=\s*[,)])")),
)  # fmt: skip

_TOKEN = re.compile(r"#[^\n]*|\b([A-Za-z]{1,2})?('''|\"\"\"|'|\")|('''|\"\"\"|'|\")")
_PREFIXES = frozenset({"r", "u", "b", "br", "rb", "f", "fr", "rf", "t", "tr", "rt"})
_ENDS = {
    "'": re.compile(r"(?:\\.|[^\\\n'])*(?:'|\n|\Z)", re.S),
    '"': re.compile(r'(?:\\.|[^\\\n"])*(?:"|\n|\Z)', re.S),
    "'''": re.compile(r"(?:\\.|[^\\])*?(?:'''|\Z)", re.S),
    '"""': re.compile(r'(?:\\.|[^\\])*?(?:"""|\Z)', re.S),
}
_IN_EXPRESSION = re.compile(r"[\[\](){}:\\\n]|" + _TOKEN.pattern)
_IN_LITERAL = re.compile(r"\{\{|\}\}|\\N\{[^}]*\}|\\.|[{}\n]|'''|\"\"\"|'|\"", re.S)

_BACKSLASH = "a backslash inside the expression of an f-string"
_QUOTES = "an f-string that uses its own quotes inside an expression"
_BREAK = "a line break inside the expression of a single-quoted f-string"
_COMMENT = "a comment inside the expression of an f-string"


def newer_syntax(data: bytes, text: str) -> tuple[Feature, ...]:
    """Everything in a file that needs Python 3.8 or newer, in the order of the text."""
    if not any(needle in data and pattern.search(data) for needle, pattern in _CANDIDATES):
        return ()
    scanner = _Scanner(text)
    code = scanner.blanked()
    found = [(minor, what, position, 1) for minor, what, position in scanner.found]
    for minor, what, pattern in _STATEMENTS:
        found += [(minor, what, m.start(1), m.end(1) - m.start(1)) for m in pattern.finditer(code)]
    return tuple(sorted((_placed(text, *row) for row in found), key=lambda f: (f.line, f.column)))


def _placed(text: str, minor: int, what: str, position: int, length: int) -> Feature:
    column = position - text.rfind("\n", 0, position)
    return Feature(minor, what, text.count("\n", 0, position) + 1, column, column + length)


class _Scanner:
    """Skips over strings and comments, looking into the expressions of f-strings."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.found: list[tuple[int, str, int]] = []

    def blanked(self) -> str:
        """The text with strings and comments replaced by blanks of the same length."""
        parts, position = [], 0
        while match := _TOKEN.search(self.text, position):
            end = self.token_end(match, ())
            parts.append(self.text[position : match.start()])
            parts.append("".join("\n" if c == "\n" else " " for c in self.text[match.start() : end]))
            position = end
        parts.append(self.text[position:])
        return "".join(parts)

    def token_end(self, match: re.Match[str], outer: tuple[str, ...]) -> int:
        """The end of the comment or string that begins at a match."""
        prefix, quote = (match[1] or "").lower(), match[2] or match[3]
        if not quote:
            return match.end()
        if prefix and prefix not in _PREFIXES:
            prefix = ""
        if "t" in prefix:
            self.found.append((14, "a template string", match.start()))
        if "f" in prefix or "t" in prefix:
            return self.formatted(match.end(), quote, "r" in prefix, outer)
        closed = _ENDS[quote].match(self.text, match.end())
        return closed.end() if closed is not None else len(self.text)

    def note(self, what: str, position: int) -> None:
        self.found.append((12, what, position))

    def formatted(self, position: int, quote: str, raw: bool, outer: tuple[str, ...]) -> int:
        """The end of an f-string whose text begins at `position`; also used for format specifications."""
        while match := _IN_LITERAL.search(self.text, position):
            token, position = match[0], match.end()
            if token == quote or token.startswith(quote) and len(quote) == 1:
                return match.start() + len(quote)
            if token == "\n" and len(quote) == 1:
                return position
            if raw and token.startswith("\\N{"):
                position = match.start() + 2
            if token == "{":
                position = self.expression(position, quote, raw, (*outer, quote))
        return len(self.text)

    def expression(self, position: int, quote: str, raw: bool, outer: tuple[str, ...]) -> int:
        """The position after the `}` that closes a replacement field."""
        depth = 0
        while match := _IN_EXPRESSION.search(self.text, position):
            token, start, position = match[0], match.start(), match.end()
            if token in ("(", "[", "{"):
                depth += 1
            elif token == "}" and depth == 0:
                return position
            elif token in (")", "]", "}"):
                depth -= 1
            elif token == ":" and depth == 0:
                return self.specification(position, quote, raw, outer)
            elif token == "\\":
                self.note(_BACKSLASH, start)
            elif token == "\n":
                if any(len(each) == 1 for each in outer):
                    self.note(_BREAK, start)
            elif token.startswith("#"):
                self.note(_COMMENT, start)
            elif token != ":":
                position = self.inner_string(match, outer)
        return len(self.text)

    def inner_string(self, match: re.Match[str], outer: tuple[str, ...]) -> int:
        quote = match[2] or match[3]
        if any(each == quote or len(each) == 1 and each == quote[0] for each in outer):
            self.note(_QUOTES, match.start())
        end = self.token_end(match, outer)
        if "\\" in self.text[match.start() : end]:
            self.note(_BACKSLASH, match.start() + self.text[match.start() : end].index("\\"))
        return end

    def specification(self, position: int, quote: str, raw: bool, outer: tuple[str, ...]) -> int:
        """The position after the `}` that ends a format specification."""
        while match := re.compile(r"[{}\n]|" + re.escape(quote)).search(self.text, position):
            if match[0] == "{":
                position = self.expression(match.end(), quote, raw, outer)
            else:
                return match.end() if match[0] == "}" else match.start()
        return len(self.text)


def reads_with_newer_python(text: str) -> bool:
    """Whether a file that this interpreter refuses is right, or may be, by the grammar of a newer Python."""
    if too_many_brackets(text):
        return False
    if too_deep(text):
        return True  # not known: that it cannot be checked is said, and no more
    import libcst

    try:
        libcst.parse_module(text)
    except Exception:  # the parser raises several kinds, some of them its own
        return False
    return True

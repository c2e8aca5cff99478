"""Facts of shell scripts, by a real parser: tree-sitter with its Bash grammar, imported when a script is read.

The grammar is forgiving: where it had to guess, the command is marked `broken`, and nothing is concluded from it.
Text between the nodes that it names (white space in strings, the beginning of a here-document) is kept.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from validator.facts.model import At, FileFacts, Problem
from validator.facts.script import (
    Arm,
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

if TYPE_CHECKING:
    from validator.source import SourceFile

Node = Any  # tree_sitter.Node, which is not imported before it is needed

_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ssh", "sbatch", "srun", "pdsh", "su", "sudo"})
_SSH_VALUES = "BbcDEeFIiJLlmOoPpQRSWw"  # options of ssh that take a word
_SBATCH = re.compile(r"#SBATCH[ \t]+(--?[A-Za-z][\w-]*)(?:(?:[ \t]*=[ \t]*|[ \t]+)?([^\s#]+|\"[^\"]*\"))?")
# `PROJECT=<path to it>`: not shell, but common where the reader is to fill something in
_PLACEHOLDER = re.compile(rb"(?<=[=\s])<([A-Za-z_][\w .-]*)>(?=[\s/\\]|$)", re.MULTILINE)
_ESCAPED = re.compile(r"\\(\r?\n|.)", re.DOTALL)
_MAX_DEPTH = 400  # of the syntax tree; a long row of `&&` is a tree as deep
_CONFLICT = re.compile(rb"^(<{7}|>{7}) ", re.MULTILINE)


def extract(source: SourceFile) -> FileFacts:
    """The facts of a script. Never raises on bad input."""
    text = source.text
    lines = text.count("\n") + (not text.endswith("\n"))
    data = text.encode("utf-8", "surrogateescape")
    if b"<<<<<<< " in data and b"\n>>>>>>> " in data and (match := _CONFLICT.search(data)):
        line = data.count(b"\n", 0, match.start()) + 1
        problem = Problem("conflict", line, 1, "merge-conflict marker")
        return FileFacts(problem=problem, language="shell", lines=lines)
    try:
        script = parse(data)
    except RecursionError:
        problem = Problem("nesting", 1, 1, "nested too deeply to be read")
        return FileFacts(problem=problem, language="shell", lines=lines)
    return FileFacts(language="shell", lines=lines, extra={"script": script})


def parse(data: bytes) -> Script:
    """The statements of a script (UTF-8).

    Raises ImportError where the parser is not installed, RecursionError for what is nested too deeply.
    """
    import tree_sitter
    import tree_sitter_bash

    data = _PLACEHOLDER.sub(lambda match: b"@" + match[1].replace(b" ", b"_") + b"@", data)
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    reader = _Reader(data, parser)
    root = parser.parse(data).root_node
    if _deeper(root, _MAX_DEPTH):
        raise RecursionError
    return Script(reader.body(root), tuple(_directives(data.decode("utf-8", "replace"))))


def _deeper(root: Node, limit: int) -> bool:
    """Whether a tree is deeper than what can be read, pickled and walked by recursion."""
    cursor, depth = root.walk(), 0
    while True:
        if cursor.goto_first_child():
            depth += 1
            if depth > limit:
                return True
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return False
            depth -= 1


def _directives(text: str) -> Iterator[tuple[str, str, At]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#SBATCH") and (match := _SBATCH.match(line)):
            at = (number, match.start(1) + 1, number, match.end() + 1)
            yield match[1], (match[2] or "").strip("\"'"), at


_EXPANDED = frozenset({"expansion", "simple_expansion", "command_substitution", "arithmetic_expansion"})


class _Reader:
    """Turns syntax nodes into records; `on_KIND` makes the statements of a node of that kind."""

    def __init__(self, data: bytes, parser: Any) -> None:
        self.data = data
        self.parser = parser
        self.lines = data.split(b"\n")

    # -- places --------------------------------------------------------------------------------------------

    def place(self, point: tuple[int, int]) -> tuple[int, int]:
        """Line and column, in characters, of a point (row, byte)."""
        row, byte = point
        line = self.lines[row] if row < len(self.lines) else b""
        column = byte if line.isascii() else len(line[:byte].decode("utf-8", "replace"))
        return row + 1, column + 1

    def at(self, node: Node) -> At:
        return (*self.place(node.start_point), *self.place(node.end_point))

    def text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def width(self, node: Node) -> int:
        """Characters that a node takes on its first line."""
        return len(self.text(node).partition("\n")[0])

    # -- statements ----------------------------------------------------------------------------------------

    def body(self, node: Node) -> tuple[Statement, ...]:
        """The statements below a node that holds some."""
        return self.bodies(node.named_children)

    def bodies(self, nodes: Iterable[Node]) -> tuple[Statement, ...]:
        return tuple(s for node in nodes for s in self._in_its_place(node))

    def _in_its_place(self, node: Node) -> Iterator[Statement]:
        """The statements of a node; those before `&` run in a shell of their own."""
        after = node.next_sibling
        if after is None or after.type != "&":
            yield from self.statement(node)
        elif started := tuple(self.statement(node)):
            yield Group(started, True, self.at(node), background=True)

    def statement(self, node: Node) -> Iterator[Statement]:
        kind = node.type
        if kind == "comment":
            return
        made = getattr(self, f"on_{kind}", None)
        if made is not None:
            yield from made(node)
        elif kind == "ERROR" or kind not in _WORDS:
            yield from self.body(node)

    def on_variable_assignment(self, node: Node, keyword: str = "") -> Iterator[Assign]:
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        index = ""
        if name is not None and name.type == "subscript":
            inner = name.child_by_field_name("index")
            index = self.text(inner) if inner is not None else "?"
            name = name.child_by_field_name("name")
        append = any(child.type == "+=" for child in node.children)
        items = None
        word = None
        if node.has_error:
            word = Word((Piece("other", "", *self.place(node.start_point)),), self.at(node))
        elif value is not None and value.type == "array":
            items = tuple(self.word(child) for child in value.named_children if child.type != "comment")
        elif value is not None:
            word = self.word(value)
        yield Assign(self.text(name) if name is not None else "", index, append, word, items, self.at(node), keyword)

    def on_variable_assignments(self, node: Node) -> Iterator[Statement]:
        yield from self.body(node)

    def on_declaration_command(self, node: Node) -> Iterator[Statement]:
        keyword = node.children[0].type
        for child in node.named_children:
            if child.type == "variable_assignment":
                yield from self.on_variable_assignment(child, keyword)

    def on_unset_command(self, node: Node) -> Iterator[Statement]:
        for child in node.named_children:
            unset = Word((Piece("text", "", *self.place(child.start_point)),), self.at(child))
            yield Assign(self.text(child), "", False, unset, None, self.at(child), "unset")

    def on_command(self, node: Node, redirects: tuple[Node, ...] = ()) -> Iterator[Assign | Command]:
        words: list[Word] = []
        assigns: list[Assign] = []
        inside = []
        end = -1
        for child in node.children:
            cut = child.start_byte == end and self.data[end - 1 : end] == b"$"
            if child.type == "variable_assignment":
                assigns += list(self.on_variable_assignment(child))
            elif child.type == "command_name" and cut and assigns and (value := assigns[-1].value) is not None:
                joined = self._joined(value, child)
                assigns[-1] = assigns[-1]._replace(value=joined, at=(*assigns[-1].at[:2], *joined.at[2:]))
            elif child.type == "command_name":
                words.append(self.word(child.children[0]) if child.children else self.word(child))
                if assigns and self._ends_line(child):  # the grammar reads `A=1 B=2` on into the next line
                    yield from assigns
                    assigns = []
            elif child.type.endswith("_redirect"):
                inside.append(child)
            elif child.is_named and child.type != "comment":
                cut = cut and bool(words)
                words[-1:] = [self._joined(words[-1], child)] if cut else [*words[-1:], self.word(child)]
            end = child.end_byte
        if assigns and not words:
            yield from assigns
            return
        heredoc, output = self._redirected((*inside, *redirects))
        at = (*words[0].at[:2], *self.at(node)[2:]) if words and not assigns else self.at(node)
        yield Command(
            tuple(words), tuple(assigns), heredoc[0] if heredoc else None,
            self._inner(words, heredoc, output), at, output, node.has_error,
        )  # fmt: skip

    def _joined(self, before: Word, node: Node) -> Word:
        """A word that the grammar cuts behind the `$` of a variable: `${A}/b/$C/d`."""
        *pieces, last = before.pieces
        first, *rest = self.pieces(node, quoted=False)
        name = "".join(itertools.takewhile(lambda letter: letter.isalnum() or letter == "_", first.value))
        variable = Piece("variable", name, first.line, first.column - 1, width=len(name) + 1)
        behind = first._replace(value=first.value[len(name) :], column=first.column + len(name))
        found = (*pieces, last._replace(value=last.value.removesuffix("$")), variable, behind, *rest)
        kept = tuple(each for each in found if each.kind != "text" or each.value)
        return Word(kept, (*before.at[:2], *self.at(node)[2:]))

    def _ends_line(self, name: Node) -> bool:
        """Whether a line ends before the name of a command, without a backslash."""
        before = self.data[: name.start_byte].rstrip(b" \t")
        return before.endswith(b"\n") and not before[:-1].endswith(b"\\")

    def on_redirected_statement(self, node: Node) -> Iterator[Statement]:
        redirects = tuple(child for child in node.children if child.type.endswith("_redirect"))
        others = [child for child in node.named_children if not child.type.endswith("_redirect")]
        for child in others:
            if child.type == "command":
                ends = self.at(node)[2:]
                for made in self.on_command(child, redirects):
                    yield made._replace(at=(*made.at[:2], *ends)) if isinstance(made, Command) else made
            else:
                yield from self.statement(child)
        for redirect in redirects:  # `cat <<EOF | ssh host`: the grammar hangs what follows below the redirect
            for child in redirect.named_children:
                if child.type in _STATEMENTS:
                    yield from self.statement(child)

    def _redirected(self, nodes: Iterable[Node]) -> tuple[tuple[tuple[Piece, ...], Node] | None, str]:
        heredoc, output = None, ""
        for node in nodes:
            if node.type == "heredoc_redirect":
                start = next((self.text(c) for c in node.children if c.type == "heredoc_start"), "")
                body = next((c for c in node.children if c.type == "heredoc_body"), None)
                if body is not None:
                    raw = start[:1] in "'\"\\"
                    heredoc = (tuple(self._heredoc(body, raw)), body)
                for child in node.children:  # `cat <<EOF > file`
                    if child.type == "file_redirect":
                        output = self._target(child) or output
            elif node.type == "file_redirect":
                output = self._target(node) or output
        return heredoc, output

    def _target(self, node: Node) -> str:
        to = any(child.type in (">", ">>", ">|", "&>", "&>>") for child in node.children)
        destination = node.child_by_field_name("destination")
        return self.text(destination) if to and destination is not None else ""

    def _heredoc(self, body: Node, raw: bool) -> Iterator[Piece]:
        if raw:
            line, column = self.place(body.start_point)
            yield Piece("text", self.text(body), line, column)
            return
        yield from self._filled(body, quoted=False, unescape=_heredoc_text)

    def _inner(self, words: list[Word], heredoc: tuple[tuple[Piece, ...], Node] | None, output: str) -> Script | None:
        """The script that a command hands to a shell, parsed where it stands so that places stay true."""
        names = [_plain(word) for word in words]
        known = [name.rpartition("/")[2] for name in names if name is not None]
        if "-c" in known or "-lc" in known:
            flag = next(i for i, name in enumerate(names) if name in ("-c", "-lc"))
            if known and flag + 1 < len(words) and any(name in _SHELLS for name in known[: flag + 1]):
                return self._nested(words[flag + 1])
        if (command := _remote(names, words)) is not None:
            return self._nested(command)
        if heredoc is None or not known:
            return None
        written = (output or known[-1]).strip("\"'")
        if known[0] in _SHELLS or (known[0] in ("cat", "tee") and written.endswith(_SCRIPTS)):
            return self._reparsed(heredoc[1].start_byte, heredoc[1].end_byte)
        return None

    def _nested(self, word: Word) -> Script | None:
        line, column, last, end = word.at
        start = self._offset(line, column)
        stop = self._offset(last, end)
        if self.data[start : start + 1] in (b'"', b"'") and self.data[stop - 1 : stop] == self.data[start : start + 1]:
            return self._reparsed(start + 1, stop - 1)
        return None

    def _offset(self, line: int, column: int) -> int:
        before = sum(len(each) + 1 for each in self.lines[: line - 1])
        return before + len(self.lines[line - 1].decode("utf-8", "replace")[: column - 1].encode("utf-8", "replace"))

    def _reparsed(self, start: int, stop: int) -> Script:
        r"""A stretch of this file as a script of its own: what precedes it is blanked; escapes lose their backslash
        (and columns behind one are too small by one)."""
        blank = re.sub(rb"[^\n]", b" ", self.data[:start])
        inside = re.sub(rb'\\(["$`])', rb"\1", self.data[start:stop])
        data = blank + inside
        reader = _Reader(data, self.parser)
        directives = tuple(_directives(data.decode("utf-8", "replace")))
        return Script(reader.body(self.parser.parse(data).root_node), directives)

    def on_test_command(self, node: Node) -> Iterator[Statement]:
        words: list[Word] = []
        self._flatten(node, words)
        yield Command(tuple(words), (), None, None, self.at(node), "", node.has_error)

    def _flatten(self, node: Node, words: list[Word]) -> None:
        for child in node.children:
            if child.type in ("binary_expression", "unary_expression", "parenthesized_expression"):
                self._flatten(child, words)
            elif child.type == "variable_name":
                words.append(
                    Word((Piece("variable", self.text(child), *self.place(child.start_point)),), self.at(child))
                )
            elif child.is_named:
                words.append(self.word(child))
            else:
                text = Piece("text", self.text(child), *self.place(child.start_point))
                words.append(Word((text,), self.at(child)))

    def on_negated_command(self, node: Node) -> Iterator[Statement]:
        yield Loop(self.body(node), (), self.at(node))  # its outcome is not followed

    def on_list(self, node: Node) -> Iterator[Statement]:
        operators = [child.type for child in node.children if child.type in ("&&", "||")]
        parts = [child for child in node.named_children if child.type != "comment"]
        if len(parts) == 2 and len(operators) == 1:
            left, right = (tuple(self.statement(part)) for part in parts)
            yield Chain(left, operators[0], right, self.at(node))
        else:
            yield from self.body(node)

    def on_pipeline(self, node: Node) -> Iterator[Statement]:
        parts = [child for child in node.named_children if child.type != "comment"]
        for part in parts:
            yield Group(tuple(self.statement(part)), True, self.at(part))

    def on_subshell(self, node: Node) -> Iterator[Statement]:
        yield Group(self.body(node), True, self.at(node))

    def on_compound_statement(self, node: Node) -> Iterator[Statement]:
        first = node.children[0].type if node.children else ""
        if first == "{":
            yield Group(self.body(node), False, self.at(node))
        elif first == "((":
            yield self._arithmetic(node)

    def _arithmetic(self, node: Node) -> Command:
        """`((left < right))` as a test, word by word; where it changes variables (`((i++))`), as one expression."""
        words: list[Word] = []
        if any(child.type in _CHANGING or _types(child) & _ASSIGNING for child in node.named_children):
            line, column = self.place(node.start_point)
            inside = self.text(node)[2:-2].strip()
            at = self.at(node)
            pieces = (Piece("text", "((", line, column),), (Piece("arithmetic", inside, line, column),)
            words = [Word(each, at) for each in (*pieces, (Piece("text", "))", line, column),))]
        else:
            self._flatten(node, words)
        return Command(tuple(words), (), None, None, self.at(node), "", node.has_error)

    def on_if_statement(self, node: Node) -> Iterator[Statement]:
        arms = [self._arm(node)]
        for child in node.named_children:
            if child.type == "elif_clause":
                arms.append(self._arm(child))
            elif child.type == "else_clause":
                arms.append(Arm((), (), self.body(child)))
        yield Branch(None, tuple(arms), self.at(node))

    def _arm(self, node: Node) -> Arm:
        test: list[Node] = []
        body: list[Node] = []
        seen = False
        for child in node.children:
            if child.type == "then":
                seen = True
            elif child.is_named and child.type not in ("elif_clause", "else_clause", "comment"):
                (body if seen else test).append(child)
        return Arm(self.bodies(test), (), self.bodies(body))

    def on_case_statement(self, node: Node) -> Iterator[Statement]:
        value = node.child_by_field_name("value")
        arms = []
        for item in node.named_children:
            if item.type != "case_item":
                continue
            patterns: list[Node] = []
            body: list[Node] = []
            seen = False
            for child in item.children:
                if child.type == ")" and not seen:
                    seen = True
                elif child.is_named and child.type != "comment":
                    (body if seen else patterns).append(child)
            arms.append(Arm((), tuple(self.text(p).strip("\"'") for p in patterns), self.bodies(body)))
        yield Branch(self.word(value) if value is not None else None, tuple(arms), self.at(node))

    def on_for_statement(self, node: Node) -> Iterator[Statement]:
        name = node.child_by_field_name("variable")
        given = any(child.type == "in" for child in node.children)
        words = [c for c in node.named_children if c.type not in ("do_group", "comment") and c != name]
        body = next((c for c in node.named_children if c.type == "do_group"), None)
        values = tuple(map(self.word, words)) if given and node.children[0].type == "for" else None
        yield For(self.text(name) if name is not None else "", values, self.body(body) if body else (), self.at(node))

    def on_c_style_for_statement(self, node: Node) -> Iterator[Statement]:
        body = next((c for c in node.named_children if c.type in ("do_group", "compound_statement")), None)
        names = [self.text(c.children[0]) for c in node.named_children if c.type == "variable_assignment"]
        yield For(names[0] if names else "", None, self.body(body) if body else (), self.at(node))

    def on_while_statement(self, node: Node) -> Iterator[Statement]:
        body = next((c for c in node.named_children if c.type == "do_group"), None)
        test = [c for c in node.named_children if c.type not in ("do_group", "comment")]
        yield Loop(self.bodies(test), self.body(body) if body else (), self.at(node))

    def on_function_definition(self, node: Node) -> Iterator[Statement]:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            yield Function(self.text(name), self.body(body), self.at(node))

    # -- words ---------------------------------------------------------------------------------------------

    def word(self, node: Node) -> Word:
        return Word(tuple(self.pieces(node, quoted=False)), self.at(node))

    def pieces(self, node: Node, quoted: bool) -> Iterator[Piece]:
        """The pieces of a word or of a part of one."""
        kind = node.type
        line, column = self.place(node.start_point)
        if node.has_error:
            yield Piece("other", self.text(node), line, column, quoted)
        elif kind == "raw_string":
            yield Piece("text", self.text(node)[1:-1], line, column + 1, True)
        elif kind == "ansi_c_string":
            yield Piece("text", self.text(node)[2:-1], line, column + 2, True)
        elif kind in ("string", "translated_string"):
            yield Piece("text", "", line, column, True)  # so that "" is a word
            yield from self._filled(node, quoted=True, unescape=_string_text)
        elif kind in ("concatenation", "command_name"):
            yield from self._filled(node, quoted=quoted, unescape=_bare_text)
        elif kind == "simple_expansion":
            yield Piece("variable", self.text(node)[1:], line, column, quoted, width=self.width(node))
        elif kind == "expansion":
            yield self._expansion(node, quoted)
        elif kind == "arithmetic_expansion":
            yield Piece("arithmetic", _inside(self.text(node)), line, column, quoted, width=self.width(node))
        elif kind == "command_substitution":
            yield self._substitution(node, quoted)
        elif kind in ("word", "number", "string_content", "test_operator", "regex", "variable_name", "extglob_pattern"):
            yield Piece("text", (_string_text if quoted else _bare_text)(self.text(node)), line, column, quoted)
        else:
            yield Piece("other", self.text(node), line, column, quoted)

    def _filled(self, node: Node, quoted: bool, unescape: Any) -> Iterator[Piece]:
        """The pieces of a node with the text that lies between its children."""
        children = [c for c in node.children if c.is_named or c.type not in ('"', '$"')]
        start, stop = node.start_byte, node.end_byte
        if node.type in ("string", "translated_string"):
            start, stop = start + (2 if self.data[start : start + 1] == b"$" else 1), stop - 1
        for child in children:
            if child.type in ("string_content", "heredoc_content", '"', "$"):
                continue  # plain text: covered with what lies around it
            begin = child.start_byte
            if child.type in _EXPANDED:  # the grammar counts a line that goes on (`\` at its end) to what follows it
                begin += max(self.data[begin : child.end_byte].find(b"$"), 0)
            if begin > start:
                yield from self._text(start, begin, quoted, unescape)
            pieces = self.pieces(child, quoted)
            if begin > child.start_byte:
                line, column = self.place(self._point(begin))
                lead = self.data[child.start_byte : begin].decode("utf-8", "replace")
                pieces = (
                    each._replace(line=line, column=column, value=each.value.removeprefix(lead)) for each in pieces
                )
            yield from pieces
            start = child.end_byte
        if stop > start:
            yield from self._text(start, stop, quoted, unescape)

    def _text(self, start: int, stop: int, quoted: bool, unescape: Any) -> Iterator[Piece]:
        """Plain text, one piece for each line of it."""
        row, byte = self._point(start)
        parts = self.data[start:stop].split(b"\n")
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            text = unescape(part.decode("utf-8", "replace") + ("" if last else "\n"))
            if text:
                yield Piece("text", text, *self.place((row + number, byte if number == 0 else 0)), quoted)

    def _point(self, offset: int) -> tuple[int, int]:
        """The row and the byte in it of an offset, as the parser counts them."""
        return self.data.count(b"\n", 0, offset), offset - (self.data.rfind(b"\n", 0, offset) + 1)

    def _expansion(self, node: Node, quoted: bool) -> Piece:
        line, column = self.place(node.start_point)
        name, index, operator, operand = "", "", "", []
        for child in node.children[1:-1]:
            if child.type in ("variable_name", "special_variable_name") and not name:
                name = self.text(child)
            elif child.type == "subscript" and not name:
                name, _, index = self.text(child).partition("[")
                index = index.rstrip("]")
            elif not child.is_named:
                operator = operator or child.type
            elif operator:
                operand += list(self.pieces(child, quoted))
        width = self.width(node)
        if not name and operator == "#":  # `${#}`: the number of arguments, as `$#`
            name, operator = "#", ""
        return Piece("variable", name, line, column, quoted, operator, index, tuple(operand), width=width)

    def _substitution(self, node: Node, quoted: bool) -> Piece:
        line, column = self.place(node.start_point)
        text = self.text(node)
        if text.startswith("$((") and text.endswith("))"):  # inside here-documents the grammar sees a subshell
            return Piece("arithmetic", _inside(text), line, column, quoted, width=self.width(node))
        return Piece("command", text, line, column, quoted, script=Script(self.body(node)), width=self.width(node))


_WORDS = frozenset({
    "word", "number", "string", "raw_string", "concatenation", "simple_expansion", "expansion", "command_name",
    "arithmetic_expansion", "ansi_c_string", "variable_name", "heredoc_body", "heredoc_start", "heredoc_end",
})  # fmt: skip
_CHANGING = frozenset({"postfix_expression", "variable_assignment"})
_ASSIGNING = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^=", "++", "--"})
_STATEMENTS = frozenset({"command", "pipeline", "list", "redirected_statement", "subshell", "compound_statement"})
_SCRIPTS = (".sh", ".slurm", ".sbatch", ".bash")


def _types(node: Node) -> set[str]:
    return {child.type for child in node.children}


def _inside(text: str) -> str:
    """The expression of `$((…))`, and of `$[…]`, as it was written before."""
    return (text[2:-1] if text.startswith("$[") else text[3:-2]).strip()


def _plain(word: Word) -> str | None:
    """The text of a word without expansions."""
    if any(piece.kind != "text" for piece in word.pieces):
        return None
    return word.text


def _remote(names: list[str | None], words: list[Word]) -> Word | None:
    """The text that `ssh` gives to the shell of another host, where that is one word."""
    if not names or names[0] is None or names[0].rpartition("/")[2] != "ssh":
        return None
    index = 1
    while index < len(names) and (name := names[index] or "").startswith("-"):
        index += 2 if name[-1] in _SSH_VALUES and len(name) == len("-o") else 1
    return words[index + 1] if index + 2 == len(words) else None  # the host, and what is run there


def _bare_text(text: str) -> str:
    return _ESCAPED.sub(lambda match: "" if match[1] in ("\n", "\r\n") else match[1], text) if "\\" in text else text


def _string_text(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r"\\(\r?\n|[\"$`\\])", lambda match: "" if match[1].endswith("\n") else match[1], text)


def _heredoc_text(text: str) -> str:
    if "\\" not in text:
        return text
    return re.sub(r"\\(\r?\n|[$`\\])", lambda match: "" if match[1].endswith("\n") else match[1], text)

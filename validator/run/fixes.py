"""Turns what rules know how to mend into text edits, and applies edits to files.

A rule either puts a `Fix` into its finding, or its module has `fix(node, finding)`. That function gets the
innermost LibCST statement or expression that contains the finding's span (then those around it of the same
extent) and returns what is to stand in its place, `libcst.RemoveFromParent()`, or None where it cannot
help. Only the statement around the finding is parsed with LibCST: whole files with positions would take a
hundred times as long. Whatever an edit makes of a file must parse before it is offered, and again before it
is written.
"""

from __future__ import annotations

import ast
import bisect
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, overload

from validator.facts.decode import encoding_of
from validator.files.languages import language
from validator.finding import Edit, Finding, Fix, Safety, Span
from validator.rule import LoadedRule
from validator.run.concrete import too_deep
from validator.source import SourceFile

if TYPE_CHECKING:
    import libcst as cst

_NEWLINE = re.compile("\r\n|\r|\n")


# -- from rules to edits -----------------------------------------------------------------------------------


def offered(finding: Finding, rule: LoadedRule, source: SourceFile) -> Fix | None:
    """The fix of a finding by the `fix` function of its rule; None where there is none.

    Whatever that function raises is raised.
    """
    if rule.fix is None or rule.rule.fix is None:
        return None
    for edits in _attempts(finding, rule.fix, source):
        changed = edited(source.text, edits)
        if parses(changed):
            summary = finding.help or f"mend {finding.code}"
            return Fix(rule.rule.fix, summary, edits)
    return None


def stretch(source: SourceFile, span: Span) -> tuple[int, str]:
    """The first line and the text of the outermost statement around a span, all that its fix depends on."""
    around = list(_statements(source.tree, span))
    first, last, _ = around[-1] if around else (span.line, span.end_line, False)
    return first, "\n".join(source.lines[first - 1 : last])


@overload
def moved(subject: Finding, lines: int) -> Finding: ...
@overload
def moved(subject: Fix, lines: int) -> Fix: ...
def moved(subject: Finding | Fix, lines: int) -> Finding | Fix:
    """The same finding or fix, so many lines further down."""
    if isinstance(subject, Fix):
        return subject._replace(edits=tuple(edit._replace(span=_moved(edit.span, lines)) for edit in subject.edits))
    return subject._replace(span=_moved(subject.span, lines))


def _moved(span: Span, lines: int) -> Span:
    return span._replace(line=span.line + lines, end_line=span.end_line + lines)


def _attempts(
    finding: Finding, function: Callable[[Any, Finding], Any], source: SourceFile
) -> Iterator[tuple[Edit, ...]]:
    """The edits by `function` on the smallest stretch of the file that LibCST can parse by itself."""
    import libcst as cst

    for first, last, lone in _statements(source.tree, finding.span):
        before = source.lines[first - 1 : last]
        indented = before[0][:1] in (" ", "\t")
        # A header of our own makes an indented statement a module; columns stay what they are.
        shift = first - 2 if indented else first - 1
        text = ("if 1:\n" if indented else "") + "\n".join(before) + "\n"
        if too_deep(text):
            return
        try:
            module = cst.parse_module(text)
        except cst.ParserSyntaxError:
            continue  # an `elif` is a statement of its own only to `ast`
        changed = _replaced(module, finding, shift, function, lone)
        if changed is not None and changed != text:
            yield (_difference(text, changed, shift),)
        return


def _statements(tree: ast.Module, span: Span) -> list[tuple[int, int, bool]]:
    """(first line, last line, alone in its block?) of the statements around a span, inmost first."""
    found: list[tuple[int, int, bool]] = []
    block: list[ast.stmt] = tree.body
    while block:
        inner = next((each for each in block if _first(each) <= span.line <= (each.end_lineno or each.lineno)), None)
        if inner is None:
            break
        last = inner.end_lineno or inner.lineno
        # Statements that share a line are parsed together.
        row = [each for each in block if _first(each) <= last and (each.end_lineno or 0) >= _first(inner)]
        first, last = min(map(_first, row)), max(each.end_lineno or 0 for each in row)
        found.append((first, last, len(block) == 1))
        block = _block_with(inner, span)
    return found[::-1]


def _first(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])


def _block_with(statement: ast.stmt, span: Span) -> list[ast.stmt]:
    """The block inside a statement that holds the line of a span."""
    for block in _blocks(statement):
        if (
            block
            and _first(block[0]) <= span.line <= (block[-1].end_lineno or 0)
            and _first(block[0]) > statement.lineno
        ):
            return block
    return []


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if block := getattr(statement, name, None):
            yield block
    for holder in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield holder.body


def _replaced(
    module: cst.Module, finding: Finding, shift: int, function: Callable[[Any, Finding], Any], lone: bool
) -> str | None:
    """The text of a module after `function` has had its way with the node at the finding."""
    import libcst as cst

    wrapper = cst.MetadataWrapper(module, unsafe_skip_copy=True)
    for node in _nodes_at(wrapper, finding.span, shift):
        answer = function(node, finding)
        if answer is None:
            continue
        if isinstance(answer, cst.RemovalSentinel):
            return _without(module, node, lone)
        changed = _code(module.deep_replace(node, answer))
        try:
            cst.parse_module(changed)
        except cst.ParserSyntaxError:
            return None
        return changed
    return None


def _code(module: Any) -> str:
    code: str = module.code
    return code


def _nodes_at(wrapper: cst.MetadataWrapper, span: Span, shift: int) -> list[cst.CSTNode]:
    """The innermost statement or expression that contains a span, and those around it of the same extent."""
    import libcst as cst
    from libcst.metadata import PositionProvider

    wanted = (span.line - shift, span.column - 1), (span.end_line - shift, span.end_column - 1)
    kinds = (cst.BaseExpression, cst.BaseSmallStatement, cst.BaseStatement)
    around = []
    for node, place in wrapper.resolve(PositionProvider).items():
        extent = (place.start.line, place.start.column), (place.end.line, place.end.column)
        if isinstance(node, kinds) and extent[0] <= wanted[0] and wanted[1] <= extent[1]:
            around.append((extent, node))
    if not around:
        return []
    inmost = max(extent[0] for extent, _ in around), min(extent[1] for extent, _ in around)
    # Positions are resolved on the way out of the tree: inner nodes come first.
    return [node for extent, node in around if extent == inmost]


def _without(module: cst.Module, node: cst.CSTNode, lone: bool) -> str:
    """The text without the statement that `node` is or fills; `pass` where a block needs one."""
    import libcst as cst

    class Remover(cst.CSTTransformer):
        def on_leave(self, original: Any, updated: Any) -> Any:
            updated = super().on_leave(original, updated)
            if original is node and not isinstance(original, cst.BaseExpression):
                small = isinstance(original, cst.BaseSmallStatement)
                filler = cst.Pass() if small else cst.SimpleStatementLine([cst.Pass()])
                return filler if lone else cst.RemoveFromParent()
            if isinstance(original, cst.Expr) and original.value is node:
                return cst.Pass() if lone else cst.RemoveFromParent()
            if isinstance(original, cst.SimpleStatementLine) and len(updated.body) < len(original.body):
                return _closed(updated)
            return updated

    changed = module.visit(Remover())
    if not changed.body:
        return ""
    header = changed.body[0]
    if isinstance(header, cst.If) and isinstance(header.body, cst.IndentedBlock) and not header.body.body:
        return module.code[: module.code.index("\n") + 1]  # LibCST would fill the empty block by itself
    return changed.code


def _closed(line: Any) -> Any:
    """A line that lost a statement: gone if it was the only one, else without a semicolon at its end."""
    import libcst as cst

    if not line.body:
        return cst.RemoveFromParent()
    last = line.body[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
    return line.with_changes(body=[*line.body[:-1], last])


def _difference(before: str, after: str, shift: int) -> Edit:
    """The one edit that makes `after` of `before`; whole lines where lines vanish."""
    start = 0
    limit = min(len(before), len(after))
    while start < limit and before[start] == after[start]:
        start += 1
    stop = 0
    while stop < limit - start and before[-1 - stop] == after[-1 - stop]:
        stop += 1
    first, last = _place(before, start, shift), _place(before, len(before) - stop, shift)
    return Edit(Span(*first, *last), after[start : len(after) - stop])


def _place(text: str, index: int, shift: int) -> tuple[int, int]:
    line = text.count("\n", 0, index) + 1
    return line + shift, index - (text.rfind("\n", 0, index) + 1) + 1


# -- from edits to text ------------------------------------------------------------------------------------


def parses(text: str) -> bool:
    """Whether a text is valid Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def edited(text: str, edits: Iterable[Edit]) -> str:
    """A text with edits applied; an edit that overlaps an earlier one is left out.

    `text` may have any line ends; new lines get those of the line they are put in.
    """
    starts = [0, *(match.end() for match in _NEWLINE.finditer(text))]
    pieces: list[str] = []
    done = 0
    for edit in sorted(set(edits)):
        start, stop = _offset(starts, text, edit.span[:2]), _offset(starts, text, edit.span[2:])
        if start < done or stop < start:
            continue
        pieces += (text[done:start], _with_ends(edit.text, text, starts, edit.span.line))
        done = stop
    return "".join(pieces) + text[done:]


def _offset(starts: list[int], text: str, place: tuple[int, int]) -> int:
    line, column = place
    if line > len(starts):
        return len(text)
    return min(starts[line - 1] + column - 1, starts[line] if line < len(starts) else len(text))


def _with_ends(new: str, text: str, starts: list[int], line: int) -> str:
    if "\n" not in new:
        return new
    match = _NEWLINE.search(text, starts[min(line, len(starts)) - 1]) or _NEWLINE.search(text)
    return new.replace("\n", match[0]) if match else new


def applied(data: bytes, fixes: list[Fix], path: str = "") -> tuple[bytes, int]:
    """The bytes of a file after as many of the fixes as go together, and how many that is.

    Encoding, byte-order mark and line ends stay. A fix is taken whole or not at all, and never one that
    overlaps a fix taken before it or would leave the file broken. `path`: of a file that may be no Python.
    """
    encoding = encoding_of(data)
    text = data.decode(encoding)
    chosen: list[Fix] = []
    spans: list[Span] = []
    for fix in sorted(fixes, key=lambda each: (min(edit.span for edit in each.edits), each.message)):
        if fix in chosen or not all(_apart(edit.span, spans) for edit in fix.edits):
            continue
        chosen.append(fix)
        for edit in fix.edits:
            bisect.insort(spans, edit.span)
    new = _together(text, chosen, path)
    if new is None:  # some fix does harm beside another: take them one by one
        kept: list[Fix] = []
        for fix in chosen:
            if _together(text, [*kept, fix], path) is not None:
                kept.append(fix)
        chosen, new = kept, _together(text, kept, path)
    if new is None or not chosen:
        return data, 0
    return new.encode(encoding), len(chosen)


def _together(text: str, fixes: list[Fix], path: str) -> str | None:
    new = edited(text, (edit for fix in fixes for edit in fix.edits))
    if path and language(path) != "python":
        changed = SourceFile(path, path, new.encode("utf-8", "surrogatepass"))
        return new if changed.facts.problem is None else None
    return new if parses(_NEWLINE.sub("\n", new)) else None


def _apart(span: Span, taken: list[Span]) -> bool:
    """Whether a span touches none of the others (two insertions at one place do)."""
    return not any(span[:2] == other[:2] or (span[:2] < other[2:] and other[:2] < span[2:]) for other in taken)


def allowed(finding: Finding, unsafe: bool) -> bool:
    """Whether a finding has a fix that may be applied."""
    safety: Safety | None = finding.fix.safety if finding.fix is not None else None
    return safety == "safe" or (safety == "unsafe" and unsafe)

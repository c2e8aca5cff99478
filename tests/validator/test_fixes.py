"""Fixes: from a rule's LibCST answer to edits, and edits to files, of which nothing else changes."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import libcst as cst
import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.finding import Edit, Finding, Fix, Span
from validator.rule import LoadedRule, Rule
from validator.run.fixes import applied, edited, offered
from validator.source import SourceFile

RULE = Rule("MP999", "test-rule", "error", "0.1.0", fix="safe")


def mended(text: str, at: str, function: Callable[[Any, Finding], Any], data: bytes | None = None) -> str | None:
    """The text after the fix of a finding whose span is the first place of `at`."""
    source = SourceFile("a.py", "/nowhere/a.py", data or text.encode())
    index = text.index(at)
    line, column = text.count("\n", 0, index) + 1, index - (text.rfind("\n", 0, index) + 1) + 1
    stop = index + len(at)
    end = text.count("\n", 0, stop) + 1, stop - (text.rfind("\n", 0, stop) + 1) + 1
    finding = RULE.finding("a.py", (line, column, *end), "wrong")
    fix = offered(finding, LoadedRule(RULE, ModuleType("rule"), "source", "", fix=function), source)
    return None if fix is None else edited(text, fix.edits)


def remove(node: cst.CSTNode, finding: Finding) -> Any:
    return cst.RemoveFromParent()


def only_calls(node: cst.CSTNode, finding: Finding) -> Any:
    if not isinstance(node, cst.Call):
        return None
    added = cst.Arg(
        cst.Name("True"),
        cst.Name("weights_only"),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    return node.with_changes(args=[*node.args, added])


@pytest.mark.parametrize(
    ("text", "at", "after"),
    [
        ("a = 1\nbreakpoint()\nb = 2\n", "breakpoint()", "a = 1\nb = 2\n"),
        ("def f():\n    breakpoint()\n", "breakpoint()", "def f():\n    pass\n"),
        ("def f():\n    a = 1; breakpoint()\n", "breakpoint()", "def f():\n    a = 1\n"),
        ("if a: b\nelif c:\n    stop()\nelse:\n    d\n", "stop()", "if a: b\nelif c:\n    pass\nelse:\n    d\n"),
        ("def f(a):\n\tx = '''\n  keep\n'''\n\tbreakpoint()\n", "breakpoint()", "def f(a):\n\tx = '''\n  keep\n'''\n"),
        ("import pdb\nx = 1\n", "import pdb", "x = 1\n"),
        ("try:\n    a\nexcept E:\n    breakpoint()\n", "breakpoint()", "try:\n    a\nexcept E:\n    pass\n"),
        ("match x:\n    case 1:\n        breakpoint()\n", "breakpoint()", "match x:\n    case 1:\n        pass\n"),
        ("for a in b:\n    if a:\n        c()\n", "if a:\n        c()", "for a in b:\n    pass\n"),
    ],
)  # fmt: skip
def test_removing_a_statement(text: str, at: str, after: str) -> None:
    assert mended(text, at, remove) == after


def test_replacing_an_expression_keeps_everything_around_it() -> None:
    text = "def f():\n    # why\n    x = [torch.load(  # here\n        path),  y]   # end\n    return x\n"
    after = text.replace("path)", "path, weights_only=True)")
    assert mended(text, "torch.load(  # here\n        path)", only_calls) == after


def test_no_answer_is_no_fix() -> None:
    assert mended("x = y\n", "y", only_calls) is None


def test_an_answer_that_does_not_parse_is_no_fix() -> None:
    assert mended("x = y\n", "y", lambda node, finding: cst.Name("lambda")) is None


def fix(line: int, column: int, end_column: int, text: str) -> Fix:
    return Fix("safe", "m", (Edit(Span(line, column, line, end_column), text),))


@pytest.mark.parametrize(
    ("data", "after"),
    [
        (b"a = 1\r\nb = 2\r\n", b"a = 9\r\nb = 2\r\n"),
        (b"a = 1\rb = 2\r", b"a = 9\rb = 2\r"),
        (b"\xef\xbb\xbfa = 1\n", b"\xef\xbb\xbfa = 9\n"),
        (b"# coding: latin-1 \xe9\na = 1\n", b"# coding: latin-1 \xe9\na = 9\n"),
        (b"a = 1", b"a = 9"),
        (b"a = 1  # \x0c form feed\n", b"a = 9  # \x0c form feed\n"),
    ],
)
def test_encoding_mark_and_line_ends_stay(data: bytes, after: bytes) -> None:
    line = 2 if data.startswith(b"#") else 1
    assert applied(data, [fix(line, 5, 6, "9")]) == (after, 1)


def test_new_lines_get_the_ends_of_the_file() -> None:
    assert applied(b"a = 1\r\n", [fix(1, 1, 1, "b = 2\n")]) == (b"b = 2\r\na = 1\r\n", 1)


def test_of_fixes_that_overlap_one_is_taken() -> None:
    assert applied(b"abc = 1\n", [fix(1, 1, 3, "x"), fix(1, 2, 4, "y")]) == (b"xc = 1\n", 1)


def test_a_fix_that_breaks_the_file_is_left_out() -> None:
    assert applied(b"a = 1\nb = 2\n", [fix(1, 5, 6, "("), fix(2, 5, 6, "3")]) == (b"a = 1\nb = 3\n", 1)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 8), st.integers(1, 8), st.text("xyz1 =()\n", max_size=4)),
        max_size=6,
    )
)
def test_whatever_is_applied_still_parses(edits: list[tuple[int, int, int, str]]) -> None:
    data = b"a = 1\nb = a\nc = b\n"
    fixes = [fix(line, min(one, two), max(one, two), text) for line, one, two, text in edits]
    after, count = applied(data, fixes)
    ast.parse(after)
    assert (after == data) or count


def test_mode_and_link_of_a_written_file_stay(tmp_path: Path) -> None:
    from validator.files import writing

    (tmp_path / "real.py").write_bytes(b"old")
    (tmp_path / "real.py").chmod(0o751)
    (tmp_path / "link.py").symlink_to("real.py")
    writing.replace(str(tmp_path / "link.py"), b"new")
    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / "real.py").read_bytes() == b"new"
    assert (tmp_path / "real.py").stat().st_mode & 0o777 == 0o751
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.py", "real.py"]

"""Which Python a file needs, told from its text."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.facts.grammar import newer_syntax, reads_with_newer_python
from validator.facts.python import extract
from validator.source import SourceFile


def minors(text: str) -> list[int]:
    return [feature.minor for feature in newer_syntax(text.encode(), text)]


@pytest.mark.parametrize(
    ("text", "minor"),
    [
        ('x = f\'{a.replace("x", r"\\d")}\'', 12),
        ('x = f"{a["b"]}"', 12),
        ("x = f'{f\"{a['b']}\"}'", 12),
        ('x = f"{a  # why\n}"', 12),
        ('x = f"{\n    a}"', 12),
        ("def first[T](items: list[T]) -> T: ...", 12),
        ("class Box[T]: ...", 12),
        ("type Pair = tuple[int, int]", 12),
        ("try:\n    pass\nexcept* OSError:\n    pass", 11),
        ("x = y[*z]", 11),
        ("match x:\n    case 1: pass", 10),
        ("with (\n    a as b,\n    c as d,\n):\n    pass", 9),
        ("print(n := 1)", 8),
        ("def f(a, /, b): ...", 8),
    ],
)
def test_newer_syntax_is_told(text: str, minor: int) -> None:
    assert max(minors(text)) == minor


@pytest.mark.parametrize(
    "text",
    [
        "x = f'{a!r:>{width}} {{\\n}} {b[\"c\"]} \\n'",
        'x = "f\\"{a["b"]}"',
        "# f'{a['b']}' and x := 1\nx = 'match y:'",
        "x = f'''{a\n}{b['c']}'''",
        "match = {'type': 1}\ntype = match['type']",
        "x = rf'\\d{{2}}{a}'",
        "x = [*a, *b]\ny = a / b",
        "with (a, b): pass",
    ],
)
def test_what_every_python_reads_is_not(text: str) -> None:
    assert minors(text) == []


def test_the_standard_library_needs_no_newer_python_than_its_own() -> None:
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(folder.glob("*.py"))[:120]
    assert files
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        found = [f for f in newer_syntax(text.encode(), text) if f.minor > sys.version_info[1]]
        assert not found, file


@given(st.text("f'\"{}\\n#:=[]()abr \n", max_size=60))
def test_no_text_is_too_strange(text: str) -> None:
    for feature in newer_syntax(text.encode(), text):
        assert 1 <= feature.line <= text.count("\n") + 1
        assert feature.column >= 1


def test_a_newer_file_is_no_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text('x = f"{a["b"]}"\n', encoding="utf-8")
    problem = extract(SourceFile("a.py", str(path))).problem
    assert (problem is None) if sys.version_info >= (3, 12) else (problem is not None and problem.kind == "newer")
    assert not reads_with_newer_python('x = f"{a[}"\n')

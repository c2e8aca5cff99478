"""What the comments that silence findings cover, and what is said of comments that silence nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.finding import Finding, Span
from validator.run.suppressions import apply, find


def finding(line: int, code: str = "MP101") -> Finding:
    return Finding(code, "some-name", "error", "a.py", Span(line, 1, line, 2), "wrong")


def silenced_lines(text: str, code: str = "MP101") -> list[int]:
    comments = find(text.encode(), text)
    findings = [finding(line, code) for line in range(1, text.count("\n") + 2)]
    kept, _, count = apply(findings, comments)
    assert count == len(findings) - len(kept)
    return sorted({each.span.line for each in findings} - {each.span.line for each in kept})


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a = 1\nb = 2  # validator: ignore[MP101] why\nc = 3\n", [2]),
        ("a = 1\nb = 2  # validator: ignore[some-name] why\n", [2]),
        ("a = 1\nb = 2  # validator: ignore[MP1] why\n", [2]),
        ("a = 1\nb = 2  # validator: ignore[MP102] why\n", []),
        ("a = 1\nb = 2  # type: int  # validator: ignore[MP102, MP101] why\n", [2]),
        ("x = f(\n    1,\n    2,\n)  # validator: ignore[MP101] last line\ny = 1\n", [1, 2, 3, 4]),
        ("x = f(  # validator: ignore[MP101] first line\n    1,\n)\ny = 1\n", [1, 2, 3]),
        ("x = f(\n    1,  # validator: ignore[MP101] within\n    2,\n)\n", [2]),
        ("# validator: ignore[MP101] alone\nx = f(\n    1,\n)\ny = 1\n", [2, 3, 4]),
        ("def f():  # validator: ignore-block[MP101] all\n    a = 1\n\n    b = 2\n\n\nc = 3\n", [1, 2, 3, 4]),
        ("# validator: ignore-block[MP101] all\n@a\n@b(\n    1)\ndef f():\n    x = 1\ny = 1\n", [1, 2, 3, 4, 5, 6]),
        ("@a\ndef f():  # validator: ignore-block[MP101] all\n    x = 1\ny = 1\n", [1, 2, 3]),
        ("if a:  # validator: ignore-block[MP101] not the else\n    x = 1\nelse:\n    y = 1\n", [1, 2]),
        ("class A:\n  def f(self):  # validator: ignore-block[MP101] one\n    x\n  def g(self):\n    x\n", [2, 3]),
        ("a = 1\n# validator: ignore-file[MP101] all\n", [1, 2, 3]),
        ("a = 1  # noqa: MP101\nb = 1  # noqa\nc = 1  # noqa: E501\nd = 1  # NOQA:E501,MP101\n", [1, 2, 4]),
        ("a = '# validator: ignore[MP101] no comment'\n", []),
        ("a = 1  # validator: ignore no code\n", []),
        ("a = 1  # validator: ignore[MP101] kept before\ndef f(:\n", [1]),
    ],
)  # fmt: skip
def test_what_a_comment_covers(text: str, lines: list[int]) -> None:
    assert silenced_lines(text) == lines


def test_reason_and_place_are_read() -> None:
    text = "x = 1  # type: ignore  # validator: ignore[MP101, MP102] the reason  # noqa\n"
    first, second = find(text.encode(), text)
    assert (first.kind, first.selectors, first.reason) == ("ignore", ("MP101", "MP102"), "the reason")
    line = text.split("\n")[0]
    assert line[first.column - 1 : first.end_column - 1].startswith("# validator: ignore[MP101, MP102] the reason")
    assert (second.kind, second.selectors) == ("noqa", ())


def test_a_comment_does_not_silence_what_is_said_of_itself() -> None:
    text = "x = 1  # validator: ignore[MP010] nothing\n"
    (comment,) = find(text.encode(), text)
    about = finding(1, "MP010")._replace(span=Span(*comment.span))
    assert apply([about], (comment,))[0] == [about]


@given(st.text(alphabet="#validtor: ignoe[MP1]bckf-\n()\\'\"x=\t", max_size=80))
def test_any_text_is_survived(text: str) -> None:
    text = "# validator: ignore[MP101] x\n" + text
    comments = find(text.encode(), text)
    assert comments[0].selectors == ("MP101",)
    for comment in comments:
        assert comment.first <= comment.last

"""The baseline knows findings by what they are about, and counts them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.errors import UsageError
from validator.finding import Finding, Span
from validator.run import baseline


def finding(line: int, code: str = "MP101", path: str = "a.py", context: str = "") -> Finding:
    return Finding(code, "some-name", "error", path, Span(line, 1, line, 2), "wrong", context=context)


def reader(text: str):  # type: ignore[no-untyped-def]
    return lambda path: text.split("\n")


def test_lines_may_move_and_a_third_one_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "base.json")
    before = [finding(1), finding(2)]
    assert baseline.write(path, before, reader("f(x)\nf(x)\n")) == 2
    assert baseline.without_known(path, before, reader("f(x)\nf(x)\n")) == []
    moved = [finding(3), finding(4), finding(5)]
    assert baseline.without_known(path, moved, reader("# new\n\n  f(x)\nf(x)\nf(x)\n")) == [finding(5)]


def test_other_rule_other_file_other_line_text_are_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "base.json")
    baseline.write(path, [finding(1)], reader("f(x)\n"))
    for other in (finding(1, code="MP102"), finding(1, path="b.py"), finding(1, context="Strategy.f")):
        assert baseline.without_known(path, [other], reader("f(x)\n")) == [other]
    assert baseline.without_known(path, [finding(1)], reader("g(x)\n")) == [finding(1)]


def test_holds_from_every_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    path = str(tmp_path / "base.json")
    monkeypatch.chdir(tmp_path)
    baseline.write(path, [finding(1, path="sub/a.py")], reader("x"))
    monkeypatch.chdir(tmp_path / "sub")
    assert baseline.without_known(path, [finding(1, path="a.py")], reader("x")) == []


def test_what_was_fixed_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "base.json")
    baseline.write(path, [finding(1), finding(2)], reader("a\nb"))
    baseline.write(path, [finding(2)], reader("a\nb"))
    assert baseline.without_known(path, [finding(1), finding(2)], reader("a\nb")) == [finding(1)]
    assert [name for name in os.listdir(tmp_path) if name != "base.json"] == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist; --update-baseline makes it"),
        ("{", "not JSON"),
        ("[]", "not a baseline"),
        ('{"version": 2, "findings": {}}', "version 2"),
        ('{"version": 1, "findings": {"a.py": 3}}', "not a baseline"),
    ],
)
def test_a_baseline_that_cannot_be_used_is_an_error(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "base.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=said):
        baseline.without_known(str(path), [], reader(""))


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["MP101", "MP102"])), max_size=8),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["MP101", "MP102"])), max_size=8),
)
def test_new_is_the_difference_of_the_counts(
    tmp_path_factory: pytest.TempPathFactory, old: list[tuple[int, str]], new: list[tuple[int, str]]
) -> None:
    path = str(tmp_path_factory.getbasetemp() / "counts.json")
    lines = reader("a\nb\na")
    baseline.write(path, [finding(*each) for each in old], lines)
    left = baseline.without_known(path, [finding(*each) for each in new], lines)
    kinds = [(text, code) for text in "ab" for code in ("MP101", "MP102")]
    texts = {1: "a", 2: "b", 3: "a"}
    for kind in kinds:
        count = [sum((texts[line], code) == kind for line, code in each) for each in (old, new)]
        expected = max(0, count[1] - count[0])
        assert sum((texts[each.span.line], each.code) == kind for each in left) == expected
    json.loads(Path(path).read_text())

"""Rewritings that change nothing leave the verdicts of rules about distributed programs as they are."""

from __future__ import annotations

import pytest

from tests.validator.rewritings import REWRITINGS, Row, rewritten, verdicts

# Examples whose verdict does change, and why: what the analyses do not follow yet.
NOT_YET: dict[tuple[str, str, bool, int], str] = {
    ("extracted method", "MP603", True, 0): "the loop goes round in another function than what it compiles",
    ("extracted method", "MP603", True, 1): "the loop goes round in another function than what it compiles",
    ("inlined helper", "MP501", True, 17): "of two branches on one rank in a row the first is reported",
    ("inlined helper", "MP599", True, 0): "the helper by which the rule knows the place is gone",
    ("inlined helper", "MP506", True, 0): "a number that one function returns in a tuple, and only reads there",
    ("inlined helper", "MP531", True, 2): "the object that spoke of the ring is no argument any more",
    ("moved definition", "MP539", True, 0): "what the main block starts stands in another file",
    ("else for return", "MP502", True, 14): "two branches come to one collective, at which the first is reported",
    ("loop", "MP555", True, 3): "a list that a loop fills instead of a display: what is gathered into it may be read",
    ("loop", "MP555", True, 4): "a list that a loop fills instead of a display: what is gathered into it may be read",
    ("own context manager", "MP567", True, 8): "what a function returns out of a `with` instead of the rank",
    ("moved definition", "MP507", False, 6): "only of functions of the same file it is known that they end the process",
    ("own context manager", "MP507", False, 6): "out of a `with` it is not known that a function ends the process",
    ("null context", "MP507", False, 6): "out of a `with` it is not known that a function ends the process",
    ("null context", "MP567", True, 8): "what a function returns out of a `with` instead of the rank",
    ("dataclass field", "MP601", True, 1): "the rule reads names, and knows no fields",
}
CODES = ("MP5", "MP6")


@pytest.mark.parametrize("name", REWRITINGS)
def test_verdict_stays_as_it_is(name: str) -> None:
    _changed(list(verdicts(name, *CODES, every=12)))


@pytest.mark.slow
@pytest.mark.parametrize("name", REWRITINGS)
def test_every_verdict_stays_as_it_is(name: str) -> None:
    rows = list(verdicts(name, *CODES))
    assert len(rows) >= 4, "a rewriting that finds nothing to rewrite tests nothing"
    changed = _changed(rows)
    assert not [key for key in NOT_YET if key[0] == name and key not in changed], "these are followed by now"


def _changed(rows: list[Row]) -> set[tuple[str, str, bool, int]]:
    """The examples whose verdict changed, all of them known."""
    changed = {_key(row): row for row in rows if not row.holds}
    new = [row for key, row in changed.items() if key not in NOT_YET]
    assert not new, "\n".join(f"{row.code} {row.index}: {row.before} -> {row.after}\n{row.text}" for row in new)
    return set(changed)


def _key(row: Row) -> tuple[str, str, bool, int]:
    return row.rewriting, row.code, row.wrong, row.index


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("extracted method", "if t:\n        x = g(a)\n    return x", "x = _part_0(a)"),
        ("extracted method", "if t:\n        y = a\n    for b in a:\n        g(y)", "for b in a:\n        g(y)"),
        ("early return", "if t:\n        g(a)", "if not t:\n        return\n    g(a)"),
        ("else for return", "if t:\n        return g(a)\n    return a", "else:\n        return a"),
        ("null context", "g(a)", "with nullcontext():\n        g(a)"),
        ("own context manager", "g(a)", "with _section('part'):\n        g(a)"),
        ("loop", "return [g(x) for x in a if x]", "for x in a:\n        if x:\n            gathered.append(g(x))"),
        ("comprehension", "out = []\n    for x in a:\n        out.append(g(x))", "out = [g(x) for x in a]"),
    ],
)
def test_rewriting_of_a_function(name: str, before: str, after: str) -> None:
    text = rewritten(f"def f(a, t, x):\n    {before}\n", name)
    assert text is not None
    assert after in text
    compile(text, "example.py", "exec")


def test_helper_is_written_out_where_it_is_called() -> None:
    text = rewritten(
        "def g(a):\n    b = a + 1\n    return b\n\ndef f(x):\n    y = g(x)\n    return y\n", "inlined helper"
    )
    assert text is not None
    assert "def g" not in text
    assert "in_a = x\n    in_b = in_a + 1\n    y = in_b" in text


def test_definition_is_moved_with_what_it_imports() -> None:
    text = rewritten(
        "import os\n\ndef g(a):\n    return os.path.abspath(a)\n\ndef f(x):\n    return g(x)\n", "moved definition"
    )
    assert text is not None
    assert "from moved_parts import g" in text
    assert "# file: moved_parts.py\nimport os" in text


def test_constructor_that_stores_becomes_fields() -> None:
    example = (
        "class A:\n    def __init__(self, x, y=1):\n        self.x = x\n        self.y = y\n        self.z = x + y\n"
    )
    text = rewritten(example, "dataclass field")
    assert text is not None
    assert "@dataclass\nclass A:\n    x: object\n    y: object = 1" in text
    assert "self.z = self.x + self.y" in text

"""Rewritings that change nothing leave the verdicts of rules about distributed programs as they are."""

from __future__ import annotations

import pytest

from tests.validator.rewritings import REWRITINGS, Row, rewritten, verdicts

# Examples whose verdict does change, and why: what the analyses do not follow yet.
NOT_YET: dict[tuple[str, str, bool, int], str] = {
    ("extracted method", "MP501", True, 4): "the model that a function gets is sharded where it is called",
    ("extracted method", "MP501", True, 7): "the number of a process comes from a loop around the call",
    ("extracted method", "MP501", True, 15): "the state dict is taken in another function than the class is asked for",
    ("extracted method", "MP501", False, 18): "the state dict is taken in another function than the class is asked for",
    ("extracted method", "MP501", False, 17): "a function gives back the group that it was given",
    ("extracted method", "MP501", False, 14): "both ways store an attribute, one of them in a method",
    ("extracted method", "MP501", False, 30): "a call is taken out of reach of the function defined around it",
    (
        "extracted method",
        "MP501",
        False,
        20,
    ): "the table is filled in another function than the test",
    ("extracted method", "MP501", False, 25): "a group that a loop makes for each rank comes back from a function",
    ("extracted method", "MP501", False, 3): "a group that a loop makes for each rank comes back from a function",
    ("extracted method", "MP502", True, 8): "an item of a dictionary comes from a loader that only its name tells",
    ("extracted method", "MP504", True, 0): "the two forwards stand in functions of their own",
    ("extracted method", "MP504", True, 1): "the two forwards stand in functions of their own",
    ("extracted method", "MP504", True, 2): "the two forwards stand in functions of their own",
    ("extracted method", "MP504", True, 3): "the two forwards stand in functions of their own",
    ("extracted method", "MP506", True, 1): "the model runs in a function below the loop",
    ("extracted method", "MP508", True, 2): "a function stores into a dictionary under a key that it is passed",
    ("extracted method", "MP510", True, 4): "the root is counted in another function than the group is used",
    ("extracted method", "MP510", True, 11): "the loop goes round in another function than the root is counted",
    ("extracted method", "MP515", True, 1): "the request that a function starts is waited for after the loop alone",
    ("extracted method", "MP515", True, 2): "the buffer goes through a function and an object to the request",
    ("extracted method", "MP522", False, 0): "the wrapper is taken off in another function than the question for it",
    ("extracted method", "MP523", True, 5): "a function two calls below appends the parameters to the list",
    ("extracted method", "MP537", True, 1): "the collective stands in another function than the write",
    ("extracted method", "MP538", True, 0): "the requests are made in another function than the meeting",
    ("extracted method", "MP540", True, 0): "names are collected in a function, under a test in another one",
    ("extracted method", "MP540", True, 1): "names are collected in a function, under a test in another one",
    ("extracted method", "MP545", True, 1): "the number of a process comes from loops around the call",
    ("extracted method", "MP550", True, 0): "the loop goes round in another function than its last round is asked for",
    ("extracted method", "MP550", True, 1): "the loop goes round in another function than its last round is asked for",
    ("extracted method", "MP550", True, 2): "what the test decides stands in another function",
    ("extracted method", "MP551", True, 1): "the loop goes round in another function than the rank is asked for",
    ("extracted method", "MP553", True, 0): "the weights are loaded in another function than the model is wrapped",
    ("extracted method", "MP553", True, 1): "the model is made in another function than it is wrapped",
    ("extracted method", "MP555", True, 2): "the copy is made in another function than the collective",
    ("extracted method", "MP556", True, 0): "a function appends the buffers to the list of a loop around its call",
    ("extracted method", "MP571", True, 0): "the write stands in another function than the context manager",
    ("extracted method", "MP571", True, 4): "the parameters are used in another function than they are gathered",
    ("extracted method", "MP571", False, 2): "the pairs of parameters are put together in a function of their own",
    ("extracted method", "MP580", True, 3): "a function adds to the sum and to the count of a loop around its call",
    ("extracted method", "MP586", True, 0): "a function fills the list of what is cut",
    ("extracted method", "MP587", True, 0): "a function stores the copies in the dictionary that is saved",
    ("extracted method", "MP590", False, 1): "which process is asked for stands in another function than the list",
    ("extracted method", "MP591", True, 0): "each transfer stands in a function of its own",
    ("extracted method", "MP591", True, 1): "each transfer stands in a function of its own",
    ("extracted method", "MP594", True, 0): "the step and the clearing stand in functions of their own",
    ("extracted method", "MP595", True, 0): "the parameters are frozen in a function below the loop over them",
    ("extracted method", "MP596", True, 0): "the loop goes round in another function than the model is wrapped",
    ("extracted method", "MP603", True, 0): "the loop goes round in another function than what it compiles",
    ("extracted method", "MP603", True, 1): "the loop goes round in another function than what it compiles",
    ("extracted method", "MP604", True, 0): "the model is wrapped in another function than checkpointing is asked for",
    ("extracted method", "MP604", True, 4): "checkpointing is two calls away from the function that wraps",
    ("own context manager", "MP501", False, 2): "a function returns, or not, inside of a context manager",
    ("null context", "MP501", False, 2): "a function returns, or not, inside of a context manager",
    ("inlined helper", "MP501", True, 17): "of two branches on one rank in a row the first is reported",
    ("inlined helper", "MP599", True, 0): "the helper by which the rule knows the place is gone",
    ("inlined helper", "MP506", True, 0): "a number that one function returns in a tuple, and only reads there",
    ("inlined helper", "MP531", True, 2): "the object that spoke of the ring is no argument any more",
    ("moved definition", "MP539", True, 0): "what the main block starts stands in another file",
    ("dataclass field", "MP601", True, 1): "the rule reads names, and knows no fields",
}
CODES = ("MP5", "MP6")


@pytest.mark.parametrize("name", REWRITINGS)
def test_verdict_stays_as_it_is(name: str) -> None:
    _changed(list(verdicts(name, *CODES, every=4)))


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

"""What stands in a short function of its own: it is seen in the place of the call, and nothing is lost of it."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from validator.facts.identities import looked_through, without_empty_ends
from validator.ir import Code, lower


def lowered(text: str, *elsewhere: str) -> dict[str, Code]:
    text = dedent(text)
    units, failed = lower(ast.parse(text), True, frozenset(elsewhere))
    assert not failed
    return units


def instructions(code: Code) -> list[tuple[str, object]]:
    """What a unit does, but for names and places."""
    return [(v.op, v.data) for v in code.values if v.op not in ("part", "phi", "const", "param")]


WHOLE = """
    def train(model, batches, limit):
        total = 0
        for batch in batches:
            loss = model(batch)
            loss.backward()
            total = total + loss
        if total > limit:
            model.save()
        return total
"""
CUT = """
    def _step(model, batch, total):
        loss = model(batch)
        loss.backward()
        total = total + loss
        return total

    def train(model, batches, limit):
        total = 0
        for batch in batches:
            total = _step(model, batch, total)
        if total > limit:
            model.save()
        return total
"""


def test_a_part_that_was_cut_out_stands_where_it_stood() -> None:
    whole, cut = lowered(WHOLE)["train"], lowered(CUT)
    named = [row for row in instructions(cut["train"]) if row != ("name", "_step")]
    assert named == instructions(whole)
    assert cut["_step"].part_of == "train"
    assert cut["train"].parts == ["_step"]
    assert [len(block.preds) for block in cut["train"].blocks] == [len(block.preds) for block in whole.blocks]


def test_parts_of_parts_stand_in_the_outermost() -> None:
    units = lowered("""
        class A:
            def run(self, x):
                return self._first(x)

            def _first(self, x):
                return self._second(x)

            def _second(self, x):
                return x.all_reduce()
    """)
    assert units["A._second"].part_of == "A._first"
    assert units["A._first"].part_of == "A.run"
    assert ("attr", "all_reduce") in instructions(units["A.run"])


def test_names_of_a_part_are_its_own() -> None:
    units = lowered("""
        def _other(y):
            x = scale
            return x + y

        def run(scale, x):
            y = _other(x)
            return x, y
    """)
    run = units["run"]
    assert ("name", "scale") in instructions(run)  # of the module, not the parameter of the caller
    returned = run.values[run.returned[0]]
    assert [run.values[number].op for number in returned.args] == ["param", "binary"]


@pytest.mark.parametrize(
    "text",
    [
        "def step(x):\n    g(x)\n\ndef run(x):\n    step(x)\n",  # anybody may call it
        "def _step(x):\n    g(x)\n\ndef run(x):\n    _step(x)\n    _step(x)\n",
        "def _step(x):\n    if x:\n        return\n    g(x)\n\ndef run(x):\n    _step(x)\n",
        "def _step(x):\n    yield x\n\ndef run(x):\n    _step(x)\n",
        "def _step(x) -> Model:\n    return g(x)\n\ndef run(x):\n    y = _step(x)\n",
        "@wrapped\ndef _step(x):\n    g(x)\n\ndef run(x):\n    _step(x)\n",
        "def _step(x, *rest):\n    g(x)\n\ndef run(x):\n    _step(x)\n",
        "def _step(x):\n    g(x)\n\ndef run(x):\n    _step(*x)\n",
        "class A:\n    def _step(self, x):\n        g(x)\n\nclass B:\n    def run(self, x):\n        self._step(x)\n",
    ],
)
def test_other_calls_are_calls(text: str) -> None:
    assert not any(code.part_of or code.parts for code in lowered(text).values())


def test_a_function_that_others_are_called_like_is_no_part() -> None:
    assert lowered(CUT, "_step")["_step"].part_of == ""


@pytest.mark.parametrize(
    ("text", "is_seen"),
    [
        ("def same(x):\n    'As it is.'\n    return x\n\ny = same(a == b)\n", True),
        ("def same(x):\n    return x\n\ny = same(same(a == b))\n", True),
        ("def same(x):\n    return x\n\ny = same(*a)\n", False),
        ("def same(x: int):\n    return x\n\ny = same(a == b)\n", False),
        ("def same(x):\n    return x\n\ndef f(same):\n    return same(a == b)\n", False),
        ("def same(x):\n    x.step()\n    return x\n\ny = same(a == b)\n", False),
    ],
)
def test_a_function_that_gives_back_its_argument_hides_nothing(text: str, is_seen: bool) -> None:
    tree = looked_through(ast.parse(text))
    compile(ast.unparse(tree), "example.py", "exec")
    assert (not any(isinstance(node, ast.Call) for node in ast.walk(tree))) is is_seen


def test_an_end_that_does_nothing_is_none() -> None:
    tree = without_empty_ends(ast.parse("def f():\n    try:\n        g()\n    finally:\n        pass\n    return 1\n"))
    assert ast.unparse(tree) == "def f():\n    g()\n    return 1"
    kept = "try:\n    g()\nexcept ValueError:\n    pass\nfinally:\n    pass"
    assert ast.unparse(without_empty_ends(ast.parse(kept))) == kept

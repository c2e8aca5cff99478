"""A text that is compared with the same word in other letters: `"True" == "true"`.

What it does
    Reports `==` and `!=` between a text and something that may be the same word in capital or small letters, as the
    code itself says it: the default of an environment variable, of an option or of a parameter, a constant. Where both
    spellings are compared in one function, or the letters are made alike before (`.lower()`), there is nothing to say.

Why is this bad
    The test fails for the very value that the code gives, so a switch that is on by default never is.

References
    https://docs.python.org/3/library/os.html#os.getenv
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.callgraph.spelled_arguments import origins
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.ir.expressions import MADE_UP
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP331", "compared-in-another-case", "warning", "1.0", solves=True)

_EQUAL = frozenset({"Eq", "NotEq"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program():
        if is_test(unit.path):
            continue
        for place in queries.values(unit, "compare"):
            sides = (place.operand(0), place.operand(1)) if place.value.data in _EQUAL else ()
            for one, other in zip(sides, reversed(sides), strict=True):
                yield from _checked(queries, place, one, other)


def _checked(queries: Queries, place: Place, one: Place, other: Place) -> Iterator[Finding]:
    """A side that may be the word of the other one, written out, in other letters."""
    text = one.value.data if one.value.op == "const" else None
    if not isinstance(text, str) or other.value.op == "const" or text.lower() == text.upper():
        return
    texts = {o[2] for o in other.closed.each if o[0] == "const" and isinstance(o[2], str)}
    alike = sorted(each for each in texts if each != text and each.lower() == text.lower())
    compared = any(_is_compared(queries, place, each) for each in alike)
    if alike and text not in texts and not compared and not _is_made_alike(queries, other):
        yield RULE.finding(
            place.unit.path,
            place.at,
            f"`{other.text}` may be {alike[0]!r}{place.where}, which is not {text!r}: the letters differ",
            help=f"write both alike, or compare `{other.text}.lower()`",
            context=f"{place.unit.qualname}:{other.text}:{text}",
        )


def _is_made_alike(queries: Queries, side: Place) -> bool:
    """Whether something may change the letters before: what computes it on another way, what stores attributes by
    computed names, one of several callers."""
    root = side.root
    if root.value.op == "attr":
        writers = (queries.flow.unit_of(writer) for writer in queries.flow.stores.writers(MADE_UP))
        return any(writer is not None and writer.cls is side.unit.cls for writer in writers)
    if root.value.op == "param":
        return len(list(queries.flow.calls_of(side.unit))) > 1
    ways = [root.value_at(number) for number in origins(root.unit, root.number)]
    return len(ways) > 1 and any(way.value.op == "call" for way in ways)


def _is_compared(queries: Queries, place: Place, text: str) -> bool:
    """Whether a function compares something with a text, too, or asks whether that is in a list of texts."""
    tests = queries.values(place.unit, "compare")
    return any(_names(test.value_at(number), text) for test in tests for number in test.value.args)


def _names(side: Place, text: str) -> bool:
    root = side.root
    parts = [root.value_at(number) for number in root.value.args] if root.value.op in ("tuple", "list", "set") else []
    return any(each.value.op == "const" and each.value.data == text for each in (root, *parts))


_SWITCH = """
import os

def processes(gpus):
    switch = os.getenv("PROCESSES_BY_GPUS", "True"){folded}
    return gpus if switch == "true" else 1{mark}

def start(mode="Train"):
    if mode == {mode!r}:{other}
        return processes(8)
    return 0

if __name__ == "__main__":
    start()
"""

INCORRECT = (_SWITCH.format(folded="", mark="  # error: MP331", mode="train", other="  # error: MP331"),)
CORRECT = (
    _SWITCH.format(folded=".lower()", mark="", mode="Train", other=""),
    """
import os

def is_on(value="True"):
    if value == "true" or value == "True":
        return True
    return value in ("1", "yes")

def kind(name):
    return name.lower() == "adamw"

def made():
    return kind("AdamW")
""",
    """
import os

class Trainer:
    def __init__(self, backend="NCCL"):
        self.backend = backend
        for name in ("backend",):
            setattr(self, name, getattr(self, name).lower())

    def build(self):
        return self.backend == "nccl"

def is_true(text):
    return text == "true"

def main():
    value = os.getenv("SWITCH", "True")
    return Trainer().build() and (is_true(value) or is_true(value.lower()))

main()
""",
)

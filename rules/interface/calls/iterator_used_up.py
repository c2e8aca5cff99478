"""An iterator that the first round of a loop uses up, and that each further round goes through again.

What it does
    Reports `for x in batches` inside of another `for`, where `batches` is a generator (the call of a generator function
    of the project, a generator expression) made before the outer loop. Silent where the inner loop may be left before
    its end, where something else reads the generator too (`next(batches)`), where it never ends, where it is made anew
    in each round, and in tests.

Why is this bad
    A generator gives its elements once: from the second round on the inner loop does nothing. Of several epochs over
    the same batches only the first one trains, and nothing fails.

References
    https://docs.python.org/3/glossary.html#term-generator-iterator
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.control import reachable
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.values import Obj
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP155", "iterator-used-up", "warning", "1.0", tokens=("for",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program():
        headers = {loop.iterator: header for header, loop in unit.code.loops.items()}
        for place in queries.values(unit, "iter") if not is_test(unit.path) else ():
            header = headers.get(place.number)
            if header is not None and not place.is_tried and _is_generator(made := place.operand(0).root):
                outer = _repeating(place, made, header)
                if outer >= 0 and not _is_read_elsewhere(made, place):
                    yield _report(place, made, outer)


def _is_generator(made: Place) -> bool:
    """Whether a value is a generator that ends, and nothing else."""
    if made.value.op == "collect":
        return bool(made.value.data[0] == "generator")
    held = made.closed.each
    return made.value.op == "call" and bool(held) and all(map(_ends, held))


def _is_read_elsewhere(made: Place, place: Place) -> bool:
    """Whether anything but the loop itself reads a generator; a variable of loops that nobody reads does not."""
    seen, queue = {made.number}, list(made.users)
    while queue:
        user = queue.pop()
        if user.number in seen or user.number == place.number or user.value.op == "mut":
            continue
        if user.value.op != "phi":
            return True
        seen.add(user.number)
        queue += user.users
    return False


def _ends(o: Obj) -> bool:
    method = o[1].method if o[0] == "generator" else None
    return method is not None and not method.facts.decorators and method.facts.falls and not method.facts.is_async


def _repeating(place: Place, made: Place, header: int) -> int:
    """A `for` around the inner loop, and not around what made the generator, that goes on when the inner loop has come
    to its end; -1 where there is none, or the inner loop may be left before."""
    code, control = place.unit.code, place.unit.control
    loop = code.loops[header]
    if any(not raised and before not in (header, loop.done) for before, raised in code.blocks[loop.after].preds):
        return -1
    outside = control.loops_around(made.value.block)
    around = [each for each in control.loops_around(place.value.block) if each not in outside and each != header]
    after = reachable(code, start=loop.done)
    return next((each for each in around if code.loops[each].iterator >= 0 and each in after), -1)


def _report(place: Place, made: Place, outer: int) -> Finding:
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.unit.text(place.value.at)}`{place.where} is a generator, which the first round of the loop"
        " around uses up: the others go through nothing",
        help="make it in each round, or keep its elements in a list",
        related=[
            Related(made.unit.path, made.at[0], "the generator is made here"),
            Related(place.unit.path, place.unit.at(place.unit.code.loops[outer].at)[0], "the loop around it"),
        ],
        context=f"{place.unit.qualname}:{made.text}",
    )


_UPDATE = """\
def minibatches(strategy, data, size):
    for start in range(0, len(data), size):
        yield strategy.part(data, start, size)


def endless(strategy, data):
    while True:
        yield strategy.draw(data)


def update(strategy, data, epochs):
    {before}
    for _ in range(epochs):
        {inside}
"""


def _update(before: str, *inside: str) -> str:
    return _UPDATE.format(before=before, inside="\n        ".join(inside))


INCORRECT = (
    _update(
        "batches = minibatches(strategy, data, 8)",
        "for batch in batches:  # error: MP155",
        "    strategy.backward(batch)",
        "strategy.step()",
    ),
    _update(
        "rows = (strategy.row(each) for each in data)",
        "for row in rows:  # error: MP155",
        "    strategy.backward(row)",
    ),
)

CORRECT = (
    _update("size = 8", "for batch in minibatches(strategy, data, size):", "    strategy.backward(batch)"),
    _update("batches = list(minibatches(strategy, data, 8))", "for batch in batches:", "    strategy.backward(batch)"),
    # left before its end: the next round goes on there
    _update(
        "batches = minibatches(strategy, data, 8)",
        "for batch in batches:",
        "    if strategy.is_boundary(batch):",
        "        break",
    ),
    # it never ends
    _update("batches = endless(strategy, data)", "for batch in batches:", "    strategy.backward(batch)"),
    # made anew
    _update(
        "batches = minibatches(strategy, data, 8)",
        "for batch in batches:",
        "    strategy.backward(batch)",
        "batches = minibatches(strategy, data, 8)",
    ),
)

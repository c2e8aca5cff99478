"""Two parts of a result that are taken under each other's names.

What it does
    Takes results that are unpacked into names (`it, start_epoch = load(…)`) and compares them with the names of what is
    returned (`return epoch, it`). Reports where two stand in each other's places, at every `return` of all functions
    that may be called; of an object that is not known, of all methods that are called so. Names fit each other if the
    words of one are among those of the other. Silent where a name says that the exchange is meant (`swap`, `reverse`),
    where two name the two ways of one thing, and in tests.

Why is this bad
    Nothing fails where both are of one type: a resumed run takes the number of steps for that of epochs.

References
    https://docs.python.org/3/reference/simple_stmts.html#assignment-statements
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.interface.calls.arguments_swapped import MEANT, go_back, words
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP149", "results-swapped", "warning", "1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program():
        for place in queries.values(unit, "unpack"):
            if place.value.data[0] == 0 and place.value.data[2] < 0 and not is_test(unit.path):
                yield from _checked(queries, place.operand(0).root)


def _checked(queries: Queries, call: Place) -> Iterator[Finding]:
    names = _taken(call)
    units = list(_called(queries, call)) if call.value.op == "call" else []
    rows = [row for unit in units for row in _given(unit, len(names))]
    found = {_swapped(names, row) for row in rows}
    if len(found) != 1 or (places := found.pop()) is None or MEANT.search(call.unit.qualname.lower() + call.method):
        return
    taken, given = ((row[places[0]], row[places[1]]) for row in (names, rows[0]))
    if not go_back(*taken):
        yield _report(call, units[0], taken, given)


def _called(queries: Queries, call: Place) -> Iterator[Unit]:
    """The functions that a call may run; of an object that is not known, all methods of that name."""
    site = call.result.sites.get(call.number)
    if site is not None and site.targets and not site.others:
        if all(o[0] in ("unit", "bound") for o in call.operand(0).closed.each):
            yield from (target.unit for target in site.targets)
    elif site is None and call.receiver is not None:
        yield from queries.flow.units(iter(queries.flow.guessed.methods(call.method)))


def _taken(call: Place) -> list[str]:
    """The names into which a result is unpacked, in their order; empty texts for what has none."""
    own = call.unit.variables
    parts = {user.value.data[0]: user for user in call.users if user.value.op == "unpack"}
    wanted = next((user.value.data[1] for user in parts.values()), 0)
    return [own.get(parts[i].number, "") if i in parts else "" for i in range(wanted)]


def _given(unit: Unit, length: int) -> Iterator[list[str]]:
    """For each `return` the names of what it gives."""
    own = unit.variables
    for number in unit.code.returned:
        value = unit.code.values[number]
        names = []
        for part in value.args if value.op == "tuple" and len(value.args) == length else ():
            inner = unit.code.values[part] if part >= 0 else value
            names.append(
                own.get(part)
                or (str(inner.data[1]) if inner.op == "param" else "")
                or (str(inner.data) if inner.op == "attr" else "")
            )
        yield names


def _swapped(names: list[str], given: list[str]) -> tuple[int, int] | None:
    """The places of two names of which each fits what stands at the other one's, and not what stands at its own."""
    for i in range(len(given)):
        for j in range(i + 1, len(given)):
            crossed = _fit(names[i], given[j]) and _fit(names[j], given[i])
            same = names[i] == given[j] or names[j] == given[i]
            if crossed and same and not _fit(names[i], given[i]) and not _fit(names[j], given[j]):
                return i, j
    return None


def _fit(one: str, other: str) -> bool:
    """Whether the words of one name are among those of another one."""
    first, second = words(one), words(other)
    return bool(first and second) and (first <= second or second <= first)


def _report(call: Place, unit: Unit, taken: tuple[str, str], given: tuple[str, str]) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}`{call.where} gives `{given[0]}` where `{taken[0]}` is taken, and `{given[1]}` for `{taken[1]}`",
        help="exchange the names",
        related=[Related(unit.path, unit.code.at[0], f"`{unit.qualname}` is defined here")],
        context=f"{call.unit.qualname}:{unit.qualname}:{taken[0]}",
    )


INCORRECT = (
    """
class Detector:
    def load(self, path):
        state = read(path)
        epoch = state.get("epoch", -1)
        it = state.get("it", 0)
        return epoch, it

def main(path):
    detector = Detector()
    it, start_epoch = detector.load(path)  # error: MP149
    return range(start_epoch, 10), it
""",
)

CORRECT = (
    """
class Detector:
    def load(self, path):
        state = read(path)
        epoch = state.get("epoch", -1)
        it = state.get("it", 0)
        return epoch, it

    def both(self, path):
        it, epoch = 0, 1
        return (epoch, it) if path else (0, 1)

def main(path):
    start_epoch, it = Detector().load(path)
    it, start_epoch = Detector().both(path)
    return range(start_epoch, 10), it
""",
    """
def sizes(rows):
    height, width = rows.shape
    return height, width

def ends(rows):
    start, end = rows[0], rows[-1]
    return start, end

def turned(rows):
    end, start = ends(rows)
    h, w = sizes(rows)
    return h, w, start, end
""",
)

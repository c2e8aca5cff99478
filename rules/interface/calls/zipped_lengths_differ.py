"""Sequences of different lengths that `zip` or `map` goes through together.

What it does
    Compares how many parts the arguments of `zip(names, row)` and `map(f, names, row)` have, as far as that is known:
    of literals, constants of modules, named tuples and their `_fields`, attributes, results, and what callers pass.
    Where one is a row of a table of which any may be chosen (`ROWS[args.model]`, `for row in ROWS`), a warning at each
    row of another length, if most rows have the right one; an error where no row has it. Else reported where lengths
    always differ: an error where the pairs become a dictionary (`dict(zip(names, row))`), a warning elsewhere.
    Silent with `strict=`, where the function asks for a length, of what is cut on purpose (`zip(xs, xs[1:])`), of
    ranges and what never ends, and where the longer one is a variable from which other places take as well, such as a
    list of colours.

Why is this bad
    `zip` ends with the shortest and says nothing. A number that is missing in the middle moves all behind it by one
    name: the gradient is clipped at the weight decay, and the last option keeps its default.

References
    https://docs.python.org/3/library/functions.html#zip
    https://peps.python.org/pep-0618/
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.tables import Table, Tables
from validator.finding import Finding, Related, Severity
from validator.flow.constructors import length_of
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import trail
from validator.flow.values import Obj
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP157", "zipped-lengths-differ", "error", "1.0", tokens=("zip", "map"), solves=True)

_FIRST = {"zip": 1, "map": 2}  # by name of a builtin the position of the first sequence, behind the callee
_NAMING = ("name", "import", "attr", "free")


def check_project(project: Project) -> Iterator[Finding]:
    queries, tables = project.analysis(Queries), project.analysis(Tables)
    for place in queries.called_in_program(frozenset(_FIRST)):
        sequences = _sequences(place)
        if len(sequences) < 2 or place.is_tried or _is_measured(queries, place, sequences):
            continue
        rows = {index: found for index, each in enumerate(sequences) if (found := _tables(tables, each))}
        lengths = [None if index in rows else _length(each) for index, each in enumerate(sequences)]
        known = {length for length in lengths if length is not None}
        if rows and len(known) == 1:
            for index, found in rows.items():
                for table in found:
                    yield from _of_table(place, sequences, index, table, min(known))
        elif len(known) > 1 and not _is_supply(queries, sequences[lengths.index(max(known))]):
            yield _of_call(place, sequences, lengths)


def _sequences(place: Place) -> list[Place]:
    """What is gone through together; nothing where it is said what becomes of the rest, or not how much it is."""
    named = {o[1] for o in place.operand(0).closed.each if o[0] == "ext"}
    names = place.value.data.names
    if len(named) != 1 or any(name is not None for name in names):
        return []
    first = _FIRST.get(named.pop().removeprefix("builtins."), len(names) + 1)
    return [place.operand(number) for number in range(first, len(names) + 1)]


def _is_measured(queries: Queries, place: Place, sequences: list[Place]) -> bool:
    """Whether the function asks how long one of them is."""
    keys = {each.root.key for each in sequences}
    calls = (each for each in queries.calls_in(place.unit) if each.method == "len" and len(each.value.args) == 2)
    return any(each.operand(1).root.key in keys for each in calls)


def _length(sequence: Place) -> int | None:
    """How many parts a sequence has; None where that is not known, or now so, now otherwise."""
    root = sequence.root
    if root.value.op == "list" and root.number != sequence.number:
        return None  # something was given it, and may have added to it
    if root.value.op == "attr" and root.value.data == "_fields":
        counted = {length_of(o[1]) if o[0] in ("class", "inst") else None for o in root.operand(0).closed.each}
    else:
        counted = {_parts(o) for o in sequence.closed.each}
    return counted.pop() or None if len(counted) == 1 else None  # what is empty is there to be filled


def _parts(o: Obj) -> int | None:
    if o[0] == "inst":
        return length_of(o[1])
    return len(o[1]) if o[0] == "tuple" else None


def _tables(tables: Tables, sequence: Place) -> list[Table]:
    """The tables of which a sequence may be any row."""
    found = (table for each in trail(sequence, frozenset()) for table in tables.of_row(each))
    return [table for table in dict.fromkeys(found) if table.rows[0].length is not None]


def _is_supply(queries: Queries, sequence: Place) -> bool:
    """Whether something else reads a sequence as well, or may: each takes what it needs of it."""
    root = sequence.root
    if root.value.op == "param":
        passed = [each for each in trail(root, frozenset()) if each.value.op != "param"]
        return not passed or any(_is_supply(queries, each) for each in passed)
    if root.value.op in ("list", "tuple"):
        return len(root.users) > 1
    if root.value.op == "call":
        return False
    name = root.value.data[1] if root.value.op == "import" else root.value.data
    if root.value.op not in _NAMING or not isinstance(name, str):
        return True
    if name == "_fields":
        return False
    readers = (each for unit in queries.flow.mentions.units(name) for each in queries.values(unit, *_NAMING))
    return sum(1 for each in readers if name in (each.value.data, each.hint) and each.value.op != "import") > 1


def _of_table(place: Place, sequences: list[Place], index: int, table: Table, wanted: int) -> Iterator[Finding]:
    odd = [row for row in table.rows if row.length != wanted]
    if len(odd) == len(table.rows):
        yield _report(place, f"no row of `{table.name}` has {wanted} parts, as what it is gone through with", "error")
    elif 2 * len(odd) < len(table.rows):
        others = " and ".join(f"`{each.text}`" for other, each in enumerate(sequences) if other != index)
        for row in odd:
            name = f"row {row.name}" if table.listed else f"`{row.name}`"
            yield RULE.finding(
                table.module.path,
                row.at,
                f"{name} of `{table.name}` has {row.length} parts, and is gone through together with {others}, as long"
                f" as the other rows: {wanted}",
                help="give the row as many parts as the others, and pass `strict=True`",
                related=[Related(place.unit.path, place.at[0], f"gone through{place.where}")],
                context=f"{table.name}:{row.name}",
                severity="warning",
            )


def _of_call(place: Place, sequences: list[Place], lengths: list[int | None]) -> Finding:
    told = [(f"`{each.text}`", n) for each, n in zip(sequences, lengths, strict=True) if n is not None]
    counted = " and ".join(f"{name} has {n}" for name, n in told)
    is_table = any(user.value.op == "call" and user.method == "dict" for user in place.users)
    return _report(
        place, f"{counted} parts: what is left over of the longer one is lost", "error" if is_table else "warning"
    )


def _report(place: Place, what: str, severity: Severity) -> Finding:
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.unit.text(place.value.at)}`{place.where}: {what}",
        help="make them as long as each other, and pass `strict=True`; cut the longer one where that is meant",
        context=f"{place.unit.qualname}:{place.unit.text(place.value.at)}",
        severity=severity,
    )


_ROWS = """\
# file: rl/__init__.py
# file: rl/recipes.py
NAMES = ["batch", "epochs", "clip", "decay"]
RECIPES = {{
    "small": (4096, 400, 5.0, 0.01),
    "base": (4096, 200, 5.0, 0.02),
    "large": (1024, 200, 0.01),{mark}
}}
ORDERS = [["batch", "clip"], ["clip", "decay"], ["batch"]]
# file: rl/options.py
from rl.recipes import NAMES, ORDERS, RECIPES


def filled(args):
    if args.model == "wide":
        row = RECIPES["base"]
    else:
        row = RECIPES[args.model]
    {test}
    for name, value in zip(NAMES, row{strict}):
        if not getattr(args, name):
            setattr(args, name, value)
    return args


def orders():
    for order in ORDERS:
        print(dict(zip(order, order)), list(zip(order, order[1:])))
"""

INCORRECT = (
    _ROWS.format(mark="  # error: MP157", test="print(row)", strict=""),
    """
from collections import namedtuple

Stats = namedtuple("Stats", ["loss", "kl", "tokens"])
AXES = ("dp", "cp", "tp")
STAGES = [("load", 1), ("train", 4), ("save", 1)]


def step(strategy, batch):
    return strategy.loss(batch), strategy.kl(batch)


def log(strategy, batch, sizes):
    values = step(strategy, batch)
    print(dict(zip(Stats._fields, values)))  # error: MP157
    print(list(map(max, AXES, (1, 2))))  # error: MP157
    for stage in STAGES:
        print(dict(zip(("name", "nodes", "hours"), stage)))  # error: MP157
    show(("loss", "kl", "tokens"), values)


def show(names, values):
    for name, value in zip(names, values):  # error: MP157
        print(name, value)
""",
)

CORRECT = (
    _ROWS.format(mark="", test="assert len(row) == len(NAMES)", strict=""),
    _ROWS.format(mark="", test="print(row)", strict=", strict=True"),
    """
import itertools

COLORS = ["red", "green", "blue", "black"]
NAMES = ["loss", "kl"]


def fill(names, count):
    for index in range(count):
        names.append(f"step {index}")


def plot(axes, curves, plus):
    labels, names = ["first"], ["loss", "kl"]
    fill(labels, len(curves))
    print(list(zip(labels, ("x", "y"))))
    if plus:
        names.append("tokens")
    print(list(zip(names, NAMES)), list(zip(NAMES, NAMES[1:])), list(zip(itertools.count(), NAMES)))
    for name, color in zip(NAMES, COLORS):
        axes.plot(curves[name], color)
    for index, name in zip(range(10), NAMES):
        axes.label(index, name)
    return [axes.line(color) for color in COLORS]
""",
)

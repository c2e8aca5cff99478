"""What is put into a list or dictionary after its last use.

What it does
    Reports additions (`rows += [x]`, `rows.append(x)`, `options.update(x)`) to a list, set or dictionary that the
    function has made or copied itself, where nothing reads it afterwards although the function has read what the
    variable held before. Silent where something may have kept the object: it was stored, returned,
    passed to a function, or a function inside reads the variable.

Why is this bad
    What is added has no effect: the options, parameters or rows do not get where the code above handed them on.

References
    https://docs.python.org/3/library/stdtypes.html#mutable-sequence-types
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.containers import GROWING
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.values.reads import is_read, may_be_read_inside
from validator.ir.model import RawAt
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP167", "added-too-late", "warning", "1.0", solves=True)

_DISPLAYS = frozenset({"list", "dict", "set", "collect"})
_MAKERS = frozenset({"list", "dict", "set", "copy", "deepcopy", "OrderedDict", "defaultdict", "Counter"})
# What these are given they copy, or make something else of: nothing keeps the container itself.
_COPYING = _MAKERS | frozenset({
    "extend", "update", "len", "tuple", "sorted", "frozenset", "join", "print", "str", "repr", "sum", "any", "all",
    "format",
})  # fmt: skip
_READING = frozenset({"iter", "item", "compare", "join", "unary"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program():
        if unit.code.kind == "function" and not unit.code.is_generator:
            yield from _too_late(queries, unit)


def _too_late(queries: Queries, unit: Unit) -> Iterator[Finding]:
    """The first of the additions to each container that nothing reads any more."""
    said: set[Place] = set()
    for number, value in enumerate(unit.code.values):
        place = Place(queries.flow, unit, number)
        if not _adds(place) or is_read(place, _kept_by):
            continue
        held = Container(place)
        if held.made in said or not held.is_own or held.gets_the_same(place) or held.is_gone_through(place):
            continue
        read = held.read_before(value.at)
        if read is not None and not may_be_read_inside(queries, unit, held.name):
            said.add(held.made)
            yield RULE.finding(
                unit.path,
                place.at,
                f"what is added to `{held.name}` in `{unit.qualname}` has no effect: nothing reads `{held.name}` later",
                help=f"add it before `{held.name}` is used, or use it after",
                related=[Related(unit.path, read.at[0], f"`{held.name}` is used here")],
                context=f"{unit.qualname}:{held.name}",
            )


def _adds(place: Place) -> bool:
    """Whether an instruction stands for what a variable's container holds after something was added to it."""
    value = place.value
    if value.op == "binary":
        return value.data == "Add" and _is_same_variable(place, value.args[0])
    return value.op == "mut" and value.data == -1 and place.operand(1).method in GROWING


def _is_same_variable(place: Place, number: int) -> bool:
    names = place.unit.variables
    return place.number in names and names.get(place.number) == names.get(number)


def _kept_by(user: Place) -> list[Place]:
    """The container after a use that only adds to it; nothing where the use reads it."""
    if user.value.op == "mut" or _adds(user):
        return [user]
    if user.value.op != "attr" or user.value.data not in GROWING:
        return []
    after = [each for call in user.users for each in call.users]
    return [each for each in after if each.value.data == -1] if all(each.value.op == "mut" for each in after) else []


class Container:
    """A list, set or dictionary to which something is added, from where it was made."""

    def __init__(self, added: Place) -> None:
        self.unit = added.unit
        self.name = added.unit.variables.get(added.number, "")
        self.made = added.operand(0).root
        while _adds(self.made):
            self.made = self.made.operand(0).root

    @property
    def is_own(self) -> bool:
        """Whether the function has made it itself, and nothing else can hold it."""
        made = self.made
        fresh = made.value.op in _DISPLAYS or made.value.op == "call" and made.method in _MAKERS
        names = [name for name, numbers in self.unit.code.definitions.items() if made.number in numbers]
        if not fresh or len(names) != 1:
            return False
        return all(self._is_let_go(each, user) for each in self._versions for user in each.users)

    @property
    def _versions(self) -> list[Place]:
        """The container, and what stands for it after each change and where ways meet."""
        found, seen = [self.made], {self.made}
        for each in found:
            fresh = [user for user in each.users if user.value.op in ("phi", "mut") or _adds(user)]
            found += [user for user in fresh if user not in seen]
            seen.update(fresh)
        return found

    def _is_let_go(self, version: Place, user: Place) -> bool:
        value = user.value
        if value.op in ("phi", "mut", *_READING) or _adds(user):
            return True
        if value.op == "attr":
            return value.data in GROWING | _COPYING and all(each.value.op == "call" for each in user.users)
        if value.op != "call" or user.method not in _COPYING or version.number not in value.args[1:]:
            return False
        by_name = dict(zip(value.args[1:], value.data.names, strict=True))[version.number] is not None
        may_keep = user.method in user.flow.project.defined  # some class of the project
        return not by_name and not may_keep

    def gets_the_same(self, added: Place) -> bool:
        """Whether the same is added elsewhere, where it is read: what each round of a loop does, done once more."""
        same = (each for each in self._versions if _adds(each) and each != added and each.text == added.text)
        return any(is_read(each, _kept_by) for each in same)

    def is_gone_through(self, added: Place) -> bool:
        """Whether a loop around the addition goes through the container itself: it gets to what is added."""
        loops = (self.unit.code.loops[header] for header in self.unit.control.loops_around(added.value.block))
        versions = {each.number for each in self._versions}
        iterators = (self.unit.code.values[loop.iterator] for loop in loops if loop.iterator >= 0)
        return any(iterator.op == "iter" and iterator.args[0] in versions for iterator in iterators)

    def read_before(self, at: RawAt) -> Place | None:
        """The last use of what the variable held before a place, but for a copy of it."""
        versions = (Place(self.made.flow, self.unit, n) for n, name in self.unit.variables.items() if name == self.name)
        users = (user for version in versions for user in version.users if not _kept_by(user))
        reads = [user for user in users if user.value.op != "phi" and user.value.at[:2] < at[:2]]
        reads = [read for read in reads if read.value.op != "attr" or read.value.data not in _MAKERS]
        return max(reads, key=lambda read: read.at, default=None)


INCORRECT = (
    """\
import os
import subprocess


def launch(script, extra=None, profile=False):
    command = ["torchrun", "--nproc_per_node", "8", script]
    command.extend(extra or [])
    subprocess.run(" ".join(command), shell=True, check=True)
    if profile:
        command += ["--profile", "1"]  # error: MP167


def predictor(compose, name, overrides=(), postprocess=True):
    chosen = ["model=base"]
    chosen.extend(overrides)
    if postprocess:
        overrides = list(overrides)
        overrides += ["model.holes=8"]  # error: MP167
    return compose(name, chosen)
""",
)

CORRECT = (
    """\
import subprocess


class Runner:
    def __init__(self):
        self.commands = []

    def launch(self, script, profile):
        command = ["torchrun", script]
        self.commands.append(command)
        command += ["--profile"]
        found = []
        for line in open(script):
            if line in found:
                continue
            found.append(line)
        return len(self.commands)


def collect(rows, out):
    print(len(rows))
    rows.append(out)
    seen = []
    print(len(seen))
    seen.append(out)
    return lambda: seen
""",
    """\
def train(loader, log):
    losses = []
    for batch in loader:
        losses.append(batch)
    options = {"lr": 1}
    run(options)
    options.update(log)


def run(options):
    kept.append(options)


kept = []
""",
    """\
class Tracker:
    def update(self, rows):
        self.rows = rows


def train(loader, step, tracker, edges):
    rows, state, order = [0.0], [], [1]
    tracker.update(rows)
    state = dict(rows=state)
    print(len(rows))
    for batch in loader:
        rows.append(step(batch))
    for node in order:
        order += edges[node]
    return tracker
""",
)

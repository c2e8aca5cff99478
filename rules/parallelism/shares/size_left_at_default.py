"""One of several calls leaves the size of a parallel group at its default of 1, though ranks are divided by it.

What it does
    Looks for parameters with the default 1 by which a function divides the rank or the number of ranks
    (`rank // non_dp_size`), also where functions in between hand them on. Reports a call that passes nothing for such a
    parameter where another call of the same function passes a parallel size (`config.cp`, `args.tensor_parallel_size`).
    Silent where the call stands under a test of that size, where arguments are unpacked, and in tests.

Why is this bad
    The ranks of one context- or tensor-parallel group must read the same samples. Where their number is left out each
    reads its own: sequences are put together from pieces of several samples, and a metric counts a part of them. While
    the size is 1 nothing shows.

References
    https://docs.pytorch.org/tutorials/unstable/context_parallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import MODEL_PARALLEL, axes_of
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import passing
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.values.shares import counts_ranks
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP444", "size-left-at-default", "warning", "1.1", tokens=("//",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    told: set[Place] = set()
    for divided in _divided(queries):
        for parameter in _handed_on(divided.operand(1).root):
            calls = [(call, given) for call, given in passing(parameter) if not is_test(call.unit.path)]
            sizes = [given for _, given in calls if given is not None and _is_parallel(given)]
            for call, given in calls if sizes else ():
                if given is None and call not in told and not _is_excused(call, sizes):
                    told.add(call)
                    yield _report(call, parameter, sizes[0], divided)


def _divided(queries: Queries) -> Iterator[Place]:
    """The divisions of the rank, or of the number of ranks, by a parameter with the default 1."""
    ranks = queries.flow.models.ranks
    for unit in queries.beside(*ranks["names"], *ranks["methods"], *ranks["attributes"], *ranks["sizes"]):
        for place in queries.values(unit, "binary"):
            if place.value.data == "FloorDiv" and _is_one_by_default(place.operand(1).root):
                whole = place.operand(0)
                if whole.closed.of("ordinal") or counts_ranks(whole):
                    yield place


def _is_one_by_default(place: Place) -> bool:
    unit = place.unit
    return place.value.op == "param" and place.flow.parameters.default(unit, str(place.value.data[1])).is_const(1)


def _handed_on(parameter: Place) -> Iterator[Place]:
    """A parameter, and those with the same default of functions that pass theirs on for it."""
    found = [parameter]
    for each in found:
        yield each
        given = (given.root for _, given in passing(each) if given is not None)
        found += [one for one in given if _is_one_by_default(one) and one not in found]


def _is_parallel(given: Place) -> bool:
    """Whether a number is the size of a group whose ranks read the same samples."""
    return given.root.value.op != "const" and bool(axes_of(given.hint) & MODEL_PARALLEL)


def _is_excused(call: Place, sizes: list[Place]) -> bool:
    """Whether a call does not show all that it passes, or is made where the size is known."""
    names = {size.hint for size in sizes}
    spread = call.value.op != "call" or any(name in ("*", "**") for name in call.value.data.names)
    tests = (test for test in call.tests_inside if test.value.op != "more")  # not those of loops
    return spread or any(not names.isdisjoint(test.words) for test in tests)


def _report(call: Place, parameter: Place, size: Place, divided: Place) -> Finding:
    name = parameter.value.data[1]
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}`{call.where} passes nothing for `{name}`, which is 1 then; elsewhere it is `{size.text}`, and"
        f" `{divided.text}` shares the samples out",
        help=f"pass `{name}={size.text}`",
        related=[
            Related(size.unit.path, size.at[0], "it is passed here"),
            Related(divided.unit.path, divided.at[0], "the ranks are divided by it here"),
        ],
        context=f"{call.unit.qualname}:{parameter.unit.qualname}:{name}",
    )


_DATA = """\
# file: data.py
import torch.distributed as dist


class Stream:
    def __init__(self, rows, non_dp_size=1, epochs=None):
        self.rank = dist.get_rank() // non_dp_size
        self.ranks = dist.get_world_size() // non_dp_size
        self.rows, self.epochs = rows, epochs

    def __iter__(self):
        yield from self.rows[self.rank :: self.ranks]


def stream_of(config, non_dp_size: int = 1, epochs=None):
    return Stream(config.rows, non_dp_size=non_dp_size, epochs=epochs)
# file: train.py
from data import stream_of


def validate(config, model):
    rows = stream_of(config.validation, {given}epochs=1){mark}
    return [model(row) for row in rows]


def train(config, model):
    for step, row in enumerate(stream_of(config.data, config.model.cp)):
        model(row)
        if step % 100 == 0:
            validate(config, model)
"""

INCORRECT = (_DATA.format(given="", mark="  # error: MP444"),)

CORRECT = (
    _DATA.format(given="config.model.cp, ", mark=""),
    _DATA.format(given="", mark="").replace("config.model.cp", "config.copies"),
)

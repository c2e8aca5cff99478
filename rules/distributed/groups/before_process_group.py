"""A question about the process group, or a collective, before the group is made.

What it does
    Goes back from `init_process_group()`, and from calls of functions that make the group, on every way through the
    function. Reports calls of `torch.distributed` that need the default group and come before it, whether straight or
    in a function that always makes them. Silent where a branch of its own stands around one of them (it may ask
    whether there is a group), and where the group is only made if there is none.

Why is this bad
    The call raises `Default process group has not been initialized`. The group cannot have been made before: a second
    `init_process_group()` raises, too.

References
    https://docs.pytorch.org/docs/stable/distributed.html#initialization
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, ways_back
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.process_groups import TORCH, needs_group
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP567", "before-process-group", "error", "1.0", tokens=("init_process_group",), solves=True)

_ENDING = ("destroy_process_group", "_abort_process_group")
_ASKING = frozenset({"is_initialized", "is_available", "is_torchelastic_launched"})


def check_project(project: Project) -> Iterator[Finding]:
    groups = _Groups(project.analysis(Queries))
    for unit in sorted(groups.making, key=lambda each: (each.path, each.qualname)):
        for making in () if is_test(unit.path) else groups.made_in(unit):
            for early in groups.before(making):
                yield RULE.finding(
                    early.unit.path,
                    early.at,
                    f"`{early.text}` in `{early.unit.qualname}` needs the process group, which is made later",
                    help="make the process group first",
                    related=[Related(making.unit.path, making.at[0], "the process group is made here")],
                    context=f"{early.unit.qualname}:{early.text}",
                )


class _Groups:
    """Where the default process group is made, and where it is needed."""

    def __init__(self, queries: Queries) -> None:
        self.queries = queries
        made = [call for call in queries.calls(f"{TORCH}init_process_group") if not _is_guarded(call)]
        self.direct = {call.unit for call in made}
        self.making = queries.reaching({call.unit for call in queries.named("init_process_group")})
        self.ending = queries.reaching({call.unit for call in queries.named(*_ENDING)})
        self._needing: dict[Unit, bool] = {}

    def made_in(self, unit: Unit) -> Iterator[Place]:
        """The calls that make the group, themselves or in a function that they call."""
        for call in self.queries.calls_in(unit):
            own = call.method == "init_process_group" and unit in self.direct
            if (own or self._makes_surely(call)) and not _is_guarded(call):
                yield call

    def before(self, making: Place) -> list[Place]:
        """The calls that need the group and come before it is made, the first of each way."""
        around = making.unit.control.deciding(making.value.block)
        found = []
        for each in ways_back(making, self._settles):
            if each is None or each.value.op != "call" or each == making or self._settles(each):
                continue
            if self._needs(each) and each.unit.control.deciding(each.value.block) <= around:
                found.append(each)
        return sorted(found, key=lambda each: each.number)[:1]

    def _makes_surely(self, call: Place) -> bool:
        targets = self.queries.targets(call)
        return len(targets) == 1 and targets[0] in self.direct and targets[0] is not call.unit

    def _settles(self, place: Place) -> bool:
        """Whether a call may make the group, or take it away."""
        if place.value.op != "call":
            return False
        named = place.method in ("init_process_group", "init_distributed", *_ENDING)
        return named or not (self.making | self.ending).isdisjoint(self.queries.targets(place))

    def _needs(self, call: Place) -> bool:
        """Whether a call needs the group, itself or in a function that it always calls, and nothing takes its error."""
        if call.is_tried or any(
            "suppress" in call.value_at(number).words for number in call.unit.managers(call.number)
        ):
            return False
        if needs_group(call):
            return True
        targets = self.queries.targets(call)
        return len(targets) == 1 and not call.hands_on and self._always_needs(targets[0])

    def _always_needs(self, unit: Unit) -> bool:
        known = self._needing.get(unit)
        if known is None:
            self._needing[unit] = False  # a circle
            calls = self.queries.calls_in(unit) if unit.code.kind == "function" else ()
            known = any(not unit.control.deciding(call.value.block) and self._needs(call) for call in calls)
            self._needing[unit] = known
        return known


def _is_guarded(call: Place) -> bool:
    """Whether a test around a call asks whether there is a group, or may: it stands in a function of its own."""
    tests = [test for each in call.tests for test in each.sources]
    return call.is_tried or any(test.value.op == "call" and test.method in _ASKING for test in tests)


INCORRECT = [
    """
import torch
import torch.distributed as dist

def main(model, lr):
    lr = lr * dist.get_world_size()  # error: MP567
    dist.init_process_group("nccl")
    return torch.optim.SGD(model.parameters(), lr=lr)
""",
    """
import os
import torch.distributed as dist

def log(message):
    print(dist.get_rank(), message)

def setup(distributed):
    if distributed:
        dist.init_process_group("nccl")

def main(config, distributed):
    log(config)  # error: MP567
    setup(distributed)
""",
]

CORRECT = [
    """
import torch.distributed as dist

def log(message):
    if dist.is_initialized():
        print(dist.get_rank(), message)

def setup():
    if not dist.is_initialized():
        dist.init_process_group("nccl")

def main(config, resumed):
    log(config)
    if resumed:
        print(dist.get_rank())
    setup()
    print(dist.get_rank())
    setup()
""",
    """
import contextlib

import torch.distributed as dist

def rounds(sizes):
    for size in sizes:
        dist.init_process_group("gloo")
        print(dist.get_world_size(), size)
        dist.destroy_process_group()

def safe():
    try:
        return dist.get_rank()
    except (RuntimeError, ValueError):
        return 0

def suppressed():
    with contextlib.suppress(ValueError):
        print(dist.get_rank())
    dist.init_process_group("gloo")

def stop():
    dist.destroy_process_group()

def change(backend):
    rank = dist.get_rank()
    stop()
    dist.init_process_group(backend, rank=rank)

def again(backends):
    print(safe())
    for backend in backends:
        dist.init_process_group(backend)
        dist.barrier()
        stop()

def under(group):
    print(dist.get_world_size(group))
    dist.init_process_group("gloo")
""",
]

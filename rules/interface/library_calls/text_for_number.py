"""A text out of the environment where a library takes a whole number.

What it does
    Follows `os.environ["LOCAL_RANK"]`, `os.environ.get(…)` and `os.getenv(…)` through variables, attributes, results
    and what callers pass to arguments of the table `whole_numbers.toml` beside this rule: `range`,
    `torch.cuda.set_device`, `device_ids` of DDP, rank and size of `init_process_group` and `DistributedSampler`. An
    error where it is a text on every way; a warning where it is one whenever the variable is set, as launchers set it,
    and something else by default. Where devices may be spelled (`"cuda:0"`) only variables are meant that hold the
    number of a rank. Silent in tests, in `try`, and where `int(…)` may have been called.

Why is this bad
    Variables of the environment are texts. The call raises TypeError, or RuntimeError: `Invalid device string: '0'`.

References
    https://docs.python.org/3/library/os.html#os.environ
    https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from validator.files.tables import load_toml
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.values.environment_texts import Text, text_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP153", "text-for-number", "error", "1.0", tokens=("environ", "getenv"), solves=True)


class _Number(NamedTuple):
    """A row of the table: see there."""

    argument: tuple[str, int]
    raises: str
    many: bool
    spelled: bool


@cache
def _numbers() -> dict[str, tuple[_Number, ...]]:
    """By the full name of what is called the arguments that are whole numbers."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "whole_numbers.toml")
    found: dict[str, tuple[_Number, ...]] = {}
    for row in load_toml(path)["row"]:
        name, position = row["argument"]
        each = _Number((name, position), row["raises"], row.get("many", False), row.get("spelled", False))
        found[row["call"]] = (*found.get(row["call"], ()), each)
    return found


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for name, rows in _numbers().items():
        for call in queries.calls_anywhere(name):
            if call.is_tried or is_test(call.unit.path) or "*" in call.value.data.names:
                continue
            for row in rows:
                for given in _given(call, row):
                    text = text_of(given)
                    if text is None or given.asked_about(given) or _may_be_converted(call, text):
                        continue
                    if _is_number(text, row):
                        yield _report(call, row, given, text)


def _given(call: Place, row: _Number) -> list[Place]:
    """The numbers that a call passes for an argument."""
    given = call.argument(*row.argument)
    if given is None or not row.many:
        return [given] if given is not None else []
    listed = given.root
    return [listed.value_at(number) for number in listed.value.args] if listed.value.op in ("list", "tuple") else []


def _may_be_converted(call: Place, text: Text) -> bool:
    """Whether the text comes to a function that a decorator stands before: it may change what is passed."""
    method = call.unit.method
    return text.read.unit is not call.unit and method is not None and bool(method.facts.decorators)


def _is_number(text: Text, row: _Number) -> bool:
    """Whether the text of a variable surely is refused: that of a rank is a number, others may spell a device."""
    return not row.spelled or text.name in text.read.flow.models.ranks["environment"]


def _report(call: Place, row: _Number, given: Place, text: Text) -> Finding:
    unit = call.unit
    when = "" if text.always else f" where `{text.name}` is set"
    return RULE.finding(
        unit.path,
        given.seen_from(call),
        f"`{call.operand(0).text}`{call.where} raises {row.raises}{when}: `{given.text}` is a text, that of the"
        f" environment variable {text.name}",
        help=f"convert it: `int({given.text})`",
        related=[Related(text.read.unit.path, text.read.at[0], "it is read here")],
        context=f"{unit.qualname}:{call.method}:{row.argument[0]}:{given.text}",
        severity="error" if text.always else "warning",
    )


INCORRECT = (
    """
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DistributedSampler

def local():
    return os.environ["LOCAL_RANK"]

class Trainer:
    def __init__(self, data):
        self.rank = os.environ["RANK"]
        self.local_rank = local()
        torch.cuda.set_device(self.local_rank)  # error: MP153
        dist.init_process_group("nccl", rank=self.rank, world_size=int(os.environ["WORLD_SIZE"]))  # error: MP153
        self.model = DDP(nn.Linear(2, 2).cuda(), device_ids=[self.local_rank])  # error: MP153
        self.data = DistributedSampler(data, os.environ["WORLD_SIZE"], rank=self.rank)  # error: MP153, MP153

def epochs(count):
    for epoch in range(count):  # error: MP153
        print(epoch)
    for epoch in range(0, os.environ.get("EPOCHS", 3)):  # error: MP153
        print(epoch)

epochs(os.environ.get("EPOCHS", "3"))
""",
)

CORRECT = (
    """
import os
import torch
import torch.distributed as dist
from torch.utils.data import DistributedSampler

class Trainer:
    def __init__(self, data, count):
        self.rank = int(os.environ["RANK"])
        self.size = os.environ["WORLD_SIZE"]
        self.size = int(self.size)
        torch.cuda.set_device(os.environ["DEVICE"])
        torch.cuda.set_device("cuda:" + os.environ["LOCAL_RANK"])
        dist.init_process_group("nccl", rank=self.rank, world_size=self.size)
        self.data = DistributedSampler(data, self.size, rank=self.rank)
        self.rounds = range(count)
""",
    """
import os

def epochs(count):
    count = os.environ.get("EPOCHS", count)
    if isinstance(count, str):
        count = int(count)
    for epoch in range(count):
        print(epoch)
    try:
        return range(os.environ["EPOCHS"])
    except TypeError:
        return range(3)
""",
)

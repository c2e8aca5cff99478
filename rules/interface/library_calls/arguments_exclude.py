"""Two arguments of a library call of which one refuses the other.

What it does
    Reports calls that pass both of two arguments which exclude each other (`DataLoader(sampler=…, shuffle=True)`,
    `torch.compile(mode=…, options=…)`), or one without another that it needs (`persistent_workers=True` with no
    workers), by the table `exclusive_arguments.toml` beside this rule. A warning where the first may be None.

Why is this bad
    The library raises when the line runs.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from validator.files.tables import load_toml
from validator.finding import Finding
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.values import NONE_OBJ
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP152", "arguments-exclude", "error", "1.0", tokens=("torch", "transformers"), solves=True)


class Exclusion(NamedTuple):
    """A row of the table: see there. One of `beside` and `needs` is None."""

    given: tuple[str, int]
    beside: tuple[str, int] | None
    needs: tuple[str, int] | None
    unless: tuple[object, ...]
    raises: str


@cache
def exclusions() -> dict[str, tuple[Exclusion, ...]]:
    """By the full name of what is called the arguments that exclude each other."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "exclusive_arguments.toml")
    found: dict[str, tuple[Exclusion, ...]] = {}
    for row in load_toml(path)["row"]:
        each = Exclusion(
            _argument(row["given"]),
            _argument(row["beside"]) if "beside" in row else None,
            _argument(row["needs"]) if "needs" in row else None,
            tuple(row["unless"]),
            row["raises"],
        )
        found[row["call"]] = (*found.get(row["call"], ()), each)
    return found


def _argument(words: list[Any]) -> tuple[str, int]:
    name, position = words
    return str(name), int(position)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for name, rows in exclusions().items():
        for call in queries.calls_anywhere(name):
            plain = not any(each in ("*", "**") for each in call.value.data.names)
            for row in rows if plain and not is_test(call.unit.path) and not call.is_tried else ():
                if wrong := _wrong(call, row):
                    yield _report(call, row, *wrong)


def _wrong(call: Place, row: Exclusion) -> tuple[str, bool] | None:
    """What is wrong with the arguments of a call, and whether that is certain."""
    given = call.argument(*row.given)
    if given is None or given.closed.is_const(None) or given.closed.is_const(False) or not _is_told(given):
        return None
    sure = NONE_OBJ not in given.closed.objs
    if row.beside is not None:
        other = call.argument(*row.beside)
        if other is None or other.closed.is_const(None) or not _is_told(other) or _is_one_of(other, row.unless):
            return None
        return f"passes `{row.given[0]}` and `{row.beside[0]}`", sure
    assert row.needs is not None
    needed = call.argument(*row.needs)
    if needed is not None and not _is_one_of(needed, row.unless):
        return None
    return f"passes `{row.given[0]}` without `{row.needs[0]}`", sure


def _is_one_of(place: Place, constants: tuple[object, ...]) -> bool:
    return any(place.closed.is_const(each) for each in constants)


def _is_told(place: Place) -> bool:
    """Whether the code tells what an argument is: a constant, or what is made here."""
    return place.closed.constant() is not None or place.root.value.op in ("call", "dict", "list", "tuple")


def _report(call: Place, row: Exclusion, what: str, sure: bool) -> Finding:
    together = "exclude each other" if row.beside is not None else "which it needs"
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.operand(0).text}`{call.where} {what}, {together}: {row.raises}",
        help="leave out one of the two" if row.beside is not None else f"pass `{row.needs[0] if row.needs else ''}`",
        context=f"{call.unit.qualname}:{call.method}:{row.given[0]}",
        severity="error" if sure else "warning",
    )


INCORRECT = [
    """
from torch.utils.data import DataLoader, DistributedSampler

def loader(data):
    sampler = DistributedSampler(data)
    return DataLoader(data, sampler=sampler, shuffle=True)  # error: MP152
""",
    """
import torch
from torch.utils.data import DataLoader

def loader(data):
    return DataLoader(data, batch_size=4, persistent_workers=True)  # error: MP152

model = torch.compile(torch.nn.Linear(2, 2), mode="max-autotune", options={"triton.cudagraphs": True})  # error: MP152
""",
]

CORRECT = [
    """
from torch.utils.data import DataLoader, DistributedSampler

def loader(data, distributed, workers):
    sampler = DistributedSampler(data) if distributed else None
    other = DataLoader(data, batch_size=4, persistent_workers=True, num_workers=workers)
    return DataLoader(data, sampler=sampler, shuffle=(sampler is None)), other
""",
    """
from torch.utils.data import DataLoader, DistributedSampler

def loader(data, distributed, workers):
    sampler = DistributedSampler(data)
    return DataLoader(data, sampler=sampler, shuffle=False, persistent_workers=workers > 0, num_workers=workers)
""",
]

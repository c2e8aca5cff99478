"""What the solver finds does not depend on what is asked first."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from validator.flow.program.flow import Flow
from validator.project import Project
from validator.registry import load_rules
from validator.run.config import Config
from validator.source import SourceFile

TREE = Path(__file__).parent.parent / "data"

# Functions that are known only through each other, each way round: fields, arguments and results of a family of
# classes, a value that nests in itself, a container that grows.
CIRCLES = """\
import torch.distributed as dist


class Store:
    def __init__(self, parent=None):
        self.parent = parent
        self.rows = []
        self.group = dist.new_group([0, 1]) if parent is None else parent.group

    def child(self):
        made = Store(self)
        self.rows.append(made.pack(self.rows))
        return made

    def pack(self, rows):
        return [self.pack(row) if isinstance(row, list) else self.wrap(row) for row in rows]

    def wrap(self, row):
        return {"row": row, "store": self.parent.last(row) if self.parent else self}

    def last(self, row):
        return self.rows[-1] if self.rows else self.wrap(row)


class Trainer:
    def __init__(self, store):
        self.store = store
        self.rank = dist.get_rank()
        self.state = None

    def step(self, batch):
        self.state = self.reduce(self.state or batch)
        if self.rank == 0:
            self.report()
        return self.state

    def report(self):
        dist.barrier()

    def reduce(self, value):
        return self.other().finish(value) if value is not None else self.step(value)

    def other(self):
        return Trainer(self.store.child())

    def finish(self, value):
        return self.state if self.store.parent else value


def main(batches):
    trainer = Trainer(Store())
    return [trainer.step(batch) for batch in batches]
"""


def solved(paths: dict[str, str], order: random.Random) -> tuple[dict[str, str], list[str]]:
    """What is known of every function, and all findings, asked for in some order."""
    sources = [SourceFile(name, str(TREE / name), text.encode()) for name, text in paths.items()]
    project = Project(sources, Config(root=str(TREE)))
    rules = [
        each for each in load_rules() if each.check_project is not None and each.rule.code.startswith(("MP1", "MP5"))
    ]
    flow = project.analysis(Flow)
    units = [unit for module in project.modules.values() for unit in flow.units_of(module).values()]
    order.shuffle(units)
    order.shuffle(rules)
    known = {}
    for unit in units:
        result = flow.result(unit)
        known[repr(unit)] = repr((result.vals, result.returned, result.stored, result.passed, result.filled))
    found = sorted(repr(finding) for rule in rules for finding in rule.check_project(project))  # type: ignore[misc]
    return known, found


@pytest.mark.parametrize("seed", range(4))
def test_functions_known_through_each_other(seed: int) -> None:
    paths = {"circles.py": CIRCLES}
    first, findings = solved(paths, random.Random("first"))
    assert any("MP501" in finding for finding in findings)
    assert solved(paths, random.Random(seed)) == (first, findings)


def test_a_package_of_training_code() -> None:
    files = sorted(path for folder in ("demo", "trainkit") for path in (TREE / folder).rglob("*.py"))
    paths = {path.relative_to(TREE).as_posix(): path.read_text() for path in files}
    assert solved(paths, random.Random(1)) == solved(paths, random.Random(2))

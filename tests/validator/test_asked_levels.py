"""Of which sections of recipes code asks for keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.analysis.recipes.asked_levels import AskedLevels
from validator.project import Project
from validator.source import SourceFile

RECIPE = """\
name: small
steps: 10
trainer:
  precision: 16
  optimizer: {rate: 0.1, decay: 0.0}
"""
CODE = """\
from somebody import Task


class Mine(Task):
    def build(self):
        trainer = self.options.pop("trainer", {})
        print(self.options["name"], self.options["steps"])
        return READ
"""


@pytest.mark.parametrize(
    ("read", "levels"),
    [
        ('self.options.get("rate", 1)', {()}),
        ('trainer.get("rate", 1)', {("trainer",)}),
        ('getattr(trainer.optimizer, "rate", 1)', {("trainer", "optimizer")}),
        ('self.options["trainer"]["optimizer"].get("rate")', {("trainer", "optimizer")}),
        ('somebody.get("rate", 1)', set()),
        ('{"decay": 1}.get("rate", 1)', None),
    ],
)
def test_the_section_that_is_asked_for_a_key(tmp_path: Path, read: str, levels: set[tuple[str, ...]] | None) -> None:
    sources = []
    for name, text in (("small.yaml", RECIPE), ("mine.py", CODE.replace("READ", read))):
        (tmp_path / name).write_text(text)
        sources.append(SourceFile(name, str(tmp_path / name)))
    asked = Project(sources).analysis(AskedLevels)
    rows = asked.asking("rate")
    assert ([set(asked.levels(row)[0]) for row in rows] or [None]) == [levels]
    assert all(row.has_default for row in rows)

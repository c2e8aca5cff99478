"""What the documentation says of the objects that are followed is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.flow.objects import Objects
from validator.flow.queries.base import Queries
from validator.flow.queries.followed import Example, examples
from validator.project import Project
from validator.source import SourceFile


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.title)
def test_an_object_is_followed_or_not_as_the_page_says(example: Example, tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text(example.program, encoding="utf-8")
    project = Project([SourceFile("example.py", str(file))])
    (probe,) = project.analysis(Queries).called_in_program(frozenset({"probe"}))
    held = project.analysis(Objects).held(probe.operand(1), probe)
    found = {cls.name for cls in held.classes}
    assert (found, held.complete) == (set(example.holds), True) if example.holds else not held.complete

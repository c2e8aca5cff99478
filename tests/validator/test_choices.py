"""Factories that choose a class: from a table, by a conditional expression, under a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.flow.objects import Objects
from validator.project import Project
from validator.source import SourceFile

CLASSES = "class A: pass\nclass B: pass\nTABLE = {'a': A, 'b': B}\n"
FACTORIES = {
    "table": "return TABLE[k](k)",
    "get": "return TABLE.get(k, A)(k)",
    "name": "cls = TABLE[k]\n    return cls(k)",
    "arms": "return A(k) if k else B(k)",
    "arms of a name": "made = A(k) if k else B(k)\n    return made",
    "arms of classes": "cls = A if k else B\n    return cls(k)",
}


def _made(folder: Path, text: str) -> set[str]:
    file = folder / "factory.py"
    file.write_text(f"import torch\nimport torch.distributed as dist\n{text}\n", encoding="utf-8")
    project = Project([SourceFile("factory.py", str(file))])
    make = next(function for function in project.functions() if function.name == "make")
    return {cls.name for cls in project.analysis(Objects).results(make)}


@pytest.mark.parametrize("body", FACTORIES.values(), ids=FACTORIES)
def test_a_factory_gives_what_it_chooses_from(tmp_path: Path, body: str) -> None:
    assert _made(tmp_path, f"{CLASSES}def make(k):\n    {body}") == {"A", "B"}


@pytest.mark.parametrize("body", list(FACTORIES.values())[:3], ids=list(FACTORIES)[:3])
def test_of_a_table_what_is_no_class_of_the_project_is_left_out(tmp_path: Path, body: str) -> None:
    assert _made(tmp_path, f"{CLASSES}TABLE['c'] = torch.nn.Linear\ndef make(k):\n    {body}") == {"A", "B"}


def test_a_table_that_grows_by_entries_has_them_all(tmp_path: Path) -> None:
    grown = "class C: pass\nTABLE['c'] = C\ndef make(k):\n    return TABLE[k]()"
    assert _made(tmp_path, CLASSES + grown) == {"A", "B", "C"}


def test_a_registry_of_many_classes_has_them_all(tmp_path: Path) -> None:
    names = [f"C{number}" for number in range(40)]
    classes = "\n".join(f"class {name}: pass" for name in names)
    table = "TABLE = {" + ", ".join(f"'{name}': {name}" for name in names) + "}"
    assert _made(tmp_path, f"{classes}\n{table}\ndef make(k):\n    return TABLE[k]()") == set(names)

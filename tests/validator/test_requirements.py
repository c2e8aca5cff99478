"""The oldest version of a package that the files beside some code admit."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.analysis.requirements import Requirements
from validator.project import Project

DECLARED = [
    ("requirements.txt", "torchdata>=0.11\ntorch>=2.4,<2.9\n", (2, 4)),
    ("requirements.txt", "torch\ntorchdata>=0.11\n", None),
    ("setup.py", 'install_requires=["numpy", "torch>=2.0.0", "torch>=2.6; extra"]', (2, 0, 0)),
    ("pyproject.toml", 'dependencies = [\n  "torch==2.11.0",\n  "open-clip-torch>=1.2",\n]', (2, 11, 0)),
    ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^2.4"\n', (2, 4)),
    ("README.md", "Install:\n\n    pip install torch==1.13.1 transformers==4.8.1\n", (1, 13, 1)),
    ("README.md", "Written for torch, with `torch>=2.1` in mind.\n", (2, 1)),
    ("README.md", "A torch = a light. We use torch 2.4.\n", None),
    ("docs/install.md", "```\ntorch = load()\npip install torch==2.0.1 timm\n```\n", (2, 0, 1)),
]


@pytest.mark.parametrize(("name", "text", "version"), DECLARED)
def test_the_lower_bound_is_read(name: str, text: str, version: tuple[int, ...] | None, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / name).write_text(text)

    assert Requirements(Project([])).oldest("torch", str(tmp_path / "package" / "module.py")) == version


ADMITTED = [
    ("requirements.txt", "torch>=2.4,<2.9\n", [(2, 4), (2, 8)], [(2, 3), (2, 9)]),
    ("requirements-gpu.txt", "torch==2.9.1\n", [(2, 9)], [(2, 8), (2, 10)]),
    ("pyproject.toml", 'dependencies = ["torch~=2.4"]', [(2, 4), (2, 13)], [(3, 0)]),
    ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^2.4"\n', [(2, 13)], [(3, 0)]),
    ("environment.yml", "dependencies:\n  - torch<=2.5\n", [(2, 5)], [(2, 6)]),
    ("requirements.txt", "torch\n", [(1, 0), (3, 0)], []),
]


@pytest.mark.parametrize(("name", "text", "inside", "outside"), ADMITTED)
def test_the_releases_between_the_bounds_are_admitted(
    name: str, text: str, inside: list[tuple[int, int]], outside: list[tuple[int, int]], tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)

    (found,) = Requirements(Project([])).admitted("torch", str(tmp_path / "module.py"))

    assert all(found.has_release(each) for each in inside)
    assert not any(found.has_release(each) for each in outside)

"""Which project of a tree an import means."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.definitions import Value
from validator.files.naming import Finder, forget
from validator.project import Project
from validator.run.config import Config
from validator.source import SourceFile


def tops(root: Path, importer: str) -> list[str]:
    forget()
    files = [str(path) for path in sorted(root.rglob("*.py"))]
    return [str(Path(path).relative_to(root)) for path in Finder(files).tops("mmdet", str(root / importer))]


def write(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path, "detection/setup.py", "detection/mmdet/__init__.py", "detection/tools/test.py", "vit/down/train.py")
    return tmp_path


def test_what_can_be_installed_is_found_from_everywhere(tree: Path) -> None:
    assert tops(tree, "detection/tools/test.py") == ["detection/mmdet"]
    assert tops(tree, "vit/down/train.py") == ["detection/mmdet"]


@pytest.mark.parametrize("mark", ["LICENSE", "requirements.txt", "setup.py"])
def test_projects_of_a_collection_do_not_import_each_other(tree: Path, mark: str) -> None:
    write(tree, f"vit/{mark}")
    assert tops(tree, "vit/down/train.py") == []
    assert tops(tree, "detection/tools/test.py") == ["detection/mmdet"]


def test_what_is_installed_together_is_one_project(tree: Path) -> None:
    write(tree, "vit/requirements.txt", "pyproject.toml")
    assert tops(tree, "vit/down/train.py") == ["detection/mmdet"]


def test_an_import_through_a_symbolic_link(tmp_path: Path) -> None:
    for name, text in (
        ("utils.py", ""),
        ("common/utils.py", "log = 1\n"),
        ("demo/app/backend.py", "from utils import log\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "demo/app/utils.py").symlink_to("../../common/utils.py")
    names = ("utils.py", "common/utils.py", "demo/app/backend.py")
    project = Project([SourceFile(name, str(tmp_path / name)) for name in names], Config(root=str(tmp_path)))
    backend = next(module for module in project.modules.values() if module.name == "backend")
    assert project.lookup(backend.top, "log") == Value(
        next(m for m in project.modules.values() if "common" in m.path), "log"
    )


def test_a_name_may_mean_what_stands_beside_a_program_of_a_package(tmp_path: Path) -> None:
    forget()
    for name, text in (
        ("tool/utils.py", "def whole(): ...\n"),
        ("tool/judge/__init__.py", ""),
        ("tool/judge/utils.py", "def steps(): ...\n"),
        ("tool/judge/rate.py", "from utils import steps\n\nif __name__ == '__main__':\n    print(steps())\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    files = sorted(tmp_path.rglob("*.py"))
    project = Project([SourceFile(str(path.relative_to(tmp_path)), str(path)) for path in files])
    program = next(module for module in project.modules.values() if module.path == "tool/judge/rate.py")

    (row,) = program.imports_of("steps")
    found = project.imported(program, row)

    assert getattr(found, "path", "") == "tool/judge/utils.py"

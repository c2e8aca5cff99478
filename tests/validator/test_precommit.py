"""The hooks, run by the real `pre-commit` from a real repository: it builds an environment from this project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("validator", "rules", "bench", "pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml")
FIXABLE = "x = 1  # validator: ignore[MP001] nothing here\n"


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=environment).stdout


def clean_environment(home: Path) -> dict[str, str]:
    """What pre-commit runs in, with a store of its own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "PYTHONPATH"))}
    return {**kept, "PRE_COMMIT_HOME": str(home)}


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that holds what this project ships."""
    repository = tmp_path_factory.mktemp("hooks")
    for name in SHIPPED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, repository / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, repository / name)
    git(repository, "init")
    git(repository, "add", ".")
    git(repository, "commit", "-m", "one")
    return repository


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's repository with a broken file that is staged, and one that was there before."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init")
    (folder / "before.py").write_text("def f(:\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "one")
    (folder / "staged.py").write_text("x = (\n")
    (folder / "weak.py").write_text(FIXABLE)
    git(folder, "add", ".")
    return folder


def try_repo(project: Path, hooks: Path, hook: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(home)
    command = [sys.executable, "-m", "pre_commit", "try-repo", str(hooks), hook, "--verbose"]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=280)


@pytest.mark.slow
def test_a_commit_that_forgets_a_caller_is_refused(hooks: Path, tmp_path: Path) -> None:
    """A method is renamed in one file and still called by its old name in another, which the commit does not touch."""
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init")
    engine, trainer = project / "engine.py", project / "trainer.py"
    engine.write_text("class Engine:\n    def pause_generation(self):\n        self.paused = True\n")
    trainer.write_text("def sync(engines):\n    for engine in engines:\n        engine.pause_generation()\n")
    revision = git(hooks, "rev-parse", "HEAD").strip()
    (project / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {hooks}\n    rev: {revision}\n    hooks:\n      - id: meshproof\n"
    )
    git(project, "add", ".")
    git(project, "commit", "-m", "one")
    environment = clean_environment(tmp_path / "pre-commit")
    subprocess.run([sys.executable, "-m", "pre_commit", "install"], cwd=project, env=environment, check=True)

    def commit() -> subprocess.CompletedProcess[str]:
        command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-am", "rename"]
        return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=280)

    engine.write_text(engine.read_text().replace("pause_generation", "pause_requests"))
    refused = commit()
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert "trainer.py:3:16" in refused.stdout + refused.stderr
    assert git(project, "rev-list", "--count", "HEAD").strip() == "1"
    trainer.write_text(trainer.read_text().replace("pause_generation", "pause_requests"))
    done = commit()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_hooks_check_changed_files_whole_project_and_fix(project: Path, hooks: Path, tmp_path: Path) -> None:
    home = tmp_path / "pre-commit"
    changed = try_repo(project, hooks, "meshproof", home)
    assert changed.returncode == 1, changed.stdout + changed.stderr
    assert "staged.py:1:5" in changed.stdout
    assert "weak.py:1:8" in changed.stdout
    assert "before.py" not in changed.stdout, "only the files of the commit"

    whole = try_repo(project, hooks, "meshproof-project", home)
    assert whole.returncode == 1, whole.stdout + whole.stderr
    assert "before.py:1:7" in whole.stdout
    assert "3 files" in whole.stdout

    fixed = try_repo(project, hooks, "meshproof-fix", home)
    assert fixed.returncode == 1, fixed.stdout + fixed.stderr
    assert "files were modified by this hook" in fixed.stdout
    assert (project / "weak.py").read_text() == "x = 1\n"

    git(project, "add", "weak.py")
    nothing_left = try_repo(project, hooks, "meshproof-fix", home)
    assert nothing_left.returncode == 0, nothing_left.stdout + nothing_left.stderr  # staged.py is still broken
    git(project, "rm", "-q", "-f", "staged.py", "before.py")
    assert try_repo(project, hooks, "meshproof-project", home).returncode == 0

"""Nothing of the tree that is read, or that the process stands in, is ever imported or run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = (
    "json.py", "ast.py", "tomllib.py", "argparse.py", "re.py", "pickle.py", "marshal.py", "typing.py",
    "concurrent/__init__.py", "multiprocessing/__init__.py", "subprocess.py", "tokenize.py", "difflib.py",
    "rules/__init__.py", "rules/source/__init__.py", "rules/source/evil.py", "libcst/__init__.py",
    "bench/__init__.py", "sitecustomize.py", "conftest.py", "setup.py", "xml/__init__.py", "urllib/__init__.py",
)  # fmt: skip


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A tree in which every file, if run, leaves a mark in `ran`."""
    tree = tmp_path / "tree"
    for name in HOSTILE:
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r} + '\\n')\n")
    (tree / "broken.py").write_text("def f(:\n")
    (tree / "weak.py").write_text("x = 1  # validator: ignore[MP001] nothing here\n")
    return tree


def validate(tree: Path, *arguments: str, home: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run `python -m validator` in a tree, the package being found through a `.pth` as an installation is."""
    environment = {**os.environ, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "validator", *arguments]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("style", ["full", "json", "sarif", "github", "gitlab", "junit"])
def test_hostile_tree_runs_nothing(hostile: Path, style: str) -> None:
    done = validate(hostile, ".", "--format", style, "--jobs", "2")
    assert done.returncode == 1, done.stderr
    assert "MP001" in done.stdout
    assert not (hostile.parent / "ran").exists(), (hostile.parent / "ran").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--diff",),
        ("--fix",),
        ("--add-ignore",),
        ("--list-rules",),
        ("--explain", "MP001"),
        ("--show-config",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_hostile_tree_runs_nothing_in_other_modes(hostile: Path, arguments: tuple[str, ...]) -> None:
    done = validate(hostile, *arguments)
    assert done.returncode in (0, 1), done.stderr
    assert not (hostile.parent / "ran").exists(), (hostile.parent / "ran").read_text()


def test_the_rules_that_run_are_ours(hostile: Path) -> None:
    done = validate(hostile, "--list-rules")
    assert "MP010  unused-suppression" in done.stdout


def test_checkout_as_working_directory_still_finds_its_packages(tmp_path: Path) -> None:
    """Run from a checkout that is not installed: the package came through the directory that is taken off."""
    checkout = tmp_path / "checkout"
    for package in ("validator", "rules"):
        shutil.copytree(ROOT / package, checkout / package, ignore=shutil.ignore_patterns("__pycache__"))
    (checkout / "json.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('json')\n")
    (checkout / "target").mkdir()
    (checkout / "target" / "a.py").write_text("def f(:\n")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-m", "validator", "target", "--format", "json"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    assert '"code": "MP001"' in done.stdout
    assert not (tmp_path / "ran").exists()


def test_working_directory_through_pythonpath_is_left_too(hostile: Path) -> None:
    """An empty entry of PYTHONPATH, as `PYTHONPATH=$UNSET:…` makes one, names the working directory."""
    code = (
        "import sys, runpy; sys.argv = ['-m']; sys.path.insert(0, ''); sys.path.append(sys.argv[0] and '.');"
        f"sys.path.append({str(ROOT)!r}); import validator; print([p for p in sys.path if p in ('', '.')])"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=hostile, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


def test_git_configuration_of_the_tree_runs_nothing(hostile: Path) -> None:
    """Monitors, filters, diffs, converters and transports named by the tree's own git configuration."""
    mark = hostile.parent / "ran"
    script = hostile.parent / "evil.sh"
    script.write_text(f"#!/bin/sh\necho ran >> {mark}\ncat\n")
    script.chmod(0o755)
    git(hostile, "init")
    (hostile / ".gitattributes").write_text("*.py filter=evil diff=evil\n")
    git(hostile, "add", "weak.py", ".gitattributes")
    git(hostile, "commit", "-m", "one")
    for key in (
        "core.fsmonitor", "core.sshCommand", "core.pager", "diff.external", "diff.evil.textconv", "diff.evil.command",
        "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.askPass", "credential.helper",
        "core.alternateRefsCommand", "core.editor",
    ):  # fmt: skip
        git(hostile, "config", key, str(script))
    hooks = hostile / ".git" / "hooks"
    for name in ("post-index-change", "fsmonitor-watchman", "pre-commit", "reference-transaction"):
        shutil.copy(script, hooks / name)
    (hostile / "weak.py").write_text("x = 2  # validator: ignore[MP001] nothing here\n")
    done = validate(hostile, ".", "--changed-since", "HEAD", "--format", "concise")
    assert done.returncode == 1, done.stderr
    assert "weak.py" in done.stdout
    assert not mark.exists(), mark.read_text()


def test_rules_named_by_a_tree_elsewhere_are_not_loaded(hostile: Path, tmp_path: Path) -> None:
    (hostile / "pyproject.toml").write_text('[tool.validator]\nrules = ["rules/source"]\n')
    (tmp_path / "here").mkdir()
    done = validate(tmp_path / "here", str(hostile))
    assert "user rules are not loaded" in done.stderr
    assert done.returncode == 1
    assert not (tmp_path / "ran").exists()


def test_names_of_files_do_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m\n::error::b.py").write_text("def f(:\n")
    for style in ("full", "concise", "github"):
        done = validate(tmp_path, ".", "--format", style)
        assert "\x1b" not in done.stdout
        assert len([line for line in done.stdout.splitlines() if line.startswith("::error::")]) == 0
        assert "MP001" in done.stdout

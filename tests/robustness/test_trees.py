"""Large trees that nobody wrote for us: every file is read, no rule breaks, and only broken files are called so."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import sysconfig
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest

from validator.files.discovery import DEFAULT_EXCLUDE
from validator.files.languages import CONFIGURATION, LANGUAGES, MAX_CONFIGURATION, language
from validator.registry import load_rules
from validator.run.checker import is_solving

NEVER_READ = {"site-packages", "__pycache__"}


def standard_library() -> Path:
    """The standard library, with its test suite where the interpreter was installed with it."""
    return Path(sysconfig.get_path("stdlib"))


def installed(package: str) -> Path:
    """The folder of an installed package, found without importing it."""
    spec = find_spec(package)
    assert spec is not None, f"{package} is not installed: install '.[bench,dev]'"
    assert spec.origin is not None
    return Path(spec.origin).parent


def sources(tree: Path) -> list[Path]:
    return sorted(
        path
        for path in tree.rglob("*")
        if path.suffix in LANGUAGES and path.is_file() and _counts(path, tree) and not is_data(path)
    )


def is_data(path: Path) -> bool:
    return language(path.name) in CONFIGURATION and path.stat().st_size > MAX_CONFIGURATION


def folders_to_name(tree: Path) -> list[str]:
    """The tree, and the folders in it that only count when they are named, such as `venv` of the library."""
    left_out = set(DEFAULT_EXCLUDE) - NEVER_READ
    inner = {path for name in left_out for path in tree.rglob(name) if path.is_dir()}
    return [str(tree), *sorted(str(path) for path in inner if _counts(path, tree))]


def _counts(path: Path, tree: Path) -> bool:
    return NEVER_READ.isdisjoint(path.relative_to(tree).parts)


def validate(tree: Path, folder: Path, *options: str) -> dict:
    """Run the validator as a user does; its JSON report."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "validator", "--isolated", "--no-cache", "--notes", *options]
    command += ["--format", "json", "--output", str(report), *folders_to_name(tree)]
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.stderr == ""
    assert done.returncode in (0, 1)
    return json.loads(report.read_text())


def parses(path: Path) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


# The flow through thousands of files of one program takes many minutes: `make slow`.
WITHOUT_FLOW = ("--ignore", ",".join(each.rule.code for each in load_rules() if is_solving(each)))


@pytest.mark.parametrize(
    ("tree", "options"),
    [
        pytest.param(standard_library, WITHOUT_FLOW, id="standard library"),
        pytest.param(standard_library, (), id="standard library, all rules", marks=pytest.mark.slow),
        pytest.param(lambda: installed("libcst"), (), id="libcst"),
        pytest.param(lambda: installed("deepspeed"), (), id="deepspeed"),
        pytest.param(lambda: installed("transformers"), WITHOUT_FLOW, id="transformers", marks=pytest.mark.slow),
        pytest.param(lambda: installed("transformers"), (), id="transformers, all rules", marks=pytest.mark.slow),
    ],
)
def test_reads_a_whole_tree_and_calls_broken_what_python_cannot_read(tree, options, tmp_path):
    root = tree()
    files = sources(root)

    document = validate(root, tmp_path, *options)

    assert document["summary"]["files"] == len(files) > 100
    broken = {
        (tmp_path / finding["path"]).resolve() for finding in document["findings"] if finding["code"].startswith("MP00")
    }
    code = [path for path in files if language(path.name) == "python"]
    assert broken == {path.resolve() for path in code if not parses(path)}

"""Streams that are closed, full or unread, places that are gone, and rules that leave."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text("x = (\n")
    return tmp_path


def shell(folder: Path, arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """The validator as a shell starts it, with its redirections; `set -o pipefail` holds."""
    command = f"set -o pipefail; {before} {sys.executable} -m validator --no-cache {arguments}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ("a.py >&-", 2, "standard output is closed"),
        ("a.py > /dev/full", 2, "standard output cannot be written: No space left on device"),
        ("--version > /dev/full", 2, "standard output cannot be written: No space left on device"),
        ("--diff a.py >&-", 2, "standard output is closed"),
        ("--show-config >&-", 2, "standard output is closed"),
        ("- <&-", 2, "standard input is closed"),
        ("a.py --output /dev/full", 2, "cannot be written: No space left on device"),
    ],
)
def test_a_stream_that_cannot_be_used_is_named(tree: Path, arguments: str, status: int, said: str) -> None:
    if "/dev/full" in arguments and not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    done = shell(tree, arguments)
    assert done.returncode == status
    assert done.stderr.startswith("meshproof: error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "2>/dev/full", "<&- 2>&-"])
def test_other_streams_do_not_matter(tree: Path, closed: str) -> None:
    done = shell(tree, f"--format json a.py {closed}")
    assert done.returncode == 1
    assert json.loads(done.stdout)["summary"]["errors"] == 1
    assert shell(tree, f"--nonsense {closed}").returncode == 2
    assert shell(tree, f"--nonsense {closed}").stdout == ""


def test_a_report_does_not_end_up_in_a_file_that_took_the_place_of_a_stream(tree: Path) -> None:
    done = shell(tree, "--format json --output report.json a.py <&- >&- 2>&-")
    assert done.returncode == 1
    assert json.loads((tree / "report.json").read_text())["summary"]["errors"] == 1


@pytest.mark.parametrize("arguments", [".", "--list-rules", "--help"])
def test_a_reader_that_goes_away_is_no_error(tree: Path, arguments: str) -> None:
    done = shell(tree, f"{arguments} | true")
    assert done.stderr == ""
    assert done.returncode in (0, 1, 128 + signal.SIGPIPE)


def test_a_working_directory_that_is_gone_is_named(tree: Path) -> None:
    (tree / "gone").mkdir()
    done = shell(tree, ".", before="cd gone && rmdir ../gone &&")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the working directory cannot be found" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_a_finding(tree: Path) -> None:
    (tree / "a.py").chmod(0)
    (tree / "b").mkdir(mode=0)
    done = shell(tree, "--format concise .")
    assert (done.returncode, done.stderr) == (1, "")
    assert "a.py:1" in done.stdout
    assert "b:1" in done.stdout
    assert shell(tree, "b").returncode == 2


RULE = '"""R."""\nfrom validator.rule import Rule\nRULE = Rule("XX001", "odd", "error", "1")\n'


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise SystemExit(0)\n", "the rule cannot be loaded: SystemExit: 0"),
        ("def check_file(source):\n    raise SystemExit(0)\n", "rule XX001 (odd) failed on a.py: SystemExit: 0"),
        ("def check_project(project):\n    raise SystemExit\n", "rule XX001 (odd) failed on the project: SystemExit"),
        ("def check_file(source):\n    raise GeneratorExit\n", "rule XX001 (odd) failed on a.py: GeneratorExit"),
        ("def check_file(source):\n    yield 'text'\n", "it gave 'text', which is no finding"),
        ("def check_file(source):\n    yield RULE.finding(source.path, (0, 0, 0, 0), None)\n", "which is no finding"),
    ],
)
def test_a_rule_that_leaves_is_named(tree: Path, body: str, said: str) -> None:
    (tree / "checks").mkdir()
    (tree / "checks/odd.py").write_text(RULE + body)
    (tree / "a.py").write_text("x = 1\n")
    done = shell(tree, "--rules checks a.py")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", ["argparse", "validator.cli", "validator.output", "validator.run.checker"])
def test_an_interrupt_while_modules_are_imported(tree: Path, module: str) -> None:
    """The interrupt comes exactly when a module is looked for, in what the console script runs."""
    script = re.search(r'^meshproof = "(.+):(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert script is not None
    code = (
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['meshproof', '--no-cache', 'a.py']\n"
        f"from {script[1]} import {script[2]} as main\n"
        "sys.exit(main())\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tree, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")

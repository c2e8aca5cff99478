"""What happens to the processes of a run when it is killed, interrupted, or made to wait."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
import pytest

from validator.run.beside import Shared, beside

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}

SLOW_RULE = '''"""Slow."""
import pathlib, os, time
from validator.rule import Rule
RULE = Rule("XX00{number}", "slow{number}", "error", "1")
def {hook}(subject):
    pathlib.Path({marks!r}, str(os.getpid())).touch()
    time.sleep(60)
    return []
'''


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The validator in a process group of its own, as a shell starts it."""
    command = [sys.executable, "-m", "validator", "--no-cache", *arguments]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, text=True, start_new_session=True, **streams)  # type: ignore[call-overload,no-any-return]


def until(condition: object, what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def busy(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A tree big enough for processes of its own, with a rule that keeps each of them for a minute."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "marks").mkdir()
    for number in range(2):  # one for each of two processes that share the rules
        text = SLOW_RULE.format(hook=request.param, marks=str(tmp_path / "marks"), number=number)
        (tmp_path / f"rules/slow{number}.py").write_text(text)
    (tmp_path / "code").mkdir()
    size = 25_000 if request.param == "check_file" else 10
    for number in range(40):
        (tmp_path / f"code/a{number}.py").write_text("x = 1\n" * size)
    return tmp_path


def working(busy: Path, count: int) -> list[int]:
    until(lambda: len(list((busy / "marks").iterdir())) >= count, "the processes did not begin")
    return [int(path.name) for path in (busy / "marks").iterdir()]


@pytest.mark.parametrize("busy", ["check_file", "check_project"], indirect=True, ids=["files", "project"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_no_process_outlives_the_run(busy: Path, how: signal.Signals) -> None:
    process = start(busy, "--rules", "rules", "--jobs", "2", "code")
    pids = [pid for pid in working(busy, 2) if pid != process.pid]
    assert pids
    if how == signal.SIGINT:
        os.killpg(process.pid, how)  # as a terminal does
    else:
        process.send_signal(how)
    out, err = process.communicate(timeout=20)
    assert process.returncode == (130 if how == signal.SIGINT else -how)
    assert (out, err) == ("", "")
    until(lambda: all(map(gone, pids)), "a process was left behind", 10)


@pytest.mark.parametrize("delay", [0.0, 0.2, 0.4, 0.6])
def test_an_interrupt_at_work_ends_the_run_at_once_and_says_nothing(tmp_path: Path, delay: float) -> None:
    """Batches wait for the processes: a pool that learns of its end in the middle answers with tracebacks."""
    for number in range(120):
        (tmp_path / f"a{number}.py").write_text("".join(f"def f{i}(a, b=1):\n    return g(a, b)\n" for i in range(900)))
    process = start(tmp_path, "--jobs", "2", ".")
    until(lambda: len(psutil.Process(process.pid).children()) > 1, "no processes were started")
    time.sleep(delay)
    started = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "")
    assert time.monotonic() - started < 5


def test_an_interrupt_that_a_shell_has_ignored_stays_ignored(tmp_path: Path) -> None:
    command = ["bash", "-c", f"trap '' INT; exec {sys.executable} -m validator --no-cache -"]
    process = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdin=subprocess.PIPE, start_new_session=True)
    time.sleep(0.5)  # it waits for its input
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(b"x = 1\n", timeout=30)
    assert process.returncode == 0


def repository(folder: Path) -> Path:
    (folder / "a.py").write_text("x = (\n")
    subprocess.run(["git", "init", "-q", str(folder)], check=True, timeout=60)
    return folder


@pytest.mark.parametrize("name", ["HEAD", "index", "config"])
def test_a_repository_of_pipes_is_read_without_git(tmp_path: Path, name: str) -> None:
    inner = repository(tmp_path) / ".git" / name
    inner.unlink(missing_ok=True)
    os.mkfifo(inner)
    started = time.monotonic()
    process = start(tmp_path, "--format", "concise", ".")
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (1, "")
    assert out.startswith("a.py:1:5: error MP001")
    assert time.monotonic() - started < 15
    process = start(tmp_path, "--changed-since", "HEAD", ".")
    assert "not in a git work tree that git can read" in process.communicate(timeout=20)[1]
    assert process.returncode == 2


def test_git_that_does_not_answer_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one does that finds a pipe where it looks for a `.gitignore`."""
    from validator.files import git
    from validator.files.discovery import discover
    from validator.run.config import Config

    (tmp_path / "bin").mkdir()
    hanging = tmp_path / "bin/git"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(hanging.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(git, "_found", [str(hanging)])
    monkeypatch.setattr(git, "_PATIENCE", 0.3)
    tree = tmp_path / "tree"
    tree.mkdir()
    repository(tree)
    (tree / "sub").mkdir()
    (tree / "sub/b.py").write_text("x = 1\n")
    started = time.monotonic()
    assert len(discover([str(tree)], Config(root=str(tree)))) == 2
    assert time.monotonic() - started < 5
    assert git.run(str(tree), "ls-files") == (127, b""), "it is not asked again"
    assert not any(child.name() == "sleep" for child in psutil.Process().children())


NUMBERS = range(200)


def taken_by_two(work: Callable[[Iterable[int]], list[int]]) -> tuple[list[int], list[int]]:
    """What this process takes, and what comes from the one beside it."""
    shared = Shared(NUMBERS)
    try:
        with beside(lambda: work(shared.back()), instead=lambda: list(shared.rest())) as waiting:
            return work(shared.front()), waiting()
    finally:
        shared.close()


def test_two_processes_take_every_item_once() -> None:
    mine, others = taken_by_two(lambda items: [(each, time.sleep(0.001))[0] for each in items])
    assert mine + others[::-1] == list(NUMBERS)
    assert mine
    assert others


def test_what_a_killed_process_took_is_done_again() -> None:
    parent = os.getpid()

    def work(items: Iterable[int]) -> list[int]:
        if os.getpid() != parent:
            next(iter(items))
            os.kill(os.getpid(), signal.SIGKILL)
        return [(each, time.sleep(0.001))[0] for each in items]

    mine, others = taken_by_two(work)
    assert mine + others == list(NUMBERS)
    assert others, "the last, which the other one took and did not do"

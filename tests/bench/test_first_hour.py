"""What somebody new meets: other modules of the same names in the working directory, terminals of any width."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.terminal.fitting import fitted

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "import sys; sys.path[:] = [p for p in sys.path if p]; from bench.__main__ import script; sys.exit(script())"
"""As the console script starts it: the working directory is not on the path."""


COMMAND = SCRIPT.replace("from bench.__main__", "from validator.__main__")
"""As the console script `meshproof` starts it."""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder whose modules must not stand in for others, and a loss that must be found in it."""
    for name in ("json", "tabulate", "validator", "rules", "torch"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('their {name}')\n")
    (tmp_path / "my_loss.py").write_text("from bench.losses import sft as mine\n")
    return tmp_path


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    environment.pop("RANK", None)
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_narrow_table_keeps_the_columns_that_tell_rows_apart() -> None:
    headers = ["backend", "status", "attention", "length", "tokens/s", "step", "forward", "backward", "memory"]
    rows = [
        ["fsdp2", "ok", "sdpa packed", "4096", "12345.6", "0.123 s", "0.041 s", "0.082 s", "12.3 GB"],
        ["fsdp2", "ok", "fa2 packed", "4096", "13345.6", "0.113 s", "0.031 s", "0.072 s", "12.1 GB"],
        ["ddp", "ok", "fa2 packed", "8192", "11345.6", "0.143 s", "0.051 s", "0.092 s", "22.1 GB"],
    ]
    order = ["backend", "status", "tokens/s", "step", "memory", "forward", "backward", "attention", "length"]
    assert "attention" not in fitted(rows, headers, order, 40).splitlines()[0]
    shown = fitted(rows, headers, order, 40, telling=("backend", "attention", "length")).splitlines()
    assert shown[0].split() == ["backend", "attention", "tokens/s", "step"]  # the length tells nothing more
    assert all(len(line) <= 40 for line in shown)
    least = fitted(rows, headers, order, 32, telling=("backend", "attention", "length")).splitlines()
    assert least[0].split()[:2] == ["backend", "tokens/s"]  # rows without a value say nothing


def test_modules_of_the_working_directory_stand_in_for_nothing(hostile: Path) -> None:
    done = run(["-m", "bench", "plan", "--model", "llama-tiny", "--gpus", "2"], hostile)
    assert (done.returncode, done.stderr) == (0, "")
    done = run(["-m", "bench", "--dry-run", "--loss", "my_loss:mine"], hostile)
    assert (done.returncode, done.stderr) == (0, "")
    assert "would run" in done.stdout


def test_the_console_script_runs_beside_another_bench(hostile: Path) -> None:
    """Ranks find this package, and the loss of the working directory."""
    (hostile / "bench").mkdir()
    (hostile / "bench" / "__init__.py").write_text("raise SystemExit('their bench')\n")
    flags = ["--device", "cpu", "--backend", "ddp", "--num-gpus", "1", "--processes", "1", "--seq-len", "16"]
    done = run(["-c", SCRIPT, *flags, "--steps", "1", "--warmup", "1", "--loss", "my_loss:mine", "--quiet"], hostile)
    assert (done.returncode, done.stderr) == (0, "")
    assert " ok " in done.stdout


def test_meshproof_bench_is_the_harness_and_a_path_is_still_a_path(hostile: Path) -> None:
    (hostile / "bench").mkdir()
    (hostile / "bench" / "__init__.py").write_text("raise SystemExit('their bench')\n")
    done = run(["-c", COMMAND, "bench", "plan", "--model", "llama-tiny", "--gpus", "2"], hostile)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].startswith("llama-tiny")
    done = run(["-c", COMMAND, "--isolated", "./bench"], hostile)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "no findings in 1 file")


CELLS = st.text("abc0.", min_size=1, max_size=30)


@given(st.integers(2, 8).flatmap(lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=5)))
def test_a_table_is_as_wide_as_it_may_be(rows: list[list[str]]) -> None:
    headers = [f"head {n}" for n in range(len(rows[0]))]
    shown = fitted(rows, headers, headers, 80).splitlines()
    assert max(map(len, shown)) <= 80
    assert [line.split()[0] for line in shown[2 : 2 + len(rows)]] == [row[0] for row in rows]
    text = " ".join(" ".join(shown).split())
    assert all(header in text for header in headers if any(row[headers.index(header)] != "-" for row in rows))


def test_what_is_the_same_in_all_rows_is_said_once() -> None:
    rows = [["a", "ok", "tiny", "1" * 30], ["b", "ok", "tiny", "2" * 30]]
    shown = fitted(rows, ["row", "status", "model", "more"], ["row", "more"], 30).splitlines()
    assert shown[0].split() == ["row"]
    assert shown[4:] == ["in all rows: status ok, model", "  tiny", "--wide shows more too"]


def test_the_plan_fits_a_terminal() -> None:
    """A pseudo-terminal of 60 columns."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "bench", "plan", "--model", "llama-3.1-8b", "--gpus", "2", "--top", "3"]
    environment = {**os.environ, "COLUMNS": "60", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=follower)
    os.close(follower)
    told = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # how Linux tells that the other end is closed
            break
        told += piece
        if not piece:
            break
    assert process.wait(60) == 0
    lines = told.decode().replace("\r", "").splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("backend"))
    assert max(map(len, lines[at : at + 4])) <= 60
    assert any(line.startswith("--wide shows ") for line in lines)

"""Two ranks on each of two hosts: what they learn, and what is said when one of the hosts dies."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.process.stacks import Position
from bench.process.verdict import hang, verdict_of
from tests.bench.two_hosts import FOUR, LONG, namespaces

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        command = namespaces()
    except OSError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("hosts")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, "-m", "tests.bench.two_hosts", "sweep", str(folder)]
    subprocess.run([*command, *program], cwd=ROOT, env=environment, timeout=150, check=True)
    return folder


def _row(folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return row


def test_the_row_names_the_host_that_died(output: Path) -> None:
    row = _row(LONG.directory(output / "two"))
    assert (row["status"], row["phase"]) == ("crash", "measure")
    # which of the two depends on whether the launcher of this host ends by itself
    assert re.match(
        r"rank 2: (killed by signal 9 \(SIGKILL\)|ended before it had finished, in measure .*, and left no error)"
        r"; no rank of host-b is left \(ranks 2-3\): is that host up\?",
        row["message"],
    ), row["message"]
    assert row["runs"] == []


def test_the_next_row_trains_as_on_one_host(output: Path) -> None:
    two, one = (_row(FOUR.directory(output / hosts)) for hosts in ("two", "one"))
    assert (two["status"], one["status"]) == ("ok", "ok"), two["message"]
    assert two["runs"][0]["losses"] == one["runs"][0]["losses"]
    places = [json.loads(path.read_text()) for path in FOUR.directory(output / "two").glob("heartbeat.*.json")]
    assert sorted((beat["rank"], beat["host"]) for beat in places) == [
        (0, "host-a"), (1, "host-a"), (2, "host-b"), (3, "host-b"),
    ]  # fmt: skip


def _beat(folder: Path, rank: int, host: str) -> None:
    value = {"rank": rank, "phase": "measure", "done": 1, "total": 9, "time": 1.0, "pid": 1, "host": host}
    (folder / f"heartbeat.{rank}.json").write_text(json.dumps(value))


def test_who_lost_a_peer_points_at_the_other_host(tmp_path: Path) -> None:
    """No launcher has seen host b end; that of host a has ended rank 0 because of rank 1's error."""
    for rank in range(4):
        _beat(tmp_path, rank, "ab"[rank // 2])
    error = {"rank": 1, "phase": "measure", "time": 2.0, "type": "RuntimeError", "message": "Connection closed by peer"}
    (tmp_path / "error.1.json").write_text(json.dumps(error))
    verdict = verdict_of(tmp_path, 1, 0, 4)
    assert (verdict.status, verdict.rank, verdict.phase) == ("crash", 2, "measure")
    assert "in measure 1/9, and left no error; no rank of b is left (ranks 2-3)" in verdict.message
    assert verdict.message.endswith("then rank 1: Connection closed by peer")


def test_ranks_of_another_host_are_named_with_it(tmp_path: Path) -> None:
    beats = [
        {"rank": rank, "phase": "measure", "done": 1, "total": 9, "time": 1.0, "host": host}
        for rank, host in enumerate((socket.gethostname(), "b"))
    ]
    verdict = hang(5.0, 2, beats, {0: Position("all_reduce", "x.py:1 in f")}, {})
    assert verdict.message == (
        "no progress for 5 s; rank 1 stayed away (in measure 1/9, on b); rank 0 waits in all_reduce (x.py:1 in f)"
    )


def test_nothing_of_the_hosts_is_left(output: Path) -> None:
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in lines if str(output) in line or "sleep 600" in line]

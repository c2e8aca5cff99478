"""Traces, trackers and the format of continuous tracking."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import trackers
from bench.cli import main as bench
from bench.configuration import ConfigurationError
from bench.results.measured import SPEED
from tests.bench.light_sweep import TINY, LightSweep
from tests.bench.test_run import SMALL
from tests.bench.test_run import bench as run


def test_each_rank_writes_a_trace_beside_its_row(tmp_path: Path) -> None:
    flags = ["--backend", "ddp", "--num-gpus", "2", "--processes", "2", "--trace", "--output", str(tmp_path)]
    done = run("run", *flags, *SMALL, "--dtype", "fp32")
    assert done.returncode == 0, done.stderr
    files = sorted(tmp_path.glob("ddp-*/traces/*"))
    assert [file.name for file in files] == ["rank0.json.gz", "rank1.json.gz"]
    for rank, file in enumerate(files):
        with gzip.open(file, "rt", encoding="utf-8") as opened:
            trace = json.load(opened)
        assert trace["distributedInfo"]["rank"] == rank  # by which HTA tells ranks apart
        names = {event.get("name", "") for event in trace["traceEvents"]}
        assert any(name.startswith("gloo:all_reduce") for name in names)
        assert any(name.startswith("aten::") for name in names)
        assert "ProfilerStep#0" in names  # HTA's word for a step
    again = run("run", *flags[:-2], "--processes", "3", *flags[-2:], *SMALL, "--dtype", "fp32")
    assert again.returncode == 0, again.stderr
    assert sorted(tmp_path.glob("ddp-*/traces/*")) == files  # a process more leaves them


def test_a_refused_command_makes_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not installed, or not to be had, is told before anything is made."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    output = tmp_path / "results"
    assert bench(["run", *SMALL, "--num-gpus", "1", "--tracker", "wandb", "--output", str(output)]) == 2
    assert "--tracker wandb" in capsys.readouterr().err
    assert bench(["suite", "--model", "no-such-model", "--output-dir", str(output)]) == 2
    assert "no model 'no-such-model'" in capsys.readouterr().err
    assert not output.exists()


class Kept:
    """A tracker that keeps what it gets, or fails."""

    def __init__(self, fails: bool = False) -> None:
        self.rows: list[trackers.Measured] = []
        self.fails = fails

    def add(self, row: trackers.Measured) -> None:
        self.rows.append(row)
        if self.fails:
            raise RuntimeError("the network is down\nsecond line")

    def close(self) -> None: ...


def _sweep(output: Path, tracker: Any, faults: dict[int, str] | None = None) -> list[dict[str, Any]]:
    from dataclasses import replace

    cells = [replace(TINY, num_layers=number) for number in (1, 2)]
    faults = faults or {}
    sweep = LightSweep(cells, output, processes=1, quiet=True, tracker=tracker,
                       choose=lambda cell: faults.get(cell.num_layers or 0, ""))  # fmt: skip
    return sweep.run()


def test_a_tracker_gets_what_was_measured_now(tmp_path: Path) -> None:
    tracker = Kept()
    rows = _sweep(tmp_path, tracker, {2: "load:exception"})
    (row,) = tracker.rows
    assert (row.name, row.settings["num_layers"]) == (rows[0]["label"], 1)
    assert row.steps == [{"forward": 0.01, "backward": 0.02, "optimizer": 0.005, "loss": loss} for loss in (1.0, 0.9)]
    assert row.summary["forward_seconds"] == 0.01
    assert row.summary["step_seconds"] == pytest.approx(0.035)
    assert row.summary[SPEED] > 0
    _sweep(tmp_path, again := Kept())
    assert again.rows == []


def test_a_tracker_that_fails_does_not_end_the_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tracker = Kept(fails=True)
    assert [row["status"] for row in _sweep(tmp_path, tracker)] == ["ok", "ok"]
    assert len(tracker.rows) == 1
    assert capsys.readouterr().err == "the tracker gets no more rows: RuntimeError: the network is down\n"


def test_a_tracker_that_is_not_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert trackers.names() == ["tensorboard", "trackio", "wandb"]
    for name in ("wandb", "trackio"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ConfigurationError, match=rf"^--tracker {name}: .*: pip install {name}$"):
            trackers.connect(name, tmp_path)


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = _sweep(tmp_path, trackers.connect("tensorboard", tmp_path))
    events = EventAccumulator(str(tmp_path / "tensorboard" / rows[0]["label"]))
    events.Reload()
    assert [event.value for event in events.Scalars("loss")] == pytest.approx([1.0, 0.9])
    assert events.Scalars("forward")[0].value == pytest.approx(0.01)


def test_wandb_takes_rows_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert len(_sweep(tmp_path, trackers.connect("wandb", tmp_path))) == 2
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 2


def test_trackio_keeps_rows(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    program = (
        "import sys; from pathlib import Path\nfrom bench import trackers\n"
        "from tests.bench.test_tracking import _sweep\n"
        "_sweep(Path(sys.argv[1]), trackers.connect('trackio', Path(sys.argv[1])))\n"
    )
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path / "kept"), "HF_HUB_OFFLINE": "1"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=environment, check=True, timeout=120)
    assert list((tmp_path / "kept").rglob("*bench*"))


def test_bmf_holds_times_rates_and_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row, _) = _sweep(tmp_path, None, {2: "load:exception"})
    assert bench(["report", str(tmp_path), "--format", "bmf"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [row["label"]]
    measures = found[row["label"]]
    assert measures["latency"] == {"value": pytest.approx(35e6)}
    assert {name: one["value"] for name, one in measures.items() if name in ("forward", "memory")} == {
        "forward": pytest.approx(10e6), "memory": 1000.0,
    }  # fmt: skip
    assert measures["throughput"]["value"] == pytest.approx(row["summary"][SPEED])

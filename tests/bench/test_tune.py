"""`bench tune`: the search on speeds that are known, the memory it keeps to, and the command that it prints."""

from __future__ import annotations

import shlex
import zlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.cli import main as bench
from bench.commands import run, tune
from bench.configuration import Configuration
from bench.predict.tuning import GAIN, Search, Trial, axes, predicted_bytes
from bench.results import environment
from bench.sweep import sweep

START = Configuration(backend="fsdp2", model="llama-tiny", dtype="fp32", device="cpu", micro_batch_size=1, seq_len=64)
AXES = axes(["fsdp2", "zero2"], [1, 2, 4], on_gpu=False)
VARIED = ("backend", "compile", "micro_batch_size", "gradient_checkpointing", "reshard_after_forward")


def row(speed: float) -> dict[str, Any]:
    return {"status": "ok", "summary": {"real_tokens_per_second_with_optimizer": speed}}


def speed_of(configuration: Configuration, weights: Sequence[float]) -> float:
    """Settings that help or hurt each other: products of neighbours, from drawn weights."""
    values = [zlib.crc32(f"{name}={getattr(configuration, name)}".encode()) % 7 + 1 for name in VARIED]
    return sum(w * a * b for w, a, b in zip(weights, values, values[1:], strict=False)) + 1.0


@settings(deadline=None, max_examples=30)
@given(weights=st.lists(st.floats(0.1, 5.0), min_size=4, max_size=4))
def test_no_single_change_makes_the_best_row_faster(weights: list[float]) -> None:
    def measure(configuration: Configuration) -> dict[str, Any]:
        return row(speed_of(configuration, weights))

    search = Search(AXES, measure, lambda c: None, float("inf"))
    best = search.run(START)
    assert best is not None
    for axis in AXES:
        for change in axis:
            other = replace(best.configuration, **change)
            if other.backend == "fsdp2" or other.reshard_after_forward:  # a setting that ZeRO does not read
                assert speed_of(replace(other, zero_stage=2), weights) <= best.speed * (1 + GAIN)
    assert best.speed >= search.trials[START].speed


def test_rows_that_are_too_large_or_ruled_out_are_never_run() -> None:
    ran: list[Configuration] = []

    def measure(configuration: Configuration) -> dict[str, Any]:
        ran.append(configuration)
        return row(configuration.micro_batch_size or 0)

    limit = predicted_bytes(replace(START, micro_batch_size=2))
    assert predicted_bytes(replace(START, micro_batch_size=4)) > limit
    search = Search(AXES, measure, lambda c: "no" if c.backend == "deepspeed" else None, limit)
    best = search.run(START)
    assert best is not None
    assert best.configuration.micro_batch_size == 2
    assert ran
    assert all(predicted_bytes(c) <= limit and c.backend == "fsdp2" for c in ran)
    assert len(ran) == len(set(ran)), "a row was run twice"
    assert {t.status for t in search.trials.values()} == {"ok", "too large", "ruled out"}


def test_a_start_that_is_too_large_gives_way_to_one_that_fits() -> None:
    large = replace(START, micro_batch_size=4)
    limit = predicted_bytes(START)
    best = Search(AXES, lambda c: row(1.0), lambda c: None, limit).run(large)
    assert best is not None
    assert predicted_bytes(best.configuration) <= limit


def test_rows_that_all_fail_end_the_search() -> None:
    tried: list[Configuration] = []

    def measure(configuration: Configuration) -> dict[str, Any]:
        tried.append(configuration)
        return {"status": "crash", "message": "no"}

    assert Search(AXES, measure, lambda c: None, float("inf")).run(START) is None
    assert len(tried) == 5


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"backend": "deepspeed", "zero_stage": 3, "micro_batch_size": 4},
        {"reshard_after_forward": False, "compile": "blocks", "head": "compiled", "autotune": "max", "num_layers": 2},
    ],
)
def test_the_command_measures_the_same_configuration(changes: dict[str, Any]) -> None:
    configuration = replace(START, **changes)
    words = shlex.split(tune.command_of(configuration))
    assert words[:4] == ["python", "-m", "bench", "run"]
    options = run.parser().parse_args(words[4:])
    for gpus in (0, 1):
        assert [asdict(c) for c in run.expand(run._settings(options), gpus)] == [asdict(configuration)]


class _Sweep:
    """In place of a sweep: its rows are computed from their settings."""

    def __init__(self, configurations: Sequence[Configuration], output: Path, **options: Any) -> None:
        self.configurations = configurations


def test_the_command_line_searches_and_prints_the_fastest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Rows(_Sweep):
        """Checkpointing is slow, larger batches are fast."""

        def run(self) -> list[dict[str, Any]]:
            speeds = {False: 100.0, True: 50.0}
            return [row(speeds[c.gradient_checkpointing] * (c.micro_batch_size or 1)) for c in self.configurations]

    monkeypatch.setattr(sweep, "Sweep", Rows)
    monkeypatch.setattr(environment, "gpus", list)
    flags = ["--model", "llama-tiny", "--gpus", "2", "--micro-batch-sizes", "1,4", "--backends", "ddp,zero1"]
    assert bench(["tune", *flags, "--output", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "--micro-batch-size 4" in lines[-1]
    assert "--gradient-checkpointing" not in lines[-1]
    assert "checkpointing" in "\n".join(lines[:-1])
    assert bench(["tune", *flags, "--memory", "0.001GB", "--output", str(tmp_path)]) == 1
    assert "no row ran" in capsys.readouterr().out
    (tmp_path / "file").touch()
    assert bench(["tune", *flags, "--output", str(tmp_path / "file" / "below")]) == 2


def test_an_interrupted_search_shows_every_row_that_it_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two batch sizes is interrupted: the first was measured, and is the fastest so far."""

    class Rows(_Sweep):
        def run(self) -> list[dict[str, Any]]:
            if any(c.micro_batch_size == 8 for c in self.configurations):
                raise sweep.Interrupted([])
            return [row(c.micro_batch_size or 0) for c in self.configurations]

    monkeypatch.setattr(sweep, "Sweep", Rows)
    monkeypatch.setattr(environment, "gpus", list)
    flags = ["--model", "llama-tiny", "--gpus", "2", "--micro-batch-sizes", "1,4,8", "--backends", "ddp"]
    assert bench(["tune", *flags, "--output", str(tmp_path)]) == 130
    out = capsys.readouterr().out
    assert "batch 4" in out
    assert "--micro-batch-size 4" in out.splitlines()[-1]


def test_cells_of_a_row_that_was_left_out() -> None:
    cells = tune._cells(Trial(START, "too large", 2e9, message="1.0 GB are there"))
    assert cells[1:] == ["too large", "-", "2.0", "1.0 GB are there"]
    assert [tune._cells(Trial(replace(START, device=kind), "ok", 2e9))[3] for kind in ("cpu", "cuda")] == ["-", "2.0"]

"""One definition of a step's time and of throughput: whatever tells which row is faster says the same."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from bench.cli import main as bench
from bench.configuration import Configuration
from bench.report.columns import as_csv
from bench.report.glance import workloads
from bench.report.rows import collect
from bench.report.series import chart_data
from bench.results.measured import SPEED
from bench.results.results import build_result, write_json, write_suite

BACKENDS = ("ddp", "fsdp2", "deepspeed")


def _run(noise: random.Random) -> dict[str, Any]:
    """A process of few steps, of which some take far longer: medians of phases, of steps and means part there."""
    times = [
        {
            phase: noise.uniform(0.01, 0.02) * noise.choice((1, 1, 1, 6))
            for phase in ("forward", "backward", "optimizer")
        }
        for _ in range(7)
    ]
    return {
        "times": times, "warmups": [], "losses": [3.0, 2.0], "grad_norms": [1.0, 1.0],
        "memory": {kind: {"forward": 10**9} for kind in ("allocated", "reserved")},
        "tokens": {"real": 700.0, "positions": 1400.0, "squares": 7e4}, "parameters": 10**6,
        "effective": {"communication_share": 0.1, "device": "cpu"}, "matmul_flops": 1e12,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_tables_pages_and_comparisons_agree(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noise = random.Random(seed)
    results = {}
    for backend in BACKENDS:
        configuration = Configuration(backend=backend, num_layers=2, device="cpu")
        results[backend] = build_result(configuration, [_run(noise), _run(noise)], status="ok", environment={})
        write_json(tmp_path / backend / "result.json", results[backend])
        write_suite(tmp_path / backend / "benchmarks.json", results[backend])
    rows = collect([tmp_path]).rows
    by_speed = sorted(rows, key=lambda row: -(row.tokens or 0.0))
    order = [row.configuration.backend for row in by_speed]
    read = list(csv.DictReader(io.StringIO(as_csv(rows))))
    step = {entry["variant"]: float(entry["step"]) for entry in read}
    assert sorted(step, key=step.__getitem__) == [row.variant for row in by_speed]
    for row in rows:
        assert sum(row.seconds[phase] for phase in ("forward", "backward", "optimizer")) == pytest.approx(
            row.seconds["step"]
        )
        assert row.tokens == pytest.approx(100.0 / row.seconds["step"])  # the tokens of a step over its time
        assert results[row.configuration.backend]["summary"][SPEED] == pytest.approx(row.tokens)
    (work,) = workloads(rows)
    assert (work.fastest, work.next) == (by_speed[0], by_speed[1])
    bars = chart_data(collect([tmp_path]), [work])["phases"][0]["bars"]
    assert [bar["row"] for bar in bars] == [row.number for row in by_speed]
    for bar, row in zip(bars, by_speed, strict=True):
        widths = [bar[phase] for phase in ("forward", "backward", "optimizer")]
        assert sum(widths) == pytest.approx(row.seconds["step"] * 1e3)

    for kind in ("result.json", "benchmarks.json"):
        paths = [str(tmp_path / backend / kind) for backend in order]
        bench(["compare", *paths, "--format", "json"])
        for pair, row in zip(json.loads(capsys.readouterr().out)["pairs"], by_speed[1:], strict=True):
            metric = next(metric for metric in pair["metrics"] if metric["metric"] == "step")
            assert metric["ratio"] == pytest.approx(row.seconds["step"] / by_speed[0].seconds["step"])
            assert metric["ratio"] >= 1.0
    bench(["report", str(tmp_path), "--format", "bmf"])
    tracked = json.loads(capsys.readouterr().out)
    for row in rows:
        assert tracked[row.label]["latency"]["value"] == pytest.approx(row.seconds["step"] * 1e9)
        assert tracked[row.label]["throughput"]["value"] == pytest.approx(row.tokens)


def test_results_of_before_are_read_by_the_same_definition(tmp_path: Path) -> None:
    """Summaries once held medians of phases and a rate without the optimizer."""
    result = build_result(Configuration(device="cpu"), [_run(random.Random(1))], status="ok", environment={})
    write_json(tmp_path / "new" / "result.json", result)
    old = {"real_tokens_per_second": 1.0, "padded_tokens_per_second": 2.0, **result["summary"]}
    for phase in ("forward", "backward", "optimizer"):
        old[phase] = {"median": 9.0, "spread": 0.0}
    del old["step"]
    write_json(tmp_path / "old" / "result.json", {**result, "summary": old})
    one, other = collect([tmp_path]).rows
    assert (one.seconds, one.tokens) == (other.seconds, other.tokens)


def test_who_is_fastest_says_when_it_is_not_decided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noise = random.Random(3)
    for backend in BACKENDS:
        result = build_result(
            Configuration(backend=backend, device="cpu"), [_run(noise), _run(noise)], status="ok", environment={}
        )
        write_json(tmp_path / backend / "result.json", result)
    (work,) = workloads(collect([tmp_path]).rows)
    assert "ahead of" in work.told()
    assert "undecided (" in work.told()
    assert "processes each would decide" in work.told()
    page = tmp_path / "page.html"
    assert bench(["report", str(tmp_path), "--output", str(page)]) == 0
    assert "undecided (" in page.read_text()
    for row in work.rows:
        row.per_token = row.per_token[:1]
    (single,) = workloads(work.rows)
    assert single.told().endswith("undecided: one process proves no order")
    for row, factor in zip(single.rows, (1.0, 2.0, 4.0), strict=True):
        row.per_token = [0.001 * factor, 0.00101 * factor, 0.00099 * factor]
    (clear,) = workloads(single.rows)
    assert clear.told() == f"fastest: {clear.way(clear.rows[0])}, 100.0% ahead of {clear.way(clear.rows[1])}"

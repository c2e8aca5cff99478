"""A measurement stays until there is a newer one, and is made again where what it depends on has changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.commands.run import main
from bench.configuration import Configuration, parse
from bench.results import environment, identity
from bench.results.results import build_result, read_result, write_json
from bench.sweep import attempts
from bench.sweep.sweep import Interrupted
from tests.bench.light_sweep import TINY, LightSweep
from tests.bench.light_worker import result as measured

CELLS = [replace(TINY, num_layers=number) for number in (1, 2)]


def sweep(output: Path, fault: str = "", cells: list[Configuration] = CELLS, **options: Any) -> LightSweep:
    options = {"processes": 1, "quiet": True, "choose": lambda _: fault, **options}
    return LightSweep(cells, output, **options)


def on_disk(output: Path, configuration: Configuration) -> dict[str, Any]:
    found = read_result(configuration.directory(output))
    assert found is not None
    return found


def change(output: Path, configuration: Configuration, edit: Callable[[dict[str, Any]], None]) -> None:
    result = on_disk(output, configuration)
    edit(result)
    write_json(configuration.directory(output) / "result.json", result)


def of_a_gpu(configuration: Configuration) -> dict[str, Any]:
    described = {**environment.describe(configuration), "gpus": [{"name": "NVIDIA H200"}]}
    return build_result(configuration, [{**measured([2.0, 1.0]), "seconds": {}}], status="ok", environment=described)


def test_a_refusal_does_not_replace_a_measurement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--device", "cuda", "--backend", "ddp", "--num-gpus", "1", "--model", "llama-tiny", "--processes", "1"]
    row = parse({"device": "cuda", "backend": "ddp", "model": "llama-tiny", "dtype": "fp32", "seq_len": 256,
                 "steps": 8})  # fmt: skip
    write_json(row.directory(tmp_path) / "result.json", of_a_gpu(row))
    for more, status, shown in (([], 0, "kept 1 row of"), (["--force"], 1, "unsupported: no GPU is visible")):
        assert main([*flags, *more, "--quiet", "--output", str(tmp_path)]) == status
        assert shown in capsys.readouterr().out
        assert on_disk(tmp_path, row)["status"] == "ok"


def test_what_a_table_refused_is_looked_up_anew(tmp_path: Path) -> None:
    refused = build_result(CELLS[0], [], status="unsupported", message="flash_attn is not installed")
    write_json(CELLS[0].directory(tmp_path) / "result.json", refused)
    assert [row["status"] for row in sweep(tmp_path).run()] == ["ok", "ok"]


def test_force_replaces_nothing_before_the_new_measurement_is_there(tmp_path: Path) -> None:
    before = sweep(tmp_path).run()

    def stop(configuration: Configuration) -> str:
        assert all(on_disk(tmp_path, cell) == row for cell, row in zip(CELLS, before, strict=True))
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        sweep(tmp_path, force=True, choose=stop).run()
    assert [row["status"] for row in stopped.value.rows] == ["interrupted"]
    assert stopped.value.rows[0]["kept"] == before[0]["environment"]["time"]
    assert [on_disk(tmp_path, cell) for cell in CELLS] == before
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == sorted(
        cell.directory(tmp_path).name for cell in CELLS
    )


def runs_of(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("run.*.json")}


def interrupted(output: Path, processes: int, after: int, **options: Any) -> None:
    """A sweep of one row that is stopped once so many processes have run."""
    started = iter(range(processes))

    def stop(_: Configuration) -> str:
        if next(started) == after:
            raise KeyboardInterrupt
        return ""

    with pytest.raises(Interrupted):
        sweep(output, cells=CELLS[:1], processes=processes, choose=stop, **options).run()


def test_the_same_command_keeps_the_whole_processes_of_an_interrupted_row(tmp_path: Path) -> None:
    interrupted(tmp_path, 3, after=2)
    folder = CELLS[0].directory(tmp_path)
    before = runs_of(folder)
    assert (sorted(before), on_disk(tmp_path, CELLS[0])["status"]) == (["run.0.json", "run.1.json"], "interrupted")
    again = sweep(tmp_path, cells=CELLS[:1], processes=3)
    (row,) = again.run()
    assert (row["status"], len(row["runs"]), len(again.started)) == ("ok", 3, 1)
    after = runs_of(folder)
    assert {name: after[name] for name in before} == before
    assert again.resumed() == ["ran 1 row; kept 2 processes of rows that were interrupted"]
    assert not (folder / attempts.IDENTITY).exists()


def test_a_sweep_that_was_killed_leaves_its_whole_processes_too(tmp_path: Path) -> None:
    """Nobody was left to write a result; where all processes are whole, none is started."""
    folder = CELLS[0].directory(tmp_path)
    interrupted(tmp_path, 3, after=2)
    (folder / "result.json").unlink()
    again = sweep(tmp_path, cells=CELLS[:1], processes=2)
    assert again.foreseen(CELLS[0]) == "would be concluded"
    (row,) = again.run()
    assert (row["status"], len(row["runs"]), again.started) == ("ok", 2, [])
    assert Path(row["log"]).is_file()


def test_processes_of_other_versions_and_of_force_are_measured_again(tmp_path: Path) -> None:
    interrupted(tmp_path, 2, after=1)
    path = CELLS[0].directory(tmp_path) / attempts.IDENTITY
    described = json.loads(path.read_text())
    described["versions"]["torch"] = "1.0"
    write_json(path, described)
    again = sweep(tmp_path, cells=CELLS[:1], processes=2)
    assert again.run()[0]["status"] == "ok"
    assert len(again.started) == 2
    interrupted(tmp_path, 2, after=1, force=True)
    forced = sweep(tmp_path, cells=CELLS[:1], processes=2, force=True)
    forced.run()
    assert len(forced.started) == 2


def test_what_is_added_to_a_row_is_kept_when_it_is_interrupted(tmp_path: Path) -> None:
    (first,) = sweep(tmp_path, cells=CELLS[:1], processes=1).run()
    interrupted(tmp_path, 4, after=1)
    assert on_disk(tmp_path, CELLS[0])["runs"] == first["runs"]
    again = sweep(tmp_path, cells=CELLS[:1], processes=4)
    (row,) = again.run()
    assert (row["status"], len(row["runs"]), len(again.started)) == ("ok", 4, 2)
    assert row["runs"][0] == first["runs"][0]
    assert not attempts.beside(CELLS[0].directory(tmp_path)).exists()


def test_a_new_attempt_that_fails_stays_beside_the_measurement(tmp_path: Path) -> None:
    before = sweep(tmp_path).run()
    rows = sweep(tmp_path, "warmup:exception", force=True).run()
    assert [row["status"] for row in rows] == ["crash", "crash"]
    assert [on_disk(tmp_path, cell) for cell in CELLS] == before
    assert Path(rows[0]["log"]).parent == attempts.beside(CELLS[0].directory(tmp_path))
    assert "first line of the fault" in Path(rows[0]["log"]).read_text()
    assert [row["status"] for row in sweep(tmp_path).run()] == ["ok", "ok"]  # the measurement counts as before
    (again,) = sweep(tmp_path, force=True, cells=CELLS[:1]).run()
    assert (on_disk(tmp_path, CELLS[0]), again["status"]) == (again, "ok")
    assert again["log"] == str(CELLS[0].directory(tmp_path) / "log.0.txt")
    assert Path(again["log"]).is_file()
    assert not attempts.beside(CELLS[0].directory(tmp_path)).exists()


def test_a_row_of_other_versions_is_named_and_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep(tmp_path).run()
    change(tmp_path, CELLS[0], lambda row: row["environment"]["versions"].update(torch="1.0"))
    torch = environment.versions()["torch"]
    again = sweep(tmp_path, quiet=False)
    rows = again.run()
    assert again.started == CELLS[:1]
    line = f"stale, run again: {CELLS[0].label()}: torch 1.0 → {torch}"
    assert line in capsys.readouterr().err.splitlines()
    kept, *stale = again.resumed()
    assert kept.startswith(f"kept 1 row of {rows[1]['environment']['time'][:10]} ")
    assert f" on {rows[1]['environment']['host']} with torch {torch}, transformers " in kept
    assert kept.endswith("; ran 1 row")
    assert stale == [line]
    assert sweep(tmp_path).run() == rows


def test_a_stale_row_that_fails_now_keeps_its_measurement_and_is_tried_once(tmp_path: Path) -> None:
    (cell,) = CELLS[:1]
    sweep(tmp_path, cells=[cell]).run()
    change(tmp_path, cell, lambda row: row["environment"]["versions"].update(transformers="1.0"))
    for started in (1, 0):
        tried = sweep(tmp_path, "load:exception", cells=[cell])
        assert [row["status"] for row in tried.run()] == ["crash"]
        assert len(tried.started) == started
    assert tried.resumed()[-1] == "1 row of these had failed: --retry-failed runs them again"
    assert on_disk(tmp_path, cell)["status"] == "ok"
    assert [row["status"] for row in sweep(tmp_path, cells=[cell], retry_failed=True).run()] == ["ok"]


def test_more_processes_add_to_those_that_are_there(tmp_path: Path) -> None:
    (first,) = sweep(tmp_path, cells=CELLS[:1]).run()
    folder = CELLS[0].directory(tmp_path)
    written = (folder / "log.0.txt").stat().st_mtime_ns
    more = sweep(tmp_path, cells=CELLS[:1], processes=3)
    (row,) = more.run()
    assert (len(more.started), row["summary"]["processes"], len(row["runs"])) == (2, 3, 3)
    assert row["runs"][0] == first["runs"][0]
    assert (folder / "log.0.txt").stat().st_mtime_ns == written
    assert (folder / "log.2.txt").is_file()
    assert more.resumed() == ["ran 1 row, 1 of them to add processes"]
    assert sweep(tmp_path, cells=CELLS[:1], processes=2).run() == [row]
    failing = sweep(tmp_path, "load:exception", cells=CELLS[:1], processes=4)
    assert [one["status"] for one in failing.run()] == ["crash"]
    assert on_disk(tmp_path, CELLS[0]) == row


def test_the_source_of_a_class_belongs_to_the_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "some_strategies.py"
    module.write_text("class Mine: ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    cell = replace(TINY, backend="some_strategies:Mine", num_gpus=1)
    described = environment.describe(cell)
    assert list(described["sources"]) == ["some_strategies:Mine"]
    assert identity.differences(cell, described, environment.describe(cell)) == []
    module.write_text("class Mine: changed = True\n")
    identity._hash.cache_clear()
    assert identity.differences(cell, described, environment.describe(cell)) == [
        "the source of some_strategies:Mine has changed"
    ]
    assert "some_strategies" not in sys.modules


def test_what_was_measured_on_a_gpu_is_not_measured_again_on_a_cpu() -> None:
    gpu, other = ({"gpus": [{"name": name}], "cpu": "a"} for name in ("H200", "H100"))
    cell = Configuration()
    assert identity.differences(cell, gpu, {"gpus": [], "cpu": "a"}) == []
    assert identity.differences(cell, gpu, other) == ["H200 → H100"]
    assert identity.differences(cell, {"gpus": [], "cpu": "a"}, gpu) == ["a → H200"]
    assert identity.differences(cell, {}, gpu) == []


def test_a_row_depends_on_the_packages_that_it_uses() -> None:
    assert "deepspeed" not in identity.packages(Configuration(backend="fsdp2"))
    assert "deepspeed" in identity.packages(Configuration(backend="deepspeed"))
    assert "flash-attn" in identity.packages(Configuration(attn="flash_attention_2"))
    assert "flash-attn" not in identity.packages(Configuration(attn="flash_attention_4"))
    assert {"flash-attn", "flash-attn-4"} <= set(identity.packages(Configuration(attn="auto")))
    assert {"flash-attn", "flash-attn-4"} <= set(identity.packages(Configuration(attn="sdpa", ring=2, num_gpus=2)))
    assert "flash-attn-4" not in identity.packages(Configuration(attn="sdpa"))
    then = {"versions": {"torch": "2.13", "deepspeed": "0.19"}}
    now = json.loads(json.dumps({"versions": {"torch": "2.13", "deepspeed": "0.20"}}))
    assert identity.differences(Configuration(backend="ddp"), then, now) == []
    assert identity.differences(Configuration(backend="deepspeed"), then, now) == ["deepspeed 0.19 → 0.20"]


def test_a_failure_is_told_when_it_happens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[str] = []

    def choose(configuration: Configuration) -> str:
        told.append(capsys.readouterr().err)
        return "load:exception" if configuration == CELLS[0] else ""

    sweep(tmp_path, quiet=False, choose=choose).run()
    (line,) = [line for line in told[1].splitlines() if "crash" in line]
    assert line.startswith(f"{CELLS[0].label()}: crash: rank 1: RuntimeError: first line of the fault")

"""`bench matrix`: the eight rows run for real, the cover of pairs, and the classes."""

from __future__ import annotations

import itertools
import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.commands.matrix import main
from bench.configuration import Configuration
from bench.matrix.cells import AXES, Cell, cover, eight, never, product, reference
from bench.matrix.classify import Outcome, classify
from bench.matrix.lanes import LanedSweep
from bench.matrix.show import differences, entry, table
from bench.sweep import availability
from bench.sweep.availability import COMPILERS
from bench.sweep.sweep import Interrupted

BASE = Configuration(device="cpu", dtype="fp32", seq_len=64, steps=2, warmup=1)


@pytest.mark.parametrize("compilers", [(), pytest.param(COMPILERS, marks=pytest.mark.slow)])
def test_the_eight_rows_run_are_classified_and_can_be_compared(
    compilers: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(availability, "COMPILERS", compilers)
    flags = ["--device", "cpu", "--seq-len", "32", "--steps", "2", "--quiet", "--output"]
    assert main([*flags, str(tmp_path / "first")]) == 0
    (tmp_path / "first").rename(tmp_path / "moved")
    tmp_path /= "moved"
    written = json.loads((tmp_path / "matrix.json").read_text())
    rows = {row["cell"]: row for row in written["rows"]}
    assert next(iter(rows)) == "default"
    assert list(rows)[-1] == "flash-attn + compile + packing"
    assert len(rows) == 8
    compiled = "ok" if any(map(shutil.which, compilers)) else "unsupported"
    classes = {name: row["class"] for name, row in rows.items() if "flash-attn" not in name}
    assert classes == {"default": "ok", "packing": "ok", "compile": compiled, "compile + packing": compiled}
    assert all(row["class"] == "unsupported" and row["detail"] for n, row in rows.items() if "flash-attn" in n)
    assert rows["packing"]["loss_difference"] < 1e-4
    assert rows["default"]["relative_speed"] == 1.0
    assert (tmp_path / rows["packing"]["log"]).is_file()
    assert "| packing | ok |" in (tmp_path / "matrix.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/run.*.json")}
    shutil.rmtree(tmp_path / "logs")
    assert main([*flags, str(tmp_path)]) == 0
    assert (tmp_path / rows["packing"]["log"]).is_file()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/run.*.json")} == before

    other = tmp_path / "other.json"
    rows["packing"]["class"] = "crash"
    written["stack"]["torch"] = "9.9"
    other.write_text(json.dumps(written))
    capsys.readouterr()
    assert main(["--diff", str(tmp_path), str(other)]) == 1
    shown = capsys.readouterr().out
    assert "packing: ok → crash" in shown
    assert "→ 9.9" in shown
    assert main(["--diff", str(other), str(tmp_path)]) == 0
    assert main(["--diff", str(tmp_path / "absent.json"), str(other)]) == 2


def _measured(cell: str, *seconds: float, noise: float = 0.0) -> dict[str, Any]:
    """A cell's row whose processes took so long for a step of 100 tokens."""
    runs = [
        {"times": [{"forward": each * (1 + noise * sign)} for sign in (-1, 0, 1)], "tokens": {"real": 300.0},
         "memory": {"allocated": {"forward": 1.0}}}
        for each in seconds
    ]  # fmt: skip
    asked = dict.fromkeys(("backend", "zero_stage", "attn", "compile", "packing", "num_layers"))
    summary = {"effective": {"steady": True}}
    return {"hash": cell, "label": cell, "configuration": {**asked, "num_gpus": 1}, "runs": runs, "summary": summary}


def _entries(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in rows:
        default = found[0] if found else None
        found.append(entry(Cell(row["hash"], BASE), row, Outcome("ok", ""), default))
    return found


def test_a_cell_says_when_its_speed_proves_nothing() -> None:
    """One process, noisy steps, processes that differ: none of them ranks a cell; three that agree do."""
    one = _entries(_measured("default", 0.1), _measured("packing", 0.05, noise=0.3))
    assert [entry["relative_speed"] for entry in one] == pytest.approx([1.0, 2.0])
    shown = table(one, wide=True)
    assert ("2.00 undecided" in shown, "1.00 undecided" in shown) == (True, False)
    assert "2,000 ±30%" in shown
    assert "steps lie over ±10% apart or never became steady: packing" in shown
    assert "undecided: one process a cell proves no order of speeds; --processes 3 measures more" in shown

    several = _entries(_measured("default", 0.1, 0.14), _measured("near", 0.11, 0.12), _measured("far", 0.0100, 0.0101))
    assert [bool(entry["doubt"]) for entry in several] == [False, True, False]
    assert "near: undecided (" in table(several)
    assert "processes, on a quieter machine" in table(several) or "processes each would decide" in table(several)


def test_a_difference_of_speed_is_told_with_its_doubt() -> None:
    def matrix(*seconds: float) -> dict[str, Any]:
        return {"schema": 2, "stack": {}, "command": "matrix", "rows": _entries(_measured("default", *seconds))}

    assert differences(matrix(0.1), matrix(0.105)) == ([], False)
    assert differences(matrix(0.1), matrix(0.2)) == (
        ["default: 1,000 → 500 tokens/s, undecided: one process proves no order"], False,
    )  # fmt: skip
    clear = differences(matrix(0.1, 0.101, 0.099), matrix(0.2, 0.202, 0.198))
    assert clear == (["default: 1,000 → 500 tokens/s"], False)
    before = {"cell": "default", "class": "ok", "detail": "", "hash": "default", "real_tokens_per_second": 9000.0}
    lines, _ = differences({**matrix(0.1), "schema": 1, "rows": [before]}, matrix(0.1))
    assert lines == ["one of the two was written before speeds were those of whole steps: speeds are not compared"]


def test_a_difference_tells_other_settings() -> None:
    one = {"cell": "default", "class": "ok", "detail": "", "hash": "a"}
    old = {"schema": 2, "stack": {}, "command": "matrix --seq-len 64", "rows": [one]}
    assert differences(old, {**old, "command": "matrix"}) == ([], False)
    new = {"schema": 2, "stack": {}, "command": "matrix --seq-len 32", "rows": [{**one, "hash": "b"}]}
    lines, worse = differences(old, new)
    assert lines == [
        "the settings are not the same, so speeds do not compare: matrix --seq-len 64 → matrix --seq-len 32"
    ]
    assert not worse


def test_one_gpu_cells_run_side_by_side_and_all_end_as_rows(tmp_path: Path) -> None:
    cells = [replace(BASE, seq_len=length) for length in (32, 40)] + [
        replace(BASE, loss="tests.bench.faults:not_a_number")
    ]
    rows = LanedSweep(cells, tmp_path, processes=1, quiet=True, lanes=2).run()
    assert [row["status"] for row in rows] == ["ok", "ok", "nan"]


def test_ctrl_c_leaves_a_row_of_the_cell_that_runs_while_another_lane_is_done(tmp_path: Path) -> None:
    def ctrl_c(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ctrl_c)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(Interrupted) as stopped:
            LanedSweep([BASE], tmp_path, processes=1, quiet=True, lanes=2).run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [row["status"] for row in stopped.value.rows] == ["interrupted"]


@pytest.mark.parametrize("strength", [2, 3])
def test_the_cover_holds_every_combination_that_can_occur(strength: int) -> None:
    def refusal(c: Configuration) -> tuple[str, str] | None:
        wrong = c.compile == "deepcompile" and c.backend != "deepspeed"
        return ("deepcompile belongs to deepspeed", "") if wrong else None

    possible, refused = product(BASE, AXES, refusal)
    chosen = {cell.name for cell in cover(possible, strength, limit=10_000)}
    settings = {cell.name: values for cell, values in possible}

    def parts(values: Any) -> set[frozenset[Any]]:
        return {frozenset(part) for part in itertools.combinations(sorted(values, key=str), strength)}

    occurring = set().union(*(parts(values) for values in settings.values()))
    assert set().union(*(parts(settings[name]) for name in chosen)) == occurring
    assert len(chosen) < len(possible) / 2
    assert len(cover(possible, strength, limit=5)) == 5
    last = {cell for cell, _ in possible[-3:]}
    again = cover(possible, strength, limit=10_000, measured=last.__contains__)
    assert set(again[:3]) == last
    assert set().union(*(parts(settings[cell.name]) for cell in again)) == occurring
    lost = [set(one.settings) for one in never(possible, refused, strength)]
    assert all({("backend", "ddp"), ("compile", "deepcompile")} <= one or
               {("backend", "fsdp2"), ("compile", "deepcompile")} <= one for one in lost)  # fmt: skip
    assert lost


def _row(
    losses: list[float], device: str = "cpu", kernels: list[str] | None = None, breaks: int = 0, compiling: int = 0
) -> dict[str, Any]:
    graphs = {"graphs": 1, "graph_breaks": breaks, "recompiles": 0, "compile_seconds": 0.0}
    effective = {"device": device, "attention_kernels": kernels or [], "graphs": graphs}
    last = [{"forward": 2.0, "backward": 4.0}] * compiling
    asked = {"dtype": "fp32", "attn": "flash_attention_2", "compile": "none"}
    times = [{"forward": 0.1, "backward": 0.2}] * 9 + last
    return {
        "status": "ok", "message": "", "configuration": asked, "runs": [{"losses": losses, "times": times}],
        "summary": {"effective": effective},
    }  # fmt: skip


def test_classes_of_rows_that_ended_well() -> None:
    good = [5.0, 4.0, 3.0]
    assert classify(_row(good), good).kind == "ok"
    assert classify(_row(good, breaks=3), good).detail == "3 graph breaks"
    assert classify(_row(good, "cuda:0", ["efficient"]), good).kind == "slow path"
    assert classify(_row(good, "cuda:0", ["flash"]), good).kind == "ok"
    assert classify(_row(good, compiling=2), good).detail.startswith("2 of 11 timed steps")
    wrong = classify(_row([5.0, 4.1, 3.0], breaks=3), good)
    assert (wrong.kind, wrong.detail.split(",")[0]) == ("wrong loss", "step 2: 4.10000")
    failed = {"status": "oom", "message": "rank 0: out of memory"}
    assert classify(failed, good) == classify(failed, None)
    assert classify(failed, good).kind == "out of memory"


def test_cells_of_one_model_share_a_reference() -> None:
    found: list[Cell] = eight(BASE, "blocks")
    assert len({cell.configuration.content_hash() for cell in found}) == 8
    assert len({reference(cell.configuration) for cell in found}) == 1


def test_a_dry_run_shows_the_cells_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dry-run", "--device", "cpu", "--output", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 8
    assert sum("unsupported: flash_attention_2" in line for line in shown) == 4
    assert list(tmp_path.iterdir()) == []

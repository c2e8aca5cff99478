"""Rows can be told apart by their names."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.configuration import Configuration
from bench.report.rows import collect
from bench.results.results import build_result, write_json
from bench.sweep.labels import labels, words
from tests.bench.light_sweep import TINY, LightSweep

BASE = Configuration(num_layers=2)
VALUES = {
    "backend": st.sampled_from(["ddp", "deepspeed", "a.b:Mine", "c.d:Mine"]), "zero_stage": st.sampled_from([2, 3]),
    "model": st.sampled_from(["llama-tiny", "x/y", "z/y"]), "seq_len": st.sampled_from([8, 16]),
    "micro_batch_size": st.sampled_from([None, 1, 4]), "lr": st.sampled_from([1e-4, 1.0000001e-4]),
    "dtype": st.sampled_from(["bf16", "fp32"]), "gradient_checkpointing": st.booleans(),
    "inputs": st.sampled_from([None, "a", "b"]), "loss": st.sampled_from(["sft", "ppo"]),
    "input_hash": st.sampled_from([None, "1", "2"]), "random_seed": st.sampled_from([1, 2]),
}  # fmt: skip
CHANGES = st.fixed_dictionaries(VALUES)


@given(st.lists(CHANGES, min_size=1, max_size=6))
def test_no_two_configurations_have_one_label(changes: list[dict[str, object]]) -> None:
    cells = {replace(BASE, **each) for each in changes}  # type: ignore[arg-type]
    cells = {cell if cell.backend == "deepspeed" else replace(cell, zero_stage=2) for cell in cells}
    assert len(set(labels(cells).values())) == len(cells)


def test_a_label_says_what_differs_and_nothing_else() -> None:
    cells = [
        replace(BASE, seq_len=length, gradient_checkpointing=saves) for length in (8, 16) for saves in (True, False)
    ]
    assert list(labels(cells).values()) == [
        f"ddp-1x-L2-sdpa-packed-{'' if saves else 'no-'}gradient-checkpointing-seq{length}"
        for length in (8, 16)
        for saves in (True, False)
    ]
    assert list(labels(cells[:1]).values()) == ["ddp-1x-L2-sdpa-packed"]


@given(st.lists(CHANGES, min_size=1, max_size=6))
def test_what_nobody_has_set_may_go_unsaid(changes: list[dict[str, object]]) -> None:
    cells = list({replace(BASE, **each) for each in changes})  # type: ignore[arg-type]
    names = [name for name in VALUES if name not in ("backend", "inputs", "input_hash")]
    whole, short = (words(cells, names, usual) for usual in (True, False))
    assert len(set(short)) == len(set(whole))
    assert not any(word in text for text in short for word in ("mb-default", "no-gradient-checkpointing"))


@pytest.mark.parametrize("name", sorted({f.name for f in fields(Configuration)} - {"zero_stage"}))
def test_every_setting_is_told(name: str) -> None:
    value = getattr(BASE, name)
    other = not value if isinstance(value, bool) else (value or 0) + 1 if not isinstance(value, str) else "m.n:other"
    if name in ("inputs", "input_hash"):
        other = "other"
    assert len(set(labels([BASE, replace(BASE, **{name: other})]).values())) == 2


def test_rows_of_a_sweep_keep_their_names_when_it_goes_on(tmp_path: Path) -> None:
    cells = [replace(TINY, micro_batch_size=size) for size in (1, 2)]
    rows = LightSweep(cells, tmp_path, processes=1, quiet=True, choose=lambda _: "").run()
    assert [row["label"] for row in rows] == ["ddp-2x-sdpa-packed-mb1", "ddp-2x-sdpa-packed-mb2"]
    more = LightSweep([*cells, replace(TINY, micro_batch_size=1, seq_len=16)], tmp_path, processes=1, quiet=True,
                      choose=lambda _: "")  # fmt: skip
    assert [row["label"] for row in more.run()] == [
        f"ddp-2x-sdpa-packed-{x}" for x in ("mb1-seq8", "mb2-seq8", "mb1-seq16")
    ]
    assert len(more.started) == 1


def test_a_report_tells_rows_of_equal_settings_apart(tmp_path: Path) -> None:
    for folder, version in (("old/x", "2.12"), ("new/x", "2.13"), ("new/y", "2.13")):
        described = {"versions": {"torch": version}, "gpus": [{"name": "H200"}]}
        result = build_result(BASE, [], status="oom", message="out of memory", environment=described)
        write_json(tmp_path / folder / "result.json", result)
    rows = collect([tmp_path]).rows
    assert sorted(row.label for row in rows) == [
        "ddp-1x-L2-sdpa-packed (torch 2.12, old/x)", "ddp-1x-L2-sdpa-packed (torch 2.13, new/x)",
        "ddp-1x-L2-sdpa-packed (torch 2.13, new/y)",
    ]  # fmt: skip
    assert sorted(row.label for row in collect([tmp_path / "old", tmp_path / "new" / "x"]).rows) == [
        "ddp-1x-L2-sdpa-packed (torch 2.12)", "ddp-1x-L2-sdpa-packed (torch 2.13)",
    ]  # fmt: skip


def test_all_published_rows_can_be_told_apart() -> None:
    rows = collect([Path(__file__).resolve().parents[2] / "reports" / "h200"]).rows
    assert len(rows) > 100
    assert len({row.label for row in rows}) == len(rows)

"""The memory model against every peak recorded on H200s, and by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.configuration import parse
from bench.predict.layout import Layout
from bench.predict.memory import by_moment, estimate
from bench.predict.moments import CONSTANTS
from bench.predict.sizes import layout
from reports.h200.scripts.memory_fit import Peak, fit, peaks, spread
from rules.models import resolve

RESULTS = Path(__file__).resolve().parents[2] / "reports" / "h200" / "results"
LLAMA = resolve("llama-3.1-8b")
TABLE = 128256 * 4096


@pytest.fixture(scope="module")
def recorded() -> list[Peak]:
    return peaks(RESULTS)


def test_held_out_peaks_are_within_a_tenth(recorded: list[Peak]) -> None:
    held = [peak for peak in recorded if not peak.fitted]
    assert len(held) > 80
    middle, worst = spread(held)
    assert middle < 0.005
    assert worst < 0.085


@pytest.mark.parametrize("parallel", ["tp", "ring", "layers32", "prototype"])
def test_kinds_that_no_constant_was_fitted_to(recorded: list[Peak], parallel: str) -> None:
    kinds = {
        "tp": lambda peak: peak.layout.tp > 1,
        "ring": lambda peak: peak.layout.ring > 1,
        "layers32": lambda peak: peak.facts.layers == 32,
        "prototype": lambda peak: peak.name.startswith("prototype"),
    }
    chosen = [peak for peak in recorded if kinds[parallel](peak)]
    assert len(chosen) >= 10
    assert not any(peak.fitted for peak in chosen)
    assert spread(chosen)[0] < {"tp": 0.04, "ring": 0.03, "layers32": 0.01, "prototype": 0.01}[parallel]


def test_constants_are_those_that_the_fit_finds(recorded: list[Peak]) -> None:
    fitted = [peak for peak in recorded if peak.fitted]
    assert len(fitted) == 21
    assert fit(fitted) == CONSTANTS


def test_a_wrong_model_would_be_seen(recorded: list[Peak]) -> None:
    # Without the head's setting, and with logits in fp32 for all, most rows are off: the comparison can fail.
    full = [replace(peak, layout=replace(peak.layout, head="full")) for peak in recorded]
    assert spread(full)[1] > 0.2


def test_logits_by_hand() -> None:
    # 2,048 tokens, 1,024 of them in a chunk: 16-bit logits, fp32 ones and their log-softmax.
    layout = Layout(backend="ddp", seq_len=2048)
    vocab = LLAMA.vocab
    assert by_moment(LLAMA, layout)["forward"].logits == 1024 * vocab * 10
    assert by_moment(LLAMA, replace(layout, head="full"))["forward"].logits == 2048 * vocab * 10
    assert by_moment(LLAMA, replace(layout, head="compiled"))["forward"].logits == 2048 * vocab * 2


def test_sequence_parallelism_splits_the_embedding() -> None:
    """FSDP2, tp 2, 8 layers on two H200s, with --async-tp and without."""
    lines = (RESULTS.parent / "tensor_parallel" / "run30_31.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4
    for row in map(json.loads, lines):
        expected = estimate(LLAMA.with_layers(8), layout(parse({**row["settings"], "num_gpus": 2}), 8192)).allocated
        assert abs(expected / 1e9 / row["memory_gb"] - 1) < 0.05


def test_tables_that_no_plan_splits() -> None:
    layers = LLAMA.parameters - 2 * TABLE
    zero = estimate(LLAMA, Layout(backend="deepspeed", tp=2, dp=2))
    fsdp = estimate(LLAMA, Layout(backend="fsdp2", tp=2, dp=2))
    assert zero.parameters == 2 * (layers / 2 + 2 * TABLE)
    assert fsdp.parameters == 4 * (layers / 2 + TABLE + TABLE / 2) / 2


def test_last_reduction_of_fsdp_by_hand() -> None:
    # Embedding and head in one group on 4 ranks, few tokens: bf16 gradients (2 bytes) beside fp32 ones (4).
    short = LLAMA.with_layers(2)
    end = by_moment(short, Layout(backend="fsdp2", dp=4, seq_len=128, embedding_apart=False))["end 1"]
    assert end.working == 2 * TABLE * (2 + 4)
    assert end.gradients == 4 * (short.parameters - 2 * TABLE) / 4

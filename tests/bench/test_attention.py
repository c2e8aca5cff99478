"""`bench attention`, its kernels against exact attention, and the choice behind `--attn auto`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyperf
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench.attention import choice, kernels, needs, worker
from bench.attention.shapes import Heads, Shape
from bench.cli import main as bench
from bench.configuration import Configuration
from bench.results import environment
from bench.sweep.sweep import refusal

CPU = torch.device("cpu")
HEADS = Heads(4, 2, 16)


def test_every_kernel_has_a_name_and_a_need() -> None:
    assert set(kernels.KERNELS) == set(needs.NAMES)


@given(documents=st.integers(1, 4), length=st.integers(1, 12), heads=st.integers(1, 3), size=st.integers(1, 8))
def test_flops_are_two_products_of_half_a_square(documents: int, length: int, heads: int, size: int) -> None:
    """2 FLOPs per multiplication, of scores and of their product with the values; half of the square is not needed."""
    whole = sum(2 * 2 * heads * size for _ in range(documents) for _ in range(length) for _ in range(length))
    assert Shape(documents, length, Heads(heads, heads, size)).flops == whole / 2


@pytest.mark.parametrize("text", ["0", "3x", "x8", "-1", "8,9", "1x0", "9" * 12])
def test_lengths_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="lengths are"):
        Shape.parse(text, HEADS)


@pytest.mark.parametrize("documents", [1, 3])
@pytest.mark.parametrize("kernel", needs.ON_CPU)
def test_kernels_are_exact_in_fp32(kernel: str, documents: int) -> None:
    shape = Shape(documents, 48, HEADS)
    if kernel == "sdpa_flash" and documents > 1:
        with pytest.raises(kernels.UnsupportedError, match="no packed documents"):
            worker.error(kernel, shape, CPU, torch.float32)
        return
    assert worker.error(kernel, shape, CPU, torch.float32) < 1e-6


def test_a_kernel_that_looks_past_its_document_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_long(shape: Shape, device: torch.device) -> kernels.Attend:
        return kernels._sdpa(None)(Shape(1, shape.positions, shape.heads), device)

    monkeypatch.setitem(kernels.KERNELS, "sdpa", one_long)
    assert worker.error("sdpa", Shape(1, 32, HEADS), CPU, torch.float32) < 1e-6
    assert worker.error("sdpa", Shape(2, 32, HEADS), CPU, torch.float32) > 0.1


def test_nothing_measured_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--lengths", "32", "--heads", "2x1x8", "--device", "cpu", "--output", str(tmp_path)]
    assert bench(["attention", "--kernels", "flash_attention_4", *flags]) == 1
    assert " unsupported " in capsys.readouterr().out


def test_the_command_writes_rows_and_a_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = bench([
        "attention", "--kernels", "sdpa,sdpa_flash,flex", "--lengths", "32,2x16", "--heads", "2x1x8", "--device", "cpu",
        "--warmup", "1", "--steps", "2", "--output", str(tmp_path),
    ])  # fmt: skip
    assert status == 0, capsys.readouterr()
    rows = json.loads((tmp_path / "attention" / "attention.json").read_text(encoding="utf-8"))["rows"]
    found = {(row["kernel"], Shape.of(row["shape"]).label()): row for row in rows}
    assert {key: row["status"] for key, row in found.items()} == {
        ("sdpa", "32"): "ok", ("sdpa", "2x16"): "ok", ("sdpa_flash", "32"): "ok", ("sdpa_flash", "2x16"): "unsupported",
        ("flex", "32"): "unsupported", ("flex", "2x16"): "unsupported",
    }  # fmt: skip
    row = found["sdpa", "32"]
    assert row["flops_per_second"]["forward"] == pytest.approx(2 * 2 * 8 * 32**2 / row["seconds"]["forward"])
    assert row["error"] < 1e-2  # in whatever type a machine's default is
    suite = pyperf.BenchmarkSuite.load(str(tmp_path / "attention" / "benchmarks.json"))
    assert set(suite.get_benchmark_names()) == {
        f"{kernel}:{label}:2x1x8:{phase}"
        for kernel, label in (("sdpa", "32"), ("sdpa", "2x16"), ("sdpa_flash", "32"))
        for phase in ("forward", "backward")
    }
    assert all(benchmark.get_nrun() == 2 and benchmark.get_nvalue() == 4 for benchmark in suite)
    assert "needs a GPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--heads", "3x2x8"], "do not share 2 key heads"),
        (["--lengths", "2y3"], "lengths are"),
        (["--device", "cuda"], "no GPU is visible"),
    ],
)
def test_bad_flags_are_one_line(
    flags: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "gpus", list)
    assert bench(["attention", "--output", str(tmp_path), *flags]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


HOPPER = 9.0
BASE = Configuration(
    attn="auto", model="llama-3.1-8b", num_layers=2, dtype="bf16", micro_batch_size=4, full_length=True
)


@pytest.mark.parametrize(
    ("changes", "capability", "size", "first"),
    [
        ({}, HOPPER, 128, "flash_attention_4"),
        ({}, HOPPER, 192, "flash_attention_3"),
        ({}, 8.0, 128, "flash_attention_2"),
        ({}, 7.5, 128, "sdpa"),
        ({}, None, 128, "sdpa"),
        ({"dtype": "fp32"}, HOPPER, 128, "sdpa"),
        ({"ring": 2, "num_gpus": 2}, HOPPER, 128, "sdpa"),
        ({"micro_batch_size": 1}, 8.0, 128, "sdpa"),
        ({"micro_batch_size": 1, "full_length": False}, 8.0, 128, "flash_attention_2"),
        ({"packing": False}, 8.0, 128, "sdpa"),
        ({"packing": False, "full_length": False}, 8.0, 128, "flash_attention_2"),
    ],
)
def test_the_fastest_kernel_that_fits_comes_first(
    changes: dict[str, object], capability: float | None, size: int, first: str
) -> None:
    assert choice.candidates(replace(BASE, **changes), capability, size)[0] == first  # type: ignore[arg-type]


def test_auto_takes_what_is_installed_and_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a Hopper GPU with FlashAttention-2 and -4: the latter, unless the table or the machine rules it out."""
    from bench.sweep import availability

    there = {"flash_attn", "flash-attn-4"}
    known = availability.installed
    monkeypatch.setattr(environment, "gpus", lambda: [{"name": "H"}])
    monkeypatch.setattr(environment, "compute_capability", lambda: HOPPER)
    monkeypatch.setattr(availability, "installed", lambda name: name in there or known(name))
    choice._runs.cache_clear()
    assert choice.resolve(BASE).attn == "flash_attention_4"
    assert choice.resolve(replace(BASE, device="cpu")).attn == "sdpa"
    assert choice.resolve(replace(BASE, attn="eager")).attn == "eager"
    assert refusal(BASE, 1) is None
    there.remove("flash-attn-4")
    choice._runs.cache_clear()
    assert choice.resolve(BASE).attn == "flash_attention_2"
    choice._runs.cache_clear()

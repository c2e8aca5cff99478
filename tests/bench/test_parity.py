"""Every strategy, on every legal split of up to four processes, against one process in fp32."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.configuration import Configuration
from bench.strategies.limits import refusal
from tests.bench import jobs
from tests.bench.pool import run_group

STEPS = 3
BASE = Configuration(train_batch_size=8, micro_batch_size=1, max_norm=1.0, dtype="fp32", device="cpu")
KINDS = {
    "ddp": {"backend": "ddp"},
    "fsdp2": {"backend": "fsdp2"},
    "fsdp2-keep": {"backend": "fsdp2", "reshard_after_forward": False},
    **{f"zero{stage}": {"backend": "deepspeed", "zero_stage": stage} for stage in range(4)},
}
SPLITS = {"plain": (1, 1), "tp2": (2, 1), "ring2": (1, 2), "tp2-ring2": (2, 2)}
SIZES = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16, "hidden_size": 128,
    "intermediate_size": 352, "num_layers": 2, "vocab_size": 1024,
}  # fmt: skip


def make(kind: str, world: int, split: str) -> Configuration:
    tp, ring = SPLITS[split]
    config = replace(BASE, num_gpus=world, tp=tp, ring=ring, **KINDS[kind])
    # AutoTP takes bf16 only, so that cell is compared in bf16.
    return replace(config, dtype="bf16") if config.backend == "deepspeed" and tp > 1 else config


CELLS = list(itertools.product(KINDS, (1, 2, 4), SPLITS))
LEGAL = [cell for cell in CELLS if refusal(make(*cell), "cpu", SIZES) is None]
RULED_OUT = {cell: found[0] for cell in CELLS if (found := refusal(make(*cell), "cpu", SIZES)) is not None}


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[float]], str]:
    """Losses and gradients of one process without any strategy but the plain one, in fp32."""
    path = str(tmp_path_factory.mktemp("reference") / "gradients.pt")
    (result,) = run_group(1, jobs.train, make("ddp", 1, "plain"), "llama-tiny", STEPS, None, path)
    return result, path


def test_every_cell_is_run_or_ruled_out_by_the_table() -> None:
    assert len(LEGAL) >= 36
    impossible = {("plain", 1): None, ("tp2", 1): "world-divisible", ("ring2", 1): "world-divisible"}
    for (_, world, split), constraint in RULED_OUT.items():
        assert constraint, (world, split)
        expected = impossible.get((split, world))
        assert expected is None or constraint in (expected, "dp-at-least-one", "backend-tp")


def table() -> str:
    """Every cell as Markdown: the type in which it is compared, or the constraint that rules it out."""
    columns = list(itertools.product((1, 2, 4), SPLITS))
    lines = [
        "| | " + " | ".join(f"{world}, {split}".removesuffix(", plain") for world, split in columns) + " |",
        "| --- " * (len(columns) + 1) + "|",
    ]
    for kind in KINDS:
        cells = (RULED_OUT.get((kind, *column)) or make(kind, *column).dtype for column in columns)
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_listed_cells_are_these() -> None:
    assert table() in (Path(__file__).resolve().parents[2] / "reports" / "parity.md").read_text(encoding="utf-8")


def _cell(kind: str, world: int, split: str) -> Any:
    """Each time: every split of fsdp2, and of the others one process, two and their largest split; slow: the rest."""
    largest = next(each for each in reversed(LEGAL) if each[0] == kind)
    quick = kind == "fsdp2" or (world, split) in ((1, "plain"), (2, "plain")) or (kind, world, split) == largest
    return pytest.param(kind, world, split, marks=[] if quick else [pytest.mark.slow], id=f"{kind}-{world}-{split}")


@pytest.mark.parametrize(("kind", "world", "split"), [_cell(*cell) for cell in LEGAL])
def test_losses_and_gradients_are_those_of_one_process(
    kind: str, world: int, split: str, reference: tuple[dict[str, list[float]], str]
) -> None:
    expected, path = reference
    config = make(kind, world, split)
    tolerance = 2e-2 if config.dtype == "bf16" else 1e-4
    results = run_group(world, jobs.train, config, "llama-tiny", STEPS, path, None)
    assert all(result == results[0] for result in results), "ranks disagree"
    found = results[0]
    assert found["losses"] == pytest.approx(expected["losses"], rel=tolerance)
    assert found["norms"] == pytest.approx(expected["norms"], rel=tolerance)
    assert max(found["gradient_errors"]) < tolerance


@pytest.mark.parametrize("model", ["qwen3-tiny", "gemma-3-tiny"])
def test_tensor_parallelism_fits_norms_per_head_and_tied_embeddings(model: str, tmp_path: Path) -> None:
    path = str(tmp_path / "gradients.pt")
    (expected,) = run_group(1, jobs.train, make("ddp", 1, "plain"), model, 2, None, path)
    for split in (False, True):
        config = replace(make("fsdp2", 2, "tp2"), sequence_parallel=split)
        results = run_group(2, jobs.train, config, model, 2, path, None)
        assert results[0]["losses"] == pytest.approx(expected["losses"], rel=1e-4)
        assert max(results[0]["gradient_errors"]) < 1e-4


@pytest.mark.parametrize("plan", ["optimized", "llama"])
def test_sequence_parallelism_gives_the_same_gradients(
    plan: str, reference: tuple[dict[str, list[float]], str]
) -> None:
    expected, path = reference
    config = replace(make("fsdp2", 2, "tp2"), sequence_parallel=True, tp_plan=plan)
    results = run_group(2, jobs.train, config, "llama-tiny", STEPS, path, None)
    assert results[0]["losses"] == pytest.approx(expected["losses"], rel=1e-6)
    assert results[0]["gradient_errors"][0] < 1e-6  # before the first step: later ones have Adam's differences in them
    assert max(results[0]["gradient_errors"]) < 1e-4


def test_gradients_that_skip_the_ring_are_caught(reference: tuple[dict[str, list[float]], str]) -> None:
    """The comparison can fail: sharded over data-parallel ranks alone, ring ranks train on part of the gradient."""
    _, path = reference
    results = run_group(2, unreduced_ring, make("fsdp2", 2, "ring2"), path)
    assert max(results[0]["gradient_errors"]) > 0.05


def unreduced_ring(config: Configuration, path: str) -> dict[str, list[float]]:
    from bench.strategies.fsdp2 import FSDP2Strategy

    original = FSDP2Strategy.setup_distributed

    def without_ring(self: FSDP2Strategy, *args: object) -> None:
        original(self, *args)
        assert self.mesh is not None
        self.shard_mesh = self.mesh["dp"]

    FSDP2Strategy.setup_distributed = without_ring  # type: ignore[method-assign]
    return jobs.train(config, "llama-tiny", 1, path, None)


def test_zero_3_takes_ranks_with_different_numbers_of_head_chunks(
    reference: tuple[dict[str, list[float]], str],
) -> None:
    """ZeRO-3 gathers the head's weight at each call; ranks that call it a different number of times would hang."""
    expected, _ = reference
    results = run_group(2, small_chunks, make("zero3", 2, "plain"))
    assert results[0]["losses"] == pytest.approx(expected["losses"], rel=1e-4)


def small_chunks(config: Configuration) -> dict[str, list[float]]:
    import bench.measure.model

    bench.measure.model.HEAD_CHUNK = 20  # rows hold up to 48 tokens: one, two or three chunks
    return jobs.train(config, "llama-tiny", STEPS, None, None)


@pytest.mark.parametrize(("world", "split"), [(1, "plain"), (2, "plain"), (4, "tp2")])
def test_fsdp2_reduces_a_head_of_its_own(world: int, split: str, reference: tuple[dict[str, list[float]], str]) -> None:
    """A head that is called once is sharded apart from the embedding; on one rank nothing is copied to reduce."""
    expected, path = reference
    results = run_group(world, full_head, make("fsdp2", world, split), path)
    assert results[0]["losses"] == pytest.approx(expected["losses"], rel=1e-4)
    assert max(results[0]["gradient_errors"]) < 1e-4


def full_head(config: Configuration, path: str) -> dict[str, list[float]]:
    from functools import partial

    jobs.build_actor = partial(jobs.build_actor, head="full")  # this process's own
    return jobs.train(config, "llama-tiny", STEPS, path, None)

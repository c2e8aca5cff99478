"""Whether two runs learn alike: curves with rounding, offsets and faults, and what real H200 runs say."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.cli import main as bench
from bench.compare.convergence import check_fall, fall, first_norms
from bench.compare.pairs import Limits, compare
from bench.compare.series import Run, Series
from bench.compare.sources import read

H200 = Path(__file__).resolve().parents[2] / "reports" / "h200"
LEARNING = {"falls-otherwise", "other-gradients"}
NAMES = ("A", "B")

curves = given(
    steps=st.integers(24, 200), start=st.floats(2, 12), share=st.floats(0.1, 0.9), seed=st.integers(0, 2**32 - 1)
)


def curve(steps: int, start: float, share: float, seed: int, pace: float = 1.0) -> list[float]:
    """A loss that falls by `share` of `start` at pace 1, with batches that are a percent of the fall harder or easier.
    Runs of one seed see the same batches."""
    batches = random.Random(seed)
    return [
        start * (1 - share * min(pace * n / steps, 1.0)) + start * share * batches.uniform(-0.01, 0.01)
        for n in range(steps)
    ]


def kinds(a: list[float], b: list[float]) -> set[str]:
    """The findings on learning of a comparison at the default limits."""
    pair = compare(Run("A", loss=Series.of("loss", a)), Run("B", loss=Series.of("loss", b)), Limits())
    return {finding.kind for finding in pair.findings} & LEARNING


@curves
def test_rounding_and_offsets_are_no_finding(steps: int, start: float, share: float, seed: int) -> None:
    losses, noise = curve(steps, start, share, seed), random.Random(~seed)
    rounded = [loss * (1 + noise.gauss(0, 0.003)) for loss in losses]
    walk, place = [], 0.0
    for loss in losses:  # differences that stay once they are there, up to a hundredth of the fall
        place = max(-0.01, min(0.01, place + noise.uniform(-0.005, 0.005)))
        walk.append(loss + place * start * share)
    for other in (losses, rounded, walk, [loss + 0.04 * start for loss in losses]):
        assert kinds(losses, other) == kinds(other, losses) == set()


@curves
def test_a_run_that_learns_more_slowly_is_found_both_ways(steps: int, start: float, share: float, seed: int) -> None:
    slow, whole = curve(steps, start, share, seed, pace=0.7), curve(steps, start, share, seed)
    assert kinds(whole, slow) == kinds(slow, whole) == {"falls-otherwise"}
    # Below the threshold it is none, and neither is it where one quarter says otherwise.
    found = fall(Series.of("loss", whole), Series.of("loss", slow))
    assert found is not None
    assert found.least == pytest.approx(0.3, abs=0.06)
    assert check_fall(found, 0.4, NAMES) == []
    assert kinds(whole, slow[: steps // 2] + whole[steps // 2 :]) == set()


@curves
def test_neither_gaps_nor_values_that_are_no_numbers_hide_it(steps: int, start: float, share: float, seed: int) -> None:
    slow, whole = curve(steps, start, share, seed, pace=0.5), curve(steps, start, share, seed)
    broken = [math.nan if n % 7 == 3 else loss for n, loss in enumerate(slow)]
    assert kinds(whole, broken) == {"falls-otherwise"}
    assert kinds(whole, slow[: steps - 3]) == {"falls-otherwise"}
    shuffled = random.Random(seed).sample(list(enumerate(slow)), steps)
    assert fall(Series.of("a", whole), Series("b", dict(shuffled))) == fall(Series.of("a", whole), Series.of("b", slow))


@given(st.lists(st.floats(1.9, 2.1), min_size=12, max_size=60), st.integers(0, 2**32 - 1))
def test_a_loss_that_does_not_clearly_fall_says_nothing(losses: list[float], seed: int) -> None:
    other = [loss + random.Random(seed).gauss(0, 0.01) for loss in losses]
    level = sorted(losses)  # rises
    assert fall(Series.of("a", level), Series.of("b", other)) is None
    assert fall(Series.of("a", losses[:11]), Series.of("b", other)) is None


def test_few_digits_are_no_difference() -> None:
    exact = [5.0 - 0.004 * n for n in range(24)]
    printed = Series("b", {n: round(loss - 0.004, 2) for n, loss in enumerate(exact)}, digits=3)
    found = fall(Series.of("a", exact), printed)
    assert found is not None
    assert found.least == 0.0


norms = st.lists(st.floats(0.5, 50), min_size=1, max_size=20)


@given(norms, st.sampled_from((0.5, 0.8, 1.25, 2.0)))
def test_scaled_gradients_are_found_at_the_first_steps(values: list[float], factor: float) -> None:
    losses = Series.of("loss", [3.0] * len(values))
    right, wrong = Series.of("g", values), Series.of("g", [value * factor for value in values])
    assert first_norms((losses, losses), (right, right)) == 0.0
    assert first_norms((losses, losses), (right, wrong)) == pytest.approx(factor - 1)
    later = Series("g", {n: v * (factor if n >= 3 else 1.0) for n, v in right.values.items()})
    assert first_norms((losses, losses), (right, later)) == pytest.approx(0.0)


def test_a_first_loss_of_three_digits_is_the_same_within_them() -> None:
    exact, printed = Series.of("loss", [2.004, 1.9]), Series("loss", {0: 2.01, 1: 1.9}, digits=3)
    norm = Series.of("g", [1.0, 1.0])
    assert first_norms((exact, printed), (norm, norm)) == 0.0
    assert first_norms((exact, Series.of("loss", printed.values.values())), (norm, norm)) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda loss, norm: (Series.of("loss", [0.0, 0.1]), norm),  # of an advantage: it says nothing of the data
        lambda loss, norm: (Series.of("loss", [3.01, 2.0]), norm),
        lambda loss, norm: (Series.of("loss", [math.nan, 2.0]), norm),
        lambda loss, norm: (Series("loss", {1: 3.0, 2: 2.0}), norm),
        lambda loss, norm: (loss, Series.of("g", [0.0, 0.0])),
        lambda loss, norm: (loss, Series.of("g", [math.nan, math.inf])),
        lambda loss, norm: (loss, None),
        lambda loss, norm: (None, norm),
    ],
)
def test_gradients_are_compared_only_where_they_must_be_equal(
    change: Callable[[Series, Series], tuple[Series | None, Series | None]],
) -> None:
    loss, norm = Series.of("loss", [3.0, 2.0]), Series.of("g", [1.0, 1.0])
    changed = change(loss, norm)
    assert first_norms((loss, changed[0]), (norm, changed[1])) is None
    assert first_norms((changed[0], loss), (changed[1], norm)) is None


@pytest.mark.parametrize("path", ["suite/logs", "results/parity.jsonl", "results/parity_run5.jsonl"])
def test_sums_in_another_order_are_right_and_a_ring_without_its_sum_is_not(path: str) -> None:
    """Bf16 runs of DeepSpeed, DDP and FSDP2, with and without tensor parallelism and rings: a tenth of a percent."""
    for a, b in permutations(read(H200 / path), 2):
        pair = compare(a, b, Limits())
        found = {finding.kind for finding in pair.findings} & LEARNING
        if "broken" in a.name or "broken" in b.name:
            assert found == LEARNING
        else:
            assert found == set()
            assert pair.fall is not None
            assert pair.first_norms is not None
            assert max(map(abs, pair.fall.lags)) < 0.002
            assert abs(pair.first_norms) < 0.001


def test_the_limits_are_flags_and_other_settings_are_not_held_against_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, pace, norm in (("a", 1.0, 1.0), ("b", 0.9, 1.2)):
        rows = [{"step": n, "loss": v, "grad_norm": norm} for n, v in enumerate(curve(40, 7.0, 0.1, 1, pace))]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    paths = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    assert bench(["compare", *paths, "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)["pairs"][0]
    assert {finding["kind"] for finding in found["findings"] if finding["fails"]} == LEARNING
    assert found["first_norms"] == pytest.approx(0.2)
    assert found["fall"]["lags"][-1] == pytest.approx(0.1, abs=0.01)
    assert bench(["compare", *paths, "--fall-threshold", "20%"]) == 1
    assert bench(["compare", *paths, "--fall-threshold", "20%", "--first-norm-threshold", "0.3"]) == 0
    one, other = (read(Path(path))[0] for path in paths)
    one.identity = {"lr": 1e-4}
    for changed in ({"lr": 1e-5}, {"lr": 1e-4, "num_gpus": 2}):  # twice the processes take twice the samples
        other.identity = changed
        assert compare(one, other, Limits()).passed
    other.identity = {"lr": 1e-4, "num_gpus": 2, "tp": 2}
    assert not compare(one, other, Limits()).passed

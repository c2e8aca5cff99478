"""`bench compare`: logs in the shapes that trainers write, series against themselves changed, times over processes."""

from __future__ import annotations

import json
import math
import random
import re
import statistics
import time
from dataclasses import asdict
from pathlib import Path

import pyperf
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bench.cli import main as bench
from bench.compare.logs import read_log
from bench.compare.losses import align
from bench.compare.pairs import Limits, compare
from bench.compare.series import Run, Series
from bench.compare.significance import change
from bench.compare.sources import read
from bench.configuration import Configuration
from bench.problems import InputError
from bench.results.results import build_result, write_json, write_suite

LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"
LOSSES = st.lists(st.floats(0.01, 1e6), min_size=4, max_size=40)


def log(name: str) -> Run:
    return read(LOGS / f"{name}.log")[0]


def process(seconds: float, losses: list[float], seed: int = 0) -> dict[str, object]:
    """What one worker process writes: four measured steps that jitter by a percent."""
    noise = random.Random(seed)
    times = [
        {phase: seconds * share * noise.uniform(0.99, 1.01) for phase, share in (("forward", 1.0), ("backward", 2.0))}
        for _ in range(4)
    ]
    memory = {kind: {"forward": 10**9, "backward": 2 * 10**9} for kind in ("allocated", "reserved")}
    return {
        "times": times, "warmups": times[:1], "losses": losses, "grad_norms": losses, "memory": memory,
        "tokens": {"real": 400.0, "positions": 512.0, "squares": 40_000.0}, "parameters": 1000, "effective": {},
        "matmul_flops": 1e12,
    }  # fmt: skip


def measured(folder: Path, seconds: list[float], losses: list[float], **settings: object) -> Path:
    """A result directory as `bench run` writes it, one process per entry of `seconds`."""
    configuration = Configuration(num_layers=2, device="cpu", **settings)  # type: ignore[arg-type]
    runs = [process(each, losses, seed) for seed, each in enumerate(seconds)]
    result = build_result(configuration, runs, status="ok")
    write_json(folder / "result.json", result)
    write_suite(folder / "benchmarks.json", result)
    return folder


def test_progress_bars_give_each_step_its_own_loss() -> None:
    run = log("sft")
    assert run.loss is not None
    assert run.grad_norm is not None
    assert run.loss.values == {0: 2.5, 1: 2.25, 2: 2.01, 3: 1.9, 4: 1.8, 5: 1.75}
    assert run.grad_norm.values[4] == 7.25
    assert (run.status, run.loss.repeated, run.loss.digits) == ("ok", [], 3)


def test_a_bar_that_counts_before_it_shows() -> None:
    bars = [f"step:  {n}%|#| {n}/3 [00:01<00:02, 1.0it/s, loss={loss}]" for n, loss in ((1, 3.5), (2, 3.25), (3, 3))]
    found = read_log(bars, "x").loss
    assert found is not None
    assert found.values == {0: 3.5, 1: 3.25, 2: 3.0}


def test_dictionaries_iterations_and_infinities() -> None:
    ppo, trainer, iterations = log("ppo_ray"), log("trainer"), log("iterations")
    assert ppo.loss is not None
    assert ppo.loss.name == "policy_loss"
    assert {k: v for k, v in ppo.loss.values.items() if k < 3} == {1: 0.0125, 2: -0.004}
    assert math.isnan(ppo.loss.values[3])
    assert trainer.loss is not None
    assert trainer.loss.values == {0: 1.5, 1: 1.25, 2: 1.0}
    assert trainer.grad_norm is not None
    assert trainer.grad_norm.values[2] == math.inf
    assert iterations.loss is not None
    assert iterations.loss.values == {10: 9.25, 20: 8.5}
    assert iterations.grad_norm is not None
    assert iterations.grad_norm.values == {10: 3.5, 20: 2.25}


def test_bars_of_an_actor_between_those_of_its_critic() -> None:
    run = log("ppo_bars")
    assert run.loss is not None
    assert run.loss.values == {0: -0.0125, 1: 0.02, 2: -0.5}
    assert run.grad_norm is not None
    assert run.grad_norm.values == {0: 1.5, 1: 1.25, 2: 2.0}


@pytest.mark.parametrize(("name", "steps"), [("ppo_bars", (0, 1)), ("ppo_ray", (1, 2))])
def test_a_loss_asked_for_by_name(name: str, steps: tuple[int, int]) -> None:
    (run,) = read(LOGS / f"{name}.log", "critic_loss")
    assert run.loss is not None
    assert {step: run.loss.values[step] for step in steps} == dict(zip(steps, (1.5, 1.25), strict=True))


def test_replay_logs_tell_time_and_outcome() -> None:
    good, bad = log("replay_ok"), log("replay_failed")
    assert (good.status, good.metrics["forward"].means) == ("ok", [0.5])  # over midnight
    assert bad.status == "crash"
    assert bad.message.startswith("torch._dynamo.exc.TorchRuntimeError: Dynamo failed")
    assert bad.empty
    assert not compare(good, bad, Limits()).passed


@given(LOSSES, st.randoms(use_true_random=False))
def test_the_order_of_json_lines_does_not_matter(losses: list[float], order: random.Random) -> None:
    lines = [json.dumps({"step": n, "gpt_loss": loss}) for n, loss in enumerate(losses)]
    shuffled = order.sample(lines, len(lines))
    first, second = read_log(lines, "a").loss, read_log(shuffled, "b").loss
    assert first is not None
    assert second is not None
    assert first.values == second.values == dict(enumerate(losses))
    assert align(first, second, 0.0).beyond is None


@given(LOSSES)
def test_every_way_of_writing_says_the_same(losses: list[float]) -> None:
    ways = {
        "json": [json.dumps({"global_step": n, "loss": v}) for n, v in enumerate(losses)],
        "dictionary": [f"Global step {n}: {{'reward': 1.0, 'loss': {v!r}}}" for n, v in enumerate(losses)],
        "text": [f"[titan] step: {n}  loss: {v!r}  memory: 3GiB" for n, v in enumerate(losses)],
        "bar": [f"Train: 0%| | {n}/{len(losses)} [00:01<?, loss={v!r}]" for n, v in enumerate([*losses, losses[-1]])],
    }
    for way, lines in ways.items():
        found = read_log(lines, way).loss
        assert found is not None, way
        assert found.values == dict(enumerate(losses)), way


@given(LOSSES, st.floats(0.01, 0.2), st.data())
def test_one_step_beyond_the_threshold_is_the_one_named(
    losses: list[float], threshold: float, data: st.DataObject
) -> None:
    step = data.draw(st.integers(0, len(losses) - 1))
    factor = data.draw(st.sampled_from((1 + 1.5 * threshold, 1 - 1.5 * threshold)))
    changed = [loss * (factor if n == step else 1.0) for n, loss in enumerate(losses)]
    found = align(Series.of("loss", losses), Series.of("loss", changed), threshold)
    assert (found.beyond, found.max_step, found.number_beyond) == (step, step, 1)
    assert found.max_difference == pytest.approx(1.5 * threshold)
    assert "beyond" in {finding.kind for finding in found.findings if finding.fails}


@given(st.lists(st.floats(0.1, 100), min_size=4, max_size=40, unique=True), st.randoms(use_true_random=False))
def test_permuted_series_differ_where_a_value_has_moved(losses: list[float], order: random.Random) -> None:
    permuted = order.sample(losses, len(losses))
    found = align(Series.of("loss", losses), Series.of("loss", permuted), 0.0)
    moved = [step for step, (a, b) in enumerate(zip(losses, permuted, strict=True)) if a != b]
    assert found.beyond == (moved[0] if moved else None)
    assert found.number_beyond == len(moved)
    assert ("beyond" in {finding.kind for finding in found.findings if finding.fails}) == bool(moved)


@given(LOSSES, st.integers(1, 3))
def test_truncated_series_fail_unless_allowed(losses: list[float], cut: int) -> None:
    whole, short = Series.of("loss", losses), Series.of("loss", losses[:-cut])
    for pair in ((whole, short), (short, whole)):
        found = align(*pair, 0.05)
        assert found.beyond is None
        assert [f.kind for f in found.findings if f.fails] == ["missing"]
        assert not any(f.fails for f in align(*pair, 0.05, lengths_matter=False).findings)


@given(st.lists(st.floats(0.1, 100), min_size=8, max_size=30, unique=True), st.sampled_from((-2, -1, 1, 2)))
def test_shifted_series_are_recognised(losses: list[float], shift: int) -> None:
    first = Series.of("loss", losses)
    second = Series("loss", {step + shift: value for step, value in first.values.items()})
    found = align(first, second, 0.01)
    assume(found.beyond is not None)
    kinds = {finding.kind for finding in found.findings}
    assert {"missing", "shifted", "beyond"} <= kinds
    assert align(first.rebased(), second.rebased(), 0.0).findings == align(first, first, 0.0).findings


@given(LOSSES, st.sets(st.integers(0, 39), min_size=1), st.sampled_from((math.nan, math.inf, -math.inf)))
def test_values_that_are_no_numbers_always_fail(losses: list[float], where: set[int], value: float) -> None:
    assume(any(step < len(losses) for step in where))
    broken = Series.of("loss", [value if n in where else loss for n, loss in enumerate(losses)])
    for pair in ((Series.of("loss", losses), broken), (broken, Series.of("loss", losses)), (broken, broken)):
        found = align(*pair, 1e9)
        assert found.beyond == min(step for step in where if step < len(losses))
        assert {"not-finite", "beyond"} <= {finding.kind for finding in found.findings if finding.fails}


def test_a_null_is_a_loss_that_is_no_number() -> None:
    lines = [{"step": 0, "loss": 3.0}, {"step": 1, "loss": None, "grad_norm": None}, {"step": 2, "loss": 2.0}]
    open_ones = [{"step": 0, "loss": None}, {"step": 3, "loss": None, "eval_loss": 2.5}]
    run = read_log([json.dumps(line) for line in [*lines, *open_ones]], "x")
    assert run.loss is not None
    assert sorted(run.loss.values) == [0, 1, 2]
    assert math.isnan(run.loss.values[1])
    assert run.loss.values[0] == 3.0
    assert run.grad_norm is None
    assert "not-finite" in {finding.kind for finding in compare(run, run, Limits()).findings if finding.fails}


def test_a_loss_that_does_not_fall_is_told_and_fails_on_request() -> None:
    run = Run("flat", loss=Series.of("loss", [2.0, 2.1, 2.0, 2.1]))
    assert compare(run, run, Limits()).passed
    assert "not-falling" in {finding.kind for finding in compare(run, run, Limits()).findings}
    assert not compare(run, run, Limits(must_fall=True)).passed


def test_steps_given_twice_are_told() -> None:
    run = read_log(['{"step": 1, "loss": 2.0}', '{"step": 1, "loss": 1.0}', '{"step": 2, "loss": 1.0}'], "x")
    assert run.loss is not None
    assert (run.loss.repeated, run.loss.values[1]) == ([1], 1.0)


def test_many_steps_of_one_process_are_one_sample() -> None:
    """Two processes whose means differ by chance: pooled steps would call that significant."""
    assert change("forward", "second", [1.00, 1.04], [1.05, 1.01]).significant is False
    assert change("forward", "second", [1.00, 1.01, 0.99], [1.20, 1.21, 1.19]).significant is True
    assert change("forward", "second", [1.0], [2.0]).significant is None
    same = change("forward", "second", [1.0, 1.0], [1.0, 1.0])
    assert (same.ratio, same.significant) == (1.0, False)


def test_the_interval_is_welch_s() -> None:
    from scipy import stats

    a, b = [1.0, 1.1, 1.05, 0.98], [1.3, 1.2, 1.5]
    means = statistics.fmean(a), statistics.fmean(b)
    shares = [v / means[0] for v in a], [v / means[1] + math.log(means[1] / means[0]) for v in b]
    wanted = stats.ttest_ind(shares[1], shares[0], equal_var=False)
    interval, found = wanted.confidence_interval(0.95), change("t", "second", a, b)
    assert (found.low, found.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))


@settings(max_examples=25)
@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6), st.lists(st.floats(0.5, 2.0), min_size=2, max_size=6))
def test_exchanging_the_sides_inverts_the_interval(a: list[float], b: list[float]) -> None:
    forth, back = change("t", "second", a, b), change("t", "second", b, a)
    assert None not in (forth.low, forth.high, back.low, back.high)
    assert forth.ratio == pytest.approx(1 / back.ratio)
    assert forth.significant == back.significant
    if math.isfinite(forth.high) and math.isfinite(back.high):  # type: ignore[arg-type]
        assert forth.low == pytest.approx(1 / back.high, rel=1e-6)  # type: ignore[operator]


def test_result_directories_and_pyperf_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = [3.0, 2.5, 2.0, 1.5]
    a = measured(tmp_path / "a", [0.1, 0.101, 0.099], losses, backend="ddp")
    b = measured(tmp_path / "b", [0.13, 0.131, 0.129], [*losses, 1.4], backend="fsdp2")
    assert bench(["compare", str(a), str(b)]) == 0  # a longer warm-up is no failure, a slower backend neither
    assert bench(["compare", str(a), str(b), "--max-slowdown", "0.5"]) == 0
    capsys.readouterr()
    assert bench(["compare", str(a), str(b), "--max-slowdown", "10%", "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)["pairs"][0]
    metrics = {metric["metric"]: metric for metric in found["metrics"]}
    assert set(metrics) == {"forward", "backward", "step", "peak_memory"}
    assert metrics["step"]["ratio"] == pytest.approx(1.3, rel=0.02)
    assert (metrics["step"]["significant"], metrics["step"]["processes"]) == (True, [3, 3])
    assert [finding["kind"] for finding in found["findings"] if finding["fails"]] == ["slower"]
    suites = [str(folder / "benchmarks.json") for folder in (a, b)]
    suite = pyperf.BenchmarkSuite.load(suites[0])
    assert suite.get_benchmark_names()
    assert suite.get_total_duration() < 10  # bytes are no seconds
    assert bench(["compare", *suites, "--max-slowdown", "10%"]) == 1
    assert bench(["compare", *suites, "--max-slowdown", "0.5"]) == 0


def test_rows_of_two_models_are_not_comparable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = measured(tmp_path / "two", [0.1, 0.1], [3.0, 2.0], backend="ddp")
    four = tmp_path / "four"
    result = build_result(
        Configuration(backend="ddp", num_layers=4, device="cpu"), [process(0.1, [3.0, 2.0], 1)], status="ok"
    )
    write_json(four / "result.json", result)
    assert bench(["compare", str(two), str(four)]) == 1
    told = capsys.readouterr().out
    assert "are not the same model: nothing follows from their numbers" in told
    assert told.splitlines()[-1].startswith("not comparable  ")
    assert bench(["compare", str(two), str(four), "--format", "json"]) == 1
    (pair,) = json.loads(capsys.readouterr().out)["pairs"]
    assert (pair["status"], pair["passed"]) == ("not comparable", False)


def test_trainings_from_one_seed_are_of_one_model_wherever_they_lie(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A suite and a later `sft` each make the checkpoint of a seed; its name says what it was made of."""
    for name, seed in (("a", "0123456789ab"), ("b", "0123456789ab"), ("other", "ba9876543210")):
        where = {"model": str(tmp_path / name / f"seed-llama-tiny-{seed}"), "num_layers": 2, "device": "cpu"}
        inputs = {"inputs": str(tmp_path / name / "data-1"), "input_hash": "5" * 12}
        result = build_result(Configuration(**where, **inputs), [process(0.1, [3.0, 2.0], 1)], status="oom")
        result |= {"status": "ok", "summary": {}}
        write_json(tmp_path / name / "row" / "result.json", result)
    assert bench(["compare", str(tmp_path / "a" / "row"), str(tmp_path / "b" / "row")]) == 0
    assert "note" not in capsys.readouterr().out
    assert bench(["compare", str(tmp_path / "a" / "row"), str(tmp_path / "other" / "row")]) == 1
    assert "are not the same model" in capsys.readouterr().out


def test_a_slowdown_that_noise_could_be_is_undecided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = [3.0, 2.0]
    a = measured(tmp_path / "a", [0.10, 0.14], losses)
    b = measured(tmp_path / "b", [0.16, 0.12], losses, lr=1e-3)
    assert bench(["compare", str(a), str(b), "--max-slowdown", "0.1"]) == 3
    shown = capsys.readouterr().out
    assert "\nundecided  ddp-1x-L2-sdpa-packed (" in shown
    assert "lr 0.0001 → 0.001" in shown
    assert re.search(r"undecided \(0\.4\d to 3\.\d\d times\): 1\d processes each would decide", shown)
    assert bench(["compare", str(a), str(b), "--max-slowdown", "0.5"]) == 0


def test_so_many_processes_decide() -> None:
    one, two = [0.10, 0.14], [0.16, 0.12]
    enough = change("t", "second", one, two).deciding
    assert enough is not None
    for count, decided in ((enough // 4, False), (enough, True)):
        a, b = (_like(each, count) for each in (one, two))  # samples of `count` with the same means and variances
        assert change("t", "second", a, b).significant is decided
    assert change("t", "second", [1.0, 1.1], [1.1, 1.0]).deciding is None
    assert change("t", "second", [1.0, 1.001], [2.0, 2.001]).deciding is None


def _like(values: list[float], count: int) -> list[float]:
    count += count % 2
    middle, spread = statistics.fmean(values), statistics.stdev(values) * math.sqrt((count - 1) / count)
    return [middle + spread * (-1) ** n for n in range(count)]


SLOW = {
    "ours": lambda n, s: json.dumps({"step": n, "gpt_loss": 2.0, "seconds": s}),
    "deepspeed": lambda n, s: (
        f"epoch=0/micro_step={n}/global_step={n}, RunningAvgSamplesPerSec=1.0, "
        f"CurrSamplesPerSec={8 / s:.4f}, MemAllocated=1.2GB"
    ),
    "megatron": lambda n, s: f" iteration {n:8}/ 100 | elapsed time per iteration (ms): {s * 1e3:.1f} | lm loss: 2.0",
    "torchtitan": lambda n, s: f"[titan] step: {n}  loss: 2.0  memory: 3GiB(4%)  tps: {8192 / s:,.0f}  tflops: 1.2",
    "verl": lambda n, s: f"step:{n} - actor/pg_loss:2.0 - timing_s/gen:9.0 - timing_s/step:{s:.3f}",
    "bar": lambda n, s: f"Train:  {n}%|#| {n}/40 [00:01<00:02, {1 / s:.2f}it/s, loss=2.0]",
    "slow bar": lambda n, s: f"  {n}%|#| {n}/40 [00:01<00:02, {s * 10:.2f}s/it]\n{{'loss': 2.0, 'epoch': {n}}}",
}


@pytest.mark.parametrize("trainer", SLOW)
def test_what_is_slower_fails_in_every_kind_of_log(
    trainer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loading = "Loading checkpoint shards: 100%|##########| 4/4 [00:00<00:00, 100.30it/s]\n"
    for name, seconds in (("before", 0.5), ("same", 0.51), ("after", 0.75)):
        # The first steps compile.
        lines = [SLOW[trainer](n, seconds * (20 if n < 3 else 1)) for n in range(1, 30)]
        (tmp_path / f"{name}.log").write_text(loading + "\n".join(lines) + "\n")
    before, same, after = (str(tmp_path / f"{name}.log") for name in ("before", "same", "after"))
    assert bench(["compare", before, after, "--max-slowdown", "0.1"]) == 1
    assert "after takes 50." in capsys.readouterr().out.replace("49.9", "50.0")
    assert bench(["compare", before, same, "--max-slowdown", "0.1"]) == 0


def test_a_limit_on_time_fails_where_there_is_no_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.log").write_text("\n".join(f"step: {n} loss: {3 - n / 10}" for n in range(9)))
    paths = [str(tmp_path / "a.log"), str(tmp_path / "b.log")]
    assert bench(["compare", *paths]) == 0
    assert bench(["compare", *paths, "--max-slowdown", "0.1"]) == 1
    assert "a and b have no time or rate in common" in capsys.readouterr().out


def test_two_sweeps_are_compared_row_by_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for stack, factor in (("old", 1.0), ("new", 1.5)):
        for backend in ("ddp", "fsdp2"):
            seconds = [0.1 * factor, 0.1001 * factor, 0.0999 * factor]
            measured(tmp_path / stack / backend, seconds, [3.0, 2.0], backend=backend)
    assert bench(["compare", str(tmp_path / "old"), str(tmp_path / "new"), "--max-slowdown", "0.2"]) == 1
    name = "fsdp2-1x-L2-sdpa-packed"
    assert f"FAIL  {name} (second)  against  {name} (first)" in capsys.readouterr().out
    measured(tmp_path / "new" / "more", [0.1, 0.1], [3.0, 2.0], backend="ddp", attn="eager")
    assert bench(["compare", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    assert f"not compared: ddp-1x-L2-eager-packed, only in {tmp_path / 'new'}" in capsys.readouterr().out
    assert bench(["compare", str(tmp_path / "old"), "--reference", "fsdp2-1x-L2-sdpa-packed"]) == 0
    measured(tmp_path / "one" / "ddp", [0.1, 0.1], [3.0, 2.0], backend="ddp")
    assert bench(["compare", str(tmp_path / "new"), str(tmp_path / "one")]) == 0  # a sweep and one of its rows, again
    told = capsys.readouterr().out
    assert "pass  ddp-1x-L2-sdpa-packed (second)" in told
    assert f"not compared: fsdp2-1x-L2-sdpa-packed, only in {tmp_path / 'new'}" in told


def test_rows_of_two_sweeps_find_each_other_by_their_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, backend in (("old", "ddp"), ("new", "ddp"), ("other", "fsdp2")):
        for row, length in enumerate((128, 64) if folder == "old" else (64, 128)):
            losses = [3.0, 2.0] if length == 64 else [5.0, 4.0]
            measured(tmp_path / folder / str(row), [0.1], losses, backend=backend, seq_len=length)
    old, new, other = (str(tmp_path / folder) for folder in ("old", "new", "other"))
    assert bench(["compare", old, new]) == 0
    capsys.readouterr()
    assert bench(["compare", old, other]) == 0
    assert "pass  fsdp2-1x-L2-sdpa-packed #2 (second)" in capsys.readouterr().out
    measured(tmp_path / "other" / "zero", [0.1], [3.0, 2.0], backend="deepspeed", seq_len=64)
    assert bench(["compare", old, other]) == 2  # which of the two is meant?


def test_failed_rows_fail(tmp_path: Path) -> None:
    configuration = Configuration(device="cpu")
    broken = build_result(configuration, [], status="oom", message="rank 0: out of memory")
    good = measured(tmp_path / "good", [0.1, 0.1], [2.0, 1.0])
    write_json(tmp_path / "bad" / "result.json", broken)
    assert asdict(configuration) == read(tmp_path / "bad")[0].identity
    assert bench(["compare", str(good), str(tmp_path / "bad")]) == 1


def test_old_flags_and_the_plot(tmp_path: Path) -> None:
    for name, drift in (("deepspeed", 1.0), ("fsdp2", 1.02), ("broken", 1.2)):
        lines = [json.dumps({"step": n, "gpt_loss": 3.0 * 0.9**n * (drift if n > 5 else 1.0)}) for n in range(12)]
        (tmp_path / f"{name}.log").write_text("\n".join(lines))
    plot = tmp_path / "comparison.png"
    flags = ["--deepspeed_log", str(tmp_path / "deepspeed.log"), "--threshold", "0.05", "--plot", str(plot)]
    assert bench(["compare", *flags, "--fsdp2_log", str(tmp_path / "fsdp2.log")]) == 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert bench(["compare", *flags, "--fsdp2_log", str(tmp_path / "broken.log")]) == 1
    assert bench(["compare", str(tmp_path)]) == 1  # a directory of logs: the first is the reference


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["absent.log"], ["empty.log", "sft.log"], ["sft.log"], ["words.txt", "sft.log"], ["binary", "sft.log"],
        ["folder", "sft.log"], ["sft.log", "sft.log", "--plot", "x.gif"], ["half.json", "sft.log"],
        ["sft.log", "sft.log", "--loss-key", "kto_loss"], ["sft.log", "sft.log", "--reference", "nobody"],
        ["sft.log", "sft.log", "--plot", "no/such/folder/x.png"], ["suite.json", "sft.log"],
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sft.log").write_bytes((LOGS / "sft.log").read_bytes())
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "words.txt").write_text("nothing to see here\n")
    (tmp_path / "binary").write_bytes(b"PK\x00\x01")
    (tmp_path / "folder").mkdir()
    (tmp_path / "suite.json").write_text('{"benchmarks": [1], "version": "1.0"}')
    (tmp_path / "half.json").write_text(
        json.dumps({"schema": 1, "configuration": {}, "label": "x", "status": "ok", "runs": [{}]})
    )
    assert bench(["compare", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bench compare: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "step:{n} - actor/pg_loss:{loss} - actor/grad_norm:0.5 - critic/score/mean:1.0",
        "Training epoch 0, iteration {n}/99 | global_step: {n} | reduced_train_loss: {loss} | grad_norm: 0.5",
        "(TaskRunner pid=12) step:{n} - actor/kl_loss:9.0 - actor/pg_loss:np.float64({loss}) - actor/grad_norm:0.5",
    ],
)
def test_losses_of_verl_and_nemo(line: str) -> None:
    run = read_log([line.format(n=n, loss=2.0 - n / 8) for n in range(4)], "x")
    assert run.loss is not None
    assert run.loss.values == {n: 2.0 - n / 8 for n in range(4)}
    assert run.grad_norm is not None
    assert run.grad_norm.values[3] == 0.5


def test_tensors_are_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"loss": torch.ones(2)}, tmp_path / "losses.pt")
    assert bench(["compare", str(tmp_path / "losses.pt"), str(LOGS / "sft.log")]) == 2
    assert "losses.pt: tensors, not a log; name a result directory" in capsys.readouterr().err


def test_memory_and_seconds_are_not_compared() -> None:
    from bench.compare.series import Metric

    seconds, memory = Run("a", metrics={"x": Metric("second", [1.0])}), Run("b", metrics={"x": Metric("byte", [1.0])})
    with pytest.raises(InputError, match="x is in second in a and in byte in b"):
        compare(seconds, memory, Limits())


def test_a_bar_that_is_drawn_often_is_read_in_time() -> None:
    """On one line, as a file keeps it; time that grows with the square would be minutes."""
    drawn = (f"\rTrain: 5%|#| {n}/60000 [00:01<00:02, gpt_loss={2 - n / 60000:.6f}]" for n in range(60_000))
    started = time.process_time()
    run = read_log(["".join(drawn)], "log")
    assert time.process_time() - started < 10
    assert run.loss is not None
    assert len(run.loss.values) == 60_000


def test_a_trainers_state_and_a_table_are_read_as_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [{"loss": 2.0 - 0.1 * n, "grad_norm": 1.0, "step": n} for n in range(1, 8)]
    (tmp_path / "a.log").write_text("\n".join(map(str, steps)))
    (tmp_path / "trainer_state.json").write_text(json.dumps({"epoch": 1.0, "log_history": steps}))
    (tmp_path / "b.csv").write_text("Step,Loss,note\n" + "\n".join(f"{s['step']},{s['loss']},x" for s in steps))
    assert bench(["compare", *(str(tmp_path / name) for name in ("a.log", "trainer_state.json", "b.csv"))]) == 0
    assert capsys.readouterr().out.count("pass  ") == 2
    assert bench(["report", str(tmp_path / "trainer_state.json"), str(tmp_path / "b.csv")]) == 0
    assert capsys.readouterr().out.count("  7  ") == 2

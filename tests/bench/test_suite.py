"""`bench suite` and `bench sft` as users start them, the criteria, and the data they train on."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bench import hub
from bench.cli import main as command
from bench.commands import sft, suite
from bench.configuration import ConfigurationError
from bench.inputs.captured import read_batches
from bench.inputs.dataset import ByteTokenizer, Sample, find_tokenizer, read_samples, tokenize
from bench.problems import InputError
from bench.suite import flags as suite_flags
from bench.suite.criteria import compare_losses, falls, judge
from bench.suite.data import once, prepare_data
from bench.suite.log import read_log
from bench.suite.settings import REORDERED, cells, from_environment, settle
from bench.suite.sweep import log_path

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--max-len", "96", "--quiet", "--device", "cpu"]
LOSSES = st.lists(st.floats(0.1, 20), min_size=2, max_size=30)


def bench(command: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **variables}
    line = [sys.executable, "-m", "bench", command, *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=400, env=environment, check=False)


@pytest.mark.slow
def test_eight_processes_train_alike_however_they_are_split(tmp_path: Path) -> None:
    """DP 2 × TP 2 × ring 2 among them, TP 4 × DP 2 and ring 4 × DP 2, in fp32."""
    places = ["--output-dir", str(tmp_path / "out"), "--log-dir", str(tmp_path / "logs")]
    done = bench(
        "suite", *SMALL, *places, "--threshold", "1e-4",
        NUM_GPUS="8", TP_SIZE="2,4", RING_SIZE="2,4", MAX_SAMPLES="32",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    runs = json.loads((tmp_path / "out" / "suite.json").read_text())["runs"]
    names = {"fsdp2", "fsdp2_tp2", "fsdp2_tp4", "fsdp2_ring2", "fsdp2_ring4", "fsdp2_tp2_ring2"}
    assert set(runs) == names | {"deepspeed"}
    assert all(run["passed"] and run["steps"] == 4 and run["max_difference"] < 1e-4 for run in runs.values())
    for name in runs:
        records = read_log(tmp_path / "logs" / f"{name}_test.log")
        assert [record["step"] for record in records] == [1, 2, 3, 4]


def test_a_stopped_run_goes_on_from_its_checkpoint_and_ends_alike(tmp_path: Path) -> None:
    flags = [*SMALL, "--num-gpus", "2", "--max-samples", "12", "--save-steps", "2", "--log-dir", str(tmp_path / "l")]
    whole = bench("sft", *flags, "--output-dir", str(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stderr
    expected = read_log(tmp_path / "l" / "fsdp2_test.log")
    start = [sys.executable, "-m", "bench", "sft", *flags, "--output-dir", str(tmp_path / "cut")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(start, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pattern = "*/checkpoints/latest"
    while not list((tmp_path / "cut").glob(pattern)):
        assert process.poll() is None, "it ended before its first checkpoint was seen"
    process.terminate()
    assert process.wait(60) == 143  # ended by SIGTERM
    folder = next((tmp_path / "cut").glob(pattern)).parent.parent
    first = int((folder / "checkpoints" / "latest").read_text().removeprefix("step"))
    assert first < 6
    resumed = bench("sft", *flags, "--output-dir", str(tmp_path / "cut"))
    assert resumed.returncode == 0, resumed.stderr
    found = read_log(tmp_path / "l" / "fsdp2_test.log")
    assert [r["gpt_loss"] for r in found] == pytest.approx([r["gpt_loss"] for r in expected], rel=1e-5)
    trained = json.loads((folder / "run.0.json").read_text())
    assert len(trained["times"]) + len(trained["warmups"]) == 6 - first  # the others came from the checkpoint


def test_variables_of_the_old_scripts_choose_the_runs() -> None:
    def names(**variables: str) -> list[str]:
        return [cell.name for cell in cells(settle(0, from_environment({"NUM_GPUS": "8", **variables})))]

    every = ["deepspeed", "fsdp2", "fsdp2_tp2", "fsdp2_ring2", "fsdp2_tp2_ring2"]
    assert names() == every
    assert names(SKIP_TP="1") == ["deepspeed", "fsdp2", "fsdp2_ring2"]
    assert names(SKIP_RING="1", SKIP_DEEPSPEED="0") == ["deepspeed", "fsdp2", "fsdp2_tp2"]
    assert names(SKIP_DEEPSPEED="1", SKIP_FSDP2="1") == every[2:]
    assert names(TP_SIZE="4", RING_SIZE="2")[-1] == "fsdp2_tp4_ring2"
    with pytest.raises(ConfigurationError, match="everything is skipped"):
        names(SKIP_DEEPSPEED="1", SKIP_FSDP2="1", SKIP_TP="1", SKIP_RING="1")
    with pytest.raises(ConfigurationError, match="NUM_GPUS: 'x' is not a whole number"):
        from_environment({"NUM_GPUS": "x"})
    with pytest.raises(ConfigurationError, match="at least 2 are needed"):
        settle(0, {"num_gpus": 8, "max_samples": 9})


def test_defaults_have_the_sizes_of_the_old_scripts_where_there_are_gpus() -> None:
    table = settle(8)
    assert (table.num_gpus, table.max_samples, table.tp_sizes, table.ring_sizes) == (8, 1000, (2,), (2,))
    assert (table.model, table.num_layers, table.dataset) == ("llama-3.1-8b", 4, "embedded")
    assert (table.zero_stage, table.log_dir) == (2, Path("logs"))
    given = {"MODEL": "m", "DATASET": "d.jsonl", "OUTPUT_DIR": "o", "LOG_DIR": "l", "MAX_SAMPLES": "48", "NUM_GPUS": ""}
    told = settle(4, from_environment(given))
    assert (told.model, told.dataset, told.output_dir, told.log_dir) == ("m", "d.jsonl", Path("o"), Path("l"))
    assert (told.max_samples, told.num_gpus) == (48, 4)
    flags = suite.parser().parse_args(["--model", "n", "--max-samples", "50", "--skip-ring", "--num-gpus", "2"])
    assert settle(4, from_environment(given), suite_flags.given(flags)).model == "n"  # flags win
    laptop = settle(0)
    assert (laptop.model, laptop.dataset, laptop.num_gpus, laptop.device) == ("llama-tiny", "embedded", 2, "cpu")


def test_old_options_mean_what_they_meant() -> None:
    flags = ["--fsdp_tensor_parallel_size", "2", "--ring_attn_size", "4", "--use_hf_tp_plan", "--local_rank", "0"]
    both = ["--deepcompile", "--no-flash-attn", "--output", "out", "--pretrain", "qwen3-tiny", "--packing_samples"]
    one = sft.parser().parse_args([*flags, *both])
    many = suite.parser().parse_args([*flags, *both])
    sizes = settle(0, suite_flags.given(many))
    assert (one.tp, one.ring, sizes.tp_sizes, sizes.ring_sizes) == (2, 4, (2,), (4,))
    for options in (one, many):
        settings = settle(0, suite_flags.given(options))
        assert (settings.compile, settings.attn, settings.model) == ("deepcompile", "sdpa", "qwen3-tiny")
        assert (settings.output_dir, settings.packing) == (Path("out"), True)
    assert settle(0, suite_flags.given(sft.parser().parse_args(["--flash-attn"]))).attn == "flash_attention_2"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--dataset", "/nowhere.jsonl"], "/nowhere.jsonl: cannot be read"),
        (["--max-len", "16"], "embedded needs --max-len 64"),
        (["--max-samples", "2"], "2 samples make 1 steps of 2"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(flags: list[str], message: str, tmp_path: Path) -> None:
    done = bench("suite", "--output-dir", str(tmp_path), "--log-dir", str(tmp_path), "--device", "cpu", *flags)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def _row(losses: list[float], status: str = "ok", steps: int | None = None) -> dict[str, Any]:
    runs = [{"steps": [{"step": n + 1, "gpt_loss": loss} for n, loss in enumerate(losses)]}] if status == "ok" else []
    return {"status": status, "message": "", "runs": runs, "configuration": {"steps": steps or len(losses)}}


@given(LOSSES, st.data())
def test_whatever_is_done_to_one_step_is_found(losses: list[float], data: st.DataObject) -> None:
    assert compare_losses(losses, losses, 0.0).max_difference == 0.0
    index = data.draw(st.integers(0, len(losses) - 1))
    for wrong in (losses[index] * 1.1, math.nan, math.inf):
        changed = [*losses[:index], wrong, *losses[index + 1 :]]
        assert compare_losses(losses, changed, 0.05).first_beyond == index + 1
    shorter = compare_losses(losses, losses[:-1], 0.05)
    assert (shorter.first_beyond, shorter.max_difference) == (len(losses), math.inf)


@given(LOSSES)
def test_what_falls_does_not_fall_backwards(losses: list[float]) -> None:
    assert not (falls(losses) and falls(losses[::-1]))
    assert not falls([*losses, math.nan])


def test_each_criterion_can_fail_by_itself() -> None:
    good = [4.0, 3.0, 2.0]
    rows = {
        "first": _row(good), "apart": _row([4.0, 3.0, 2.5]), "flat": _row([4.0, 4.0, 4.0]),
        "cut": _row(good[:2], "ok", 3), "crash": _row([], "crash", 3), "impossible": _row([], "unsupported", 3),
    }  # fmt: skip
    judged = {one.name: one for one in judge(rows, 0.05, REORDERED)[0]}
    assert {name: one.passed for name, one in judged.items()} == {
        "first": True, "apart": False, "flat": False, "cut": False, "crash": False, "impossible": None,
    }  # fmt: skip
    assert (judged["apart"].aligned, judged["apart"].falls) == (False, True)
    assert judged["cut"].finishes is False
    # Twice the difference of two equal runs is no difference between backends.
    rows = {"deepspeed": _row(good), REORDERED: _row([4.0, 3.0, 2.2]), "near": _row([4.0, 3.0, 2.3]),
            "far": _row([4.0, 3.0, 2.5])}  # fmt: skip
    judged_again, noise = judge(rows, 0.05, REORDERED)
    assert noise == pytest.approx(0.1)
    assert [one.passed for one in judged_again] == [True, True, True, False]


def test_a_run_that_stays_close_but_learns_half_as_much_is_not_aligned() -> None:
    """As FSDP2 on bf16 parameters does, or a ring whose gradients are not reduced."""
    whole, half = ([7.0 - pace * n / 24 + 0.002 * (n % 3) for n in range(24)] for pace in (0.2, 0.1))
    rows = {"first": _row(whole), "half": _row(half), "scaled": _row(whole)}
    for name, norm in (("first", 1.0), ("half", 1.0), ("scaled", 1.5)):
        for step in rows[name]["runs"][0]["steps"]:
            step["grad_norm"] = norm
    first, slow, scaled = judge(rows, 0.05, REORDERED)[0]
    assert (first.passed, first.learning) == (True, ())
    assert (slow.passed, slow.falls, slow.aligned) == (False, True, False)
    assert slow.learning[0].startswith("the loss of half falls 50.0% less than that of first")
    assert (scaled.aligned, scaled.difference) == (False, first.difference)
    assert scaled.learning[0].startswith("the first gradient norms of scaled are +50.0% off those of first")


def test_every_kind_of_file_gives_the_same_samples(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [{"question": f"q{n}", "response": f"a{n}", "id": n} for n in range(3)]
    table = pyarrow.Table.from_pylist(rows)
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "b.json").write_text(json.dumps(rows))
    pyarrow.parquet.write_table(table, tmp_path / "c.parquet")
    saved = tmp_path / "saved" / "train"
    saved.mkdir(parents=True)
    (saved / "state.json").write_text("{}")
    with pyarrow.ipc.new_stream(str(saved / "data-00000.arrow"), table.schema) as writer:
        writer.write_table(table)
    expected = [Sample(f"q{n}", f"a{n}") for n in range(3)]
    for name in ("a.jsonl", "b.json", "c.parquet", "saved"):
        assert list(read_samples(str(tmp_path / name), max_len=64, seed=0)) == expected
    keyed = read_samples(str(tmp_path / "a.jsonl"), max_len=64, seed=0, input_key="response", output_key="question")
    assert next(keyed) == Sample("a0", "q0")
    with pytest.raises(InputError, match=r"no column 'x' for --output-key; there are: id, question, response"):
        next(read_samples(str(tmp_path / "a.jsonl"), max_len=64, seed=0, output_key="x"))
    (tmp_path / "bad.jsonl").write_text('{"question": "q", "response": "a"}\n{"question"')
    with pytest.raises(InputError, match=r"bad\.jsonl:2: not JSON"):
        list(read_samples(str(tmp_path / "bad.jsonl"), max_len=64, seed=0))


def test_a_hub_out_of_reach_is_one_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing listens at this address; the client tries several times before it gives up."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(
        InputError, match=r"^--dataset some/data: no such file or directory, and not to be had"
    ) as found:
        next(read_samples("some/data", max_len=64, seed=0))
    assert "\n" not in str(found.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--dataset", "some/data"], "--dataset some/data: not on this disk, and 127.0.0.1 cannot be reached: "),
        (["--tokenizer", "some/one"], "--tokenizer some/one: not on this disk, and 127.0.0.1 cannot be reached: "),
        (["--model", "some/one"], "--model some/one: not on this disk, and 127.0.0.1 cannot be reached: "),
    ],
)
def test_what_the_hub_cannot_give_fails_at_once(
    flags: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens at this address, and no proxy leads there."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    started = time.monotonic()
    assert command(["suite", "--device", "cpu", *flags]) == 2
    assert time.monotonic() - started < 30
    error = capsys.readouterr().err
    assert error.startswith(f"bench suite: {told}")
    assert "; use " in error
    assert error.count("\n") == 1


def test_sft_keeps_its_log_where_its_output_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, folder in (([], "logs"), (["--output-dir", "o"], "o"), (["--output-dir", "o", "--log-dir", "l"], "l")):
        options = sft.parser().parse_args(flags)
        settings = settle(0, sft.log_beside(options), suite_flags.given(options))
        assert log_path(settings, "fsdp2") == Path(folder).resolve() / "fsdp2_test.log"


def test_no_default_needs_a_network(tmp_path: Path) -> None:
    for gpus in (0, 8):
        settings = settle(gpus)
        assert not any(hub.is_name(name) for name in (settings.model, settings.tokenizer, settings.dataset))
        assert isinstance(find_tokenizer(settings.tokenizer, settings.model), ByteTokenizer)
    assert isinstance(find_tokenizer("auto", "some/model-that-is-not-here"), ByteTokenizer)
    named = settle(8, {"model": "some/model"})
    assert (named.num_layers, named.dataset, named.lr) == (None, "embedded", 1e-5)


def test_only_answers_are_learned_and_long_samples_are_cut() -> None:
    samples = [Sample("ab", "cdé"), Sample("x" * 9, "lost"), Sample("", "0123456789")]
    batch = tokenize(samples, ByteTokenizer(), max_len=8, limit=5)
    batch.check(vocabulary=257)
    assert batch.lengths().tolist() == [7, 8]  # é is two bytes, and a sample ends with its end token
    assert batch.token_actions().sum(1).tolist() == [5, 8]
    assert int(batch.sequences[0, 6]) == ByteTokenizer.eos_token_id


def test_a_reordered_run_sees_each_steps_samples_on_other_ranks(tmp_path: Path) -> None:
    settings = settle(0, {"num_gpus": 2, "max_samples": 8, "train_batch_size": 4, "output_dir": tmp_path})
    plain, moved = (next(read_batches(prepare_data(settings, 1024, flag))) for flag in (False, True))
    expected = [3, 0, 1, 2, 7, 4, 5, 6]
    assert torch.equal(moved.sequences, plain.sequences[expected])
    assert torch.equal(moved.action_mask, plain.action_mask[expected])


def test_suites_that_share_an_output_make_their_data_once(tmp_path: Path) -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        time.sleep(0.3)
        (folder / "data").touch()

    with ThreadPoolExecutor(3) as suites:
        found = list(suites.map(lambda _: once(tmp_path / "data-1", make), range(3)))
    assert len(made) == 1
    assert all((folder / "data").is_file() for folder in found)


def test_embedded_samples_depend_on_the_seed_alone() -> None:
    first, again, other = (list(islice(read_samples("embedded", max_len=256, seed=s), 20)) for s in (1, 1, 2))
    assert first == again != other
    assert all(len((s.prompt + s.answer).encode()) < 256 for s in first)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_suite_that_is_stopped_in_its_first_moments_says_how_to_go_on(number: int, tmp_path: Path) -> None:
    """While it still imports what prepares the data, before any rank is there."""
    places = ["--output-dir", str(tmp_path / "out"), "--log-dir", str(tmp_path / "logs")]
    line = [sys.executable, "-m", "bench", "suite", *SMALL, *places]
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "out").exists():
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number, errors
    assert "the same command goes on" in output + errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("value", ["-3", "nan", "inf", "much"])
def test_a_threshold_that_is_none_is_refused_at_once(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.cli import main as bench

    with pytest.raises(SystemExit) as ended:
        bench(["suite", f"--threshold={value}", "--output-dir", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert "is no share: write 0.05 or 5%" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_backend_that_does_not_exist_is_told_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.cli import main as bench

    assert bench(["sft", "--backend", "dpd", "--device", "cpu", "--output-dir", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert told.startswith("bench sft: --backend dpd: use ")
    assert "did you mean ddp?" in told
    assert told.count("\n") == 1
    assert not (tmp_path / "out").exists()

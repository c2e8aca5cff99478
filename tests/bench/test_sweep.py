"""What a sweep keeps, skips, runs again and leaves behind, with workers that know no torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.commands.run import main
from bench.predict.oom_pruning import dominates
from bench.process.gpu_memory import used, wait_until_free
from bench.process.logs import CappedLog
from bench.process.sessions import oom_kills
from bench.process.stacks import Position, position
from bench.process.supervise import DEADLINES
from bench.process.verdict import hang, ranges, smaller, verdict_of
from tests.bench.light_sweep import TINY, LightSweep
from tests.bench.test_faults import started_by

ROOT = Path(__file__).resolve().parents[2]
SHORT = {**dict.fromkeys(DEADLINES, 5.0), "lost": 0.5}


def _by_layers(*layers: int) -> list:  # type: ignore[type-arg]
    return [replace(TINY, num_layers=number) for number in layers]


def test_what_is_larger_than_an_out_of_memory_is_skipped_until_asked_for(tmp_path: Path) -> None:
    cells = [*_by_layers(1, 2, 4), replace(TINY, num_layers=4, gradient_checkpointing=True)]

    def choose(configuration: object) -> str:
        return "load:out_of_memory" if configuration == cells[1] else ""

    sweep = LightSweep(cells, tmp_path, processes=2, quiet=True, choose=choose, deadlines=SHORT)
    rows = sweep.run()
    assert [row["status"] for row in rows] == ["ok", "oom", "skipped", "ok"]
    assert rows[2]["message"].startswith(f"dominated by {cells[1].directory(tmp_path).name}")
    assert "--micro-batch-size 2, --gradient-checkpointing, --backend fsdp2" in rows[1]["hint"]
    again = LightSweep(cells, tmp_path, processes=2, quiet=True, choose=choose, skip=False)
    assert [row["status"] for row in again.run()] == ["ok", "oom", "ok", "ok"]
    assert again.started == [cells[2]] * 2


def test_force_and_retry_failed_choose_what_runs_again(tmp_path: Path) -> None:
    cells = _by_layers(1, 2)

    def run(fault: str, **options: bool) -> tuple[list[str], int]:
        sweep = LightSweep(
            cells, tmp_path, processes=1, quiet=True, choose=lambda c: fault if c == cells[1] else "", **options
        )  # fmt: skip
        return [row["status"] for row in sweep.run()], len(sweep.started)

    assert run("warmup:exception") == (["ok", "crash"], 2)
    assert run("") == (["ok", "crash"], 0)
    assert run("", retry_failed=True) == (["ok", "ok"], 1)
    assert run("", force=True) == (["ok", "ok"], 2)


def test_the_progress_of_a_resumed_sweep_counts_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = _by_layers(1, 2, 4)
    LightSweep(cells[:2], tmp_path, processes=1, quiet=True, choose=lambda _: "").run()
    LightSweep(cells, tmp_path, processes=2, choose=lambda _: "").run()
    places = dict.fromkeys(line.split()[0] for line in capsys.readouterr().err.splitlines())
    assert list(places) == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]  # one process more for two rows, two for the third


def test_rows_that_do_not_train_alike_are_told(tmp_path: Path) -> None:
    cells = [replace(TINY, backend=backend, dtype="bf16") for backend in ("ddp", "fsdp2")]
    cells.append(replace(cells[1], random_seed=1))  # other weights: nothing to compare with

    def run(**options: bool) -> list[str]:
        sweep = LightSweep(
            cells, tmp_path, processes=1, quiet=True, **options,
            choose=lambda c: "" if c == cells[0] else "measure:wrong_loss",
        )  # fmt: skip
        return [row["status"] for row in sweep.run()]

    assert run() == ["ok", "ok", "ok"]
    assert run(check_losses=True) == ["ok", "loss_mismatch", "ok"]
    result = json.loads((cells[1].directory(tmp_path) / "result.json").read_text())
    assert result["message"] == "step 2: loss 0.99000, ddp-2x-sdpa-packed-seed42 has 0.90000"
    assert result["summary"]["last_loss"] == 0.99


def test_a_result_that_cannot_be_used_is_a_row(tmp_path: Path) -> None:
    (cell,) = _by_layers(1)

    class Damaging(LightSweep):
        def _finish(self, configuration, **verdict):  # type: ignore[no-untyped-def]
            (configuration.directory(self.output) / "run.0.json").write_text('{"times": []', encoding="utf-8")
            super()._finish(configuration, **verdict)

    (row,) = Damaging([cell], tmp_path, processes=1, quiet=True, choose=lambda _: "").run()
    assert row["status"] == "crash"
    assert row["message"].startswith("the result of its processes cannot be used: JSONDecodeError")
    assert json.loads((cell.directory(tmp_path) / "result.json").read_text())["status"] == "crash"


def _light_sweep(output: Path, fault: str, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.bench.light_sweep", str(output), fault, *more]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("fault", "more"), [("measure:hang", ()), ("load:stopped", ()), ("warmup:hang", ("elastic",))])
def test_killing_the_parent_leaves_no_process_and_no_half_result(
    fault: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    parent = _light_sweep(tmp_path, fault, "1", *more)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.glob("*/heartbeat.*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    assert started_by(parent.pid)
    parent.kill()
    parent.wait()
    while started_by(parent.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert started_by(parent.pid) == []
    assert not list(tmp_path.glob("*/result.json"))
    done = _light_sweep(tmp_path, "", "1")
    assert done.communicate(timeout=60)[0].split() == ["ok", "1"]


def test_ctrl_c_shows_the_rows_so_far_and_the_same_command_goes_on(tmp_path: Path) -> None:
    flags = ["--device", "cpu", "--num-gpus", "1", "--processes", "1", "--seq-len", "16", "--steps", "40", "--warmup",
             "1", "--backend", "ddp", "--num-layers", "1,2", "--quiet", "--output", str(tmp_path)]  # fmt: skip
    command = [sys.executable, "-m", "bench", "run", *flags]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    sweep = subprocess.Popen(command, cwd=ROOT, start_new_session=True, **streams)  # type: ignore[call-overload]
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("ddp-1x-L2-*/heartbeat.*.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does
    told, errors = sweep.communicate(timeout=60)
    assert (sweep.returncode, errors) == (130, "")
    assert [" ok " in line for line in told.splitlines()[2:4]] == [True, False]
    assert " interrupted " in told.splitlines()[3]
    assert f"the same command goes on; results are in {tmp_path}" in told
    assert started_by(sweep.pid) == []
    first = next(tmp_path.glob("ddp-1x-L1-*/run.0.json")).stat().st_mtime_ns
    done = subprocess.run(command, cwd=ROOT, timeout=120, check=True, **streams)  # type: ignore[call-overload]
    assert [" ok " in line for line in done.stdout.splitlines()[2:4]] == [True, True]
    assert next(tmp_path.glob("ddp-1x-L1-*/run.0.json")).stat().st_mtime_ns == first


def test_two_sweeps_on_one_output_measure_everything_once(tmp_path: Path) -> None:
    sweeps = [_light_sweep(tmp_path, "", "4") for _ in range(2)]
    told = [sweep.communicate(timeout=60) for sweep in sweeps]
    assert [out.split()[0] for out, _ in told] == ["ok,ok,ok,ok"] * 2
    assert sum(int(out.split()[1]) for out, _ in told) == 4
    assert sum(error.count("another sweep (process") for _, error in told) == 1


def test_an_output_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["--device", "cpu", "--output", str(tmp_path / "file" / "results")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "file/results" in error


def test_a_disk_that_fills_up_during_a_sweep_is_one_line(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from bench.commands.run import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200));"
        "sys.exit(main(['--device', 'cpu', '--backend', 'ddp', '--quiet', '--output', sys.argv[1]]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("bench run: results cannot be written: ")
    assert done.stderr.count("\n") == 1


def test_deadlines_are_read_strictly(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("load", "load=", "load=x", "lunch=5", "load=0"):
        with pytest.raises(SystemExit):
            main(["--deadline", text])
        assert "write PHASE=SECONDS" in capsys.readouterr().err


@given(st.lists(st.binary(max_size=3000), max_size=20), st.integers(1000, 6000))
def test_a_log_keeps_its_beginning_and_its_end(parts: list[bytes], limit: int) -> None:
    reading, writing = os.pipe()
    path = Path(os.environ["MESHPROOF_CACHE_DIR"]) / "log.txt"
    log = CappedLog(path, os.fdopen(reading, "rb"), limit)
    with os.fdopen(writing, "wb") as pipe:
        for part in parts:
            pipe.write(part)
            pipe.flush()
    log.close()
    whole, kept = b"".join(parts), path.read_bytes()
    assert len(kept) <= limit
    if len(whole) <= limit - 400:
        assert kept == whole
    else:
        half = limit // 2 - 200
        assert kept.startswith(whole[:half])
        assert kept.endswith(whole[-half:])


GLOO = """Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/usr/lib/python3.11/concurrent/futures/thread.py", line 90 in gather
  File "/usr/lib/python3.11/threading.py", line 995 in _bootstrap

Current thread 0x00007f2 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3011 in all_reduce
  File "/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "/home/me/train/loop.py", line 40 in step
  File "<frozen runpy>", line 88 in _run_code
"""
DDP_INIT = """Current thread 0x00007f2 (most recent call first):
  File "/venv/lib/python3.11/site-packages/torch/distributed/utils.py", line 286 in _verify_param_shape_across_processes
  File "/venv/lib/python3.11/site-packages/torch/nn/parallel/distributed.py", line 1064 in __init__
  File "/home/me/train/loop.py", line 12 in build
"""
PY_SPY = """Process 12: python train.py
Python v3.12.1 (/usr/bin/python3.12)

Thread 12 (idle): "MainThread"
    read (torch/storage.py:3)
    load_shards (train/weights.py:17)
    <module> (train.py:9)
"""


FROM_C = """Thread 0x00007f1 (most recent call first):
  File "/venv/lib/python3.12/site-packages/torch/_inductor/config.py", line 3 in <module>
  File "<frozen importlib._bootstrap>", line 241 in _call_with_frames_removed
  File "<frozen importlib._bootstrap>", line 1360 in _find_and_load

Current thread 0x00007f2 (most recent call first):
  File "/home/me/train/loop.py", line 12 in wait_for_file
  File "/home/me/train/loop.py", line 40 in <module>
"""
"""NCCL's recorder imports the compiler in a thread of its own, where Python has no outermost call."""


def test_stacks_tell_who_waits_where() -> None:
    assert position(FROM_C) == Position("", "train/loop.py:12 in wait_for_file")
    assert position(GLOO) == Position("all_reduce", "train/loop.py:40 in step")
    assert position(DDP_INIT) == Position("all_gather", "train/loop.py:12 in build")
    assert position(PY_SPY) == Position("", "torch/storage.py:3 in read")
    assert position("") == position("no dump\n") == Position()


def _beats(*phases: str) -> list[dict[str, object]]:
    return [
        {"rank": n, "phase": phase, "done": 0, "total": 0, "time": float(n), "pid": 1} for n, phase in enumerate(phases)
    ]


def test_the_hang_names_who_stayed_away() -> None:
    beats = _beats("measure", "measure", "measure", "measure")
    waits = Position("all_gather", "a/b.py:1 in f")
    verdict = hang(9, 4, beats, {0: waits, 1: waits, 2: Position("", "a/c.py:2 in g"), 3: waits}, {})
    assert verdict.rank == 2
    assert "rank 2 stayed away (in measure, at a/c.py:2 in g); ranks 0-1, 3 wait in all_gather" in verdict.message
    everyone = hang(9, 2, beats[:2], {0: waits, 1: Position("barrier", "a/d.py:3 in h")}, {})
    assert everyone.rank is None
    assert "different collectives" in everyone.message
    behind = hang(9, 3, _beats("measure", "load", "measure"), {}, {})
    assert (behind.rank, behind.phase) == (1, "load")


@given(st.sets(st.integers(0, 70), min_size=1))
def test_ranges_name_every_rank_once(ranks: set[int]) -> None:
    parts = ranges(list(ranks)).partition(" ")[2].split(", ")
    bounds = [[int(end) for end in part.split("-")] for part in parts]
    assert {rank for low, *high in bounds for rank in range(low, (high or [low])[0] + 1)} == ranks


def _error(folder: Path, rank: int, when: float, message: str) -> None:
    value = {"rank": rank, "phase": "measure", "time": when, "type": "RuntimeError", "message": message}
    (folder / f"error.{rank}.json").write_text(json.dumps(value), encoding="utf-8")


def test_the_first_failing_rank_is_not_the_one_that_lost_its_peer(tmp_path: Path) -> None:
    _error(tmp_path, 0, 1.0, "[gloo] Connection closed by peer [127.0.0.1]:1")
    lost = verdict_of(tmp_path, 1, 0, ranks=2)
    assert (lost.rank, lost.status) == (1, "crash")
    assert lost.message.endswith("then rank 0: [gloo] Connection closed by peer [127.0.0.1]:1")
    assert verdict_of(tmp_path, 1, 0, 2, {1: -signal.SIGKILL}).message == "killed by signal 9 (SIGKILL)"
    _error(tmp_path, 1, 2.0, "CUDA error: out of memory")
    both = verdict_of(tmp_path, 1, 0, 2, {1: -signal.SIGABRT, 0: 1})
    assert (both.rank, both.status) == (1, "oom")


SIZES = st.fixed_dictionaries(
    {
        "num_layers": st.sampled_from([1, 2, None]), "seq_len": st.sampled_from([8, 16]),
        "micro_batch_size": st.sampled_from([1, 2]), "zero_stage": st.sampled_from([2, 3]),
        "gradient_checkpointing": st.booleans(), "attn": st.sampled_from(["sdpa", "eager"]),
    }
)  # fmt: skip


@given(SIZES, SIZES)
def test_domination_is_a_strict_order(one: dict[str, object], two: dict[str, object]) -> None:
    a, b = (replace(TINY, backend="deepspeed", **values) for values in (one, two))  # type: ignore[arg-type]
    assert not dominates(a, a)
    assert not (dominates(a, b) and dominates(b, a))
    if dominates(a, b):
        assert a.attn == b.attn
        assert a.zero_stage >= b.zero_stage
        assert a.gradient_checkpointing or not b.gradient_checkpointing


def test_advice_offers_only_what_is_left() -> None:
    assert "--zero-stage 3" not in smaller(replace(TINY, backend="deepspeed", zero_stage=3))
    assert "--gradient-checkpointing" not in smaller(replace(TINY, gradient_checkpointing=True))
    assert "--micro-batch-size" not in smaller(replace(TINY, micro_batch_size=1))


def test_gpu_memory_is_that_of_visible_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 10, GPU-aa1\necho 20, GPU-bb2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert used() == [10, 20]
    for visible, memory in (("1", [20]), ("GPU-bb", [20]), ("1,0", [20, 10]), ("MIG-1", [10]), ("", [])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert used() == memory, visible


def test_gpu_memory_is_waited_for() -> None:
    readings = iter([[9000, 10], [9000, 10], [100, 10]])
    assert wait_until_free([0, 0], lambda: next(readings), wait=5.0) == ""
    assert wait_until_free([], lambda: [9000]) == ""
    assert "GPU 1 holds 9000 MiB, 5 before" in wait_until_free([0, 5], lambda: [0, 9000], wait=0.0)


def test_kills_for_memory_are_counted(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 3\noom_kill 2\n")
    assert oom_kills(events) == 2
    assert oom_kills(tmp_path / "none") == 0


def test_a_sweep_may_be_longer_than_the_limit_of_open_files(tmp_path: Path) -> None:
    program = (
        "import resource, sys; from pathlib import Path; from bench.process.locks import Locks\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
        "locks = Locks(Path(sys.argv[1]))\n"
        "[locks.claim(str(number), 'row') for number in range(200)]\n"
        "locks.release('7'); assert len(locks._held) == 199; locks.release(); assert not locks._held\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, check=True)

"""`bench.debug`: ranks that stop and go on together, shapes by rank, and runs without sharding."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from bdb import BdbQuit
from contextlib import redirect_stdout
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from bench import debug
from bench.commands.run import expand, main
from bench.configuration import Configuration
from bench.debug import pause
from bench.debug.session import place_and_step
from bench.debug.shapes import shape_of
from bench.debug.sharding import effective
from bench.launch import local
from bench.strategies import get_strategy
from tests.bench import jobs
from tests.bench.pool import run_group

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--num-gpus", "2", "--seq-len", "32", "--steps", "2", "--warmup", "1", "--device", "cpu", "--dtype", "fp32"]


class Typed(StringIO):
    """Somebody at the prompt who thinks before each line."""

    def __init__(self, lines: list[str], thought: float) -> None:
        super().__init__("".join(f"{line}\n" for line in lines))
        self.thought = thought

    def readline(self, *limit: Any) -> str:
        time.sleep(self.thought)
        return super().readline(*limit)


def _impatient_group(store: str) -> int:
    """Join a group that waits for a second at most; this rank's number."""
    dist.destroy_process_group()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo", store=dist.FileStore(store, size), rank=rank, world_size=size, timeout=timedelta(seconds=1)
    )
    return rank


def stop_together(store: str, lines: list[str], thought: float) -> tuple[str, float, float]:
    """What the prompt showed, the seconds spent at the breakpoint, and a sum over ranks after it."""
    rank = _impatient_group(store)
    sys.stdin, began = Typed(lines, thought), time.monotonic()
    with redirect_stdout(StringIO()) as shown:
        here = f"I am rank {rank}"
        debug.breakpoint(rank=1)
        waited = time.monotonic() - began
        total = torch.full((1,), float(len(here)))
        dist.all_reduce(total)
    return shown.getvalue(), waited, float(total)


def quit_together(store: str) -> str:
    _impatient_group(store)
    sys.stdin = Typed(["q"], 0.0)
    try:
        with redirect_stdout(StringIO()):
            debug.breakpoint()
            return "went on"
    except BdbQuit:
        return "quit"


def stop_alone(store: str) -> str:
    """Rank 1 passes the first breakpoint by; both stop at the second."""
    rank = _impatient_group(store)
    sys.stdin, pause.ARRIVAL = Typed(["c", "c"], 0.0), 0.3
    with redirect_stdout(StringIO()) as shown:
        if rank == 0:
            debug.breakpoint()
        debug.breakpoint()
        assert shown is not None
    return shown.getvalue()


def test_all_ranks_stop_and_go_on_beyond_the_groups_time_out(tmp_path: Path) -> None:
    waiting, asking = run_group(2, stop_together, str(tmp_path / "store"), ["p here", "c"], 0.8)
    assert "rank 1 stops at test_debug.py" in asking[0]
    assert "'I am rank 1'" in asking[0]
    assert waiting[0] == ""
    assert waiting[1] > 1.5  # twice 0.8 s, and the group's own patience is a second
    assert waiting[2] == asking[2] == 22


def test_one_rank_steps_on_while_the_others_wait_for_it(tmp_path: Path) -> None:
    waiting, asking = run_group(2, stop_together, str(tmp_path / "store"), ["n", "n", "n", "p total", "c"], 0.1)
    assert "tensor([22.])" in asking[0]
    assert asking[0].count("steps alone") == 1
    assert waiting[2] == 22


def test_quitting_ends_all_ranks(tmp_path: Path) -> None:
    assert run_group(2, quit_together, str(tmp_path / "store")) == ["quit", "quit"]


def test_a_rank_that_is_elsewhere_is_named(tmp_path: Path) -> None:
    shown, other = run_group(2, stop_alone, str(tmp_path / "store"))
    assert shown.count("not here: ranks 1") == 1
    assert "1 other rank waits" in shown
    assert other == ""


def logged(config: Configuration) -> list[str]:
    strategy, actor, _, _ = jobs.start(config)
    step = jobs.micro_batches(strategy, jobs.batches(1, 2, 1)[0])
    lines: list[str] = []
    with debug.log_shapes(actor, depth=1, write=lines.append):
        actor(input_ids=step[0].input_ids, labels=step[0].labels, **step[0].model_kwargs(False))
    actor(input_ids=step[0].input_ids, labels=step[0].labels, **step[0].model_kwargs(False))
    lines.append(shape_of(next(actor.parameters())))
    return lines


def test_shapes_are_logged_by_rank_before_and_after_a_forward_pass() -> None:
    config = Configuration(
        backend="fsdp2", num_gpus=2, train_batch_size=2, micro_batch_size=1, dtype="fp32", device="cpu"
    )
    for rank, lines in enumerate(run_group(2, logged, config)):
        before, after, parameter = lines
        assert before.startswith(f"[rank {rank}] before FSDPActor: input_ids=int64 (1, ")
        assert "position_ids=int64 (1, " in before
        assert after.startswith(f"[rank {rank}] after FSDPActor: ActorOutput(log_probs=float32 (1, ")
        assert parameter == "float32 whole (1024, 128) S(0), here (512, 128)"


def test_shapes_of_what_is_no_tensor() -> None:
    value = {"mask": None, "pair": (torch.zeros(2), 3), "many": [0] * 10}
    assert shape_of(value) == "dict(pair=[0=float32 (2,), 1=3], many=[" + ", ".join(f"{n}=0" for n in range(8)) + (
        ", and 2 more])"
    )


def test_a_run_stops_before_its_forward_pass_without_sharding(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "DEBUG_DISABLE_FSDP": "1"}
    flags = ["--backend", "fsdp2", "--break", "before-forward:2", "--log-shapes", "--output", str(tmp_path), *SMALL]
    done = subprocess.run(
        [sys.executable, "-m", "bench", "run", *flags], env=environment, capture_output=True, text=True, timeout=120,
        input="p type(actor).__name__, tuple(inputs.input_ids.shape)\nc\n", check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "train_step()" in done.stdout
    assert "-> local = forward_loss(actor, inputs" in done.stdout
    assert "('DistributedDataParallel', (1, " in done.stdout
    assert "DEBUG_DISABLE_FSDP=1: fsdp2 runs as ddp" in done.stderr
    assert all(
        done.stderr.count(f"[rank {rank}] {when} Distri") == 1 for rank in (0, 1) for when in ("before", "after")
    )
    assert list(tmp_path.iterdir()) == []


def test_without_sharding_it_is_another_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    sharded = Configuration(backend="fsdp2", reshard_after_forward=False)
    whole = effective(sharded, {"DEBUG_DISABLE_FSDP": "1"})
    assert (whole.backend, whole.content_hash() == sharded.content_hash()) == ("ddp", False)
    assert effective(sharded, {"DEBUG_DISABLE_FSDP": "0"}) == effective(sharded, {}) == sharded
    monkeypatch.setenv("DEBUG_DISABLE_FSDP", "1")
    assert [c.backend for c in expand({"backend": ["fsdp2", "deepspeed", "ddp"]}, 0)] == ["ddp", "deepspeed"]
    assert "DEBUG_DISABLE_FSDP" not in local.environment(2)  # a suite's fsdp2 stays what it is called
    assert type(get_strategy(Configuration(backend="fsdp2"))).__name__ == "DDPStrategy"


def test_wrong_places_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert place_and_step("after-backward:12") == ("after-backward", 12)
    for wrong in ("before-lunch", "before-forward:0", "before-forward:x", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="use one of before-forward"):
            place_and_step(wrong)
    assert main(["--break", "before-forward", "--num-layers", "1,2", "--output", str(tmp_path)]) == 2
    assert "give no lists" in capsys.readouterr().err
    with pytest.raises(ValueError, match="breakpoint on rank 3: the group has ranks 0 to 0"):
        debug.breakpoint(rank=3)

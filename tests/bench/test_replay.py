"""`bench replay` under every launcher, its file of results, and what it says when an input fails.

MESHPROOF_CAPTURED_INPUTS names a directory of recorded inputs, all of which are replayed where it is set.
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from bench import cli
from bench.commands.replay import configuration_of, main, parser
from bench.inputs.captured import write_batch
from bench.inputs.synthetic import synthetic_batches
from bench.replay import records
from bench.replay.worker import work
from bench.report.rows import collect

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
CAPTURED = os.environ.get("MESHPROOF_CAPTURED_INPUTS")
COUNT = 5


def run(start: list[str], *arguments: str, limit: float = 240) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment |= {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    line = [*start, "replay", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=limit, env=environment, check=False)


def read(output: Path) -> list[dict[str, Any]]:
    (path,) = output.glob("*/inputs.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    for number, length in enumerate((24, 40, 32, 56, 48)):
        batch = next(islice(synthetic_batches(vocabulary=1024, rows=2, seq_len=length, seed=number), 1))
        write_batch(batch, folder / f"input{number}.safetensors")
    return folder


@pytest.fixture(scope="module")
def alone(inputs: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The loss of each input on one process of the simplest backend."""
    output = tmp_path_factory.mktemp("alone")
    flags = ["--backend", "ddp", "--inputs", str(inputs), "--no-backward", "--no-packing"]
    shown: list[records.Record] = []
    work(configuration_of(parser().parse_args(flags), 0, None), output, 0, shown.append)
    found = records.Tail(output / records.FILE).new()
    assert found == shown
    assert [record["input"] for record in found] == [f"input{n}.safetensors" for n in range(COUNT)]
    assert [record["length"] for record in found] == [24, 40, 32, 56, 48]
    assert all(record["backward"] is None and record["forward"] > 0 for record in found)
    assert all(record["peak_memory"] > 0 and record["real_tokens"] <= record["positions"] for record in found)
    assert all(record["loss_tokens"] == record["real_tokens"] - 2 for record in found)  # no label after a row's last
    assert records.line(found[4], COUNT, 1).startswith("5/5 input4.safetensors: 2x48, ")
    return [record["loss"] for record in found]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


LAUNCHERS = {
    "torchrun": ([str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2", "-m", "bench"], ["--backend", "fsdp2"]),
    "python": ([sys.executable, "-m", "bench"], ["--backend", "fsdp2", "--num-gpus", "4", "--ring", "2"]),
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_every_input_is_taken_once_and_has_its_own_loss(
    launcher: str, inputs: Path, alone: list[float], tmp_path: Path
) -> None:
    start, flags = LAUNCHERS[launcher]
    done = run(start, *flags, "--inputs", str(inputs), "--output", str(tmp_path), "--no-backward", "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(tmp_path)
    assert [(record["index"], record["rank"]) for record in found] == [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0)]
    assert [record["loss"] for record in found] == pytest.approx(alone, rel=1e-5)
    assert "5 of 5 inputs" in done.stdout
    assert "input0.safetensors:" not in done.stdout  # --quiet
    result = json.loads(next(tmp_path.glob("*/result.json")).read_text())
    assert result["status"] == "ok"
    assert len(result["runs"][0]["losses"]) == 3
    reported = collect([tmp_path])
    assert (len(reported.rows), reported.curves) == (1, [])  # the file of inputs is no other run


def _orders(found: list[dict[str, Any]]) -> list[list[int]]:
    return [[record["index"] for record in found if record["rank"] == rank] for rank in (0, 1)]


@pytest.mark.slow
def test_under_deepspeed_shuffled_ranks_each_meet_all_inputs(inputs: Path, alone: list[float], tmp_path: Path) -> None:
    start = [str(BIN / "deepspeed"), f"--master_port={_free_port()}", "--num_gpus=2", "--module", "bench"]
    flags = ["--zero-stage", "3", "--shuffle-inputs", "--lr", "0"]
    done = run(start, *flags, "--inputs", str(inputs), "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    found = read(tmp_path)
    orders = _orders(found)
    assert all(sorted(order) == list(range(COUNT)) for order in orders)
    assert orders[0] != orders[1]
    assert all(record["backward"] > 0 and record["optimizer"] > 0 for record in found)
    assert [record["loss"] for record in found] == pytest.approx([alone[r["index"]] for r in found], rel=1e-5)


def test_an_input_that_fails_is_named(inputs: Path, tmp_path: Path) -> None:
    flags = ["--inputs", str(inputs), "--num-gpus", "2", "--backend", "ddp", "--output", str(tmp_path)]
    done = run([sys.executable, "-m", "bench"], *flags, "--loss", "tests.bench.faults:raising")
    assert done.returncode == 1
    assert "rank 1: RuntimeError: input1.safetensors: first line of the fault" in done.stderr


def test_replays_of_the_same_wait_for_each_other(inputs: Path, tmp_path: Path) -> None:
    flags = ["--inputs", str(inputs), "--backend", "ddp", "--no-backward", "--quiet", "--output", str(tmp_path)]
    with ThreadPoolExecutor(2) as replays:
        done = list(replays.map(lambda _: run([sys.executable, "-m", "bench"], *flags), range(2)))
    assert [one.returncode for one in done] == [0, 0], done
    assert sum("another sweep (process" in one.stderr for one in done) == 1
    assert [record["index"] for record in read(tmp_path)] == list(range(COUNT))


def test_old_options_mean_what_they_meant(inputs: Path) -> None:
    def made(*flags: str, gpus: int = 1, launched: int | None = None) -> Any:
        return configuration_of(parser().parse_args(["--inputs", str(inputs), *flags]), gpus, launched)

    plain = made()
    assert (plain.backend, plain.zero_stage, plain.model, plain.packing) == ("deepspeed", 1, "llama-3.1-8b", True)
    assert (plain.num_gpus, plain.num_layers, plain.compile, plain.steps) == (1, None, "none", COUNT)
    changed = made("--no-flash-attn", "--no-packing", "--compile", "--num-layers", "2", "--max-inputs", "3")
    assert (changed.attn, changed.packing, changed.compile, changed.num_layers) == ("sdpa", False, "blocks", 2)
    assert (changed.steps, changed.max_inputs) == (3, 3)
    other = made("--deepcompile", "--flash-attn", "--zero-stage", "3", "--no-backward", "--shuffle-inputs", launched=4)
    assert (other.compile, other.attn, other.zero_stage) == ("deepcompile", "flash_attention_2", 3)
    assert (other.backward, other.shuffle_inputs, other.num_gpus, other.steps) == (False, True, 4, COUNT)
    assert made("--random-seed", "123").random_seed == 123
    spelled = made(
        "--backend", "fsdp2", "--fsdp_tensor_parallel_size", "2", "--ring_attn_size", "3", "--use_hf_tp_plan",
        "--attn", "eager", "--flash-attn", "--packing_samples", launched=6,
    )  # fmt: skip
    assert (spelled.tp, spelled.ring, spelled.tp_plan, spelled.attn, spelled.packing) == (2, 3, "hf", "eager", True)
    assert made(gpus=0).fold_tokens
    assert [made().head, made(gpus=0).head, made("--head", "chunked").head] == ["compiled", "chunked", "chunked"]
    assert not made("--model", "qwen3-tiny", gpus=0).fold_tokens


def test_wrong_usage_is_one_line_and_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags, text in (
        (["--inputs", str(tmp_path / "absent")], "no such file"),
        (["--inputs", str(tmp_path)], "holds no"),
        (["--inputs", __file__, "--num-gpus", "3", "--ring", "2", "--backend", "fsdp2"], "ring"),
        (["--inputs", __file__, "--model", "absent"], "absent"),
    ):
        assert main(["--device", "cpu", "--output", str(tmp_path / "out"), *flags]) == 2
        message = capsys.readouterr().err
        assert message.startswith("bench replay: ")
        assert text in message
        assert message.count("\n") == 1


def test_the_launchers_own_argument_is_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--local_rank=1", "--help"]) == 0
    assert "replay" in capsys.readouterr().out


def test_parts_of_a_ring_add_up_and_copies_count_once() -> None:
    """Two data-parallel ranks, each a ring of two; the second has no input of its own."""
    shared = {"rows": 2, "length": 8, "real_tokens": 12, "positions": 16, "peak_memory": 5, "seconds": 1.0}
    rows = [
        {**shared, "dp_rank": 0, "index": 3, "loss_sum": 6.0, "loss_tokens": 4, "forward": 0.5},
        {**shared, "dp_rank": 0, "index": 3, "loss_sum": 2.0, "loss_tokens": 6, "forward": 0.25, "peak_memory": 9},
        {**shared, "dp_rank": 1, "index": -1, "loss_sum": 0.0, "loss_tokens": 0, "forward": 9.0},
        {**shared, "dp_rank": 1, "index": -1, "loss_sum": 0.0, "loss_tokens": 0, "forward": 9.0},
    ]
    names = [f"n{index}" for index in range(4)]
    (record,) = records.merge(torch.cat([records.to_row(row) for row in rows]), 7, names)
    assert record["loss"] == pytest.approx(0.8)
    assert (record["input"], record["loss_tokens"], record["forward"], record["peak_memory"]) == ("n3", 10, 0.5, 9)
    assert (record["backward"], record["step"], record["real_tokens"]) == (None, 7, 12)
    broken = records.to_row({**rows[0], "loss_sum": math.nan})
    assert records.merge(broken, 1, names)[0]["loss"] is None


def test_results_can_be_read_while_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    tail = records.Tail(path)
    assert tail.new() == []
    records.append(path, [{"input": "a"}])
    with path.open("a") as file:
        file.write('{"input": ')
        file.flush()
        assert tail.new() == [{"input": "a"}]
        file.write('"b"}\n')
    assert tail.new() == [{"input": "b"}]
    assert tail.new() == []


@pytest.mark.skipif(CAPTURED is None, reason="MESHPROOF_CAPTURED_INPUTS is not set: it names recorded inputs")
def test_all_recorded_inputs_in_one_go(tmp_path: Path) -> None:
    flags = ["--inputs", str(CAPTURED), "--output", str(tmp_path), "--num-layers", "1", "--no-backward", "--quiet"]
    done = run([sys.executable, "-m", "bench"], *flags, "--num-gpus", "2", limit=3600)
    assert done.returncode == 0, done.stderr
    found = read(tmp_path)
    assert sorted(record["index"] for record in found) == list(range(len(list(Path(str(CAPTURED)).iterdir()))))
    assert all(math.isfinite(record["loss"]) for record in found)


def test_the_statistics_say_what_they_leave_out() -> None:
    record = dict.fromkeys((*records.PHASES, "peak_memory"), 0.01)
    found = [{**record, "step": step, "loss": None if step == 3 else 1.0} for step in (1, 1, 2, 3)]
    assert records.summary(found).splitlines()[-1] == (
        "of 4 inputs left out: the first step (2 inputs), which pays for compilation and caches; 1 without loss"
    )
    assert "left out" not in records.summary(found[:1])

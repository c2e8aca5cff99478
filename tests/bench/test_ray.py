"""Ranks on a Ray cluster of two nodes, started here where ray is installed."""

from __future__ import annotations

import builtins
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.commands.run import main
from bench.launch.ray_cluster import Ray, lanes, variables
from bench.matrix.lanes import LanedSweep
from bench.process import supervise
from tests.bench.light_sweep import TINY
from tests.bench.light_worker import FAULT
from tests.bench.test_faults import started_by

FLAGS = ["--backend", "ddp", "--num-gpus", "2", "--device", "cpu", "--seq-len", "32", "--steps", "2", "--warmup", "1",
         "--processes", "1", "--dtype", "fp32", "--quiet"]  # fmt: skip
DEADLINES = {**dict.fromkeys(supervise.DEADLINES, 3.0), "lost": 5.0, "start": 60.0}


def test_ranks_of_one_host_are_numbered_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.setenv("SECRET", "x")
    found = variables(["a", "a", "b", "a"], 3, ("10.0.0.1", 4000))
    assert (found["RANK"], found["LOCAL_RANK"], found["WORLD_SIZE"], found["LOCAL_WORLD_SIZE"]) == ("3", "2", "4", "3")
    assert (found["MASTER_ADDR"], found["MASTER_PORT"], found["NCCL_DEBUG"]) == ("10.0.0.1", "4000", "WARN")
    assert "SECRET" not in found


def test_without_a_cluster_it_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [*FLAGS, "--launcher", "ray", "--ray-address", "127.0.0.1:1", "--output", str(tmp_path)]
    assert main(flags) == 2
    error = capsys.readouterr().err
    assert error.splitlines()[-1].startswith(("bench run: no Ray cluster at 127.0.0.1:1", "bench run: --launcher ray"))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    memory = 80 * 2**20
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": memory})
    started.add_node(num_cpus=1, object_store_memory=memory)
    printing = builtins.print
    yield started
    import ray

    ray.shutdown()
    started.shutdown()
    builtins.print = printing  # a driver's is one of ray's own


class FaultySweep(LanedSweep):
    """Gives each configuration the fault of its seed."""

    faults: tuple[str, ...] = ()

    def _job(self, configuration: Any) -> supervise.Job:
        fault = {FAULT: self.faults[configuration.random_seed]}
        return supervise.Job("tests.bench.light_worker", fault, launcher=self.launcher)


def _swept(cluster: Any, output: Path, *faults: str) -> list[tuple[str, str]]:
    cells = [replace(TINY, random_seed=number) for number in range(len(faults))]
    launcher = Ray(cluster.address, gpus=False)
    sweep = FaultySweep(cells, output, processes=1, quiet=True, deadlines=DEADLINES, launcher=launcher)
    sweep.faults = faults
    return [(row["status"], row["message"]) for row in sweep.run()]


def test_faults_on_another_node_are_rows(cluster: Any, tmp_path: Path) -> None:
    rows = _swept(cluster, tmp_path, "measure:killed", "warmup:stopped", "")
    assert [status for status, _ in rows] == ["crash", "hang", "ok"]
    assert rows[0][1] == "rank 1: killed by signal 9 (SIGKILL)"
    assert "rank 1 stayed away (in warmup 1/2, its process is stopped); rank 0 waits in all_reduce" in rows[1][1]
    assert started_by(os.getpid()) == []


def test_two_nodes_train_like_one_host(cluster: Any, tmp_path: Path) -> None:
    there = ["--launcher", "ray", "--ray-address", cluster.address]
    assert [lanes(cluster.address, "CPU", ranks) for ranks in (1, 2, 3)] == [2, 1, 1]  # rows at a time
    assert main([*FLAGS, *there, "--output", str(tmp_path / "two")]) == 0
    assert main([*FLAGS, "--output", str(tmp_path / "one")]) == 0
    losses = [
        json.loads(path.read_text())["runs"][0]["losses"]
        for folder in ("two", "one") for path in (tmp_path / folder).glob("*/result.json")
    ]  # fmt: skip
    assert len(losses) == 2
    assert losses[0][:4] == losses[1][:4]


def _node_of_a_rank(cluster: Any, output: Path) -> Any:
    """The node, not the head, whose raylet is an ancestor of a rank's process."""
    for path in output.glob("*/heartbeat.*.json"):
        parents = {process.pid for process in psutil.Process(json.loads(path.read_text())["pid"]).parents()}
        for node in cluster.worker_nodes:
            if parents & {info.process.pid for info in node.all_processes["raylet"]}:
                return node
    raise AssertionError("no rank runs beside the head")


def test_a_host_that_dies_is_a_row_and_the_sweep_goes_on(cluster: Any, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)  # where the next row finds room

    def end_node() -> None:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("*/heartbeat.*.json"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        cluster.remove_node(_node_of_a_rank(cluster, tmp_path), allow_graceful=False)

    ending = threading.Thread(target=end_node)
    ending.start()
    rows = _swept(cluster, tmp_path, "measure:hang", "")
    ending.join()
    assert [status for status, _ in rows] == ["crash", "ok"]
    assert "rank 1: " in rows[0][1] or "rank 0: " in rows[0][1]
    assert "killed by signal 9" in rows[0][1] or "ended before it had finished" in rows[0][1]

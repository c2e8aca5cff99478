"""Slurm: scripts and parsing everywhere; two nodes of a real cluster where its packages are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.commands.run import main
from bench.configuration import Configuration, parse
from bench.launch import array
from bench.launch.rank import described, tasks_per_node
from bench.launch.slurm import Slurm, codes
from tests.bench.slurm_cluster import Cluster, NoSlurm

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ["--backend", "ddp", "--num-gpus", "2", "--device", "cpu", "--seq-len", "32", "--steps", "2", "--warmup", "1",
         "--processes", "1", "--dtype", "fp32"]  # fmt: skip

GOLDEN = """#!/bin/bash
#SBATCH --job-name=bench
#SBATCH --array=0-2%2
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=2:00:00
#SBATCH --output=/data/out/slurm/%A_%a.log

# One configuration per task; cells-16.txt names its file by line.
set -euo pipefail
cell=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" /data/out/slurm/cells-16.txt)
cd {here}
exec {python} -m bench run --processes 2 --cell "$cell"
"""


def test_the_script_of_an_array(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    request = array.Request(8, gpus=True, at_once=2, options=("--time=2:00:00",), flags=("--processes", "2"))
    text = array.text(16, 3, Path("/data/out/slurm/cells-16.txt"), request)
    assert text == GOLDEN.format(here=tmp_path, python=sys.executable)


def test_one_script_per_size_and_one_file_per_row(tmp_path: Path) -> None:
    cells = [Configuration(num_gpus=size, num_layers=layers) for size in (8, 16) for layers in (2, 4)]
    scripts = array.write(cells, tmp_path, array.Request(8, gpus=True))
    assert [script.name for script in scripts] == ["sweep-8.sh", "sweep-16.sh"]
    for script, size in zip(scripts, (8, 16), strict=True):
        assert subprocess.run(["bash", "-n", str(script)], check=False).returncode == 0
        listed = script.with_name(f"cells-{size}.txt").read_text().splitlines()
        assert [parse(json.loads(Path(name).read_text())) for name in listed] == [
            cell for cell in cells if cell.num_gpus == size
        ]


def test_what_srun_says_of_failed_tasks() -> None:
    lines = [
        "srun: error: n2: task 5: Segmentation fault (core dumped)\n",
        "srun: error: n1: tasks 0-3: Terminated\n",
        "srun: error: n2: task 4: Killed\n",
    ]
    assert codes(lines) == {5: -11}
    assert codes(["srun: error: gpu-a3: tasks 1-2,7: Exited with exit code 9\n"]) == {1: 9, 2: 9, 7: 9}
    assert codes(["srun: error: n2: task 1: Killed\n"]) == {1: -9}
    assert codes(["srun: error: Unable to create step: Job violates limits\n"]) == {}


def test_ranks_are_read_off_slurms_variables() -> None:
    assert tasks_per_node("8(x2),4") == [8, 8, 4]
    step = {"SLURM_NODEID": "2", "SLURM_STEP_TASKS_PER_NODE": "8(x2),4", "SLURM_PROCID": "17", "SLURM_LOCALID": "1"}
    assert described(step) == {
        "RANK": "17", "WORLD_SIZE": "20", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "2",
    }  # fmt: skip
    with pytest.raises(ValueError, match="no list of tasks"):
        tasks_per_node("eight")


def test_the_step_has_as_many_hosts_as_it_needs() -> None:
    command = Slurm(8, gpus=True).command(12, "bench.measure.worker", ["folder", "0"])
    assert {"--ntasks=12", "--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8"} <= set(command)
    assert command[-5:] == ["-m", "bench.launch.rank", "bench.measure.worker", "folder", "0"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--launcher", "slurm", "--device", "cpu"], "--launcher slurm needs --num-gpus"),
        (["--launcher", "slurm", "--num-gpus", "2"], "--launcher slurm needs --ranks-per-node"),
        (["--submit"], "--submit is for --launcher slurm"),
        (["--cell", "/nowhere.json"], "--cell is for --launcher slurm"),
        (["--launcher", "slurm", "--ranks-per-node", "1", "--cell", "/nowhere.json"], "--cell /nowhere.json"),
        ([*FLAGS, "--launcher", "slurm", "--ranks-per-node", "1", "--submit"], "sbatch"),
        ([*FLAGS, "--launcher", "slurm", "--ranks-per-node", "1", "--slurm=-C x\nrm -r ."], "a line of a script"),
    ],
)
def test_wrong_usage_is_one_line(
    flags: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main([*flags, "--output", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="slurm-") as name:  # pytest's own are too long for a socket
        try:
            started = Cluster(Path(name))
        except NoSlurm as error:
            pytest.skip(str(error))
        yield started
        started.stop()


def _bench(cluster: Cluster, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **cluster.environment, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_sweep_over_two_nodes_trains_like_one_host(cluster: Cluster, tmp_path: Path) -> None:
    flags = [*FLAGS, "--launcher", "slurm", "--ranks-per-node", "1", "--output", str(tmp_path / "on two; $(nodes)")]
    submitted = _bench(cluster, "-m", "bench", "run", *flags, "--submit")
    assert submitted.returncode == 0, submitted.stderr
    assert "sweep-2.sh as job" in submitted.stdout
    one = _bench(cluster, "-m", "bench", "run", *FLAGS, "--output", str(tmp_path / "one"), "--quiet")
    assert one.returncode == 0, one.stdout
    deadline = time.monotonic() + 60
    while cluster.told("squeue", "-h").strip() and time.monotonic() < deadline:
        time.sleep(0.2)
    collected = _bench(cluster, "-m", "bench", "run", *flags)
    assert collected.returncode == 0
    assert "to measure" not in collected.stdout
    losses = [
        json.loads(path.read_text())["runs"][0]["losses"]
        for folder in ("on two; $(nodes)", "one") for path in (tmp_path / folder).glob("*/result.json")
    ]  # fmt: skip
    assert len(losses) == 2
    assert losses[0][:4] == losses[1][:4]
    assert list((tmp_path / "on two; $(nodes)" / "slurm").glob("*.log"))


IN_ALLOCATION = """
import sys
from dataclasses import replace
from pathlib import Path
from bench.process import supervise
from bench.launch.slurm import Slurm
from bench.sweep.sweep import Sweep
from tests.bench.light_sweep import TINY
from tests.bench.light_worker import FAULT

class FaultySweep(Sweep):
    def _job(self, configuration):
        fault = sys.argv[2:][configuration.random_seed]
        return supervise.Job("tests.bench.light_worker", {FAULT: fault}, launcher=self.launcher)

cells = [replace(TINY, random_seed=number) for number in range(len(sys.argv[2:]))]
deadlines = {**dict.fromkeys(supervise.DEADLINES, 3.0), "lost": 1.0, "start": 20.0}
FaultySweep(cells, Path(sys.argv[1]), processes=1, quiet=True, deadlines=deadlines, launcher=Slurm(1, gpus=False)).run()
"""

FAULTS = {
    "": ("ok", ""),
    "measure:exception": ("crash", "rank 1: RuntimeError: first line of the fault"),
    "load:killed": ("crash", "rank 1: killed by signal 9 (SIGKILL)"),
    "measure:hang": (
        "hang",
        "rank 1: no progress for 3 s; rank 1 stayed away (in measure 1/2, at bench/light",
    ),
    "warmup:stopped": ("hang", "rank 1: no progress for 3 s; rank 1 stayed away (in warmup 1/2"),
}


def test_faults_on_another_node_are_rows(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "sweep.py").write_text(IN_ALLOCATION)
    script = tmp_path / "job.sh"
    faults = " ".join(f"'{fault}'" for fault in FAULTS)
    script.write_text(f"#!/bin/bash\nexec {sys.executable} {tmp_path}/sweep.py {tmp_path}/out {faults}\n")
    environment = {**os.environ, **cluster.environment, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        ["sbatch", "--wait", "--nodes=2", "--ntasks-per-node=1", f"--output={tmp_path}/job.log", str(script)],
        env=environment, capture_output=True, timeout=150, check=True,
    )  # fmt: skip
    rows = {}
    for path in (tmp_path / "out").glob("*/result.json"):
        row = json.loads(path.read_text())
        rows[list(FAULTS)[row["configuration"]["random_seed"]]] = row
    assert {fault: row["status"] for fault, row in rows.items()} == {f: status for f, (status, _) in FAULTS.items()}
    for fault, (_, message) in FAULTS.items():
        assert rows[fault]["message"].startswith(message)
    assert cluster.told("squeue", "-h").strip() == ""

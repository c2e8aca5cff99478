"""`python -m bench doctor`: every check seen well and ill, and one real process group."""

from __future__ import annotations

import json
import os
import socket
import sys
from importlib import metadata
from pathlib import Path

import pytest

from bench import cli
from bench.commands.doctor import main
from bench.doctor import collectives, gpus, host, packages
from bench.doctor.check import FAILURE, OK, WARNING

HEALTHY = "0, NVIDIA H200, 570.86.15, 143771, 4, 31, 1980, 1980, 0x0000000000000001, 0"
HOT = "1, NVIDIA H200, 570.86.15, 143771, 90000, 88, 1200, 1980, 0x0000000000000044, 3"


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name, first in PATH, that knows two GPUs."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' '{HEALTHY}' '{HOT}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


@pytest.mark.usefixtures("nvidia_smi")
def test_gpus_are_judged_one_by_one() -> None:
    lines = [check.line() for check in gpus.checks(gpus.query())]
    assert lines[0] == "ok       GPUs: 2 × NVIDIA H200, driver 570.86.15"
    assert lines[1] == "ok       GPU 0: 143,771 MiB, 4 in use, 1980 of 1980 MHz, 31 °C"
    assert lines[2].startswith("warning  GPU 1: 90,000 of 143,771 MiB in use → another program")
    assert lines[3].startswith("warning  GPU 1: slowed by the power limit, heat (hardware) at 88 °C → ")
    assert lines[4].startswith("failure  GPU 1: 3 uncorrected memory errors → ")
    assert len(lines) == 5


def test_no_gpu_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert [check.status for check in gpus.checks(gpus.query())] == [WARNING]


def test_a_slow_pair_is_named() -> None:
    pairs = {"0-1": 190e9, "0-2": 180e9, "1-2": 20e9, "all": 150e9}
    first, second = collectives.judge("NCCL all-reduce", pairs, on_gpu=True)
    assert first.status == OK
    assert "1-2: 20 GB/s; all ranks: 150 GB/s" in first.text
    assert (second.name, second.status) == ("pair 1-2", WARNING)
    pcie = list(collectives.judge("NCCL all-reduce", {"0-1": 20e9}, on_gpu=True))
    assert [check.status for check in pcie] == [WARNING]


def test_packages_are_held_against_their_ranges() -> None:
    assert packages.check("x", ["pytest"], {"pytest": ">=7"}).status == OK
    old = packages.check("x", ["pytest"], {"pytest": "<7"})
    assert (old.status, "pip install 'pytest<7'" in old.advice) == (WARNING, True)
    assert packages.check("x", ["flash-attn-none"], {}).status == WARNING
    missing = packages.check("results", ["pyperf", "no-such-package"], {})
    assert (missing.status, "no-such-package is not installed" in missing.text) == (FAILURE, True)


def test_a_machine_without_one_of_the_packages_is_looked_at_to_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base install has neither of them."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    there = metadata.version
    for name in ("psutil", "torch"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, name, None)
            without.setattr(
                metadata, "version", lambda package, name=name: there("none-such" if package == name else package)
            )
            status = cli.main(["doctor", "--output", str(tmp_path), "--no-collectives"])
        out, err = capsys.readouterr()
        assert (status in (0, 1), err) == (True, ""), name
        assert f"{name} is not installed" in out, name
        assert " checks, " in out.splitlines()[-1]


def test_no_group_is_started_without_what_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "installed", lambda name: name != "psutil")
    assert [(check.status, check.text) for check in collectives.checks(0)] == [
        (FAILURE, "not tried: psutil is not installed")
    ]


def test_taken_ports_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("MASTER_PORT", str(port))
        assert not host.is_free(port)
        assert host.ports().text == f"MASTER_PORT {port} is taken"
    monkeypatch.delenv("MASTER_PORT")
    assert host.is_free(port)


def test_places_that_cannot_be_written_and_small_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert host.disk(tmp_path / "file" / "results").status == FAILURE
    assert host.disk(tmp_path / "not" / "yet").status in (OK, WARNING)
    assert host.shared_memory(True, tmp_path / "none").status == WARNING
    (tmp_path / "limit").write_text("1073741824\n")
    assert host.cgroup_limit(tmp_path / "limit") == 2**30
    (tmp_path / "limit").write_text("max\n")
    assert host.cgroup_limit(tmp_path / "limit") == float("inf")


def test_this_machine_is_seen_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    status = main(["--output", str(tmp_path), "--json"])
    made = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert status == (1 if any(check["status"] == FAILURE for check in made.values()) else 0)
    assert {"python", "memory", "disk", "ports", "GPUs", "torch", "for deepspeed"} <= set(made)
    assert made["gloo all-reduce"]["status"] == OK
    assert "0-1: " in made["gloo all-reduce"]["text"]

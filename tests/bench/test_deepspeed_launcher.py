"""Rows through the `deepspeed` launcher: its hostfile, and a fault under the real program."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.commands.run import main
from bench.configuration import Configuration
from bench.launchers.deepspeed import DeepSpeed, included, slots
from bench.process import supervise
from bench.sweep.sweep import Sweep
from tests.bench.light_sweep import TINY
from tests.bench.light_worker import FAULT


class FaultySweep(Sweep):
    """The second row fails."""

    def _job(self, configuration: Configuration) -> supervise.Job:
        fault = {FAULT: "measure:exception" if configuration.random_seed else ""}
        return supervise.Job("tests.bench.light_worker", fault, launcher=self.launcher)


def test_rows_end_as_under_any_launcher(tmp_path: Path) -> None:
    cells = [replace(TINY, random_seed=number) for number in range(2)]
    deadlines = {"lost": 1.0, "end": 1.0}  # its runner outlives its ranks by seconds
    rows = FaultySweep(cells, tmp_path, processes=1, quiet=True, launcher=DeepSpeed(), deadlines=deadlines).run()
    assert [row["status"] for row in rows] == ["ok", "crash"]
    assert rows[1]["message"] == "rank 1: RuntimeError: first line of the fault"


def test_a_hostfile_leads_to_hosts_by_ssh_and_one_out_of_reach_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, ssh = tmp_path / "hostfile", tmp_path / "ssh"
    hosts.write_text("localhost slots=2\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def run(name: str, what_ssh_does: str) -> list[tuple[str, str]]:
        ssh.write_text(f"#!/bin/sh\n{what_ssh_does}\n")
        ssh.chmod(0o755)
        sweep = FaultySweep(
            [replace(TINY, random_seed=0)], tmp_path / name, processes=1, quiet=True, launcher=DeepSpeed(hosts),
            deadlines={"lost": 1.0, "end": 1.0},
        )  # fmt: skip
        return [(row["status"], row["message"]) for row in sweep.run()]

    assert run("here", 'while [ "$1" = -o ]; do shift 2; done; shift; exec sh -c "$*"') == [("ok", "")]
    ((status, message),) = run("away", "exit 255")
    assert status == "crash"
    assert "host=localhost was not reachable via ssh" in message


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True), st.integers(1, 9), min_size=1), st.data())
def test_the_first_slots_are_taken_host_by_host(hosts: dict[str, int], data: st.DataObject) -> None:
    text = "# nodes\n" + "".join(f"{host} slots={count}\n" for host, count in hosts.items())
    assert slots(text) == hosts
    ranks = data.draw(st.integers(1, sum(hosts.values())))
    (flag,) = included(text, ranks)
    parts = [part.partition(":") for part in flag.removeprefix("--include=").split("@")]
    taken = {host: len(numbers.split(",")) for host, _, numbers in parts}
    assert sum(taken.values()) == ranks
    order = list(hosts)
    assert list(taken) == order[: len(taken)]
    assert all(taken[host] == hosts[host] for host in order[: len(taken) - 1])
    with pytest.raises(ValueError, match="slots, the hostfile has"):
        included(text, sum(hosts.values()) + 1)


@pytest.mark.parametrize(
    ("lines", "words"),
    [("a slots=2\n", "4 ranks need as many slots, it has 2"), ("a slots=two\n", "write a host and slots=N"),
     (None, "No such file")],
)  # fmt: skip
def test_a_hostfile_that_does_not_do_is_one_line(
    lines: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hostfile"
    if lines is not None:
        path.write_text(lines)
    assert main(["--launcher", "deepspeed", "--hostfile", str(path), "--num-gpus", "4", "--output", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1

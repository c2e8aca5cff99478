"""Faults on purpose, in every phase: each ends as a row of the right class, and nothing is left behind.

All cases of the first part are one sweep of torch-free workers under the real supervisor, sweep and launcher.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench.configuration import Configuration
from bench.process import logs, supervise
from bench.process.heartbeat import PHASES, SUPERVISOR
from tests.bench.light_sweep import TINY, LanedLightSweep
from tests.bench.light_worker import BEFORE

ROOT = Path(__file__).resolve().parents[2]
DEADLINES = {**dict.fromkeys(supervise.DEADLINES, 2.0), "lost": 0.5}
PATIENT = {**dict.fromkeys(supervise.DEADLINES, 60.0), "lost": 0.5}
RUNNING = PHASES[:-1]


@dataclass(frozen=True)
class Case:
    """A fault of rank 1 in a phase, the status it must end as, and what the message must say."""

    phase: str
    fault: str
    status: str
    words: tuple[str, ...] = ()
    elastic: bool = False

    def name(self) -> str:
        return f"{self.phase}-{self.fault}" + "-torchrun" * self.elastic


def _cases() -> list[Case]:
    away = ("rank 1: no progress for", "rank 1 stayed away", "rank 0 waits in all_reduce (bench/light_worker.py:")
    found = []
    for phase in RUNNING:
        here = f"in {phase}"
        found += [
            Case(phase, "out_of_memory", "oom", ("rank 1: MemoryError",)),
            Case(phase, "hang", "hang", (*away, here, "in hang)")),
            Case(phase, "exception", "crash", ("rank 1: RuntimeError: first line of the fault",)),
            Case(phase, "killed", "crash", ("rank 1: killed by signal 9 (SIGKILL)",)),
            Case(phase, "stopped", "hang", (*away, here, "its process is stopped")),
            Case(phase, "exit_0", "crash", ("rank 1: ended before it had finished", here)),
            Case(phase, "endless_output", "hang", (*away, here, "in endless_output)")),
            Case(phase, "long_log", "ok"),
        ]
    never = ("rank 1 stayed away (it never reported)", "rank 0 waits in all_reduce")
    return [
        *found,
        Case(BEFORE, "hang", "hang", never),
        Case(BEFORE, "exception", "crash", ("status 1 and no recorded error: RuntimeError: first line of the fault",)),
        Case(BEFORE, "killed", "crash", ("rank 1: killed by signal 9 (SIGKILL)",)),
        Case("measure", "nan", "nan", ("the loss of step 1 is not finite",)),
        Case("measure", "gigabyte_log", "ok"),
        Case("load", "segmentation_fault", "crash", ("rank 1: killed by signal 11 (SIGSEGV)",)),
        Case("compile", "compile_error", "compile_error", ("rank 1: RuntimeError: a kernel cannot be built",)),
        Case("load", "not_installed", "unsupported", ("No module named 'meshproof_missing'",)),
        Case("warmup", "exception", "crash", ("rank 1: RuntimeError: first line",), elastic=True),
        Case("measure", "killed", "crash", ("rank 1: killed by signal 9 (SIGKILL)",), elastic=True),
        Case("measure", "stopped", "hang", (*away, "its process is stopped"), elastic=True),
        Case("report", "exit_0", "crash", ("rank 1: ended before it had finished",), elastic=True),
    ]


def _fault(configuration: Configuration) -> str:
    case = CASES[configuration.random_seed]
    return f"{case.phase}:{case.fault}"


CASES = _cases()
CONFIGURATIONS = [replace(TINY, random_seed=number) for number, _ in enumerate(CASES)]


def started_by(supervisor: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.environ().get(SUPERVISOR, "").startswith(f"{supervisor}@")
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, Any]]]:
    output = tmp_path_factory.mktemp("faults")
    rows = {}
    for elastic in (False, True):
        for hangs in (False, True):
            # Only what is to hang waits for a deadline: a busy machine fails no other case.
            deadlines = {
                **(DEADLINES if hangs else PATIENT),
                **({"start": 60.0} if elastic else {}),
            }  # torchrun imports torch
            cases = [n for n, case in enumerate(CASES) if (case.elastic, case.status == "hang") == (elastic, hangs)]
            sweep = LanedLightSweep(
                [CONFIGURATIONS[number] for number in cases], output, processes=1, quiet=True, lanes=4, skip=False,
                deadlines=deadlines, choose=_fault, elastic=elastic,
            )  # fmt: skip
            rows |= {CASES[number].name(): row for number, row in zip(cases, sweep.run(), strict=True)}
    yield rows
    assert started_by(os.getpid()) == []


@pytest.mark.parametrize("case", CASES, ids=Case.name)
def test_a_fault_is_a_row_of_its_class(case: Case, swept: dict[str, dict[str, Any]]) -> None:
    row = swept[case.name()]
    assert row["status"] == case.status, row["message"]
    for words in case.words:
        assert words in row["message"]
    assert "\n" not in row["message"]
    if case.status not in ("ok", "nan"):
        assert row["phase"] == case.phase or case.phase == BEFORE
        assert bool(row["hint"]) or case.fault in ("exception", "exit_0", "segmentation_fault")
    log = Path(row["log"]).read_bytes()
    assert len(log) <= logs.LIMIT
    assert b"the first line of rank 0" in log
    if case.fault.endswith("_log"):
        assert b"bytes left out" in log
        assert b"the last line\n" in log


def test_no_row_and_no_process_is_lost(swept: dict[str, dict[str, Any]]) -> None:
    assert len(swept) == len(CASES) >= 40
    assert started_by(os.getpid()) == []


def test_the_report_shows_these_cases() -> None:
    from tests.bench.fault_table import text

    assert text(CASES) in (ROOT / "reports" / "faults.md").read_text(encoding="utf-8")

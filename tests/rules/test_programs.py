"""The validator's verdict on every small program, and the programs' own: a verdict that a run contradicts is a bug."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.rules.programs import Program, Ranks, programs, reported

PROGRAMS = programs()
RUNNABLE = [p for p in PROGRAMS if p.outcome != "static"]
LANES = 6  # groups of ranks side by side: most of the time is spent on waiting for those that hang


def _id(program: Program) -> str:
    return f"{program.family}-{program.name}"


@pytest.mark.parametrize("program", PROGRAMS, ids=_id)
def test_program_is_reported_on_its_line(program: Program) -> None:
    assert reported(program) == program.expected


def test_there_are_enough_programs_of_both_kinds() -> None:
    assert len(PROGRAMS) >= 120
    hanging = sum(p.outcome == "hang" for p in RUNNABLE)
    assert hanging >= 40
    assert len(RUNNABLE) - hanging >= 40


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[str]]]:
    """What the programs do that are asked about, each as soon as it has ended."""
    own, started = threading.local(), []

    def run(program: Program) -> str:
        if not hasattr(own, "ranks"):
            own.ranks = Ranks()
            started.append(own.ranks)
        return own.ranks.run(program.text)

    here = [item for item in request.session.items if item.nodeid.startswith(request.node.nodeid)]
    asked = [item.callspec.params["program"] for item in here if "outcomes" in getattr(item, "fixturenames", ())]
    pool = ThreadPoolExecutor(LANES)
    yield {_id(program): pool.submit(run, program) for program in asked}
    pool.shutdown(cancel_futures=True)
    for each in started:
        each.close()


@pytest.mark.parametrize("program", RUNNABLE, ids=_id)
def test_program_does_what_is_said_of_it(program: Program, outcomes: dict[str, Future[str]]) -> None:
    assert outcomes[_id(program)].result() == program.outcome
    assert bool(program.expected) == (program.outcome == "hang")

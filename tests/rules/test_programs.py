"""The validator's verdict on every small program, and the programs' own: a verdict that a run contradicts is a bug."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rules.programs import Program, Ranks, programs, reported

PROGRAMS = programs()
RUNNABLE = [p for p in PROGRAMS if p.outcome != "static"]


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
def ranks() -> Iterator[Ranks]:
    started = Ranks()
    yield started
    started.close()


@pytest.mark.parametrize("program", RUNNABLE, ids=_id)
def test_program_does_what_is_said_of_it(program: Program, ranks: Ranks) -> None:
    assert ranks.run(program.text) == program.outcome
    assert bool(program.expected) == (program.outcome == "hang")

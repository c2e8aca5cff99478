"""The one paragraph about a hang: who stands still, who waits where, and why."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from bench.process.verdict import ranges
from bench.watch.ranks import Hang

GROUPS = 3
"""Groups of which the paragraph tells; the others usually wait because of these."""
WIDTH = 110


def paragraph(hang: Hang | None, lines: Sequence[str], reason: str) -> str:
    """`lines` are those of a diagnosis, `reason` what the source says, "" for nothing. Wrapped to `WIDTH` columns.

    Without a hang, of a job that has ended by itself, only these.
    """
    about = _groups(lines)[:GROUPS]
    if hang is not None:
        about = [_still(hang), *about, *_states(hang)]
    return textwrap.fill(" ".join(_sentence(text) for text in (*about, reason) if text), WIDTH, break_long_words=False)


def _still(hang: Hang) -> str:
    moving, still = hang.moving(), f"{_have(hang.still)} stood still for {hang.seconds:.0f} s"
    return f"{still}, while {ranges(moving)} {'goes' if len(moving) == 1 else 'go'} on" if moving else still


def _have(ranks: Sequence[int]) -> str:
    return f"{ranges(ranks)} {'has' if len(ranks) == 1 else 'have'}"


def _groups(lines: Sequence[str]) -> list[str]:
    """One text per group: its title with the indented lines below it."""
    groups: list[list[str]] = []
    for line in lines:
        if not line.startswith(" ") or not groups:
            groups.append([])
        groups[-1].append(line.strip())
    return [f"{title}: {'; '.join(rest)}" if rest else title for title, *rest in groups]


def _states(hang: Hang) -> list[str]:
    told = [f"rank {rank}: {state}" for rank, state in sorted(hang.states.items())]
    if hang.ended:
        told.append(f"{_have(hang.ended)} ended before")
    if hang.absent:
        told.append(f"{_have(hang.absent)} not reported: on another host, or not started yet")
    return told


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."

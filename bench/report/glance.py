"""What a report says first: of the rows that do the same work, which is fastest, which needs least memory, whether they
train alike, and by how much."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from bench.compare.significance import Change, change
from bench.configuration import deciding
from bench.grouping import grouped
from bench.report.rows import IN_VARIANT, Row, rank_word
from bench.results.identity import processor
from bench.settings import SPLIT, WAY, WORK
from bench.sweep.labels import words

THRESHOLD = 0.05
"""Relative difference of losses up to which rows train alike, as `bench compare` has it."""

WAYS = deciding(SPLIT, WAY)
"""Settings that say how the work is done, not what it is."""


@dataclass
class Workload:
    """Rows with the same work to do: one model at one depth, on as many GPUs of one kind, with the same samples."""

    name: str
    rows: list[Row]
    ways: dict[int, str]
    """What each row does otherwise than the others, by its identity."""
    fastest: Row | None = None
    leanest: Row | None = None
    next: Row | None = None
    lead: Change | None = None
    """From the fastest to the next, in seconds per token; None without a next."""
    of_slowest: float | None = None
    saves: float | None = None
    """How much less memory the leanest needs than the hungriest."""
    alike: int = 0
    compared: int = 0
    worst: float = 0.0
    """The largest relative difference of a loss from those of the first row."""
    failed: Counter[str] = field(default_factory=Counter)

    def way(self, row: Row) -> str:
        return self.ways[id(row)]

    @property
    def ahead(self) -> float | None:
        """How much faster the fastest is than the next, 0.1 for ten percent; None without a next."""
        return None if self.lead is None else self.lead.ratio - 1.0

    def told(self) -> str:
        """Which row is fastest, by how much, and whether that is decided; "" where there is nothing to say."""
        if self.fastest is None or self.next is None or self.lead is None:
            return ""
        doubt = f", {self.lead.doubt}" if self.lead.doubt else ""
        return f"fastest: {self.way(self.fastest)}, {self.ahead:.1%} ahead of {self.way(self.next)}{doubt}"


def workloads(rows: Sequence[Row]) -> list[Workload]:
    """What rows have in common, those with the most rows first."""
    found = grouped(rows, lambda row: (row.configuration.values(deciding(WORK)), processor(row.environment)))
    names = _names([members[0] for members in found.values()])
    made = [_work(name, members) for name, members in zip(names, found.values(), strict=True)]
    return sorted(made, key=lambda work: (-sum(row.tokens is not None for row in work.rows), work.name))


def _names(firsts: Sequence[Row]) -> list[str]:
    """The work in words: model, layers, ranks and lengths, and what else tells one from another."""
    told = ("model", "num_layers", "num_gpus", "seq_len")

    def begin(row: Row) -> list[str]:
        c = row.configuration
        layers = "all layers" if c.num_layers is None else f"{c.num_layers} layer{'s' * (c.num_layers > 1)}"
        return [layers, ranks(row)]

    return group_names(firsts, begin, [name for name in deciding(WORK) if name not in told])


def ranks(row: Row) -> str:
    """How many a row has: `2 GPUs`."""
    count = row.configuration.num_gpus
    return f"{count} {rank_word([row])}{'s' * (count > 1)}"


def group_names(firsts: Sequence[Row], begin: Callable[[Row], list[str]], others: Sequence[str]) -> list[str]:
    """Names of groups of rows by their first ones: the model, what `begin` says, the length, what `others` tell one
    from another by, and the processor where there are several."""
    more = words([row.configuration for row in firsts], others, usual=False)
    kinds = [processor(row.environment) for row in firsts]
    found = []
    for row, rest, kind in zip(firsts, more, kinds, strict=True):
        length = [f"{row.configuration.seq_len} tokens"] * (not row.configuration.input_hash)
        parts = [row.model, *begin(row), *length, rest, kind if len(set(kinds)) > 1 else ""]
        found.append(", ".join(filter(None, parts)))
    return found


def _work(name: str, rows: list[Row]) -> Workload:
    more = words([row.configuration for row in rows], [n for n in WAYS if n not in IN_VARIANT], usual=False)
    ways = [" ".join(filter(None, (row.variant, text))) for row, text in zip(rows, more, strict=True)]
    told = [f"{way} {row.apart}".rstrip() if ways.count(way) > 1 else way for way, row in zip(ways, rows, strict=True)]
    by_row = {id(row): way for row, way in zip(rows, told, strict=True)}
    work = Workload(name, rows, by_row, failed=Counter(row.status for row in rows if row.status != "ok"))
    _speeds(work)
    _memories(work)
    _losses(work)
    return work


def _speeds(work: Workload) -> None:
    timed = sorted((row for row in work.rows if row.tokens), key=lambda row: -(row.tokens or 0.0))
    if not timed:
        return
    work.fastest = timed[0]
    if len(timed) > 1:
        work.next = timed[1]
        lead = change("time", "second", timed[0].per_token, timed[1].per_token)
        work.lead = replace(lead, apart=not_interleaved(timed[0], timed[1]))
        work.of_slowest = (timed[0].tokens or 0.0) / (timed[-1].tokens or 1.0)


def not_interleaved(one: Row, other: Row) -> str:
    """Why the times of two rows may differ by when they were measured; "" for processes that took turns in one run, in
    which what drifts on the machine touches both. Results that do not say when are judged by their commands."""
    if one.ended and other.ended:
        first, second = sorted((one.ended, other.ended), key=min)
        gap = min(second) - max(first)
        if gap < 0:
            return ""
        minutes = f"{gap / 60:.0f} minutes" if gap >= 90 else f"{gap:.0f} seconds"
        return f"measured one after the other, {minutes} apart; one command with --force measures both in turn"
    commands = {row.environment.get("command") for row in (one, other)}
    return "measured by different commands; one command with --force measures both in turn" if len(commands) > 1 else ""


def _memories(work: Workload) -> None:
    known = sorted((row for row in work.rows if row.memory), key=lambda row: row.memory or 0.0)
    if known:
        work.leanest = known[0]
        work.saves = 1.0 - (known[0].memory or 0.0) / (known[-1].memory or 1.0) if len(known) > 1 else None


def _losses(work: Workload) -> None:
    """Rows whose steps hold the same samples are held against the first of them."""

    def samples(row: Row) -> tuple[int, int]:
        return row.configuration.batch, row.configuration.dp if row.configuration.inputs else 0

    dealt = grouped((row for row in work.rows if len(row.losses) > 1), samples)
    differences = [found for members in dealt.values() if len(members) > 1 for found in _apart(members)]
    work.compared, work.worst = len(differences), max(differences, default=0.0)
    work.alike = sum(difference <= THRESHOLD for difference in differences)


def _apart(rows: Sequence[Row]) -> list[float]:
    """The largest relative difference of each row's losses from the first row's, step by step. A policy's loss crosses
    zero: there a hundredth of its largest value counts as much as `THRESHOLD` elsewhere."""
    first = rows[0].losses
    least = max(map(abs, first)) / 100 / THRESHOLD
    return [
        max((_difference(a, b, least) for a, b in zip(first, row.losses, strict=False)), default=0.0) for row in rows
    ]


def _difference(a: float, b: float, least: float) -> float:
    apart = abs(a - b)
    return apart / (max(abs(a), least) or 1.0) if math.isfinite(apart) else math.inf

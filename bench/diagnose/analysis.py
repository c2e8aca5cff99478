"""Where the ranks of each group part: who waits in which collective, and who never came."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.diagnose.dumps import NOT_BEGUN, Dump, DumpError, Entry, read
from bench.process.stacks import Frame, Position
from bench.process.verdict import ranges

UNEVEN = ("all_to_all", "all_to_all_single", "alltoall", "alltoall_base", "gather", "scatter", "broadcast",
          "all_to_allv", "_broadcast_oop", "_reduce_oop")  # fmt: skip
"""Collectives whose inputs may have other sizes on other ranks."""


@dataclass(frozen=True)
class Stall:
    """The first collective of a group at which its ranks part. `kind`: absent, operation, sizes, or waiting."""

    group: str
    kind: str
    waiting: Mapping[int, Entry]
    absent: tuple[int, ...]
    last: Mapping[int, Entry]
    silent: tuple[int, ...] = ()
    """Members that left no dump."""

    def frames(self) -> list[Frame]:
        """Calls on the stacks of those that wait and of the last collective of those that did not come."""
        return [frame for entry in (*self.waiting.values(), *self.last.values()) for frame in entry.frames]


def stalls(dumps: Sequence[Dump]) -> list[Stall]:
    """One for each group in which a rank waits. The one that started first comes first: others may follow from it."""
    by_rank = {dump.rank: dump for dump in dumps}
    names = dict.fromkeys(name for dump in dumps for name in dump.entries)
    found = [_stall(name, by_rank) for name in names]
    # A group in which somebody stayed away explains those in which ranks merely wait.
    order = {"operation": 0, "sizes": 1, "absent": 2, "waiting": 3}
    return sorted((stall for stall in found if stall is not None), key=lambda stall: order[stall.kind])


def crossed(found: Sequence[Stall]) -> str:
    """The line about two groups in which ranks wait for each other; "" where there are none."""
    for one, other in itertools.combinations(found, 2):
        missing = [{*stall.absent, *stall.silent} for stall in (one, other)]
        if missing[0] & {*other.waiting} and missing[1] & {*one.waiting}:
            return (
                f"ranks wait for each other in groups {one.group} and {other.group}: every rank has to call the "
                "collectives of both in the same order"
            )
    return ""


def members(name: str, dumps: Mapping[int, Dump]) -> tuple[int, ...]:
    """The ranks of a group: as a dump says, else those that used it."""
    for dump in dumps.values():
        group = dump.groups.get(name)
        if group is not None and group.ranks:
            return group.ranks
    users = {rank for rank, dump in dumps.items() if name in dump.entries}
    described = {d.groups[name].description for d in dumps.values() if name in d.groups}
    return tuple(sorted(dumps if "default_pg" in described else users))


def _stall(name: str, dumps: Mapping[int, Dump]) -> Stall | None:
    ranks = members(name, dumps)
    known = [rank for rank in ranks if rank in dumps and (dumps[rank].whole or name in dumps[rank].entries)]
    sequences = {rank: {e.number: e for e in dumps[rank].entries.get(name, ())} for rank in known}
    silent = tuple(rank for rank in ranks if rank not in known)
    pending = [e.number for entries in sequences.values() for e in entries.values() if not e.done]
    if not pending:
        return None
    number = _first_difference(sequences, min(pending))
    present = {rank: entries[number] for rank, entries in sequences.items() if number in entries}
    absent = tuple(rank for rank in sequences if rank not in present)
    last = {rank: sequences[rank][max(sequences[rank])] for rank in absent if sequences[rank]}
    if len(_operations(present.values())) > 1:
        kind = "operation"
    elif _sizes_differ(list(present.values())):
        kind = "sizes"
    else:
        kind = "absent" if absent or silent else "waiting"
    return Stall(name, kind, present, absent, last, silent)


def _first_difference(sequences: Mapping[int, Mapping[int, Entry]], pending: int) -> int:
    """The number of the first collective that the ranks did not enter alike, at or before the first that waits."""
    numbers = sorted({number for entries in sequences.values() for number in entries if number <= pending})
    for number in numbers:
        held = [entries[number] for entries in sequences.values() if number in entries]
        if len(_operations(held)) > 1:
            return number
    return pending


def _operations(entries: Iterable[Entry]) -> set[str]:
    """Calls that no recorder has are named as in Python, and recorded ones as the backend names them."""
    return {entry.operation for entry in entries if entry.state != NOT_BEGUN}


def _sizes_differ(entries: Sequence[Entry]) -> bool:
    entries = [entry for entry in entries if entry.state != NOT_BEGUN]
    if not entries or entries[0].operation in UNEVEN:
        return False
    return len({(entry.input_sizes, entry.dtype) for entry in entries}) > 1


def recorded_positions(paths: Iterable[Path]) -> dict[int, Position]:
    """Where the ranks wait that their own dumps say wait; unreadable dumps are passed over."""
    dumps = []
    for path in paths:
        try:
            dumps.append(read(path))
        except DumpError:
            continue
    found = [stall for stall in stalls(dumps) if stall.kind != "waiting"][:1]
    return {
        rank: Position(entry.name(), entry.where())
        for stall in found for rank, entry in stall.waiting.items() if not entry.done
    }  # fmt: skip


def describe(stall: Stall, dumps: Mapping[int, Dump], positions: Mapping[int, Position]) -> list[str]:
    """Lines for people: the group, who waits where, who did not come."""
    description = next((d.groups[stall.group].description for d in dumps.values() if stall.group in d.groups), "")
    title = f"group {stall.group}" + (f" ({description})" if description and description != "undefined" else "")
    lines = [f"{title}, {ranges(members(stall.group, dumps))}: {TITLES[stall.kind]}"]
    lines += [f"  {text}" for text in _held(stall, positions)]
    for rank in stall.absent:
        entry = stall.last.get(rank)
        text = f"its last was {_call(entry)}" if entry else "it entered none of this group"
        lines.append(f"  rank {rank} never came: {text}{_stands(rank, positions)}")
    if stall.silent:
        lines.append(f"  {ranges(stall.silent)} left no dump{_stands(stall.silent[0], positions)}")
    if stall.kind == "waiting":
        open_ = [f"rank {rank}'s {_message(entry)}" for rank in stall.waiting for entry in unfinished(dumps[rank])[:1]]
        earlier = f"before it {' and '.join(open_)} {'has' if len(open_) == 1 else 'have'} not ended"
        lines.append(f"  all have entered it: {earlier if open_ else EARLIER}")
    return lines


def unfinished(dump: Dump) -> list[Entry]:
    """Messages between two ranks that have not come, the one for which the others wait first."""
    return [entry for entry in dump.messages if not entry.done]


def _message(entry: Entry) -> str:
    where, direction = entry.where(), "from" if "recv" in entry.operation else "to"
    other = f" {direction} rank {entry.with_rank}" if entry.with_rank else ""
    return f"{entry.operation}{other}" + (f" (called at {where})" if where else "")


EARLIER = "a rank's earlier kernels have not ended, or the network fails"


TITLES = {
    "absent": "not all ranks came",
    "operation": "ranks called different collectives",
    "sizes": "ranks brought tensors of different sizes or types",
    "waiting": "all ranks wait",
}


def _held(stall: Stall, positions: Mapping[int, Position]) -> list[str]:
    """Ranks by what they called, and where: dumps in JSON have no stacks. Where sizes differ, by those too."""
    grouped: dict[str, list[int]] = {}
    for rank, entry in sorted(stall.waiting.items()):
        sizes = f" of {_sizes(entry)}" if stall.kind == "sizes" else ""
        state = " (done here)" if entry.done else ""
        grouped.setdefault(f"{_call(entry, positions.get(rank))}{sizes}{state}", []).append(rank)
    verb = "called" if stall.kind in ("operation", "sizes") else "waits in"
    if verb == "called":
        grouped = {text.replace(", called at ", " at ", 1): ranks for text, ranks in grouped.items()}
    return [
        f"{ranges(ranks)} {verb if len(ranks) == 1 or verb == 'called' else 'wait in'} {text}"
        for text, ranks in grouped.items()
    ]


def _call(entry: Entry, position: Position | None = None) -> str:
    where = entry.where() or (position.where if position is not None and position.collective else "")
    return f"{entry.name()}, called at {where}" if where else entry.name()


def _sizes(entry: Entry) -> str:
    return ", ".join("×".join(map(str, size)) or "one element" for size in entry.input_sizes) + f" {entry.dtype}"


def _stands(rank: int, positions: Mapping[int, Position]) -> str:
    where = positions.get(rank, Position())
    if where.collective:
        return f"; it is in {where.collective} ({where.where})"
    return f"; it is at {where.where}" if where.where else ""

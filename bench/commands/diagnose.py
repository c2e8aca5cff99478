"""`python -m bench diagnose DUMP…`: why a job hangs. Reads NCCL flight-recorder dumps (`nccl_trace_rank_N`, pickled or
JSON) and stacks (`py-spy dump`, faulthandler), one file per rank, or directories of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.cli import FAILED, OK
from bench.diagnose import analysis, dumps, findings
from bench.problems import in_one_line
from bench.process.stacks import Frame, Position, parse, position
from bench.process.verdict import ranges
from bench.terminal.parsing import Parser

SHOWN = 5


def parser() -> argparse.ArgumentParser:
    """The flags of `bench diagnose`."""
    p = Parser(prog="bench diagnose", description=__doc__)
    p.add_argument("dumps", nargs="+", type=Path, metavar="DUMP", help="files whose names end in the rank, directories")
    p.add_argument("--source", type=Path, metavar="TREE", help="the job's source: which finding explains it?")
    return p


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0 no rank waits, 1 some do, 2 wrong usage."""
    options = parser().parse_args(arguments)
    if options.source is not None and not options.source.is_dir():
        raise dumps.DumpError(f"--source {options.source}: no such directory")
    recorded, stacks = read(options.dumps)
    lines, waits, frames = diagnosis(recorded, stacks)
    print("\n".join(lines), flush=True)
    if options.source is not None and waits:
        print("\n".join(_explained(options.source, frames)))
    return FAILED if waits else OK


def read(paths: Sequence[Path]) -> tuple[list[dumps.Dump], dict[int, str]]:
    """Dumps, and texts of stacks by rank. In directories, what is neither is passed over. Raises `DumpError`."""
    recorded: list[dumps.Dump] = []
    standing: list[dumps.Dump] = []
    stacks: dict[int, str] = {}
    named = {path for path in paths if not path.is_dir()}
    for path in dumps.files(paths):
        rank = dumps.rank_of(path)
        if rank is not None and dumps.is_stacks(path):
            stacks[rank] = path.read_text(encoding="utf-8", errors="replace")
            continue
        try:
            (standing if path.name.startswith(dumps.STANDING) else recorded).append(dumps.read(path))
        except dumps.DumpError:
            if path in named:
                raise
    if not recorded and not stacks and not standing:
        raise dumps.DumpError(f"{', '.join(map(str, paths))}: no flight-recorder dump and no stacks in it")
    _add_standing(recorded, standing)
    ranks = [dump.rank for dump in recorded]
    twice = next((rank for rank in ranks if ranks.count(rank) > 1), None)
    if twice is not None:
        both = ", ".join(str(dump.path) for dump in recorded if dump.rank == twice)
        raise dumps.DumpError(f"{both}: two dumps of rank {twice}; give those of one moment only")
    return recorded, stacks


def _add_standing(recorded: list[dumps.Dump], standing: Sequence[dumps.Dump]) -> None:
    """Add the calls in which ranks stand to what their recorders have, which may be nothing."""
    for call in standing:
        own = next((dump for dump in recorded if dump.rank == call.rank), None)
        if own is None:
            own = dumps.Dump(call.rank, call.path, whole=False)
            recorded.append(own)
        own.add(call)


def diagnosis(recorded: Sequence[dumps.Dump], stacks: dict[int, str]) -> tuple[list[str], bool, list[Frame]]:
    """Lines for people, whether any rank waits, and the calls of all ranks, for which the source is searched."""
    positions = {rank: position(text) for rank, text in stacks.items()}
    by_rank = {dump.rank: dump for dump in recorded}
    found = analysis.stalls(recorded)
    frames = [frame for stall in found for frame in stall.frames()]
    frames += [frame for text in stacks.values() for thread in parse(text) for frame in thread]
    if found:
        lines = [line for stall in found for line in analysis.describe(stall, by_rank, positions)]
        return lines + list(filter(None, [analysis.crossed(found)])), True, frames
    lines, waits = _from_stacks(positions)
    if recorded:
        some = any(dump.entries for dump in recorded)
        what = "every recorded collective has ended" if some else "no collective is recorded"
        lines.insert(0, f"{ranges(sorted(by_rank))}: {what}")
    members = {rank for dump in recorded for group in dump.groups.values() for rank in group.ranks}
    silent = sorted(members - by_rank.keys() - positions.keys())
    lines += [f"{ranges(silent)} left no dump and no stacks"] * bool(silent)
    return lines, waits, frames


def _from_stacks(positions: dict[int, Position]) -> tuple[list[str], bool]:
    """One line per rank, and whether any waits in a collective, for which one that is elsewhere never came."""
    waits = any(where.collective for where in positions.values())
    lines = []
    for rank, where in sorted(positions.items()):
        place = f" ({where.where})" if where.where else ""
        if where.collective:
            lines.append(f"rank {rank} waits in {where.collective}{place}")
        else:
            lines.append(f"rank {rank} {'never came: it ' if waits else ''}is at {where.where or '?'}")
    return lines, waits


def _explained(tree: Path, frames: Sequence[Frame]) -> list[str]:
    found = findings.explain(tree, frames)
    if not found:
        return [f"no finding in {tree} explains it (rules {findings.RULES})"]
    words = {3: "explains it", 2: "in the same file", 1: "elsewhere in the tree"}
    lines = []
    for one in found[:SHOWN]:
        lines.append(f"{words[one.nearness]}: {one.place}: {one.code} {one.message}")
        lines += [f"  {one.help}"] * bool(one.help and one.nearness == 3)
    return lines + [f"and {len(found) - SHOWN} more"] * (len(found) > SHOWN)

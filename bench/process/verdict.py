"""How a process group ended: one class, the first error of the first failing rank, and what to change."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import backends
from bench.configuration import Configuration
from bench.grouping import grouped
from bench.process.heartbeat import PHASES, read_all
from bench.process.logs import first_error
from bench.process.sessions import is_here
from bench.process.stacks import Position
from bench.sweep.availability import install
from bench.terminal.text import counted

STATUSES = (
    "ok", "oom", "hang", "crash", "compile_error", "unsupported", "loss_mismatch", "nan", "interrupted", "skipped",
)  # fmt: skip

BADLY = ("oom", "hang", "crash", "compile_error", "nan", "loss_mismatch")
"""Statuses of rows that ran and failed."""

HINTS = {
    "oom": "fewer layers, ZeRO-3 or FSDP2, a smaller --micro-batch-size or --gradient-checkpointing",
    "hang": "look at what the rank that stayed away does, in stacks.<rank>.txt beside the log; "
    "a longer wait: --deadline PHASE=SECONDS",
    "compile_error": "--compile none, or blocks instead of full",
    "nan": "a lower --lr, --dtype bf16 instead of fp16, or fp32 to see whether it is rounding",
    "loss_mismatch": "run both with --dtype fp32: what still differs is not rounding",
}

OUT_OF_MEMORY = re.compile(
    r"out of memory|can(?:'|no)t allocate memory|cublas_status_alloc_failed|cudnn_status_alloc_failed|"
    r"failed to allocate|bad_alloc",
    re.IGNORECASE,
)
CONSEQUENCE = re.compile(
    r"connection (?:was )?(?:closed|reset|refused|aborted)|broken pipe|socket (?:closed|timeout)|"
    r"remote process exited|communicator was aborted|peer closed|recvvalue failed|sendbytes failed",
    re.IGNORECASE,
)
"""What a rank says when it has lost another one."""

# By these a process does not end for want of a peer; SIGABRT is how NCCL's watchdog and C++ end after one is lost.
OWN_SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


@dataclass(frozen=True)
class Verdict:
    """How a process group ended. `status` is one of `STATUSES`; `rank` the first that failed or stayed away."""

    status: str
    message: str = ""
    phase: str = ""
    rank: int | None = None
    module: str = ""

    @property
    def told(self) -> str:
        """The message, with the rank that it is of."""
        return self.message if self.rank is None else f"rank {self.rank}: {self.message}"

    def hint(self, configuration: Configuration | None = None) -> str:
        """What to change, as far as `configuration` leaves room for it."""
        if self.status == "oom" and configuration is not None:
            return smaller(configuration)
        if self.module:
            return install(self.module)
        if self.status == "crash" and "SIGKILL" in self.message:
            return "nothing of bench sends it: another user, a job limit, or the kernel short of memory (see dmesg)"
        return HINTS.get(self.status, "")


def smaller(configuration: Configuration) -> str:
    """The settings of a configuration that still can be made to take less memory, as flags."""
    found = []
    if configuration.rows > 1:
        found.append(f"--micro-batch-size {configuration.rows // 2}")
    if not configuration.gradient_checkpointing:
        found.append("--gradient-checkpointing")
    found += filter(None, [backends.find(configuration.backend).smaller(configuration)])
    if configuration.head == "full":
        found.append("--head chunked")
    if configuration.attn == "eager":
        found.append("--attn sdpa")
    if configuration.inputs is None and configuration.seq_len > 1:
        found.append(f"--seq-len {configuration.seq_len // 2}")
    found.append("fewer layers (--num-layers)")
    return ", ".join(found)


def classify(error: Mapping[str, Any]) -> str:
    """The status that a rank's recorded error stands for."""
    kind, text = str(error.get("type", "")), str(error.get("message", ""))
    if kind in ("OutOfMemoryError", "MemoryError") or OUT_OF_MEMORY.search(text):
        return "oom"
    # PyTorch's words for an attention kernel that was named and does not take these inputs.
    if kind in ("UnsupportedError", "ModelError", "ModuleNotFoundError") or "no available kernel" in text.lower():
        return "unsupported"
    trace = str(error.get("traceback", ""))
    if "torch/_inductor" in trace or "torch/_dynamo/symbolic_convert" in trace or "BackendCompilerFailed" in kind:
        return "compile_error"
    return "crash"


def verdict_of(
    folder: Path, returncode: int, number: int, ranks: int = 1, exits: Mapping[int, int] | None = None
) -> Verdict:
    """The verdict on a group that has ended by itself.

    First comes what cannot follow from another rank's end: a kill or a fault in native code, then the earliest
    recorded error that does not speak of a lost peer; only then the others.
    """
    errors = sorted(read_all(folder, "error"), key=lambda error: float(error.get("time", 0.0)))
    recorded = {error.get("rank") for error in errors}
    signalled = {rank: -code for rank, code in (exits or {}).items() if code < 0 and rank not in recorded}
    killed = {rank: number for rank, number in signalled.items() if number in OWN_SIGNALS}
    if killed:
        return _signalled(folder, killed)
    own = [error for error in errors if not CONSEQUENCE.search(str(error.get("message")))]
    if own:
        return _recorded(own[0])
    if signalled:
        return _signalled(folder, signalled)
    missing = unfinished(folder, ranks, excluded=recorded) if errors or returncode == 0 else []
    if missing:
        return gone(folder, missing, errors[0] if errors else None)
    if errors:
        return _recorded(errors[0])
    if returncode < 0:
        return Verdict("crash", f"killed by {_name(-returncode)}")
    if returncode != 0:
        told = first_error(folder / f"log.{number}.txt") or "see the log"
        return Verdict("crash", f"exit status {returncode} and no recorded error: {told}", _earliest(folder, ranks))
    if not (folder / f"run.{number}.json").is_file():
        return Verdict("crash", "exit status 0 without a result")
    return Verdict("ok")


def _name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _earliest(folder: Path, ranks: int) -> str:
    """The phase of the rank that has come the least far."""
    reached = [str(beat["phase"]) for beat in read_all(folder, "heartbeat")]
    return min(reached, key=PHASES.index) if len(reached) == ranks else "start"


def _recorded(error: Mapping[str, Any]) -> Verdict:
    missing = re.fullmatch(r"No module named '([\w.]+)'", str(error.get("message")))
    return Verdict(
        classify(error), f"{error.get('type')}: {error.get('message')}", str(error.get("phase")), error.get("rank"),
        missing[1].partition(".")[0] if missing else "",
    )  # fmt: skip


def _beats(folder: Path) -> dict[Any, dict[str, Any]]:
    return {beat.get("rank"): beat for beat in read_all(folder, "heartbeat")}


def _signalled(folder: Path, numbers: Mapping[int, int]) -> Verdict:
    """`numbers` are those of the signals, by rank."""
    beats, first = _beats(folder), next(iter(numbers))
    phase = str(beats[first]["phase"]) if first in beats else "start"
    lost = _host_is_lost(first, list(numbers), beats)
    return Verdict("crash", f"killed by {_name(numbers[first])}{lost}", phase, first)


def unfinished(folder: Path, ranks: int, excluded: set[Any]) -> list[int]:
    """Ranks without the mark of the end, those left out that have recorded an error."""
    ended = {beat.get("rank") for beat in read_all(folder, "heartbeat") if beat.get("phase") == "end"}
    return [rank for rank in range(ranks) if rank not in ended and rank not in excluded]


def gone(folder: Path, ranks: Sequence[int], consequence: Mapping[str, Any] | None = None) -> Verdict:
    """The verdict on ranks that ended without finishing and without an error.

    Where the error of another rank speaks of a lost peer, that rank's launcher has ended the others of its host: the
    peer was elsewhere.
    """
    beats = _beats(folder)
    complaining = {beats[e.get("rank")].get("host") for e in read_all(folder, "error") if e.get("rank") in beats}
    lost = [r for r in ranks if r in beats and beats[r].get("host") not in complaining] or list(ranks)
    first = lost[0]
    phase = str(beats[first]["phase"]) if first in beats else "start"
    then = "" if consequence is None else f"; then rank {consequence.get('rank')}: {consequence.get('message')}"
    words = f"ended before it had finished, in {_stage(beats.get(first))}, and left no error"
    return Verdict("crash", f"{words}{_host_is_lost(first, lost, beats)}{then}", phase, first)


def _host_is_lost(first: int, lost: Sequence[int], beats: Mapping[Any, Mapping[str, Any]]) -> str:
    """Words for the end of all ranks of a host, where there are other hosts."""
    host = beats.get(first, {}).get("host")
    there = [rank for rank, beat in beats.items() if beat.get("host") == host]
    if host is None or len(there) == len(beats) or not set(there) <= set(lost):
        return ""
    return f"; no rank of {host} is left ({ranges(there)}): is that host up?"


def _stage(beat: Mapping[str, Any] | None) -> str:
    if beat is None:
        return "start"
    return f"{beat['phase']} {beat['done']}/{beat['total']}" if beat.get("total") else str(beat["phase"])


def ranges(ranks: Sequence[int]) -> str:
    """Ranks for a message: `rank 3`, `ranks 0-2, 5`."""
    return counted("rank", ranks)


def hang(
    seconds: float, ranks: int, beats: Sequence[Mapping[str, Any]], positions: Mapping[int, Position],
    states: Mapping[int, str],
) -> Verdict:  # fmt: skip
    """The verdict on a group without progress: who stayed away, and in which collective the others wait.

    `states` says of ranks that cannot answer what they are: stopped, gone. Away is who is in no collective while
    others are; without stacks, who has come the least far.
    """
    by_rank = {int(beat["rank"]): beat for beat in beats if "rank" in beat}
    waiting = {rank for rank, where in positions.items() if where.collective}
    finished = {rank for rank, beat in by_rank.items() if beat["phase"] == "end"}
    away = [rank for rank in range(ranks) if rank not in waiting and rank not in finished]
    if len(away) == ranks:
        away = _hindmost(ranks, by_rank, states)
    words = [f"no progress for {seconds:.0f} s"]
    if away:
        first = away[0]
        phase = str(by_rank[first]["phase"]) if first in by_rank else "start"
        words.append(f"{ranges(away)} stayed away ({_about(first, by_rank, positions, states)})")
    else:
        phase = str(min(by_rank.values(), key=lambda beat: float(beat["time"]))["phase"]) if by_rank else "start"
        words.append("every rank waits for others: they are in different collectives, groups or orders")
    words += _waits(waiting, positions)
    others = [r for r in range(ranks) if r not in waiting and r not in away and r in by_rank and r not in finished]
    words += [f"rank {rank} in {_stage(by_rank[rank])}" for rank in others[:4]]
    return Verdict("hang", "; ".join(words), phase, away[0] if away else None)


def _hindmost(ranks: int, by_rank: Mapping[int, Mapping[str, Any]], states: Mapping[int, str]) -> list[int]:
    known = [rank for rank in range(ranks) if rank in states]
    if known:
        return known
    silent = [rank for rank in range(ranks) if rank not in by_rank]
    if silent:
        return silent
    places = {rank: (PHASES.index(beat["phase"]), int(beat["done"])) for rank, beat in by_rank.items()}
    least = min(places.values())
    return [rank for rank in sorted(places) if places[rank] == least]


def _about(
    rank: int, by_rank: Mapping[int, Mapping[str, Any]], positions: Mapping[int, Position], states: Mapping[int, str]
) -> str:
    if rank not in by_rank:
        return states.get(rank, "it never reported")
    parts = [f"in {_stage(by_rank[rank])}"]
    if by_rank[rank].get("host") and not is_here(by_rank[rank]):
        parts.append(f"on {by_rank[rank]['host']}")
    if rank in states:
        parts.append(states[rank])
    elif rank in positions and positions[rank].where:
        parts.append(f"at {positions[rank].where}")
    return ", ".join(parts)


def _waits(waiting: set[int], positions: Mapping[int, Position]) -> list[str]:
    return [
        f"{ranges(held)} wait{'s' if len(held) == 1 else ''} in {place.collective}"
        + (f" ({place.where})" if place.where else "")
        for place, held in grouped(sorted(waiting), lambda rank: positions[rank]).items()
    ]

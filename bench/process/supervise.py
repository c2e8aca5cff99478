"""Running one process group of a configuration: deadlines, its log, and how it ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench import backends
from bench.configuration import Configuration
from bench.diagnose.analysis import recorded_positions
from bench.inputs import CONVERTED
from bench.launch import exits, flight, forked, local
from bench.launch.engine import Launcher
from bench.process import interrupts, sessions, stacks
from bench.process.heartbeat import die_with_parent, read_all
from bench.process.logs import CappedLog
from bench.process.verdict import Verdict, classify, gone, hang, verdict_of

__all__ = ["DEADLINES", "Job", "Progress", "Verdict", "classify", "read_all", "run_group", "verdict_of"]

DEADLINES = {
    "start": 180.0, "load": 900.0, "compile": 1800.0, "warmup": 900.0, "measure": 900.0, "report": 600.0,
    "end": 60.0, "lost": 10.0,
}  # fmt: skip
"""Seconds without progress of a rank in a phase before its group counts as hung. `end`: from the last rank's end to
that of its launcher. `lost`: how long the others may go on when a rank is gone without having finished."""

STALE = ("heartbeat.*.json", "error.*.json", "stacks.*.txt", "exits.json", "rendezvous.*.json")
POLL = 0.1
Progress = Callable[[str, int, int], None]
Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Job:
    """What the ranks of a group run: a module that takes the result directory and the process's number.

    `environment` is added to theirs. `fork` starts them from one process that has imported everything: for CPUs,
    where the imports of many ranks take longer than a tiny run; `preload` names more to import first.
    `foreground` gives them the terminal instead of a log, and all the time that people take. `launcher` is the engine
    that starts them; without one they run on this host.
    """

    module: str = "bench.measure.worker"
    environment: Mapping[str, str] = field(default_factory=dict)
    fork: bool = False
    preload: tuple[str, ...] = ()
    foreground: bool = False
    launcher: Launcher | None = None

    def command(self, ranks: int, arguments: list[str]) -> list[str]:
        if self.launcher is not None:
            return self.launcher.command(ranks, self.module, arguments)
        if self.fork and ranks > 1:
            return forked.command(ranks, self.module, arguments, self.preload)
        return local.command(ranks, self.module, arguments)


def job_of(configuration: Configuration, gpus: int, module: str = Job.module, **more: Any) -> Job:
    """What the ranks of a configuration run: on CPUs forked from one process that has imported everything once, where
    the imports of each would take longer than a tiny row."""
    preload = backends.find(configuration.backend).preload
    return Job(module, fork=not configuration.on_gpu(gpus), preload=preload, **more)


class Watch:
    """Looks at the ranks of a running group at every poll."""

    def __init__(self, folder: Path, number: int, ranks: int, deadlines: Mapping[str, float]) -> None:
        self.folder, self.number, self.ranks, self.deadlines = folder, number, ranks, deadlines
        self.started = time.time()
        self._lost_since: dict[int, float] = {}

    def look(self, mark: str) -> Verdict | None:
        """The verdict that ends the group, or None while it may go on."""
        beats = read_all(self.folder, "heartbeat")
        silent = self._silent({int(beat["rank"]): beat for beat in beats})
        if silent is not None and len(beats) == self.ranks and all(beat["phase"] == "end" for beat in beats):
            return verdict_of(self.folder, 0, self.number, self.ranks)  # only the launcher does not end
        dead = self._dead(beats)
        if silent is not None and not dead:
            return self._hung(silent, beats, mark)
        lost = sorted(dead) if silent is not None else self._lost(dead)
        if not lost:
            return None
        # A launcher that is slow to end has killed them because of another rank's error.
        failed = bool(read_all(self.folder, "error"))
        return verdict_of(self.folder, 1, self.number, self.ranks) if failed else gone(self.folder, lost)

    def _silent(self, beats: Mapping[int, Mapping[str, Any]]) -> float | None:
        """Seconds since the last sign of the rank that is beyond its phase's deadline, where one is."""
        running = {rank: beat for rank, beat in beats.items() if beat["phase"] != "end"}
        if len(beats) == self.ranks and not running:
            running = {rank: beat for rank, beat in beats.items() if rank == _latest(beats)}
        now = time.time()
        times = [(float(beat["time"]), str(beat["phase"])) for beat in running.values()]
        times += [(self.started, "start")] * (len(beats) < self.ranks)
        late = [now - since for since, phase in times if now - since > self._deadline(phase)]
        return max(late, default=None)

    def _deadline(self, phase: str) -> float:
        return self.deadlines.get(phase, max(self.deadlines.values()))

    def _dead(self, beats: Sequence[Mapping[str, Any]]) -> set[int]:
        """Ranks of this host whose process is gone without the mark of the end."""
        running = [beat for beat in beats if beat["phase"] != "end" and sessions.is_here(beat)]
        return {int(beat["rank"]) for beat in running if not sessions.is_alive(int(beat["pid"]))}

    def _lost(self, dead: set[int]) -> list[int]:
        """Those that have been gone for longer than a launcher needs to see it, or, of a rank that left an error, to
        end itself: one whose peer host has died may wait for it."""
        now = time.time()
        self._lost_since = {rank: self._lost_since.get(rank, now) for rank in dead}
        failed = {error.get("rank") for error in read_all(self.folder, "error")} if dead else set()
        limits = {rank: self._deadline("end" if rank in failed else "lost") for rank in dead}
        return sorted(rank for rank, since in self._lost_since.items() if now - since > limits[rank])

    def _hung(self, seconds: float, beats: Sequence[Mapping[str, Any]], mark: str) -> Verdict:
        """Ask all ranks where they stand; their answers stay beside the log."""
        texts = stacks.collect(self.folder, beats, mark)
        positions = {rank: stacks.position(text) for rank, text in texts.items()}
        # On GPUs Python runs ahead of the kernels: the collective that waits may be long gone from the stack.
        for rank, where in recorded_positions(flight.ask(self.folder, self.ranks)).items():
            if not positions.get(rank, stacks.Position()).collective:
                positions[rank] = where
        states = {}
        for beat in filter(sessions.is_here, beats):
            if beat["phase"] != "end" and sessions.is_stopped(int(beat["pid"])):
                states[int(beat["rank"])] = "its process is stopped"
        return hang(seconds, self.ranks, beats, positions, states)


def _latest(beats: Mapping[int, Mapping[str, Any]]) -> int:
    return max(beats, key=lambda rank: float(beats[rank]["time"]))


def run_group(
    folder: Path,
    number: int,
    ranks: int,
    progress: Progress,
    deadlines: Mapping[str, float] | None = None,
    job: Job | None = None,
) -> Verdict:
    """Run process number `number` of the configuration in `folder`; its output goes to `log.<number>.txt`.

    All its processes are killed on a deadline and on Ctrl-C, which is raised again. Raises `OSError` where the
    folder cannot be written.
    """
    interrupts.check()
    for pattern in (*STALE, f"{flight.PREFIX}*"):
        for stale in folder.glob(pattern):
            stale.unlink()
    job = job or Job()
    mark = sessions.new_mark()
    command = job.command(ranks, [str(folder.resolve()), str(number)])
    recorded = folder.resolve() / "exits.json"
    environment = {
        **local.environment(ranks), **flight.environment(folder), "PYTHONFAULTHANDLER": "1",
        exits.VARIABLE: str(recorded), CONVERTED: str(folder.resolve().parent / ".inputs"), **mark, **job.environment,
    }  # fmt: skip
    watch = Watch(folder, number, ranks, {**DEADLINES, **(deadlines or {})})
    oom_kills = sessions.oom_kills()
    process = start(command, environment, job.foreground)
    log = None if process.stdout is None else CappedLog(folder / f"log.{number}.txt", process.stdout)  # type: ignore[arg-type]

    def look() -> Verdict | None:
        seen = None if job.foreground else watch.look(mark[sessions.MARK])
        if seen is None:
            _show(folder, progress)
        return seen

    try:
        ended_by = attend(process, look)
        if ended_by is not None:
            return ended_by
    finally:
        sessions.kill(process, mark[sessions.MARK])
        if log is not None:
            log.close()
    failed = exits.read(recorded)
    if not failed and process.returncode < 0 and ranks == 1:
        failed = {0: process.returncode}
    verdict = verdict_of(folder, process.returncode, number, ranks, failed)
    return _killed_for_memory(verdict) if sessions.oom_kills() > oom_kills else verdict


def start(command: Sequence[str], environment: Mapping[str, str], foreground: bool) -> subprocess.Popen[bytes]:
    """Start a launcher in a session of its own, which ends with this process: with this process's streams
    (`foreground`), or with no input and its output in a pipe. Raises `OSError` where the program cannot be run."""
    streams = (None, None, None) if foreground else (subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT)
    return subprocess.Popen(
        command, stdin=streams[0], stdout=streams[1], stderr=streams[2], start_new_session=True, env=environment,
        preexec_fn=die_with_parent,
    )  # fmt: skip


def attend(process: subprocess.Popen[bytes], look: Callable[[], Seen | None]) -> Seen | None:
    """Call `look` every `POLL` seconds: the first thing that it sees, or None once the process has ended."""
    while process.poll() is None:
        time.sleep(POLL)
        seen = look()
        if seen is not None:
            return seen
    return None


def _killed_for_memory(verdict: Verdict) -> Verdict:
    if verdict.status != "crash" or "SIGKILL" not in verdict.message:
        return verdict
    return Verdict("oom", "killed by the kernel: the host's memory was used up", verdict.phase, verdict.rank)


def _show(folder: Path, progress: Progress) -> None:
    beats = [beat for beat in read_all(folder, "heartbeat") if "phase" in beat]
    start: dict[str, Any] = {"phase": "start", "done": 0, "total": 0}
    slowest = min(beats, key=lambda beat: float(beat["time"]), default=start)
    progress(str(slowest["phase"]), int(slowest["done"]), int(slowest["total"]))

"""Running one process group of a configuration: deadlines, the verdict on how it ended, and its log."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.heartbeat import read_all
from bench.launch import forked, local

DEADLINES = {"start": 180.0, "load": 900.0, "warmup": 1200.0, "measure": 900.0, "report": 300.0}
"""Seconds without any progress of any rank in a phase before the group counts as hung."""

POLL = 0.1
PR_SET_PDEATHSIG = 1
GRACE = 5.0
Progress = Callable[[str, int, int], None]

HINTS = {
    "oom": "fewer layers, ZeRO-3 or FSDP2, a smaller --micro-batch-size or --gradient-checkpointing",
    "hang": "the log's last lines and the ranks' phases say who waits for whom",
    "compile_error": "--compile none, or blocks instead of full",
}


@dataclass(frozen=True)
class Verdict:
    """How a process group ended. `status` is one of ok, oom, hang, crash, compile_error, unsupported."""

    status: str
    message: str = ""
    phase: str = ""
    rank: int | None = None

    def hint(self) -> str:
        return HINTS.get(self.status, "")


@dataclass(frozen=True)
class Job:
    """What the ranks of a group run: a module that takes the result directory and the process's number.

    `environment` is added to theirs. `fork` starts them from one process that has imported everything: for CPUs,
    where the imports of many ranks take longer than a tiny run; `preload` names more to import first.
    `foreground` gives them the terminal, and all the time that people take.
    """

    module: str = "bench.worker"
    environment: Mapping[str, str] = field(default_factory=dict)
    fork: bool = False
    preload: tuple[str, ...] = ()
    foreground: bool = False

    def command(self, ranks: int, arguments: list[str]) -> list[str]:
        if self.fork and ranks > 1:
            return forked.command(ranks, self.module, arguments, self.preload)
        return local.command(ranks, self.module, arguments)


def classify(error: dict[str, Any]) -> str:
    """The status that a rank's recorded error stands for."""
    kind, text = str(error.get("type", "")), str(error.get("message", "")).lower()
    if kind == "OutOfMemoryError" or "out of memory" in text or kind == "MemoryError":
        return "oom"
    # PyTorch's words for an attention kernel that was named and does not take these inputs.
    if kind in ("UnsupportedError", "ModelError", "ModuleNotFoundError") or "no available kernel" in text:
        return "unsupported"
    trace = str(error.get("traceback", ""))
    if "torch/_inductor" in trace or "torch/_dynamo/symbolic_convert" in trace or "BackendCompilerFailed" in kind:
        return "compile_error"
    return "crash"


def verdict_of(folder: Path, returncode: int, number: int) -> Verdict:
    """The verdict on a group that has ended by itself: the earliest recorded error counts."""
    errors = sorted(read_all(folder, "error"), key=lambda error: error.get("time", 0.0))
    if errors:
        first = errors[0]
        message = f"{first.get('type')}: {first.get('message')}"
        return Verdict(classify(first), message, str(first.get("phase")), first.get("rank"))
    if returncode < 0:
        return Verdict("crash", f"killed by signal {-returncode} ({signal.Signals(-returncode).name})")
    if returncode != 0:
        return Verdict("crash", f"exit status {returncode} and no recorded error: see the log")
    if not (folder / f"run.{number}.json").is_file():
        return Verdict("crash", "exit status 0 without a result")
    return Verdict("ok")


def _hung(folder: Path, started: float, deadlines: dict[str, float]) -> Verdict | None:
    beats = read_all(folder, "heartbeat")
    last = max((float(beat["time"]) for beat in beats), default=started)
    phase = str(min(beats, key=lambda beat: float(beat["time"]))["phase"]) if beats else "start"
    silent = time.time() - max(last, started)
    if silent <= deadlines.get(phase, max(deadlines.values())):
        return None
    stages = ", ".join(f"rank {number} in {beat['phase']} {beat['done']}" for number, beat in enumerate(beats))
    return Verdict("hang", f"no progress for {silent:.0f} s: {stages or 'no rank reported'}", phase)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Terminate the whole session of a process, then kill what is left of it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def die_with_parent() -> None:
    """Ask Linux to terminate this process when the supervisor is gone, even killed; elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def run_group(
    folder: Path,
    number: int,
    ranks: int,
    progress: Progress,
    deadlines: dict[str, float] | None = None,
    job: Job | None = None,
) -> Verdict:
    """Run process number `number` of the configuration in `folder`; its output goes to `log.<number>.txt`.

    The group has its own session and is killed as one on a deadline and on Ctrl-C, which is raised again.
    """
    for stale in (*folder.glob("heartbeat.*.json"), *folder.glob("error.*.json")):
        stale.unlink()
    job = job or Job()
    command = job.command(ranks, [str(folder.resolve()), str(number)])
    started = time.time()
    with (folder / f"log.{number}.txt").open("wb") as log:
        output = (None, None, None) if job.foreground else (subprocess.DEVNULL, log, subprocess.STDOUT)
        process = subprocess.Popen(
            command, stdin=output[0], stdout=output[1], stderr=output[2], start_new_session=True,
            env={**local.environment(ranks), **job.environment}, preexec_fn=die_with_parent,
        )  # fmt: skip
        try:
            while process.poll() is None:
                time.sleep(POLL)
                verdict = _hung(folder, started, deadlines or DEADLINES)
                if verdict is not None and not job.foreground:
                    return verdict
                _show(folder, progress)
        finally:
            kill_group(process)
    return verdict_of(folder, process.returncode, number)


def _show(folder: Path, progress: Progress) -> None:
    beats = [beat for beat in read_all(folder, "heartbeat") if "phase" in beat]
    if beats:
        slowest = min(beats, key=lambda beat: float(beat["time"]))
        progress(str(slowest["phase"]), int(slowest["done"]), int(slowest["total"]))

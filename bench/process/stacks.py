"""Where the ranks of a group stand: stacks by faulthandler or py-spy, and the collective that each waits in."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.process import sessions
from bench.process.heartbeat import STACK_SIGNAL

WAITING = """all_gather all_gather_into_tensor all_gather_object all_gather_coalesced all_reduce all_reduce_coalesced
all_to_all all_to_all_single barrier monitored_barrier broadcast broadcast_object_list broadcast_coalesced gather
gather_object reduce reduce_scatter reduce_scatter_tensor scatter scatter_object_list scatter_tensor recv irecv
send batch_isend_irecv destroy_process_group init_process_group new_group wait_tensor"""
COLLECTIVES = frozenset(WAITING.split())
"""Functions of torch.distributed in which a rank waits for others; wrappers of the same name count as well."""

NATIVE = {
    "_engine_run_backward": "backward",
    "_verify_param_shape_across_processes": "all_gather",
    "_sync_params_and_buffers": "broadcast",
}
"""Innermost calls from which Python sees no further, as DDP makes them: its reducer waits for gradients in C++ below
`backward`, and its constructor compares shapes and sends rank 0's parameters."""

STARTED = ("_bootstrap", "_bootstrap_inner")
"""The outermost calls of a thread that Python has started."""

OUTERMOST = ("<module>", "_run_module_as_main")
"""Where the main thread of a program begins."""

OURS = "meshproof_rank.py"
"""The file whose thread `bench watch` adds to somebody's program."""

WAIT = 2.0
PY_SPY_SECONDS = 10.0
FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)(?: in (?P<function>.+))?$')
PY_SPY_FRAME = re.compile(r"^    (?P<function>\S+) \((?P<file>.+?)(?::(?P<line>\d+))?\)$")
LIBRARIES = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python3[.\d]*)[/\\]")


@dataclass(frozen=True)
class Frame:
    """One call. `line` is 1-based."""

    file: str
    line: int
    function: str

    def place(self) -> str:
        """The last two parts of the path: enough to find the file, short enough for a message."""
        return f"{'/'.join(Path(self.file).parts[-2:])}:{self.line}"


@dataclass(frozen=True)
class Position:
    """What a rank does: `collective` is "" where it waits in none; `where` is "file:line in function" of user code."""

    collective: str = ""
    where: str = ""


def parse(text: str) -> list[list[Frame]]:
    """Threads of a dump of faulthandler or py-spy, each with its frames, innermost first."""
    threads: list[list[Frame]] = []
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            threads.append([])
            continue
        match = FRAME.match(line) or PY_SPY_FRAME.match(line)
        if match and threads:
            threads[-1].append(Frame(match["file"], int(match["line"] or 0), match["function"] or "?"))
    return [frames for frames in threads if frames]


def position(text: str) -> Position:
    """The collective in which any thread waits (backward hooks run in threads of their own), else where the main
    thread stands."""
    threads = [frames for frames in parse(text) if not _idle(frames) and not _ours(frames)]
    for frames in threads:
        for depth, frame in enumerate(frames):
            if frame.function in COLLECTIVES:
                return Position(frame.function, where(frames[depth + 1 :]))
    programs = [frames for frames in threads if frames[-1].function not in STARTED]
    # A thread that C++ has started, as the one that writes NCCL's dump, begins somewhere in a library.
    main = next((frames for frames in programs if frames[-1].function in OUTERMOST), next(iter(programs), None))
    if main and main[0].function in NATIVE:
        return Position(NATIVE[main[0].function], where(main))
    return Position("", where(main or []))


def _idle(frames: Sequence[Frame]) -> bool:
    """Whether a thread of a pool waits for work: there a name such as `gather` is not torch's."""
    return frames[-1].function in STARTED and frames[0].function in ("wait", "get", "select")


def _ours(frames: Sequence[Frame]) -> bool:
    return any(Path(frame.file).name == OURS for frame in frames)


def where(frames: Sequence[Frame]) -> str:
    """The innermost call outside of libraries, as "file:line in function"; "" where there is none."""
    own = next((f for f in frames if not LIBRARIES.search(f.file) and not f.file.startswith("<")), None)
    return f"{own.place()} in {own.function}" if own else ""


def collect(folder: Path, beats: Sequence[Mapping[str, Any]], mark: str) -> dict[int, str]:
    """Ask all ranks for their stacks, into `stacks.<rank>.txt`; the text by rank of those that answered.

    A heartbeat may name the `signal` that its rank answers, 0 for none, in place of SIGUSR1. Ranks that gave no
    heartbeat yet, or that do not answer, are read by py-spy where it is installed.
    """
    pids = {int(beat["rank"]): int(beat["pid"]) for beat in beats if sessions.is_here(beat)}
    elsewhere = {int(beat["rank"]): str(beat["step"]) for beat in beats if not sessions.is_here(beat)}
    living = {process.pid: process for process in sessions.members(mark)}
    asked = {rank: pid for rank, pid in pids.items() if pid in living}
    numbers = {int(beat["rank"]): int(beat.get("signal", STACK_SIGNAL or 0)) for beat in beats}
    for rank, pid in asked.items():
        _signal(pid, numbers[rank])
    for step, number in {(step, numbers[rank]) for rank, step in elsewhere.items() if step}:
        _signal_step(step, number)
    answering = {rank for rank, pid in asked.items() if not sessions.is_stopped(pid)}
    texts = _await(folder, answering | {rank for rank, step in elsewhere.items() if step})
    silent = {rank: pid for rank, pid in asked.items() if rank not in texts}
    silent |= {rank: pid for pid, rank in _unheard(living, set(pids.values())).items() if rank not in pids}
    for rank, pid in silent.items():
        text = _py_spy(pid)
        if text:
            (folder / f"stacks.{rank}.txt").write_text(text, encoding="utf-8")
            texts[rank] = text
    return texts


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):  # gone meanwhile
        if number:
            os.kill(pid, number)


def _signal_step(step: str, number: int) -> None:
    """Slurm reaches the tasks of a step on all hosts."""
    command = ["scancel", f"--signal={number}", step] if number else ["true"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, capture_output=True, timeout=PY_SPY_SECONDS, check=False)


def _await(folder: Path, ranks: set[int]) -> dict[int, str]:
    """The dumps of `ranks`, once they stop growing, for at most `WAIT` seconds."""
    texts: dict[int, str] = {}
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        time.sleep(0.1)
        now = {rank: _read(folder / f"stacks.{rank}.txt") for rank in ranks}
        if all(now.values()) and now == texts:
            break
        texts = now
    return {rank: text for rank, text in texts.items() if text}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _unheard(living: Mapping[int, Any], heard: set[int]) -> dict[int, int]:
    """Ranks by process id of those that a launcher has started and that have not reported."""
    found = {}
    for pid, process in living.items():
        try:
            rank = process.environ().get("RANK", "")
        except Exception:
            continue  # psutil's errors all mean: gone, or not ours
        if rank.isdigit() and pid not in heard:
            found[pid] = int(rank)
    return found


def _py_spy(pid: int) -> str:
    program = shutil.which("py-spy")
    if program is None:
        return ""
    command = [program, "dump", "--nonblocking", "--pid", str(pid)]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PY_SPY_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""

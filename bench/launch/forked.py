"""Ranks on this host, forked from one process that has imported what they need once.

For CPUs only: CUDA does not survive a fork. Eight ranks on two cores start in the time of one.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from types import FrameType
from typing import Any

from bench.launch import exits
from bench.process.process_exit import end

HEAVY = ("torch", "torch.distributed.fsdp", "transformers.models.llama.modeling_llama")
"""What every worker of bench that knows torch comes to import."""
GRACE = 5.0
POLL = 0.05


def command(processes: int, module: str, arguments: Sequence[str], preload: Sequence[str] = ()) -> list[str]:
    """The command line that runs `module.main(arguments)` on every rank, with `preload` imported before the forks."""
    modules = ",".join([module, *preload])
    return [sys.executable, "-m", "bench.launch.forked", str(processes), modules, *arguments]


def _rank(module: Any, arguments: list[str], rank: int, size: int, port: int) -> None:
    """What a forked child does; never returns."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ |= {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True",
    }  # fmt: skip
    status = 1
    try:
        status = int(module.main(arguments))
    except BaseException:
        traceback.print_exc()
    end(status)


def _fork(module: Any, arguments: list[str], size: int, port: int) -> list[int]:
    children = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            _rank(module, arguments, rank, size, port)
        children.append(pid)
    return children


def _end(children: set[int]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in children:
            os.kill(pid, number)
        deadline = time.monotonic() + GRACE
        while children and time.monotonic() < deadline:
            _reap(children)
            time.sleep(POLL)


def _reap(children: set[int]) -> dict[int, int]:
    """Forget the children that have ended; the exit codes by process id of those that failed."""
    failed = {}
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            children.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            if code:
                failed[pid] = code
    return failed


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Run the ranks; the first that fails ends the others. 0 when all have ended well."""
    size, names, *rest = arguments
    name, *preload = names.split(",")
    module = importlib.import_module(name)
    # A worker that knows no torch pays for none.
    for heavy in (*(HEAVY if "torch" in sys.modules else ()), *preload):
        with suppress(ImportError):  # who needs what is not there says so on its rank
            importlib.import_module(heavy)
    # The rendezvous is served from here, on a port that is ours before anyone is told of it; its thread starts
    # after the forks, which would not carry it over. Without torch nobody asks for it.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        port = int(listener.getsockname()[1])
        pids = _fork(module, list(rest), int(size), port)
        signal.signal(signal.SIGTERM, _stop)
        store = _serve(listener, port) if "torch" in sys.modules else None
        failed = _wait(set(pids))
    del store
    exits.record({pids.index(pid): code for pid, code in failed.items()})
    first = next(iter(failed.values()), 0)
    return first if first >= 0 else 128 - first


def _wait(children: set[int]) -> dict[int, int]:
    """Until all have ended or one failed; the exit codes of those that did before any was told to end."""
    failed: dict[int, int] = {}
    try:
        while children and not failed:
            failed = _reap(children)
            time.sleep(POLL)
    finally:
        _end(children)
    return failed


def _serve(listener: socket.socket, port: int) -> Any:
    from torch.distributed import TCPStore

    return TCPStore(
        "127.0.0.1", port, is_master=True, timeout=timedelta(minutes=5), wait_for_workers=False,
        master_listen_fd=listener.detach(), use_libuv=True,
    )  # fmt: skip


if __name__ == "__main__":
    try:
        status = main(sys.argv[1:])
    except KeyboardInterrupt:
        status = 130
    end(status)

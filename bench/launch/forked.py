"""Ranks on this host, forked from one process that has imported torch, transformers and the backend once.

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
from datetime import timedelta
from types import FrameType
from typing import Any

HEAVY = ("torch", "torch.distributed.fsdp", "transformers.models.llama.modeling_llama")
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
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


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


def _reap(children: set[int]) -> int | None:
    """Forget the children that have ended; the first exit status among them that is not 0."""
    for pid in list(children):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            children.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            if code:
                return code if code > 0 else 128 - code
    return None


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Run the ranks; the first status that is not 0 ends the others and is returned."""
    size, names, *rest = arguments
    name, *preload = names.split(",")
    for heavy in (*HEAVY, *preload):
        importlib.import_module(heavy)
    module = importlib.import_module(name)
    # The rendezvous is served from here, on a port that is ours before anyone is told of it; its thread starts
    # after the forks, which would not carry it over.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        port = int(listener.getsockname()[1])
        children = set(_fork(module, list(rest), int(size), port))
        signal.signal(signal.SIGTERM, _stop)
        store = _serve(listener, port)
        failed = None
        try:
            while children and failed is None:
                failed = _reap(children)
                time.sleep(POLL)
        finally:
            _end(children)
    del store
    return failed or 0


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
    sys.stdout.flush()
    os._exit(status)

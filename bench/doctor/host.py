"""The host: Python, memory, disk, shared memory, limits, names, ports, a compiler."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.doctor.check import Check, failure, ok, warning
from bench.sweep.availability import BENCH, COMPILERS

GIB = 2**30
DISK = 20 * GIB
"""Room for logs, compile caches and one checkpoint of a small model."""

SHARED_MEMORY = GIB
"""NCCL and data loaders take segments of it for every rank; containers are given 64 MiB unless told otherwise."""

FILES = 4096
DEEPSPEED_PORT = 29500


def checks(output: Path, on_gpu: bool) -> Iterator[Check]:
    """All checks of the host, for results under `output`."""
    yield python()
    yield memory()
    yield disk(output)
    if sys.platform == "linux":
        yield shared_memory(on_gpu)
    yield open_files()
    yield host_name()
    yield ports()
    yield compiler(on_gpu)


def python() -> Check:
    text = f"{platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if sys.platform != "linux":
        return warning("python", text, "process groups are made for Linux: elsewhere a killed sweep may leave ranks")
    return ok("python", text)


def memory() -> Check:
    try:
        import psutil
    except ImportError:
        return failure("memory", "not known: psutil is not installed", BENCH)
    total = min(psutil.virtual_memory().total, cgroup_limit())
    free = min(psutil.virtual_memory().available, total)
    text = f"{total / GIB:.0f} GiB, {free / GIB:.0f} GiB free"
    if free < 0.1 * total:
        return warning("memory", text, "end other programs: the kernel kills ranks when memory runs out")
    return ok("memory", text)


def cgroup_limit(path: Path = Path("/sys/fs/cgroup/memory.max")) -> float:
    """Bytes that this container may use; infinite where it is not limited."""
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return float("inf")


def disk(output: Path) -> Check:
    """Room and the right to write where results go."""
    place = output.resolve()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    text = f"{free / GIB:.0f} GiB free for {output}"
    if not place.is_dir() or not os.access(place, os.W_OK):
        return failure("disk", f"{place} cannot be written", "choose another --output")
    if free < GIB:
        return failure("disk", text, "make room, or choose another --output")
    if free < DISK:
        return warning("disk", text, f"compile caches and checkpoints want {DISK / GIB:.0f} GiB")
    return ok("disk", text)


def shared_memory(on_gpu: bool, place: Path = Path("/dev/shm")) -> Check:
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        return warning("shared memory", f"{place} is not there", "mount it: NCCL and data loaders use it")
    text = f"{free / 2**20:,.0f} MiB free in {place}"
    if free < SHARED_MEMORY:
        advice = "start the container with --shm-size=8g or --ipc=host"
        return failure("shared memory", text, advice) if on_gpu else warning("shared memory", text, advice)
    return ok("shared memory", text)


def open_files() -> Check:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES and soft != resource.RLIM_INFINITY:
        return warning("open files", f"at most {soft} for one process", f"ulimit -n {min(hard, 65536)}")
    return ok("open files", f"at most {soft} for one process")


def host_name() -> Check:
    """gloo and torchrun listen where this name leads."""
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return failure(
            "host name", f"{name} has no address", f"add `127.0.0.1 {name}` to /etc/hosts, or set GLOO_SOCKET_IFNAME"
        )
    return ok("host name", f"{name} is {address}")


def is_free(port: int) -> bool:
    """Whether a TCP port of this host can be bound; port 0 is any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True


def ports() -> Check:
    if not is_free(0):
        return failure("ports", "no port can be bound on 127.0.0.1", "allow local sockets: ranks meet on one")
    wanted = os.environ.get("MASTER_PORT", "")
    if wanted.isdecimal() and len(wanted) < 10 and not is_free(int(wanted)):
        return warning("ports", f"MASTER_PORT {wanted} is taken", "unset it; bench run finds its own")
    if not is_free(DEEPSPEED_PORT):
        advice = "bench run finds its own; the deepspeed launcher needs --master_port"
        return warning("ports", f"{DEEPSPEED_PORT} is taken", advice)
    return ok("ports", f"free ones, {DEEPSPEED_PORT} too")


def compiler(on_gpu: bool) -> Check:
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is not None:
        return ok("compiler", found)
    why = "its launchers" if on_gpu else "all that it makes for the CPU"
    return warning("compiler", f"none of {', '.join(COMPILERS[:3])}", f"install g++: torch.compile needs it for {why}")

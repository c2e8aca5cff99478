"""What a result was measured on and by which command, for its metadata."""

from __future__ import annotations

import os
import platform
import shlex
import socket
import subprocess
import sys
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.configuration import Configuration
from bench.results import identity

GPU_FIELDS = (
    "name", "driver_version", "clocks.sm", "clocks.mem", "clocks_event_reasons.active", "temperature.gpu",
    "power.draw", "memory.total",
)  # fmt: skip


def version(package: str) -> str | None:
    """Of a distribution that is installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Of what results may depend on, where it is installed."""
    return {
        package: found for package in (*identity.all_packages(), "pyperf") if (found := version(package)) is not None
    }


def _output(*command: str) -> str | None:
    """What a program prints, or None where it is absent or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _visible(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """Those that CUDA_VISIBLE_DEVICES leaves to this process, by number or UUID: nvidia-smi lists all of them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return rows
    names = [name.strip() for name in named.split(",") if name.strip()]
    pairs = [(name, place, row) for name in names for place, row in enumerate(rows)]
    found = [row for name, place, row in pairs if name == str(place) or row.get("uuid", "").startswith(name)]
    return found or ([] if all(name.isdigit() for name in names) else rows[: len(names)])  # parts of one, of MIG


def nvidia_smi(*fields: str) -> list[dict[str, str]] | None:
    """These fields of each GPU of this host, or None without `nvidia-smi`."""
    text = _output("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    return None if text is None else [dict(zip(fields, line.split(", "), strict=False)) for line in text.splitlines()]


def gpus(*fields: str) -> list[dict[str, str]]:
    """Name, driver, clocks, throttle reasons and so on of each GPU this process may use; empty without any."""
    found = _visible(nvidia_smi(*(fields or GPU_FIELDS), "uuid") or [])
    return [{name: value for name, value in gpu.items() if name != "uuid"} for gpu in found]


def gpu_bytes() -> float:
    """Memory of the smallest GPU this process may use; 0 where none is seen."""
    found = [gpu.get("memory.total", "") for gpu in gpus()]
    return min((float(text) * 2**20 for text in found if text.replace(".", "", 1).isdigit()), default=0.0)


@cache
def cpu() -> str:
    """The name of this host's CPU; on hosts that tell none, its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def compute_capability() -> float | None:
    """The least of the GPUs that this process may use, such as 9.0; None without any."""
    found = [row["compute_cap"].strip() for row in gpus("compute_cap")]
    return min((float(number) for number in found if number.replace(".", "", 1).isdigit()), default=None)


def stack() -> dict[str, Any]:
    """The part of `describe` that any row depends on."""
    return {"versions": versions(), "gpus": gpus(), "cpu": cpu()}


def describe(configuration: Configuration) -> dict[str, Any]:
    """Plain values only; the time in UTC. The git revision is that of the working directory, where it is a checkout."""
    return {
        **stack(),
        "sources": identity.sources(configuration),
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "command": shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count() or 0,
        "topology": _output("nvidia-smi", "topo", "-m") or "",
        "git_revision": _output("git", "rev-parse", "HEAD") or "",
        "seed": configuration.random_seed,
    }

"""GPUs as nvidia-smi and torch see them: driver, clocks, memory, who else uses them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from bench.doctor.check import Check, failure, ok, warning
from bench.results import environment

FIELDS = (
    "index", "name", "driver_version", "memory.total", "memory.used", "temperature.gpu", "clocks.sm", "clocks.max.sm",
    "clocks_event_reasons.active", "ecc.errors.uncorrected.volatile.total",
)  # fmt: skip

REASONS = {
    0x2: "clocks were set by someone (nvidia-smi -rgc resets them)",
    0x4: "the power limit",
    0x8: "hardware slowdown: heat or power",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "a power brake from outside",
}
"""Bits of `clocks_event_reasons.active` that lower clocks; source: NVML's nvmlClocksEventReasons. Idle is none."""

BUSY = 1024
"""MiB in use from which another program is worth a word."""


def query() -> list[dict[str, str]] | None:
    """One dictionary per GPU, or None without nvidia-smi."""
    return environment.nvidia_smi(*FIELDS)


def checks(found: Sequence[Mapping[str, str]] | None) -> Iterator[Check]:
    """The checks of all GPUs that `query` found."""
    if not found:
        yield warning("GPUs", "none found" if found is None else "nvidia-smi lists none", "runs use the CPU")
        return
    names = sorted({f"{gpu['name']}, driver {gpu['driver_version']}" for gpu in found})
    text = f"{len(found)} × {'; '.join(names)}"
    unlike = len({gpu["name"] for gpu in found}) > 1
    yield warning("GPUs", text, "they differ: the slowest sets the pace") if unlike else ok("GPUs", text)
    for gpu in found:
        yield from one(gpu)


def one(gpu: Mapping[str, str]) -> Iterator[Check]:
    """Clocks, memory and errors of one GPU; a line for what is wrong, one for all that is well."""
    name = f"GPU {gpu['index']}"
    used, total = _number(gpu["memory.used"]), _number(gpu["memory.total"])
    complaints = []
    if used > BUSY:
        advice = "another program uses it: nvidia-smi lists processes of this container only"
        complaints.append(warning(name, f"{used:,.0f} of {total:,.0f} MiB in use", advice))
    reasons = slowing(gpu["clocks_event_reasons.active"])
    if reasons:
        text = f"slowed by {', '.join(reasons)} at {gpu['temperature.gpu']} °C"
        complaints.append(warning(name, text, "cool it or raise its power limit; do not compare times until then"))
    if _number(gpu["ecc.errors.uncorrected.volatile.total"]) > 0:
        errors = gpu["ecc.errors.uncorrected.volatile.total"]
        complaints.append(failure(name, f"{errors} uncorrected memory errors", "reset or replace it"))
    yield from complaints
    if not complaints:
        clocks = f"{gpu['clocks.sm']} of {gpu['clocks.max.sm']} MHz, {gpu['temperature.gpu']} °C"
        yield ok(name, f"{total:,.0f} MiB, {used:,.0f} in use, {clocks}")


def slowing(mask: str) -> list[str]:
    """The reasons in a hexadecimal mask that lower clocks."""
    try:
        bits = int(mask, 16)
    except ValueError:
        return []
    return [text for bit, text in REASONS.items() if bits & bit]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0  # "[N/A]"


def torch_sees(count: int) -> Check:
    """Whether torch was built for these GPUs; asked in another process, which CUDA may take down."""
    code = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.device_count(), sep=';')"
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
        version, cuda, seen = done.stdout.strip().split(";")
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1]
        return failure("torch", f"cannot be imported: {reason}", "pip install 'meshproof[bench]'")
    text = f"{version}, CUDA {cuda}, sees {seen} GPUs"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if int(seen) < count and hidden is None:
        advice = "a CPU build: install torch's CUDA wheel" if cuda == "None" else "the driver is older than this CUDA"
        return failure("torch", text, advice)
    if int(seen) < count:
        return warning("torch", text, f"CUDA_VISIBLE_DEVICES is {hidden}")
    return ok("torch", text if count else f"{version}, for the CPU")


SLOWING = {"NCCL_P2P_DISABLE": ("1",), "NCCL_SHM_DISABLE": ("1",), "NCCL_DEBUG": ("INFO", "TRACE")}
"""Values of variables with which NCCL is slower; source: NCCL's documentation of environment variables."""


def nccl_settings() -> Check | None:
    """Variables that slow NCCL down, where one is set."""
    found = {name: os.environ.get(name, "") for name in SLOWING}
    slow = [f"{name}={value}" for name, value in found.items() if value.upper() in SLOWING[name]]
    return warning("NCCL", ", ".join(slow), "unset them before you measure") if slow else None

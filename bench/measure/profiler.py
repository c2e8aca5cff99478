"""One step under PyTorch's profiler, apart from the timed ones: communication share and attention kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function

STEP = "ProfilerStep#0"
ATTENTION = {
    "cudnn": ("cudnn", "sdpa"),
    "flash": ("flash",),
    "efficient": ("fmha_cutlass",),
    "flex": ("flex_attention",),
}
"""Words that all occur in the name of a kernel of that kind; the first kind that fits names it."""

COPIES = ("aten::_foreach_copy_", "aten::_chunk_cat", "aten::split_with_sizes_copy")
"""What casts and copies parameters and gradients: nothing but sharding and mixed precision calls these."""


class Profile(NamedTuple):
    """`communication` is the share of device time in collectives (on a CPU: of the step's wall time).

    Collectives that overlap with computation count too: it is work of the network, not time lost.
    `cast_seconds` is the time, on the device, of casting and copying parameters and gradients.
    """

    communication: float
    attention: tuple[str, ...]
    cast_seconds: float


def _kind(name: str) -> str | None:
    lowered = name.lower()
    return next((kind for kind, words in ATTENTION.items() if all(word in lowered for word in words)), None)


def _is_cast(event: Any) -> bool:
    """Whether an operation casts or copies parameters or gradients: by its name, or a plain copy within FSDP2."""
    if event.name in COPIES:
        return True
    inside = event.cpu_parent if event.name == "aten::copy_" else None
    while inside is not None:
        if inside.name.startswith("FSDP::"):
            return True
        inside = inside.cpu_parent
    return False


def _is_collective(name: str) -> bool:
    return "nccl" in name.lower() or name.startswith("gloo:")


def _covered(ranges: Sequence[Any]) -> float:
    """The time in which at least one is under way: threads of gloo work side by side."""
    covered, until = 0.0, 0.0
    for one in sorted(ranges, key=lambda one: one.start):
        covered += max(one.end - max(one.start, until), 0.0)
        until = max(until, one.end)
    return covered


def profile_step(step: Callable[[], Any], device: torch.device, trace: Path | None = None) -> Profile:
    """Run `step` once under the profiler; with `trace` write what it saw there, for Perfetto and HTA."""
    cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    # HTA looks for a step by this name; among kernels it would count twice.
    named = nullcontext() if trace is None else record_function(STEP)
    with profile(activities=activities, record_shapes=trace is not None) as recorded, named:
        step()
        if cuda:
            torch.cuda.synchronize()
    if trace is not None:
        trace.parent.mkdir(parents=True, exist_ok=True)
        recorded.export_chrome_trace(str(trace))
    averages = [event for event in recorded.key_averages() if event.key != STEP]
    kinds = {kind for event in averages if (kind := _kind(event.key)) is not None}
    if cuda:
        total = sum(event.self_device_time_total for event in averages)
        casts = sum(event.self_device_time_total for event in recorded.events() if _is_cast(event))
        spent = sum(event.self_device_time_total for event in averages if _is_collective(event.key))
    else:
        events = [event for event in recorded.events() if event.time_range.end > event.time_range.start]
        total = max((e.time_range.end for e in events), default=0) - min(
            (e.time_range.start for e in events), default=0
        )
        spent = _covered([event.time_range for event in events if _is_collective(event.name)])
        casts = sum(event.self_cpu_time_total for event in events if _is_cast(event))
    return Profile(min(spent / total, 1.0) if total else 0.0, tuple(sorted(kinds)), casts / 1e6)

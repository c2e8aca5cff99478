"""The device is chosen after the process group that will use it, or never.

What it does
    Reports `init_process_group` with an NCCL backend and no `device_id`, where the function has not set the device
    before but sets it later, itself or through a function it calls, and a collective or a new group comes in between;
    with a split backend (`cpu:gloo,cuda:nccl`) also where nothing comes in between, unless it sets it at once. Also
    where no file sets a device, and this one works on the current one (`.cuda()`) without a word of local ranks.

Why is this bad
    NCCL takes the current device when it makes a communicator. All processes of a node then use device 0:
    "invalid device ordinal", duplicate-GPU errors, or a hang, and gigabytes of contexts on device 0.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.effects import Effects
from validator.analysis.places import is_aside
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP535", "device-set-late", "error", "0.1.0", tokens=("init_process_group",))

_GROUPING = frozenset({"new_group", "new_subgroups", "initialize_model_parallel"})
_DEPTH = 2
# uses of the current device, and whatever may have to do with choosing one
_CURRENT = re.compile(r"""\.cuda\(\)|['"]cuda['"]|cuda\.current_device\(\)""")
_CHOICE = re.compile(
    r"""cuda:|local_?rank|set_device|device_id|VISIBLE_DEVICES|\.cuda\([^)]|device_map|gpu_?id|\.gpu\b|"""
    r"""cuda\.device\(|['"]cuda['"], |accelerat|deepspeed|launch|spawn|ray\b""",
    re.IGNORECASE,
)


def check_project(project: Project) -> Iterator[Finding]:
    for function, call in project.calls("init_process_group"):
        if call.keyword("device_id") is None and not is_aside(function.path):
            backend = next((a.value for a in call.args if a.keyword in (None, "backend")), "")
            if "nccl" in backend and project.dotted(function, call.target).startswith("torch.distributed"):
                yield from _check(project, function, call, ":" in backend)


def _check(project: Project, function: Method, init: Call, split: bool) -> Iterator[Finding]:
    if any(_sets(project, function, c) for c in function.facts.calls if c.at < init.at):
        return
    later = sorted((c for c in function.facts.calls if c.at[:2] > init.at[2:]), key=lambda c: c.at)
    between: Call | None = None
    for index, call in enumerate(later):
        if call.method == "init_device_mesh":
            return  # chooses the device by itself where none is set
        if _sets(project, function, call):
            direct = call.method == "set_device"
            if between is not None or (split and not direct and index):
                yield _report(function, init, call, between)
            return
        if between is None and _communicates(project, function, call):
            between = call
    device = _CURRENT.search("\n".join(function.module.source_text.lines))
    if device is not None and not _chosen(project, function):
        yield _never(function, init, device[0])


def _chosen(project: Project, function: Method) -> bool:
    """Whether anything in the file speaks of the choice of a device, or the project makes one anywhere."""
    return bool(_CHOICE.search("\n".join(function.module.source_text.lines))) or project.calls("set_device") != []


def _sets(project: Project, function: Method, call: Call, depth: int = 0) -> bool:
    """Whether a call sets the current device, itself or in what it calls."""
    if call.method == "set_device":
        return True
    if depth >= _DEPTH:
        return False
    targets = project.types.targets(function, call)
    return any(_sets(project, target, inner, depth + 1) for target in targets for inner in target.facts.calls)


def _communicates(project: Project, function: Method, call: Call) -> bool:
    effects = project.analysis(Effects)
    return call.method in _GROUPING or effects.collective(function, call) is not None


def _report(function: Method, init: Call, setting: Call, between: Call | None) -> Finding:
    related = [Related(function.path, setting.at[0], f"`{setting.target}` sets the device here")]
    if between is not None:
        related.insert(
            0, Related(function.path, between.at[0], f"`{between.target}` may make a communicator before that")
        )
    return RULE.finding(
        function.path,
        init.at,
        f"`{function.qualname}` makes the NCCL process group before any device is set; `{setting.target}` sets it"
        " too late",
        help="call `torch.cuda.set_device(local_rank)` first, or pass `device_id=torch.device('cuda', local_rank)`",
        related=related,
        context=f"{function.qualname}:{setting.target}",
    )


def _never(function: Method, init: Call, device: str) -> Finding:
    return RULE.finding(
        function.path,
        init.at,
        f"`{function.qualname}` makes the NCCL process group, and nothing sets a device: `{device}` is device 0"
        " in every process",
        help='call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before it',
        context=f"{function.qualname}:no device",
    )


INCORRECT = [
    """
import torch
import torch.distributed as dist

def main(model):
    dist.init_process_group("nccl")  # error: MP535
    model.cuda()
    dist.destroy_process_group()
""",
    """
import torch
import torch.distributed as dist

class Strategy:
    def setup_distributed(self, local_rank):
        torch.cuda.set_device(local_rank)

def start(model, local_rank):
    strategy = Strategy()
    dist.init_process_group(backend="cpu:gloo,cuda:nccl")  # error: MP535
    print("ready")
    strategy.setup_distributed(local_rank)
""",
    """
import torch
import torch.distributed as dist

def start(local_rank):
    dist.init_process_group("nccl")  # error: MP535
    dist.barrier()
    torch.cuda.set_device(local_rank)
""",
]

CORRECT = [
    """
import os
import torch
import torch.distributed as dist

def main(model):
    dist.init_process_group("nccl")
    model.to(f"cuda:{os.environ['LOCAL_RANK']}")
    torch.ones(1, device="cuda")
""",
    """
import torch
import torch.distributed as dist

def main(model, args):
    dist.init_process_group("nccl")
    model.cuda(args.gpu)
    torch.ones(1).cuda()
""",
    """
import torch
import torch.distributed as dist

def start(local_rank):
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    dist.barrier()
""",
    """
import torch
import torch.distributed as dist

def start(local_rank):
    dist.init_process_group("nccl")
    torch.cuda.set_device(local_rank)
    dist.barrier()
""",
    """
import torch
import torch.distributed as dist

def start(local_rank):
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
    dist.barrier()
    torch.cuda.set_device(local_rank)
""",
]

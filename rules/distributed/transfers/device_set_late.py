"""The device is chosen after the process group that will use it, or never.

What it does
    Reports `init_process_group` with an NCCL backend and no `device_id`, where the function has not set the device
    before but sets it later, itself or through a function it calls, and a collective comes in between (a new group
    alone makes no communicator before its first collective); with a split backend (`cpu:gloo,cuda:nccl`) also where
    nothing comes in between, unless it sets it at once. Also where no file sets a device, and this one works on the
    current one (`.cuda()`) without a word of local ranks; and a device that is set for each rank where the function
    has worked on the current one on the way there.

Why is this bad
    NCCL takes the current device when it makes a communicator. All processes of a node then use device 0:
    "invalid device ordinal", duplicate-GPU errors, or a hang, and gigabytes of contexts on device 0.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.effects.divergence import Divergences
from validator.finding import Finding, Related
from validator.flow.control import comes_after
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP535", "device-set-late", "warning", "0.1.0", tokens=("init_process_group", "set_device"))

# words of whatever may have to do with choosing a device
_CHOICE = re.compile(
    r"cuda:|local_?rank|set_device|device_id|VISIBLE_DEVICES|device_map|gpu_?id|^gpu$|accelerat|deepspeed|launch|spawn|^ray$",
    re.IGNORECASE,
)


def check_project(project: Project) -> Iterator[Finding]:
    queries, effectful = project.analysis(Queries), project.analysis(Divergences).traces.effectful
    setting = _setting(queries)
    for init in queries.calls("torch.distributed.init_process_group"):
        backend = init.argument("backend", 0)
        name = backend.val.constant() if backend is not None else None
        if isinstance(name, str) and "nccl" in name and not _gives_device(init) and not is_aside(init.unit.path):
            yield from _check(queries, init, ":" in name, setting, effectful)
    for call in queries.named("set_device"):
        device = call.argument("device", 0)
        if device is None or device.root.value.op == "call" and device.root.method == "current_device":
            continue  # it is set to what it is
        if device.varies("rank") and not is_aside(call.unit.path):
            yield from _worked_before(call, setting)


def _worked_before(setting: Place, others: frozenset[Unit]) -> Iterator[Finding]:
    """What a function does on the current device, always, before it sets one."""
    unit = setting.unit
    for call in _calls(setting):
        if not comes_after(unit.code, setting.value, setting.number, call.value, call.number):
            continue
        if _reaches(call, others):
            return
        if _is_on_current(call):
            yield RULE.finding(
                unit.path,
                call.at,
                f"`{call.text}` is on device 0 in every process{call.where}: the rank sets its own only behind it",
                help=f"call `{setting.text}` first",
                related=[Related(unit.path, setting.at[0], f"`{setting.text}` sets the device here")],
                context=f"{unit.qualname}:{call.text}",
            )
            return


def _is_on_current(call: Place) -> bool:
    """Whether a call asks for the current device, or puts something there."""
    if call.method == "current_device":
        return not call.value.data.names and any(user.value.op != "join" for user in call.taken_by)
    if call.method == "cuda":
        return not call.value.data.names
    device = call.argument("device", 0) if call.method == "to" else call.argument("device")
    return device is not None and device.val.constant() == "cuda"


def _gives_device(init: Place) -> bool:
    return init.argument("device_id") is not None or "**" in init.value.data.names


def _setting(queries: Queries) -> frozenset[Unit]:
    """The units that set the current device, themselves or in what they call."""
    return queries.reaching(place.unit for place in queries.named("set_device"))


def _check(
    queries: Queries, init: Place, split: bool, setting: frozenset[Unit], effectful: frozenset[Unit]
) -> Iterator[Finding]:
    calls = sorted((p for p in _calls(init)), key=lambda p: p.at)
    if any(p.at < init.at and _reaches(p, setting) for p in calls):
        return
    between: Place | None = None
    for index, call in enumerate(p for p in calls if p.at[:2] > init.at[2:]):
        if call.method == "init_device_mesh":
            return  # chooses the device by itself where none is set
        if _reaches(call, setting):
            if between is not None or (split and call.method != "set_device" and index):
                yield _report(init, call, between)
            return
        if between is None and (call.operations or _reaches(call, effectful)) and _communicates(call):
            between = call
    device = next(_current(queries, init), None)
    if device is not None and not _chosen(queries, init) and next(queries.named("set_device"), None) is None:
        yield _never(init, device)


def _calls(init: Place) -> Iterator[Place]:
    for number, value in enumerate(init.unit.code.values):
        if value.op == "call" and number != init.number:
            yield init.value_at(number)


def _reaches(call: Place, units: frozenset[Unit]) -> bool:
    site = call.result.sites.get(call.number)
    return call.method == "set_device" or (site is not None and any(t.unit in units for t in site.targets))


def _communicates(call: Place) -> bool:
    """Whether a call is, or comes to, a collective, not only to new groups: those are made up over the store."""
    return any(operation.row.result not in ("group", "mesh") for operation, _ in call.reached())


def _current(queries: Queries, init: Place) -> Iterator[str]:
    """What a file does on the current device, whichever that is."""
    for unit in queries.flow.whole_units(init.unit.module):
        for number, value in enumerate(unit.code.values):
            if value.op == "const" and value.data == "cuda":
                yield '"cuda"'
            elif value.op == "call" and not value.data.names:
                place = Place(queries.flow, unit, number)
                if place.method in ("cuda", "current_device"):
                    yield place.text if len(place.text) < 40 else ".cuda()"


def _chosen(queries: Queries, init: Place) -> bool:
    """Whether anything in the file speaks of the choice of a device."""
    for unit in queries.flow.whole_units(init.unit.module):
        for number, value in enumerate(unit.code.values):
            word = value.data[1] if value.op in ("param", "free") else value.data
            if value.op in ("param", "free", "name", "attr", "const", "import", "store_attr"):
                texts = word if isinstance(word, tuple) else (word,)
                if any(isinstance(text, str) and _CHOICE.search(text) for text in texts):
                    return True
            elif value.op == "call" and value.data.names:
                place = Place(queries.flow, unit, number)
                if place.method in ("cuda", "device"):
                    return True  # `.cuda(gpu)`, `torch.device("cuda", index)`
    return False


def _report(init: Place, setting: Place, between: Place | None) -> Finding:
    unit = init.unit
    name = setting.operand(0).text
    related = [Related(unit.path, setting.at[0], f"`{name}` sets the device here")]
    if between is not None:
        made = between.operand(0).text
        related.insert(0, Related(unit.path, between.at[0], f"`{made}` may make a communicator before that"))
    return RULE.finding(
        unit.path,
        init.at,
        f"`{unit.qualname}` makes the NCCL process group before any device is set; `{name}` sets it too late",
        help="call `torch.cuda.set_device(local_rank)` first, or pass `device_id=torch.device('cuda', local_rank)`",
        related=related,
        context=f"{unit.qualname}:{name}",
    )


def _never(init: Place, device: str) -> Finding:
    return RULE.finding(
        init.unit.path,
        init.at,
        f"`{init.unit.qualname}` makes the NCCL process group, and nothing sets a device: `{device}` is device 0"
        " in every process",
        help='call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` before it',
        context=f"{init.unit.qualname}:no device",
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
    """
import os
import torch
import torch.distributed as dist

def main(load):
    dist.init_process_group("gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    model = load(device_map={"": torch.cuda.current_device()})  # error: MP535
    torch.cuda.set_device(local_rank)
    return model
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
    """
import os
import torch
import torch.distributed as dist

def main(load, several):
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda")
    if several:
        torch.cuda.set_device(local_rank)
        dist.init_process_group("gloo")
    else:
        print(torch.cuda.current_device())
    return load(device_map={"": torch.cuda.current_device()}).to(device)
""",
    # groups are made up over the store: the first collective makes the communicator
    """
import torch
import torch.distributed as dist

def start(local_rank, size):
    dist.init_process_group("nccl")
    group = dist.new_group(list(range(size)))
    torch.cuda.set_device(local_rank)
    dist.barrier(group=group)
""",
    # the device is set to what it is
    """
import torch

def bind(backend):
    torch.cuda.set_device(torch.cuda.current_device())
    return backend(torch.device("cuda", torch.cuda.current_device()))
""",
]

"""The device is chosen after the process group that will use it, or never.

What it does
    Reports `init_process_group` with an NCCL backend and no `device_id`, where the function has not set the device
    before but sets it later, itself or through a function it calls, and a collective comes in between (a new group
    alone makes no communicator before its first collective); with a split backend (`cpu:gloo,cuda:nccl`) also where
    nothing comes in between, unless it sets it at once. Also where nothing that a program runs sets a device, or puts
    anything on one that it was told (`.to(device)`), and it works on the current one (`.cuda()`) whatever its options
    say, but for actors of Ray, each of which sees only the devices that it was given; and a device that is set for each
    rank where the function has worked on the current one on the way there.

Why is this bad
    NCCL takes the current device when it makes a communicator. All processes of a node then use device 0:
    "invalid device ordinal", duplicate-GPU errors, or a hang, and gigabytes of contexts on device 0.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
"""

from __future__ import annotations

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
    device = _never_set(queries, init, setting)
    if device and not (init.unit.cls is not None and queries.flow.is_remote(init.unit.cls)):
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


def _never_set(queries: Queries, init: Place, setting: frozenset[Unit]) -> str:
    """What a program that makes the group does on the current device, whatever its options say, where nothing in it
    chooses a device; empty where there is no such program."""
    for top in sorted(queries.reaching({init.unit}), key=lambda each: each.place):
        if not queries.calls_of(top) and not is_aside(top.path):
            units = queries.reached([top])
            if not any(_may_choose(queries, unit, init, setting) for unit in units):
                uses = (place for unit in units for place in queries.calls_in(unit) if not place.tests_inside)
                device = next((place.text for place in uses if _uses_current(place)), "")
                if device:
                    return device if len(device) < 40 else ".cuda()"
    return ""


def _uses_current(call: Place) -> bool:
    """Whether a call puts something on the current device, or asks for that."""
    if call.method in ("cuda", "current_device"):
        return set(call.value.data.names) <= {"non_blocking"}
    return any(device.val.constant() == "cuda" for device in _devices(call))


def _devices(call: Place) -> Iterator[Place]:
    """The devices that a call is given, or what may be one."""
    named = call.argument("device", 0 if call.method in ("to", "cuda", "device") else -1)
    if named is not None:
        yield named


def _may_choose(queries: Queries, unit: Unit, init: Place, setting: frozenset[Unit]) -> bool:
    """Whether a unit may choose the device of its process, or puts things on one that it was told."""
    devices, setup = queries.flow.models.devices, queries.flow.models.ranks["setup"]
    for text in queries.values(unit, "const"):
        if isinstance(text.value.data, str) and (text.value.data == "--device" or "VISIBLE_DEVICES" in text.value.data):
            return True
    for call in queries.calls_in(unit):
        names = {queries.flow.models.named(str(o[1])) for o in call.operand(0).val.each if o[0] == "ext"}
        if names & devices["chosen"] or names & setup and call.method != "init_process_group":
            return True
        called = not queries.targets(call) and call.method in {each.name for each in setting}
        if call.method in devices["chosen_methods"] or called or call.method == init.method and _gives_device(call):
            return True
        if any(_is_told(queries, device) for device in _devices(call)):
            return True
    return False


def _is_told(queries: Queries, device: Place) -> bool:
    """Whether a device is neither a text without a number nor that of another tensor."""
    root = device.root
    if root.value.op == "attr" and root.value.data == "device":
        return next(iter(queries.flow.stores.writers("device")), None) is not None
    made = [str(o[1]) for o in device.val.each if o[0] == "ext"]
    if made and all(name.startswith("torch.") for name in made):
        return False  # a type: `x.to(torch.bfloat16)`
    return not isinstance(device.val.constant(), str) or ":" in str(device.val.constant())


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


_PROGRAM = """
import argparse
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def join(args):
    args.gpu = int(os.environ["LOCAL_RANK"])
    {before}
    dist.init_process_group(backend="nccl"){mark}
    {after}
    dist.barrier()

def main(args, data):
    join(args)
    model = torch.nn.Linear(4, 4)
    model = {placed}
    model = DistributedDataParallel(model, device_ids=[args.gpu])
    for batch in data:
        print(model(batch.to(next(model.parameters()).device)))

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--{option}", default="16")
    main(parser.parse_args(), [])
"""


def _program(placed: str, before: str = "pass", after: str = "pass", mark: str = "", option: str = "size") -> str:
    return _PROGRAM.format(placed=placed, before=before, after=after, mark=mark, option=option)


INCORRECT = [
    # in another function, or file, than the group is made
    _program("model.cuda()", mark="  # error: MP535"),
    _program('model.to("cuda")', mark="  # error: MP535"),
    _program("model.half().cuda(non_blocking=True)", mark="  # error: MP535"),
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
    # each actor sees the device alone that Ray has given it
    """
import ray
import torch
import torch.distributed as dist

@ray.remote(num_gpus=1)
class Learner:
    def __init__(self, rank, size):
        self.rank, self.size = rank, size

    def setup(self):
        dist.init_process_group("nccl", rank=self.rank, world_size=self.size)
        self.model = torch.nn.Linear(4, 4).cuda()

def main(size):
    learners = [Learner.remote(rank, size) for rank in range(size)]
    ray.get([learner.setup.remote() for learner in learners])

main(2)
""",
    _program("model.cuda()", after="torch.cuda.set_device(args.gpu)"),
    _program("model.cuda()", before='os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]'),
    _program("model.cuda(args.gpu)"),
    _program('model.to(torch.device("cuda", args.gpu))'),
    _program("model.to(args.device).cuda()", option="device"),
    _program("model.cuda() if args.size == 1 else model.cpu()"),
    # a barrier alone takes the device that the rank tells
    _program("model.to(torch.bfloat16)"),
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

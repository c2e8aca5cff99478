"""The rank in the job used as the number of a device of the node.

What it does
    Reports `set_device(…)`, `device_ids=[…]`, `torch.device("cuda", …)` and `f"cuda:{…}"` that get the global rank:
    `dist.get_rank()`, `process_index`, `global_rank`, `RANK` of the environment, through whatever variables, fields and
    calls; on one of several ways, too, if the others give the rank on the node (`LOCAL_RANK` of torchrun,
    `SLURM_PROCID` of srun). `rank % torch.cuda.device_count()` and local ranks are silent, and so are programs that
    spawn all processes themselves and give each its number as rank: these run on one node, and so does what goes on
    only where there are as many devices as ranks (`assert world_size <= torch.cuda.device_count()`). A note in projects
    in which nothing else tells the processes of a node, or nodes, apart. One number that a function gives to several of
    them is reported once, where it is first used.

Why is this bad
    The second node has ranks 8 to 15 and devices 0 to 7: "invalid device ordinal", on every node but the first.

References
    https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related, Severity
from validator.flow.control import comes_after
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import stored_here, trail
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP536", "global-rank-as-device", "warning", "0.1.0", tokens=("rank", "process_index", "RANK"))

_KINDS = ("cuda:", "npu:", "xpu:", "hpu:", "musa:")


def check_project(project: Project) -> Iterator[Finding]:
    # one number, however many devices it names: `set_device(rank)` and `torch.device("cuda", rank)` are one mistake
    taken: dict[tuple[Unit, str], list[tuple[Place, Place]]] = {}
    queries = project.analysis(Queries)
    for index, user in _indices(queries) if not _is_of_one_node(queries) else ():
        if _is_of_job(index) and not is_aside(user.unit.path) and not _is_stored_later(queries, index):
            if _has_device_of_each(user):
                continue
            taken.setdefault((index.unit, index.text), []).append((index, user))
    # who tells processes of a node apart elsewhere, or nodes, means several of them
    told = queries.flow.mentions.speaks("LOCAL_RANK", "local_rank", "local_process_index", "node_rank", "nnodes")
    for places in taken.values():
        yield _finding(sorted(places, key=lambda row: row[1].at), RULE.severity if told else "note")


def _has_device_of_each(user: Place) -> bool:
    """Whether what runs at a place, or around the only call of its function, has found a device here for each rank."""
    place: Place | None = user
    seen: set[Unit] = set()
    while place is not None and place.unit not in seen:
        seen.add(place.unit)
        block = place.value.block
        for number, each in enumerate(place.unit.code.blocks):
            kind, *rest = each.end
            if kind != "branch" or place.value_at(rest[0]).value.op not in ("compare", "unary"):
                continue
            test, (holds, fails) = place.value_at(rest[0]), rest[1:3]
            while test.value.op == "unary" and test.value.data == "Not":
                test, holds, fails = test.operand(0), fails, holds
            few = _are_few(test)
            if few is not None and holds != fails and place.unit.control.leads(block, number, holds if few else fails):
                return True
        place = place.outside
    return False


def _are_few(test: Place) -> bool | None:
    """Whether a test holds where there are no more ranks than devices on the node, or fails there; None of others."""
    if test.value.op != "compare":
        return None
    left, right = test.operand(0), test.operand(1)
    asked = test.value.data
    if _counts_devices(left):
        left, right, asked = right, left, {"Lt": "Gt", "LtE": "GtE", "Gt": "Lt", "GtE": "LtE"}.get(asked, asked)
    ranks = any(o[0] == "size" or o[:2] == ("ordinal", "job") for o in left.closed.each) or _is_of_job(left)
    if not ranks or not _counts_devices(right):
        return None
    return {"Lt": True, "LtE": True, "Eq": True, "Gt": False, "GtE": False, "NotEq": False}.get(asked)


def _counts_devices(place: Place) -> bool:
    """Whether a number is that of the devices of the node: `torch.cuda.device_count()`."""
    call = place.root
    names = [o[1] for o in call.operand(0).val.each if o[0] == "ext"] if call.value.op == "call" else []
    return any(name.rpartition(".")[2] == "device_count" for name in names)


def _is_of_one_node(queries: Queries) -> bool:
    """Whether all jobs of a project have one node: each process is spawned, and its number there is its rank."""
    spawning = [row for row in queries.flow.models.calls.values() if row.before and row.runs is not None]
    spawned = {
        o[1]
        for row in spawning
        for call in queries.named(row.name)
        if row.runs is not None and (function := call.argument(*row.runs)) is not None
        for o in function.closed.of("unit")
    }
    started = [call.argument("rank", 3) for call in queries.calls("torch.distributed.init_process_group")]
    return bool(started) and all(rank is not None and _is_number_of(queries, rank, spawned) for rank in started)


def _is_number_of(queries: Queries, rank: Place, spawned: set[Unit], above: tuple[Unit, ...] = ()) -> bool:
    """Whether a value is the number of a spawned process, handed on as it is by all callers."""
    rank = rank.root
    if rank.value.op != "param" or rank.unit in above:
        return False
    position, name = rank.value.data[:2]
    if rank.unit in spawned and position == 0:
        return True
    calls = queries.calls_of(rank.unit)
    used = (call for call in calls if call.unit in spawned or call.unit.outer is None or queries.calls_of(call.unit))
    passed = [call.argument(name, position) for call in used]
    above = (*above, rank.unit)
    return bool(passed) and all(each is not None and _is_number_of(queries, each, spawned, above) for each in passed)


def _indices(queries: Queries) -> Iterator[tuple[Place, Place]]:
    """Numbers of devices, and where they are used as such."""
    for call in queries.named("set_device", "device"):
        index = call.argument(
            "device" if call.method == "set_device" else "index", 0 if call.method == "set_device" else 1
        )
        module = {o[1] for o in call.operand(0).val.each if o[0] == "ext"}
        if index is not None and any(m == "torch.device" or m.endswith(".set_device") for m in module):
            yield index, call
    for unit in queries.mentioning("device_ids", *(kind.rstrip(":") for kind in _KINDS)):
        for number, value in enumerate(unit.code.values):
            place = Place(queries.flow, unit, number)
            if value.op == "call" and (ids := place.argument("device_ids")) is not None:
                if ids.value.op in ("list", "tuple") and len(ids.value.args) == 1:
                    yield ids.operand(0), place
            elif (formatted := _formatted(place)) is not None:
                yield formatted, place


def _formatted(place: Place) -> Place | None:
    """The number in the text that names a device: `f"cuda:{n}"`, `"cuda:%d" % n`, `"cuda:{}".format(n)`, `"cuda:" +
    str(n)`."""
    value = place.value
    if value.op == "join":
        parts = [place.value_at(number) for number in value.args]
    elif value.op == "binary" and value.data in ("Mod", "Add"):
        parts = [place.operand(0), place.operand(1)]
    elif value.op == "call" and place.method == "format" and place.receiver is not None:
        parts = [place.receiver, *(place.value_at(number) for number in value.args[1:])]
    else:
        return None
    text = parts[0].val.constant() if len(parts) == 2 else None
    if not isinstance(text, str) or text.removesuffix("%d").removesuffix("%s").removesuffix("{}") not in _KINDS:
        return None
    number = parts[1].root
    return number.operand(1) if number.value.op == "call" and number.method == "str" else number


def _is_of_job(index: Place) -> bool:
    """Whether a number is the rank among all processes, on one way at least where it is that on the node on the others
    (`LOCAL_RANK` of torchrun, `SLURM_PROCID` of srun); a constant is that of a single process."""
    ways = stored_here(index.root) if index.root.value.op == "attr" else []
    objs = {o for place in ways or [index] for o in place.closed.each if o[0] != "const"}
    told = all(o[0] == "ordinal" and o[1] in ("job", "node") or o[0] == "environment" and o[2] == "job" for o in objs)
    return told and any(o[:2] == ("ordinal", "job") or o[0] == "environment" for o in objs)


def _is_stored_later(queries: Queries, index: Place) -> bool:
    """Whether all that a file puts into an attribute comes behind the place where it is read, in its function."""
    read = index.root
    if read.value.op != "attr":
        return False
    stores = [
        Place(queries.flow, unit, number)
        for unit in queries.flow.whole_units(read.unit.module)
        for number, value in enumerate(unit.code.values)
        if value.op == "store_attr" and value.data == read.value.data
    ]
    return bool(stores) and all(
        each.unit is read.unit and comes_after(read.unit.code, each.value, each.number, read.value, read.number)
        for each in stores
    )


def _finding(places: list[tuple[Place, Place]], severity: Severity) -> Finding:
    (index, first), *others = places
    named = first.method if first.value.op == "call" else first.text
    return RULE.finding(
        first.unit.path,
        first.at,
        f"`{first.unit.qualname}` takes `{index.text}`, the rank in the whole job, for the number of a device in"
        f" `{named}`",
        help="use the rank on the node (LOCAL_RANK, `local_process_index`), or the rank modulo the devices of a node",
        related=(*_handed_over(index), *(Related(u.unit.path, u.at[0], "and here") for _, u in others)),
        context=f"{first.unit.qualname}:{named}:{index.text}",
        severity=severity,
    )


def _handed_over(index: Place) -> Iterator[Related]:
    """Where the number comes from, if another file than that which uses it hands it over."""
    others = (each for each in trail(index, frozenset()) if each.unit.path != index.unit.path)
    for each in [other for other in others if _is_of_job(other)][:1]:
        yield Related(each.unit.path, each.at[0], "this is where it comes from")


INCORRECT = [
    # where there are more ranks than devices
    """
import torch
import torch.distributed as dist

def setup():
    rank = dist.get_rank()
    if dist.get_world_size() > torch.cuda.device_count():
        torch.cuda.set_device(rank)  # error: MP536
""",
    """
import os
import torch
import torch.distributed as dist

def from_environment():
    local_rank = rank = 0
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        if name in os.environ:
            local_rank = int(os.environ[name])
            break
    for name in ("RANK", "SLURM_PROCID"):
        if name in os.environ:
            rank = int(os.environ[name])
            break
    return local_rank, rank

def bind():
    _, rank = from_environment()
    torch.cuda.set_device("cuda:%d" % rank)  # error: MP536
    dist.init_process_group("nccl")

bind()
""",
    """
import torch
import torch.distributed as dist

class State:
    def setup(self, alone):
        self.index = 0 if alone else dist.get_rank()

    def wait_for_everyone(self):
        torch.distributed.barrier(device_ids=[self.index])  # error: MP536
""",
    """
import torch

class State:
    def wait_for_everyone(self):
        torch.distributed.barrier(device_ids=[self.process_index])  # error: MP536
""",
    """
import torch
import torch.distributed as dist

def setup():
    rank = dist.get_rank()
    torch.cuda.set_device(rank)  # error: MP536
""",
    """
import os
import torch
import torch.distributed as dist

def setup():
    rank = int(os.environ["RANK"])
    return torch.device("cuda", rank)  # error: MP536
""",
    """
import torch
import torch.distributed as dist

def setup():
    rank = dist.get_rank()
    torch.cuda.set_device(rank)  # error: MP536
    return torch.device("cuda", rank)
""",
    # torchrun says the rank on the node, srun that in the job
    """\
import os

import torch
import torch.distributed as dist


def init_distributed_mode(args):
    if "RANK" in os.environ:
        args.rank = int(os.environ["RANK"])
        args.gpu = int(os.environ["LOCAL_RANK"])
    elif "SLURM_PROCID" in os.environ:
        args.rank = args.gpu = int(os.environ["SLURM_PROCID"])
    else:
        return
    torch.cuda.set_device(args.gpu)  # error: MP536
    dist.init_process_group("nccl", rank=args.rank)
""",
]

CORRECT = [
    # there is a device here for each rank
    """
import os
import torch
import torch.distributed as dist

def setup():
    rank = dist.get_rank()
    world_size = dist.get_world_size()
    assert world_size <= torch.cuda.device_count(), "one node"
    bind(rank)

def bind(rank):
    torch.cuda.set_device(rank)

def checked():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if size > torch.cuda.device_count():
        raise ValueError("one node")
    torch.cuda.set_device(rank)

def compared():
    rank = dist.get_rank()
    devices = torch.cuda.device_count()
    if not rank < devices:
        raise ValueError("one node")
    torch.cuda.set_device(rank)
""",
    # what is stored later is not there yet
    """
import argparse
import torch
import torch.distributed as dist

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int)
    args = parser.parse_args()
    torch.cuda.set_device(args.local_rank)
    dist.init_process_group("nccl")
    args.local_rank = dist.get_rank()
    print(args.local_rank)
""",
    """
import torch

class State:
    def wait_for_everyone(self):
        torch.distributed.barrier(device_ids=[self.local_process_index])
""",
    """
import torch
import torch.distributed as dist

def setup():
    rank = dist.get_rank() % torch.cuda.device_count()
    torch.cuda.set_device(rank)
""",
    """
import os
import torch

def setup():
    local = int(os.environ["RANK"]) % torch.cuda.device_count()
    torch.cuda.set_device(local)
""",
    """
import torch

def worker(rank, world_size):
    torch.cuda.set_device(rank)
""",
    # the group of the node is stored by another module
    """
# file: pkg/utils/dist.py
import torch.distributed as dist
_LOCAL = None

def get_rank():
    if not dist.is_initialized():
        return 0
    return dist.get_rank()

def get_local_rank():
    if _LOCAL is None:
        return get_rank()
    return dist.get_rank(group=_LOCAL)

# file: pkg/core/launch.py
import torch.distributed as dist
import pkg.utils.dist as comm

def start(n, per, mine):
    for i in range(n):
        pg = dist.new_group(list(range(i * per, (i + 1) * per)))
        if i == mine:
            comm._LOCAL = pg

# file: pkg/core/trainer.py
import torch
from pkg.utils.dist import get_local_rank

class T:
    def __init__(self):
        self.local_rank = get_local_rank()

    def go(self):
        torch.cuda.set_device(self.local_rank)
# file: pkg/__init__.py
# file: pkg/utils/__init__.py
# file: pkg/core/__init__.py
""",
    """
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

def setup(rank, size):
    dist.init_process_group("nccl", rank=rank, world_size=size)

def work(rank, size):
    setup(rank, size)
    torch.cuda.set_device(dist.get_rank())

def main():
    mp.spawn(work, args=(8,), nprocs=8)
""",
    # modulo the devices of a node, and a number that is given
    """\
import os

import torch
import torch.distributed as dist


def init_distributed_mode(args):
    if "RANK" in os.environ:
        args.rank = int(os.environ["RANK"])
        args.gpu = int(os.environ["LOCAL_RANK"])
    elif "SLURM_PROCID" in os.environ:
        args.rank = int(os.environ["SLURM_PROCID"])
        args.gpu = args.rank % torch.cuda.device_count()
    elif args.gpu is None:
        args.rank = args.gpu = 0
    torch.cuda.set_device(args.gpu)
    dist.init_process_group("nccl", rank=args.rank)
""",
]

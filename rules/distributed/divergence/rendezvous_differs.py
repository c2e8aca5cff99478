"""Ranks that each choose a port of their own to meet at.

What it does
    Reports `os.environ["MASTER_PORT"] = …` and `init_process_group(init_method=…)` with what each process draws for
    itself (`random.randint`), in a process that then takes its place in the process
    group. Silent in a parent that starts the workers (they inherit what it has chosen), under a test, with a
    seed that all share, and where the process sets up a group of one by itself.

Why is this bad
    The ranks wait for each other at different ports until the time-out; on one machine it may work by chance. The
    warning rests on there being more than one process.

References
    https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import only
from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.run_by_all import is_within, setting_up
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP573", "rendezvous-differs", "warning", "1.0", tokens=("MASTER_PORT", "init_method"))
_PORT = "MASTER_PORT"
_OWN = frozenset({"RANK", "WORLD_SIZE"})  # who sets these says who there is
_UPDATE = "os.environ.update"
_SETUP = "torch.distributed.init_process_group"


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    starting = setting_up(queries)
    for place, value in _chosen(queries):
        unit = place.unit
        if is_aside(unit.path) or place.tests_inside or _is_alone(queries, unit):
            continue
        if not is_within(queries, starting, place) or not _is_drawn(queries, value, starting):
            continue
        yield RULE.finding(
            unit.path,
            place.at,
            f"each process{place.where} chooses for itself where all meet: `{value.text}`",
            help="let the launcher, or the process that starts the others, choose the port",
            context=f"{unit.qualname}:{value.text}",
        )


def _is_drawn(queries: Queries, value: Place, starting: frozenset[Unit]) -> bool:
    """Whether a process that takes its place in the group has drawn a value itself: what it got from the one that has
    started it is the same in all."""
    queue, seen = [value], {(value.unit, value.number)}
    for each in queue:
        stored = _stored(queries, each)
        if stored:  # by the process itself, or by the one that hands the object to it
            queue += [row for row in stored if (row.unit, row.number) not in seen]
            seen |= {(row.unit, row.number) for row in stored}
            continue
        if only(each.val.v, "data") and is_within(queries, starting, each):
            return True
        for position in sorted(cause.position for cause in only(each.val.v, "param")):
            for call in queries.calls_of(each.unit):
                given = None if call.hands_on else argument_of(call.unit, call.number, each.unit, position)
                if given is not None and (call.unit, given) not in seen:
                    seen.add((call.unit, given))
                    queue.append(call.value_at(given))
    return False


def _stored(queries: Queries, value: Place) -> list[Place]:
    """What the program stores in the attribute that a value is."""
    root = value.root
    if root.value.op != "attr":
        return []
    stores = (store for unit in queries.mentioning(root.value.data) for store in queries.values(unit, "store_attr"))
    return [store.operand(1) for store in stores if store.value.data == root.value.data]


def _chosen(queries: Queries) -> Iterator[tuple[Place, Place]]:
    """Where a process says at which port it meets the others, with the port."""
    for unit in queries.spelling(_PORT):
        for store in queries.values(unit, "store_item"):
            if ("ext", "os.environ") in store.operand(0).val.objs and store.operand(1).val.constant() == _PORT:
                yield store, store.operand(2)
    for call in queries.calls(_SETUP):
        method = call.argument("init_method", 1)
        if method is not None:
            yield call, method


def _is_alone(queries: Queries, unit: Unit) -> bool:
    """Whether a process makes a group of its own, or is the parent of the others: it says who it is, starts commands
    that inherit its environment, or says that there is one process."""
    stores = (store for each in queries.spelling(*_OWN) for store in queries.values(each, "store_item"))
    named = any(store.unit.module is unit.module and store.operand(1).val.constant() in _OWN for store in stores)
    named = named or any(call.unit.module is unit.module and _names_own(call) for call in queries.calls(_UPDATE))
    if any(call.unit is unit for call in queries.calls(*queries.flow.models.ranks["starting"])):
        return True
    sizes = [call.argument("world_size", 3) for call in queries.calls(_SETUP)]
    return named or any(size is not None and size.closed.is_const(1) for size in sizes)


def _names_own(update: Place) -> bool:
    """Whether what the environment is updated with says who a process is."""
    given = [update.operand(i).closed for i in range(1, len(update.value.args))]
    keys = {key for value in given for o in value.of("dict") for key, _ in o[1]}
    return not _OWN.isdisjoint(keys | {name for name in update.value.data.names if name})


_START = """
import os
import random
import torch.distributed as dist
import torch.multiprocessing as mp

def free():
    return random.randrange(20000, 30000)

def choose():
    os.environ["MASTER_PORT"] = str(random.randint(10000, 20000)){mark}
"""

INCORRECT = (
    _START.replace("{mark}", "  # error: MP573")
    + """
def main():
    choose()
    dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))

def work(rank, size):
    os.environ["MASTER_PORT"] = str(free())  # error: MP573
    dist.init_process_group("nccl", rank=rank, world_size=size)

def other(rank, size):
    address = f"tcp://localhost:{20000 + random.randint(0, 999)}"
    dist.init_process_group("nccl", init_method=address, rank=rank, world_size=size)  # error: MP573

def take(port):
    os.environ["MASTER_PORT"] = str(port)  # error: MP573

def alone():
    take(free())
    dist.init_process_group("nccl")

def start(size):
    mp.spawn(work, args=(size,), nprocs=size)
    mp.spawn(other, args=(size,), nprocs=size)
""",
)

CORRECT = (
    # in an object that the parent hands on
    """
import random
import torch
import torch.distributed as dist

def main(args, count):
    args.rank = 0
    args.url = f"tcp://localhost:{random.randrange(49152, 65535)}"
    torch.multiprocessing.spawn(work, (args,), count)

def work(gpu, args):
    args.rank += gpu
    dist.init_process_group("nccl", init_method=args.url, world_size=torch.cuda.device_count(), rank=args.rank)
""",
    # a process that says that it is alone
    """
import os
import random
import torch.distributed as dist

def alone():
    os.environ["MASTER_PORT"] = str(random.randint(10000, 20000))
    os.environ.update({"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"})
    dist.init_process_group("gloo")
""",
    # the parent is rank 0
    """
import os
import random
import subprocess
import sys
import torch.distributed as dist

def launch(size):
    os.environ["MASTER_PORT"] = str(random.randint(10000, 20000))
    for rank in range(1, size):
        subprocess.Popen([sys.executable, "work.py", str(rank)])
    dist.init_process_group("nccl", rank=0, world_size=size)
""",
    # chosen by who starts the others; or where no launcher has chosen
    _START.replace("{mark}", "")
    + """
def work(rank, size, port):
    if "MASTER_PORT" not in os.environ:
        os.environ["MASTER_PORT"] = str(free())
    dist.init_process_group("nccl", f"tcp://localhost:{port}", rank=rank, world_size=size)

def main(size):
    choose()
    port = free()
    if size > 1:
        mp.spawn(work, args=(size, port), nprocs=size)
    else:
        work(0, 1, port)
""",
    # one process
    _START.replace("{mark}", "")
    + """
def main():
    choose()
    dist.init_process_group("gloo", rank=0, world_size=1)
""",
    # all draw the same
    """
import os
import random
import torch.distributed as dist

def main():
    random.seed(0)
    os.environ["MASTER_PORT"] = str(random.randint(10000, 20000))
    dist.init_process_group("nccl")
""",
)

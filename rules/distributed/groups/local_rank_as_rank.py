"""The number of a process on its node given to it as its rank in the whole job.

What it does
    Reports `{"RANK": …, "WORLD_SIZE": …}`, `init_process_group(rank=…, world_size=…)` and assignments to these
    variables of the environment, where the rank is a remainder by the processes of a node (`rank % gpus_per_node`, the
    second of `divmod(rank, gpus_per_node)`), the inner of two loops, or `LOCAL_RANK`, and the size is that of the whole
    job.

Why is this bad
    With two nodes every rank exists twice and the upper half not at all: the processes wait for each other until the
    store times out, or two of them overwrite each other's part. On one node nobody notices.

References
    https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import LOCAL
from validator.finding import Finding
from validator.flow.calls.groups import axes_in
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP545", "local-rank-as-rank", "warning", "0.1.0", tokens=("RANK", "init_process_group"))

_TEXT = ("int", "str")


class _Told(NamedTuple):
    """A process that is told its rank and how many there are."""

    rank: Place
    world: Place
    user: Place


class _Bound(NamedTuple):
    """What a rank is always below (None for LOCAL_RANK), and what makes it so."""

    place: Place | None
    why: str


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.mentioning("RANK", "init_process_group"):
        for told in _told(queries, unit):
            rank, world = _plain(told.rank), _plain(told.world)
            bound = _bound(rank)
            if bound is None or not _is_whole(world, bound):
                continue
            yield RULE.finding(
                unit.path,
                told.rank.seen_from(told.user),
                f"`{unit.qualname}` gives a process `{rank.text}` for its rank, {bound.why}, in a job of"
                f" `{world.text}` processes",
                help="add the ranks of the nodes before: `node * gpus_per_node + local_rank`",
                context=f"{unit.qualname}:{told.rank.text}",
                severity="warning" if world.hint in queries.flow.models.likely["worlds"] else "error",
            )


def _told(queries: Queries, unit: Unit) -> Iterator[_Told]:
    written: dict[str, Place] = {}
    for number, value in enumerate(unit.code.values):
        place = Place(queries.flow, unit, number)
        given: dict[object, Place] = {}
        names = ("RANK", "WORLD_SIZE")
        if value.op == "dict":
            keys = [
                place.operand(i).val.constant() if value.args[i] >= 0 else None for i in range(0, len(value.args), 2)
            ]
            given = {key: place.operand(2 * i + 1) for i, key in enumerate(keys)}
        elif value.op == "call":
            given = {name: place.value_at(n) for name, n in zip(value.data.names, value.args[1:], strict=True)}
            if place.method == "init_process_group":
                names = ("rank", "world_size")
        elif value.op == "store_item" and ("ext", "os.environ") in place.operand(0).val.objs:
            key = place.operand(1).val.constant()
            written[str(key)] = place
        if all(name in given for name in names):
            yield _Told(given[names[0]], given[names[1]], place)
    if {"RANK", "WORLD_SIZE"} <= written.keys():
        rank, world = written["RANK"], written["WORLD_SIZE"]
        yield _Told(rank.operand(2), world.operand(2), rank)


def _plain(place: Place) -> Place:
    """The number in `str(…)`, `int(…)` and `f"{…}"`."""
    place = place.root
    value = place.value
    if value.op == "call" and place.method in _TEXT and len(value.args) == 2:
        return _plain(place.operand(1))
    if value.op == "join" and len(value.args) == 1:
        return _plain(place.operand(0))
    return place


def _bound(rank: Place) -> _Bound | None:
    """What keeps a rank below the processes of a node; None where nothing is known to."""
    value = rank.value
    objs = rank.closed.each
    if objs and all(o[0] == "environment" and o[2] == "node" or o[:2] == ("ordinal", "node") for o in objs):
        return _Bound(None, "the number on its node")
    if value.op == "binary" and value.data == "Mod":
        per_node = rank.operand(1)
        return _Bound(per_node, f"the remainder by `{per_node.text}`")
    if value.op == "unpack" and value.data[:2] == (1, 2):
        divided = rank.operand(0).root
        if divided.value.op == "call" and divided.method == "divmod" and len(divided.value.args) == 3:
            return _Bound(divided.operand(2), f"the remainder by `{divided.operand(2).text}`")
    return _of_loop(rank) if value.op == "next" else None


def _of_loop(rank: Place) -> _Bound | None:
    """The bound of the inner of two loops over ranges."""
    over = _range(rank)
    code = rank.unit.code
    around = code.blocks[rank.operand(0).value.block].loop  # where the iterator is made
    if over is None or around < 0 or code.loops[around].iterator < 0:
        return None
    return _Bound(over.operand(1), f"which the loop over `{over.text}` counts anew for each node")


def _range(element: Place) -> Place | None:
    """`range(n)` of `for element in range(n)`."""
    over = element.operand(0).operand(0).root
    return over if over.value.op == "call" and over.method == "range" and len(over.value.args) == 2 else None


def _is_whole(world: Place, bound: _Bound) -> bool:
    """Whether a size counts the processes of all nodes."""
    sizes = [axes_in(o[1]) for o in world.closed.of("size")]
    if sizes:
        return sizes != [frozenset({LOCAL})]
    limit = bound.place
    if limit is None or world.key == limit.key:
        return False
    if world.value.op == "binary" and world.value.data == "Mult":  # so many nodes of so many processes
        return any(world.operand(i).key == limit.key for i in (0, 1))
    return world.hint in limit.flow.models.likely["worlds"]


INCORRECT = [
    """
import ray

class WorkerGroup:
    def __init__(self, pool, worker_class):
        for rank in range(pool.world_size):
            node, local = divmod(rank, pool.gpus_per_node)
            env = {
                "RANK": str(local),  # error: MP545
                "WORLD_SIZE": str(pool.world_size),
                "LOCAL_RANK": "0",
            }
            ray.remote(worker_class).options(runtime_env={"env_vars": env}).remote()
""",
    """
import os
import subprocess
import torch.distributed as dist

def setup():
    rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))  # error: MP545

def start(command, nnodes, gpus_per_node):
    for node in range(nnodes):
        for index in range(gpus_per_node):
            env = dict(os.environ, RANK=f"{index}", WORLD_SIZE=str(nnodes * gpus_per_node))  # error: MP545
            subprocess.Popen(command, env=env)

def enter(rank, world_size, gpus_per_node):
    os.environ["RANK"] = str(rank % gpus_per_node)  # error: MP545
    os.environ["WORLD_SIZE"] = str(world_size)
""",
]

CORRECT = [
    """
import ray

class WorkerGroup:
    def __init__(self, pool, worker_class):
        for rank in range(pool.world_size):
            node, local = divmod(rank, pool.gpus_per_node)
            whole = {"RANK": str(rank), "WORLD_SIZE": str(pool.world_size), "LOCAL_RANK": str(local)}
            again = {"RANK": f"{node * pool.gpus_per_node + local}", "WORLD_SIZE": str(pool.world_size)}
            ray.remote(worker_class).options(runtime_env={"env_vars": {**whole, **again}}).remote()
""",
    """
import os
import torch
import torch.distributed as dist

def on_one_node(local_rank):
    world_size = torch.cuda.device_count()
    dist.init_process_group("nccl", rank=local_rank, world_size=world_size)

def by_node(rank, gpus_per_node):
    dist.init_process_group("nccl", rank=rank % gpus_per_node, world_size=gpus_per_node)

def from_environment():
    dist.init_process_group("nccl", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))

def here():
    rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group("nccl", rank=rank, world_size=torch.cuda.device_count())
""",
    # each node is a job of its own, on one of two ways
    """
import os
import torch
import torch.distributed as dist

def place(alone):
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    if alone:
        count = torch.cuda.device_count()
        rank, world_size = rank % count, count
    return rank, world_size

def main(alone):
    rank, world_size = place(alone)
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
""",
]

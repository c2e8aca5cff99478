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

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.bindings import own_nodes
from validator.analysis.places import is_aside
from validator.facts.text import path_of
from validator.finding import Finding
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP545", "local-rank-as-rank", "error", "0.1.0", tokens=("RANK", "init_process_group"))


_RANK = re.compile(r"\bRANK\b")


class Place(NamedTuple):
    """A process that is told its rank and how many there are."""

    rank: ast.expr
    world: ast.expr


class Bound(NamedTuple):
    """What a rank is always below, and what makes it so; `text` is empty for LOCAL_RANK."""

    text: str
    why: str


def check_project(project: Project) -> Iterator[Finding]:
    speaking: dict[str, bool] = {}
    for function in project.functions():
        if function.path not in speaking:
            data = function.module.source.data
            speaking[function.path] = (b"WORLD_SIZE" in data or b"init_process_group" in data) and not is_aside(
                function.path
            )
        if not speaking[function.path] or not _speaks(function) or function.node is None:
            continue
        for place in _places(own_nodes(function.node)):
            bound = _bound(own_nodes(function.node), _plain(place.rank))
            if bound is not None and _is_whole(project, function, _plain(place.world), bound):
                yield RULE.finding(
                    function.path,
                    function.module.source_text.at(place.rank),
                    f"`{function.qualname}` gives a process `{ast.unparse(_plain(place.rank))}` for its rank,"
                    f" {bound.why}, in a job of `{ast.unparse(_plain(place.world))}` processes",
                    help="add the ranks of the nodes before: `node * gpus_per_node + local_rank`",
                    context=f"{function.qualname}:{ast.unparse(place.rank)}",
                )


def _speaks(function: Method) -> bool:
    """Whether the text of a function has the names that tell a process its rank; its tree is long to make."""
    first, _, last, _ = function.facts.at
    text = "\n".join(function.module.source_text.lines[first - 1 : last])
    if "init_process_group" in text and "world_size" in text:
        return True
    return _RANK.search(text) is not None and "WORLD_SIZE" in text


def _places(nodes: list[ast.AST]) -> Iterator[Place]:
    written: dict[str, ast.expr] = {}
    for node in nodes:
        given: dict[str, ast.expr] = {}
        if isinstance(node, ast.Dict):
            given = {
                k.value: v
                for k, v in zip(node.keys, node.values, strict=True)
                if isinstance(k, ast.Constant) and isinstance(k.value, str)
            }
        elif isinstance(node, ast.Call):
            given = {k.arg: k.value for k in node.keywords if k.arg}
            if path_of(node.func).endswith("init_process_group") and {"rank", "world_size"} <= given.keys():
                yield Place(given["rank"], given["world_size"])
        elif isinstance(node, ast.Assign) and (variable := _of_environment(node.targets[0])):
            written[variable] = node.value
        if {"RANK", "WORLD_SIZE"} <= given.keys():
            yield Place(given["RANK"], given["WORLD_SIZE"])
    if {"RANK", "WORLD_SIZE"} <= written.keys():
        yield Place(written["RANK"], written["WORLD_SIZE"])


def _plain(node: ast.expr) -> ast.expr:
    """The number in `str(…)`, `int(…)` and `f"{…}"`."""
    if isinstance(node, ast.Call) and path_of(node.func) in ("str", "int") and len(node.args) == 1:
        return _plain(node.args[0])
    if isinstance(node, ast.JoinedStr) and len(node.values) == 1 and isinstance(node.values[0], ast.FormattedValue):
        return _plain(node.values[0].value)
    return node


def _bound(nodes: list[ast.AST], rank: ast.expr) -> Bound | None:
    """What keeps a rank below the processes of a node; None where nothing is known to."""
    if isinstance(rank, ast.BinOp) and isinstance(rank.op, ast.Mod):
        return Bound(ast.unparse(rank.right), f"the remainder by `{ast.unparse(rank.right)}`")
    if _of_environment(rank) == "LOCAL_RANK":
        return Bound("", "the number on its node")
    if not isinstance(rank, ast.Name):
        return None
    sources = [node for node in nodes if rank.id in _bound_by(node)]
    if len(sources) != 1:
        return None
    source = sources[0]
    if isinstance(source, ast.For):
        return _of_loop(nodes, source, rank)
    value = source.value if isinstance(source, ast.Assign) else None
    if isinstance(value, ast.Call) and path_of(value.func) == "divmod" and len(value.args) == 2:
        parts = source.targets[0].elts if isinstance(source.targets[0], ast.Tuple) else []  # type: ignore[attr-defined]
        per_node = ast.unparse(value.args[1])
        second = len(parts) == 2 and path_of(parts[1]) == rank.id
        return Bound(per_node, f"the remainder by `{per_node}`") if second else None
    plain = _plain(value) if value is not None else rank
    return _bound(nodes, plain) if not isinstance(plain, ast.Name) else None


def _of_loop(nodes: list[ast.AST], loop: ast.For, rank: ast.Name) -> Bound | None:
    """The bound of the inner of two loops over ranges."""
    outer = any(isinstance(n, ast.For) and n is not loop and loop in ast.walk(n) for n in nodes)
    header = loop.iter
    if not outer or not isinstance(loop.target, ast.Name) or not isinstance(header, ast.Call):
        return None
    if path_of(header.func) != "range" or len(header.args) != 1:
        return None
    return Bound(ast.unparse(header.args[0]), f"which the loop over `{ast.unparse(header)}` counts anew for each node")


def _bound_by(node: ast.AST) -> set[str]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.For | ast.AugAssign | ast.AnnAssign | ast.NamedExpr):
        targets = [node.target]
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}


def _of_environment(node: ast.expr) -> str:
    """`LOCAL_RANK` of `os.environ["LOCAL_RANK"]`, `os.environ.get(…)` and `os.getenv(…)`."""
    key: ast.expr | None = None
    if isinstance(node, ast.Subscript) and path_of(node.value).endswith("environ"):
        key = node.slice
    elif isinstance(node, ast.Call) and path_of(node.func).endswith(("environ.get", "getenv")) and node.args:
        key = node.args[0]
    return str(key.value) if isinstance(key, ast.Constant) else ""


def _is_whole(project: Project, function: Method, world: ast.expr, bound: Bound) -> bool:
    """Whether a size counts the processes of all nodes, as far as its source says."""
    if _of_environment(world) == "WORLD_SIZE":
        return True
    if ast.unparse(world) == bound.text:
        return False
    if isinstance(world, ast.Name):
        values = [n.value for n in own_nodes(function.node) if isinstance(n, ast.Assign) and world.id in _bound_by(n)]
        if any(ast.unparse(_plain(value)) == bound.text or "device_count" in ast.unparse(value) for value in values):
            return False
        if any(_of_environment(_plain(value)) == "WORLD_SIZE" for value in values):
            return True
    from validator.analysis.dimensions import Dimensions  # of few projects, and long to import

    size = project.analysis(Dimensions).size(function, world)
    return {"nodes", "gpus"} <= size.tags or (bool(bound.text) and size.has("world"))


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
]

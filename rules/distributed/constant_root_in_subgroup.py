"""A collective on a sub-group whose root is given as a literal rank.

What it does
    Reports `src=0` or `dst=0` (any literal) in `broadcast`, `scatter`, `gather` and `reduce` on a group of one
    parallel dimension (tensor, data, context, pipeline, expert), on a group that `new_group` makes of a literal list
    without that rank, on one of several groups made in a loop, and on a dimension of a device mesh. Silent where the
    function first makes sure that the other dimensions are at their first rank, and for `group_src`, which counts
    inside the group.

Why is this bad
    `src` is a rank of the job, not of the group. Rank 0 is in the first of the groups only: in all others the call
    raises, or waits for a rank that is no member.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bindings import call_node
from validator.analysis.collectives import dimension, group_of
from validator.analysis.effects import Effects
from validator.analysis.groups import Groups
from validator.analysis.places import is_aside, outermost, text_of
from validator.facts.model import Argument, Call
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.integers import is_whole
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP510", "constant-root-in-subgroup", "error", "0.1.0", tokens=("dist.", "distributed", "comm"))

# name of the collective -> the parameter with the root and its position
_ROOTS = {
    "broadcast": ("src", 1), "broadcast_object_list": ("src", 1), "scatter": ("src", 2),
    "scatter_object_list": ("src", 2), "gather": ("dst", 2), "gather_object": ("dst", 2), "reduce": ("dst", 1),
}  # fmt: skip
_FIRST_RANK = re.compile(r"rank(\(\w*\))?\s*(==|!=|>)\s*0|in\s+\w*ranks|group_ranks|get_process_group_ranks")


def check_project(project: Project) -> Iterator[Finding]:
    effects, groups = project.analysis(Effects), project.analysis(Groups)
    seen: set[tuple[Method, str]] = set()
    for function, rows in effects.direct.items():
        for call, row in rows.values():
            root = _root(row.name, call)
            if root is None or root.kind != "const" or not is_whole(root.value):
                continue
            group = group_of(row, call)
            outer = outermost(function)
            if not group or (outer, group) in seen or is_aside(function.path):
                continue
            excluded = _lacking(groups, function, group, int(root.value), _expression(function, call, group))
            if excluded is None or _FIRST_RANK.search(text_of(outer)):
                continue
            seen.add((outer, group))
            reason, related = excluded
            yield RULE.finding(
                function.path,
                root.at,
                f"`{row.name}` in `{function.qualname}` names rank {root.value} of the job as its root, but works on"
                f" `{group}`: {reason}",
                help=f"pass the root's rank inside the group as `group_{_ROOTS[row.name][0]}={root.value}`"
                " (torch 2.6), or translate it with `dist.get_global_rank(group, …)`",
                related=related,
                context=f"{function.qualname}:{row.name}:{group}",
            )


def _expression(function: Method, call: Call, group: str) -> ast.expr | None:
    """The syntax of a group that is asked for where it is used: `group=mesh.get_group("tp")`."""
    node = call_node(function, call) if group.endswith("()") else None
    values = [*node.args, *(k.value for k in node.keywords)] if node is not None else []
    return next((v for v in values if isinstance(v, ast.Call) and f"{path_of(v.func)}()" == group), None)


def _lacking(
    groups: Groups, function: Method, group: str, root: int, node: ast.expr | None
) -> tuple[str, list[Related]] | None:
    """Why a group, or all but one of its kind, lacks the root; None where nothing says so."""
    origin = groups.made(function, node) if node is not None else groups.origin(function, group)
    related = [Related(origin.path, origin.line, "the group is made here")] if origin is not None else []
    if origin is not None and origin.kind == "ranks":
        ranks = ", ".join(map(str, origin.ranks))
        return None if root in origin.ranks else (f"it holds the ranks {ranks}", related)
    if origin.kind != "all" if origin is not None else dimension(group):
        return "only one of these groups holds that rank", related
    return None


def _root(name: str, call: Call) -> Argument | None:
    if name not in _ROOTS or call.keyword(f"group_{_ROOTS[name][0]}") is not None:
        return None
    parameter, position = _ROOTS[name]
    found = call.keyword(parameter)
    return found or (call.positional[position] if position < len(call.positional) else None)


INCORRECT = [
    """
import torch.distributed as dist

def share(tensor, tp_group):
    dist.broadcast(tensor, src=0, group=tp_group)  # error: MP510
""",
    """
import torch.distributed as dist

def share(objects, mesh):
    dp_group = mesh.get_group("dp")
    dist.broadcast_object_list(objects, 0, dp_group)  # error: MP510
""",
    """
import torch.distributed as dist

def share(tensor):
    tail = dist.new_group([2, 3])
    dist.broadcast(tensor, src=0, group=tail)  # error: MP510
""",
    """
import torch.distributed as dist

class Node:
    def __init__(self, size):
        self.peers = None
        for first in range(0, dist.get_world_size(), size):
            ranks = list(range(first, first + size))
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                self.peers = group

    def share(self, tensor):
        dist.broadcast(tensor, src=0, group=self.peers)  # error: MP510
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Node:
    def __init__(self):
        mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicas", "parts"))
        self.peers = mesh["parts"].get_group()

    def share(self, tensor):
        dist.broadcast(tensor, src=0, group=self.peers)  # error: MP510
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Layout:
    def mesh(self):
        return init_device_mesh("cuda", (2, 2, 2), mesh_dim_names=("replicas", "ring", "parts"))

    def ring_group(self):
        return self.mesh()["ring"].get_group()

class Node:
    def __init__(self, mesh):
        self.peers = mesh["ring", "parts"]._flatten("copy").get_group()

    def share(self, tensor):
        dist.broadcast(tensor, src=0, group=self.peers)  # error: MP510

def build(layout: Layout):
    return Node(layout.mesh())

def share(layout: Layout, tensor):
    peers = layout.ring_group()
    dist.broadcast(tensor, src=0, group=peers)  # error: MP510
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def build():
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("copies", "pieces"))
    return mesh, mesh["pieces"].get_group()

class Node:
    def setup(self):
        self.mesh, self.peers = build()

    def share(self, tensor):
        dist.broadcast(tensor, src=0, group=self.mesh.get_group("pieces"))  # error: MP510

    def share_list(self, objects):
        dist.broadcast_object_list(objects, src=0, group=self.peers)  # error: MP510
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Sharded:
    def setup(self):
        self.mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("copies", "pieces"))

    @property
    def peers(self):
        return self.mesh["pieces"].get_group()

class Staged:
    def setup(self):
        self.mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("copies", "pieces"))

    @property
    def peers(self):
        return self.mesh["pieces"].get_group()

def from_first(tensor, group):
    dist.broadcast(tensor, src=0, group=group)  # error: MP510

def start(args, seed):
    strategy = Sharded() if args.sharded else Staged()
    from_first(seed, strategy.peers)
""",
]

CORRECT = [
    """
import torch.distributed as dist

def share(tensor, tp_group):
    dist.broadcast(tensor, src=dist.get_global_rank(tp_group, 0), group=tp_group)
""",
    """
import torch.distributed as dist

def share(tensor, tp_group):
    dist.broadcast(tensor, group=tp_group, group_src=0)
""",
    """
import torch.distributed as dist

def share(tensor, model_update_group, gloo):
    dist.broadcast(tensor, src=0, group=model_update_group)
    dist.broadcast(tensor, src=0, group=gloo)
    dist.broadcast(tensor, src=0)
""",
    """
import torch.distributed as dist

def share(tensor):
    head = dist.new_group([0, 1])
    dist.broadcast(tensor, src=0, group=head)
    tail = dist.new_group([2, 3])
    dist.broadcast(tensor, src=2, group=tail)
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def share(tensor, size):
    mesh = init_device_mesh("cuda", (size,), mesh_dim_names=("all",))
    dp_group = mesh.get_group("all")
    dist.broadcast(tensor, src=0, group=dp_group)
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

class Layout:
    def mesh(self):
        return init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicas", "parts"))

class Node:
    def __init__(self, mesh, other):
        self.everyone = mesh["replicas", "parts"]._flatten("everyone").get_group()
        self.some = other["a", "b"]._flatten("some").get_group()
        self.peers = mesh["parts"].get_group()

    def share(self, tensor):
        dist.broadcast(tensor, src=0, group=self.everyone)
        dist.broadcast(tensor, src=0, group=self.some)
        dist.broadcast(tensor, src=dist.get_process_group_ranks(self.peers)[0], group=self.peers)

def build(layout: Layout, other):
    return Node(layout.mesh(), other)
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def build():
    mesh = init_device_mesh("cuda", (8,), mesh_dim_names=("all",))
    return mesh, mesh["all"].get_group()

class Node:
    def setup(self, given):
        self.mesh, self.peers = build()
        self.given = given

    def share(self, tensor):
        dist.broadcast(tensor, src=0, group=self.mesh.get_group("all"))
        dist.broadcast(tensor, src=0, group=self.peers)
        dist.broadcast(tensor, src=0, group=self.given.get_group(0))
""",
]

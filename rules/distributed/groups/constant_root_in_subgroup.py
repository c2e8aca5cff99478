"""A root that is no member of its group, or is counted in the wrong way.

What it does
    Reports the root of `broadcast`, `scatter`, `gather` and `reduce` where it is a rank counted inside a group (a
    literal, the index of a loop, `get_rank(group)`, `get_group_rank`, `group.size() - 1`) but a rank of the job is
    asked for, and the group is one of several (a dimension of a mesh, a parallel group of Megatron, one of the
    groups made in a loop) or a literal list without that rank; where root and group are wrong together only as one
    caller passes them to a helper, or as the default of the helper or the library gives the root; where `group_src`
    or `group_dst` gets a rank of the job (`get_rank()`, `get_global_rank`); and where the root is the size of the
    group. Silent where branches leave only the ranks of one group, and where the root is a rank counted along another
    dimension: with strided groups that is the rank of the job of the first member.

Why is this bad
    `src` is a rank of the job, not of the group. Rank 0 is in the first of the groups only: in all others the call
    raises, or waits for a rank that is no member.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import WHOLE, Axes, axes_of
from validator.domains.spmd import only
from validator.facts.model import At
from validator.finding import Finding, Related
from validator.flow.callgraph.contexts import Given, contexts, given
from validator.flow.queries.base import Place, Queries
from validator.flow.values import NONE_OBJ, TOP, Obj, Val, const
from validator.models import Row
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP510", "constant-root-in-subgroup", "warning", "0.1.0", tokens=("dist.", "distributed", "comm"))


class _Wrong(NamedTuple):
    why: str
    sure: bool = True


def check_project(project: Project) -> Iterator[Finding]:
    reported: set[Place] = set()
    for call in project.analysis(Queries).collectives():
        row = call.operations[0].row
        if row.root is None:
            continue
        inside = call.argument(f"group_{row.root[0]}")
        root = _root(call, row, inside)
        if root is None:
            continue
        asked = call.argument(*row.group or ("group", -1))
        group = given(asked) if asked is not None else None
        wrong = _wrong(call, root, group, inside is not None)
        if wrong is not None:
            yield _report(call, root.place.seen_from(call) if root.place is not None else call.at, root, wrong)
        elif group is not None and inside is None and (root.is_open or group.is_open):
            yield from _by_callers(call, root, group, reported)


def _root(call: Place, row: Row, inside: Place | None) -> Given | None:
    """The root of a collective: as it is written, or the one that the library takes where none is."""
    written = inside or call.argument(*row.root or ("", -1))
    if written is not None:
        return given(written)
    if row.default_root is None or not {"*", "**"}.isdisjoint(call.value.data.names):
        return None
    return Given(call.flow, call.unit, const(row.default_root), None)


def _by_callers(call: Place, root: Given, group: Given, reported: set[Place]) -> Iterator[Finding]:
    """Roots and groups that only together are wrong: in each chain of calls that passes them."""
    asking, is_root = _tests_of_root(call, root)
    if is_root:
        return  # what the root itself does: the others come another way
    for context in contexts(call, (root, group), call.around(asking)):
        told, held = context.given
        differs = any(c.kind in ("rank", "member") for c in context.under)
        if context.call == call or context.call in reported or differs:
            continue
        wrong = _of_constant(told, held) or _counted(told, held)
        if wrong is not None:
            reported.add(context.call)
            at = told.place.seen_from(context.call) if told.place is not None else context.call.at
            yield _report(call, at, told, wrong, context.call)


def _tests_of_root(call: Place, root: Given) -> tuple[frozenset[int], bool]:
    """The branches around that ask whether the caller is the root, and whether it is here."""
    code, control = call.unit.code, call.unit.control
    asking, is_root = set(), False
    for branch in control.deciding(call.value.block):
        end = code.blocks[branch].end
        test = call.value_at(end[1]).root
        if test.value.op != "compare" or test.value.data not in ("Eq", "NotEq"):
            continue
        if any(_same(test.operand(i), root) for i in (0, 1)):
            asking.add(branch)
            ways = [way for around, way in control.arms.get(call.value.block, ()) if around == branch]
            is_root = is_root or any((way == end[2]) == (test.value.data == "Eq") for way in ways)
    return frozenset(asking), is_root


def _same(asked: Place, root: Given) -> bool:
    if root.place is not None and asked.root.number == root.place.root.number:
        return True
    constant = asked.val.constant()
    return constant is not None and constant == root.val.constant()


def _report(call: Place, at: At, root: Given, wrong: _Wrong, caller: Place | None = None) -> Finding:
    name, where = call.operations[0].row.name, caller or call
    root_name = call.operations[0].row.root[0]
    does = f"`{name}`" if caller is None else f"`{caller.method}`, which comes to `{name}`,"
    made = _made(call)
    if caller is not None:
        made = (Related(call.unit.path, call.at[0], f"`{name}` is issued here"),)
    return RULE.finding(
        where.unit.path,
        at,
        f"{does} in `{where.unit.qualname}` has the root `{root.text}`, {wrong.why}",
        help=f"pass the root's rank inside the group as `group_{root_name}` (torch 2.6), or translate it with"
        " `dist.get_global_rank(group, …)`",
        related=made,
        context=f"{where.unit.qualname}:{name}:{_text(where if caller is None else call)}",
        severity="error" if wrong.sure else "warning",
    )


def _wrong(call: Place, root: Given, group: Given | None, inside: bool) -> _Wrong | None:
    """What is wrong with a root; None where nothing is known to be."""
    value = root.closed
    if value.of("size") and len(value.objs) == 1:
        return _Wrong("the number of ranks: the last one is one less")
    if inside:
        job = bool(value.of("ordinal")) and all(o[:2] == ("ordinal", "job") for o in value.each if o[0] != "beyond")
        whole = group is None or group.spanned[0] == WHOLE
        return _Wrong("a rank of the job, where one inside the group is asked for") if job and not whole else None
    if group is None:
        return None
    number = _number(root)
    if number is not None and (never := _outside(group, number)) is not None:
        return never
    if any(c.kind in ("rank", "member") for c in call.under):
        return None  # the branches around may leave just the ranks for which it is right
    return _of_constant(root, group) or _counted(root, group)


def _number(root: Given) -> int | None:
    """The one number that a root is; a rank of one's own that some way sets instead has no number."""
    number = root.closed.constant() if not only(root.closed.v, "rank", "member") else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def _of_constant(root: Given, group: Given) -> _Wrong | None:
    number = _number(root)
    if number is None:
        counted = root.place is not None and _counts_from_zero(root.place)
        return _lacking(group, "a number counted from 0 where a rank of the job is asked for") if counted else None
    return _outside(group, number) or _lacking(group, f"rank {number} of the job")


def _counts_from_zero(place: Place) -> bool:
    """Whether a value is the index of a loop, or a constant away from one: no rank is in it."""
    place = place.root
    value = place.value
    if value.op == "binary" and value.data in ("Add", "Sub"):
        parts = [place.operand(0), place.operand(1)]
        counting = [part for part in parts if part.val.constant() is None]
        return len(counting) == 1 and _counts_from_zero(counting[0])
    if value.op == "unpack":
        called = _iterated(place.operand(0).root)
        return called is not None and called.method == "enumerate" and value.data[0] == 0
    called = _iterated(place)
    return called is not None and called.method == "range" and len(called.value.args) == 2


def _iterated(element: Place) -> Place | None:
    """The call of which a loop goes through the result."""
    iterable = element.iterable
    return iterable.root if iterable is not None and iterable.root.value.op == "call" else None


def _counted(root: Given, group: Given) -> _Wrong | None:
    counted = _counted_inside(root.closed)
    if counted is None or _is_of_other(root, counted, group):
        return None
    why = "a rank counted inside a group, where a rank of the job is asked for"
    known = group.closed.objs - {NONE_OBJ}
    parts = known - {TOP}
    if known and all(_is_part(o) for o in known):
        return _Wrong(why, group.spanned[1])
    axes, _ = group.spanned
    named = bool(axes) and not axes & {"world", "?"} and not any(o[0] == "group" for o in parts)
    return _Wrong(why, False) if named or parts and all(_is_part(o) for o in parts) else None


def _is_of_other(root: Given, counted: Axes, group: Given) -> bool:
    """Whether a rank is counted along other axes than those of a group. Where the groups are strided it is the rank of
    the job of the first member: model-parallel ranks 0 and 1 of the data-parallel groups {0, 2, 4}, {1, 3, 5}."""
    axes, _ = group.spanned
    counted = counted if "?" not in counted else axes_of(root.hint)
    known = not (counted | axes) & {"?", "world"}
    return known and bool(counted) and bool(axes) and counted.isdisjoint(axes)


def _outside(group: Given, number: int) -> _Wrong | None:
    """Whether a rank is not in the literal list of which a group was made."""
    groups = sorted(group.closed.objs - {NONE_OBJ}, key=str)
    if groups and all(o[0] == "group" and isinstance(o[2], tuple) and number not in o[2] for o in groups):
        ranks = ", ".join(map(str, groups[0][2]))
        return _Wrong(f"rank {number} of the job, but works on `{group.text}`: it holds the ranks {ranks}")
    return None


def _lacking(group: Given, root: str) -> _Wrong | None:
    """Why all groups but one of their kind lack a rank."""
    known = group.closed.objs - {NONE_OBJ}
    groups = known - {TOP}  # what else it may be where the class of its owner is only annotated
    text = f"{root}, but works on `{group.text}`"
    several = f"{text}: only one of these groups holds that rank"
    if groups and all(_is_part(o) for o in groups):
        return _Wrong(several, known == groups)
    axes, sure = group.spanned
    if axes and not axes & {"world", "?"} and (sure or not any(o[0] == "group" for o in groups)):
        return _Wrong(f"{several}, if its name says what it is" if not sure else several, False)
    return None


def _is_part(o: Obj) -> bool:
    """Whether a group is one of several that fill the job."""
    return bool(o[0] == "group" and o[2] in ("several", "every"))


def _counted_inside(value: Val) -> Axes | None:
    numbers = [o for o in value.each if o[0] != "beyond"]  # the last rank is also one less than there are
    return numbers[0][2] if len(numbers) == 1 and numbers[0][:2] == ("ordinal", "group") else None


def _text(call: Place) -> str:
    group = call.argument(*call.operations[0].row.group or ("group", -1))
    return group.text if group is not None else ""


def _made(call: Place) -> tuple[Related, ...]:
    """Where the group is made, if in the same function."""
    group = call.argument(*call.operations[0].row.group or ("group", -1))
    if group is None or group.root.value.op != "call":
        return ()
    return (Related(call.unit.path, group.root.at[0], "the group is made here"),)


INCORRECT = [
    """
import torch.distributed as dist
from megatron.core import mpu

def share(param):
    dist.broadcast(param, src=mpu.get_data_parallel_rank(), group=mpu.get_data_parallel_group())  # error: MP510
""",
    # counted inside the group by arithmetic: the last place, the one before
    """
import torch.distributed as dist
from megatron.core import parallel_state

def share(tokens, group, tp_group):
    pp_group = parallel_state.get_pipeline_model_parallel_group()
    dist.broadcast(tokens, src=pp_group.size() - 1, group=pp_group)  # error: MP510
    ranks = dist.get_process_group_ranks(tp_group)
    dist.broadcast(tokens, src=len(ranks) - 1, group=tp_group)  # error: MP510
    dist.reduce(tokens, dst=dist.get_world_size(tp_group) - 1, group=tp_group)  # error: MP510
""",
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
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def share(tensor, last):
    group = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))["tp"].get_group()
    dist.broadcast(tensor, src=dist.get_group_rank(group, last), group=group)  # error: MP510
    dist.broadcast(tensor, group_src=dist.get_global_rank(group, 0), group=group)  # error: MP510
    dist.broadcast(tensor, src=dist.get_world_size())  # error: MP510
""",
    # helpers that are given root and group: wrong as one caller passes them, by default
    """
import torch.distributed as dist
from functools import partial
from torch.distributed.device_mesh import init_device_mesh

def share(data, root=0, group=None):
    box = [data]
    if dist.get_rank() != root:
        box = [None]
        dist.broadcast_object_list(box, src=root, group=group)
        return box[0]
    dist.broadcast_object_list(box, src=root, group=group)
    return data

def outer(data, group=None, root=0):
    return share(data, root, group)

class Engine:
    def __init__(self):
        mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("copies", "pieces"))
        self.peers = mesh["pieces"].get_group()

def start(data, parts):
    engine = Engine()
    share(data)
    share(data, group=engine.peers)  # error: MP510
    outer(data, group=engine.peers, root=dist.get_process_group_ranks(engine.peers)[0])
    send = partial(outer, group=engine.peers)
    send(data)  # error: MP510
    dist.gather_object(data, parts, group=engine.peers)  # error: MP510
""",
    """
import torch.distributed as dist

class Optimizer:
    def __init__(self, local_size):
        node = dist.get_rank() // local_size
        self.group = dist.new_group([rank for rank in range(8) if rank // local_size == node])

    def share(self, params):
        for i in range(4):
            dist.broadcast(params[i], src=i + 1, group=self.group)  # error: MP510
""",
]

CORRECT = [
    # data-parallel groups {0, 2}, {1, 3} of model-parallel groups {0, 1}, {2, 3}: their first members
    """
import torch.distributed as dist
from megatron.core import mpu

def share(param):
    dist.broadcast(param, src=mpu.get_tensor_model_parallel_rank(), group=mpu.get_data_parallel_group())
""",
    """
import torch.distributed as dist

_DATA_PARALLEL_GROUP = None
_MODEL_PARALLEL_GROUP = None

def set_up(size):
    global _DATA_PARALLEL_GROUP, _MODEL_PARALLEL_GROUP
    rank, world = dist.get_rank(), dist.get_world_size()
    for i in range(size):
        group = dist.new_group(range(i, world, size))
        if i == rank % size:
            _DATA_PARALLEL_GROUP = group
    for i in range(world // size):
        group = dist.new_group(range(i * size, (i + 1) * size))
        if i == rank // size:
            _MODEL_PARALLEL_GROUP = group

def get_data_parallel_group():
    return _DATA_PARALLEL_GROUP

def get_model_parallel_rank():
    return dist.get_rank(group=_MODEL_PARALLEL_GROUP)

def share(param):
    dist.broadcast(param, src=get_model_parallel_rank(), group=get_data_parallel_group())
""",
    """
import torch.distributed as dist
from megatron.core import parallel_state

def share(tokens, group, batch):
    pp_group = parallel_state.get_pipeline_model_parallel_group()
    last = pp_group.size() - 1
    dist.broadcast(tokens, src=dist.get_global_rank(pp_group, last), group=pp_group)
    dist.broadcast(tokens, group=pp_group, group_src=last)
    ranks = dist.get_process_group_ranks(pp_group)
    dist.broadcast(tokens, src=ranks[len(ranks) - 1], group=pp_group)
    dist.broadcast(tokens, src=dist.get_world_size(group) - 1, group=group)
    dist.broadcast(tokens, src=batch.size() - 1)
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def share(data, root=0, group=None):
    dist.broadcast_object_list([data], src=root, group=group)

def start(data, parts):
    peers = init_device_mesh("cuda", (2, 4), mesh_dim_names=("copies", "pieces"))["pieces"].get_group()
    share(data)
    share(data, dist.get_global_rank(peers, 0), peers)
    dist.gather_object(data, parts)
    dist.gather_object(data, parts, group=peers, group_dst=0)
    if dist.get_rank() < 4:
        share(data, group=peers)
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def share(tensor, last):
    group = init_device_mesh("cuda", (2, 4), mesh_dim_names=("dp", "tp"))["tp"].get_group()
    dist.broadcast(tensor, group_src=dist.get_group_rank(group, last), group=group)
    dist.broadcast(tensor, src=dist.get_process_group_ranks(group)[-1], group=group)
    dist.broadcast(tensor, src=dist.get_world_size() - 1)
""",
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
    # set before it is used, to the first rank of the caller's own group
    """
import torch.distributed as dist
from megatron.core import parallel_state

_SOURCE = 0

def set_source(source=0):
    global _SOURCE
    _SOURCE = source

def prepare(size):
    set_source((dist.get_rank() // size) * size)

def share(tokens):
    dist.broadcast(tokens, src=_SOURCE, group=parallel_state.get_tensor_model_parallel_group())
""",
    """
import torch.distributed as dist

class Optimizer:
    def __init__(self, local_size):
        first = dist.get_rank() // local_size * local_size
        self.ranks = list(range(first, first + local_size))
        self.group = dist.new_group(self.ranks)

    def share(self, params):
        for i, p in enumerate(params):
            dist.broadcast(p, src=self.ranks[i], group=self.group)
        for i in range(dist.get_world_size()):
            dist.broadcast(params[0], src=i)
""",
]

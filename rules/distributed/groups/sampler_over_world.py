"""Data divided over all ranks where groups of ranks must see the same data.

What it does
    Reports `DistributedSampler(dataset)` without `num_replicas`, or with the world size, and samplers of the project
    that are made with the world size, in a function or class that works with groups, ranks, sizes or meshes of tensor,
    context (ring, sequence) or pipeline parallelism, or is given an object that does. Where only names say so
    (`ring_attn_size`), it is a warning. Silent about a dimension of which a test before it leaves but one rank
    (`assert tp_size == 1`), and about one whose ranks gather, or are sent, the batches of a loader.

Why is this bad
    The ranks of one such group share a sample. Given different samples, ring attention mixes sequences, tensor
    parallelism adds up unrelated activations, and an epoch is shorter than it says.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import ClassDef
from validator.domains.axes import MODEL_PARALLEL, WHOLE, Axes, axes_of, of_parallelism
from validator.domains.spmd import only
from validator.finding import Finding
from validator.flow.calls.groups import axes_in
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import sources
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.loaders import handed_through, loaders_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP531", "sampler-over-world", "error", "0.1.0", tokens=("Sampler",))

# Comparisons of a size, and how they come out where it is one.
_ONE = frozenset({
    ("Eq", 1, True), ("NotEq", 1, False), ("Gt", 1, False), ("LtE", 1, True), ("Lt", 2, True), ("GtE", 2, False),
})  # fmt: skip
_SAMPLER = "torch.utils.data.distributed.DistributedSampler"


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    dealt = [(call, "DistributedSampler") for call in queries.calls(_SAMPLER) if _over_world(call)]
    dealt += [(call, name) for call, name in _own_samplers(queries) if _counts_world(call)]
    gathered = _gathered(queries) if dealt else frozenset()
    for call, sampler in dealt:
        settled = gathered | _alone(queries, call)
        known, named = (
            {axis: text for axis, text in row.items() if axis not in settled} for row in _shared(queries, call)
        )
        found = known or named
        if found:
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{sampler}` in `{call.unit.qualname}` divides the data over all ranks, but ranks of"
                f" {' and '.join(f'`{each}`' for each in found.values())} must share it",
                help="pass `num_replicas` and `rank` of the data-parallel dimension",
                context=f"{call.unit.qualname}:{next(iter(found.values()))}",
                severity="error" if known and sampler == "DistributedSampler" else "warning",
            )


def _named_axes(queries: Queries, name: str) -> Axes:
    """The axes of which a name speaks whose ranks share a batch: not those of the engine that generates."""
    generating = queries.flow.models.likely["generating"]
    return frozenset() if generating & set(name.lower().split("_")) else of_parallelism(name) & MODEL_PARALLEL


def _over_world(call: Place) -> bool:
    replicas = call.argument("num_replicas", 1)
    if replicas is None:
        return not {"*", "**"} & set(call.value.data.names)
    # a number beside it is what one process has without a group
    objs = [o for o in replicas.closed.each if o[0] != "const"]
    return bool(objs) and all(o[0] == "size" and axes_in(o[1]) == WHOLE for o in objs)


def _own_samplers(queries: Queries) -> Iterator[tuple[Place, str]]:
    """Where samplers of the project are made, whose base is one of torch's."""
    for cls in queries.flow.project.classes():
        if not any(base.startswith("torch.utils.data.") and base.endswith("Sampler") for base in cls.external_bases):
            continue
        init = cls.find("__init__")
        made = queries.flow.unit_of(init) if init is not None else None
        for caller, passed in queries.flow.calls_of(made) if made is not None else ():
            call = Place(queries.flow, caller, passed.site)
            if any(o[:2] == ("inst", cls) for o in call.val.each) and not is_aside(caller.path):
                yield call, cls.name


def _counts_world(call: Place) -> bool:
    """Whether a call passes the number of all ranks, and nothing of a group."""
    places = [call.value_at(number) for number in call.value.args[1:]]
    given = [place.closed for place in places]
    told = [place.hint for place in places] + [word for test in call.tests for word in test.words]
    if any(value.of("mesh") or value.of("group") for value in given):
        return False
    if any((axes_of(name) | of_parallelism(name)) & MODEL_PARALLEL for name in told):
        return False  # it may divide by them itself, or there is but one such rank here
    counted = [axes_in(o[1]) for value in given for o in value.of("size")]
    return bool(counted) and all(axes == WHOLE for axes in counted)


def _shared(queries: Queries, call: Place) -> tuple[dict[str, str], dict[str, str]]:
    """What the function works with, one expression for each axis: what is known to be so, and what its name says."""
    known: dict[str, str] = {}
    named: dict[str, str] = {}
    for unit in _scope(queries, call.unit):
        for number, value in enumerate(unit.code.values):
            place = Place(queries.flow, unit, number)
            if value.op in ("attr", "call", "item", "param"):
                for axis in sorted(_axes(place) & MODEL_PARALLEL):
                    known.setdefault(axis, place.text)
            if value.op in ("attr", "param"):
                for axis in sorted(_named_axes(queries, place.hint)):
                    named.setdefault(axis, place.hint)
            elif value.op == "store_attr":
                for axis in sorted(_named_axes(queries, value.data)):
                    named.setdefault(axis, value.data)
    for name in queries.flow.fields_of(call.unit.cls) if call.unit.cls is not None else ():
        for axis in sorted(_named_axes(queries, name)):
            named.setdefault(axis, name)
    for position, (name, _) in enumerate(call.unit.code.params):
        passed = queries.flow.solver.settled(("argument", call.unit, position))
        annotated = [v for v in call.result.vals if ("param", position) in v.objs]  # `self` of the classes it names
        given = {o[1] for value in (passed, *annotated[:1]) for o in value.each if o[0] in ("inst", "self")}
        for cls in sorted(given, key=lambda c: (c.path, c.qualname)):
            for member in _members(cls):
                for axis in sorted(_named_axes(queries, member)):
                    named.setdefault(axis, f"{name}.{member}")
    return known, named


def _alone(queries: Queries, call: Place) -> Axes:
    """The axes that have but one rank where a call runs: other numbers were refused, here or where its object was made,
    or go another way."""
    found: set[str] = set()
    for unit in _scope(queries, call.unit):
        ends = [call] if unit is call.unit else [Place(queries.flow, unit, end) for end in unit.code.returned]
        rows = [{axis for test in end.tests_before for axis in _of_one(queries, *test)} for end in ends]
        found |= set.intersection(*rows) if rows else set()
    return frozenset(found)


def _of_one(queries: Queries, test: Place, holds: bool) -> Axes:
    """The axes of which a test that came out so leaves one rank: `tp_size == 1`."""
    test, holds = test.asserted(holds)
    if test.value.op != "compare" or (test.value.data, test.operand(1).val.constant(), holds) not in _ONE:
        return frozenset()
    counted = [part for part in test.operand(0).sources if part.value.op in ("attr", "param", "call", "name", "item")]
    return frozenset().union(*(_axes(each) | _named_axes(queries, each.hint) for each in counted)) & MODEL_PARALLEL


def _gathered(queries: Queries) -> Axes:
    """The axes whose ranks gather the batches of loaders, or are sent them by one of theirs."""
    found: set[str] = set()
    for call in queries.collectives():
        group = call.argument("group")
        axes = (call.group | _named_axes(queries, group.hint) if group is not None else call.group) & MODEL_PARALLEL
        handing = any("gather" in o.name or "broadcast" in o.name for o in call.operations)
        if axes and handing and any(_is_of_batch(call.value_at(number)) for number in call.value.args[1:]):
            found |= axes
    return frozenset(found)


def _is_of_batch(tensor: Place) -> bool:
    """Whether a value is a batch of a loader, or a part of one, as it is or moved."""
    table = tensor.flow.models.tensors
    queue = [tensor.root]
    for each in queue:
        value, before = each.value, []
        if value.op == "next":
            if loaders_of(handed_through(each.operand(0).gone_through)):
                return True
        elif value.op in ("item", "unpack", "attr"):
            before = [each.operand(0)]
        elif value.op == "call" and each.receiver is not None and each.method in {*table["moves"], *table["keep"]}:
            before = [each.receiver]
        elif value.op in ("param", "phi"):
            before = sources(each) or []
        queue += [root for part in before if (root := part.root) not in queue]
    return False


def _scope(queries: Queries, unit: Unit) -> Iterator[Unit]:
    """The function itself, and the constructor of its class."""
    yield unit
    init = unit.cls.find("__init__") if unit.cls is not None else None
    made = queries.flow.unit_of(init) if init is not None else None
    if made is not None and made is not unit:
        yield made


def _axes(place: Place) -> Axes:
    """The axes of a group, a mesh or a rank in a group."""
    val = place.val
    groups = [o for o in val.each if o[0] == "group" or o[0] == "mesh" and o[1]]
    ranks = frozenset(c.axis for c in only(val.v, "rank") if c.sure) if val.of("ordinal") else frozenset()
    sizes = frozenset().union(*(axes_in(o[1]) for o in val.of("size")))
    return frozenset().union(*(axes_in(type(val)(frozenset({o}))) for o in groups)) | ranks | sizes


def _members(cls: ClassDef) -> Iterator[str]:
    for owner in cls.mro:
        yield from (name for name, _ in owner.facts.attributes)
        yield from owner.instance_attributes
        yield from (method.name for method in owner.every_method())


INCORRECT = [
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import Sampler

class Blocks(Sampler):
    def __init__(self, length, rank, size):
        self.length, self.rank, self.size = length, rank, size

    def __iter__(self):
        return iter(range(self.rank, self.length, self.size))

def build(rows):
    mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "tp"))
    return mesh, Blocks(len(rows), dist.get_rank(), dist.get_world_size())  # error: MP531
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Strategy:
    def __init__(self, ring_attn_size):
        self.ring_attn_size = ring_attn_size

    def sampler(self, dataset):
        return DistributedSampler(dataset, num_replicas=dist.get_world_size())  # error: MP531
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Strategy:
    def __init__(self, ring_size, tp_size):
        self.ring_size = ring_size
        self.tp_size = tp_size

    def sampler(self, dataset):
        return DistributedSampler(dataset)  # error: MP531
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Strategy:
    def __init__(self, mesh):
        self.mesh = mesh

    @property
    def ring_group(self):
        return self.mesh["ring"].get_group()

def loader(dataset, strategy):
    return DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank())  # error: MP531

def main(mesh, dataset):
    return loader(dataset, Strategy(mesh))
""",
    """
from dataclasses import dataclass

import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

@dataclass
class State:
    dp_size: int
    tp_size: int

def loader(dataset, state: State):
    return DistributedSampler(dataset, dist.get_world_size(), dist.get_rank(), seed=state.dp_size)  # error: MP531
""",
    """
from torch.utils.data.distributed import DistributedSampler

def sampler(dataset, tp_size, cp_size):
    if tp_size > 1:
        raise ValueError("layers are not sharded here")
    print(cp_size)
    return DistributedSampler(dataset)  # error: MP531
""",
]

CORRECT = [
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import Sampler

class Blocks(Sampler):
    def __init__(self, length, rank, size, tp=1):
        self.length, self.rank, self.size = length, rank // tp, size // tp

    def __iter__(self):
        return iter(range(self.rank, self.length, self.size))

def build(rows):
    mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "tp"))
    return mesh, Blocks(len(rows), mesh.get_local_rank("dp"), mesh["dp"].size())

def grouped(rows, tp):
    mesh = init_device_mesh("cuda", (4, tp), mesh_dim_names=("dp", "tp"))
    return mesh, Blocks(len(rows), dist.get_rank(), dist.get_world_size(), tp)
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Strategy:
    def __init__(self, ring_attn_size, dp_group):
        self.ring_attn_size = ring_attn_size
        self.dp_group = dp_group

    def sampler(self, dataset):
        world_size = dist.get_world_size(self.dp_group)
        return DistributedSampler(dataset, num_replicas=world_size, rank=dist.get_rank(self.dp_group))
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Strategy:
    def __init__(self, ring_attn_size):
        self.ring_attn_size = ring_attn_size

    def sampler(self, dataset):
        dp = dist.get_world_size() // self.ring_attn_size
        return DistributedSampler(dataset, num_replicas=dp, rank=dist.get_rank() // self.ring_attn_size)
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Trainer:
    def sampler(self, dataset):
        world_size = dist.get_world_size()
        if self.ulysses_sequence_parallel_size > 1:
            world_size = self.mesh.size(0)
        return DistributedSampler(dataset, num_replicas=world_size)
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

def sampler(dataset):
    return DistributedSampler(dataset, num_replicas=dist.get_world_size())
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Strategy:
    def __init__(self, tp_size):
        self.tp_size = tp_size
        self.dp = dist.get_world_size() // tp_size

class Replicas:
    def setup(self):
        self.size = dist.get_world_size()

def loader(dataset, strategy):
    rank = dist.get_rank() // strategy.tp_size
    return DistributedSampler(dataset, num_replicas=strategy.dp, rank=rank)

def plain_loader(dataset, strategy):
    return DistributedSampler(dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank())

def main(dataset):
    return loader(dataset, Strategy(2)), plain_loader(dataset, Replicas())
""",
    # the ranks that must share a batch gather theirs, or there is but one of them
    """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

def train(model, dataset, tp_size):
    mesh = init_device_mesh("cuda", (dist.get_world_size() // tp_size, tp_size), mesh_dim_names=("dp", "tp"))
    loader = DataLoader(dataset, batch_size=2, sampler=DistributedSampler(dataset))
    for batch in loader:
        batch = batch.cuda()
        parts = [torch.empty_like(batch) for _ in range(tp_size)]
        dist.all_gather(parts, batch, group=mesh["tp"].get_group())
        model(torch.cat(parts)).backward()
""",
    """
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler

class Plain:
    def __init__(self, dataset, tp_size):
        assert tp_size == 1, "sharded layers have a sampler of their own"
        self.dataset, self.tp_size = dataset, tp_size

    def sampler(self):
        return DistributedSampler(self.dataset)

def sampler(dataset, tp_size, dp_group):
    if tp_size > 1:
        return DistributedSampler(dataset, dist.get_world_size(dp_group), dist.get_rank(dp_group))
    return DistributedSampler(dataset)
""",
]

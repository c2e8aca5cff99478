"""Tensors of different length, shape or type that meet in one collective.

What it does
    Reports `all_reduce`, `broadcast`, `reduce`, `gather`, `all_gather`, `all_gather_into_tensor`,
    `reduce_scatter_tensor`, and `all_to_all_single` without sizes of its pieces, on a tensor whose layout differs
    between ranks of the group: its size is computed from the rank (`torch.zeros(3 + rank)`, `shard[:n]`), it holds what
    some test left over (`nonzero`, `x[mask]`, `unique`), it was made otherwise on some ranks (another shape,
    `double()`), it is made of a container into which some ranks alone have put something, or its type is chosen by the
    rank; and `broadcast_object_list` with lists of different length, which ranks choose by who they are. What samples
    hold differs only between ranks of a group that have other ones, so not along tensor, context and pipeline
    parallelism. Ranks that first agree on a size (a reduction of the lengths) are silent, and tensors whose shape is
    asserted.

Why is this bad
    These collectives expect as many bytes from every rank and ask nobody. NCCL hangs, or adds up what does not belong
    together; a longer buffer keeps an old tail; gloo fails with sizes that say little.

References
    https://docs.pytorch.org/docs/stable/distributed.html#collective-functions
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import MODEL_PARALLEL, UNKNOWN, WORLD
from validator.domains.spmd import NONE, Causes, only
from validator.effects.divergence import Divergences
from validator.finding import Finding
from validator.flow.queries.base import Place, Queries, apart, because
from validator.flow.values import NONE_OBJ, elements
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP519", "operands-differ", "warning", "0.1.0", tokens=("all_reduce", "gather", "broadcast", "reduce", "all_to_all")
)


def check_project(project: Project) -> Iterator[Finding]:
    containers = project.analysis(Divergences).uneven
    for call in project.analysis(Queries).collectives():
        if only(call.under, "rank", "member"):
            continue  # ranks come here by different calls, or not at all: what one passes is not what others do
        row = call.operations[0].row
        objects = call.argument(*row.length) if row.length is not None else None
        if objects is not None and _are_of_other_length(call, objects):
            yield _of_lists(call, objects)
            continue
        uneven = any(call.argument(name) is not None for name in row.uneven)
        tensor = call.argument(*row.alike) if row.alike is not None and not uneven else None
        group = call.argument(*row.group) if row.group is not None else None
        axes, known = group.spanned if group is not None else (call.group, True)
        if tensor is None or UNKNOWN in axes:
            continue
        grown = containers.behind(tensor)
        layout = tensor.closed.n | (grown.causes if grown is not None else NONE)
        causes = apart(_of_samples(layout) if axes <= MODEL_PARALLEL else layout, axes)
        if not causes or _by_rank(call, causes) or _is_asserted(tensor):
            continue
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"ranks meet in `{row.name}` in `{call.unit.qualname}` with tensors of different layout: the shape or type"
            f" of `{tensor.text}` {because(causes)}",
            help="pad to a length on which the ranks agree (reduce the lengths with MAX first), and cast to one type",
            context=f"{call.unit.qualname}:{row.name}:{tensor.text}",
            severity="error" if known and any(c.sure for c in causes) else "warning",
        )


def _of_samples(layout: Causes) -> Causes:
    """What is left of a layout's causes between ranks that share their samples: not what those happen to hold."""
    return frozenset(c for c in layout if c.kind != "data" or c.axis != WORLD)


def _are_of_other_length(call: Place, objects: Place) -> bool:
    """Whether a list has another known length, or is None, on some ranks of the group, as their number tells."""
    held = objects.closed
    causes = frozenset(c for c in only(held.n | held.p, "rank", "member") if c.sure)
    known = all(o[0] == "tuple" or o == NONE_OBJ for o in held.each)
    lengths = {len(o[1]) if o[0] == "tuple" else None for o in held.each}
    differ = known and len(lengths) > 1 or _is_appended_to(objects)
    return differ and UNKNOWN not in call.group and bool(apart(causes, call.group))


def _is_appended_to(objects: Place) -> bool:
    """Whether one list comes on several ways, on some of which more elements have been appended to it."""
    ways = [objects.value_at(number) for number in objects.value.args] if objects.value.op == "phi" else []
    calls = [way.operand(1) for way in ways if way.value.op == "mut"]
    return len({way.root for way in ways}) == 1 and any(call.method == "append" for call in calls)


def _of_lists(call: Place, objects: Place) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"ranks meet in `{call.method}` in `{call.unit.qualname}` with lists of different length: that of"
        f" `{objects.text}` depends on the rank that calls",
        help="pass as many elements on the ranks that receive: `[None] * n`",
        context=f"{call.unit.qualname}:{call.method}:{objects.text}",
    )


def _is_asserted(tensor: Place) -> bool:
    """Whether the layout of a tensor has been compared with one before: what differs raises."""
    here = tensor.root
    ways = [here.operand(i).root for i in range(len(here.value.args))] if here.value.op == "phi" else []
    for block in tensor.unit.code.blocks:
        if block.end[0] != "branch" or not any(
            tensor.unit.code.blocks[s].end[0] == "raise" for s in block.successors()
        ):
            continue
        for part in tensor.value_at(block.end[1]).parts:
            if (
                part.value.op == "attr"
                and part.value.data in ("shape", "size")
                and part.operand(0).root in (here, *ways)
            ):
                return True
    return False


def _by_rank(call: Place, causes: Causes) -> bool:
    """Whether a list was made that has room for each rank's own length."""
    row = call.operations[0].row
    filled = call.argument(*row.into) if row.into is not None else None
    return filled is not None and not causes & elements(filled.closed).n


_TOLD = """
import torch
import torch.distributed as dist

class Told:
    def __init__(self, loss):
        self.told = {{"loss": loss}}

    def tell(self, loss, rate):
        if dist.get_rank() == 0:
            {told}

    def stacked(self):
        names, values = [], []
        for name in sorted(self.told):
            names.append(name)
            values.append(self.told[name])
        values = torch.stack(values, dim=0)
        dist.all_reduce(values){mark}
        return dict(zip(names, values))

    def listed(self):
        values = torch.tensor([float(value) for value in self.told.values()]).cuda()
        dist.all_reduce(values){mark}
        return values.tolist()

def main(loss, rate):
    told = Told(loss)
    told.tell(loss, rate)
    return told.stacked(), told.listed()
"""

_PADDED = """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler

def collate(samples):
    words, tags = zip(*samples)
    return pad_sequence(words, batch_first=True), pad_sequence(tags, batch_first=True)

def gather(rows):
    width = {width}
    rows = F.pad(rows, (0, width - rows.size(1)))
    out = rows.new_empty(dist.get_world_size() * rows.size(0), rows.size(1))
    dist.all_gather_into_tensor(out, rows){mark}
    return out

def longest(rows):
    width = torch.tensor(rows.size(1))
    dist.all_reduce(width, op=dist.ReduceOp.MAX)
    return int(width)

def main(path):
    data = torch.load(path)
    for words, tags in DataLoader(data, 8, sampler=DistributedSampler(data), collate_fn=collate):
        print(gather(tags).sum())
"""

INCORRECT = [
    # as long as the longest sample of the rank's own batch
    _PADDED.replace("{width}", "-(-rows.size(1) // 8) * 8").replace("{mark}", "  # error: MP519"),
    """
import torch
import torch.distributed as dist

def total(values):
    mine = torch.zeros(3 + dist.get_rank())
    dist.all_reduce(mine)  # error: MP519
    return mine
""",
    """
import torch
import torch.distributed as dist

def receive(rank):
    if rank == 0:
        state = torch.full((6,), 3.0)
    else:
        state = torch.zeros(8)
    dist.broadcast(state, src=0)  # error: MP519
    return state

def precise(loss):
    total = torch.ones(4)
    if dist.get_rank() == 0:
        total = total.double()
    dist.all_reduce(total)  # error: MP519
    return receive(dist.get_rank()), total
""",
    """
import torch
import torch.distributed as dist

def shard(count, rank, size):
    last = count if rank == size - 1 else (rank + 1) * (count // size)
    return torch.arange(rank * (count // size), last)

def collect(count):
    size = dist.get_world_size()
    mine = shard(count, dist.get_rank(), size)
    parts = [torch.empty_like(mine) for _ in range(size)]
    dist.all_gather(parts, mine)  # error: MP519
    return torch.cat(parts)
""",
    # arithmetic with a number leaves the layout as it is
    """
import torch
import torch.distributed as dist

def total():
    rank = dist.get_rank()
    mine = torch.ones(4) * rank + 1
    if rank == 0:
        mine = mine.double()
    dist.all_reduce(mine)  # error: MP519
    return mine
""",
    """
import torch
import torch.distributed as dist

def dispatch(tokens, chosen):
    kept = tokens[chosen >= 0]
    received = torch.empty_like(kept)
    dist.all_to_all_single(received, kept)  # error: MP519
    return received
""",
    # lists of objects
    """
import torch.distributed as dist

def agree(found):
    dist.broadcast_object_list(found, src=0)  # error: MP519
    return found[0]

class Trainer:
    def __init__(self, settings):
        self.rank = dist.get_rank()
        self.settings = agree([settings] if self.rank == 0 else [])

    def resume(self, path, step):
        state = [None]
        if self.rank == 0:
            state = [path, step]
        dist.broadcast_object_list(object_list=state, src=0)  # error: MP519
        shown = []
        if self.rank == 0:
            shown.append(path)
        dist.broadcast_object_list(shown)  # error: MP519
        return state, shown
""",
    # made of what some ranks alone have put more into
    _TOLD.format(told='self.told["rate"] = rate', mark="  # error: MP519"),
]

CORRECT = [
    _PADDED.replace("{width}", "longest(rows)").replace("{mark}", ""),
    _TOLD.format(told="print(rate)", mark=""),
    _TOLD.format(told='self.told["loss"] = loss + rate', mark=""),
    """
import torch
import torch.distributed as dist

def pad(values):
    count = torch.tensor([values.numel()])
    dist.all_reduce(count, op=dist.ReduceOp.MAX)
    padded = torch.zeros(count.item())
    padded[: values.numel()] = values
    return padded

def total():
    mine = pad(torch.ones(3 + dist.get_rank()))
    dist.all_reduce(mine)
    return mine
""",
    """
import torch
import torch.distributed as dist

def collect():
    mine = torch.ones(3 + dist.get_rank())
    count = torch.tensor([mine.numel()])
    counts = [torch.zeros_like(count) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, count)
    parts = [torch.empty(int(n)) for n in counts]
    dist.all_gather(parts, mine)
    return torch.cat(parts)

def dispatch(tokens, chosen, sizes, others):
    kept = tokens[chosen >= 0]
    received = torch.empty(sum(others), kept.shape[1])
    dist.all_to_all_single(received, kept, output_split_sizes=others, input_split_sizes=sizes)
    return received
""",
    """
import torch
import torch.distributed as dist

def total():
    mine = torch.full((4,), float(dist.get_rank()))
    if dist.get_rank() == 0:
        mine = mine * 2
        other = torch.zeros(4)
    else:
        other = torch.ones(4)
    dist.all_reduce(mine)
    dist.all_reduce(other)
    half = torch.ones(4)
    if dist.get_rank() == 0:
        half = half.double()
    half = half.to(torch.float32)
    dist.all_reduce(half)
""",
    # the root alone brings what others make as large as it says
    """
import torch
import torch.distributed as dist

def send(size, tensor=None, root=0):
    if dist.get_rank() == root:
        tensor = tensor.contiguous()
    else:
        tensor = torch.empty(size, dtype=torch.int64)
    dist.broadcast(tensor, root)
    return tensor

def share(texts):
    tokens = None
    if dist.get_rank() == 0:
        tokens = torch.tensor([len(text) for text in texts[dist.get_rank():]])
    return send(dist.get_world_size(), tokens)
""",
    # put together otherwise on each rank, and asserted to be as long
    """
import torch
import torch.distributed as dist

def whole(part, start, length):
    rank = dist.get_rank()
    if rank == 0:
        filled = torch.cat([part, torch.zeros(length - start)])
    else:
        filled = torch.cat([torch.zeros(start * rank), part])
    assert filled.shape[0] == length
    dist.all_reduce(filled)
    return filled
""",
    # both ends of a piece move with the rank that a caller passes
    """
import torch
import torch.distributed as dist

def piece(param, rank, count):
    return param[rank * count : (rank + 1) * count]

def gather(param):
    size = dist.get_world_size()
    mine = piece(param, dist.get_rank(), param.shape[0] // size)
    dist.all_gather_into_tensor(param, mine.contiguous())
    return param
""",
    # lists of objects that are as long on all ranks, or of which that is not known
    """
import torch.distributed as dist

def agree(settings, files):
    found = [settings, 1] if dist.get_rank() == 0 else [None, None]
    dist.broadcast_object_list(found, src=0)
    others = [settings]
    if dist.get_rank() != 0:
        others = [None] * 1
    dist.broadcast_object_list(others, src=0)
    names = files() if dist.get_rank() == 0 else [None] * len(settings)
    dist.broadcast_object_list(names, src=0)
    return found, others, names
""",
    # one element of each dimension, whichever callers pass
    """
import numpy as np
import torch
import torch.distributed as dist

def normalized(x, mask=None, dim=None, group=None, precise=True):
    dtype = torch.float64 if precise else torch.float32
    x = x.to(dtype=dtype)
    if dim is None:
        dim = tuple(range(len(x.shape)))
    if mask is None:
        count = torch.tensor(np.prod([x.shape[d] for d in dim]), dtype=dtype, device=x.device)
    else:
        mask = mask.to(dtype=dtype)
        x = x * mask
        count = mask.sum(dim, keepdim=True)
    total = x.sum(dim=dim, keepdim=True)
    squares = x.square().sum(dim=dim, keepdim=True)
    dist.all_reduce(count, group=group)
    dist.all_reduce(total, group=group)
    dist.all_reduce(squares, group=group)
    return (x - total / count) / (squares / count - (total / count) ** 2).sqrt()

def train(rows, valid):
    share = rows[: dist.get_rank() + 3]
    kept = share[share > 0]
    print(normalized(kept), normalized(share, valid[: dist.get_rank() + 3]))
""",
    # ranks of a sequence-parallel group hold the same samples
    """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

def gather(tensor, group):
    output = torch.empty(tensor.size(0) * dist.get_world_size(group), dtype=tensor.dtype)
    dist.all_gather_into_tensor(output, tensor, group=group)
    return output

def tokens_of(loader):
    mesh = init_device_mesh("cuda", (4, 2), mesh_dim_names=("dp", "sp"))
    for tokens, mask in loader:
        yield gather(tokens[mask.bool()], mesh["sp"].get_group())
""",
]

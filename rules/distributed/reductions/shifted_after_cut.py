"""Tokens that are shifted, or counted, after they were cut for the ranks of a ring.

What it does
    Looks at tensors of which each rank of a context-parallel (ring, Ulysses) group holds a part: sliced, chunked or
    narrowed by its rank there, here or in a function of the project. Reports where such a part is shifted by one token
    (`torch.roll`, `F.pad(x[..., 1:], …)`, `torch.cat` of that), and positions that are counted in it (`cumsum`). Silent
    where something is stored into the result, as the neighbour's token is, where tokens are exchanged beside, and where
    the rank's offset is added to the positions.

Why is this bad
    The token after a part's last one is on the next rank. A part that is shifted by itself puts its own first token or
    padding there: one token in each part is scored against the wrong label, and no shape tells. Positions that are
    counted in a part start at 0 on each rank.

References
    https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/core/context_parallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.rank_slices import RING, cut_of, varies_on
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP589", "shifted-after-cut", "warning", "0.4.0", tokens=("roll", "cumsum", "pad", "cat"))

_EXCHANGES = frozenset({"isend", "irecv", "send", "recv", "batch_isend_irecv", "all_gather_into_tensor", "all_gather"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for call, tensor in (*_shifts(queries), *_counts(queries)):
        if is_aside(call.unit.path):
            continue
        cut = cut_of(queries, tensor)
        if cut is not None and not _is_mended(call):
            yield _report(call, tensor, cut)


def _shifts(queries: Queries) -> Iterator[tuple[Place, Place]]:
    """The calls that shift a tensor by one token, with that tensor."""
    for call in queries.named("roll"):
        tensor, shift = _operand(call, "input"), _parameter(call, "shifts", 0)
        if tensor is not None and shift is not None and shift.closed.constant() in (1, -1):
            yield call, tensor
    for call in queries.named("pad", "cat", "concat"):
        given = call.argument("input", 0) or call.argument("tensors", 0)
        parts = [given] if given is not None else []
        if given is not None and given.value.op in ("tuple", "list"):
            parts = [given.value_at(each) for each in given.value.args]
        for part in parts:
            if part.root.value.op == "item" and _drops_one(part.root.operand(1)):
                yield call, part.root.operand(0)


def _drops_one(key: Place) -> bool:
    """Whether an index leaves out the first or the last element alone: `[1:]`, `[..., :-1]`."""
    last = key.operand(-1) if key.value.op == "tuple" and key.value.args else key
    if last.value.op != "slice":
        return False
    lower, upper = (last.operand(i).val.constant() if last.value.args[i] >= 0 else None for i in (0, 1))
    return (lower, upper) in ((1, None), (None, -1), (0, -1))


def _counts(queries: Queries) -> Iterator[tuple[Place, Place]]:
    """The calls that count positions in a tensor: those whose result has the name of positions."""
    along = queries.flow.models.likely["along"]
    for call in queries.named("cumsum"):
        tensor = _operand(call, "input")
        if tensor is not None and any(name in along for name in _names(call)):
            yield call, tensor


def _names(call: Place) -> Iterator[str]:
    """The names under which what is computed from a call goes on, where no offset of the rank is added."""
    seen, stack = {call.number}, [call]
    while stack:
        place = stack.pop()
        code = place.unit.code
        yield from (name for name, held in code.definitions.items() if place.number in held)
        for user in place.users:
            value = user.value
            if value.op == "call" and place.number in value.args[1:]:
                yield str(value.data.names[value.args.index(place.number, 1) - 1])
            elif value.op == "binary" and user.number not in seen:
                others = [user.value_at(each) for each in value.args if each != place.number]
                if not any(varies_on(other, RING) for other in others):
                    seen.add(user.number)
                    stack.append(user)


def _operand(call: Place, name: str) -> Place | None:
    """The tensor of a function, or of the method of that name."""
    receiver = call.receiver
    if receiver is None or any(o[0] in ("ext", "module") for o in receiver.val.each):
        return call.argument(name, 0)
    return receiver


def _parameter(call: Place, name: str, position: int) -> Place | None:
    """A further argument: of a function it comes after the tensor."""
    return call.argument(name, position if _operand(call, "input") == call.receiver else position + 1)


def _is_mended(call: Place) -> bool:
    """Whether the token of the neighbour is put in afterwards, or exchanged beside."""
    unit = call.unit
    stored = (value.args[0] for value in unit.code.values if value.op == "store_item")
    if any(unit.root(each) == unit.root(call.number) for each in stored):
        return True
    return not _EXCHANGES.isdisjoint(unit.words)


def _report(call: Place, tensor: Place, cut: Place) -> Finding:
    does = "counts positions in" if call.method == "cumsum" else "shifts"
    help = "count them" if call.method == "cumsum" else "shift"
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}` in `{call.unit.qualname}` {does} `{tensor.text}`, of which each rank of a ring holds a part:"
        " what comes next to the part is on another rank",
        help=f"{help} before the tensor is cut for the ranks",
        related=[Related(cut.unit.path, cut.at[0], "the tensor is cut here")],
        context=f"{call.unit.qualname}:{tensor.text}",
    )


INCORRECT = [
    """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

_GROUP = None

def set_group(group):
    global _GROUP
    _GROUP = group

def get_group():
    return _GROUP

class Ring:
    def __init__(self, mesh):
        self.mesh = mesh

    def __enter__(self):
        self.before = get_group()
        set_group(self.mesh["sp"].get_group())

    def __exit__(self, *failure):
        set_group(self.before)

def rank_in(group=None):
    group = get_group() if group is None else group
    return dist.get_rank(group) if group else 0

def part_of(x, dim):
    parts = x.size(dim) // dist.get_world_size(get_group())
    index = [slice(None)] * x.dim()
    index[dim] = slice(rank_in() * parts, (rank_in() + 1) * parts)
    return x[index].contiguous()

def forward(model, input_ids, size):
    with Ring(init_device_mesh("cuda", (2, size), mesh_dim_names=("dp", "sp"))):
        if size > 1:
            input_ids = part_of(input_ids, dim=-1)
        rolled = torch.roll(input_ids, shifts=-1, dims=1)  # error: MP589
        labels = part_of(rolled, dim=-1)
        return model(input_ids), F.pad(labels[..., 1:], (0, 1), value=-100)  # error: MP589
""",
    """
import torch
from megatron.core import mpu

def forward(model, input_ids, mask):
    rank, size = mpu.get_context_parallel_rank(), mpu.get_context_parallel_world_size()
    tokens = input_ids.chunk(size, 1)[rank]
    target = torch.cat([tokens[:, 1:], tokens.new_full((1, 1), -100)], dim=-1)  # error: MP589
    length = mask.shape[1] // size
    mask = mask[:, rank * length : (rank + 1) * length]
    position_ids = mask.long().cumsum(-1) - 1  # error: MP589
    return model(tokens, position_ids=position_ids), target
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist
from megatron.core import mpu

def forward(model, input_ids, mask):
    rank, size = mpu.get_context_parallel_rank(), mpu.get_context_parallel_world_size()
    labels = input_ids.roll(-1, 1).chunk(size, 1)[rank]
    length = mask.shape[1] // size
    mask = mask[:, rank * length : (rank + 1) * length]
    position_ids = mask.long().cumsum(-1) - 1 + rank * length
    return model(input_ids.chunk(size, 1)[rank], position_ids=position_ids), labels

def exchanged(input_ids, cp_group):
    size = dist.get_world_size(cp_group)
    local = torch.tensor_split(input_ids, size, dim=-1)[dist.get_rank(cp_group)]
    firsts = [torch.empty_like(local[:, :1]) for _ in range(size)]
    dist.all_gather(firsts, local[:, :1].contiguous(), group=cp_group)
    target = torch.roll(local, -1, 1)
    target[:, -1:] = firsts[(dist.get_rank(cp_group) + 1) % size]
    return target

""",
    """
import torch
import torch.distributed as dist

def by_data(input_ids, dp_group):
    local = input_ids.chunk(dist.get_world_size(dp_group))[dist.get_rank(dp_group)]
    return torch.roll(local, -1, 1)
""",
]

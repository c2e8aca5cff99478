"""A rank's share of a tensor or list, cut by hand from a length that nothing has compared with the ranks.

What it does
    Reports `x[rank * n : (rank + 1) * n]` where `n` is a length divided by a number of ranks, and
    `x.chunk(ranks)[rank]`, in a function that neither tests the remainder, nor pads, nor treats the last rank apart,
    and whose callers do not either. Ranks and their number are followed through variables, fields, calls and
    `**kwargs`; where nothing is known of them their names tell. Functions of autograd are left alone: who calls them is
    not known. So are shares of a parameter where the project pads to a multiple somewhere: the way from there is not
    followed.

Why is this bad
    With slices the remainder belongs to no rank: its tokens or samples are never trained. `chunk` gives the last ranks
    shorter pieces, or none at all (11 rows for 8 ranks are 6 pieces): the index fails on some ranks, and collectives
    over the pieces hang or mix up rows on the others.

References
    https://docs.pytorch.org/docs/stable/generated/torch.chunk.html
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.equal_blocks import Block, blocks
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP426", "share-unchecked", "warning", "0.1.0", solves=True)

# Parts of names that speak of what is left over, or of how it is avoided.
_TREATING = ("pad", "divis", "ceil", "remainder", "drop_last", "extra", "leftover", "even", "multiple")
_TEXTS = frozenset({"const", "join"})  # `"%s" % x` takes no remainder


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    left = [block for block in blocks(queries) if not _is_treated(queries, block.place.unit)]
    if any(map(_is_given, left)) and _pads_somewhere(queries):
        left = [block for block in left if not _is_given(block)]
    first: dict[Unit, Block] = {}
    for block in left:
        first.setdefault(block.place.unit, block)
    yield from map(_report, first.values())


def _is_treated(queries: Queries, unit: Unit) -> bool:
    """Whether the function, its class, or one that calls it speaks of remainders or padding."""
    if unit.code.params and unit.code.params[0][0] == "ctx":
        return True  # who calls an autograd function, `apply`, cannot be told
    around = {unit, *(call.unit for call in queries.calls_of(unit))}
    if unit.cls is not None:
        around.update(queries.flow.units(iter(unit.cls.every_method())))
    return any(map(_speaks, around))


def _speaks(unit: Unit) -> bool:
    """Whether a function takes a remainder, or names something that tells of one."""
    names = (*unit.named, *unit.code.definitions, *(name for name, _ in unit.code.params))
    if any(word in name.lower() for name in names for word in _TREATING):
        return True
    values = unit.code.values
    return any(each.op == "binary" and each.data == "Mod" and values[each.args[0]].op not in _TEXTS for each in values)


def _is_given(block: Block) -> bool:
    """Whether what is shared was given to the function."""
    return any(part.value.op == "param" and not part.unit.is_receiver(part.number) for part in block.whole.parts)


def _pads_somewhere(queries: Queries) -> bool:
    """Whether the project pads anything to a multiple."""
    return any(_pads(queries, unit) for unit in queries.of_program() if not is_aside(unit.path))


def _pads(queries: Queries, unit: Unit) -> bool:
    if any("pad_to_multiple" in name for name in unit.named):
        return True
    remainders = (place for place in queries.values(unit, "binary") if place.value.data == "Mod")
    return any("multiple" in word.lower() for place in remainders for word in place.operand(1).words)


def _report(block: Block) -> Finding:
    unit = block.place.unit
    whole, ranks = block.whole.text, block.ranks.text
    left = "the last pieces are shorter, or there are too few" if block.chunked else "what remains is nobody's"
    return RULE.finding(
        unit.path,
        block.place.at,
        f"`{unit.qualname}` gives each of `{ranks}` ranks a piece of `{whole}`, and nothing tests that they divide its"
        f" length: {left}",
        help="test the remainder first, or pad to a multiple of the ranks",
        context=f"{unit.qualname}:{whole}:{ranks}",
        severity="note" if block.chunked else "warning",
    )


INCORRECT = [
    """
import torch.distributed as dist

def shard_sequence(input_ids, ring_rank, ring_attn_size):
    length = input_ids.size(1) // ring_attn_size
    return input_ids[:, ring_rank * length : (ring_rank + 1) * length]  # error: MP426

def shard_samples(samples):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    per_rank = len(samples) // world_size
    return samples[rank * per_rank : rank * per_rank + per_rank]  # error: MP426

def shard_positions(position_ids, cp_rank, cp_size):
    share = position_ids.shape[-1] // cp_size
    start = cp_rank * share
    end = start + share
    return position_ids[..., start:end]  # error: MP426

def shard_hidden(hidden, tp_group):
    tp_rank, tp_size = dist.get_rank(tp_group), dist.get_world_size(tp_group)
    return hidden.chunk(tp_size, dim=-1)[tp_rank]  # error: MP426
""",
    # the rank and the number of ranks come through a registry and `**`
    """
import torch.distributed as dist

class Rows:
    def __init__(self, *args, **kwargs):
        share = len(args[0]) // kwargs["splits"]
        start = kwargs["index"] * share
        self.rows = args[0][start : start + share]  # error: MP426

class Texts(Rows):
    pass

class Images(Rows):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

KINDS = {"texts": Texts, "images": Images}

def build(kind, rows, **kwargs):
    return KINDS[kind](rows, **kwargs)

def main(kind, rows):
    return build(kind, rows, splits=dist.get_world_size(), index=dist.get_rank())
""",
]

CORRECT = [
    """
# file: ring.py
import torch.distributed as dist

def shard_sequence(sequences, ring_attn_group):
    rank, ring_attn_size = dist.get_rank(ring_attn_group), dist.get_world_size(ring_attn_group)
    length = sequences.numel() // ring_attn_size
    return sequences[:, rank * length : (rank + 1) * length]
# file: dataset.py
import torch.nn.functional as F

class PackedDataset:
    def collate(self, input_ids):
        if self.multiple_of > 1 and input_ids.numel() % self.multiple_of != 0:
            input_ids = F.pad(input_ids, (0, self.multiple_of - input_ids.numel() % self.multiple_of))
        return input_ids
""",
    """
import torch.distributed as dist

def shard_sequence(input_ids, ring_rank, ring_attn_size):
    assert input_ids.size(1) % ring_attn_size == 0
    length = input_ids.size(1) // ring_attn_size
    return input_ids[:, ring_rank * length : (ring_rank + 1) * length]

def shard_samples(samples, rank, world_size):
    per_rank = -(-len(samples) // world_size)
    return samples[rank * per_rank : (rank + 1) * per_rank]

def shard_rest(samples, rank, world_size):
    per_rank = len(samples) // world_size
    stop = len(samples) if rank == world_size - 1 else (rank + 1) * per_rank
    return samples[rank * per_rank : stop]
""",
    """
import torch
import torch.distributed as dist

class Attention:
    def forward(self, states, sp_rank, sp_size):
        return self.local(pad_to_multiple(states, sp_size), sp_rank, sp_size)

    def local(self, states, sp_rank, sp_size):
        return states.chunk(sp_size, dim=1)[sp_rank]

class Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tp_rank, tp_size):
        return x.chunk(tp_size, dim=-1)[tp_rank]

def halves(x, rank):
    return x.chunk(2)[rank]
""",
]

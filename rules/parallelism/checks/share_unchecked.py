"""A rank's share of a tensor or list, cut by hand from a length that nothing has compared with the ranks.

What it does
    Reports `x[rank * n : (rank + 1) * n]` where `n` is a length divided by a number of ranks, and
    `x.chunk(ranks)[rank]`, in a function that neither tests the remainder, nor pads, nor treats the last rank apart,
    and whose callers do not either. Functions of autograd are left alone: who calls them is not known. So are shares
    of a parameter where the project pads to a multiple somewhere: the way from there is not followed.

Why is this bad
    With slices the remainder belongs to no rank: its tokens or samples are never trained. `chunk` gives the last ranks
    shorter pieces, or none at all (11 rows for 8 ranks are 6 pieces): the index fails on some ranks, and collectives
    over the pieces hang or mix up rows on the others.

References
    https://docs.pytorch.org/docs/stable/generated/torch.chunk.html
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.bindings import Bindings, own_nodes
from validator.analysis.places import text_of
from validator.analysis.sizes.dimensions import Dimensions
from validator.domains.axes import MODEL_PARALLEL
from validator.facts.text import path_of
from validator.finding import Finding
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP426", "share-unchecked", "warning", "0.1.0", tokens=("rank",))

_RANK = re.compile(r"(^|_)rank$|_rank\(\)$|^get_rank\(\)$|_rank$")
_PARTICIPANTS = MODEL_PARALLEL | {"world", "dp"}
_TREATED = re.compile(r"%|pad|divis|ceil|remainder|drop_last|extras?\b|leftover|even", re.IGNORECASE)
_MULTIPLE = re.compile(r"%\s*(self\.)?\w*multiple|pad_to_multiple")


class Share(NamedTuple):
    """A piece of `whole` for one rank of `ranks`."""

    node: ast.expr
    whole: str
    ranks: str
    chunked: bool = False


def check_project(project: Project) -> Iterator[Finding]:
    for module in project.modules.values():
        text = module.source.text
        if is_aside(module.path) or "rank" not in text or ("//" not in text and "chunk(" not in text):
            continue
        for function in module.functions.values():
            share = next(_shares(project, function), None)
            if share is not None and not _treated(project, function) and not _padded_before(project, function, share):
                yield _report(function, share)


def _padded_before(project: Project, function: Method, share: Share) -> bool:
    """Whether what is shared was given to the function, by a project that pads to a multiple."""
    name = re.split(r"[.\[(]", share.whole)[0]
    if all(param.name != name for param in function.facts.params):
        return False
    return any(_MULTIPLE.search(m.source.text) for m in project.modules.values() if not is_aside(m.path))


def _shares(project: Project, function: Method) -> Iterator[Share]:
    lines = text_of(function) if function.name != "<module>" else ""
    if "rank" not in lines or ("//" not in lines and "chunk(" not in lines) or function.node is None:
        return
    for node in own_nodes(function.node):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            found = _chunked(project, function, node) or _sliced(project, function, node)
            if found is not None:
                yield found


def _chunked(project: Project, function: Method, node: ast.Subscript) -> Share | None:
    """`x.chunk(ranks, dim=…)[rank]` and `torch.chunk(x, ranks)[rank]`."""
    call = node.value
    if not isinstance(call, ast.Call) or not _is_rank(node.slice) or not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr != "chunk" or not call.args:
        return None
    free = path_of(call.func.value) == "torch"
    if free and len(call.args) < 2:
        return None
    whole, ranks = (call.args[0], call.args[1]) if free else (call.func.value, call.args[0])
    counted = _counts_ranks(project, function, ranks)
    return Share(node, ast.unparse(whole), ast.unparse(ranks), chunked=True) if counted else None


def _sliced(project: Project, function: Method, node: ast.Subscript) -> Share | None:
    """`x[rank * n : (rank + 1) * n]`, in any dimension, its bounds named or written out."""
    for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
        if not isinstance(part, ast.Slice) or part.step is not None or part.lower is None or part.upper is None:
            continue
        lower, upper = (_value(project, function, bound) for bound in (part.lower, part.upper))
        for size in _sizes(lower):
            ends = {*_ends(lower, size), f"{ast.unparse(part.lower)} + {ast.unparse(size)}"}
            if ast.unparse(upper) in ends and (ranks := _divisor(project, function, size)):
                return Share(node, ast.unparse(node.value), ranks)
    return None


def _value(project: Project, function: Method, node: ast.expr) -> ast.expr:
    """What a name is bound to, where it is bound once."""
    values = project.analysis(Bindings).of(function).get(node.id, []) if isinstance(node, ast.Name) else []
    return values[0] if len(values) == 1 and values[0] is not None else node


def _sizes(lower: ast.expr) -> Iterator[ast.expr]:
    """`n` of `rank * n` and of `n * rank`."""
    if isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Mult):
        if _is_rank(lower.left):
            yield lower.right
        if _is_rank(lower.right):
            yield lower.left


def _ends(lower: ast.expr, size: ast.expr) -> set[str]:
    """The ways to write where the piece after `lower` begins."""
    step, start = ast.unparse(size), ast.unparse(lower)
    rank = next(s for s in (lower.left, lower.right) if s is not size)  # type: ignore[attr-defined]
    after = f"({ast.unparse(rank)} + 1)"
    return {f"{after} * {step}", f"{step} * {after}", f"{start} + {step}"}


def _is_rank(node: ast.expr) -> bool:
    return (
        _RANK.search(ast.unparse(node).rpartition(".")[2]) is not None if not isinstance(node, ast.Constant) else False
    )


def _divisor(project: Project, function: Method, size: ast.expr) -> str:
    """The number of ranks by which a function divides a length to get a size; empty where it does not."""
    value = _value(project, function, size)
    if isinstance(value, ast.Call) and path_of(value.func) == "int" and len(value.args) == 1:
        value = value.args[0]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv | ast.Div) and _whole(value.left):
        return ast.unparse(value.right) if _counts_ranks(project, function, value.right) else ""
    return ""


def _whole(node: ast.expr) -> bool:
    """Whether an expression is no sum: `(n + ranks - 1) // ranks` rounds up."""
    return not isinstance(node, ast.UnaryOp) and not any(isinstance(n, ast.Add | ast.Sub) for n in ast.walk(node))


def _counts_ranks(project: Project, function: Method, node: ast.expr) -> bool:
    size = project.analysis(Dimensions).size(function, node)
    return len(size.over) == 1 and not size.under and size.over[0].tag in _PARTICIPANTS


def _treated(project: Project, function: Method) -> bool:
    """Whether the function, its class, or one that calls it speaks of remainders or padding."""
    if function.facts.params and function.facts.params[0].name == "ctx":
        return True  # who calls an autograd function, `apply`, cannot be told
    around = {function, *(caller for caller, _ in project.analysis(Objects).callers(function))}
    if function.cls is not None:
        around |= set(function.cls.every_method())
    return any(_TREATED.search(text_of(each)) for each in around)


def _report(function: Method, share: Share) -> Finding:
    return RULE.finding(
        function.path,
        function.module.source_text.at(share.node),
        f"`{function.qualname}` gives each of `{share.ranks}` ranks a piece of `{share.whole}`, and nothing tests that"
        f" they divide its length: {_left(share)}",
        help="test the remainder first, or pad to a multiple of the ranks",
        context=f"{function.qualname}:{share.whole}:{share.ranks}",
        severity="note" if share.chunked else "warning",
    )


def _left(share: Share) -> str:
    """What becomes of a remainder: `chunk` deals it out, in pieces of two lengths."""
    return "the last pieces are shorter, or there are too few" if share.chunked else "what remains is nobody's"


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

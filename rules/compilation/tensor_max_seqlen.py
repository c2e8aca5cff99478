"""A tensor where FlashAttention wants the longest length as a number.

What it does
    Reports `max_seqlen_q`, `max_seqlen_k`, `max_length_q` and `max_length_k` (also where FlashAttention's functions are
    given them by position) that are the result of `.max()` (or `torch.max`) of a tensor of lengths, with no `.item()`
    or `int()` around it.

Why is this bad
    The kernel takes an integer: a tensor on the GPU is turned into one in every layer, which waits for the GPU each
    time, and under `torch.compile` breaks the graph or fails.

References
    https://github.com/Dao-AILab/flash-attention
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.facts.model import At
from validator.finding import Finding
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.pure_functions import computed
from validator.project import Project
from validator.rule import Rule

_FUNCTIONS = ("flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func")
RULE = Rule("MP602", "tensor-max-seqlen", "note", "0.1.0", tokens=("max_seqlen", "max_length_q", *_FUNCTIONS))

_NAMES = ("max_seqlen_q", "max_seqlen_k", "max_length_q", "max_length_k")
_LENGTHS = re.compile(r"cu_seq_?lens|seq_?lens|lengths|position_ids")
_CUMULATED = re.compile(r"cu_seq_?lens")
_MASKS = re.compile(r"mask$|segment_ids$")
_ON_THE_HOST = frozenset({"numpy", "tolist", "item"})
# where flash_attn 2.8's functions take the longest lengths
_POSITIONS = {
    "flash_attn_varlen_func": (5, 6), "flash_attn_varlen_kvpacked_func": (4, 5),
    "flash_attn_varlen_qkvpacked_func": (2,),
}  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.mentioning(*_NAMES, *_FUNCTIONS):
        for call in queries.calls_in(unit) if not is_aside(unit.path) else ():
            reported: set[int] = set()
            for name, index in _lengths(call):
                given = call.operand(index + 1)
                if given.root.number not in reported and _is_longest(given):
                    reported.add(given.root.number)  # one length for queries and keys is one finding
                    yield RULE.finding(
                        unit.path,
                        _at(call, index),
                        f"`{name}` of `{call.method or call.operand(0).text}` in `{unit.qualname}` is a tensor"
                        f" (`{given.root.text}`), not a number",
                        help="compute the length once for all layers, outside the compiled part, and pass"
                        " `int(…)` of it",
                        context=f"{unit.qualname}:{name}",
                    )


def _lengths(call: Place) -> Iterator[tuple[str, int]]:
    """The arguments of a call that are longest lengths, by keyword or by position, with their names."""
    given = call.value.data.names
    yield from ((name, index) for index, name in enumerate(given) if name in _NAMES)
    positions = _POSITIONS.get(call.method, ()) if "*" not in given else ()
    for name, at in zip(("max_seqlen_q", "max_seqlen_k"), positions, strict=False):
        if at < len(given) and given[at] is None:
            yield (name if len(positions) > 1 else "max_seqlen"), at


def _at(call: Place, index: int) -> At:
    """Where an argument of a call stands."""
    method = call.unit.method
    calls = method.facts.calls if method is not None else ()
    return next((each.args[index].at for each in calls if each.at == call.at and index < len(each.args)), call.at)


def _is_longest(given: Place) -> bool:
    """Whether a value is the largest of lengths that lie in a tensor."""
    made = given.origin
    if made.value.op != "call" or made.method != "max":
        return False
    asked = made.receiver
    if any(o[0] == "ext" and o[1] == "torch.max" for o in made.operand(0).val.each):
        asked = made.operand(1) if len(made.value.args) > 1 else None
    return asked is not None and _are_lengths(asked) and not any(map(_is_on_the_host, made.sources))


def _are_lengths(place: Place) -> bool:
    """Whether a value is called lengths, or made as they are: differences of cumulated ones, sums of a mask."""
    place = place.origin
    op = place.value.op
    if any(map(_LENGTHS.search, _names(place))):
        return True
    if op == "binary":
        parts = [place.operand(0).origin, place.operand(1).origin]
        return any(
            part.value.op == "item" and any(map(_CUMULATED.search, _names(part.operand(0).origin))) for part in parts
        )
    if op != "call":
        return op == "item" and _are_lengths(place.operand(0))
    if place.method == "diff":
        return True
    if place.method == "sum" and place.receiver is not None:
        return any(map(_MASKS.search, _names(place.receiver.origin)))
    inside = computed(place.flow, place.unit, place.number)
    if inside is not None:
        return _are_lengths(Place(place.flow, *inside))
    kept = place.flow.models.same_methods
    return place.receiver is not None and place.method in kept and _are_lengths(place.receiver)


def _names(place: Place) -> list[str]:
    """The names by which the source knows a value."""
    named = [name for name, held in place.unit.code.definitions.items() if place.number in held]
    return [*named, place.hint] if place.value.op in ("param", "free", "attr", "name", "phi") else named


def _is_on_the_host(place: Place) -> bool:
    value = place.value
    if value.op == "attr":
        return value.data in _ON_THE_HOST
    return value.op == "name" and any(o[0] == "ext" and o[1].startswith("numpy") for o in place.val.each)


INCORRECT = [
    """
import torch
from flash_attn import flash_attn_varlen_func

def attend(q, k, v, cu_seqlens):
    lengths = cu_seqlens[1:] - cu_seqlens[:-1]
    longest = lengths.max()
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen_q=longest)  # error: MP602
""",
    """
import torch
from flash_attn import flash_attn_varlen_func, flash_attn_varlen_qkvpacked_func

def attend(q, k, v, cu_seqlens, attention_mask):
    lens = cu_seqlens[1:] - cu_seqlens[:-1]
    longest = lens.max()
    longest_key = torch.max(lens)
    return flash_attn_varlen_func(
        q, k, v, cu_seqlens, cu_seqlens,
        longest,  # error: MP602
        longest_key,  # error: MP602
        causal=True,
    )

def attend_packed(qkv, cu_seqlens, attention_mask):
    sizes = attention_mask.sum(dim=-1)
    return flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, sizes.max())  # error: MP602
""",
    """
import torch
from flash_attn import flash_attn_varlen_func

def between(bounds):
    return torch.diff(bounds)

def attend(q, k, v, bounds):
    longest = between(bounds).max()
    return flash_attn_varlen_func(q, k, v, bounds, bounds, max_seqlen_q=longest)  # error: MP602
""",
    # one finding for a length that queries and keys share
    """
import torch.distributed as dist

def attend(attention, eager, module, q, k, v, cu_seqlens):
    longest = (cu_seqlens[1:] - cu_seqlens[:-1]).max()
    attend_with = attention if dist.is_initialized() else eager
    return attend_with(
        module, q, k, v,
        max_length_q=longest,  # error: MP602
        max_length_k=longest,
    )
""",
]

CORRECT = [
    """
import torch
from flash_attn import flash_attn_varlen_func

def attend(q, k, v, cu_seqlens):
    lengths = cu_seqlens[1:] - cu_seqlens[:-1]
    longest = lengths.max().item()
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen_q=longest, max_seqlen_k=longest)
""",
    """
import torch
from flash_attn import flash_attn_varlen_func

def attend_by_position(q, k, v, cu_seqlens, lens):
    sizes = (cu_seqlens[1:] - cu_seqlens[:-1]).cpu().numpy()
    longest = int(lens.max())
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, longest, sizes.max())

def attend(q, k, v, cu_seqlens, longest):
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen_q=longest, max_seqlen_k=longest)
""",
]

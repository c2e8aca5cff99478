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

from validator.analysis.places import call_bound, is_aside
from validator.facts.model import Argument, Assign, Call
from validator.finding import Finding
from validator.project import Method, Project
from validator.rule import Rule

_FUNCTIONS = ("flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func")
RULE = Rule("MP602", "tensor-max-seqlen", "warning", "0.1.0", tokens=("max_seqlen", "max_length_q", *_FUNCTIONS))

_NAMES = frozenset({"max_seqlen_q", "max_seqlen_k", "max_length_q", "max_length_k"})
_TENSOR = re.compile(r"cu_seq_?lens|seq_?lens|lengths|position_ids|diff\(")
_MADE = re.compile(r"cu_seq_?lens\w*\[|diff\(|(mask|segment_ids)\w*\.sum\(")
_ON_THE_HOST = re.compile(r"\bnp\.|numpy|tolist\(|\.item\(")
# where flash_attn 2.8's functions take the longest lengths
_POSITIONS = {
    "flash_attn_varlen_func": (5, 6), "flash_attn_varlen_kvpacked_func": (4, 5),
    "flash_attn_varlen_qkvpacked_func": (2,),
}  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if is_aside(function.path):
            continue
        for call in function.facts.calls:
            for name, argument in _lengths(call):
                if source := _tensor(project, function, argument):
                    yield RULE.finding(
                        function.path,
                        argument.at,
                        f"`{name}` of `{call.target}` in `{function.qualname}` is a tensor (`{source}`), not a number",
                        help="compute the length once for all layers, outside the compiled part, and pass"
                        " `int(…)` of it",
                        context=f"{function.qualname}:{name}",
                    )


def _lengths(call: Call) -> Iterator[tuple[str, Argument]]:
    """The arguments of a call that are longest lengths, by keyword or by position, with their names."""
    yield from ((a.keyword, a) for a in call.args if a.keyword in _NAMES)
    positions = _POSITIONS.get(call.method, ())
    if any(a.keyword == "*" for a in call.args):
        return
    for name, at in zip(("max_seqlen_q", "max_seqlen_k"), positions, strict=False):
        if at < len(call.positional):
            yield (name if len(positions) > 1 else "max_seqlen"), call.positional[at]


def _tensor(project: Project, function: Method, argument: Argument) -> str:
    """The source of the tensor that an argument is; empty where it is not known to be one."""
    if argument.kind == "call":
        return f"{argument.value}()" if _is_max(project, function, argument.value) else ""
    rows = [row for row in function.facts.assigns if row.target == argument.value]
    if len(rows) != 1 or rows[0].kind != "call" or (call := call_bound(function, rows[0])) is None:
        return ""
    given = " ".join(a.value for a in call.args)
    return f"{rows[0].value}()" if _is_max(project, function, rows[0].value, given) else ""


def _is_max(project: Project, function: Method, target: str, given: str = "") -> bool:
    owner = target.removesuffix(".max")
    if owner != target and (_TENSOR.search(owner) or _of_lengths(function, owner)):
        return "numpy" not in target and not target.startswith(("np.", "max("))
    if project.dotted(function, target) != "torch.max":
        return False
    return bool(_TENSOR.search(given)) or _of_lengths(function, given)


def _of_lengths(function: Method, name: str) -> bool:
    """Whether a name, whatever it is, means the differences of cumulative lengths, or sums of a mask."""
    rows = [row for row in function.facts.assigns if row.target == name]
    made = _source(function, rows[0]) if len(rows) == 1 else ""
    return bool(_MADE.search(made)) and not _ON_THE_HOST.search(made)


def _source(function: Method, row: Assign) -> str:
    """The lines of an assignment, where its value is no plain path."""
    if row.kind in ("path", "const"):
        return row.value
    first, _, last, _ = row.at
    return "\n".join(function.module.source_text.lines[first - 1 : last]).partition("=")[2]


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

"""A tensor where FlashAttention wants the longest length as a number.

What it does
    Reports `max_seqlen_q`, `max_seqlen_k`, `max_length_q` and `max_length_k` that are the result of `.max()` (or
    `torch.max`) of a tensor, with no `.item()` or `int()` around it.

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
from validator.facts.model import Argument
from validator.finding import Finding
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP602", "tensor-max-seqlen", "warning", "0.1.0", tokens=("max_seqlen", "max_length_q"))

_NAMES = frozenset({"max_seqlen_q", "max_seqlen_k", "max_length_q", "max_length_k"})
_TENSOR = re.compile(r"cu_seq_?lens|seq_?lens|lengths|position_ids|diff\(")


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if is_aside(function.path):
            continue
        for call in function.facts.calls:
            for argument in call.args:
                if argument.keyword in _NAMES and (source := _tensor(project, function, argument)):
                    yield RULE.finding(
                        function.path,
                        argument.at,
                        f"`{argument.keyword}` of `{call.target}` in `{function.qualname}` is a tensor"
                        f" (`{source}`), not a number",
                        help="compute the length once for all layers, outside the compiled part, and pass"
                        " `int(…)` of it",
                        context=f"{function.qualname}:{argument.keyword}",
                    )


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
    if target.endswith(".max") and _TENSOR.search(target):
        return "numpy" not in target and not target.startswith(("np.", "max("))
    return project.dotted(function, target) == "torch.max" and bool(_TENSOR.search(given))


INCORRECT = [
    """
import torch
from flash_attn import flash_attn_varlen_func

def attend(q, k, v, cu_seqlens):
    lengths = cu_seqlens[1:] - cu_seqlens[:-1]
    longest = lengths.max()
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen_q=longest)  # error: MP602
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

def attend(q, k, v, cu_seqlens, longest):
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen_q=longest, max_seqlen_k=longest)
""",
]

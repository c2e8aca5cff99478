"""A layer split by columns without the layer after it split by rows.

What it does
    Reports, in a plan of tensor parallelism, projections into an attention or MLP block that are column-parallel
    (`q_proj`, `gate_proj`, `w1`, …) and whose output is left split, where the plan has no entry for the projection out
    of the block (`o_proj`, `down_proj`, `w2`, …) and nothing adds one unconditionally.

Why is this bad
    The activations of the block are split over ranks and the layer that reads them is not: it fails on their shape, or,
    where the shapes happen to fit, adds nothing up, and every rank goes on with a part of the sum.

References
    https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html
    https://arxiv.org/abs/1909.08053
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.sizes.plans import TOKENS, Entry, Plan, Plans
from validator.finding import Finding
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP422", "column-without-row", "error", "0.1.0", tokens=TOKENS)

_BLOCKS = (
    (
        frozenset({"q_proj", "k_proj", "v_proj", "qkv_proj", "wq", "wk", "wv", "wqkv", "query_key_value", "c_attn"}),
        frozenset({"o_proj", "out_proj", "output_proj", "wo", "dense", "c_proj"}),
    ),
    (
        frozenset({"gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "fc1", "dense_h_to_4h", "c_fc"}),
        frozenset({"down_proj", "w2", "fc2", "dense_4h_to_h", "c_proj"}),
    ),
)
_COLUMN = re.compile(r"col_?wise", re.IGNORECASE)
_GATHERED = re.compile(r"Replicate|colwise_rep|colwise_gather|gather", re.IGNORECASE)


def check_project(project: Project) -> Iterator[Finding]:
    for plan in project.analysis(Plans).all:
        if not plan.whole or is_aside(plan.function.path) or _extended(plan):
            continue
        for first, partners in _lonely(plan):
            yield RULE.finding(
                plan.function.path,
                plan.function.module.source_text.at(first.key),
                f"the plan of `{plan.function.qualname}` splits `{first.pattern}` by columns and says nothing of"
                f" `{first.prefix}.{_named(plan, partners)}`, which reads what is split",
                help="make the projection out of the block row-parallel, or gather the columns with"
                " `output_layouts=Replicate()`",
                context=f"{plan.function.qualname}:{plan.name}:{first.prefix}",
            )


def _lonely(plan: Plan) -> Iterator[tuple[Entry, frozenset[str]]]:
    """The first column of each block that has no partner."""
    seen: set[tuple[str, int]] = set()
    modules = {(entry.prefix, entry.module) for entry in plan.entries}
    for entry in plan.entries:
        for index, (columns, rows) in enumerate(_BLOCKS):
            split = entry.module in columns and _COLUMN.search(entry.style) and not _GATHERED.search(entry.style)
            if not split or (entry.prefix, index) in seen:
                continue
            seen.add((entry.prefix, index))
            if not any((entry.prefix, row) in modules for row in rows):
                yield entry, rows


def _named(plan: Plan, partners: frozenset[str]) -> str:
    """The partner as this plan would call it: the usual name for Hugging Face's columns, or that of the others."""
    modules = {entry.module for entry in plan.entries}
    if modules & {"wq", "wk", "wv", "w1", "w3"}:
        return "wo" if "wo" in partners else "w2"
    return "o_proj" if "o_proj" in partners else "down_proj"


def _extended(plan: Plan) -> bool:
    """Whether something adds to a plan whatever the options are, or it is itself only an addition."""
    for call in plan.function.facts.calls:
        conditional = any(guard.kind == "if" for guard in call.guards)
        if call.method == "update" and plan.name and call.receiver == plan.name and not conditional:
            return True
        if call.method == "update" and any(a.value == plan.name for a in call.args if plan.name):
            return True
    stored = (ref for ref in plan.function.facts.refs if ref.context == "store" and plan.name)
    return any(ref.path == f"{plan.name}[]" and not any(g.kind == "if" for g in ref.guards) for ref in stored)


INCORRECT = [
    """
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel

def plan(sequence_parallel):
    tp_plan = {
        "model.layers.*.self_attn.q_proj": ColwiseParallel(),  # error: MP422
        "model.layers.*.self_attn.k_proj": ColwiseParallel(),
        "model.layers.*.self_attn.v_proj": ColwiseParallel(),
        "model.layers.*.mlp.up_proj": ColwiseParallel(),
        "model.layers.*.mlp.gate_proj": ColwiseParallel(),
        "model.layers.*.mlp.down_proj": RowwiseParallel(),
        "lm_head": ColwiseParallel(),
    }
    if sequence_parallel:
        tp_plan.update({"model.norm": SequenceParallel()})
    return tp_plan
""",
]

CORRECT = [
    """
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

def plan():
    return {
        "model.layers.*.self_attn.q_proj": ColwiseParallel(),
        "model.layers.*.self_attn.k_proj": ColwiseParallel(),
        "model.layers.*.self_attn.v_proj": ColwiseParallel(),
        "model.layers.*.self_attn.o_proj": RowwiseParallel(),
        "lm_head": ColwiseParallel(),
    }
""",
    """
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

def gathered():
    return {
        "layers.*.attn.q_proj": ColwiseParallel(output_layouts=Replicate()),
        "layers.*.attn.k_proj": ColwiseParallel(output_layouts=Replicate()),
        "layers.*.attn.v_proj": ColwiseParallel(output_layouts=Replicate()),
    }

def in_parts(moe):
    plan = {
        "layers.*.mlp.w1": ColwiseParallel(),
        "layers.*.mlp.w3": ColwiseParallel(),
        "lm_head": ColwiseParallel(),
    }
    plan.update(moe)
    return plan
""",
]

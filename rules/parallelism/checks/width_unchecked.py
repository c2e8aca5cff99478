"""The width of a layer divided over tensor-parallel ranks whose number nothing has compared with it.

What it does
    Reports a layer that takes a rank's share of a hidden size, an MLP size, an embedding or a vocabulary for its own,
    such as `config.intermediate_size // tp_size` in its `__init__`, in a program that nowhere tests a width against a
    tensor-parallel size. Rounding up, padding, a helper that checks (`divide`, `ensure_divisibility`) and Megatron's
    layers, which check for themselves, make it silent.

Why is this bad
    The remainder belongs to no rank: the layer is built too narrow, loading weights fails with a message about shapes,
    or the last columns are silently cut off (constraints `tp-mlp`, `tp-hidden`, `vocab-parallel`).

References
    https://arxiv.org/abs/1909.08053
    https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.sizes.quotients import Quotient, Quotients
from validator.finding import Finding
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP425", "width-unchecked", "warning", "0.1.0", tokens=("//", "int("), solves=True)

_WIDTHS = frozenset({"width"})


def check_project(project: Project) -> Iterator[Finding]:
    quotients = project.analysis(Quotients)
    reported: set[Method] = set()
    for row in sorted(quotients.all, key=lambda row: (row.function.path, row.node.lineno)):
        if row.function in reported or is_aside(row.function.path) or not _shares(row) or not _builds(row):
            continue
        if row.size.rounded or quotients.is_trusted(row) or _tested(quotients, row):
            continue
        reported.add(row.function)
        yield _report(row)


def _shares(row: Quotient) -> bool:
    """Whether a quotient is the part of a width that one tensor-parallel rank holds."""
    over, under = row.size.tags - {""}, row.size.under_tags - {""}
    return over == _WIDTHS and under == {"tp"}


def _builds(row: Quotient) -> bool:
    """Whether a layer is built with the quotient; what reads weights of layers that stand finds them checked."""
    built = row.function.name == "__init__" or row.target.startswith("self.")
    return built and row.function.cls is not None and "megatron" not in row.function.module.source.text.lower()


def _tested(quotients: Quotients, row: Quotient) -> bool:
    """Whether a test of a width against a tensor-parallel size stands where it counts, or takes the remainder."""
    return any(
        "width" in check.left.tags and "tp" in check.right.tags
        for check in [*quotients.around(row), *quotients.reached(row.function), *quotients.tested()]
    )


def _report(row: Quotient) -> Finding:
    function = row.function
    width = next(f.text for f in row.size.over if f.tag == "width")
    size = next(f.text for f in row.size.under if f.tag == "tp")
    return RULE.finding(
        function.path,
        function.module.source_text.at(row.node),
        f"`{function.qualname}` gives each rank `{width} // {size}` of a layer, and nothing tests that `{size}`"
        " divides it",
        help=f"test `{width} % {size} == 0` first, and say which sizes would do, or pad the width",
        context=f"{function.qualname}:{width}:{size}",
    )


INCORRECT = [
    """
import torch.distributed as dist
import torch.nn as nn

class ParallelMLP(nn.Module):
    def __init__(self, config, tp_group):
        tp_size = dist.get_world_size(tp_group)
        self.width = config.intermediate_size // tp_size  # error: MP425
        self.up_proj = nn.Linear(config.hidden_size, self.width)

class ParallelEmbedding(nn.Module):
    def __init__(self, vocab_size, hidden_size, tp_size):
        self.weight = nn.Parameter(vocab_size // tp_size, hidden_size)  # error: MP425
""",
]

CORRECT = [
    """
import torch.distributed as dist
from megatron.core.tensor_parallel import ColumnParallelLinear

class ParallelMLP:
    def __init__(self, config, tp_size):
        self.up_proj = ColumnParallelLinear(config.hidden_size, config.intermediate_size)
        self.width = config.intermediate_size // tp_size
""",
    """
import torch.distributed as dist
import torch.nn as nn

class ParallelMLP(nn.Module):
    def __init__(self, config, tp_group):
        tp_size = dist.get_world_size(tp_group)
        if config.intermediate_size % tp_size != 0:
            raise ValueError(f"{tp_size} ranks do not divide {config.intermediate_size}")
        self.width = config.intermediate_size // tp_size
""",
    """
import math
import torch.distributed as dist
from parallel import ensure_divisibility

class ParallelEmbedding:
    def __init__(self, vocab_size, hidden_size, tp_size):
        ensure_divisibility(vocab_size, tp_size)
        self.rows = vocab_size // tp_size
        self.padded = math.ceil(hidden_size / tp_size)

def head_size(hidden_size, num_attention_heads, tp_size):
    return hidden_size // num_attention_heads

class Padded:
    def __init__(self, hidden_size, tp_size):
        self.share = -(-hidden_size // tp_size)
""",
]

"""Attention heads divided over ranks whose number nothing has compared with theirs.

What it does
    Reports an exchange of heads against sequence in Ulysses attention (a call such as
    `gather_seq_scatter_heads(x, seq_dim=1, head_dim=2)`) in a module where no function tests that the ranks divide the
    heads, neither itself nor in a function that it calls. Reports the heads of a rank, `num_heads // tp_size`, in a
    program that nowhere tests heads against a size of that dimension.

Why is this bad
    Models with few key/value heads, or with a number of heads that the ranks do not divide, fail inside `all_to_all`
    or `view` with a message about shapes, after the weights have been loaded, or compute with other heads. With more
    ranks than key/value heads the quotient is 0.

References
    https://arxiv.org/abs/2309.14509
    https://github.com/volcengine/verl/pull/850
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bindings import own_nodes
from validator.analysis.sizes.quotients import Quotient, Quotients
from validator.domains.axes import MODEL_PARALLEL
from validator.facts.model import Call
from validator.facts.text import path_of
from validator.finding import Finding
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Module, Project
from validator.rule import Rule

RULE = Rule("MP418", "heads-unchecked", "note", "0.1.0", tokens=("head",), solves=True)

_DIVIDING = MODEL_PARALLEL - {"pp"}

_SCATTERS = re.compile(r"scatter_heads?$|^all_to_all_heads$|scatter_heads?_gather_seq\w*$")


def check_project(project: Project) -> Iterator[Finding]:
    for module in project.modules.values():
        if is_aside(module.path) or "scatter_head" not in module.source.text:
            continue
        calls = [(f, c) for f in module.functions.values() for c in f.facts.calls if _SCATTERS.search(c.method)]
        calls = [(f, c) for f, c in calls if not _SCATTERS.search(f.name)]
        if calls and not _tested(project, module):
            yield _report(*min(calls, key=lambda row: row[1].at))
    yield from _divided(project.analysis(Quotients))


def _divided(quotients: Quotients) -> Iterator[Finding]:
    """The first heads of a rank in each function, where the program tests no heads against that dimension."""
    reported: set[Method] = set()
    tested: frozenset[str] | None = None
    for row in sorted(quotients.all, key=lambda row: (row.function.path, row.node.lineno)):
        dimensions = row.size.under_tags & _DIVIDING
        whole = [f for f in row.size.over if f.tag == "heads"]
        if not whole or not dimensions or row.size.rounded or row.function in reported or quotients.is_trusted(row):
            continue
        if tested is None:
            tested = frozenset(t for c in quotients.tested() if "heads" in c.left.tags for t in c.right.tags)
        if not dimensions <= tested and not _compared(row):
            reported.add(row.function)
            yield _report_quotient(row, whole[0].text, next(f.text for f in row.size.under if f.tag in dimensions))


def _compared(row: Quotient) -> bool:
    """Whether the function compares sizes that it divides: it then knows of more ranks than heads."""
    parts = {f.text for f in (*row.size.over, *row.size.under)}
    nodes = own_nodes(row.function.node) if row.function.node is not None else []
    return any(isinstance(n, ast.Compare) and {path_of(n.left), *map(path_of, n.comparators)} <= parts for n in nodes)


def _tested(project: Project, module: Module) -> bool:
    """Whether a function of the module compares a number of heads with a number of ranks."""
    quotients = project.analysis(Quotients)
    checks = (check for function in module.functions.values() for check in quotients.reached(function))
    return any("heads" in c.left.tags | c.right.tags and c.left.tags | c.right.tags != {"heads"} for c in checks)


def _report(function: Method, call: Call) -> Finding:
    tensor = call.args[0].value if call.args else "the states"
    return RULE.finding(
        function.path,
        call.at,
        f"`{function.qualname}` scatters the heads of `{tensor}` over ranks, and nothing in `{function.module.name}`"
        " tests that the ranks divide them",
        help="test `num_attention_heads % size == 0`, and repeat key/value heads where there are fewer than ranks,"
        " when the attention is replaced",
        context=f"{function.qualname}:{call.method}",
    )


def _report_quotient(row: Quotient, heads: str, size: str) -> Finding:
    function = row.function
    return RULE.finding(
        function.path,
        function.module.source_text.at(row.node),
        f"`{function.qualname}` gives each rank `{heads} // {size}` heads, and nothing tests that `{size}` divides"
        " them",
        help=f"test `{heads} % {size} == 0` first, and say which sizes would do; key/value heads fewer than ranks"
        " must be repeated",
        context=f"{function.qualname}:{heads}:{size}",
    )


INCORRECT = [
    """
import torch.distributed as dist
from ulysses import gather_heads_scatter_seq, gather_seq_scatter_heads, get_ulysses_sequence_parallel_world_size

def ulysses_attention(query, key, value, attend):
    size = get_ulysses_sequence_parallel_world_size()
    if size > 1:
        query = gather_seq_scatter_heads(query, seq_dim=1, head_dim=2)  # error: MP418
        key = gather_seq_scatter_heads(key, seq_dim=1, head_dim=2)
        value = gather_seq_scatter_heads(value, seq_dim=1, head_dim=2)
    return gather_heads_scatter_seq(attend(query, key, value), seq_dim=1, head_dim=2)
""",
    """
import torch.distributed as dist
import torch.nn as nn

class Attention(nn.Module):
    def __init__(self, config, tp_group):
        tp_size = dist.get_world_size(tp_group)
        self.num_heads = config.num_attention_heads // tp_size  # error: MP418
        self.num_key_value_heads = config.num_key_value_heads // tp_size
""",
    """
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

def split_attention(block, tp_mesh):
    block.attention.num_heads = block.attention.num_heads // tp_mesh.size()  # error: MP418
    parallelize_module(block, tp_mesh, {"attention.wq": ColwiseParallel()})

def heads_of_rank(config, tp_group):
    return config.num_key_value_heads // tp_group.size()  # error: MP418
""",
]

CORRECT = [
    """
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

def split_attention(block, tp_mesh, config):
    if config.num_heads % tp_mesh.size():
        raise ValueError(f"{tp_mesh.size()} ranks do not divide {config.num_heads} heads")
    block.attention.num_heads = block.attention.num_heads // tp_mesh.size()
    parallelize_module(block, tp_mesh, {"attention.wq": ColwiseParallel()})

def samples_of_rank(num_heads, data_mesh):
    return num_heads // data_mesh.size()
""",
    """
import torch.distributed as dist
from ulysses import gather_heads_scatter_seq, gather_seq_scatter_heads, get_ulysses_sequence_parallel_world_size

def ulysses_attention(query, key, value, attend):
    query = gather_seq_scatter_heads(query, seq_dim=1, head_dim=2)
    return gather_heads_scatter_seq(attend(query, key, value), seq_dim=1, head_dim=2)

def patch(model):
    size = get_ulysses_sequence_parallel_world_size()
    if model.config.num_attention_heads % size != 0:
        raise ValueError(f"{size} ranks do not divide {model.config.num_attention_heads} heads")
    model.attend = ulysses_attention
""",
    """
# file: pkg/__init__.py
# file: pkg/ulysses.py
import torch.distributed as dist

def validate(num_heads, ulysses_size):
    assert num_heads % ulysses_size == 0

def gather_seq_scatter_heads(x, seq_dim, head_dim):
    return x
# file: pkg/attention.py
import torch.distributed as dist
from pkg.ulysses import gather_seq_scatter_heads, validate

def attention(self, query, size):
    validate(self.num_heads, size)
    return gather_seq_scatter_heads(query, seq_dim=1, head_dim=2)
""",
    """
# file: pkg/__init__.py
# file: pkg/arguments.py
def validate(args, config):
    if config.num_attention_heads % args.tp_size:
        raise ValueError(f"{args.tp_size} ranks do not divide {config.num_attention_heads} heads")
# file: pkg/attention.py
import torch.distributed as dist
import torch.nn as nn

class Attention(nn.Module):
    def __init__(self, config, tp_size):
        self.num_heads = config.num_attention_heads // tp_size
        self.groups = config.num_attention_heads // config.num_key_value_heads
""",
    """
import torch.distributed as dist

def heads_of_rank(num_kv_heads, tp_size):
    if num_kv_heads < tp_size:
        return 1
    return num_kv_heads // tp_size
""",
    """
# file: pkg/__init__.py
# file: pkg/arguments.py
def validate(args, tp_size):
    for name in ("num_heads", "num_kv_heads"):
        if getattr(args, name) % tp_size:
            raise ValueError(f"{name} is no multiple of {tp_size}")
# file: pkg/attention.py
import torch.distributed as dist

class Attention:
    def __init__(self, args, tp_size):
        self.num_heads = args.num_heads // tp_size
""",
]

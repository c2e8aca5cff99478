"""Attention heads scattered over ranks whose number nothing has compared with theirs.

What it does
    Reports an exchange of heads against sequence in Ulysses attention (a call such as
    `gather_seq_scatter_heads(x, seq_dim=1, head_dim=2)`) in a module where no function tests that the ranks divide the
    heads, neither itself nor in a function that it calls.

Why is this bad
    Models with few key/value heads, or with a number of heads that the ranks do not divide, fail inside `all_to_all`
    with a message about shapes, after the weights have been loaded, or take heads of another.

References
    https://arxiv.org/abs/2309.14509
    https://github.com/volcengine/verl/pull/850
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.places import is_aside
from validator.analysis.quotients import Quotients
from validator.facts.model import Call
from validator.finding import Finding
from validator.project import Method, Module, Project
from validator.rule import Rule

RULE = Rule("MP418", "heads-unchecked", "warning", "0.1.0", tokens=("head",))

_SCATTERS = re.compile(r"scatter_heads?$|^all_to_all_heads$|scatter_heads?_gather_seq\w*$")


def check_project(project: Project) -> Iterator[Finding]:
    for module in project.modules.values():
        if is_aside(module.path) or "scatter_head" not in module.source.text:
            continue
        calls = [(f, c) for f in module.functions.values() for c in f.facts.calls if _SCATTERS.search(c.method)]
        calls = [(f, c) for f, c in calls if not _SCATTERS.search(f.name)]
        if calls and not _tested(project, module):
            yield _report(*min(calls, key=lambda row: row[1].at))


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
]

CORRECT = [
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
]

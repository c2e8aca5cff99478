"""A loop over slices of a sequence that leaves its last elements out.

What it does
    Reports `for i in range(n // size)`, `range(int(n / size))` or a range of a name for one of these, that takes
    `sequence[i * size : (i + 1) * size]` of the sequence whose length `n` is, where `size` is that of a batch and
    nothing checks that it divides the length.

Why is this bad
    The last part of the sequence is not seen: results are shorter than the inputs they belong to, and samples are
    lost or matched with those of others.

References
    https://github.com/huggingface/trl/pull/563
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bindings import Bindings, own_nodes
from validator.analysis.places import text_of
from validator.analysis.sizes.dimensions import tag_of
from validator.facts.text import path_of
from validator.finding import Finding
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP416", "remainder-dropped", "note", "0.1.0", tokens=("range(",))

_BATCH = re.compile(r"(micro|mini|forward)_?(batch|bsz)|batch_size$|(^|_)(fbs|mbs|bsz)$")


def check_project(project: Project) -> Iterator[Finding]:
    bindings = project.analysis(Bindings)
    for function in project.functions():
        loops = any(row.kind == "for" and row.value == "range" for row in function.facts.assigns)
        if not loops or is_aside(function.path) or "/" not in text_of(function):
            continue
        for node in own_nodes(function.node) if function.node is not None else ():
            if isinstance(node, ast.For) and (parts := _quotient(bindings, function, node.iter)) is not None:
                length, size = parts
                sequence = _sequence(bindings, function, length)
                sliced = sequence and _is_batch(bindings, function, size) and _slices(node, sequence, size)
                if sliced and not _checked(function, size):
                    yield _report(function, node.iter, sequence, ast.unparse(size))


def _quotient(bindings: Bindings, function: Method, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """`n` and `size` of `range(n // size)`, `range(int(n / size))` and of a range of a name for one of these."""
    if not isinstance(node, ast.Call) or path_of(node.func) != "range" or len(node.args) != 1:
        return None
    value = node.args[0]
    if isinstance(value, ast.Name):
        values = bindings.of(function).get(value.id, [])
        value = values[0] if len(values) == 1 and values[0] is not None else value
    if isinstance(value, ast.Call) and path_of(value.func) == "int" and len(value.args) == 1:
        value = value.args[0]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.FloorDiv | ast.Div):
        return value.left, value.right
    return None


def _sequence(bindings: Bindings, function: Method, node: ast.expr) -> str:
    """The sequence whose length an expression is."""
    if isinstance(node, ast.Name):
        values = bindings.of(function).get(node.id, [])
        node = values[0] if len(values) == 1 and values[0] is not None else node
    if isinstance(node, ast.Call) and path_of(node.func) == "len" and len(node.args) == 1:
        return path_of(node.args[0])
    return ""


def _is_batch(bindings: Bindings, function: Method, node: ast.expr) -> bool:
    texts = [path_of(node)]
    texts += [path_of(v) for v in bindings.of(function).get(path_of(node), []) if v is not None]
    return any(_BATCH.search(text.rpartition(".")[2]) or tag_of(text) in ("batch", "micro") for text in texts)


def _slices(loop: ast.For, sequence: str, size: ast.expr) -> bool:
    """Whether a loop takes slices of the sequence in steps of the size."""
    text = ast.unparse(size)
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and path_of(node.value) == sequence:
            lower = node.slice.lower
            if isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Mult) and text in ast.unparse(lower):
                return True
    return False


def _checked(function: Method, size: ast.expr) -> bool:
    """Whether the function takes a remainder by the size, which it then does something about."""
    name = ast.unparse(size)
    nodes = own_nodes(function.node) if function.node is not None else []
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) and ast.unparse(n.right) == name for n in nodes)


def _report(function: Method, node: ast.expr, sequence: str, size: str) -> Finding:
    return RULE.finding(
        function.path,
        function.module.source_text.at(node),
        f"`{function.qualname}` takes `{sequence}` in slices of `{size}` and leaves out what remains at its end",
        help=f"go on to the end, `range(0, len({sequence}), {size})`, or check first that `{size}` divides the length",
        context=f"{function.qualname}:{sequence}:{size}",
    )


INCORRECT = [
    """
from accelerate import Accelerator

def forward(model, queries, responses, config):
    bs = len(queries)
    fbs = config.mini_batch_size
    results = []
    for i in range(int(bs / fbs)):  # error: MP416
        batch = queries[i * fbs : (i + 1) * fbs]
        results.append(model(batch, responses[i * fbs : (i + 1) * fbs]))
    return results
""",
    """
import torch
import torch.distributed as dist

def log_probs(model, sequences, args):
    steps = len(sequences) // args.micro_batch_size
    found = []
    for i in range(steps):  # error: MP416
        found.append(model(sequences[i * args.micro_batch_size : (i + 1) * args.micro_batch_size]))
    return torch.cat(found)
""",
]

CORRECT = [
    """
import math
from accelerate import Accelerator

def forward(model, queries, config):
    bs = len(queries)
    fbs = config.mini_batch_size
    return [model(queries[i * fbs : (i + 1) * fbs]) for i in range(math.ceil(bs / fbs))]
""",
    """
from accelerate import Accelerator

def forward(model, queries, config):
    bs = len(queries)
    fbs = config.mini_batch_size
    assert bs % fbs == 0, f"{bs} queries are no multiple of {fbs}"
    results = []
    for i in range(bs // fbs):
        batch = queries[i * fbs : (i + 1) * fbs]
        results.append(model(batch))
    return results
""",
    """
from accelerate import Accelerator

def groups(prompts, n_samples_per_prompt):
    found = []
    for i in range(len(prompts) // n_samples_per_prompt):
        group = prompts[i * n_samples_per_prompt : (i + 1) * n_samples_per_prompt]
        found.append(group)
    return found
""",
    """
import torch
import torch.distributed as dist

def log_probs(model, sequences, args):
    steps = len(sequences) // args.micro_batch_size
    if len(sequences) % args.micro_batch_size:
        steps += 1
    found = []
    for i in range(steps):
        found.append(model(sequences[i * args.micro_batch_size : (i + 1) * args.micro_batch_size]))
    return torch.cat(found)
""",
]

"""Gradients divided by a sum over all ranks although sharded data parallelism has averaged them already.

What it does
    Reports a scaling of gradients, or of a loss before `backward()`, by one over a count that the function has summed
    over all ranks (`all_reduce`), in a class or file that shards or replicates its model over ranks, where the number
    of ranks is nowhere in the factor.

Why is this bad
    DDP and FSDP divide gradients by the number of ranks. Dividing by the tokens of all ranks as well makes them that
    many times too small: the learning rate shrinks with every GPU that is added.

References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
    https://github.com/pytorch/torchtune/pull/2172
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bindings import own_nodes
from validator.analysis.places import is_aside
from validator.facts.model import Call
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP414", "average-not-cancelled", "error", "0.1.0", tokens=("all_reduce",))

_SCALES = re.compile(r"^scale_grad\w*$")
_RANKS = re.compile(r"world_size|dp_size|dp_degree|data_parallel|num_processes|n_gpus|num_replicas")
_SHARDS = re.compile(r"fully_shard|shard_model|FullyShardedDataParallel|DistributedDataParallel|\bFSDP\b|\bDDP\b")
_DIVIDES_ITSELF = re.compile(r"set_(gradient|reduce_scatter|all_reduce)_divide_factor")


def check_project(project: Project) -> Iterator[Finding]:
    for function in dict.fromkeys(function for function, _ in project.calls("all_reduce")):
        if is_aside(function.path):
            continue
        summed = {c.positional[0].value: c for c in function.facts.calls if _sums_over_ranks(project, function, c)}
        if not summed:
            continue
        text = function.module.source.text
        if not _SHARDS.search(text) or _DIVIDES_ITSELF.search(text):
            continue
        found = [(node, count) for node, count in _scaled(function) if count in summed]
        if found:
            node, count = sorted(found, key=lambda row: _order(row[0]))[0]
            yield _report(function, node, summed[count], [n for n, _ in found if n is not node])


def _sums_over_ranks(project: Project, function: Method, call: Call) -> bool:
    """Whether a call sums a named value over all ranks in place."""
    if call.method != "all_reduce" or not call.positional or call.positional[0].kind != "path":
        return False
    op = call.keyword("op") or (call.positional[1] if len(call.positional) > 1 else None)
    if op is not None and not op.value.endswith("SUM"):
        return False
    return call.keyword("group") is None and project.dotted(function, call.target).startswith("torch.distributed.")


def _scaled(function: Method) -> Iterator[tuple[ast.AST, str]]:
    """The places where gradients, or a loss before `backward()`, are divided by a name."""
    lost = {c.receiver: c.at[0] for c in function.facts.calls if c.method == "backward" and not c.args}
    for node in own_nodes(function.node) if function.node is not None else ():
        if isinstance(node, ast.Call) and _SCALES.match(path_of(node.func).rpartition(".")[2]):
            for argument in node.args:
                if (name := _divisor(argument)) and not _RANKS.search(ast.unparse(argument)):
                    yield node, name
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = path_of(node.targets[0])
            before = target in lost and node.lineno < lost[target] and _is_quotient_of(node.value, target)
            if before and not _mentions_ranks(function, target) and (name := _divisor(node.value)):
                yield node, name


def _divisor(node: ast.expr) -> str:
    """`num_tokens` of `1 / num_tokens`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return path_of(node.right) if isinstance(node.right, ast.Name | ast.Attribute) else ""
    return ""


def _is_quotient_of(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and path_of(node.left) == name


def _mentions_ranks(function: Method, name: str) -> bool:
    """Whether some assignment to a loss multiplies by a number of ranks."""
    return any(_RANKS.search(row.value) for row in function.facts.assigns if row.target == name)


def _order(node: ast.AST) -> tuple[bool, int]:
    """Scaled gradients come first: there everything is accumulated, and the place is plain."""
    return (not isinstance(node, ast.Call), getattr(node, "lineno", 0))


def _report(function: Method, node: ast.AST, summed: Call, others: list[ast.AST]) -> Finding:
    count = summed.positional[0].value
    return RULE.finding(
        function.path,
        function.module.source_text.at(node),
        f"`{function.qualname}` divides gradients by `{count}`, summed over all ranks, but sharding has divided them by"
        " the number of ranks already",
        help=f"multiply by the number of ranks: `world_size / {count}`",
        related=[
            Related(function.path, summed.at[0], f"`{count}` is summed over all ranks here"),
            *(Related(function.path, getattr(other, "lineno", 1), "and here") for other in others),
        ],
        context=f"{function.qualname}:{count}",
    )


INCORRECT = [
    """
import torch
import torch.distributed as dist
from training import scale_grads, shard_model

class Recipe:
    def setup(self, model):
        self.model = shard_model(model)

    def train(self, batches):
        num_tokens = 0
        for batch in batches:
            num_tokens += batch.tokens
            loss = self.loss(batch) * batch.tokens
            loss.backward()
        dist.all_reduce(num_tokens)
        scale_grads(self.model, 1 / num_tokens)  # error: MP414
""",
    """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, batch, tokens):
    model = DDP(model)
    loss = model(batch)
    dist.all_reduce(tokens, op=dist.ReduceOp.SUM)
    loss = loss / tokens  # error: MP414
    loss.backward()
""",
]

CORRECT = [
    """
import torch.distributed as dist
from training import scale_grads, shard_model

class Recipe:
    def setup(self, model):
        self.model = shard_model(model)

    def train(self, num_tokens, world_size):
        dist.all_reduce(num_tokens)
        scale_grads(self.model, world_size / num_tokens)
""",
    """
import torch.distributed as dist
from training import scale_grads

class SingleDevice:
    def train(self, num_tokens):
        scale_grads(self.model, 1 / num_tokens)
""",
    """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, batch, tokens):
    model = DDP(model)
    loss = model(batch) * dist.get_world_size()
    dist.all_reduce(tokens)
    loss = loss / tokens
    loss.backward()
""",
]

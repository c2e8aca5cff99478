"""Gradients divided by a sum over all ranks although sharded data parallelism has averaged them already.

What it does
    Reports a scaling of gradients, or of a loss before `backward()`, by one over a count that the function has summed
    over all ranks (`all_reduce`) or over the data-parallel ones, in a class or file that shards or replicates its model
    over ranks, where the number of ranks is nowhere in the factor; and a loss divided by what an accelerator has
    gathered and summed, before `accelerator.backward(loss)`.

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
from validator.facts.model import Call
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP414", "average-not-cancelled", "error", "0.1.0", tokens=("all_reduce", "accelerator"))

_SCALES = re.compile(r"^scale_grad\w*$")
_RANKS = re.compile(r"world_size|dp_size|dp_degree|data_parallel|num_processes|n_gpus|num_replicas")
_SHARDS = re.compile(r"fully_shard|shard_model|FullyShardedDataParallel|DistributedDataParallel|\bFSDP\b|\bDDP\b")
_DATA_PARALLEL = re.compile(r"(^|[_.\"'])(dp|data_parallel)([_.\"')]|$)")
_DIVIDES_ITSELF = re.compile(r"set_(gradient|reduce_scatter|all_reduce)_divide_factor")


def check_project(project: Project) -> Iterator[Finding]:
    for function in dict.fromkeys(f for f, _ in project.calls("all_reduce", "backward")):
        if is_aside(function.path):
            continue
        text = function.module.source.text
        summed = dict(_gathered(function))
        if _SHARDS.search(text):
            calls = (c for c in function.facts.calls if _sums_over_ranks(project, function, c))
            summed |= {c.positional[0].value: c.at[0] for c in calls}
        if not summed or _DIVIDES_ITSELF.search(text):
            continue
        found = [(node, count) for node, count in _scaled(function) if count in summed]
        if found:
            node, count = sorted(found, key=lambda row: _order(row[0]))[0]
            yield _report(function, node, count, summed[count], [n for n, _ in found if n is not node])


def _sums_over_ranks(project: Project, function: Method, call: Call) -> bool:
    """Whether a call sums a named value over all ranks in place."""
    if call.method != "all_reduce" or not call.positional or call.positional[0].kind != "path":
        return False
    op = call.keyword("op") or (call.positional[1] if len(call.positional) > 1 else None)
    if op is not None and not op.value.endswith("SUM"):
        return False
    group = call.keyword("group")
    everybody = group is None or _DATA_PARALLEL.search(group.value) is not None
    return everybody and project.dotted(function, call.target).startswith("torch.distributed.")


def _gathered(function: Method) -> Iterator[tuple[str, int]]:
    """The names that a function binds to a sum over the processes of an accelerator that takes its gradients."""
    if not any(_is_accelerated(c) for c in function.facts.calls):
        return
    for node in own_nodes(function.node) if function.node is not None else ():
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call):
            path = path_of(node.value.func)
            gathers = re.search(r"(^|[._])accelerator\.gather(_for_metrics)?\(\)\.sum$", path) and not node.value.args
            reduces = re.search(r"(^|[._])accelerator\.reduce$", path) and "'sum'" in ast.unparse(node.value)
            if gathers or reduces:
                yield path_of(node.targets[0]), node.lineno


def _is_accelerated(call: Call) -> bool:
    return call.method == "backward" and call.receiver.rpartition(".")[2] == "accelerator" and bool(call.positional)


def _scaled(function: Method) -> Iterator[tuple[ast.AST, str]]:
    """The places where gradients, or a loss before `backward()`, are divided by a name."""
    lost = {c.receiver: c.at[0] for c in function.facts.calls if c.method == "backward" and not c.args}
    lost |= {c.positional[0].value: c.at[0] for c in function.facts.calls if _is_accelerated(c)}
    for node in own_nodes(function.node) if function.node is not None else ():
        if isinstance(node, ast.Call) and _SCALES.match(path_of(node.func).rpartition(".")[2]):
            for argument in node.args:
                if (name := _divisor(argument)) and not _RANKS.search(ast.unparse(argument)):
                    yield node, name
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = path_of(node.targets[0])
            before = target in lost and node.lineno < lost[target] and _is_quotient(node.value)
            if before and not _mentions_ranks(function, target) and (name := _divisor(node.value)):
                yield node, name


def _divisor(node: ast.expr) -> str:
    """`num_tokens` of `1 / num_tokens`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return path_of(node.right) if isinstance(node.right, ast.Name | ast.Attribute) else ""
    return ""


def _is_quotient(node: ast.expr) -> bool:
    """Whether a value is divided, and not by a number of ranks only for some of it."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and not _RANKS.search(ast.unparse(node))


def _mentions_ranks(function: Method, name: str) -> bool:
    """Whether some assignment to a loss multiplies by a number of ranks."""
    return any(_RANKS.search(row.value) for row in function.facts.assigns if row.target == name)


def _order(node: ast.AST) -> tuple[bool, int]:
    """Scaled gradients come first: there everything is accumulated, and the place is plain."""
    return (not isinstance(node, ast.Call), getattr(node, "lineno", 0))


def _report(function: Method, node: ast.AST, count: str, line: int, others: list[ast.AST]) -> Finding:
    return RULE.finding(
        function.path,
        function.module.source_text.at(node),
        f"`{function.qualname}` divides gradients by `{count}`, summed over all ranks, but sharding has divided them by"
        " the number of ranks already",
        help=f"multiply by the number of ranks: `world_size / {count}`",
        related=[
            Related(function.path, line, f"`{count}` is summed over all ranks here"),
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

def over_replicas(model, batch, tokens, dp_group):
    model = DDP(model, process_group=dp_group)
    dist.all_reduce(tokens, group=dp_group)
    loss = model(batch).sum() / tokens  # error: MP414
    loss.backward()
""",
    """
from accelerate import Accelerator

class Trainer:
    def step(self, model, batch):
        tokens = self.accelerator.gather(batch.tokens).sum()
        loss = model(batch).sum() / tokens  # error: MP414
        self.accelerator.backward(loss)
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

def over_a_ring(model, batch, tokens, ring_group):
    dist.all_reduce(tokens, group=ring_group)
    loss = DDP(model)(batch).sum() / tokens
    loss.backward()
""",
    """
from accelerate import Accelerator

class Trainer:
    def step(self, model, batch):
        tokens = self.accelerator.gather(batch.tokens).sum()
        loss = model(batch).sum() / tokens
        loss *= self.accelerator.num_processes
        self.accelerator.backward(loss)

    def share(self, model, batch):
        tokens = self.accelerator.gather(batch.tokens).sum()
        loss = model(batch).sum() * self.accelerator.num_processes / tokens
        self.accelerator.backward(loss)

    def logged(self, model, batch):
        tokens = self.accelerator.gather(batch.tokens).sum()
        loss = model(batch).mean()
        self.accelerator.backward(loss)
        return loss / tokens
""",
]

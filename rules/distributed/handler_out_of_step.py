"""A collective that the ranks reach, or miss, by an exception.

What it does
    Reports a collective inside an `except` block where neither the `try` block nor its `else` makes one. Also reports a
    `try` block with a collective in it whose handler for running out of memory makes none and raises nothing, or whose
    handler for an iterator that has ended goes on to the next round, or returns, without one. Silent where the
    exception means the same on every rank: missing modules, arguments or attributes that a release does not have.

Why is this bad
    An exception happens on one rank at a time: it alone comes to the collective in the handler, or it alone leaves the
    collective out. The others wait until the time-out of the process group.

References
    https://pytorch.org/docs/stable/distributed.html#torch.distributed.monitored_barrier
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.effects import Effects
from validator.analysis.places import is_aside, text_of
from validator.analysis.traces import NEXT, Fork, Op, Repeat, Step, Trace
from validator.facts.model import At
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP507", "handler-out-of-step", "error", "0.1.0", tokens=("except",))

# what a release, or the code itself, decides for all ranks alike
_ALIKE = frozenset({
    "ImportError", "ModuleNotFoundError", "AttributeError", "TypeError", "NameError", "NotImplementedError",
    "KeyError", "ValueError", "AssertionError", "FileNotFoundError", "KeyboardInterrupt", "SystemExit",
})  # fmt: skip
_OF_ONE_RANK = frozenset({"StopIteration", "Empty"})
_ENDING = frozenset({"exit", "_exit", "quit", "abort"})
_MEMORY = re.compile(r"out of memory|OutOfMemory", re.IGNORECASE)


def check_project(project: Project) -> Iterator[Finding]:
    effects = project.analysis(Effects)
    for function in effects.effectful():
        if is_aside(function.path) or function.name == "<class>" or "except" not in text_of(function):
            continue
        for node in ast.walk(function.node) if function.node is not None else ():
            if isinstance(node, ast.Try):
                yield from _judge(effects, function, node)


def _judge(effects: Effects, function: Method, node: ast.Try) -> Iterator[Finding]:
    tried = list(_operations(effects, function, [*node.body, *node.orelse]))
    for handler in node.handlers:
        names = _names(handler)
        if names and names <= _ALIKE:
            continue
        handled = list(_operations(effects, function, handler.body))
        if handled and not tried:  # a collective that is tried, and another in its place, is another matter
            yield _in_handler(function, handler, handled[0], names)
        elif tried and not handled and _passes_over(function, handler, names):
            yield _left_out(function, handler, tried[0], names)


def _operations(effects: Effects, function: Method, body: list[ast.stmt]) -> Iterator[Op]:
    """The collectives that some statements certainly issue, each where it stands in the function."""
    if not body:
        return
    first, last = body[0].lineno, max(each.end_lineno or 0 for each in body)
    rows = {**effects.direct.get(function, {}), **effects.reaching.get(function, {})}
    for at in sorted(rows):
        if first <= at[0] and at[2] <= last and any(each.lineno <= at[0] <= (each.end_lineno or 0) for each in body):
            yield from _certain(effects.after_call(function, rows[at][0], NEXT, 0))


def _certain(trace: Trace, forks: int = 3) -> Iterator[Op]:
    """The collectives of a trace that every way through it has; of two ways that both have some those of the first."""
    while isinstance(trace, Step | Repeat):
        if isinstance(trace, Step):
            yield trace.op
        trace = trace.rest
    if isinstance(trace, Fork) and forks and next(_certain(trace.no, forks - 1), None) is not None:
        yield from _certain(trace.yes, forks - 1)


def _names(handler: ast.ExceptHandler) -> frozenset[str]:
    """The last links of the exceptions that a handler takes; empty for all of them."""
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type] if handler.type else []
    return frozenset(path_of(each).rpartition(".")[2] for each in types)


def _passes_over(function: Method, handler: ast.ExceptHandler, names: frozenset[str]) -> bool:
    """Whether one rank alone goes on after a handler as if what was tried had been done."""
    memory = "OutOfMemoryError" in names or _MEMORY.search(ast.unparse(handler)) is not None
    body = _of_memory(handler) if memory else handler.body
    if any(isinstance(n, ast.Raise) for statement in body for n in ast.walk(statement)):
        return False
    if any(c.method in _ENDING for c in function.facts.calls if _lies_in(c.at, handler)):
        return False
    return memory or bool(names & _OF_ONE_RANK) and any(isinstance(n, ast.Continue | ast.Return) for n in body)


def _of_memory(handler: ast.ExceptHandler) -> list[ast.stmt]:
    """What a handler does when memory has run out: of one that asks for it, what follows from that."""
    for index, statement in enumerate(handler.body):
        if isinstance(statement, ast.If) and _MEMORY.search(ast.unparse(statement.test)):
            test = statement.test
            negated = isinstance(test, ast.UnaryOp) or (
                isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotIn)
            )
            way, rest = (statement.orelse if negated else statement.body), handler.body[index + 1 :]
            left = way and isinstance(way[-1], ast.Continue | ast.Return | ast.Break | ast.Raise)
            return [*handler.body[:index], *way, *(() if left else rest)]
    return handler.body


def _lies_in(at: At, handler: ast.ExceptHandler) -> bool:
    return handler.lineno <= at[0] and at[2] <= (handler.end_lineno or 0)


def _at(handler: ast.ExceptHandler) -> At:
    return (handler.lineno, handler.col_offset + 1, handler.lineno, handler.col_offset + 7)


def _in_handler(function: Method, handler: ast.ExceptHandler, op: Op, names: frozenset[str]) -> Finding:
    what = " or ".join(f"`{name}`" for name in sorted(names)) or "anything"
    return RULE.finding(
        function.path,
        op.here,
        f"not every rank reaches `{op.name}`: in `{function.qualname}` only ranks that catch {what} get there",
        help="note the failure in a variable, leave the handler, and let all ranks make the collective (`all_reduce` of"
        " the flag, to learn whether anybody failed)",
        related=[Related(function.path, handler.lineno, "the ranks part here")],
        context=f"{function.qualname}:{op.name}",
    )


def _left_out(function: Method, handler: ast.ExceptHandler, op: Op, names: frozenset[str]) -> Finding:
    what = " or ".join(f"`{name}`" for name in sorted(names)) or "anything"
    return RULE.finding(
        function.path,
        _at(handler),
        f"in `{function.qualname}` a rank that catches {what} goes on without `{op.name}`, in which the others wait",
        help="do the part that can fail before the collective, and let all ranks agree (`all_reduce` of a flag) on"
        " whether to go on",
        related=[Related(function.path, op.here[0], f"`{op.name}` is reached here")],
        context=f"{function.qualname}:{op.name}",
    )


INCORRECT = [
    """
import torch.distributed as dist

def step(model, batch):
    try:
        loss = model(batch)
    except RuntimeError:
        dist.barrier()  # error: MP507
        return None
    return loss
""",
    """
import torch
import torch.distributed as dist

def train(model, batches):
    for batch in batches:
        try:
            loss = model(batch)
            dist.all_reduce(loss)
        except torch.cuda.OutOfMemoryError:  # error: MP507
            torch.cuda.empty_cache()
            continue
""",
    """
import deepspeed
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Strategy:
    def prepare(self, model, optimizer):
        engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=optimizer)
        return engine, optimizer

    def backward(self, loss, model):
        model.backward(loss)

class Trainer:
    def __init__(self, strategy: Strategy, model):
        self.strategy = strategy
        self.model = model

    def fit(self, batches):
        for batch in batches:
            loss = self.model(batch)
            try:
                self.strategy.backward(loss, self.model)
            except torch.cuda.OutOfMemoryError:  # error: MP507
                continue

class Sharding(Strategy):
    def prepare(self, model, optimizer):
        return FSDP(model), optimizer

    def backward(self, loss, model):
        (loss / self.turns).backward()

def main(sharding: Sharding, model, optimizer, batches):
    model, optimizer = sharding.prepare(model, optimizer)
    Trainer(sharding, model).fit(batches)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

def shard(model):
    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)

class Trainer:
    def __init__(self, model):
        self.model = model

    def evaluate(self, batches):
        for batch in batches:
            try:
                self.model(batch)
            except torch.cuda.OutOfMemoryError:  # error: MP507
                continue

def main(model, batches):
    model = shard(model)
    Trainer(model).evaluate(batches)
""",
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, batches, optimizer):
    model = DDP(model)
    for batch in batches:
        loss = model(batch)
        try:
            loss.backward()
        except RuntimeError as error:  # error: MP507
            print("out of memory:", error)
        optimizer.step()

def skip(model, batches):
    model = DDP(model)
    for batch in batches:
        try:
            model(batch).mean().backward()
        except RuntimeError as error:  # error: MP507
            if "out of memory" in str(error):
                torch.cuda.empty_cache()
                continue
            raise

def accelerated(accelerator, model, batches):
    for batch in batches:
        try:
            accelerator.backward(model(batch).loss)
        except torch.OutOfMemoryError:  # error: MP507
            continue
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist

def train(model, batches, failed):
    for batch in batches:
        try:
            loss = model(batch)
        except torch.cuda.OutOfMemoryError:
            failed.fill_(1)
            loss = torch.zeros(1)
        dist.all_reduce(failed)
        dist.all_reduce(loss)
""",
    """
import torch.distributed as dist

def step(model, batch, flag):
    try:
        loss = model(batch)
    except RuntimeError:
        loss = None
        dist.all_reduce(flag)
    else:
        dist.all_reduce(flag)
    return loss

def gather(out, x):
    try:
        dist.all_gather_into_tensor(out, x)
    except RuntimeError:
        dist.all_gather(list(out), x)
    try:
        from fast import reduce
    except ImportError:
        dist.all_reduce(x)
""",
    """
import torch
import torch.distributed as dist

def train(model, batch):
    try:
        loss = model(batch)
        dist.all_reduce(loss)
    except torch.cuda.OutOfMemoryError:
        print("out of memory: use smaller batches")
        raise
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def __init__(self, model, draft):
        self.model = fully_shard(model)
        self.draft = draft

    def propose(self, batches):
        for batch in batches:
            try:
                self.draft(batch)
            except torch.cuda.OutOfMemoryError:
                continue

def train(model, draft, loss, batches):
    return Trainer(model, draft).propose(batches)
""",
    """
import sys
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, draft, batches, optimizer):
    model = DDP(model)
    for batch in batches:
        loss = model(batch)
        try:
            loss.backward()
        except torch.cuda.OutOfMemoryError:
            sys.exit("out of memory")
        optimizer.step()

def train_draft(draft, batches):
    for batch in batches:
        loss = draft(batch)
        try:
            loss.backward()
        except torch.cuda.OutOfMemoryError:
            continue

def explained(model, batches):
    model = DDP(model)
    for batch in batches:
        try:
            model(batch).mean().backward()
        except RuntimeError as error:
            if "out of memory" not in str(error):
                print("not for lack of memory")
            raise
""",
]

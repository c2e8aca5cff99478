"""A loss that is divided by the number of micro-batches only after its gradients have been taken.

What it does
    Reports a division by the number of micro-batches of the loss that a project function returns after calling
    `backward()` on it, and of a loss in the loop that has called `backward()` on it before, where nothing divided it
    earlier.

Why is this bad
    The division changes only the number that is logged. The gradients of all micro-batches are summed, so the step
    is as many times too large as there are micro-batches: with clipping it is another learning rate, without it the
    training diverges.

References
    https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.bindings import Bindings, own_nodes
from validator.facts.model import Call
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_aside
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP413", "scaled-after-backward", "error", "0.1.0", tokens=("backward",), solves=True)

_COUNT = re.compile(r"micro_?batch|accumulat|grad_acc|(^|_)n_?micro|num_micro", re.IGNORECASE)
_SIZE = re.compile(r"micro_?batch_?size")


def check_project(project: Project) -> Iterator[Finding]:
    bindings = project.analysis(Bindings)
    backward = {f for f, call in project.calls("backward") if _of_tensor(call) and not is_aside(f.path)}
    for function in sorted(backward, key=lambda f: (f.path, f.facts.at)):
        yield from _in_place(function)
        for caller, call in project.analysis(Objects).callers(function):
            if is_aside(caller.path) or call.use not in ("value", "return"):
                continue
            for node in own_nodes(caller.node) if caller.node is not None else ():
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _is_call(node.left, call.at[0]):
                    loss = _returned(function)
                    counts = _COUNT.search(path_of(node.right)) and not _SIZE.search(path_of(node.right))
                    if loss and counts and not _divided_before(bindings, function, loss):
                        yield _report_inner(function, loss, path_of(node.right), caller, node)


def _of_tensor(backward: Call) -> bool:
    """Whether a call is the `backward()` of a tensor: an engine's `backward(loss)` scales for itself."""
    return bool(backward.receiver) and not backward.args


def _is_call(node: ast.expr, line: int) -> bool:
    return isinstance(node, ast.Call) and node.lineno == line


def _returned(function: Method) -> str:
    """The name on which a function calls `backward()` and that it returns."""
    roots = {c.receiver for c in function.facts.calls if c.method == "backward" and not c.args}
    return next((r.value for r in function.facts.returns if r.kind == "path" and r.value in roots), "")


def _divided_before(bindings: Bindings, function: Method, loss: str) -> bool:
    """Whether a function divides its loss by a number of micro-batches itself."""
    values = bindings.of(function).get(loss, [])
    return any(value is None or _COUNT.search(ast.unparse(value)) for value in values)


def _in_place(function: Method) -> Iterator[Finding]:
    """`loss.backward()` and, later in the same block, `loss = loss / n_micro_batches`."""
    for block in _blocks(function):
        taken: dict[str, int] = {}
        for statement in block:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                target = path_of(statement.value.func)
                if target.endswith(".backward") and not statement.value.args:
                    taken[target.removesuffix(".backward")] = statement.lineno
            name, count = _rescaled(statement)
            if name in taken and not _scaled_earlier(function, name, taken[name]):
                yield _report(function, statement, count)


def _blocks(function: Method) -> Iterator[list[ast.stmt]]:
    for node in own_nodes(function.node) if function.node is not None else ():
        if isinstance(node, ast.For | ast.While):
            yield node.body


def _rescaled(statement: ast.stmt) -> tuple[str, str]:
    """The name and the count of `loss = loss / count` or `loss /= count`."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.value, ast.BinOp):
        name, value = path_of(statement.targets[0]), statement.value
        if isinstance(value.op, ast.Div) and path_of(value.left) == name and _counts(value.right):
            return name, path_of(value.right)
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Div) and _counts(statement.value):
        return path_of(statement.target), path_of(statement.value)
    return "", ""


def _counts(node: ast.expr) -> bool:
    return _COUNT.search(path_of(node)) is not None and not _SIZE.search(path_of(node))


def _scaled_earlier(function: Method, name: str, line: int) -> bool:
    rows = [row for row in function.facts.assigns if row.target == name and row.at[0] < line]
    return any(_COUNT.search(row.value) or row.kind == "aug" for row in rows)


def _report_inner(function: Method, loss: str, count: str, caller: Method, node: ast.AST) -> Finding:
    call = next(c for c in function.facts.calls if c.target == f"{loss}.backward")
    return RULE.finding(
        function.path,
        call.at,
        f"`{function.qualname}` takes the gradients of a loss that `{caller.name}` divides by `{count}` only"
        " afterwards: they are not divided",
        help=f"give `{count}` to `{function.name}` and divide by it before `backward()`",
        related=[Related(caller.path, getattr(node, "lineno", 1), f"`{caller.name}` divides what is returned")],
        context=f"{function.qualname}:{count}",
    )


def _report(function: Method, node: ast.AST, count: str) -> Finding:
    return RULE.finding(
        function.path,
        function.module.source_text.at(node),
        f"`{function.qualname}` divides the loss by `{count}` after `backward()`: the gradients are not divided",
        help=f"divide by `{count}` before `backward()`",
        context=f"{function.qualname}:{count}",
    )


INCORRECT = [
    """
import torch.distributed as dist

class Trainer:
    def _loss_and_backward(self, batch, do_backward=True):
        loss = self.model(batch).sum() / batch.tokens
        if do_backward:
            loss.backward()  # error: MP413
        return loss

    def training_step(self, batch):
        micro_batches = batch.split(self.micro_batch_size)
        n_micro_batches = len(micro_batches)
        total = 0
        for micro_batch in micro_batches:
            loss = self._loss_and_backward(micro_batch) / n_micro_batches
            total += loss.item()
        return total
""",
    """
import torch.distributed as dist

def step(model, batches, accumulation_steps):
    for batch in batches:
        loss = model(batch)
        loss.backward()
        loss = loss / accumulation_steps  # error: MP413
        print(loss)
""",
]

CORRECT = [
    """
import torch.distributed as dist

class Trainer:
    def _loss_and_backward(self, batch, n_micro_batches=1):
        loss = self.model(batch).sum() / batch.tokens
        loss = loss / n_micro_batches
        loss.backward()
        return loss

    def training_step(self, micro_batches):
        n_micro_batches = len(micro_batches)
        for micro_batch in micro_batches:
            loss = self._loss_and_backward(micro_batch, n_micro_batches) / n_micro_batches
        return loss
""",
    """
import torch.distributed as dist

class Trainer:
    def step(self, batches, accumulation_steps):
        total = 0
        for batch in batches:
            loss = self.engine(batch)
            self.engine.backward(loss)
            total += loss.item() / accumulation_steps
        return total
""",
]

"""A mean loss whose gradients are summed over micro-batches and never divided by their number.

What it does
    Reports `loss.backward()` in a loop whose optimizer steps once in several turns (`if (i + 1) % accumulation == 0:`),
    or after a loop over micro-batches, where the loss is a mean (`outputs.loss`, `….mean()`, `cross_entropy(…)`,
    `loss_fn(…)`) and neither it nor the gradients are divided by the number of turns. Reports the same of a method that
    takes the gradients of its parameter, in a class with a method that lets the optimizer step once in several turns,
    where a caller gives it such a loss (`strategy.backward(loss, model)`), or where a sibling of the class hands
    whatever loss it gets to a DeepSpeed engine, which divides it by `gradient_accumulation_steps`.

Why is this bad
    Gradients of the turns add up. Each loss is a mean over its own micro-batch, so the sum is as many times too large
    as there are micro-batches: more accumulation is a larger learning rate, and the norm that is clipped is another.

References
    https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-accumulation
    https://huggingface.co/blog/gradient_accumulation
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.bindings import Bindings, own_nodes
from validator.analysis.interfaces.given_losses import engine_of_sibling, given_losses, makers
from validator.analysis.places import text_of
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_aside
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP423", "loss-not-divided", "warning", "0.1.0", tokens=("backward",))

_COUNT = re.compile(r"accum|grad_acc|micro_?steps|num_micro|n_micro", re.IGNORECASE)
_MICRO = re.compile(r"micro_?batch(es)?$|(^|_)mbs?$|chunks?$|accum", re.IGNORECASE)
_OPTIMIZER = re.compile(r"(^|[._])(optim\w*|opt|scaler)(\[\])?$", re.IGNORECASE)
_STEPPING = re.compile(r"^_?(optimizer|optim|opt)_step$")
_LOSS_CALL = re.compile(r"(loss(_fn|_function|_func)?|criterion|cross_entropy|nll_loss|mse_loss)$", re.IGNORECASE)
# gradients, or a learning rate, that the function scales itself
_SCALED = re.compile(r"\bgrad\w*\b.*(/=|\*=|\bdiv_|\bmul_)|scale_grad|normalize_grad|_foreach_(div|mul)_")
_CLIPS = re.compile(r"max_norm|max_grad_norm|clip_coef|grad_clip")
_SUM = re.compile(r"reduction\s*=\s*[\"']?(sum|none)|\.sum\(|token_level|num_items_in_batch|loss_scale")


class Taken(NamedTuple):
    """A call of `backward()` on a named loss."""

    call: ast.Call
    loss: str


def check_project(project: Project) -> Iterator[Finding]:
    bindings = project.analysis(Bindings)
    for function in dict.fromkeys(f for f, call in project.calls("backward") if not call.args):
        steps = any(c.method == "step" or _STEPPING.search(c.method) for c in function.facts.calls)
        if not steps or is_aside(function.path) or _SCALED.search(text_of(function)):
            continue
        for count, taken in _accumulated(function):
            if not _divides(function, count) and _is_mean(project, bindings, function, taken):
                yield _report(function, taken, count)
    yield from _by_methods(project, bindings)


def _by_methods(project: Project, bindings: Bindings) -> Iterator[Finding]:
    """A strategy: one method takes the gradients of a loss that it is given, another lets the optimizer step."""
    for function in dict.fromkeys(f for f, call in project.calls("backward") if not call.args and f.cls is not None):
        names = {p.name for p in function.facts.params}
        given = [t for t in _taken(function.node.body) if t.loss in names] if function.node is not None else []
        count = _turns_of_class(function) if given and not is_aside(function.path) else ""
        if not count or _divides(function, count) or _scales(function):
            continue
        for taken in given:
            losses = list(given_losses(project, function, taken.loss))
            means = any(_is_mean(project, bindings, caller, Taken(taken.call, name)) for caller, name in losses)
            if means and not any(_divides_by(text_of(caller), count) for caller, _ in losses):
                yield _report(function, taken, count)
            elif losses and not any(_COUNT.search(t) for caller, name in losses for t in makers(project, caller, name)):
                sibling = engine_of_sibling(project, function, taken.loss)
                if sibling is not None:
                    yield _report(function, taken, count, sibling)


def _turns_of_class(function: Method) -> str:
    """The number of turns after which another method of the class lets an optimizer step; empty where none does."""
    assert function.cls is not None
    for method in function.cls.every_method():
        if any(c.method == "step" and _OPTIMIZER.search(c.receiver) for c in method.facts.calls):
            tests = (n.test for n in own_nodes(method.node) if isinstance(n, ast.If)) if method.node else ()
            if count := next((found for test in tests if (found := _turns(test))), ""):
                return count
    return ""


def _scales(function: Method) -> bool:
    """Whether a method of the class scales gradients, or a bound tells FSDP to."""
    assert function.cls is not None
    # what is done to clip them depends on their norm, not on how many turns they were added up in
    texts = [text for m in function.cls.every_method() if not _CLIPS.search(text := text_of(m))]
    return any(_SCALED.search(text) or "divide_factor" in text for text in texts)


def _accumulated(function: Method) -> Iterator[tuple[str, Taken]]:
    """The number of turns, as the source says it, and the gradients that are taken in each."""
    if function.node is not None:
        yield from _in_turns(function.node.body)  # each call is one turn
    for node in (function.node, *own_nodes(function.node)) if function.node is not None else ():
        for block in _blocks(node):
            for index, statement in enumerate(block):
                if isinstance(statement, ast.For) and not statement.orelse:
                    yield from _in_turns(statement.body)
                    if any(_steps(after) for after in block[index + 1 :]):
                        yield from _over_micro_batches(statement)


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block


def _in_turns(block: list[ast.stmt]) -> Iterator[tuple[str, Taken]]:
    """The body of a loop, or of a function, that steps where `turn % count` says so."""
    statements = list(_straight(block))
    for index, statement in enumerate(statements):
        if isinstance(statement, ast.If) and (count := _turns(statement.test)):
            left = isinstance(statement.body[-1], ast.Continue | ast.Return)
            stepping = statements[index + 1 :] if left else statement.body
            if any(map(_steps, stepping)):
                yield from ((count, taken) for taken in _taken(block))


def _over_micro_batches(loop: ast.For) -> Iterator[tuple[str, Taken]]:
    """A loop over the micro-batches of one step, which no turn of it takes."""
    if any(_steps(node) for node in loop.body):
        return
    count = _number(loop.iter)
    if count:
        yield from ((count, taken) for taken in _taken(loop.body))


def _number(node: ast.expr) -> str:
    """How many turns `range(accumulation_steps)` or a loop over micro-batches makes; empty for other loops."""
    if isinstance(node, ast.Call):
        name = path_of(node.func).rpartition(".")[2]
        if name == "range" and len(node.args) == 1:
            return ast.unparse(node.args[0]) if _COUNT.search(path_of(node.args[0])) else ""
        if name in ("enumerate", "tqdm") and node.args:
            return _number(node.args[0])
        if name in ("split", "chunk", "make_iterator") and node.args:
            return (
                f"len({ast.unparse(node)})" if "micro" in ast.unparse(node) or _COUNT.search(ast.unparse(node)) else ""
            )
        return ""
    return f"len({path_of(node)})" if _MICRO.search(path_of(node)) else ""


def _straight(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a block, those under `with` included, which every turn meets."""
    for statement in block:
        yield statement
        if isinstance(statement, ast.With):
            yield from _straight(statement.body)


def _taken(block: list[ast.stmt]) -> Iterator[Taken]:
    for statement in _straight(block):
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and not call.args:
            name = _loss(call.func.value) if call.func.attr == "backward" else ""
            if name:
                yield Taken(call, name)


def _loss(node: ast.expr) -> str:
    """`loss` of `loss.backward()` and of `scaler.scale(loss).backward()`."""
    if isinstance(node, ast.Call) and path_of(node.func).endswith("scale") and len(node.args) == 1:
        node = node.args[0]
    return node.id if isinstance(node, ast.Name) else ""


def _turns(test: ast.expr) -> str:
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _COUNT.search(path_of(node.right)):
            return path_of(node.right)
    return ""


def _steps(node: ast.AST) -> bool:
    """Whether an optimizer steps in a statement, whatever holds it."""
    called = [n.func for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return any(
        (func.attr == "step" and _OPTIMIZER.search(path_of(func.value))) or _STEPPING.search(func.attr)
        for func in called
    )


def _divides(function: Method, count: str) -> bool:
    """Whether the function, its class, or what it calls divides by the number of turns."""
    return _divides_by(function.module.source.text if function.cls is not None else text_of(function), count)


def _divides_by(text: str, count: str) -> bool:
    """Whether a text divides by a number; a floor division scales no loss."""
    tail = re.escape(count.rpartition(".")[2])
    if re.search(rf"(?<!/)/=?(?!/)\s*\(?[\w.]*{tail}|[*/]\s*len\(|(1\.?0?|[\w.]+)\s*/\s*(max\()?[\w.]*{tail}", text):
        return True
    return (
        count.startswith("len(") and re.search(r"/=?\s*(len\(|[\w.]*(num|count|accum|n_micro|total))", text) is not None
    )


def _is_mean(project: Project, bindings: Bindings, function: Method, taken: Taken) -> bool:
    """Whether every value of the loss is the mean of a micro-batch, as far as the source says."""
    values = bindings.of(function).get(taken.loss, [])
    return bool(values) and all(value is not None and _mean(project, function, value) for value in values)


def _mean(project: Project, function: Method, value: ast.expr) -> bool:
    if any(isinstance(n, ast.Div | ast.Mult) for n in ast.walk(value)) or _SUM.search(ast.unparse(value)):
        return False
    if isinstance(value, ast.Attribute | ast.Subscript):
        return path_of(value).endswith(".loss") or _key(value) == "loss"
    if not isinstance(value, ast.Call):
        return False
    target = path_of(value.func)
    if target.rpartition(".")[2] == "mean" and not value.args:
        return True
    if not _LOSS_CALL.search(target):
        return False
    bodies = [
        text_of(each)
        for each in project.analysis(Objects).run_at(function.module, function.module.source_text.at(value))
    ]
    return not any(_SUM.search(body) or _COUNT.search(body) for body in bodies)


def _key(node: ast.expr) -> object:
    return node.slice.value if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) else None


def _report(function: Method, taken: Taken, count: str, sibling: ClassDef | None = None) -> Finding:
    what = f"`{taken.loss}`" if sibling else f"`{taken.loss}`, a mean,"
    like = f", as the engine of `{sibling.name}` does" if sibling else ""
    found = [Related(sibling.path, sibling.facts.name_at[0], "the sibling")] if sibling else []
    return RULE.finding(
        function.path,
        function.module.source_text.at(taken.call),
        f"`{function.qualname}` adds up the gradients of {what} over `{count}` turns and divides"
        f" neither by their number{like}",
        help=f"divide first: `({taken.loss} / {count}).backward()`",
        related=found,
        context=f"{function.qualname}:{taken.loss}:{count}",
    )


_SIBLINGS = """
import deepspeed
import torch

class DeepspeedStrategy:
    def prepare(self, model):
        return deepspeed.initialize(model=model, config={{"gradient_accumulation_steps": self.accumulation}})

    def backward(self, loss, model):
        model.backward(loss)

    def optimizer_step(self, optimizer, model):
        model.step()

class FsdpStrategy:
    def backward(self, loss, model):
        {backward}

    def clip(self, model):
        for parameter in model.parameters():
            parameter.grad.mul_(min(1.0, self.max_norm / self.norm(model)))

    def optimizer_step(self, optimizer, model):
        self.turn += 1
        if self.turn % self.accumulation != 0:
            return
        self.clip(model)
        optimizer.step()

def get_strategy(args):
    if args.backend == "deepspeed":
        return DeepspeedStrategy()
    return FsdpStrategy()

def train(args, model, optimizer, batches):
    strategy = get_strategy(args)
    for batch in batches:
        loss = (model(batch) * batch.mask).sum(){divided}
        strategy.backward(loss, model)
        strategy.optimizer_step(optimizer, model)
"""

INCORRECT = [
    """
import torch

def train(model, loader, optimizer, accumulation_steps):
    for step, batch in enumerate(loader):
        loss = model(**batch).loss
        loss.backward()  # error: MP423
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()
            optimizer.zero_grad()

def train_step(self, batch, step):
    loss = self.model(**batch).loss
    loss.backward()  # error: MP423
    if (step + 1) % self.args.gradient_accumulation_steps != 0:
        return
    self.optimizer_step()
""",
    """
import torch
import torch.nn.functional as F

class Trainer:
    def train_step(self, batch):
        self.optimizer.zero_grad()
        for micro_batch in batch.split(self.micro_batch_size):
            with torch.autocast("cuda"):
                loss = F.cross_entropy(self.model(micro_batch.tokens), micro_batch.labels)
            self.scaler.scale(loss).backward()  # error: MP423
        self.scaler.step(self.optimizer)

    def step(self, batches, grad_accum_steps):
        for _ in range(grad_accum_steps):
            loss = self.compute_loss(next(batches))
            loss.backward()  # error: MP423
        self.optimizer.step()

    def compute_loss(self, batch):
        return self.model(batch).mean()
""",
    """
import torch

class Strategy:
    def __init__(self, args, dp_size):
        self.turn = 0
        self.accumulated_gradient = args.batch_size // args.micro_batch_size // dp_size
        self.rounds = args.turns // self.accumulated_gradient

    def backward(self, loss, model):
        self.turn += 1
        loss.backward()  # error: MP423

    def optimizer_step(self, optimizer):
        if self.turn % self.accumulated_gradient != 0:
            return
        optimizer.step()

class Trainer:
    def __init__(self, strategy: Strategy, model, optimizer):
        self.strategy = strategy
        self.model = model
        self.optimizer = optimizer

    def fit(self, batches):
        for batch in batches:
            loss = self.model(**batch).loss
            self.strategy.backward(loss, self.model)
            self.strategy.optimizer_step(self.optimizer)
""",
    _SIBLINGS.format(backward="loss.backward()  # error: MP423", divided=" / batch.mask.sum()"),
]

CORRECT = [
    _SIBLINGS.format(backward="(loss * self.share).backward()", divided=""),
    _SIBLINGS.format(backward="loss.backward()", divided=" / args.grad_accum"),
    """
import torch

def train(model, loader, optimizer, accumulation_steps):
    for step, batch in enumerate(loader):
        loss = model(**batch).loss / accumulation_steps
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            optimizer.step()

def summed(model, loader, optimizer, accumulation_steps, tokens):
    for step, batch in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(batch), batch.labels, reduction="sum")
        loss.backward()
        if (step + 1) % accumulation_steps == 0:
            for parameter in model.parameters():
                parameter.grad /= tokens
            optimizer.step()
""",
    """
import torch

class Trainer:
    def train_step(self, micro_batches):
        for micro_batch in micro_batches:
            loss = self.compute_loss(micro_batch)
            loss.backward()
        self.optimizer.step()

    def compute_loss(self, micro_batch):
        return self.model(micro_batch).sum() / self.tokens_of_the_batch
""",
    """
import torch

def two_losses(models, batch, optimizer, log_every):
    for step, (model, name) in enumerate(models):
        loss = model(batch).loss
        loss.backward()
        optimizer.step()
        if step % log_every == 0:
            print(name, loss)

def epochs(model, loader, optimizer):
    for batch in loader:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
""",
    """
import torch

class Strategy:
    def backward(self, loss, model):
        self.turn += 1
        loss.backward()

    def optimizer_step(self, optimizer):
        if self.turn % self.accumulated_gradient == 0:
            optimizer.step()

class Scaling(Strategy):
    def backward(self, loss, model):
        (loss / self.accumulated_gradient).backward()

class Trainer:
    def __init__(self, strategy: Strategy, model, optimizer):
        self.strategy = strategy
        self.model = model
        self.optimizer = optimizer

    def fit(self, batches):
        for batch in batches:
            loss = self.model(**batch).loss / self.strategy.accumulated_gradient
            self.strategy.backward(loss, self.model)
            self.strategy.optimizer_step(self.optimizer)
""",
    """
import torch

class EveryTurn:
    def backward(self, loss, model):
        loss.backward()

    def optimizer_step(self, optimizer, turn, log_every):
        optimizer.step()
        if turn % log_every == 0:
            print(turn)

class Trainer:
    def __init__(self, strategy: EveryTurn, model, optimizer):
        self.strategy = strategy
        self.model = model
        self.optimizer = optimizer

    def fit(self, batches):
        for turn, batch in enumerate(batches):
            loss = self.model(**batch).loss
            self.strategy.backward(loss, self.model)
            self.strategy.optimizer_step(self.optimizer, turn, 10)
""",
]

"""A loss that is divided by the accumulation steps and handed to a `backward` that divides it again.

What it does
    Reports `accelerator.backward(loss)` of an `Accelerator` that was told `gradient_accumulation_steps`, and
    `engine.backward(loss)` of a DeepSpeed engine, where the loss was divided by the same number before.

Why is this bad
    Both divide the loss by their accumulation steps themselves. Divided twice, gradients are as many times too small
    as there are micro-batches in a step, and the learning rate means something else with every setting of it.

References
    https://huggingface.co/docs/accelerate/usage_guides/gradient_accumulation
    https://deepspeed.readthedocs.io/en/latest/training.html#backward-propagation
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache

from validator.analysis.bindings import own_nodes
from validator.analysis.places import is_aside, text_of
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.project import Method, Module, Project
from validator.rule import Rule

RULE = Rule("MP424", "loss-divided-twice", "error", "0.1.0", tokens=("backward",))

_STEPS = "gradient_accumulation_steps"
_WORDS = ("Accelerator", "AccumulationPlugin", "deepspeed.initialize", _STEPS)
_ENGINE = re.compile(r"(^|[._])(\w*engine|model)$")


def check_project(project: Project) -> Iterator[Finding]:
    calling = (function for function, call in project.calls("backward") if len(call.args) == 1)
    for function in dict.fromkeys(calling):
        text = function.module.source.text
        if is_aside(function.path) or ("ccelerator" not in text and "deepspeed" not in text):
            continue
        for node, tests in _statements(function):
            if isinstance(node, ast.Call) and _is_backward(node):
                owner = path_of(node.func).removesuffix(".backward")
                again = _divisors(owner, function.module)
                for divided, count, around in _divisions(function, node):
                    if count in again and set(around) <= set(tests) and divided.lineno <= node.lineno:
                        yield _report(function, node, divided, count, owner)
                        break


def _is_backward(node: ast.Call) -> bool:
    return path_of(node.func).endswith(".backward") and len(node.args) == 1 and not node.keywords


def _statements(function: Method) -> Iterator[tuple[ast.AST, tuple[ast.AST, ...]]]:
    """The nodes of a function, each with the conditions around it."""
    stack: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(function.node, ())] if function.node is not None else []
    while stack:
        node, tests = stack.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                continue
            inside = (*tests, node) if isinstance(node, ast.If | ast.IfExp) and child is not node.test else tests
            yield child, inside
            stack.append((child, inside))


def _divisions(function: Method, call: ast.Call) -> Iterator[tuple[ast.expr | ast.stmt, str, tuple[ast.AST, ...]]]:
    """Where what is given to `backward` is divided, by what, and under which conditions."""
    argument = call.args[0]
    if isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Div):
        yield argument, _text(argument.right), ()
    name = path_of(argument)
    for node, tests in _statements(function):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and path_of(node.target) == name:
            yield node, _text(node.value), tests
        if isinstance(node, ast.Assign) and name in map(path_of, node.targets):
            value = node.value
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
                yield node, _text(value.right), tests


def _text(node: ast.expr) -> str:
    """A divisor by its last name: `steps` of `self.args.steps`, and of `engine.steps()` too."""
    if isinstance(node, ast.Call) and not node.args:
        return path_of(node.func).rpartition(".")[2]
    if isinstance(node, ast.Constant):
        return repr(node.value) if node.value != 1 else ""
    return path_of(node).rpartition(".")[2]


def _divisors(owner: str, module: Module) -> frozenset[str]:
    """By what the `backward` of an owner divides, as last names; empty for an owner that is not known to."""
    name = owner.rpartition(".")[2]
    accelerators, configurations, engines = _made(module)
    if name == "accelerator" and accelerators:
        return accelerators
    if owner in engines and _ENGINE.search(owner):
        return configurations
    return frozenset()


@lru_cache(maxsize=64)
def _made(module: Module) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """What a module tells its accelerators and its DeepSpeed configurations, and where it keeps its engines."""
    accelerators: set[str] = set()
    configurations: set[str] = set()
    engines: set[str] = set()
    for function in module.functions.values():
        speaks = any(word in text_of(function) for word in _WORDS)  # before it is parsed
        for node in own_nodes(function.node) if speaks and function.node is not None else ():
            if isinstance(node, ast.Call) and path_of(node.func).rpartition(".")[2] in (
                "Accelerator", "GradientAccumulationPlugin",
            ):  # fmt: skip
                given = [_text(k.value) for k in node.keywords if k.arg in (_STEPS, "num_steps")]
                accelerators |= {each for each in given if each and each != "1"}
            elif isinstance(node, ast.Dict):
                configurations |= set(_configured(node))
            elif isinstance(node, ast.Assign) and _initializes(node.value):
                engines |= {path_of(first) for target in node.targets if (first := _first(target)) is not None}
    if accelerators:
        accelerators.add(_STEPS)  # the accelerator's own attribute
    return (
        frozenset(accelerators),
        frozenset(configurations | ({_STEPS} if configurations else set())),
        frozenset(engines),
    )


def _initializes(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and path_of(node.func) == "deepspeed.initialize"


def _configured(node: ast.Dict) -> Iterator[str]:
    for key, value in zip(node.keys, node.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == _STEPS and _text(value) not in ("", "auto"):
            yield _text(value)


def _first(target: ast.expr) -> ast.expr | None:
    return target.elts[0] if isinstance(target, ast.Tuple | ast.List) and target.elts else None


def _report(function: Method, call: ast.Call, divided: ast.AST, count: str, owner: str) -> Finding:
    return RULE.finding(
        function.path,
        function.module.source_text.at(call),
        f"`{function.qualname}` divides the loss by `{count}`, and `{owner}.backward` divides it again",
        help=f"give the loss undivided to `{owner}.backward`",
        related=[Related(function.path, getattr(divided, "lineno", 1), "divided by hand here")],
        context=f"{function.qualname}:{owner}:{count}",
    )


INCORRECT = [
    """
from accelerate import Accelerator

def train(args, model, loader, optimizer):
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            loss = loss / args.gradient_accumulation_steps
            accelerator.backward(loss)  # error: MP424
            optimizer.step()

def again(accelerator, model, batch):
    accelerator.backward(model(batch).loss / accelerator.gradient_accumulation_steps)  # error: MP424
""",
    """
import deepspeed

class Trainer:
    def setup(self, args, model):
        config = {"gradient_accumulation_steps": args.accumulated_gradient, "zero_optimization": {"stage": 2}}
        self.engine, _, _, _ = deepspeed.initialize(model=model, config=config)

    def step(self, args, batch):
        loss = self.engine(batch)
        loss /= args.accumulated_gradient
        self.engine.backward(loss)  # error: MP424
        self.engine.step()
""",
]

CORRECT = [
    """
from accelerate import Accelerator

def by_hand(args, model, loader, optimizer):
    accelerator = Accelerator()
    for step, batch in enumerate(loader):
        loss = model(**batch).loss / args.gradient_accumulation_steps
        accelerator.backward(loss)
        if step % args.gradient_accumulation_steps == 0:
            optimizer.step()
""",
    """
from accelerate import Accelerator

def train(args, model, batch):
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps)
    loss = model(**batch).loss
    accelerator.backward(loss)
    print(loss / args.gradient_accumulation_steps)

def tokens(args, model, batch, accelerator, tokens):
    accelerator.backward(model(batch).sum() / tokens)
""",
    """
import deepspeed

def train(args, model, batch):
    config = {"gradient_accumulation_steps": 1}
    engine, _, _, _ = deepspeed.initialize(model=model, config=config)
    loss = engine(batch) / args.accumulated_gradient
    engine.backward(loss)

def unscaled(args, model, batch):
    config = {"gradient_accumulation_steps": args.steps}
    engine, _, _, _ = deepspeed.initialize(model=model, config=config)
    engine.backward(engine(batch) / args.steps, scale_wrt_gas=False)
""",
]

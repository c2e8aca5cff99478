"""A loss that is divided by the accumulation steps and handed to a `backward` that divides it again.

What it does
    Reports `accelerator.backward(loss)` of an `Accelerator` that was told `gradient_accumulation_steps`, and
    `engine.backward(loss)` of a DeepSpeed engine, where the loss was divided by the same number before. Reports the
    same of a `backward` of the project (`strategy.backward(loss, model)`) that divides its loss, or hands it to one of
    those.

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
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

from validator.analysis.bindings import own_nodes
from validator.analysis.places import text_of
from validator.facts.model import At, Call
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.flow import Flow
from validator.flow.objects import Objects
from validator.flow.queries.base import Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import ClassDef, Method, Module, Project
from validator.rule import Rule

RULE = Rule("MP424", "loss-divided-twice", "error", "0.1.0", tokens=("backward",), solves=True)

_STEPS = "gradient_accumulation_steps"
_WORDS = ("Accelerator", "AccumulationPlugin", "deepspeed.initialize", _STEPS, "train_batch_size")
_ENGINE = re.compile(r"(^|[._])(\w*engine|model)$")
_ACCUMULATION = re.compile(r"accum", re.IGNORECASE)
# DeepSpeed finds its accumulation steps by these two
_DERIVED = frozenset({"train_batch_size", "train_micro_batch_size_per_gpu"})


class Divided(NamedTuple):
    """Where a loss is divided, by what (a last name), and under which conditions."""

    node: ast.expr | ast.stmt
    divisor: str
    around: tuple[ast.AST, ...]


def check_project(project: Project) -> Iterator[Finding]:
    twice = Twice(project)
    calling: dict[Method, dict[At, Call]] = {}
    for function, call in project.calls("backward"):
        if call.args and not is_aside(function.path):
            calling.setdefault(function, {})[call.at] = call
    for function, calls in calling.items():
        words = function.module.source.text
        if "ccelerator" not in words and "deepspeed" not in words and not twice.reaches(function, calls.values()):
            continue
        for node, tests in _statements(function):
            place = function.module.source_text.at(node) if _is_backward(node) else None
            if place not in calls or not isinstance(node, ast.Call):
                continue
            for owner, again in twice.divisors(function, node, calls[place]):
                divided = next((d for d in _divisions(function, node) if _counts(d, again, node, tests)), None)
                if divided is not None:
                    yield _report(function, node, divided.node, divided.divisor, owner)
                    break


def _is_certain(divided: Divided) -> bool:
    """Whether no other condition than one about the divisor keeps a loss from being divided."""
    tests = (ast.unparse(each.test) for each in divided.around if isinstance(each, ast.If | ast.IfExp))
    return bool(divided.divisor) and all(divided.divisor in test for test in tests)


def _counts(divided: Divided, again: frozenset[str], call: ast.Call, tests: tuple[ast.AST, ...]) -> bool:
    return divided.divisor in again and set(divided.around) <= set(tests) and divided.node.lineno <= call.lineno


class Twice:
    """What the `backward` of an object divides its loss by."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.flow = project.analysis(Flow)
        self._known: dict[Method, frozenset[str]] = {}

    def reaches(self, function: Method, calls: Iterable[Call]) -> bool:
        """Whether one of the calls is of a function of the project that divides."""
        return any(self._within(target) for call in calls for target in self._targets(function, call))

    def divisors(self, function: Method, node: ast.Call, call: Call) -> Iterator[tuple[str, frozenset[str]]]:
        """Each callee that divides, by its name in a message, with the last names of what it divides by."""
        if len(node.args) == 1 and not any(k.arg == "scale_wrt_gas" for k in node.keywords):
            yield f"{call.receiver}.backward", self._of(function, call.receiver, call.at)
        for target in self._targets(function, call):
            yield target.qualname, self._within(target)

    def _targets(self, function: Method, call: Call) -> list[Method]:
        targets = self.project.analysis(Objects).targets(function, call)
        return sorted((t for t in targets if t.name == "backward"), key=lambda t: (t.path, t.qualname))

    def _of(self, function: Method, owner: str, at: At) -> frozenset[str]:
        accelerators, configurations, engines = _made(function.module)
        if owner.rpartition(".")[2] == "accelerator" and accelerators:
            return accelerators
        known = owner in engines and _ENGINE.search(owner) or self._is_engine(function, at)
        return configurations if known else frozenset()

    def _is_engine(self, function: Method, at: At) -> bool:
        """Whether the method that is called at a place is one of a DeepSpeed engine."""
        unit = self.flow.unit_of(function)
        for value in unit.code.values if unit is not None else ():
            if unit is not None and value.op == "call" and unit.at(value.at) == at:
                callee = self.flow.close(self.flow.result(unit).vals[value.args[0]], unit)
                known = any(o[0] == "ext" and o[1].startswith("deepspeed.DeepSpeedEngine.") for o in callee.objs)
                return known or all(o[0] == "top" for o in callee.objs) and function.cls in self._makers
        return False

    @cached_property
    def _makers(self) -> frozenset[ClassDef | None]:
        """The classes that make engines: a model whose `backward` they call with a loss is one."""
        made = self.project.analysis(Queries).calls("deepspeed.initialize")
        return frozenset(place.unit.cls for place in made) - {None}

    def _within(self, target: Method) -> frozenset[str]:
        """What a function divides a parameter by that it takes the gradients of, or hands on to what divides it."""
        if target not in self._known:
            self._known[target] = frozenset()  # what calls itself adds nothing
            self._known[target] = frozenset(self._divides(target))
        return self._known[target]

    def _divides(self, target: Method) -> Iterator[str]:
        names = {p.name for p in target.facts.params}
        for node, _ in _statements(target):
            if not _is_backward(node) or not isinstance(node, ast.Call):
                continue
            loss = node.args[0] if node.args else node.func.value  # type: ignore[attr-defined]
            if {n.id for n in ast.walk(loss) if isinstance(n, ast.Name)} & names:
                yield from (d.divisor for d in _divided(target, loss) if not node.args and _is_certain(d))
                if node.args and path_of(loss) in names:
                    at = target.module.source_text.at(node)
                    yield from self._of(target, path_of(node.func).removesuffix(".backward"), at)


def _is_backward(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward"


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


def _divisions(function: Method, call: ast.Call) -> Iterator[Divided]:
    """Where what is given to `backward` is divided."""
    if call.args:
        yield from _divided(function, call.args[0])


def _divided(function: Method, loss: ast.expr) -> Iterator[Divided]:
    """Where a loss is divided, in its own expression or when its name is bound."""
    if isinstance(loss, ast.BinOp) and isinstance(loss.op, ast.Div):
        yield Divided(loss, _text(loss.right), ())
    name = path_of(loss)
    for node, tests in _statements(function):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div) and path_of(node.target) == name:
            yield Divided(node, _text(node.value), tests)
        if isinstance(node, ast.Assign) and name in map(path_of, node.targets):
            value = node.value
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
                yield Divided(node, _text(value.right), tests)


def _text(node: ast.expr) -> str:
    """A divisor by its last name: `steps` of `self.args.steps`, and of `engine.steps()` too."""
    if isinstance(node, ast.Call) and not node.args:
        return path_of(node.func).rpartition(".")[2]
    if isinstance(node, ast.Constant):
        return repr(node.value) if node.value != 1 else ""
    return path_of(node).rpartition(".")[2]


@lru_cache(maxsize=64)
def _made(module: Module) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """What a module tells its accelerators and its DeepSpeed configurations, and where it keeps its engines."""
    accelerators: set[str] = set()
    configurations: set[str] = set()
    engines: set[str] = set()
    counts: set[str] = set()
    for function in module.functions.values():
        speaks = any(word in text_of(function) for word in _WORDS)  # before it is parsed
        keys: set[object] = set()
        for node in own_nodes(function.node) if speaks and function.node is not None else ():
            if isinstance(node, ast.Call) and path_of(node.func).rpartition(".")[2] in (
                "Accelerator", "GradientAccumulationPlugin",
            ):  # fmt: skip
                given = [_text(k.value) for k in node.keywords if k.arg in (_STEPS, "num_steps")]
                accelerators |= {each for each in given if each and each != "1"}
            elif isinstance(node, ast.Assign) and _initializes(node.value):
                engines |= {path_of(first) for target in node.targets if (first := _first(target)) is not None}
            for key, value in _entries(node):
                keys.add(key)
                if key == _STEPS and _text(value) not in ("", "auto"):
                    configurations.add(_text(value))
        if keys >= _DERIVED and _STEPS not in keys:
            counts |= {name for f in module.functions.values() for name in _counting(f)}
    if accelerators:
        accelerators.add(_STEPS)  # the accelerator's own attribute
    configurations |= counts
    return (
        frozenset(accelerators),
        frozenset(configurations | ({_STEPS} if configurations else set())),
        frozenset(engines),
    )


def _counting(function: Method) -> Iterator[str]:
    """The names that a function gives to a number of accumulation steps."""
    for row in function.facts.assigns:
        name = row.target.rpartition(".")[2]
        if _ACCUMULATION.search(name):
            yield name


def _entries(node: ast.AST) -> Iterator[tuple[object, ast.expr]]:
    """The keys and values of a literal dictionary, and of `config["key"] = value`."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield key.value, value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                yield target.slice.value, node.value


def _initializes(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and path_of(node.func) == "deepspeed.initialize"


def _first(target: ast.expr) -> ast.expr | None:
    return target.elts[0] if isinstance(target, ast.Tuple | ast.List) and target.elts else None


def _report(function: Method, call: ast.Call, divided: ast.AST, count: str, owner: str) -> Finding:
    return RULE.finding(
        function.path,
        function.module.source_text.at(call),
        f"`{function.qualname}` divides the loss by `{count}`, and `{owner}` divides it again",
        help=f"give the loss undivided to `{owner}`",
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
    """
import deepspeed

class DeepspeedStrategy:
    def setup(self, args, dp_size):
        self.accumulated_gradient = args.train_batch_size // (args.micro_batch_size * dp_size)

    def prepare(self, model, args):
        config = {"train_batch_size": args.train_batch_size, "train_micro_batch_size_per_gpu": args.micro_batch_size}
        engine, _, _, _ = deepspeed.initialize(model=model, config=config)
        return engine

    def backward(self, loss, model):
        model.backward(loss / self.accumulated_gradient)  # error: MP424
""",
    """
class FSDPStrategy:
    def backward(self, loss, model, optimizer):
        loss = loss / self.accumulated_gradient
        loss.backward()

class Trainer:
    def __init__(self, strategy: FSDPStrategy, model, optimizer):
        self.strategy = strategy
        self.model = model
        self.optimizer = optimizer

    def fit(self, batches):
        for batch in batches:
            loss = self.model(batch).loss / self.strategy.accumulated_gradient
            self.strategy.backward(loss, self.model, self.optimizer)  # error: MP424
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
    """
import deepspeed

class DeepspeedStrategy:
    def setup(self, args, dp_size):
        self.accumulated_gradient = args.train_batch_size // (args.micro_batch_size * dp_size)

    def prepare(self, model, args):
        config = {"train_batch_size": args.train_batch_size, "train_micro_batch_size_per_gpu": args.micro_batch_size}
        engine, _, _, _ = deepspeed.initialize(model=model, config=config)
        return engine

    def backward(self, loss, model):
        model.backward(loss)

class FSDPStrategy:
    def backward(self, loss, model):
        (loss / self.accumulated_gradient).backward()

class Trainer:
    def __init__(self, strategy: FSDPStrategy, other: DeepspeedStrategy, model):
        self.strategy = strategy
        self.other = other
        self.model = model

    def fit(self, batches, tokens, log):
        for batch in batches:
            loss = self.model(batch).sum() / tokens
            self.strategy.backward(loss, self.model)
            self.other.backward(loss, self.model)
            log(loss / self.strategy.accumulated_gradient)
""",
]

"""An iterator that is used up by the first of two loops.

What it does
    Reports a parameter annotated `Iterable` or `Iterator`, or a variable that holds a generator (`model.parameters()`,
    `filter(…)`, `map(…)`, `zip(…)`, a generator expression), that a function goes through twice on one path without
    making a list of it. A single read that hands it on to a call counts as going through it.

Why is this bad
    `model.parameters()` is a generator. The second pass sees nothing and says nothing: gradients are measured and
    then not clipped, weights are counted and then not sent.

References
    https://docs.python.org/3/glossary.html#term-generator-iterator
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from validator.analysis.bodies import Bodies
from validator.analysis.places import is_aside, text_of
from validator.facts.control import terminates
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP534", "exhausted-iterator", "error", "0.1.0", tokens=("torch", "Itera"))

_ANNOTATED = re.compile(r"\b(Iterable|Iterator|Generator)\b")
_LISTS = re.compile(r"\b(Sequence|list|List|tuple|Tuple|Collection|Dataset|DataLoader|str)\b")
_GENERATORS = frozenset({"filter", "map", "zip", "iter", "enumerate"})
_MAKERS = frozenset({"parameters", "named_parameters", "buffers", "named_buffers", "modules", "named_modules"})
_CONSUMING = frozenset({"list", "tuple", "sum", "max", "min", "any", "all", "set", "sorted", "dict"})
_Loop = ast.For | ast.comprehension


def check_project(project: Project) -> Iterator[Finding]:
    bodies = project.analysis(Bodies)
    for function in project.functions():
        if is_aside(function.path):
            continue
        names = _iterators(function)
        text = text_of(function) if names else ""
        names = {name: line for name, line in names.items() if text.count(name) > 2}
        node = bodies.node(function) if names else None
        if node is None:
            continue
        for name, start in names.items():
            uses = _passes(node, name, start)
            pair = next(((a, b) for i, a in enumerate(uses) for b in uses[i + 1 :] if not _apart(node, a, b)), None)
            if pair is not None and not _rebound(node, name, start):
                yield _report(function, name, *pair)


def _iterators(function: Method) -> dict[str, int]:
    """Names that hold an iterator, with the line from which they do."""
    found = {}
    for param in function.facts.params:
        if (
            param.kind in ("any", "kw", "pos")
            and _ANNOTATED.search(param.annotation)
            and not _LISTS.search(param.annotation)
        ):
            found[param.name] = 0
    for row in function.facts.assigns:
        if row.kind == "call" and "." not in row.target and "[" not in row.target:
            last = row.value.rpartition(".")[2]
            if row.value in _GENERATORS or (last in _MAKERS and "." in row.value):
                found[row.target] = row.at[2]
        elif row.kind == "other" and row.target in found:
            del found[row.target]
    return found


def _passes(node: ast.AST, name: str, start: int) -> list[ast.AST]:
    """The places that go through the name, in the order of the source."""
    found: list[ast.AST] = []
    for each in ast.walk(node):
        if isinstance(each, _Loop) and _is(each.iter, name):
            found.append(each.iter)
        elif isinstance(each, ast.Call):
            arguments = [*each.args, *(k.value for k in each.keywords)]
            target = path_of(each.func)
            plain = target in _CONSUMING or (target in _GENERATORS and target != "iter")
            handed = target.rpartition(".")[2] in ("clip_grad_norm_", "clip_grads_with_norm_", "get_total_norm")
            if plain or handed:
                found += [a for a in arguments if _is(a, name)]
    return sorted((n for n in found if n.lineno > start), key=lambda n: (n.lineno, n.col_offset))  # type: ignore[attr-defined]


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _rebound(node: ast.AST, name: str, start: int) -> bool:
    """Whether the name is bound again, so that which value is gone through cannot be told."""
    stores = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]
    return len(stores) > (1 if start else 0)


def _apart(node: ast.AST, first: ast.AST, second: ast.AST) -> bool:
    """Whether two places never run one after the other: arms of one branch, or the first leaves the function."""
    for each in ast.walk(node):
        if isinstance(each, ast.If | ast.IfExp):
            body = each.body if isinstance(each, ast.If) else [each.body]
            other = each.orelse if isinstance(each, ast.If) else [each.orelse]
            in_body, in_else = _holds(body, first), _holds(other, first)
            if (in_body and _holds(other, second)) or (in_else and _holds(body, second)):
                return True
            if isinstance(each, ast.If) and in_body and not _holds(body, second) and terminates(each.body):
                return True
            if isinstance(each, ast.If) and in_else and not _holds(other, second) and terminates(each.orelse):
                return True
        if isinstance(each, ast.FunctionDef | ast.Lambda) and each is not node:
            body = each.body if isinstance(each, ast.FunctionDef) else [each.body]
            if _holds(body, first) != _holds(body, second):
                return True
        if isinstance(each, ast.Return) and _holds([each], first) and not _holds([each], second):
            return True
    return False


def _holds(block: Sequence[ast.AST], place: ast.AST) -> bool:
    return any(inner is place for each in block for inner in ast.walk(each))


def _report(function: Method, name: str, first: ast.AST, second: ast.AST) -> Finding:
    text = function.module.source_text
    return RULE.finding(
        function.path,
        text.at(first),
        f"`{function.qualname}` goes through `{name}` twice; if it is a generator (`model.parameters()`), the"
        " second pass sees nothing",
        help=f"begin with `{name} = list({name})`",
        related=[Related(function.path, text.at(second)[0], f"`{name}` is gone through again here")],
        context=f"{function.qualname}:{name}",
    )


INCORRECT = [
    """
import torch
from collections.abc import Iterable

def clip(parameters: Iterable[torch.Tensor], max_norm: float):
    grads = [p.grad for p in parameters if p.grad is not None]  # error: MP534
    norm = torch.nn.utils.get_total_norm(grads)
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm
""",
    """
import torch.distributed as dist

def sync(model):
    params = model.parameters()
    total = sum(p.numel() for p in params)  # error: MP534
    for p in params:
        dist.broadcast(p, 0)
    return total
""",
]

CORRECT = [
    """
import torch
from collections.abc import Iterable

def clip(parameters: Iterable[torch.Tensor], max_norm: float):
    parameters = list(parameters)
    grads = [p.grad for p in parameters if p.grad is not None]
    torch.nn.utils.clip_grads_with_norm_(parameters, max_norm, torch.nn.utils.get_total_norm(grads))
""",
    """
import torch.distributed as dist

def sync(model, reverse):
    params = model.parameters()
    if reverse:
        return [p for p in params]
    for p in params:
        dist.broadcast(p, 0)
""",
    """
import torch.distributed as dist
from collections.abc import Sequence

def sync(params: Sequence):
    total = sum(p.numel() for p in params)
    for p in params:
        dist.broadcast(p, 0)
    return total
""",
]

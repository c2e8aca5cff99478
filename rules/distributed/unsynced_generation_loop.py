"""A loop of forwards that each rank leaves when its own sequences are done.

What it does
    Finds a loop that calls a model and ends, breaks out or returns on the contents of a tensor
    (`unfinished.max() == 0`, `while not torch.all(done)`, `all(finished)`) that no collective has reduced, in a project
    that trains on several ranks.

Why is this bad
    With sharded parameters (FSDP, ZeRO-3) each forward is a collective. The rank whose sequences end first stops
    calling it, the others wait in their next forward for ever.

References
    https://huggingface.co/docs/transformers/main_classes/text_generation (`synced_gpus`)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.effects import Effects
from validator.analysis.taint import Taints
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP505", "unsynced-generation-loop", "warning", "0.1.0", tokens=("model(",))

_MODELS = ("model", "self.model", "actor", "self.actor", "policy_model", "self.policy_model")
_CONTENT = frozenset({"max", "min", "all", "any", "sum"})
_FINISHED = re.compile(r"finish|done|complete|eos|stop|alive|active")

INCORRECT = [
    """
import torch
import torch.distributed as dist

def setup():
    dist.barrier()

def sample(model, input_ids, length, eos):
    unfinished = torch.ones(input_ids.shape[0])
    for _ in range(length):
        token = model(input_ids).argmax(-1)
        unfinished = unfinished * (token != eos)
        if unfinished.max() == 0:  # error: MP505
            break
    return input_ids
""",
    """
import torch
import torch.distributed as dist

def setup():
    dist.barrier()

def sample(model, input_ids, length, eos):
    done = torch.zeros(input_ids.shape[0], dtype=torch.bool)
    while not torch.all(done):  # error: MP505
        token = model(input_ids).argmax(-1)
        done |= token == eos
    return input_ids

def listed(model, input_ids, length, eos):
    finished = [False] * len(input_ids)
    for _ in range(length):
        token = model(input_ids).argmax(-1)
        finished = [f or t == eos for f, t in zip(finished, token)]
        if all(finished):  # error: MP505
            return input_ids
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist

def sample(model, input_ids, length, eos):
    unfinished = torch.ones(input_ids.shape[0])
    for _ in range(length):
        token = model(input_ids).argmax(-1)
        unfinished = unfinished * (token != eos)
        dist.all_reduce(unfinished)
        if unfinished.max() == 0:
            break
    return input_ids
""",
    """
import torch

def sample(model, input_ids, length, eos):
    unfinished = torch.ones(input_ids.shape[0])
    for _ in range(length):
        token = model(input_ids).argmax(-1)
        unfinished = unfinished * (token != eos)
        if unfinished.max() == 0:
            break
    return input_ids
""",
    """
import torch
import torch.distributed as dist

def setup():
    dist.barrier()

def stream(model, input_ids, length, eos):
    unfinished = torch.ones(input_ids.shape[0])
    for _ in range(length):
        token = model(input_ids).argmax(-1)
        yield token
        unfinished = unfinished * (token != eos)
        if unfinished.max() == 0:
            break
""",
    """
import torch
import torch.distributed as dist

def setup():
    dist.barrier()

def sample(model, input_ids, length, eos):
    done = torch.zeros(input_ids.shape[0], dtype=torch.bool)
    left = torch.tensor(len(done))
    while left.item() > 0 and not all(length):
        token = model(input_ids).argmax(-1)
        done |= token == eos
        left = (~done).sum()
        dist.all_reduce(left)
    return input_ids
""",
]


def check_project(project: Project) -> Iterator[Finding]:
    effects = project.analysis(Effects)
    if not effects.direct:
        return
    taints = project.analysis(Taints)
    for function in project.functions():
        if function.facts.is_generator:
            continue  # it hands out a token at a time to whoever reads: served by one process, not trained on all
        if any(c.target in _MODELS and any(g.kind == "loop" for g in c.guards) for c in function.facts.calls):
            node = function.node
            for loop in ast.walk(node) if node is not None else ():
                if isinstance(loop, ast.For | ast.While):
                    yield from _judge(function, loop, taints)


def _judge(function: Method, loop: ast.For | ast.While, taints: Taints) -> Iterator[Finding]:
    forwards = [n for n in ast.walk(loop) if isinstance(n, ast.Call) and path_of(n.func) in _MODELS]
    if not forwards:
        return
    tests: list[tuple[ast.AST, ast.expr]] = [(loop, loop.test)] if isinstance(loop, ast.While) else []
    for node in ast.walk(loop):
        if isinstance(node, ast.If) and any(isinstance(s, ast.Break | ast.Return) for s in node.body):
            tests.append((node, node.test))
    for node, test in tests:
        name = _tensor_content(test)
        if name and not taints.reductions.equal(function, name):
            yield _finding(function, node, forwards[0], name)


def _finding(function: Method, exit_: ast.AST, forward: ast.Call, name: str) -> Finding:
    model = path_of(forward.func)
    line, column = exit_.lineno, exit_.col_offset  # type: ignore[attr-defined]
    return RULE.finding(
        function.path,
        (line, column + 1, line, column + len("while" if isinstance(exit_, ast.While) else "if") + 1),
        f"in `{function.qualname}` each rank leaves the loop on the contents of its own `{name}`, "
        f"while the others still call `{model}`",
        help="reduce the flag over all ranks before testing it (`dist.all_reduce`), or go on with dummy forwards",
        related=[Related(function.path, forward.lineno, "a forward: a collective when the model is sharded")],
        context=f"{function.qualname}:{name}",
    )


def _tensor_content(test: ast.expr) -> str:
    """The variable that says which sequences are done and whose contents a test asks for: `done.all()`."""
    for node in ast.walk(test):
        if not isinstance(node, ast.Call) or path_of(node.func).rpartition(".")[2] not in _CONTENT:
            continue
        asked = node.args[0] if node.args else node.func.value if isinstance(node.func, ast.Attribute) else None
        names = [n.id for n in ast.walk(asked) if isinstance(n, ast.Name)] if asked is not None else []
        if names and _FINISHED.search(names[0]):
            return names[0]
    return ""

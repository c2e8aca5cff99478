"""A request to all engines, sent by every rank where its siblings are sent by one.

What it does
    In a function that tells rank 0 to send remote calls to each of some actors (`[engine.pause.remote() for engine in
    engines]`), reports another fan-out over the same actors, direct or in a function that gets them, that no test of
    the rank encloses.

Why is this bad
    Every engine gets the request once per rank. What is not idempotent (quantising weights in place, resuming a
    counter) is done many times over: wrong weights, with no error.

References
    https://docs.ray.io/en/latest/ray-core/actors.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.binding import bind
from validator.analysis.bodies import Bodies
from validator.analysis.places import is_aside
from validator.analysis.rank_guards import RankGuards
from validator.facts.model import At, Call
from validator.facts.text import path_of
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP538", "request-on-all-ranks", "error", "0.1.0", tokens=(".remote(",))


class _FanOut(NamedTuple):
    """Remote calls to each element of `actors`; `call` is what issues them in the function looked at."""

    actors: str
    name: str
    call: Call


def check_project(project: Project) -> Iterator[Finding]:
    guards = project.analysis(RankGuards)
    for function in dict.fromkeys(function for function, _ in project.calls("remote")):
        remote = [c for c in function.facts.calls if c.method == "remote"]
        if is_aside(function.path) or not any(guards.leaves_one(function, c.guards) for c in remote):
            continue
        sent = list(_fan_outs(project, function))
        alone = [f for f in sent if guards.leaves_one(function, f.call.guards)]
        for fan in sent:
            sibling = next((other for other in alone if other.actors == fan.actors), None)
            if sibling is not None and not guards.all_of(function, fan.call.guards):
                yield _report(function, fan, sibling)


def _fan_outs(project: Project, function: Method) -> Iterator[_FanOut]:
    bodies = project.analysis(Bodies)
    node = bodies.node(function)
    for actors, name, at in _loops(function, node) if node is not None else ():
        call = next((c for c in function.facts.calls if c.at == at), None)
        if call is not None:
            yield _FanOut(actors, name, call)
    for call in function.facts.calls:
        if not any("." in a.value and a.kind == "path" for a in call.args):
            continue
        for target in project.types.called(function, call.target):
            inner = bodies.node(target) if any(c.method == "remote" for c in target.facts.calls) else None
            over = {actors for actors, _, _ in _loops(target, inner)} if inner is not None else set()
            for param, argument in bind(target, call).items():
                if param in over and argument.kind == "path":
                    yield _FanOut(argument.value, target.name, call)


def _loops(function: Method, node: ast.AST) -> Iterator[tuple[str, str, At]]:
    """(what is looped over, method, place of the call) of remote calls to each element."""
    for each in ast.walk(node):
        if isinstance(each, ast.ListComp | ast.GeneratorExp | ast.For):
            loop = each if isinstance(each, ast.For) else each.generators[0]
            for inner in ast.walk(each):
                if (
                    isinstance(inner, ast.Call)
                    and isinstance(inner.func, ast.Attribute)
                    and inner.func.attr == "remote"
                ):
                    target = path_of(inner.func)
                    if isinstance(loop.target, ast.Name) and target.startswith(f"{loop.target.id}."):
                        yield path_of(loop.iter), target.split(".")[-2], function.module.source_text.at(inner)


def _report(function: Method, fan: _FanOut, sibling: _FanOut) -> Finding:
    return RULE.finding(
        function.path,
        fan.call.at,
        f"every rank that runs `{function.qualname}` sends `{fan.name}` to each of `{fan.actors}`, while"
        f" `{sibling.name}` is sent by one",
        help="send it inside the same test of the rank, and keep the barrier outside",
        related=[Related(function.path, sibling.call.at[0], f"one rank sends `{sibling.name}` here")],
        context=f"{function.qualname}:{fan.name}",
    )


INCORRECT = [
    """
import ray
import torch.distributed as dist

def process(restore, engines):
    return [engine.process.remote(restore) for engine in engines]

class Updater:
    def update(self):
        if dist.get_rank() == 0:
            ray.get([engine.pause.remote() for engine in self.engines])
        dist.barrier()
        ray.get(process(True, self.engines))  # error: MP538
        dist.barrier()
""",
]

CORRECT = [
    """
import ray
import torch.distributed as dist

def process(restore, engines):
    return [engine.process.remote(restore) for engine in engines]

class Updater:
    def update(self):
        if dist.get_rank() == 0:
            ray.get([engine.pause.remote() for engine in self.engines])
            ray.get(process(True, self.engines))
        dist.barrier()
""",
    """
import ray
import torch.distributed as dist

class Updater:
    def update(self, prompts):
        if dist.get_rank() == 0:
            ray.get([engine.pause.remote() for engine in self.engines])
        return ray.get([worker.generate.remote(prompts) for worker in self.own_workers])
""",
]

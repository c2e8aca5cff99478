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

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import NODE, WORLD
from validator.domains.spmd import only
from validator.effects.condition_keys import Key, Keys
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP538", "request-on-all-ranks", "error", "0.1.0", tokens=(".remote(",))


class _FanOut(NamedTuple):
    """Remote calls to each element of `actors`; `call` is what issues them in the unit looked at."""

    actors: Key
    text: str
    name: str
    call: Place


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    loops: dict[Unit, list[tuple[Place, Place]]] = {}
    for call in queries.named("remote"):
        if (over := _looped_over(call)) is not None:
            loops.setdefault(call.unit, []).append((over, call))
    senders = {*loops, *(call.unit for unit in loops for call in queries.calls_of(unit))}
    for unit in sorted(senders, key=lambda unit: unit.place):
        sent = list(_fan_outs(queries, unit, loops)) if not is_aside(unit.path) else []
        alone = [each for each in sent if _leaves_one(each.call)]
        for fan in sent:
            sibling = next((other for other in alone if other.actors == fan.actors), None)
            if sibling is not None and not only(fan.call.under, "rank", "member"):
                yield _report(fan, sibling)


def _looped_over(call: Place) -> Place | None:
    """What is iterated, where a remote call goes to each of its elements (`actor.method.remote()`)."""
    method = call.receiver
    if method is None or method.value.op != "attr":
        return None
    actor = method.operand(0).root
    return actor.operand(0).operand(0) if actor.value.op == "next" else None


def _fan_outs(queries: Queries, unit: Unit, loops: dict[Unit, list[tuple[Place, Place]]]) -> Iterator[_FanOut]:
    keys = Keys(queries.flow, unit)
    for over, call in loops.get(unit, ()):
        assert call.receiver is not None
        yield _FanOut(keys.of(over.number), over.text, str(call.receiver.value.data), call)
    for number, site in sorted(queries.flow.result(unit).sites.items()):
        for target in site.targets:
            for over, sent in loops.get(target.unit, ()):
                source = over.root.value
                if only(sent.under, "rank", "member"):
                    continue
                if source.op == "param" and unit.code.values[number].op == "call":
                    call = Place(queries.flow, unit, number)
                    given = call.argument(source.data[1], source.data[0] - (1 if target.unit.has_receiver else 0))
                    if given is not None:
                        yield _FanOut(keys.of(given.number), given.text, target.unit.name, call)


def _leaves_one(call: Place) -> bool:
    """Whether tests around leave one rank of the job, or of each node: its rank is tested, or two coordinates are."""
    axes = {c.axis for c in only(call.under, "rank", "member")}
    return bool(axes & {WORLD, NODE}) or len(axes) > 1


def _report(fan: _FanOut, sibling: _FanOut) -> Finding:
    unit = fan.call.unit
    return RULE.finding(
        unit.path,
        fan.call.at,
        f"every rank that runs `{unit.qualname}` sends `{fan.name}` to each of `{fan.text}`, while"
        f" `{sibling.name}` is sent by one",
        help="send it inside the same test of the rank, and keep the barrier outside",
        related=[Related(unit.path, sibling.call.at[0], f"one rank sends `{sibling.name}` here")],
        context=f"{unit.qualname}:{fan.name}",
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
    # what it calls sends from one rank alone
    """
import ray
import torch.distributed as dist

def sync(engines):
    if dist.get_rank() == 0:
        ray.get([engine.sleep.remote() for engine in engines])
    dist.barrier()

class Trainer:
    def start(self):
        sync(self.engines)
        if dist.get_rank() == 0:
            ray.get([engine.wake_up.remote() for engine in self.engines])
""",
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

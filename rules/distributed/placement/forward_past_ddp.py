"""A forward pass of the module inside of `DistributedDataParallel` whose loss is trained on.

What it does
    Reports a call of `model.module` (not of one of its methods) where DDP wraps `model` and the result is a part of
    what `backward()` is called on, in the same function. Silent under `no_grad`, behind `detach()`, and where the
    function reduces something by itself.

Why is this bad
    DDP prepares the reduction of gradients in its own `forward`. Past that, each rank keeps gradients of its own, and
    the replicas drift apart: nothing fails, and the model that is saved has learned from one rank's data.

References
    https://docs.pytorch.org/docs/stable/notes/ddp.html#internal-design
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import may
from validator.finding import Finding
from validator.flow.callgraph.spelled_arguments import origins
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP560", "forward-past-ddp", "warning", "1.0", tokens=("backward",), solves=True)

_COMPUTING = frozenset({"backward", "manual_backward"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.mentioning("module"):
        reduces = any("reduce" in call.method for call in queries.calls_in(unit))
        forwards = [] if is_aside(unit.path) or reduces else list(_forwards(queries, unit))
        trained = _trained(queries, unit) if forwards else frozenset()
        for call, model in forwards:
            if call.number in trained:
                yield RULE.finding(
                    unit.path,
                    call.at,
                    f"`{call.operand(0).text}` in `{unit.qualname}` is what DDP wraps: the gradients of this forward"
                    " pass are not reduced",
                    help=f"call `{model.text}` itself",
                    context=f"{unit.qualname}:{call.operand(0).text}",
                )


def _forwards(queries: Queries, unit: Unit) -> Iterator[tuple[Place, Place]]:
    """The calls of modules that DDP wraps, with the wrapped model."""
    for call in queries.calls_in(unit):
        callee = call.operand(0).root
        for number in origins(unit, callee.number):
            inner = call.value_at(number).root
            if inner.value.op == "attr" and inner.value.data == "module":
                model = inner.operand(0)
                managers = (call.value_at(number).text for number in unit.managers(call.number))
                if may(model.closed.state, "ddp") and not any(
                    "no_grad" in each or "inference" in each for each in managers
                ):
                    yield call, model
                    break


def _trained(queries: Queries, unit: Unit) -> frozenset[int]:
    """The values of which something is made that `backward` is called on."""
    found: set[int] = set()
    for call in queries.calls_in(unit):
        losses = [call.receiver, call.argument("loss", 0)] if call.method in _COMPUTING else []
        queue = [loss for loss in losses if loss is not None]
        for place in queue:
            if place.number not in found and not (place.value.op == "call" and place.method == "detach"):
                found.add(place.number)
                args = place.value.args[:1] if place.value.op == "mut" else place.value.args
                queue += [place.value_at(number) for number in args if number >= 0]
    return frozenset(found)


_TRAINING = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(batches, local_rank):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 4).to(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        optimizer.zero_grad()
        with torch.no_grad():
            before = model.module(batch)
        target = model.module(batch).detach()
        loss = ({call}(batch) - target - before).mean(){mark}
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(model.module(batch))
    torch.save(model.module.state_dict(), "model.pt")

main([torch.ones(4)], 0)
"""

INCORRECT = [_TRAINING.replace("{call}", "model.module").replace("{mark}", "  # error: MP560")]

CORRECT = [
    _TRAINING.replace("{call}", "model").replace("{mark}", ""),
    """
from deepspeed import initialize

def main(model, batches, optimizer):
    engine, *_ = initialize(model=model, optimizer=optimizer)
    for batch in batches:
        loss = engine.module(batch).mean()
        engine.backward(loss)
""",
]

"""Tensor parallelism applied to a module that FSDP2 has sharded already.

What it does
    Reports `parallelize_module` (or transformers' `apply_tensor_parallelism`) on a module that was given to
    `fully_shard` before, itself or as a part of another one, in the same function or through functions that it calls.
    Silent where the two stand under conditions that exclude each other, for styles that prepare inputs only, and for a
    call in a lambda or a nested function, which runs later, beside one outside of it.

Why is this bad
    `fully_shard` replaces the parameters by DTensors of its own mesh. `parallelize_module` cannot distribute those over
    another mesh and raises `ValueError: Cannot distribute a DTensor with device mesh …`. It does so where both sizes
    are above one, not in a run with either.

References
    https://docs.pytorch.org/tutorials/intermediate/TP_tutorial.html
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.placements import Event, Placings, excluded, follows
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP543", "tensor-parallel-after-sharding", "error", "0.1.0", tokens=("fully_shard",))

_PREPARING = ("PrepareModuleInput", "PrepareModuleOutput", "PrepareModuleInputOutput")  # styles that split no parameter


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    for unit in placings.units("tp"):
        splits = placings.events(unit, "tp") if not is_aside(unit.path) else []
        shards = placings.events(unit, "fsdp2") if splits else []
        pairs = (
            (shard, split)
            for split in splits
            for shard in shards
            if split.path[: len(shard.path)] == shard.path and _ends_before(shard, split)
        )
        pair = next((p for p in pairs if not excluded(p[0].call, p[1].call) and not _prepares(p[1].call)), None)
        if pair is not None:
            yield _report(*pair)


def _ends_before(shard: Event, split: Event) -> bool:
    """Whether the module is sharded when it is split; a helper may do both, and is judged itself."""
    if shard.call == split.call:
        return False
    return follows(shard.call, split.call) and (
        not follows(split.call, shard.call) or shard.call.number < split.call.number
    )


def _prepares(split: Place) -> bool:
    plan = split.argument("parallelize_plan", 2)
    made = plan.operand(0).val.objs if plan is not None and plan.value.op == "call" else ()
    return bool(made) and all(o[0] == "ext" and o[1].rpartition(".")[2] in _PREPARING for o in made)


def _report(shard: Event, split: Event) -> Finding:
    call = split.call
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}` in `{call.unit.qualname}` splits `{split.given.text}` over tensor parallel ranks after"
        f" `{shard.call.method}` has sharded it: its parameters are DTensors of another mesh by then, which raises",
        help="apply tensor parallelism first, then `fully_shard`",
        related=[Related(shard.call.unit.path, shard.call.at[0], f"`{shard.given.text}` is sharded here")],
        context=f"{call.unit.qualname}:{split.given.text}",
    )


INCORRECT = [
    """
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

def spread(model, mesh):
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    for index, layer in enumerate(model.layers):
        parallelize_module(layer, mesh["tp"], {"mlp.up": ColwiseParallel()})  # error: MP543
    return model
""",
    """
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from transformers.distributed.tensor_parallel import apply_tensor_parallelism

PLAN = {"mlp.up": ColwiseParallel()}

def split(model, mesh):
    for layer in model.layers:
        parallelize_module(layer, mesh, PLAN)

class Strategy:
    def shard(self, model):
        return fully_shard(model, mesh=self.mesh["dp"])

    def prepare(self, model):
        if self.dp_size > 1:
            model = self.shard(model)
        if self.tp_size > 1:
            split(model, self.mesh["tp"])  # error: MP543
        return model

    def prepare_actor(self):
        fully_shard(self.actor)
        apply_tensor_parallelism(self.actor, self.mesh["tp"], self.actor.tp_plan)  # error: MP543
""",
    """
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from plans import build_plan

class Strategy:
    def __init__(self, model, mesh):
        self.model, self.mesh = model, mesh

    def shard(self, model):
        for _, layer in model.layers.items():
            fully_shard(layer, mesh=self.mesh["dp"])
        return fully_shard(model, mesh=self.mesh["dp"])

    def split(self, module):
        plan = build_plan()
        return parallelize_module(module=module, device_mesh=self.mesh["tp"], parallelize_plan=plan)

    def prepare(self, model):
        return self.split(self.shard(model))  # error: MP543

    def prepare_critic(self, critic):
        sharded = self.shard(critic)
        return self.split(sharded)  # error: MP543

    def later(self, reward):
        return lambda: (fully_shard(reward), self.split(reward))  # error: MP543
""",
]

CORRECT = [
    """
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, parallelize_module

def split(model, mesh):
    for layer in model.layers:
        parallelize_module(layer, mesh, {"mlp.up": ColwiseParallel()})

def spread(model, mesh):
    split(model, mesh["tp"])
    for layer in model.layers:
        fully_shard(layer, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    parallelize_module(model.embed, mesh["tp"], PrepareModuleInput())
""",
    """
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

def split(model, mesh):
    for layer in model.layers:
        parallelize_module(layer, mesh, {"mlp.up": ColwiseParallel()})

def parts(model, mesh):
    fully_shard(model.vision, mesh=mesh["dp"])
    split(model.language, mesh["tp"])

def choose(model, mesh, config):
    if config.kind == "fsdp":
        fully_shard(model)
    if config.kind == "tp":
        split(model, mesh["tp"])

def either(model, mesh, config):
    if config.sharded:
        fully_shard(model)
        return model
    split(model, mesh["tp"])
    return model

def by_name(model, mesh, name):
    if name == "hybrid":
        return fully_shard(model)
    elif name == "dense":
        layers = model.layers
    else:
        layers = model.blocks
    split(model, mesh["tp"])
    return layers

def both(build, mesh):
    model = build()
    fully_shard(model)
    model = build()
    split(model, mesh["tp"])
""",
    """
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

def split(model, mesh):
    for layer in model.layers:
        parallelize_module(layer, mesh, {"mlp.up": ColwiseParallel()})

def last_first(model, mesh):
    steps = [lambda: fully_shard(model, mesh=mesh["dp"])]
    steps.append(lambda: split(model, mesh["tp"]))
    while steps:
        steps.pop()()

def at_the_end(model, mesh):
    def shard():
        fully_shard(model, mesh=mesh["dp"])

    finish = [lambda: fully_shard(model.head), shard]
    split(model, mesh["tp"])
    parallelize_module(model.head, mesh["tp"], ColwiseParallel())
    for step in finish:
        step()

def sharding(model):
    return lambda: fully_shard(model)

def made_before(model, mesh):
    shard = sharding(model)
    split(model, mesh["tp"])
    shard()
""",
]

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

from validator.analysis.agreement import Agreement
from validator.analysis.places import is_aside, within
from validator.analysis.spreading import SHARD, SPLIT, Spread, Spreading
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP543", "tensor-parallel-after-sharding", "error", "0.1.0", tokens=("fully_shard",))


def check_project(project: Project) -> Iterator[Finding]:
    agreement = project.analysis(Agreement)
    for function, rows in project.analysis(Spreading).all.items():
        if is_aside(function.path):
            continue
        pairs = (
            (shard, split)
            for split in (row for row in rows if row.kind == SPLIT)
            for shard in (row for row in rows if row.kind == SHARD)
            if _meet(shard, split) and not _apart(agreement, function, shard.call, split.call)
        )
        pair = next((p for p in pairs if not _renewed(function, *p)), None)
        if pair is not None:
            yield _report(function, *pair)


def _meet(shard: Spread, split: Spread) -> bool:
    """Whether a module is sharded, itself or as a part of another, by a call that ends before the other begins."""
    if shard.later != split.later:
        return False  # the order of a stored lambda is that of its calls
    inside = split.path.startswith((f"{shard.path}.", f"{shard.path}["))
    first, second = shard.call.at, split.call.at
    before = first[2:] <= second[:2] or (first != second and within(first, second))
    return (split.path == shard.path or inside) and before


def _apart(agreement: Agreement, function: Method, first: Call, second: Call) -> bool:
    """Whether the conditions around two calls exclude each other."""
    one, two = ([(g.text, not g.negated) for g in call.guards if g.kind == "if"] for call in (first, second))
    if any((text, not holds) in two for text, holds in one) or agreement.excludes(function, one, two):
        return True
    # a return that follows the first whenever it runs
    leaves = (r for r in function.facts.returns if first.at[:2] <= r.at[2:] <= second.at[:2])
    return any({(g.text, not g.negated) for g in r.guards if g.kind == "if"} <= {*one} for r in leaves)


def _renewed(function: Method, shard: Spread, split: Spread) -> bool:
    """Whether the name of the module is bound to another one between the calls."""
    root = split.path.partition(".")[0]
    first, last = shard.call.at[2:], split.call.at[:2]
    for row in function.facts.assigns:
        if row.target == root and first <= row.at[:2] < last:
            made = (c for c in function.facts.calls if within(c.at, row.at))
            if not any(a.value == root for call in made for a in call.args):
                return True
    return False


def _report(function: Method, shard: Spread, split: Spread) -> Finding:
    related = [Related(function.path, shard.call.at[0], f"`{shard.path}` is sharded here")]
    for row, word in ((shard, "sharded"), (split, "split")):
        if row.made != (function.path, row.call.at[0]):
            related.append(Related(*row.made, f"the modules are {word} here"))
    return RULE.finding(
        function.path,
        split.call.at,
        f"`{split.call.method}` in `{function.qualname}` splits `{split.path}` over tensor parallel ranks after"
        f" `{shard.call.method}` has sharded it: its parameters are DTensors of another mesh by then, which raises",
        help="apply tensor parallelism first, then `fully_shard`",
        related=related,
        context=f"{function.qualname}:{split.path}",
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

"""An optimizer made before the model is sharded, or while its parameters are on the meta device.

What it does
    Reports `torch.optim.X(model.parameters(), …)` in a function that later wraps the same model in FSDP or calls
    `fully_shard` on it, itself or through a function that does so to its parameter (`model = strategy.shard(model)`).
    Silent where that function is given the optimizer too, which it may make anew. Reports the same of optimizers that a
    function of the project makes from its parameter, and of a constructor that makes an optimizer for an attribute
    that another method shards. Parameters that were taken from the model before (a list, groups, what a helper returns,
    an attribute) are reported where they were taken, wherever the optimizer is made; a generator or `filter` takes none
    until it is used up. Silent where FSDP is told to keep the parameters (`use_orig_params=True`).

Why is this bad
    Sharding replaces the parameters. The optimizer keeps the old ones: they get no gradients, stay in memory, and the
    model does not train, without a word.

References
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.placement import certainly, may
from validator.finding import Finding, Related
from validator.flow.access_paths import Path
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place
from validator.flow.queries.escapes import Index, argument_of
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.captured_parameters import MAKING, Stretch, Taking, own_names, takings
from validator.flow.queries.training.placements import Event, Placings, excluded, follows, point, related, sources
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP523",
    "optimizer-before-sharding",
    "error",
    "0.1.0",
    tokens=("fully_shard", "FSDP", "FullyShardedDataParallel", "to_empty"),
)

_SHARDING = ("fsdp1", "fsdp2")


class Optimizer(NamedTuple):
    """A call that makes an optimizer, itself or by what it calls, and where the parameters that it gets were taken."""

    call: Place
    taking: Taking

    @property
    def model(self) -> Place:
        return self.taking.model


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    index = Index(placings.flow)
    reported = set()
    for optimizer in _optimizers(placings, index):
        if is_aside(optimizer.call.unit.path):
            continue
        between = next(_between(placings, optimizer), None)
        shard = between or next(_later(placings, index, optimizer), None)
        where = optimizer.taking.place if between is not None else optimizer.call
        if shard is not None and where not in reported:
            reported.add(where)
            yield _report(optimizer, shard, where)
        elif (
            shard is None
            and certainly(optimizer.model.closed.state, "meta")
            and optimizer.model.unit is optimizer.call.unit
            and _gets_storage(placings, optimizer)
        ):
            yield _report_meta(optimizer)


def _optimizers(placings: Placings, index: Index) -> Iterator[Optimizer]:
    """Every optimizer in terms of the unit that makes it, and of those that call one which makes and returns it."""
    queue = []
    for call in placings.queries.prefixed("torch.optim."):
        given = call.argument("params", 0)
        if given is not None and ".lr_scheduler." not in str(call.operand(0).val.objs):
            queue += _of(call, takings(placings, given, call))
            queue += _of_callers(placings, index, call, given)
    seen = set()
    while queue:
        optimizer = queue.pop(0)
        if optimizer in seen:
            continue
        seen.add(optimizer)
        yield optimizer
        queue += _from_callers(placings, index, optimizer) if _is_returned(optimizer.call) else []


def _of(call: Place, found: list[Taking]) -> list[Optimizer]:
    rows = {(taking.path, taking.place): Optimizer(call, taking) for taking in found}
    return list(rows.values())


def _of_callers(placings: Placings, index: Index, call: Place, given: Place) -> Iterator[Optimizer]:
    """An optimizer of parameters that the function gets: where its callers took them."""
    seen: set[Unit] = set()
    queue = [(call.unit, given)]
    while queue:
        unit, given = queue.pop()
        for source in sources(given):
            if source.value.op != "param" or unit in seen or unit.has_receiver and source.value.data[0] == 0:
                continue
            seen.add(unit)
            for caller, number, _ in index.sites(unit):
                passed = argument_of(caller, number, unit, source.value.data[0])
                if passed is not None:
                    place = Place(placings.flow, caller, number)
                    found = [t for t in takings(placings, place.value_at(passed), place) if t.place != place]
                    yield from _of(place, found)
                    queue.append((caller, place.value_at(passed)))


def _is_returned(call: Place) -> bool:
    return any(call.value_at(end).root.number == call.number for end in call.unit.code.returned)


def _from_callers(placings: Placings, index: Index, optimizer: Optimizer) -> Iterator[Optimizer]:
    root, unit = optimizer.taking.path, optimizer.taking.stretches[-1].unit
    value = unit.code.values[root[0]] if len(root) == 1 and isinstance(root[0], int) else None
    if value is None or value.op != "param" or unit is not optimizer.call.unit:
        return
    for caller, number, _ in index.sites(unit):
        given = argument_of(caller, number, unit, value.data[0])
        if given is not None:
            call = Place(placings.flow, caller, number)
            path = placings.path(call.value_at(given))
            stretch = Stretch(caller, path, (point(call),))
            yield Optimizer(call, Taking(call, call.value_at(given), (stretch,)))


def _between(placings: Placings, optimizer: Optimizer) -> Iterator[Event]:
    """The calls that shard the model after its parameters were taken and before the optimizer gets them."""
    for stretch in optimizer.taking.stretches:
        for event in placings.events(stretch.unit, *_SHARDING):
            if (
                event.path == stretch.path
                and event.call != optimizer.taking.place
                and stretch.meets(event.call)
                and not (stretch.unit is optimizer.call.unit and excluded(optimizer.call, event.call))
                and not _keeps(event)
            ):
                yield event


def _keeps(event: Event) -> bool:
    """Whether FSDP keeps the parameters that the model had."""
    names = event.call.value.data.names if event.call.value.op == "call" else ()
    if "**" in names or any(name is not None and name.startswith("ignored_") for name in names):
        return True
    given = event.call.argument("use_orig_params")
    return given is not None and given.closed.constant() is True


def _later(placings: Placings, index: Index, optimizer: Optimizer) -> Iterator[Event]:
    """The calls that shard the model when the optimizer has its parameters."""
    path = optimizer.taking.path
    if _is_regrouped(placings, optimizer.call.unit):
        return
    for event in placings.events(optimizer.call.unit, *_SHARDING):
        after = follows(optimizer.call, event.call) and event.call != optimizer.call
        if (
            after
            and not _keeps(event)
            and event.path == path
            and not excluded(optimizer.call, event.call)
            and not _given(optimizer, event.call)
        ):
            yield event
    if not may(optimizer.model.closed.state, *_SHARDING) or optimizer.call.unit.name in MAKING:
        yield from _in_methods(placings, index, optimizer, path)


def _is_regrouped(placings: Placings, unit: Unit) -> bool:
    """Whether a function gives an optimizer other parameters later: `group["params"] = …`, `add_param_group`."""
    stores = placings.queries.values(unit, "store_item")
    regroups = any(place.operand(1).val.constant() == "params" for place in stores)
    return regroups or any(call.method == "add_param_group" for call in placings.queries.calls_in(unit))


def _given(optimizer: Optimizer, shard: Place) -> bool:
    """Whether a helper that shards the model is given the optimizer with it: it may make it anew."""
    return any(shard.value_at(each).root.number == optimizer.call.number for each in shard.value.args[1:])


def _in_methods(placings: Placings, index: Index, optimizer: Optimizer, path: Path) -> Iterator[Event]:
    """Where a constructor makes the optimizer: the methods that shard the attribute which holds the model."""
    unit = optimizer.call.unit
    if unit.name not in MAKING or unit.cls is None:
        return
    names = own_names(placings, unit, path)
    for method in unit.cls.every_method():
        own = placings.flow.unit_of(method)
        if own is None or own is unit:
            continue
        for event in placings.events(own, *_SHARDING):
            if event.path[0] == 0 and event.path[1:] in names and not _called_before(index, own, optimizer):
                yield event


def _called_before(index: Index, method: Unit, optimizer: Optimizer) -> bool:
    here = [call for caller, call, _ in index.sites(method) if caller is optimizer.call.unit]
    return any(not follows(optimizer.call, optimizer.call.value_at(call)) for call in here)


def _gets_storage(placings: Placings, optimizer: Optimizer) -> bool:
    """Whether the model gets its storage later, where it was made."""
    events = placings.of(optimizer.call.unit, "-meta")
    return any(related(given, optimizer.model) and follows(optimizer.call, call) for call, given, _ in events)


def _report_meta(optimizer: Optimizer) -> Finding:
    call = optimizer.call
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}` in `{call.unit.qualname}` gets the parameters of `{optimizer.model.root.text}` on the meta"
        " device, which are others once the model has storage",
        help="make the optimizer when the model has its storage (`to_empty`)",
        context=f"{call.unit.qualname}:{optimizer.model.root.text}",
    )


def _named(call: Place) -> str:
    """How a call is spelled, where what is called has no name: `parallelize_fns[name](model)`."""
    return call.method or call.operand(0).text


def _report(optimizer: Optimizer, shard: Event, at: Place) -> Finding:
    call, unit = optimizer.call, shard.call.unit
    where = "" if unit is at.unit else f" in `{unit.qualname}`"
    if at != call:
        return RULE.finding(
            at.unit.path,
            at.at,
            f"`{at.unit.qualname}` takes the parameters of `{optimizer.model.root.text}` here, before"
            f" `{_named(shard.call)}`{where} replaces them; `{call.method}` in `{call.unit.qualname}` gets the old"
            " ones",
            help="take the parameters for the optimizer from the sharded model",
            related=[
                Related(unit.path, shard.call.at[0], "the model is sharded here"),
                Related(call.unit.path, call.at[0], "the optimizer gets them here"),
            ],
            context=f"{at.unit.qualname}:{optimizer.model.root.text}",
        )
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}` in `{call.unit.qualname}` gets the parameters of `{optimizer.model.root.text}` before"
        f" `{_named(shard.call)}`{where} replaces them",
        help="make the optimizer from the parameters of the sharded model",
        related=[Related(unit.path, shard.call.at[0], "the model is sharded here")],
        context=f"{call.unit.qualname}:{optimizer.model.root.text}",
    )


INCORRECT = [
    """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 8)

def build(device):
    with torch.device("meta"):
        model = Net()
    optimizer = torch.optim.AdamW(model.parameters())  # error: MP523
    model.to_empty(device=device)
    return model, optimizer
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

def build(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)  # error: MP523
    fully_shard(model)
    return model, optimizer
""",
    """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def build(model):
    optimizer = torch.optim.AdamW(model.parameters())  # error: MP523
    model = FSDP(model)
    return model, optimizer
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Strategy:
    def shard(self, model):
        for layer in model.layers:
            fully_shard(layer)
        return fully_shard(model)

def main(model, sharded):
    strategy = Strategy()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    groups = [{"params": decayed, "weight_decay": 0.1}]
    optimizer = torch.optim.AdamW(groups, lr=1e-4)  # error: MP523
    if sharded:
        model = strategy.shard(model)
    return model, optimizer
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Strategy:
    def create_optimizer(self, model, **options):
        return torch.optim.AdamW(get_optimizer_grouped_parameters(model, 0.1), **options)

    def shard(self, model):
        fully_shard(model)

class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters())  # error: MP523

    def setup(self):
        fully_shard(self.model)

def main(strategy: Strategy, model):
    optimizer = strategy.create_optimizer(model, lr=1e-4)  # error: MP523
    strategy.shard(model)
    return optimizer
""",
    # the parameters were taken before, the optimizer is made afterwards
    """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

def build(model, lr):
    trainable = [p for p in model.parameters() if p.requires_grad]  # error: MP523
    wrapped = FSDP(model, use_orig_params=False)
    return wrapped, torch.optim.AdamW(trainable, lr=lr)

def grouped(model, lr):
    decayed, others = [], []
    for name, p in model.named_parameters():  # error: MP523
        if p.ndim > 1:
            decayed.append(p)
        else:
            others.append(p)
    fully_shard(model)
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others}], lr=lr)

def either(model, lr):
    wide, narrow = [], []
    for p in model.parameters():  # error: MP523
        (wide if p.ndim > 1 else narrow).append(p)
    fully_shard(model)
    return torch.optim.AdamW([{"params": wide, "weight_decay": 0.1}, {"params": narrow}], lr=lr)

def groups_of(model, decay):
    named = {n: p for n, p in model.named_parameters() if p.requires_grad}
    return [{"params": [p for p in named.values() if p.dim() > 1], "weight_decay": decay}]

def optimizer_of(groups, lr):
    return torch.optim.AdamW(groups, lr=lr, fused=True)

def prepared(model, lr):
    optimizer = made_of_groups(model, lr)  # error: MP523
    return fully_shard(model), optimizer

def made_of_groups(model, lr):
    return torch.optim.AdamW(groups_of(model, 0.1), lr=lr)

def main(model, lr):
    groups = groups_of(model, 0.1)  # error: MP523
    fully_shard(model)
    return optimizer_of(groups, lr)

class Trainer:
    def __init__(self, model):
        self.model = model
        self.params = list(filter(lambda p: p.requires_grad, self.model.parameters()))  # error: MP523

    def setup(self):
        self.model = FSDP(self.model)
        self.optimizer = torch.optim.SGD(self.params, lr=0.1)
""",
]

CORRECT = [
    """
import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

def lazy(model, lr):
    trainable = filter(lambda p: p.requires_grad, model.parameters())
    others = (p for p in model.parameters() if not p.requires_grad)
    fully_shard(model)
    return torch.optim.AdamW(trainable, lr=lr), torch.optim.SGD(others, lr=lr)

def again(model, lr, sharded):
    params = [p for p in model.parameters() if p.requires_grad]
    if sharded:
        fully_shard(model)
        params = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(params, lr=lr)

def kept(model, lr):
    params = [p for p in model.parameters() if p.requires_grad]
    model = FSDP(model, use_orig_params=True)
    return model, torch.optim.AdamW(params, lr=lr)

def names(model, lr):
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    fully_shard(model)
    return torch.optim.AdamW([p for n, p in model.named_parameters() if n in names], lr=lr)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

def build(model):
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

def build(model, draft):
    optimizer = torch.optim.AdamW(draft.parameters(), lr=1e-4)
    fully_shard(model)
    return model, optimizer
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Strategy:
    def prepare(self, model, optimizer):
        fully_shard(model)
        return model, type(optimizer)(model.parameters(), lr=1e-4)

    def shard(self, model):
        return fully_shard(model)

def main(model, reference):
    strategy = Strategy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model, optimizer = strategy.prepare(model, optimizer)
    reference = strategy.shard(reference)
    return model, optimizer, reference
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Strategy:
    def create_optimizer(self, model, **options):
        return torch.optim.AdamW(get_optimizer_grouped_parameters(model, 0.1), **options)

    def shard(self, model):
        fully_shard(model)

class Trainer:
    def __init__(self, model):
        self.model = model
        self.setup()
        self.optimizer = torch.optim.AdamW(model.parameters())

    def setup(self):
        fully_shard(self.model)

def main(strategy: Strategy, model, draft):
    strategy.shard(model)
    optimizer = strategy.create_optimizer(model, lr=1e-4)
    strategy.shard(draft)
    return optimizer
""",
]

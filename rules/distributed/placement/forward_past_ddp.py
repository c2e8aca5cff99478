"""A forward pass of the module inside of `DistributedDataParallel` whose loss is trained on.

What it does
    Reports a call of `model.module`, itself, by an attribute that keeps it or by a function that takes the wrapper off
    (`accelerator.unwrap_model(model)`), where DDP, or Accelerate, wraps `model` and the result is a part of what
    `backward()` is called on, through functions that compute the loss, too; of one of its methods where nothing in that
    comes from the `forward` of a wrapped model. Silent under `no_grad`, behind `detach()`, where one of the functions
    reduces something by itself, and where a model only judges what another one has made, which learns from it (the
    generator's step of a GAN), while it learns from forward passes of its own.

Why is this bad
    DDP prepares the reduction of gradients in its own `forward`. Past that, each rank keeps gradients of its own, and
    the replicas drift apart: nothing fails, and the model that is saved has learned from one rank's data.

References
    https://docs.pytorch.org/docs/stable/notes/ddp.html#internal-design
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import WRAPPING, may
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import passed_from, sources
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.ranks.random_draws import rows_of
from validator.flow.queries.training.gradients import Trained, handed_losses, losses
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP560", "forward-past-ddp", "warning", "1.0", tokens=("backward",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    told: set[Place] = set()
    for backward, loss in (*losses(queries), *handed_losses(queries)):
        trained = () if is_aside(backward.unit.path) else project.analysis(Trained).through(loss)
        past = {call: found for call in trained if (found := _past(call)) is not None}
        units = {backward.unit, *(call.unit for call in past)} if past else set()
        if any("reduce" in call.method for unit in units for call in queries.calls_in(unit)):
            continue
        through_wrapper = any(_is_forward(call) for call in trained if call not in past)
        rows: dict[tuple[Unit, str], list[tuple[Place, Place]]] = {}
        for call, (model, is_whole) in past.items():
            if call not in told and not _judges(queries, call, model) and (is_whole or not through_wrapper):
                told.add(call)
                rows.setdefault((call.unit, model.text), []).append((call, model))
        for several in rows.values():
            yield _report(sorted(several, key=lambda row: row[0].at), backward)


def _report(rows: list[tuple[Place, Place]], backward: Place) -> Finding:
    """What is said of the calls of a function that go round the wrapper of one model."""
    (call, model), *others = rows
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.operand(0).text}`{call.where} is what {_wrapper(model)}: the gradients of this forward pass are not"
        " reduced",
        help=f"call `{model.text}` itself",
        related=[
            Related(backward.unit.path, backward.at[0], "they are computed here"),
            *(
                Related(each.unit.path, each.at[0], f"`{each.operand(0).text}` goes round it, too")
                for each, _ in others
            ),
        ],
        context=f"{call.unit.qualname}:{call.operand(0).text}",
    )


def _wrapper(model: Place) -> str:
    return "DDP wraps" if may(model.closed.state, "ddp") else "Accelerate wraps in DDP, if it is launched so"


def _past(call: Place) -> tuple[Place, bool] | None:
    """The wrapped model whose module, or one of its methods, a call runs, and whether it is the module itself: a method
    may be handed what the model has computed."""
    callee = call.operand(0).root
    model = _around(callee)
    if model is not None:
        return model, True
    if callee.value.op == "attr" and len(call.value.args) > 1:
        model = _around(callee.operand(0))
    return (model, False) if model is not None else None


def _around(inner: Place) -> Place | None:
    """The model whose `module` a value may be, where DDP wraps it: also behind a function that takes it off, and in an
    attribute."""
    seen: set[Place] = {inner.root}
    queue: list[tuple[Place, tuple[Place, ...]]] = [(inner.root, ())]
    for place, calls in queue:
        model = _wrapped(place)
        if model is not None:
            for call in calls:
                model = passed_from(call, model)
            if may(model.closed.state, "ddp", "prepared"):
                return model
        if place.value.op not in ("phi", "call", "attr"):
            continue
        through = (place, *calls) if place.value.op == "call" else calls
        for source in sources(place) or ():
            if source.root not in seen:
                seen.add(source.root)
                queue.append((source.root, through))
    return None


def _wrapped(place: Place) -> Place | None:
    """The model of which a value is asked for what its wrapper holds."""
    if place.value.op == "attr" and place.value.data == "module":
        return place.operand(0)
    rows = (row for _, row in rows_of(place) if row is not None and row.unwraps is not None)
    return next((place.argument(*row.unwraps) for row in rows if row.unwraps is not None), None)


def _is_forward(place: Place) -> bool:
    """Whether a value is what a wrapped model has computed in its own `forward`."""
    return may(place.operand(0).closed.state, *WRAPPING, "prepared")


def _judges(queries: Queries, call: Place, model: Place) -> bool:
    """Whether a model is given what another one has made, and is called itself elsewhere, to learn."""
    unit = call.unit
    units = {unit, *queries.flow.units(iter(unit.cls.every_method() if unit.cls is not None else ()))}
    made = (part for number in call.value.args[1:] for part in call.value_at(number).parts)
    if not any(_is_of_another(each, model) for each in made):
        return False
    return any(each.operand(0).text == model.text for other in units for each in queries.calls_in(other))


def _is_of_another(place: Place, model: Place) -> bool:
    """Whether a value is what another wrapped model computes."""
    callee = place.operand(0) if place.value.op == "call" else None
    return callee is not None and may(callee.closed.state, *WRAPPING) and callee.root.key != model.root.key


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

INCORRECT = [
    _TRAINING.replace("{call}", "model.module").replace("{mark}", "  # error: MP560"),
    # what another model makes, by one that learns from nothing else
    """
from torch.nn.parallel import DistributedDataParallel as DDP

def train(body, head, loader, optimizer):
    body, head = DDP(body), DDP(head)
    for batch in loader:
        optimizer.zero_grad()
        loss = head.module(body(batch)).mean()  # error: MP560
        loss.backward()
        optimizer.step()
""",
]

_UNWRAPPED = """
from torch.nn.parallel import DistributedDataParallel as DDP

def unwrap(model):
    if isinstance(model, DDP):
        return model.module
    return model

def bare(model):
    return unwrap(model) if model is not None else None

class Engine:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = DDP(model), optimizer

    def train(self, images, wanted):
        shown = self.model(images)
        loss = {loss}
        loss.backward()
        self.optimizer.step()

    def show(self, images):
        return unwrap(self.model).features(images)

def plain(model, images):
    unwrap(model).loss(images).backward()

plain(print, [])
"""

# a function takes the wrapper off; a method of what is wrapped
INCORRECT += [
    # an attribute keeps it
    """
from torch.nn.parallel import DistributedDataParallel as DDP

class Agent:
    def __init__(self, network, optimizer):
        self.network, self.optimizer = network, optimizer
        if isinstance(network, DDP):
            self.inner = network.module
        else:
            self.inner = network

    def update(self, batch):
        loss = self.inner(batch).mean()  # error: MP560
        loss.backward()
        self.optimizer.step()

def main(network, optimizer, batches, ddp):
    if ddp:
        network = DDP(network)
    agent = Agent(network, optimizer)
    for batch in batches:
        agent.update(batch)
""",
    # an object of its own computes the loss, by the parts of what is wrapped
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(torch.nn.Module):
    def encode(self, images):
        return images * 2

    def forward(self, images):
        return self.encode(images)

class Loss:
    def __call__(self, student, images, labels):
        net = student.module
        encoded = net.encode(images)  # error: MP560
        return torch.nn.functional.mse_loss(encoded, labels)

def main(loader):
    student = DDP(Net())
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    criterion = Loss()
    for images, labels in loader:
        loss = criterion(student, images, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
""",
    _UNWRAPPED.replace("{loss}", "bare(self.model).loss(images, wanted).mean()  # error: MP560"),
    _UNWRAPPED.replace("{loss}", "self.model.module.loss(images) - wanted  # error: MP560"),
]

_PREPARED = """
import torch
from accelerate import Accelerator

class Net(torch.nn.Module):
    def forward(self, batch):
        return {"loss": batch.mean()}

    def render(self, batch):
        return batch

def main(batches, optimizer):
    accelerator = Accelerator()
    model = Net()
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    net = accelerator.unwrap_model(model)
    for batch in batches:
        optimizer.zero_grad()
        loss = {call}(batch)["loss"]{mark}
        accelerator.backward(loss)
        optimizer.step()
    net.render(batch)
"""
INCORRECT += [_PREPARED.replace("{call}", "net").replace("{mark}", "  # error: MP560")]
CORRECT = [
    _PREPARED.replace("{call}", "model").replace("{mark}", ""),
    # a method of the model is handed what the model has computed
    _UNWRAPPED.replace("{loss}", "unwrap(self.model).loss(shown, wanted)"),
    _TRAINING.replace("{call}", "model").replace("{mark}", ""),
    """
from deepspeed import initialize

def main(model, batches, optimizer):
    engine, *_ = initialize(model=model, optimizer=optimizer)
    for batch in batches:
        loss = engine.module(batch).mean()
        engine.backward(loss)
""",
    # the generator's step: what the other model gets of gradients is thrown away
    """
from torch.nn.parallel import DistributedDataParallel as DDP

def train(generator, judge, loader, of_generator, of_judge):
    netG, netD = DDP(generator), DDP(judge)
    for z, real in loader:
        fake = netG(z)
        of_judge.zero_grad()
        (netD(fake.detach()).mean() - netD(real).mean()).backward()
        of_judge.step()
        of_generator.zero_grad()
        loss = -netD.module(fake).mean()
        loss.backward()
        of_generator.step()
""",
]

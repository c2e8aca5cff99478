"""A scheduler, an optimizer, a sampler or a scaler that takes its step, or is loaded, on some ranks only.

What it does
    Reports `step()` of an optimizer or of a learning-rate schedule, `set_epoch()` of a sampler, `update()` of a
    `GradScaler`, and `load_state_dict()` of an optimizer, or of a model that DDP has wrapped already, behind a test
    that some ranks pass and others do not, in a function that computes gradients, or steps an optimizer, on all of
    them. The same where other weights are written there (loaded, copied, averaged, in a function that is called as
    well) and the ranks that skip it run that model, too, or train it. Silent where something is broadcast or wrapped
    afterwards, or another branch takes the same step.

Why is this bad
    The ranks go on with other learning rates, other weights or another order of the data than each other. Nothing
    fails: the replicas drift apart.

References
    https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import WRAPPING, may
from validator.domains.spmd import NONE, Causes, only
from validator.effects.evidence import asks_for_rank
from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.changed_weights import ChangedWeights
from validator.flow.queries.training.optimizers import is_scaler, libraries_of, optimizer_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP561", "stepped-on-some-ranks", "warning", "1.0", tokens=("step", "set_epoch", "backward"), solves=True)

_SCHEDULES = "torch.optim.lr_scheduler."


def check_project(project: Project) -> Iterator[Finding]:
    queries, weights = project.analysis(Queries), project.analysis(ChangedWeights)
    for unit in queries.mentioning("step", "set_epoch", "update", "backward"):
        steps = list(_steps(queries, weights, unit))
        texts = [call.operand(0).text for call, _ in steps]
        guarded = [
            (call, what)
            for call, what in steps
            if _by_rank(call) and texts.count(call.operand(0).text) == 1 and not _is_broadcast(queries, call)
        ]
        if not guarded or is_aside(unit.path) or not _trains_everywhere(queries, unit):
            continue
        for call, what in guarded:
            yield RULE.finding(
                unit.path,
                call.at,
                f"`{call.operand(0).text}` in `{unit.qualname}` runs on some ranks only: {what} of the others stays"
                " as it was",
                help="take the step on all ranks",
                context=f"{unit.qualname}:{call.operand(0).text}",
            )


def _steps(queries: Queries, weights: ChangedWeights, unit: Unit) -> Iterator[tuple[Place, str]]:
    """The calls that change by what a rank trains, and what that is."""
    for call in queries.calls_in(unit):
        if not call.around():
            continue
        if any(weights.is_used_by_all(call, model) for model in weights.by(call)):
            yield call, "a model"
        elif (receiver := call.receiver) is not None and (what := _stepped(call, receiver)):
            yield call, what


def _stepped(call: Place, receiver: Place) -> str:
    """What stays as it was on ranks that skip a call of an object's method."""
    if call.method == "step" and any(name.startswith(_SCHEDULES) for name in libraries_of(receiver)):
        return "the learning rate"
    if call.method == "step" and optimizer_of(call) is not None:
        return "the model"
    if call.method == "set_epoch":
        return "the order of the data"
    if call.method == "update" and is_scaler(receiver):
        return "the scale of the loss"
    if call.method == "load_state_dict" and any(name.startswith("torch.optim.") for name in libraries_of(receiver)):
        return "the optimizer"
    if call.method == "load_state_dict" and may(_wrapped(receiver).closed.state, "ddp"):
        return "the model"
    return ""


def _wrapped(model: Place) -> Place:
    """The model that another one is the inside of: `model` of `model.module`."""
    root = model.root
    return root.operand(0) if root.value.op == "attr" and root.value.data == "module" else model


def _is_broadcast(queries: Queries, call: Place) -> bool:
    """Whether a function broadcasts, synchronises or wraps something after a call, or calls what does."""
    later = (each for each in queries.calls_in(call.unit) if each.number > call.number)
    return any("broadcast" in each.method or each.method.startswith("sync_") or _equalizes(each) for each in later)


def _equalizes(call: Place) -> bool:
    """Whether a call wraps or shards a model, or broadcasts in what it runs: either may make the ranks equal."""
    steps = (call.result.steps.get((call.number, position), ()) for position in range(len(call.value.args)))
    wraps = any(not WRAPPING.isdisjoint(each) for each in steps)
    return wraps or any("broadcast" in operation.name for operation, _ in call.reached())


def _by_rank(call: Place) -> Causes:
    """By which ranks differ in coming to a call, where a test around it asks who they are. That some objects of a class
    hold what differs says nothing of those that are asked here: it is certain, or the test names the rank itself."""
    asking = [test for test in call.tests_inside if asks_for_rank(test)]
    causes = only(call.around(), "rank", "member") if asking else NONE
    return causes if any(c.sure for c in causes) or any(test.named_rank() for test in asking) else NONE


def _trains_everywhere(queries: Queries, unit: Unit) -> bool:
    """Whether a function computes gradients, or steps an optimizer, on all ranks that come to it."""
    calls = queries.calls_in(unit)
    trains = (call for call in calls if call.method == "backward" or call.method == "step" and optimizer_of(call))
    return any(_by_rank(call) == NONE for call in trains)


_TRAINING = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(batches, local_rank):
    dist.init_process_group("nccl")
    model = DDP(torch.nn.Linear(4, 4).to(local_rank), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        {step}

main([torch.ones(4)], 0)
"""

INCORRECT = [
    _TRAINING.replace(
        "{step}",
        """if dist.get_rank() == 0:
            schedule.step()  # error: MP561
            print(schedule.get_last_lr())""",
    ),
]

_REPLICAS = """
import torch
import torch.distributed as dist

def send(module):
    for tensor in list(module.parameters()) + list(module.buffers()):
        dist.broadcast(tensor.data, src=0)

def tensors(module):
    return list(module.named_parameters()) + list(module.named_buffers())

def copy(source, target):
    known = dict(tensors(source))
    for name, tensor in tensors(target):
        tensor.copy_(known[name].detach())

def main(loader, first, second, resumed):
    rank = dist.get_rank()
    {before}
    if rank == 0:
        for name, module in [("first", first), ("second", second)]:
            copy(resumed[name], module){mark}
    {after}
    optimizer = torch.optim.Adam(params=list(first.parameters()) + list(second.parameters()))
    for batch in loader:
        optimizer.zero_grad()
        second(first(batch)).mean().backward()
        for parameter in first.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        optimizer.step()
"""
_SEND = "for module in (first, second):\n        send(module)"
_AVERAGE = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

def main(loader, net, average, path):
    model = DDP(net)
    for batch in loader:
        with torch.no_grad():
            target = {asked}
        (model(batch) - target).pow(2).mean().backward()
        if dist.get_rank() == 0:
            for a, b in zip(average.parameters(), net.parameters()):
                a.data.mul_(0.99).add_(b.data, alpha=0.01){mark}
            torch.save(average.state_dict(), path)
"""

INCORRECT += [
    _REPLICAS.replace("{before}", _SEND).replace("{mark}", "  # error: MP561").replace("{after}", ""),
    _AVERAGE.replace("{asked}", "average(batch)").replace("{mark}", "  # error: MP561"),
]

_KEPT = """
import copy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

class Average:
    def __init__(self, module):
        self.module, self.updates = copy.deepcopy(module), 0

    @torch.no_grad()
    def update(self, source):
        self.updates += 1
        for mine, theirs in zip(self.module.parameters(), source.parameters()):
            mine.lerp_(theirs, 0.01)

class Trainer:
    def __init__(self, module, optimizer):
        self.main = dist.get_rank() == 0
        self.model, self.optimizer = DDP(module), optimizer
        self.average = Average(module)

    def train(self, loader):
        for images, labels in loader:
            F.cross_entropy(self.model(images), labels).backward()
            self.optimizer.step()
            if self.main:
                self.average.update(self.model.module){mark}

    def score(self, loader):
        found = torch.zeros(1)
        for images, labels in loader:
            found += ({asked}(images) == labels).sum()
        dist.all_reduce(found)
        return found
"""
INCORRECT += [
    _KEPT.replace("{asked}", "self.average.module").replace("{mark}", "  # error: MP561"),
]

CORRECT = [
    _KEPT.replace("{asked}", "self.model").replace("{mark}", ""),
    _REPLICAS.replace("{before}", "").replace("{mark}", "").replace("{after}", _SEND),
    _AVERAGE.replace("{asked}", "batch").replace("{mark}", ""),
    _TRAINING.replace(
        "{step}",
        """schedule.step()
        if dist.get_rank() == 0:
            print(schedule.get_last_lr())""",
    ),
    # a round that the others end early leaves the count as it was made
    """
import torch
import torch.distributed as dist

def main(batches, model, every):
    dist.init_process_group("gloo")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    number = 0
    for batch in batches:
        model(batch).mean().backward()
        number += 1
        if number % every:
            continue
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() != 0:
            continue
        print(number)

main([torch.ones(4)], torch.nn.Linear(4, 4), 2)
""",
    """
import torch
import torch.distributed as dist

def learner(batches, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()

def main(batches):
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        learner(batches, torch.nn.Linear(4, 4))

main([torch.ones(4)])
""",
    # what each rank counts of its share, which only may differ between ranks
    """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

class Buffer:
    def __init__(self, each):
        self.first, self.each = dist.get_rank() * each, each
        self.clear()

    def clear(self):
        self.rows, self.size = [], 0

    def add(self, rows):
        for index, row in enumerate(rows):
            if self.first <= index < self.first + self.each:
                self.rows.append(row)
                self.size += 1

    def is_ready(self, wanted):
        return self.size >= wanted

class Trainer:
    def __init__(self, module, each, ratio):
        self.model, self.buffer, self.ratio, self.steps = DDP(module), Buffer(each), ratio, 0
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.other_optimizer = torch.optim.Adam(self.model.parameters())

    def receive(self, rows):
        self.buffer.add(rows)

    def run(self, batches):
        both = self.buffer.is_ready(1000)
        for batch in batches:
            self.model(batch).mean().backward()
            self.optimizer.step()
            if self.steps % self.ratio == 0 and both:
                self.other_optimizer.zero_grad()
                self.model(batch).square().mean().backward()
                self.other_optimizer.step()
            self.steps += 1
""",
]

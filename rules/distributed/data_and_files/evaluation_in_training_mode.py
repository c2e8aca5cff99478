"""An evaluation that leaves the model in training mode.

What it does
    Reports a function called `evaluate`, `validate` or alike that runs a forward of a model that is, or may be, one of
    FSDP, DDP or DeepSpeed without gradients, itself or through a function that it calls (`self.compute_loss(batch)`),
    and neither switches to `eval()` nor is called where that has been done. Also a function, whatever it is called,
    that runs a model without gradients in a loop and calls its `train()` afterwards, where nothing in the project
    switches that model to evaluation.

Why is this bad
    Dropout stays on, and differs between ranks: the metric is noise, and where a decision hangs on it (stop early, keep
    the best checkpoint) ranks may decide differently. `no_grad` does not switch it off.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.eval
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import WRAPPING, may
from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, ways_back
from validator.flow.queries.escapes import Index, argument_of
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.cleared_gradients import Gradients
from validator.flow.queries.training.gradients import switches_off
from validator.flow.queries.training.modes import Modes
from validator.flow.queries.training.placements import Placings
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP521", "evaluation-in-training-mode", "warning", "0.1.0", tokens=("no_grad", "inference_mode"))


def check_project(project: Project) -> Iterator[Finding]:
    wrapped = list(_of_wrapped(project))
    yield from wrapped
    told = {(each.path, each.context) for each in wrapped}
    yield from (each for each in _of_trained(project) if (each.path, each.context) not in told)


def _of_trained(project: Project) -> Iterator[Finding]:
    """Models of whatever kind that the function itself puts back into training, and nobody ever out of it."""
    queries, gradients = project.analysis(Queries), project.analysis(Gradients)
    modes = Modes(queries)
    for unit in queries.flow.mentions.calling("train"):
        if is_aside(unit.path) or unit in gradients.computing:
            continue
        for back in modes.trainings(unit):
            model = back.receiver
            run = _run_before(queries, back, model) if model is not None else None
            if run is not None and model is not None and not modes.may_evaluate(model):
                yield _report(run, model)
                break


def _run_before(queries: Queries, back: Place, model: Place) -> Place | None:
    """A call in the rounds of a loop that runs a model without gradients, or is passed it, before the model is put
    into training, and for the first time: who does so before, too, means to run it so."""
    unit = back.unit
    everywhere = any(switches_off(decorator) for decorator in queries.decorators(unit))
    for call in queries.calls_in(unit):
        alone = everywhere or any(switches_off(call.value_at(manager)) for manager in unit.managers(call.number))
        passed = any(call.value_at(number).text == model.text for number in call.value.args)
        if alone and passed and unit.control.loops_around(call.value.block) and _is_behind(back, call):
            before = (each for each in ways_back(call, lambda each: False) if each is not None)
            return None if any(each.value.op == "call" and each.method == "train" for each in before) else call
    return None


def _is_behind(late: Place, early: Place) -> bool:
    """Whether a value is reached by way of another one that runs in a loop, and does not lead back there."""
    before = ways_back(late, lambda each: False)
    return early in before and late not in ways_back(early, lambda each: False)


def _of_wrapped(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    index = Index(placings.flow)
    words = placings.flow.models.likely.get("evaluations", frozenset())
    if not placings.flow.placing(*WRAPPING):
        return
    named = {m.name for m in project.functions() if not words.isdisjoint(m.name.strip("_").split("_")[:2])}
    for unit in placings.queries.called(*named):
        if is_aside(unit.path):
            continue
        if not list(index.sites(unit)):
            continue
        found = next(_forwards(placings, unit), None)
        if found is not None and _kept_as(_given(*found)).isdisjoint(_evaluated(placings)):
            yield _report(*found)


def _given(call: Place, model: Place) -> Place:
    """What the call passes for a model that is a parameter of the function which runs it; else the model."""
    param = model.root.value
    number = argument_of(call.unit, call.number, model.unit, param.data[0]) if param.op == "param" else None
    return call.value_at(number).root if number is not None and model.unit is not call.unit else model


def _evaluated(placings: Placings) -> set[str]:
    """The names of attributes that are switched to evaluation somewhere, perhaps as a variable that holds them, or one
    after another: `for model in (self.actor, self.critic): model.eval()`."""
    owners = (call.receiver for call in placings.queries.named("eval"))
    return {name for owner in owners if owner is not None for name in _kept_as(owner)}


def _kept_as(model: Place) -> set[str]:
    """The names of the attributes that hold a model, itself or among others: `self.models["actor"]`."""
    names, stack, seen = set(), [model.root], {model.root}
    while stack:
        place = stack.pop()
        if place.value.op == "attr":
            names.add(str(place.value.data))
            continue
        parts = [place.value_at(number).root for number in place.value.args if number >= 0]
        if place.value.op == "call":  # `self.models.values()`, `zip(phases, models)`
            parts = [place.receiver.root] if place.receiver is not None else parts[1:]
        elif place.value.op in ("item", "mut"):
            parts = parts[:1]
        stack += [part for part in parts if part not in seen]
        seen.update(parts)
    return names


def _forwards(placings: Placings, unit: Unit) -> Iterator[tuple[Place, Place]]:
    """The calls that run a wrapped model without gradients, here or one call deeper: (call, model)."""
    everywhere = any(switches_off(decorator) for decorator in placings.queries.decorators(unit))
    for call in placings.queries.calls_in(unit):
        if not everywhere and not any(switches_off(call.value_at(m)) for m in unit.managers(call.number)):
            continue
        if _runs(call):
            yield call, call.operand(0)
        for target in placings.queries.targets(call):
            inner = next((each for each in placings.queries.calls_in(target) if _runs(each)), None)
            if inner is not None:
                yield call, inner.operand(0)


def _runs(call: Place) -> bool:
    """Whether a call runs a wrapped model that nobody ever switches to evaluation."""
    model = call.operand(0)
    if model.value.op == "attr" and (call.method == "forward" or may(model.operand(0).closed.state, *WRAPPING)):
        return False
    state = model.closed.state
    return may(state, *WRAPPING) and not may(state, "eval") and not any(map(model.val.of, ("bound", "unit")))


def _report(call: Place, model: Place) -> Finding:
    through = "" if call.operand(0) == model else f", through `{call.operand(0).text}`,"
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.unit.qualname}` runs `{model.text}`{through} without having switched it to evaluation: dropout"
        " stays on",
        help=f"call `{model.text}.eval()` on all ranks before, and `{model.text}.train()` after",
        context=f"{call.unit.qualname}:{model.text}",
    )


_RESET = """
import torch
import torch.distributed as dist

class Trainer:
    def __init__(self, model, judge):
        self.model, self.judge = model, judge

    def score(self, model, batch):
        return model(batch).loss

    def measure(self, loader):
        {before}
        total = 0
        with torch.no_grad():
            for batch in loader:
                total += self.score(self.model, batch) - self.score(self.judge, batch){mark}
        dist.all_reduce(total)
        self.model.train()  # back to what it was
        return total

    def fit(self, loader, held_out):
        self.judge.eval()
        self.model.train()
        for batch in loader:
            self.model(batch).loss.backward()
        {outside}
        self.measure(held_out)

def start(build, loader, held_out):
    model, judge = build("model"), build("judge")
    Trainer(model, judge).fit(loader, held_out)
"""

INCORRECT = [
    _RESET.format(before="print(loader)", mark="  # error: MP521", outside="print(len(loader))"),
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    @torch.no_grad()
    def evaluate(self, batches):
        return sum(self.model(batch).loss for batch in batches)  # error: MP521

    def fit(self, batches):
        return self.evaluate(batches)
""",
    """
import deepspeed
import torch

class Trainer:
    def __init__(self, model):
        self.model = model

    def compute_loss(self, batch):
        return self.model(batch).loss

    @torch.no_grad()
    def evaluate(self, batches):
        return sum(self.compute_loss(batch) for batch in batches)  # error: MP521

    def fit(self, batches):
        self.model.train()
        return self.evaluate(batches)

def main(model, batches):
    engine, _, _, _ = deepspeed.initialize(model=model)
    Trainer(engine).fit(batches)
""",
    # wrapped as an option says, or not at all
    """
import deepspeed
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def wrapped(model, kind):
    if kind == "ddp":
        return DDP(model)
    if kind == "deepspeed":
        return deepspeed.initialize(model=model)[0]
    return model

def forward(model, batch):
    return model(batch).loss

class Executor:
    def cv(self, model, batches):
        with torch.no_grad():
            return sum(forward(model, batch) for batch in batches)  # error: MP521

def main(build, kind, batches):
    model = wrapped(build(torch.nn.Linear(4, 4)), kind)
    Executor().cv(model, batches)
""",
]

CORRECT = [
    # switched here, by the caller, among others; meant to be in training
    _RESET.format(before="self.model.eval()", mark="", outside="print(len(loader))"),
    _RESET.format(before="self.model.train(False)", mark="", outside="print(len(loader))"),
    _RESET.format(before="print(loader)", mark="", outside="self.model.eval()"),
    _RESET.format(before="self.model.train()", mark="", outside="print(len(loader))"),
    _RESET.format(before="[each.eval() for each in (self.model, self.judge)]", mark="", outside="print(len(loader))"),
    # what is computed without gradients is trained on then
    """
import torch
import torch.distributed as dist

def collect(model, loader):
    kept = []
    with torch.no_grad():
        for batch in loader:
            kept.append(model(batch))
    model.train()
    for batch in kept:
        model(batch).backward()
    dist.barrier()
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    @torch.no_grad()
    def evaluate(self, batches):
        self.model.eval()
        return sum(self.model(batch).loss for batch in batches)

    def fit(self, batches):
        return self.evaluate(batches)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    @torch.no_grad()
    def evaluate(self, batches):
        return sum(self.model(batch).loss for batch in batches)

    def fit(self, batches):
        self.model.eval()
        return self.evaluate(batches)
""",
    """
import deepspeed
import torch

class Trainer:
    def __init__(self, model, judge):
        self.model = model
        self.judge = judge

    def compute_loss(self, batch):
        self.model.eval()
        return self.model(batch).loss

    def score(self, batch):
        return self.judge(batch)

    @torch.no_grad()
    def evaluate(self, batches):
        return sum(self.compute_loss(batch) - self.score(batch) for batch in batches)

    def fit(self, batches):
        return self.evaluate(batches)

def main(model, judge, batches):
    engine, _, _, _ = deepspeed.initialize(model=model)
    Trainer(engine, judge).fit(batches)
""",
    """
import torch
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def loss(self, batch):
        return self.model(batch).loss

    @torch.no_grad()
    def evaluate(self, batches):
        model = self.model
        model.eval()
        return sum(self.loss(batch) for batch in batches)

    def fit(self, batches):
        return self.evaluate(batches)
""",
    # the same, switched
    """
import deepspeed
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

def wrapped(model, kind):
    if kind == "ddp":
        return DDP(model)
    if kind == "deepspeed":
        return deepspeed.initialize(model=model)[0]
    return model

def forward(model, batch):
    return model(batch).loss

class Executor:
    def cv(self, model, batches):
        model.eval()
        with torch.no_grad():
            return sum(forward(model, batch) for batch in batches)

def main(build, kind, batches):
    model = wrapped(build(torch.nn.Linear(4, 4)), kind)
    Executor().cv(model, batches)
""",
    # a method of a model that may be wrapped is not its forward
    """
import deepspeed
import torch

class Trainer:
    def __init__(self, model, fast):
        self.model = deepspeed.initialize(model=model)[0] if fast else model

    @torch.no_grad()
    def evaluate(self, batches):
        self.model.train()
        self.model.gradient_checkpointing_enable()

def main(build, fast, batches):
    Trainer(build(torch.nn.Linear(4, 4)), fast).evaluate(batches)
""",
    # several models, one after another
    """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

class Trainer:
    def build(self, actor, critic, heads):
        self.actor, self.critic = DDP(actor), DDP(critic)
        self.heads = {name: DDP(head) for name, head in heads.items()}

    @torch.no_grad()
    def evaluate(self, batches):
        for model in (self.actor, self.critic):
            model.eval()
        for _, head in self.heads.items():
            head.eval()
        return sum(self.actor(batch).loss + self.critic(batch).loss for batch in batches)

    @torch.no_grad()
    def validate(self, batches):
        return sum(self.heads["first"](batch).loss for batch in batches)

    def fit(self, batches):
        return self.evaluate(batches), self.validate(batches)
""",
]

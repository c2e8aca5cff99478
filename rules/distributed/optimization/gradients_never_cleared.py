"""A training loop that never clears the gradients.

What it does
    Reports `step()` of an optimizer, or of a `GradScaler` that is given one, in a loop in whose rounds gradients are
    computed, where nothing that runs in a round clears one: no `zero_grad`, no store to `grad`. The loop may stand in a
    function that calls the one with the step. Where a test decides whether a round takes a step, what the functions
    around the loop clear counts too. What throws the gradients of chosen parameters away between `backward()` and the
    step, such as those of a layer that is not to move yet, does not count: those of the others stay.

Why is this bad
    `backward` adds to the gradients that are there. Each step then goes along the sum of all gradients so far: the loss
    falls at first, and training looks as if its learning rate were too high.

References
    https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.control import reachable
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries, blocks_of
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.training.cleared_gradients import Gradients, computes
from validator.flow.queries.training.optimizers import name_of, optimizer_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP594", "gradients-never-cleared", "error", "0.5.0", tokens=("backward",), solves=True)

_CLEAR_THEMSELVES = ("colossalai", "hivemind")  # some optimizers of theirs, in `step`


def check_project(project: Project) -> Iterator[Finding]:
    queries, gradients = project.analysis(Queries), project.analysis(Gradients)
    itself = queries.flow.mentions.libraries(*_CLEAR_THEMSELVES) or gradients.in_steps
    for unit in queries.flow.mentions.calling("step"):
        if is_test(unit.path):
            continue
        stepped = [
            (call, optimizer)
            for call in queries.calls_in(unit)
            if call.method == "step" and (optimizer := optimizer_of(call, itself)) is not None
        ]
        told: set[str] = set()
        for step, optimizer in stepped:
            name = name_of(optimizer)
            search = _Search(gradients, name, stepped)
            if name not in told and not gradients.in_hooks and search.is_never_cleared(step, optimizer):
                told.add(name)
                yield _finding(step, name)


class _Search:
    """For a loop in whose rounds an optimizer takes a step and nothing is cleared.

    `name`: what the optimizer is called; `stepped`: the steps of its function, with the optimizers that take them.
    What others clear is their own.
    """

    def __init__(self, gradients: Gradients, name: str, stepped: list[tuple[Place, Place]]) -> None:
        self.gradients = gradients
        self.queries = gradients.queries
        self.steps = [step for step, other in stepped if name_of(other) == name]
        self.others = {name_of(other) for _, other in stepped} - {name}
        self.judged: set[Place] = set()  # the calls of functions that are known to clear nothing

    def is_never_cleared(self, step: Place, optimizer: Place) -> bool:
        queue: list[tuple[Place, Place | None, bool]] = [(step, optimizer, True)]
        seen = {step.unit}
        for place, held, always in queue:
            for header in place.unit.control.loops_around(place.value.block):
                blocks = self._round(place, header, held)
                if not blocks or not self._computes(place, blocks):
                    continue
                within = [p for p in self._values(place) if p.value.block in blocks]
                if always and place.unit.control.around(place.value.block).isdisjoint(blocks):
                    if not self._cleared(within, place):
                        return True
                elif not self._cleared(self._values(place), place) and not self._around(place):
                    return True
                break
            else:
                if self._cleared(self._values(place), place):
                    continue  # in the function itself, which runs in each round
                always = always and not place.unit.control.around(place.value.block)
                self.judged.update(self.queries.calls_of(place.unit))
                for call in self.queries.calls_of(place.unit):
                    outer = _passed(place, held, call)
                    if outer is not None and call.unit not in seen and not is_test(call.unit.path):
                        seen.add(call.unit)
                        queue.append((call, outer if outer.unit is call.unit else None, always))
        return False

    def _round(self, place: Place, header: int, held: Place | None) -> frozenset[int]:
        """The blocks of a loop that comes round again after a place, with the same optimizer."""
        code = place.unit.code
        loop = code.loops[header]
        blocks = frozenset([*blocks_of(code, header), header])
        if header not in reachable(code, but=loop.after, start=place.value.block):
            return frozenset()
        if any(p.value.op in ("yield", "yield from") and p.value.block in blocks for p in self._values(place)):
            return frozenset()  # who takes what is given may clear
        return blocks if held is None or _stays(held, blocks) else frozenset()

    def _computes(self, place: Place, blocks: frozenset[int]) -> bool:
        calls = [call for call in self.queries.calls_in(place.unit) if call.value.block in blocks]
        return any(
            computes(call) or any(target in self.gradients.computing for target in self.queries.targets(call))
            for call in calls
        )

    def _values(self, place: Place) -> list[Place]:
        return [place._replace(number=number) for number in range(len(place.unit.code.values))]

    def _cleared(self, places: list[Place], step: Place | None = None) -> bool:
        """`step`: where a unit takes the step, itself or in what it calls."""
        steps = [step, *self.steps] if step is not None else ()
        unknown = (each for each in places if each not in self.judged)
        return self.gradients.is_cleared(unknown, self._is_of_others, steps)

    def _is_of_others(self, place: Place) -> bool:
        return place.value.op == "call" and place.receiver is not None and name_of(place.receiver) in self.others

    def _around(self, place: Place, seen: frozenset[Unit] = frozenset(), judged: bool = True) -> bool:
        """Whether something clears gradients that runs time after time around a function; `judged`: which clears none
        itself."""
        calls = self.queries.calls_of(place.unit)
        self.judged.update(calls if judged else ())
        for call in calls:
            if call.unit in seen:
                continue
            loops = call.unit.control.loops_around(call.value.block)
            blocks = frozenset(blocks_of(call.unit.code, loops[-1])) if loops else frozenset()
            again = self._is_repeated(call.unit)
            if self._cleared([each for each in self._values(call) if again or each.value.block in blocks]):
                return True
            if self._around(call, seen | {call.unit}, again):
                return True
        return False

    def _is_repeated(self, unit: Unit, seen: frozenset[Unit] = frozenset()) -> bool:
        """Whether a function runs more than once, or may for all that is known of its callers."""
        calls = self.queries.calls_of(unit)
        if not calls:
            return unit.code.kind != "module"
        return any(
            bool(call.unit.control.loops_around(call.value.block)) or self._is_repeated(call.unit, seen | {unit})
            for call in calls
            if call.unit not in seen
        )


def _stays(held: Place, blocks: frozenset[int]) -> bool:
    """Whether a value is the same in all rounds of a loop."""
    root = held.root
    if root.value.op in ("attr", "item"):
        return all(_stays(root.operand(i), blocks) for i in range(len(root.value.args)))
    return root.value.op in ("param", "free", "name", "const", "import") or root.value.block not in blocks


def _passed(place: Place, held: Place | None, call: Place) -> Place | None:
    """What the optimizer of a function is where that is called: the object or list that holds it; the place itself
    where it does not hang on the call, None where the function makes it."""
    if held is None:
        return place
    root = held.root
    while root.value.op in ("attr", "item"):
        root = root.operand(0).root
    if root.value.op in ("free", "name", "import"):
        return place
    if root.value.op != "param":
        return None
    number = argument_of(call.unit, call.number, place.unit, root.value.data[0])
    return call._replace(number=number) if number is not None else None


def _finding(step: Place, name: str) -> Finding:
    return RULE.finding(
        step.unit.path,
        step.at,
        f"`{step.unit.qualname}` lets `{name}` take a step in each round, and nothing clears the gradients:"
        " those of all rounds add up",
        help=f"call `{name}.zero_grad()` before `backward()`",
        context=f"{step.unit.qualname}:{name}",
    )


INCORRECT = [
    """
import torch

def train(model, loader, criterion):
    optimizer = torch.optim.AdamW(model.parameters())
    for data, label in loader:
        criterion(model(data), label).backward()
        optimizer.step()  # error: MP594
""",
    """
import torch

class Trainer:
    def __init__(self, model, build, scaler):
        self.model = model
        self.optimizer = build(model)
        self.scaler = scaler

    def update(self, loss):
        self.scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)  # error: MP594
        self.scaler.update()

    def fit(self, loader):
        for batch in loader:
            self.update(self.model(batch).loss)
        self.optimizer.zero_grad()
""",
    """
def train(model, judge, optimizer, judging_optimizer, loader, every):
    for step, batch in enumerate(loader):
        made = model(batch)
        made.loss.backward()
        judge(made.detach(), batch).loss.backward()
        if step % every == every - 1:
            optimizer.step()
            optimizer.zero_grad()
            judging_optimizer.step()  # error: MP594
""",
    """
def prepare(model, optimizer, zero_grad=True):
    model.train()
    if zero_grad:
        optimizer.zero_grad()

def train(model, optimizer, loader):
    for batch in loader:
        prepare(model, optimizer, zero_grad=False)
        model(batch).loss.backward()
        optimizer.step()  # error: MP594
""",
    # a layer that is to stay as it is for a while
    """
def hold(model, epoch):
    if epoch > 0:
        return
    for name, p in model.named_parameters():
        if "last_layer" in name and p.grad is not None:
            p.grad = None

def train(model, optimizer, scaler, loader, epoch):
    for batch in loader:
        loss = model(batch).loss
        if scaler is None:
            loss.backward()
            hold(model, epoch)
            optimizer.step()  # error: MP594
        else:
            scaler.scale(loss).backward()
            hold(model, epoch)
            scaler.step(optimizer)

def train_body(model, optimizer, loader, epoch):
    for batch in loader:
        model(batch).loss.backward()
        model.head.weight.grad.zero_()
        for name, p in model.named_parameters():
            if name in model.held:
                p.grad = None
        optimizer.step()  # error: MP594
""",
]

CORRECT = [
    """
import torch

def train(model, loader, criterion):
    optimizer = torch.optim.AdamW(model.parameters())
    for step, (data, label) in enumerate(loader):
        criterion(model(data), label).backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()

def scheduled(model, loader, criterion):
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [100])
    for data, label in loader:
        criterion(model(data), label).backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
""",
    """
import torch

def clear(model):
    for param in model.parameters():
        param.grad = None

def train(model, loader, criterion, engine):
    optimizer = torch.optim.AdamW(model.parameters())
    for data, label in loader:
        clear(model)
        criterion(model(data), label).backward()
        optimizer.step()
    for data, label in loader:
        engine.backward(criterion(model(data), label))
        engine.step()
""",
    # those that are there, that are trained; by a choice that may be all that are trained; of either kind behind a step
    """
def train(model, optimizer, loader):
    for batch in loader:
        for p in model.parameters():
            if p.requires_grad and p.grad is not None:
                p.grad = None
        model(batch).loss.backward()
        optimizer.step()

def adapt(model, optimizer, loader):
    for batch in loader:
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.grad = None
        model(batch).loss.backward()
        optimizer.step()

def divided(model, optimizer, loader):
    for batch in loader:
        model(batch).loss.backward()
        optimizer.step()
        for name, p in model.named_parameters():
            if "embed" in name:
                p.grad = None
            else:
                p.grad.zero_()

def held(model, optimizer, loader):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).loss.backward()
        for name, p in model.named_parameters():
            if "embed" in name:
                p.grad = None
        optimizer.step()
""",
    # around the loop of micro-batches, before the last of which the step is not taken
    """
def run(model, optimizer, batches):
    for number, batch in enumerate(batches):
        model(batch).loss.backward()
        if number == len(batches) - 1:
            optimizer.step()

def train(model, optimizer, loader):
    for batches in loader:
        optimizer.zero_grad()
        run(model, optimizer, batches)
""",
    # in a method that is only known by its name; as a parameter says, or its default
    """
class Plan:
    def before_round(self):
        for part in self.parts:
            part.grad = None

def prepare(model, optimizer, zero_grad=True):
    model.train()
    if zero_grad:
        optimizer.zero_grad()

def train(model, optimizer, loader, plan):
    for batch in loader:
        plan.before_round()
        model(batch).loss.backward()
        optimizer.step()
    for batch in loader:
        prepare(model, optimizer)
        model(batch).loss.backward()
        optimizer.step()
""",
    # a closure; who takes what is given; one round; no gradients; an optimizer for each round, or several in one
    """
import torch

def closed(model, optimizer, loader, closure):
    for batch in loader:
        model(batch).loss.backward()
        optimizer.step(closure)

def given(model, optimizer, loader):
    for batch in loader:
        loss = model(batch).loss
        loss.backward()
        optimizer.step()
        yield loss

def once(model, optimizer, loader):
    for batch in loader:
        model(batch).loss.backward()
        optimizer.step()
        break

def forward(optimizer, scheduler, rounds):
    for _ in range(rounds):
        optimizer.step()
        scheduler.step()

def each(models, batch):
    for model in models:
        optimizer = torch.optim.SGD(model.parameters())
        model(batch).loss.backward()
        optimizer.step()

def several(model, optimizers, loader):
    for batch in loader:
        model(batch).loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad()
""",
    # gradients filled with zeros; cleared as soon as they were used
    """
import torch

def clear(gradients):
    torch._foreach_zero_(gradients)

def train(model, optimizer, loader):
    for batch in loader:
        model(batch).loss.backward()
        optimizer.step()
        clear([p.grad for p in model.parameters()])
    for batch in loader:
        model(batch).loss.backward()
        optimizer.step()
        for p in model.parameters():
            p.grad.data.zero_()
""",
    """
def train(model, optimizer, loader):
    def free(parameter):
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(free)
    for batch in loader:
        model(batch).loss.backward()
        optimizer.step()
""",
    # optimizers that clear what they have used
    """
class Fused:
    def step(self):
        self.inner.step()
        self.inner.zero_grad()

    def zero_grad(self):
        pass

def train(model, optimizer, loader):
    for batch in loader:
        model(batch).loss.backward()
        optimizer.step()
""",
    """
from colossalai.booster import Booster

def train(booster, model, optimizer, loader):
    for batch in loader:
        booster.backward(model(batch).loss, optimizer)
        optimizer.step()
""",
    # an optimizer of the project clears what it has used
    """\
class MasterWeights:
    def __init__(self, optimizer, pairs):
        self.optimizer = optimizer
        self.pairs = pairs

    def step(self):
        for low, high in self.pairs:
            high.grad = low.grad.float()
        self.optimizer.step()
        for low, high in self.pairs:
            low.data.copy_(high.data)
            low.grad = high.grad = None


class Backend:
    def __init__(self, model):
        self.model = model
        self.optimizer = None

    def set_optimizer(self, optimizer):
        self.optimizer = optimizer

    def step(self):
        return self.optimizer.step()


def train(backend: Backend, batches):
    for batch in batches:
        backend.model(batch).mean().backward()
        backend.step()
""",
]

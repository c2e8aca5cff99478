"""PyTorch's own `backward()` of a loss whose model belongs to Accelerate or DeepSpeed.

What it does
    Reports `loss.backward()` where the loss comes through a model that `Accelerator.prepare` gave back, or through the
    engine of `deepspeed.initialize`, also in helper functions and behind attributes. Silent where the function also
    hands this loss to somebody's `backward(loss)`, or another one on another way, where the loss is scaled by
    `engine.scale(loss)`, and where the `Accelerator` is made with `mixed_precision="no"` or `"bf16"` and accumulates
    nothing.

Why is this bad
    `Accelerator.backward` divides the loss by the number of accumulated batches, scales it for fp16, and hands it to
    DeepSpeed where the launcher asked for that. Past it the gradients are as many times too large as batches are
    accumulated, and unscaled by what later divides by the scale. DeepSpeed's engine divided and scaled the loss in its
    own `backward` alone until November 2025 (pull request 7665), and reduced gradients only there. Later versions
    (looked at: 0.19.8) see a plain `backward()`, but still divide nothing by the accumulation, and refuse it in fp16.

References
    https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.backward
    https://deepspeed.readthedocs.io/en/latest/training.html
    https://github.com/deepspeedai/DeepSpeed/pull/7665
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import certainly
from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import trail
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.gradients import Trained, losses
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP574", "backward-past-engine", "warning", "1.0", tokens=("accelerat", "deepspeed"), solves=True)

_UNSCALED = frozenset({"no", "bf16"})
_ACCELERATOR = "accelerate.Accelerator"


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    trained = project.analysis(Trained)
    for call, loss in losses(queries):
        if is_aside(call.unit.path) or _hands_over(queries, call, loss) or _is_for_inputs(queries, call.unit):
            continue
        through = trained.through(loss)
        engine = next((model for each in through if (model := _engine(each)) is not None), None)
        if engine is None or any(each.method == "scale" for each in through):
            continue
        deepspeed = certainly(engine.closed.state, "deepspeed")
        whose = f"DeepSpeed's engine `{engine.text}`" if deepspeed else f"the accelerator that prepared `{engine.text}`"
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"`{call.operand(0).text}()`{call.where} goes past {whose}: nothing divides the loss by the accumulated"
            " batches, or scales it for fp16",
            help=f"`{engine.text}.backward(loss)`" if deepspeed else "`accelerator.backward(loss)`",
            context=f"{call.unit.qualname}:{call.operand(0).text}",
        )


def _engine(call: Place) -> Place | None:
    """The model that a call runs, if it surely is DeepSpeed's engine, or made by an accelerator that may scale."""
    model = call.operand(0)
    while model.value.op == "attr" and model.value.data in ("forward", "module"):
        model = model.operand(0)
    if model.value.op == "attr" and certainly(model.operand(0).closed.state, "deepspeed", "prepared"):
        return None  # a method of it, or of a batch that a prepared loader gives
    state = model.closed.state
    if certainly(state, "deepspeed"):
        return model
    return model if certainly(state, "prepared") and not _is_plain(model) else None


def _is_plain(model: Place) -> bool:
    """Whether all that may have prepared a model scales and accumulates nothing."""
    given = [each.operand(0).root if each.value.op == "unpack" else each for each in trail(model, frozenset())]
    prepared = [each for each in given if each.value.op == "call" and each.receiver is not None]
    owners = [each.receiver for each in prepared if each.method.startswith("prepare")]
    makers = [maker for owner in owners if owner is not None for maker in trail(owner, frozenset())]
    made = [maker for maker in makers if maker.value.op == "call" and _makes_accelerator(maker)]
    return bool(made) and all(map(_scales_nothing, made))


def _makes_accelerator(call: Place) -> bool:
    models = call.flow.models
    return any(o[0] == "ext" and models.named(o[1]) == _ACCELERATOR for o in call.operand(0).val.each)


def _scales_nothing(accelerator: Place) -> bool:
    given = dict(zip(accelerator.value.data.names, accelerator.value.args[1:], strict=True))
    if any(name in ("*", "**") for name in given):
        return False
    precision = accelerator.argument("mixed_precision", 2)
    steps = accelerator.argument("gradient_accumulation_steps", 3)
    plugins = [accelerator.argument(name, -1) for name in ("deepspeed_plugin", "deepspeed_plugins")]
    single = steps is None or steps.closed.is_const(1)
    return precision is not None and precision.closed.constant() in _UNSCALED and single and not any(plugins)


def _is_for_inputs(queries: Queries, unit: Unit) -> bool:
    """Whether a function computes the gradient of something to read it, and takes no step: that of an input, say."""
    reads = any(place.value.data == "grad" for place in queries.values(unit, "attr"))
    return reads and not any(call.method == "step" for call in queries.calls_in(unit))


def _hands_over(queries: Queries, call: Place, loss: Place) -> bool:
    """Whether a function hands the loss to somebody's `backward(loss)`, or another one on another way."""
    ways = dict(call.unit.control.settled(call.value.block))
    for other in queries.calls_in(call.unit):
        named = other.method in ("backward", "manual_backward")
        given = other.argument("loss", 0) if named else None
        if given is not None or named and "*" in other.value.data.names:
            settled = other.unit.control.settled(other.value.block)
            if given is None or given.root == loss.root or any(ways.get(each, way) != way for each, way in settled):
                return True
    return False


_ACCELERATED = """
import torch.nn.functional as F
from accelerate import Accelerator

def loss_of(model, batch):
    return F.mse_loss(model(batch["input"]), batch["label"])

class Trainer:
    def __init__(self, model, optimizer, loader):
        self.accelerator = Accelerator({options})
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)

    def fit(self):
        for batch in self.loader:
            with self.accelerator.accumulate(self.model):
                loss = {loss}
                {backward}
                self.optimizer.step()
                self.optimizer.zero_grad()
"""
_ENGINE = """
import deepspeed

def main(model, batches, config):
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config)
    for batch in batches:
        loss = engine(batch).mean()
        {backward}
        engine.step()
"""


def _accelerated(backward: str, options: str = "", loss: str = "loss_of(self.model, batch)") -> str:
    return _ACCELERATED.format(backward=backward, options=options, loss=loss)


INCORRECT = [
    _accelerated("loss.backward()  # error: MP574", 'mixed_precision="fp16"'),
    _accelerated("loss.backward()  # error: MP574", "gradient_accumulation_steps=4"),
    _accelerated("(loss / 2).backward()  # error: MP574", loss="self.model(batch).loss"),
    """
from accelerate import Accelerator

accelerator = Accelerator()

def main(model, loader, optimizer):
    model = accelerator.prepare(model)
    for batch in loader:
        output = model(**batch)
        output["loss"].backward(retain_graph=True)  # error: MP574
        optimizer.step()
""",
    _ENGINE.format(backward="loss.backward()  # error: MP574"),
    """
from accelerate import Accelerator

def fit(accelerator: Accelerator, model, loader, optimizer, steps, late):
    model, optimizer = accelerator.prepare(model, optimizer)
    for batch in loader:
        first, second = model(batch), model(batch.flip(0))
        if not late:
            accelerator.backward(first)
        second.backward()  # error: MP574
        optimizer.step()
""",
]

CORRECT = [
    _accelerated("self.accelerator.backward(loss)"),
    _accelerated("loss.backward()", 'mixed_precision="no"'),
    _accelerated("loss.backward()", 'mixed_precision="bf16", gradient_accumulation_steps=1'),
    _accelerated("loss.backward()", loss="batch['weight'].sum() * self.model(batch).detach()"),
    _ENGINE.format(backward="engine.backward(loss)"),
    _ENGINE.format(backward="engine.scale(loss).backward()"),
    """
from accelerate import Accelerator

def main(model, loader, optimizer, is_parallel):
    accelerator = Accelerator()
    if is_parallel:
        model = accelerator.prepare(model)
    for batch in loader:
        model(batch).sum().backward()

def choose(model, loader, is_parallel):
    accelerator = Accelerator()
    model = accelerator.prepare(model)
    for batch in loader:
        loss = model(batch).sum()
        if is_parallel:
            accelerator.backward(loss)
        else:
            loss.backward()
""",
    # another caller of the loss has an accelerator
    """
import torch
from accelerate import Accelerator

def preference(chosen, rejected):
    return -(chosen - rejected).sigmoid().log().mean()

class Own:
    def __init__(self, model):
        self.model = model

    def train(self, batches, optimizer):
        for chosen, rejected in batches:
            loss = preference(self.model(chosen), self.model(rejected))
            (loss / len(batches)).backward()
            optimizer.step()

def main(model, optimizer, loader):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for chosen, rejected in loader:
        accelerator.backward(preference(model(chosen), model(rejected)))
        optimizer.step()
""",
]

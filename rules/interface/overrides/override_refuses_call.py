"""An override that refuses the calls which its callers make.

What it does
    Binds the calls on values that may be of a subclass (what a factory or a table of classes gives, what is
    declared as the base class, `self` in an inherited method) to the subclass's own version of the method. Reported
    is an override that needs more, or takes less, than the calls give, while the method that it replaces takes them.
    Silent where any caller knows the override's own signature, where the class is asked for first, and for
    `forward` of modules and constructors. Classes of a family are left to MP103, keywords that
    an override drops to MP122.

Why is this bad
    It raises TypeError with this one implementation, which the configuration chooses.

References
    https://docs.python.org/3/reference/expressions.html#calls
    https://mypy.readthedocs.io/en/stable/class_basics.html#overriding-statically-typed-methods
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.binding import signature
from validator.analysis.interfaces.overrides import Override, Overrides, Refusal
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP129", "override-refuses-call", "error", stable_since="0.1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    overrides = project.analysis(Overrides)
    for each in overrides.narrowing():
        refusals = overrides.refusals(each)
        if refusals and project.families.of(each.cls) is None:
            yield _report(each, refusals)


def _report(each: Override, refusals: list[Refusal]) -> Finding:
    base, (function, call, misfit, _) = each.base, refusals[0]
    assert base.cls is not None
    where = "the top level of its module" if function.name == "<module>" else f"`{function.qualname}`"
    message = (
        f"`{each.cls.name}.{signature(each.method)}` {misfit.message} at the call `{call.target}(…)` in {where}, "
        f"which `{base.cls.name}.{signature(base)}` takes: TypeError with this class only"
    )
    named = f"`{misfit.name}`" if misfit.name else "what it leaves out"
    places = [
        Related(row.function.path, row.call.at[0], f"called here, in `{row.function.qualname}`") for row in refusals
    ]
    return RULE.finding(
        each.method.path,
        each.method.facts.name_at,
        message,
        help=f"give {named} a default, or keep it in the object"
        if misfit.kind == "missing"
        else f"take {named} as `{base.cls.name}.{base.name}` does",
        related=[
            Related(base.path, base.facts.name_at[0], f"`{base.cls.name}.{base.name}` is defined here"),
            *places,
        ],
        context=f"{each.method.qualname}:{misfit.kind}:{misfit.name}",
    )


_REWARDS = """\
from abc import ABC, abstractmethod


class Reward(ABC):
    @abstractmethod
    def score(self, responses, answers, lengths): ...


class ExactReward(Reward):
    def score(self, responses, answers, lengths):
        return [float(r == a) for r, a in zip(responses, answers)]


class LengthReward(ExactReward):
{method}


REWARDS = {{"exact": ExactReward, "length": LengthReward}}


def build_reward(args) -> Reward:
    return REWARDS[args.reward]()


def train(args, batch):
    reward = build_reward(args)
    {call}
"""
_CALL = "return reward.score(batch.responses, batch.answers, batch.lengths)"


def _rewards(signature: str, call: str = _CALL) -> str:
    """The example with a method `score` of `LengthReward`, and what the training loop does with the reward."""
    return _REWARDS.format(method=f"    def {signature}\n        return lengths", call=call)


INCORRECT = (
    _rewards("score(self, responses, answers, lengths, prompt_lengths):  # error: MP129"),
    _rewards("score(self, responses, answers, lengths, *, scale):  # error: MP129"),
    _rewards("score(self, responses, lengths):  # error: MP129"),
    # an abstract base alone, declared where it is used
    """\
from abc import ABC, abstractmethod


class Sampler(ABC):
    @abstractmethod
    def draw(self, prompts, n): ...


class GreedySampler(Sampler):
    def draw(self, prompts):  # error: MP129
        return prompts


class Rollout:
    def __init__(self, sampler: Sampler, strategy):
        self.sampler = sampler

    def run(self, prompts):
        return self.sampler.draw(prompts, 4)
""",
    # an inherited method calls it
    """\
class Worker:
    def update(self, batch, strategy=None):
        return self.loss(batch)

    def loss(self, batch):
        raise NotImplementedError


class CriticWorker(Worker):
    def loss(self, batch, values):  # error: MP129
        return batch - values


def train(worker: Worker, batches):
    for batch in batches:
        worker.update(batch)
""",
)

CORRECT = (
    _rewards("score(self, responses, answers, lengths, prompt_lengths=None):"),
    _rewards("score(self, *args, lengths=None):"),
    # the class is asked for first
    _rewards(
        "score(self, responses, answers, lengths, prompt_lengths):",
        f"if not isinstance(reward, LengthReward):\n        {_CALL}",
    ),
    # somebody knows the signature of its own
    _rewards(
        "score(self, responses, answers, lengths, prompt_lengths):",
        f'if args.reward == "sum":\n        return reward.score(1, 2, 3, batch.prompts)\n    {_CALL}',
    ),
    # nobody calls it through the base class: the objects are made where they are used
    """\
class Worker:
    def loss(self, batch):
        return batch


class CriticWorker(Worker):
    def loss(self, batch, values):
        return batch - values


def train(batch, strategy):
    worker = Worker()
    return worker.loss(batch), CriticWorker().loss(batch, strategy.values)
""",
    # a method that says that it is not there; an inherited one that nobody calls
    """\
class CheckpointIO:
    def save_model(self, model, path):
        return self.save_sharded(model, path, True)

    def load_model(self, model, path):
        return self.load(model, path)

    def save_sharded(self, model, path, gather):
        return path

    def load(self, model, path):
        return path


class InferenceIO(CheckpointIO):
    def save_sharded(self, model, path):
        raise NotImplementedError

    def load(self, model):
        return model


def save(io: CheckpointIO, model, strategy):
    io.save_model(model, strategy.path)
""",
    # the wrapper hands its optimizer to a base class that others use as well
    """\
class Wrapper:
    def __init__(self, optim):
        self.optim = optim

    def step(self, *args, **kwargs):
        return self.optim.step(*args, **kwargs)


class Adam:
    def step(self, scale=1):
        return scale


class ScaledWrapper(Wrapper):
    def step(self, scale):
        return self.optim.step(scale)


class AmpWrapper(Wrapper):
    def step(self, scale):
        return self.optim.step(scale, grads=None)


def build(args, strategy):
    return AmpWrapper(Wrapper(Adam())) if args.amp else Wrapper(ScaledWrapper(Adam()))
""",
    # constructors and the forward of modules are called in ways of their own; nobody calls the private method so
    """\
import torch.distributed as dist
from torch import nn


class Head(nn.Module):
    def __init__(self, size):
        super().__init__()

    def forward(self, hidden):
        return self._scaled(hidden)

    def _scaled(self, hidden):
        return hidden


class ValueHead(Head):
    def __init__(self, size, scale):
        super().__init__(size)

    def forward(self, hidden, mask):
        return hidden * mask

    def _scaled(self, hidden, scale):
        return hidden * scale


def values(head: Head, hidden):
    return head.forward(hidden)
""",
)

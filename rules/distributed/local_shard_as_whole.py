"""A norm or a sum over the shard of one rank, used as if it were that of the whole tensor.

What it does
    Reports `norm`, `sum`, `mean`, `max` and alike of the shard that `.to_local()` gives where the result becomes a
    number, a message or a decision and no collective has combined the ranks' results. Silent where the result leaves
    for code that cannot be followed.

Why is this bad
    Each rank sees its own part: a gradient norm is smaller than the true one by about the root of the number of ranks,
    and ranks that decide by it decide differently.

References
    https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.to_local
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import mostly
from validator.finding import Finding, Related
from validator.flow.aside import is_aside
from validator.flow.placed import Derived, Placings
from validator.flow.queries import Place
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP570", "local-shard-as-whole", "warning", "0.1.0", tokens=("to_local",))

_COMBINING = frozenset({
    "norm", "sum", "mean", "max", "min", "std", "var", "prod", "vector_norm", "get_total_norm", "nansum",
})  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    placings = project.analysis(Placings)
    for call in placings.queries.named(*_COMBINING):
        shard = _shard(call) if not is_aside(call.unit.path) else None
        if shard is None:
            continue
        derived = Derived(placings.flow, call)
        if derived.shown and not derived.reduced and not derived.leaves:
            yield _report(call, shard, derived.shown[0])


def _shard(call: Place) -> Place | None:
    """The shard of which a call takes all elements together."""
    given = [call._replace(number=each) for each in call.value.args[1:]]
    if call.receiver is not None and mostly(call.receiver.closed.state, "local"):
        dimension = call.argument("dim") is not None or (call.method != "norm" and bool(given))
        return None if dimension else call.receiver
    return next((each for each in given[:1] if mostly(each.closed.placements, "local")), None)


def _report(call: Place, shard: Place, use: Place) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}` in `{call.unit.qualname}` is taken over this rank's shard alone, and `{use.text}` uses it as if"
        " it were that of the whole tensor",
        help=f"reduce it over the mesh first (`all_reduce`; of a norm the sum of squares), or ask the DTensor: without"
        f" `.to_local()` and with `.full_tensor()` on the result ({shard.text})",
        related=[Related(use.unit.path, use.at[0], "it is used here")],
        context=f"{call.unit.qualname}:{call.text}",
    )


INCORRECT = [
    """
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def log(self, writer):
        for name, param in self.model.named_parameters():
            norm = param.grad.to_local().norm()  # error: MP570
            print(name, norm.item())

    def total(self):
        total = 0.0
        for param in self.model.parameters():
            total = total + param.grad.to_local().pow(2).sum()  # error: MP570
        if total > 1.0:
            self.skipped = True
""",
]

CORRECT = [
    """
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def total(self):
        total = 0.0
        for param in self.model.parameters():
            total = total + param.grad.to_local().pow(2).sum()
        dist.all_reduce(total)
        if total > 1.0:
            self.skipped = True
""",
    """
from torch.distributed.fsdp import fully_shard

class Trainer:
    def build(self, model):
        self.model = fully_shard(model)

    def parts(self):
        return [param.grad.to_local().norm() for param in self.model.parameters()]

    def whole(self):
        for param in self.model.parameters():
            print(param.grad.norm().full_tensor().item(), param.to_local().shape)
""",
]

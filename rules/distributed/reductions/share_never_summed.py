"""A share of a mean over the ranks that nothing sums up.

What it does
    Finds what a rank divides by the number of ranks: a sum, a mean or a loss of its own data, made of what a model, a
    loss or a batch gave. Reported where neither a collective has summed it before, here or in what callers pass, nor
    one sums what comes of it, and it is shown, computed with, or kept by an object; it is followed through sums,
    products, calls, results and attributes. Reported also in a function that says by its name that it reduces
    (`reduce_tensor`, `all_reduce_mean`), reaches no collective and gives back what it was given divided by the number
    of ranks. Silent about a loss of which gradients are computed, which others bring together, about sizes, lengths and
    options, and wherever the value goes where it cannot be followed.

Why is this bad
    The mean over all ranks is the sum of the shares. One share alone is as many times too small as there are ranks, and
    it is that of one rank: a moving average shrinks, a loss in the log looks better the more GPUs there are, and
    nothing fails.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.values.shares import Onward, counts_ranks, tells_of_ranks, terms
from validator.flow.queries.values.sums import DIVIDING, factors, quotient
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP569", "share-never-summed", "warning", "1.0", tokens=("world_size", "size", "num_processes"))

_FUNCTIONS = ("torch.autograd.Function", "torch.autograd.function.Function")


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for place, dividend, divisor in _quotients(queries):
        if not is_aside(place.unit.path) and any(counts_ranks(each) for each in factors(divisor)):
            yield from _judged(queries, place, dividend, divisor)


def _quotients(queries: Queries) -> Iterator[tuple[Place, Place, Place]]:
    """The divisions of the program, with dividend and divisor."""
    for unit in queries.of_program() if queries.flow.is_distributed else ():
        yield from (
            (place, *parts) for place in queries.values(unit, "binary") if (parts := quotient(place)) is not None
        )
    yield from ((call, *parts) for call in queries.named(*DIVIDING) if (parts := quotient(call)) is not None)


def _judged(queries: Queries, place: Place, dividend: Place, size: Place) -> Iterator[Finding]:
    made = terms(dividend)
    if made.summed or not (made.data or made.opened):
        return
    onward = Onward(queries.flow, place)
    if onward.reduced:
        return
    used = [*onward.kept, *onward.shown]
    if _is_reduction(queries, place) and onward.given_back and not (onward.trained and not _is_of_function(place)):
        yield _report(place, dividend, size, None)
    elif made.data and not (made.opened or onward.leaves or onward.trained) and used:
        yield _report(place, dividend, size, used[0])


def _is_reduction(queries: Queries, place: Place) -> bool:
    """Whether a function says by its name that it reduces what it is given, and meets no other rank."""
    unit = place.unit
    named = "reduce" in (unit.cls.name if _is_of_function(place) and unit.cls is not None else unit.name).lower()
    calls = queries.calls_in(unit) if named else ()
    return named and not any(call.operations or tells_of_ranks(call.method) or any(call.reached()) for call in calls)


def _is_of_function(place: Place) -> bool:
    """Whether a place stands in the `forward` of a function that has a `backward` of its own."""
    unit = place.unit
    return unit.name == "forward" and unit.cls is not None and any(b in _FUNCTIONS for b in unit.cls.external_bases)


def _report(place: Place, dividend: Place, size: Place, used: Place | None) -> Finding:
    unit = place.unit
    why = "nothing sums it over them" if used is not None else "meets no other rank, although its name says so"
    return RULE.finding(
        unit.path,
        place.at,
        f"`{unit.qualname}` divides `{dividend.text}` of this rank by the number of ranks (`{size.text}`), and {why}",
        help="sum over the ranks first (`dist.all_reduce`), or divide by what this rank has alone",
        related=[Related(used.unit.path, used.at[0], "used here")] if used is not None else [],
        context=f"{unit.qualname}:{dividend.text}",
    )


_CENTER = """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

class Loss(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("center", torch.zeros(1, size))

    def forward(self, student, teacher):
        target = F.softmax(teacher - self.center, dim=-1)
        loss = torch.sum(-target * F.log_softmax(student, dim=-1), dim=-1).mean()
        self.update(teacher)
        return loss

    @torch.no_grad()
    def update(self, teacher):
        center = torch.sum(teacher, dim=0, keepdim=True)
        {before}
        center = center / (len(teacher) * dist.get_world_size()){mark}
        {after}
        self.center = self.center * 0.9 + center * 0.1
"""

_HELPER = """
import torch
import torch.distributed as dist

def {name}(tensor):
    total = tensor.clone()
    {inside}
    total /= dist.get_world_size(){mark}
    return total

@torch.no_grad()
def validate(model, loader, criterion, writer):
    for x, y in loader:
        loss = criterion(model(x), y)
        {before}
        loss = {name}(loss)
        {after}
        writer.add_scalar("loss", loss.item())
"""

_LOGGED = """
import torch
import torch.distributed as dist

def train(model, loader, criterion, optimizer, logger):
    running, steps = 0, 0
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
        steps += 1
    average = torch.tensor(running / steps, device="cuda")
    {before}
    average = average.item() / dist.get_world_size(){mark}
    logger.info(f"loss {average:.4f}")
"""


def _with(text: str, **parts: str) -> str:
    for name in ("mark", "before", "after", "inside", "name"):
        text = text.replace(f"{{{name}}}", parts.get(name, {"mark": "", "name": "mean"}.get(name, "pass")))
    return text


_MARK = "  # error: MP569"

INCORRECT = [
    _with(_CENTER, mark=_MARK),
    _with(_HELPER, mark=_MARK),
    _with(_HELPER, mark=_MARK, name="reduce_tensor"),
    _with(_LOGGED, mark=_MARK),
    """
import torch
import torch.distributed as dist

class AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if dist.is_initialized() and dist.get_world_size() > 1:
            x = x.contiguous() / dist.get_world_size()  # error: MP569
        return x

    @staticmethod
    def backward(ctx, grads):
        return grads

def train(model, batches):
    for batch in batches:
        loss = AllReduce.apply(model(batch).mean())
        loss.backward()
""",
]

CORRECT = [
    _with(_CENTER, before="dist.all_reduce(center)"),
    _with(_CENTER, after="dist.all_reduce(center)"),
    _with(_HELPER, inside="dist.all_reduce(total)"),
    _with(_HELPER, before="dist.all_reduce(loss)"),
    _with(_HELPER, after="dist.all_reduce(loss)"),
    _with(_LOGGED, before="dist.all_reduce(average)"),
    # sizes, options and lengths that are shared out
    """
import torch
import torch.distributed as dist

def prepare(args, dataset, loader):
    size = dist.get_world_size()
    batch = args.batch_size / size
    each = torch.tensor(len(dataset)).cuda() / size
    print(batch, each.item(), args.lr / size, loader.batch_size / size)
""",
    # what is trained on: the gradients of the ranks are summed
    """
import torch
import torch.distributed as dist

def train(model, batches, optimizer):
    for batch in batches:
        loss = model(batch).mean() / dist.get_world_size()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= 1.0
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())

def average(model):
    for parameter in model.parameters():
        parameter.register_hook(lambda grad: grad / dist.get_world_size())
""",
    # gathered, in place, kept and summed later
    """
import torch
import torch.distributed as dist

class Meter:
    def __init__(self):
        self.total = 0.0

    def update(self, value):
        self.total += value

    def synchronize(self):
        total = torch.tensor(self.total).cuda()
        dist.all_reduce(total)
        return total.item()

@torch.no_grad()
def measure(model, batches, meter):
    size = dist.get_world_size()
    for batch in batches:
        loss = model(batch).mean()
        meter.update((loss / size).item())
        parts = [torch.zeros_like(loss) for _ in range(size)]
        dist.all_gather(parts, loss)
        print((torch.stack(parts).sum() / size).item())
        share = loss.clone().div_(size)
        dist.all_reduce(share)
        print(share.item())
    print(meter.synchronize())

def main(model, batches):
    measure(model, batches, Meter())
""",
    # shared by others, who sum it
    """
import torch
import torch.distributed as dist

class Parts:
    def loss(self, model, batch):
        return {"loss": model(batch).mean() / dist.get_world_size()}

    def hand_over(self, model, batch, queue):
        queue.put(model(batch).mean() / dist.get_world_size())
""",
]

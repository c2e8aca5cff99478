"""A number of forward passes that each rank takes from its own data.

What it does
    Follows a number read out of a tensor argument (`int(lengths.max().item())`) or out of the batch
    (`mini["attention_mask"].sum().item()`) through assignments and returns, into the functions that call this one, to a
    loop that runs a model or a backward so often: `for … in range(n)`, `for … in batch.chunk(n)`. In code that
    communicates. Silent where a function on the way reduces over ranks, or where the count is padded to a number of
    the configuration.

Why is this bad
    With sharded parameters or several ranks per replica each forward is a collective. Ranks whose batch holds shorter
    samples leave the loop first; the others wait in the next forward until the group's time-out.

References
    https://docs.pytorch.org/docs/stable/distributed.html#collective-functions
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import UNIFORM
from validator.effects.divergence import Divergences
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries, blocks_of
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP506", "rank-local-count", "error", "0.1.0", tokens=("torch",))

_COUNTING = frozenset({"range", "chunk", "split", "tensor_split", "array_split"})
_COMPUTING = frozenset({"min", "max", "int", "ceil", "abs", "round"})
_CONTENT = frozenset({"max", "min", "sum", "argmax", "count_nonzero"})


def check_project(project: Project) -> Iterator[Finding]:
    if not project.analysis(Divergences).traces.effectful:
        return
    queries = project.analysis(Queries)
    for read in queries.named("item"):
        if not is_aside(read.unit.path) and _is_local(read):
            found = next(_loops(read, queries), None)
            if found is not None:
                yield _report(read, *found)


def _is_local(read: Place) -> bool:
    """Whether `….item()` reads a number out of what this rank holds: the batch, or a tensor that is passed."""
    receiver = read.receiver
    if receiver is None or UNIFORM in read.likely.v:
        return False
    if not any(each.value.op == "call" and each.method in _CONTENT for each in receiver.sources):
        return False
    return bool(read.varies("data")) or any(_is_tensor(each) for each in receiver.sources)


def _is_tensor(place: Place) -> bool:
    method = place.unit.method
    if place.value.op != "param" or method is None:
        return False
    return any(p.name == place.value.data[1] and "Tensor" in p.annotation for p in method.facts.params)


def _loops(read: Place, queries: Queries) -> Iterator[tuple[Place, str]]:
    """The loops that go round as often as a number says, or one computed from it, and run a model in each round."""
    stack, seen = [read], {(read.unit, read.number)}
    while stack:
        place = stack.pop()
        following = []
        for user in place.users:
            if _counts(user, place):
                yield from _forwards(user)
            elif _computes(user, place):
                following.append(user)
        following += _returned(place, queries)
        for each in following:
            if (each.unit, each.number) not in seen and UNIFORM not in each.likely.v:
                seen.add((each.unit, each.number))
                stack.append(each)


def _counts(user: Place, number: Place) -> bool:
    """Whether a call makes as many of something as a number says."""
    return user.value.op == "call" and user.method in _COUNTING and number.number in user.value.args[1:]


def _computes(user: Place, number: Place) -> bool:
    """Whether a value is a number computed from another."""
    value = user.value
    if value.op == "call":
        return user.method in _COMPUTING and number.number in value.args[1:]
    return value.op in ("binary", "unary", "phi", "mut")


def _returned(place: Place, queries: Queries) -> Iterator[Place]:
    """Where callers get a value that their callee returns, alone or in a tuple."""
    for block in place.unit.code.blocks:
        if block.end[0] != "return":
            continue
        returned = place.value_at(block.end[1])
        if returned.number == place.number:
            yield from queries.calls_of(place.unit)
        elif returned.value.op == "tuple" and place.number in returned.value.args:
            position = returned.value.args.index(place.number)
            for call in queries.calls_of(place.unit):
                yield from (u for u in call.users if u.value.op == "unpack" and u.value.data[0] == position)


def _forwards(count: Place) -> Iterator[tuple[Place, str]]:
    """The loops over what a call makes that run a model."""
    code = count.unit.code
    for header, loop in code.loops.items():
        if loop.iterator < 0:
            continue
        over = count.value_at(loop.iterator).operand(0).root
        if over.number != count.number and not (over.value.op == "call" and over.method in ("enumerate", "tqdm")
                                                and count.number in over.value.args[1:]):  # fmt: skip
            continue
        forward = _runs(count, header)
        if forward is not None:
            yield count.value_at(loop.iterator), forward.operand(0).text


def _runs(count: Place, header: int) -> Place | None:
    """The call of a model in the body of a loop."""
    inside = frozenset(blocks_of(count.unit.code, header))
    forwards = count.flow.models.likely["forwards"]
    for number, value in enumerate(count.unit.code.values):
        place = count.value_at(number)
        if value.op == "call" and value.block in inside and place.method in forwards:
            return place
    return None


def _report(read: Place, loop: Place, forward: str) -> Finding:
    receiver = read.receiver
    what = receiver.text if receiver is not None else read.text
    return RULE.finding(
        read.unit.path,
        read.at,
        f"`{read.unit.qualname}` reads a number out of this rank's data (`{what}`), and `{loop.unit.qualname}` calls"
        f" `{forward}` that many times: ranks with other data run another number of forwards",
        help="take the count from the configuration, or reduce it over the ranks with MAX and let the shorter ones"
        " run forwards that count for nothing",
        related=[Related(loop.unit.path, loop.at[0], f"`{forward}` is called in this loop")],
        context=f"{read.unit.qualname}:{loop.unit.qualname}",
        severity="error" if any(c.sure for c in read.varies("data")) else "warning",
    )


INCORRECT = [
    """
# file: counting.py
import torch
import torch.distributed as dist

def meet():
    dist.barrier()

def rounds(size: int, lengths: torch.Tensor) -> int:
    longest = int(lengths.max().item())  # error: MP506
    return min(size, longest)

def prepare(data, size):
    count = rounds(size, data["lengths"])
    return data, count
# file: worker.py
import torch.distributed as dist
from counting import prepare

class Worker:
    def setup(self):
        dist.barrier()

    def score(self, data):
        base, count = prepare(data, 8)
        return [self.model(base, level) for level in range(count)]

    def step(self, data):
        base, count = prepare(data, 8)
        for level in range(count):
            self.model(base, level)
""",
    """
import torch
import torch.distributed as dist

class Actor:
    def update(self, data):
        for mini in data.split(self.mini_size):
            tokens = int(mini["attention_mask"].sum().item())  # error: MP506
            count = -(-tokens // self.limit)
            for micro in mini.chunk(count):
                loss = self.loss_of(micro)
                loss.backward()
            dist.all_reduce(self.total)
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist

def rounds(size: int, lengths: torch.Tensor) -> int:
    longest = lengths.max()
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    return min(size, int(longest.item()))

def step(model, data):
    count = rounds(8, data["lengths"])
    for level in range(count):
        model(data, level)
""",
    """
import torch
import torch.distributed as dist

def rounds(size: int, lengths: torch.Tensor) -> int:
    longest = int(lengths.max().item())
    return min(size, longest)

def show(data):
    dist.barrier()
    count = rounds(8, data["lengths"])
    for level in range(count):
        print(data[level])
""",
    """
import torch
import torch.distributed as dist

def fit(data, model, limit, size):
    dist.barrier()
    tokens = int(data["attention_mask"].sum().item())
    share = tokens / limit
    for micro in data.chunk(size):
        (model(micro) * share).backward()
    for part in torch.chunk(data["labels"], tokens):
        print(part)
""",
]

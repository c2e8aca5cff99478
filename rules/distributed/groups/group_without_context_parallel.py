"""A reduction over the data-parallel group of tokens that context parallelism has split.

What it does
    Reports a call that gets a data-parallel group without the context-parallel ranks together with values that were
    cut by the context-parallel rank (`mask.chunk(size)[cp_rank]`). Reports an `all_reduce` of what was computed inside
    torch's `context_parallel` over a group of data-parallel dimensions that leaves the context dimension out, where
    nothing in the function reduces it over that one too. Maxima and minima are silent.

Why is this bad
    Each context-parallel rank holds a part of every sequence. A mean, a variance or a token count over the group
    without them is computed once per part: the parts of one sequence are normalised differently.

References
    https://docs.pytorch.org/tutorials/unstable/context_parallel.html
    https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/core/core.parallel_state.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import UNKNOWN, WORLD, Axes
from validator.finding import Finding, Related
from validator.flow.calls.groups import axes_in
from validator.flow.queries.base import Place, Queries
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP512",
    "group-without-context-parallel",
    "warning",
    "0.1.0",
    tokens=("get_data_parallel_group", "context_parallel"),
)

_SPLITTING = "torch.distributed.tensor.experimental.context_parallel"
_EXTREME = (".MAX", ".MIN")  # of what all context-parallel ranks share
_COUNTS = frozenset({"len", "size", "numel", "dim"})  # of rows, which are not split


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    models = queries.flow.models
    groups = {row.name for row in models.calls.values() if row.result == "group" and "dp" in row.axes}
    units = {*queries.mentioning(*groups), *queries.flow.effectful()}
    for unit in sorted(units, key=lambda unit: unit.place):
        managers = []
        for number, value in enumerate(unit.code.values):
            place = Place(queries.flow, unit, number)
            if value.op == "call" and not _is_extreme(place):
                yield from _cut_by_rank(place)
            elif value.op == "enter" and ("made", _SPLITTING) in place.operand(0).val.objs:
                managers.append(place)
        for manager in managers:
            yield from _split_inside(queries, manager)


def _operands(call: Place) -> list[Place]:
    return [call.value_at(number) for number in call.value.args[1:]]


def _is_extreme(call: Place) -> bool:
    objs = (o for operand in _operands(call) for o in operand.val.of("ext"))
    return any(str(o[1]).endswith(_EXTREME) for o in objs)


def _lacks_ring(group: Place) -> Axes:
    """The axes of a data-parallel group without the context-parallel ranks; empty for all else."""
    held = group.closed
    axes = axes_in(held) if held.of("group") else frozenset()
    return axes if "dp" in axes and not axes & {"cp", UNKNOWN, WORLD} else frozenset()


def _cut_by_rank(call: Place) -> Iterator[Finding]:
    """Values cut by the context-parallel rank that go to a call together with a group that leaves it out."""
    operands = _operands(call)
    group = next((g for g in operands if _lacks_ring(g)), None)
    if group is None or not any(_is_cut(operand) for operand in operands) or _is_for_one_part(call):
        return
    where = group.root if group.root.value.op == "call" else call
    yield RULE.finding(
        call.unit.path,
        where.at,
        f"`{call.unit.qualname}` splits sequences over context-parallel ranks, but `{call.method}` works on the"
        " data-parallel group without them",
        help="ask for `get_data_parallel_group(with_context_parallel=True)`",
        related=[Related(call.unit.path, call.at[0], f"the group goes to `{call.method}` here")],
        context=f"{call.unit.qualname}:{call.method}",
    )


def _is_cut(place: Place) -> bool:
    return any(c.kind == "rank" and c.axis == "cp" and c.sure for c in place.closed.v)


def _is_for_one_part(call: Place) -> bool:
    """Whether some ranks of a ring alone come to a call: the others have no part in what it reduces."""
    return any(cause.axis == "cp" for cause in call.under)


def _split_inside(queries: Queries, manager: Place) -> Iterator[Finding]:
    """Reductions of what was computed from split buffers, none of them over the ring."""
    unit = manager.unit
    buffers = _buffers(manager.operand(0))
    calls = [Place(queries.flow, unit, n) for n in sorted(manager.result.sites)]
    calls = [c for c in calls if any(o.name == "all_reduce" for o in c.operations)]
    for call in calls:
        value, group = call.argument("tensor", 0), call.argument("group", 2)
        axes = _lacks_ring(group) if group is not None else frozenset()
        if value is None or not axes or _is_extreme(call) or not buffers & _computed(value):
            continue
        if any(other.number != call.number and _of_one_value(other, call) for other in calls):
            continue
        yield RULE.finding(
            unit.path,
            call.at,
            f"`{unit.qualname}` computes `{value.hint or value.text}` on this rank's part of each sequence, but"
            f" `all_reduce` reduces it over {', '.join(f'`{axis}`' for axis in sorted(axes))} only: the parts of the"
            " other context-parallel ranks are left out",
            help="reduce over the context-parallel dimension as well: flatten it with the others",
            related=[Related(unit.path, manager.at[0], "the sequences are split here")],
            context=f"{unit.qualname}:{value.hint or value.text}",
        )


def _buffers(manager: Place) -> set[int]:
    """The variables that a context manager splits: what it, or the function that made it, was given."""
    found: set[int] = set()
    for number in (each.number for each in manager.sources):
        made = manager.value_at(number)
        if made.value.op == "call" and ("made", _SPLITTING) in made.val.objs:
            for operand in _operands(made):
                parts = operand.root.value
                held = parts.args if parts.op in ("list", "tuple") else (operand.number,)
                found |= {operand.value_at(part).root.number for part in held}
    return found


def _computed(place: Place) -> set[int]:
    """The values from which this one is computed, other than by counting them."""
    code, seen, stack = place.unit.code, {place.number}, [place.number]
    while stack:
        value = code.values[stack.pop()]
        if value.op == "attr" and value.data == "shape":
            continue
        if value.op == "call" and code.values[value.args[0]].data in _COUNTS:
            continue
        for operand in value.args:
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)
    return seen


def _of_one_value(other: Place, call: Place) -> bool:
    """Whether one reduction takes what the other left, over the ring or over what is not known."""
    group, value, mine = other.argument("group", 2), other.argument("tensor", 0), call.argument("tensor", 0)
    axes = group.spanned[0] if group is not None else frozenset({WORLD})
    if value is None or mine is None or not axes & {"cp", UNKNOWN, WORLD}:
        return False
    return value.root.number == mine.root.number or value.hint == mine.hint != ""


INCORRECT = [
    """
from megatron.core import mpu
from stats import masked_whiten

def advantages(values, mask):
    size = mpu.get_context_parallel_world_size()
    if size > 1:
        mask = mask.chunk(size)[mpu.get_context_parallel_rank()]
    group = mpu.get_data_parallel_group()  # error: MP512
    return masked_whiten(values, mask, process_group=group)
""",
    """
import contextlib
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

class Sizes:
    def __init__(self, dp, cp):
        self.dp, self.cp = dp, cp

    @property
    def mesh(self):
        return init_device_mesh("cuda", (self.dp, self.cp), mesh_dim_names=("dp", "cp"))

class Trainer:
    def __init__(self, dp, cp):
        self.sizes = Sizes(dp, cp)

    def split(self, tokens, labels):
        if self.sizes.cp == 1:
            return contextlib.nullcontext()
        return context_parallel(self.sizes.mesh["cp"], buffers=[tokens, labels], buffer_seq_dims=[1, 1])

    def evaluate(self, loader):
        total, rows = 0.0, 0
        for tokens, labels in loader:
            with self.split(tokens, labels):
                total += self.loss(self.model(tokens), labels)
                rows += tokens.size(0)
        mean = total / rows
        dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=self.sizes.mesh["dp"].get_group())  # error: MP512
        return mean
""",
    """
import contextlib
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

class Trainer:
    def setup(self, dp, cp):
        self.cp = cp
        self.mesh = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))
        self.dp_group = self.mesh.get_group("dp")

    def evaluate(self, loader):
        losses = []
        for tokens, labels in loader:
            ring = self.mesh["cp"]
            split = context_parallel(ring, buffers=[tokens, labels]) if self.cp > 1 else contextlib.nullcontext()
            with torch.no_grad(), split:
                loss = self.model(tokens, labels)
            losses.append(loss)
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG, group=self.dp_group)  # error: MP512
        return mean
""",
]

CORRECT = [
    """
from megatron.core import mpu
from stats import masked_whiten

def advantages(values, mask):
    size = mpu.get_context_parallel_world_size()
    if size > 1:
        mask = mask.chunk(size)[mpu.get_context_parallel_rank()]
    group = mpu.get_data_parallel_group(with_context_parallel=True)
    return masked_whiten(values, mask, process_group=group)
""",
    """
from megatron.core import mpu
from stats import masked_whiten

def advantages(values, mask):
    return masked_whiten(values, mask, process_group=mpu.get_data_parallel_group())
""",
    """
import torch.distributed as dist
from megatron.core import mpu

def schedule(count):
    cp = mpu.get_context_parallel_world_size()
    dist.all_reduce(count, op=dist.ReduceOp.MAX, group=mpu.get_data_parallel_group())
    return count * cp
""",
    """
from megatron.core import mpu

def schedule(batches):
    cp = mpu.get_context_parallel_world_size()
    return split(batches, mpu.get_data_parallel_group().rank(), cp)
""",
    """
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel

class Trainer:
    def setup(self, dp, cp):
        self.mesh = init_device_mesh("cuda", (dp, cp), mesh_dim_names=("dp", "cp"))
        self.mesh["dp", "cp"]._flatten("loss")

    def evaluate(self, loader):
        rows = total = other = worst = 0.0
        data = self.mesh["dp"].get_group()
        for tokens, labels in loader:
            with context_parallel(self.mesh["cp"], buffers=[tokens, labels]):
                loss = self.loss(self.model(tokens), labels)
                rows += len(tokens)
            total += loss
            other += loss
            worst = max(worst, loss)
        dist.all_reduce(total, group=self.mesh["loss"].get_group())
        dist.all_reduce(rows, group=data)
        for name in ("dp", "cp"):
            dist.all_reduce(other, group=self.mesh[name].get_group())
        dist.all_reduce(worst, op=dist.ReduceOp.MAX, group=data)
        return total, rows, other, worst

    def in_two_steps(self, tokens):
        with context_parallel(self.mesh["cp"], buffers=[tokens]):
            loss = self.model(tokens)
        dist.all_reduce(loss, group=self.mesh["cp"].get_group())
        dist.all_reduce(loss, group=self.mesh["dp"].get_group())
        return loss
""",
    # the first rank of each ring alone comes here, and those are the group
    """
import torch.distributed as dist
from megatron.core import mpu
from stats import all_reduce_count

class Reader:
    def __init__(self):
        self.reads = mpu.get_tensor_model_parallel_rank() == 0 and mpu.get_context_parallel_rank() == 0

    def read(self, rows):
        count = None
        if self.reads:
            rows = rows.chunk(mpu.get_context_parallel_world_size())[mpu.get_context_parallel_rank()]
            count = all_reduce_count(rows, group=mpu.get_data_parallel_group())
        found = [count]
        dist.broadcast_object_list(found, group=mpu.get_context_parallel_group())
        return found[0]
""",
]

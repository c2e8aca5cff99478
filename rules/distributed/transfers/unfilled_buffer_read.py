"""A buffer that is read, and that nothing has filled.

What it does
    Follows what `torch.empty`, `empty_like` and `new_empty` make, and lists with a place for each rank
    (`[torch.zeros_like(x) for _ in range(world_size)]`, `[None] * world_size`), through views, lists, variables and
    results of functions. Reports where they are read (`torch.cat`, arithmetic, `item()`, a loop over them) and no way
    leads there on which anything was given them that may write: a collective, a receive, an in-place method, an
    assignment to elements, `out=`, a kernel, a function of which nothing is known; in a loop also where only later
    rounds have that behind them. A warning where a test of the rank decides who fills the buffer or replaces it, and
    ranks read it that do not. Silent where the buffer is stored, captured by a function inside, or has no elements.

Why is this bad
    The collective that fills the buffer was dropped, or stands behind the read. What is read is what lay in the memory
    before: nothing fails, and the numbers are wrong on all ranks, now and then by chance even right.

References
    https://docs.pytorch.org/docs/stable/generated/torch.empty.html
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.values.unfilled import Unfilled, unfilled
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP556", "unfilled-buffer-read", "error", "1.0", tokens=("empty", "world_size", "size"))


def check_project(project: Project) -> Iterator[Finding]:
    for found in unfilled(project.analysis(Queries)):
        if not is_aside(found.read.unit.path) and not _is_overwritten(found.read):
            yield _report(found)


def _is_overwritten(read: Place) -> bool:
    """Whether all that is computed of what is read goes into broadcasts, which put the numbers of one rank in its place
    on the others: the buffer stands for these there."""
    unit = read.unit
    ends = {number for block in unit.code.blocks if block.end[0] != "jump" for number in block.end[1:2]}
    queue, seen, is_given = [read], {read}, False
    for each in queue:
        if each.number in ends:
            return False
        for user in each.users:
            if user.operations:
                rows = [operation.row for operation in user.operations]
                if any(row.equal is None or row.operation is not None for row in rows):
                    return False
                is_given = True
            elif (
                user.value.op == "mut"
                and user.value.args[0] == each.number
                and each.value_at(user.value.args[1]).operations
            ):
                continue  # what the broadcast has left
            elif user.value.op not in ("phi", "mut", "item", "slice", "binary", "unary", "attr", "call", "tuple"):
                return False
            elif user not in seen:
                seen.add(user)
                queue.append(user)
    return is_given


def _report(found: Unfilled) -> Finding:
    made, read = found.made, found.read
    while made.value.op in ("const", "list"):  # `[None] * size`
        made = next((user for user in made.users if user.value.op in ("list", "collect", "binary")), made)
    what = "with a place for each rank is made here" if found.slots else "is made here"
    return RULE.finding(
        read.unit.path,
        read.at,
        f"`{read.text}`{read.where} reads what `{made.text}` has made, and"
        f" {'on some ranks ' if found.some else ''}nothing has written into it",
        help="fill the buffer before it is read: by the collective that is meant to"
        if found.slots
        else "fill the buffer before it is read, by a collective or `copy_`",
        related=[Related(made.unit.path, made.at[0], f"the buffer {what}")],
        context=f"{read.unit.qualname}:{made.text}",
        severity="error" if found.always and found.empty and not found.some else "warning",
    )


INCORRECT = (
    """
import torch
import torch.distributed as dist

def gathered(x, group):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    return torch.cat(parts, dim=0)  # error: MP556

def late(x, group):
    whole = torch.empty(dist.get_world_size(group) * x.shape[0], device=x.device)
    total = whole.view(-1).sum()  # error: MP556
    dist.all_gather_into_tensor(whole, x, group=group)
    return total

def one_by_one(x, size):
    parts = []
    for _ in range(size):
        parts.append(torch.empty_like(x))
    parts = [part.cuda() for part in parts]
    return torch.stack(parts)  # error: MP556
""",
    """
import torch
import torch.distributed as dist

def gathered(x):
    size = dist.get_world_size()
    rows, parts = [None] * size, [torch.zeros_like(x) for _ in range(size)]
    names = [row["name"] for row in rows]  # error: MP556
    return names, torch.stack(parts)  # error: MP556
""",
    """
import torch
import torch.distributed as dist

class Exchange:
    def receive(self, like, source):
        if dist.get_world_size() == 1:
            return like
        buffer = torch.empty_like(like)
        return buffer

    def step(self, x):
        other = self.receive(x, 0)
        return x + other  # error: MP556
""",
    # filled, or replaced, on one rank, and read on all; in the first round of a loop
    """
import torch
import torch.distributed as dist

def clusters(rows, count, rounds):
    for number in count:
        centers = torch.empty(number, rows.shape[1]).cuda(non_blocking=True)
        if dist.get_rank() == 0:
            chosen = torch.randperm(len(rows))[:number]
            assert len(chosen) >= number
            centers = rows[chosen]
        for i in range(rounds + 1):
            nearest = torch.mm(rows, centers.t()).argmax(1)  # error: MP556
            if i == rounds:
                break
            sums = torch.zeros_like(centers).index_add_(0, nearest, rows)
            dist.all_reduce(sums)
            centers[:] = sums
            centers = torch.nn.functional.normalize(centers)

def shared(x):
    noise = torch.empty_like(x)
    if dist.get_rank() == 0:
        noise.normal_()
    return x + noise  # error: MP556

def in_rounds(x, rounds):
    buffer, total = torch.empty_like(x), 0
    for i in range(rounds):
        total = total + buffer.sum()  # error: MP556
        dist.broadcast(buffer, src=0)
    return total
""",
)

CORRECT = (
    # one rank fills the buffer, and all get it, or that rank alone reads it
    """
import torch
import torch.distributed as dist

def shared(x, rank):
    noise = torch.empty_like(x)
    if dist.get_rank() == 0:
        noise = torch.randn_like(x)
    dist.broadcast(noise, src=0)
    return x + noise

def shown(x):
    whole = torch.empty_like(x)
    if dist.get_rank() == 0:
        whole.copy_(x)
    dist.barrier()
    if dist.get_rank() == 0:
        print(whole.sum())

def left(x):
    whole = torch.empty_like(x)
    if dist.get_rank() == 0:
        whole = x * 2
    if dist.get_rank() != 0:
        return None
    return whole.sum()

def stage(x):
    received = torch.empty_like(x)
    first = dist.get_rank() == 0
    if not first:
        dist.recv(received, src=dist.get_rank() - 1)
    hidden = x if first else received
    return hidden * 2

def either(x):
    value = torch.empty_like(x)
    if dist.get_rank() == 0:
        value.copy_(x)
        dist.send(value, dst=1)
    else:
        dist.recv(value, src=0)
    return value * 2

def last_of(rows, x):
    value = torch.empty_like(x)
    for row in rows:
        value = row * 2
    for i, row in enumerate(rows):
        if i:
            x = x + value
        value = row
    return value.sum() + x
""",
    # one rank has the numbers, and the buffer of the others takes them
    """
import torch
import torch.distributed as dist

def values(mask, outputs, last):
    if dist.get_rank() == last:
        found = torch.cat(outputs, dim=0)
    else:
        found = torch.empty_like(mask, dtype=torch.float32)
    found = found * mask
    found = found[:, :-1].contiguous()
    dist.broadcast(found, src=last)
    return found
""",
    # of nothing nothing is made
    """
import torch
from torch import nn

def made(x, shape):
    return x.new_empty(shape)

class Conv(nn.Conv2d):
    def forward(self, x):
        if x.numel() == 0 and self.training:
            empty = made(x, [x.shape[0], self.out_channels])
            return empty + sum(p.view(-1)[0] for p in self.parameters()) * 0.0
        return super().forward(x)

def scaled(rows, scale):
    if not len(rows):
        return torch.empty_like(rows) * scale
    return rows * scale
""",
    # with `beta=0` the first argument is not read
    """
import torch

def scores(query, key, scale):
    empty = torch.empty(query.shape[0], query.shape[1], key.shape[1])
    return torch.baddbmm(empty, query, key.transpose(-1, -2), beta=0, alpha=scale)
""",
    """
import torch
import torch.distributed as dist

def gathered(x, group):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, x, group=group)
    return torch.cat(parts, dim=0)

def by_view(x, size):
    whole = torch.empty(size * x.shape[0], device=x.device)
    handle = dist.all_gather_into_tensor(whole.view(size, -1), x, async_op=True)
    handle.wait()
    return whole.sum()

def by_hand(x, rank, size):
    whole = x.new_empty(size, *x.shape)
    for i in range(size):
        whole[i].copy_(x) if i == rank else dist.recv(whole[i], src=i)
    first, second = torch.empty_like(x), torch.empty_like(x)
    torch.mul(x, 2, out=first)
    second[:] = x
    return whole.mean() + first + second + torch.empty(4, device=x.device).normal_().sum()
""",
    """
import torch
import torch.distributed as dist

def gathered(x):
    size = dist.get_world_size()
    rows, parts = [None] * size, [None for _ in range(size)]
    dist.all_gather_object(rows, x.tolist())
    for i in range(size):
        parts[i] = torch.empty_like(x)
    dist.all_gather(parts, x)
    return [row[0] for row in rows], torch.stack(parts)

def shapes(x):
    like = torch.empty_like(x)
    nothing = torch.empty(0, device=x.device)
    return like.shape, torch.cat([nothing, x])
""",
    """
import torch
import torch.distributed as dist

class Exchange:
    def __init__(self, like):
        self.buffer = torch.empty_like(like)

    def made(self, like):
        return torch.empty_like(like)

    def step(self, x, kernel):
        other, third = self.made(x), torch.empty_like(x)
        work = dist.irecv(other, src=0)
        work.wait()
        kernel[(1,)](x, third)
        return x + other + third + self.buffer

def inside(x):
    buffer = torch.empty_like(x)

    def fill():
        dist.broadcast(buffer, src=0)

    fill()
    return buffer.sum()

def in_rounds(x, rounds):
    buffer, total = torch.empty_like(x), 0
    for i in range(rounds):
        if i:
            total = total + buffer.sum()
        dist.broadcast(buffer, src=0)
    return total
""",
    # given back early, where it has no elements
    """
import torch
import torch.distributed as dist

def scores(query, kernel):
    batch, length, _ = query.shape
    out = torch.empty(batch, length, device=query.device)
    if length == 0 or batch == 0:
        return out
    kernel[batch](query, out)
    return out

def top(query, kernel, mask):
    dist.barrier()
    return scores(query, kernel) + mask
""",
)

"""A transfer between two ranks that nothing on the other side meets.

What it does
    Reports `send` and `recv` of `torch.distributed` (and `isend`, `irecv`) that one literal rank makes with another
    one, where no call of the program can be the other side; the two sides of such a transfer where they differ in their
    tag, in the size or in the element type of their tensors; and a `recv` to which all ranks come before any of them
    sends. Silent where the program makes transfers in other ways too (`batch_isend_irecv`, functions handed on).

Why is this bad
    A rank that receives what nobody sends waits until the watchdog ends the job. Bytes of another size or type arrive
    as other numbers, or not at all.

References
    https://docs.pytorch.org/docs/stable/distributed.html#point-to-point-communication
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import only
from validator.effects.transfers import Transfer, Transfers, is_after
from validator.finding import Finding, Related
from validator.flow.queries.values.tensors import differ, size_of
from validator.flow.values import Obj
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP591", "transfer-without-partner", "error", "0.5.0", tokens=("send", "recv"))


def check_project(project: Project) -> Iterator[Finding]:
    transfers = project.analysis(Transfers)
    for each in transfers.all if transfers.complete else ():
        others = [other for other in transfers.all if each.may_meet(other)]
        if not each.is_of_job or each.call.is_tried:
            continue
        if not others and each.caller is not None and each.peer is not None:
            yield _alone(each)
        elif _comes_first(each, transfers.all):
            yield _finding(
                each,
                "is where all ranks wait: each of them sends only afterwards",
                "let one half of the ranks send first, or start the transfers with `batch_isend_irecv`",
            )
        elif not each.sends and len(others) == 1:
            yield from _unequal(each, others[0], transfers.all)


def _alone(each: Transfer) -> Finding:
    other = "receives" if each.sends else "sends"
    direction = "from" if each.sends else "to"
    why = f"on rank {each.caller} has no other side: rank {each.peer} {other} nothing {direction} rank {each.caller}"
    return _finding(each, why, f"let rank {each.peer} call the other side, or leave both out")


def _comes_first(each: Transfer, everything: list[Transfer]) -> bool:
    """Whether every rank receives here before it sends."""
    if each.call.method != "recv" or only(each.call.under, "rank", "member", "data"):
        return False
    senders = [other for other in everything if other.sends and each._replace(peer=None).may_meet(other)]
    return bool(senders) and all(is_after(other.call, each.call) for other in senders)


def _unequal(each: Transfer, other: Transfer, everything: list[Transfer]) -> Iterator[Finding]:
    """A transfer of two literal ranks of which each side has just this other one, in a unit of their own."""
    if each.call.unit is not other.call.unit or len([e for e in everything if other.may_meet(e)]) != 1:
        return
    if None in (each.caller, each.peer, other.caller, other.peer) or not other.is_of_job:
        return
    why, sure = _difference(each, other)
    if why:
        related = [Related(other.call.unit.path, other.call.at[0], f"`{other.call.method}` is called here")]
        yield _finding(each, why, "give both sides the same tag, size and element type", sure, related)


def _difference(each: Transfer, other: Transfer) -> tuple[str, bool]:
    mine, theirs = ({o[2] for o in side.tag.each if o[0] == "const"} for side in (each, other))
    known = all(o[0] == "const" for side in (each, other) for o in side.tag.each) and mine and theirs
    if known and mine != theirs and 1 in (len(mine), len(theirs)):
        return f"waits for another tag than rank {each.peer} sends", mine.isdisjoint(theirs)
    tensors = [side.tensor.closed.of("tensor") if side.tensor is not None else [] for side in (each, other)]
    pairs = [_are_apart(a, b) for a in tensors[0] for b in tensors[1]]
    if any(pairs) and 1 in map(len, tensors):
        return f"gets a tensor of another size or type than rank {each.peer} sends", all(pairs)
    return "", False


def _are_apart(one: Obj, other: Obj) -> bool:
    sizes = size_of(one), size_of(other)
    if None not in sizes and sizes[0] != sizes[1]:
        return True
    return differ((one[0], None, one[2]), (other[0], None, other[2]))


def _finding(each: Transfer, why: str, help: str, sure: bool = True, related: list[Related] | None = None) -> Finding:
    call = each.call
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}` in `{call.unit.qualname}` {why}",
        help=help,
        related=related or [],
        context=f"{call.unit.qualname}:{call.method}:{each.caller}:{each.peer}",
        severity=None if sure else "warning",
    )


INCORRECT = [
    """
import torch
import torch.distributed as dist

def hand_over(tensor):
    rank = dist.get_rank()
    if rank == 0:
        dist.send(tensor, dst=1)  # error: MP591
    elif rank == 2:
        dist.recv(tensor, src=0)  # error: MP591
""",
    """
import torch
import torch.distributed as dist

def hand_over():
    rank = dist.get_rank()
    if rank == 0:
        dist.send(torch.ones(4), dst=1)
    elif rank == 1:
        dist.recv(torch.zeros(2), src=0)  # error: MP591
    if rank == 2:
        dist.send(torch.ones(4), dst=3, tag=1)
    elif rank == 3:
        dist.recv(torch.zeros(4), src=2, tag=2)  # error: MP591
""",
    """
import torch
import torch.distributed as dist

def swap(tensor):
    peer = dist.get_rank() ^ 1
    other = torch.zeros_like(tensor)
    dist.recv(other, src=peer)  # error: MP591
    dist.send(tensor, dst=peer)
    return other
""",
]

CORRECT = [
    # the two sides meet from round to round
    """
import torch
import torch.distributed as dist

def play(x, rounds):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for i in range(rounds):
        if i % 2 == 0:
            if rank == 0:
                dist.send(x, dst=1)
        else:
            if rank == 1:
                dist.recv(x, src=0)
""",
    """
import torch
import torch.distributed as dist

def hand_over(tensor):
    rank = dist.get_rank()
    if rank == 0:
        dist.send(tensor, dst=1)
    elif rank == 1:
        dist.recv(tensor, src=0)
    if rank == 0:
        dist.send(torch.ones(2, 2), dst=1, tag=3)
    elif rank == 1:
        dist.recv(torch.zeros(4), src=0, tag=3)
""",
    """
import torch
import torch.distributed as dist

def relay(tensor):
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        dist.send(tensor, dst=1)
    dist.recv(tensor, src=(rank - 1) % size)
    if rank != 0:
        dist.send(tensor, dst=(rank + 1) % size)

def swap(tensor):
    peer = dist.get_rank() ^ 1
    work = dist.isend(tensor, dst=peer)
    other = torch.zeros_like(tensor)
    dist.recv(other, src=peer)
    work.wait()
    return other
""",
    """
import torch.distributed as dist

def pass_on(tensor, forward):
    move = dist.send if forward else dist.recv
    move(tensor, 1)
    if dist.get_rank() == 1:
        dist.recv(tensor, src=0)
""",
]

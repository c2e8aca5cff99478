"""Tensors that are received in another order than the one in which they are sent.

What it does
    Reports transfers without tags that a function makes one after the other with one peer (`isend`, `irecv`, `send`,
    `recv`, and `P2POp` of them) where the buffers that are filled bear the names of the tensors that are sent, in
    another order: `k` and then `v` are sent to the next rank, `peer_v` and then `peer_k` are received from the one
    before. Silent where both are the same rank, which may run other code, and where groups differ.

Why is this bad
    Between two ranks the first tensor that is sent goes into the first buffer that waits. Of tensors of one shape
    nothing fails: keys are used as values, and gradients are wrong without a word.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.batch_isend_irecv
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/p2p.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.commands.same_names import words
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP448", "received-in-another-order", "warning", "1.0", tokens=("send", "recv"))

_SENDING, _RECEIVING = frozenset({"send", "isend"}), frozenset({"recv", "irecv"})
_CALLS = tuple(f"torch.distributed.{name}" for name in sorted(_SENDING | _RECEIVING))
_TRANSFER = "torch.distributed.P2POp"


class _Transfer(NamedTuple):
    """One transfer: the call, the name of what is sent or filled, with whom and over which group."""

    call: Place
    name: str
    sends: bool
    peer: str
    group: str


class _Run:
    """Transfers that one block makes with one peer, in their order."""

    def __init__(self, rows: list[_Transfer]) -> None:
        self.rows = rows

    @property
    def names(self) -> list[frozenset[str]]:
        """What each name says that not all of them say: `k` and `v` of `peer_k` and `peer_v`."""
        said = [frozenset(words(each.name)) for each in self.rows]
        return [each - frozenset.intersection(*said) for each in said]


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    runs: dict[object, dict[tuple[int, bool, str, str], list[_Transfer]]] = {}
    for call in queries.calls(*_CALLS, _TRANSFER):
        found = _transfer(call) if not is_test(call.unit.path) else None
        if found is not None:
            of_unit = runs.setdefault(call.unit, {})
            of_unit.setdefault((call.value.block, found.sends, found.peer, found.group), []).append(found)
    for rows in runs.values():
        several = [each for each in rows.values() if len(each) > 1]
        sent = [_Run(each) for each in several if each[0].sends]
        for each in several:
            first = each[0]
            # who gets from the rank to which it sends may run other code than that one
            others = [run for run in sent if run.rows[0].peer != first.peer and run.rows[0].group == first.group]
            if not first.sends:
                yield from _in_another_order(_Run(each), others)


def _transfer(call: Place) -> _Transfer | None:
    """What a call transfers; None where it is told apart by a tag, or nobody knows what it does."""
    kind: str = call.method
    tensor, peer = call.argument("tensor", 0), call.argument("dst", 1) or call.argument("src", 1)
    tag = call.argument("tag", 3)
    if kind not in _SENDING | _RECEIVING:
        operation = call.argument("op", 0)
        kind = operation.hint if operation is not None else ""
        tensor, peer, tag = call.argument("tensor", 1), call.argument("peer", 2), call.argument("tag", 4)
    if tensor is None or peer is None or tag is not None or kind not in _SENDING | _RECEIVING:
        return None
    named = "" if tensor.root.value.op == "call" else tensor.hint
    name = tensor.unit.variables.get(tensor.root.number, "") or named or tensor.text
    group = call.argument("group", 3 if call.method not in _SENDING | _RECEIVING else 2)
    return _Transfer(call, name, kind in _SENDING, peer.text, group.text if group is not None else "")


def _in_another_order(received: _Run, sent: list[_Run]) -> Iterator[Finding]:
    """The first buffer that gets another tensor than its name says, where each has one of these names."""
    for run in sent:
        theirs, own = run.names, received.names
        told = len(set(own)) == len(own) and frozenset() not in own
        if not told or own == theirs or sorted(map(sorted, own)) != sorted(map(sorted, theirs)):
            continue
        if any(other.names == own for other in sent):
            return
        place = next(i for i, (one, other) in enumerate(zip(own, theirs, strict=True)) if one != other)
        first, sender = received.rows[place], run.rows[place]
        yield RULE.finding(
            first.call.unit.path,
            first.call.at,
            f"`{first.name}` is received{first.call.where} in the place in which `{sender.name}` is sent: between two"
            " ranks tensors arrive in the order in which they are sent",
            help="receive in the order of the sends",
            related=[Related(sender.call.unit.path, sender.call.at[0], f"`{sender.name}` is sent here")],
            context=f"{first.call.unit.qualname}:{first.name}",
        )
        return


_RING = """
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv, irecv, isend

def exchange(k, v, peer_k, peer_v, rank, world, group):
    work = []
    if rank + 1 < world:
        work.append(P2POp(op=isend, tensor=k, peer=rank + 1, group=group))
        work.append(P2POp(op=isend, tensor=v, peer=rank + 1, group=group))
    if rank > 0:
        work.append(P2POp(op=irecv, tensor={first}, peer=rank - 1, group=group)){mark}
        work.append(P2POp(op=irecv, tensor={second}, peer=rank - 1, group=group))
    for each in batch_isend_irecv(work):
        each.wait()
"""

_STAGES = """
import torch
import torch.distributed as dist

def hand_over(hidden, residual, rank):
    if rank == 0:
        dist.send(hidden.contiguous(), 1)
        dist.send(residual.contiguous(), 1)
        return hidden
    hidden_in = torch.empty_like(hidden)
    residual_in = torch.empty_like(residual)
    dist.recv({first}, 0){mark}
    dist.recv({second}, 0)
    return hidden_in + residual_in
"""

INCORRECT = (
    _RING.format(first="peer_v", second="peer_k", mark="  # error: MP448"),
    _STAGES.format(first="residual_in", second="hidden_in", mark="  # error: MP448"),
)

CORRECT = (
    _RING.format(first="peer_k", second="peer_v", mark=""),
    _STAGES.format(first="hidden_in", second="residual_in", mark=""),
    """
import torch.distributed as dist

def swap(grad, weight, buffer, other, rank):
    dist.isend(grad, rank + 1, tag=1)
    dist.isend(weight, rank + 1, tag=2)
    dist.irecv(weight, rank - 1, tag=2)
    dist.irecv(grad, rank - 1, tag=1)
    dist.send(grad, rank + 1)
    dist.send(weight, rank + 1)
    dist.recv(buffer, rank - 1)
    dist.recv(other, rank - 1)
""",
    """
import torch.distributed as dist

def halo(top, bottom, below_top, below_bottom, peer, rank, first, second):
    work = [dist.isend(top, peer), dist.isend(bottom, peer)]
    work += [dist.irecv(below_bottom, peer), dist.irecv(below_top, peer)]
    work += [dist.isend(top, rank + 1, group=first), dist.isend(bottom, rank + 1, group=second)]
    work += [dist.irecv(below_bottom, rank - 1, group=second), dist.irecv(below_top, rank - 1, group=first)]
    for each in work:
        each.wait()
""",
)

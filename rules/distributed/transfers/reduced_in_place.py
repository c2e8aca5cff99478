"""A value that is read as if it were still one's own, after a function has reduced it in place.

What it does
    Reports calls of a function that reduces its argument in place and gives it back, where the caller goes on with both
    under two names. `contiguous()` and its like, which copy only sometimes, count as no copy.

Why is this bad
    Both names are one tensor then: what is computed from the old one, a count of the rank's own tokens say, is the sum
    over the group. Where a copy happens to be made the program is right, so it goes wrong with another layout only.

References
    https://github.com/NVIDIA/Megatron-LM/pull/7481
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP599", "reduced-in-place", "warning", "0.5.0", tokens=("all_reduce", "broadcast"))

_ABOUT_LAYOUT = frozenset(
    {"size", "dim", "numel", "type", "new_zeros", "new_empty", "new_ones", "new_tensor", "get_device"}
)
_SAME = frozenset({"contiguous", "detach", "view", "view_as"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    reducing = dict(_reducing(queries))
    for unit, (position, collective) in reducing.items():
        for call in queries.calls_of(unit):
            name = unit.code.params[position][0]
            given = call.argument(name, position - unit.has_receiver)
            if given is None or is_test(call.unit.path) or not _is_of(queries, call, unit):
                continue
            read = next((each for each in _reads(call, given) if not _is_within(unit, each)), None)
            if read is not None:
                yield _finding(call, given, read, collective)


def _is_of(queries: Queries, call: Place, unit: Unit) -> bool:
    """Whether a call is surely of a function, and its result is used; one whose body follows has no result."""
    if call.value.op == "part":
        return unit.code.part_of == call.unit.code.key
    return _is_used(call) and queries.targets(call) == [unit]


def _is_within(unit: Unit, read: Place) -> bool:
    """Whether a read stands in the body of a function, be it in its caller."""
    return read.unit.path == unit.path and unit.code.at[0] <= read.at[0] <= unit.code.at[2]


def _reducing(queries: Queries) -> Iterator[tuple[Unit, tuple[int, Place]]]:
    """The functions that give back a parameter that they have reduced in place: which, and by what."""
    for call in queries.collectives_with_parts("all_reduce", "broadcast"):
        row = call.operations[0].row
        tensor = call.argument(*row.equal) if row.equal is not None else None
        if tensor is None or call.value.op != "call":
            continue
        held = _behind(tensor)
        returned = [_behind(Place(call.flow, call.unit, number)) for number in call.unit.code.returned]
        given = held.value.op == "param" and not call.unit.is_receiver(held.number)
        if given and any(each.number == held.number for each in returned):
            yield call.unit, (held.value.data[0], call)


def _behind(place: Place) -> Place:
    """The value whose memory a value surely may be."""
    root = place.root
    while root.value.op == "call" and root.method in _SAME and root.receiver is not None:
        root = root.receiver.root
    return root


def _is_used(call: Place) -> bool:
    """Whether a caller goes on with the result, under a name of its own."""
    return any(user.value.op != "mut" for user in call.users)


def _reads(call: Place, given: Place) -> Iterator[Place]:
    """Where the argument is read after the call."""
    if call.value.op == "part":
        stack = [given]
    else:
        stack = [user for user in given.users if user.value.op == "mut" and user.value.args[1] == call.number]
    seen = set(stack)
    while stack:
        for user in stack.pop().users:
            if call.value.op == "part" and user.number <= call.number:
                continue
            if user.value.op == "mut" and user not in seen:
                seen.add(user)
                stack.append(user)
            elif user.value.op == "attr" and _computes(user) or user.value.op in ("call", "binary", "compare", "item"):
                yield user


def _computes(user: Place) -> bool:
    """Whether an attribute that is read is a method that reads the elements."""
    called = any(each.value.op == "call" and each.value.args[0] == user.number for each in user.users)
    return called and user.value.data not in _ABOUT_LAYOUT


def _finding(call: Place, given: Place, read: Place, collective: Place) -> Finding:
    return RULE.finding(
        read.unit.path,
        read.at,
        f"`{given.text}` in `{call.unit.qualname}` is no longer the rank's own: `{call.method}` reduced it in place",
        help=f"compute what needs the rank's own values before `{call.method}`, or pass `{given.text}.clone()`",
        related=[
            Related(call.unit.path, call.at[0], "it is reduced here"),
            Related(collective.unit.path, collective.at[0], "in place"),
        ],
        context=f"{call.unit.qualname}:{call.method}:{given.text}",
    )


INCORRECT = [
    """
import torch
import torch.distributed as dist

def reduced(values):
    values = values.contiguous()
    dist.all_reduce(values)
    return values

def counts(routing_map, topk):
    local = routing_map.sum(dim=0)
    everywhere = reduced(local)
    return local.sum() // topk, everywhere.sum() // topk  # error: MP599
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist

def reduced(values):
    values = values.clone()
    dist.all_reduce(values)
    return values

def counts(routing_map, topk):
    local = routing_map.sum(dim=0)
    everywhere = reduced(local)
    return local.sum() // topk, everywhere.sum() // topk
""",
    """
import torch
import torch.distributed as dist

def reduced(values):
    dist.all_reduce(values)
    return values

def counts(routing_map, topk):
    local = routing_map.sum(dim=0)
    own = local.sum() // topk
    local = reduced(local)
    again = routing_map.sum(dim=1)
    reduced(again)
    return own, local.sum() // topk, again.sum()
""",
]

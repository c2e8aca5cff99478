"""A group, rank or size along one axis that is passed where a function asks for that of another.

What it does
    Reports calls of functions of the project that pass a process group, a device mesh, a rank or a number of ranks for
    a parameter whose name speaks of other axes: `clip_norm(grads, model_parallel_group=self.data_parallel_group)`. What
    is passed is known by how it was made, or else by its own name, which must say what it is in the same word
    (group, rank, size). What the parameter asks for must be at hand by its name, in the function or in its class: else
    the ranks of one axis do the work of another on purpose. Tensor, sequence, context and expert parallelism take each
    other's groups, so a finding is always between data parallelism, pipeline stages and the rest.

Why is this bad
    Nothing fails: the norm, the loss or the share of the data is that of other ranks than those for which it is used,
    and every rank may have another one.

References
    https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/parallel_state.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import SOME, WHOLE, Axes, of_parallelism
from validator.facts.model import Argument, Call
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.escapes import argument_of
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.rank_shares import axes_of_rank, axes_of_size
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP447", "group-of-other-axis", "warning", "1.0", tokens=("group", "rank", "mesh", "size"), solves=True)

_KINDS = {"group": "group", "pg": "group", "mesh": "mesh", "rank": "rank", "size": "size", "degree": "size"}
_LENT = frozenset({"tp", "cp", "ep"})  # groups along these are used for each other: a ring along the tensor ranks


class _Named(NamedTuple):
    """What a name says: a group, a mesh, a rank or a size, and along which axes."""

    kind: str
    axes: Axes

    def is_met_by(self, other: _Named) -> bool:
        return self.kind == other.kind and bool(self.axes & other.axes)


class _Passed(NamedTuple):
    """An argument as it is written, and what it is."""

    written: Argument
    given: _Named


def check_project(project: Project) -> Iterator[Finding]:
    objects, queries = project.analysis(Objects), project.analysis(Queries)
    for function in project.functions():
        if is_test(function.path):
            continue
        for call in function.facts.calls:
            if any(_said(_last(argument.value)) is not None for argument in call.args):
                place = objects.call_at(function.module, call.at)
                if place is not None and len(place.value.args) == len(call.args) + 1:
                    yield from _checked(queries, place, call, _at_hand(function))


def _at_hand(function: Method) -> list[_Named]:
    """What a function, or the class of which it is a method, has by the names in it."""
    methods = function.cls.every_method() if function.cls is not None else (function,)
    names = {ref.path for method in methods for ref in method.facts.refs}
    names |= {call.target for method in methods for call in method.facts.calls}
    names |= {param.name for method in methods for param in method.facts.params}
    said = (_said(_last(name)) for name in names)
    return [each for each in said if each is not None]


def _checked(queries: Queries, call: Place, spelled: Call, at_hand: list[_Named]) -> Iterator[Finding]:
    """One finding for each argument for which some function that the call may run has another use, where what that
    asks for is at hand."""
    numbers = call.value.args[1:]
    passed: dict[int | None, _Passed] = {}
    for argument, number in zip(spelled.args, numbers, strict=True):
        given = _given(_last(argument.value), call.value_at(number)) if numbers.count(number) == 1 else None
        if given is not None:
            passed[number] = _Passed(argument, given)
    for unit in queries.targets(call) if passed else ():
        for position, (name, _) in enumerate(unit.code.params):
            if (wanted := _said(name)) is None or not any(wanted.is_met_by(each) for each in at_hand):
                continue
            taken = argument_of(call.unit, call.number, unit, position)
            if taken in passed and _is_another(wanted, passed[taken].given):
                yield _report(call, passed.pop(taken), unit, name, wanted)


def _report(call: Place, passed: _Passed, unit: Unit, name: str, wanted: _Named) -> Finding:
    (argument, given), along = passed, _listed(wanted.axes)
    return RULE.finding(
        call.unit.path,
        argument.at,
        f"`{call.unit.qualname}` passes `{argument.value}`, the {given.kind} along {_listed(given.axes)}, for `{name}`"
        f" of `{unit.qualname}`, which asks for the one along {along}",
        help=f"pass the {wanted.kind} along {along}, or name the parameter after what it gets",
        related=[Related(unit.path, unit.at(unit.code.at)[0], f"`{unit.qualname}` is defined here")],
        context=f"{call.unit.qualname}:{unit.qualname}:{name}",
    )


def _said(name: str) -> _Named | None:
    """What a name says; None where it names no axis, or is no name of a group, mesh, rank or size."""
    words = name.lower().strip("_").split("_")
    kinds = {_KINDS[word] for word in words if word in _KINDS}
    axes = of_parallelism(name)
    return _Named(kinds.pop(), axes) if len(kinds) == 1 and axes else None


def _given(name: str, passed: Place) -> _Named | None:
    """What is passed: as it was made, where that is known, and of the kind that its name says."""
    said = _said(name)
    if said is None:
        return None
    made = {"group": _of_group, "rank": axes_of_rank, "size": axes_of_size}.get(said.kind)
    known = made(passed) if made is not None else SOME
    return said if known == SOME else _Named(said.kind, known)


def _of_group(passed: Place) -> Axes:
    axes, sure = passed.spanned
    return axes if sure else SOME


def _is_another(wanted: _Named, given: _Named) -> bool:
    if wanted.kind != given.kind or given.axes == WHOLE or wanted.axes & given.axes:
        return False
    return not (wanted.axes <= _LENT and given.axes <= _LENT)


def _last(text: str) -> str:
    """The last name of a path or of a call without arguments: `data_parallel_group` of `self.data_parallel_group`."""
    parts = text.removesuffix("()").split(".")
    return parts[-1] if all(map(str.isidentifier, parts)) else ""


def _listed(axes: Axes) -> str:
    return " and ".join(sorted(axes))


INCORRECT = (
    """\
import torch
import torch.distributed as dist


def clip_norm(grads, max_norm, model_parallel_group=None):
    total = torch.stack([g.norm() ** 2 for g in grads]).sum()
    dist.all_reduce(total, group=model_parallel_group)
    scale = max_norm / (total.sqrt() + 1e-6)
    for g in grads:
        g.mul_(scale.clamp(max=1.0))


class Optimizer:
    def __init__(self, params, data_parallel_group, tp_group):
        self.params, self.tp_group = params, tp_group
        self.data_parallel_group = data_parallel_group

    def step(self):
        clip_norm([p.grad for p in self.params], 1.0, model_parallel_group=self.data_parallel_group)  # error: MP447
""",
    """\
from megatron.core import parallel_state as mpu


class Sampler:
    def __init__(self, rows, dp_rank, dp_size):
        self.rows = rows[dp_rank::dp_size]


def sampler_of(rows):
    tp_rank, dp_rank = mpu.get_tensor_model_parallel_rank(), mpu.get_data_parallel_rank()
    if tp_rank == 0:
        print(dp_rank, mpu.get_data_parallel_world_size())
    return Sampler(rows, tp_rank, dp_size=mpu.get_pipeline_model_parallel_world_size())  # error: MP447, MP447
""",
)

CORRECT = (
    """\
import torch.distributed as dist
from megatron.core import parallel_state


def reduced(x, group):
    dist.all_reduce(x, group=group)
    return x


def gathered(x, sequence_parallel_group):
    dist.all_reduce(x, group=sequence_parallel_group)
    return x


def steps(x, dp_size, dp_rank=0):
    return x[dp_rank::dp_size]


def train(x, data_parallel_group):
    tp_group = parallel_state.get_tensor_model_parallel_group()
    world_size = dist.get_world_size()
    reduced(x, data_parallel_group)
    gathered(x, tp_group)  # the ranks of tensor parallelism share the sequence
    return steps(x, world_size) + steps(x, dp_size=parallel_state.get_data_parallel_world_size())
""",
    """\
from megatron.core import parallel_state


class Plan:
    def __init__(self, dp_cp_group, pp_rank, dp_mesh):
        self.group, self.stage, self.mesh = dp_cp_group, pp_rank, dp_mesh


def plan(device_mesh):
    group = parallel_state.get_data_parallel_group()
    stage = parallel_state.get_pipeline_model_parallel_rank()
    return Plan(group, stage, dp_mesh=device_mesh["fsdp"])
""",
    """\
class MoELayer:
    def __init__(self, experts, ep_group):
        self.experts, self.group = experts, ep_group


class Block:
    def __init__(self, dp_group):  # the experts lie on the data-parallel ranks
        self.moe = MoELayer(64, ep_group=dp_group)
""",
)

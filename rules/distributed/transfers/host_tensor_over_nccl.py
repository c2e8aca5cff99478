"""A tensor in the memory of the host that is communicated over NCCL.

What it does
    Reports collectives on a tensor that the function has just made with no device (`torch.tensor(3.0)`,
    `torch.zeros(4)`), over the default group where the project only ever sets up NCCL
    (`init_process_group("nccl")`), or over a group that was made with `backend="nccl"`. Silent in projects that set a
    default device.

Why is this bad
    NCCL has no transfers between hosts' memories: "No backend type associated with device type cpu", on the first call.

References
    https://docs.pytorch.org/docs/stable/distributed.html#backends
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.callgraph.spelled_arguments import origins
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside, is_test
from validator.flow.queries.pure_functions import is_idle
from validator.flow.queries.training.placements import decided_by
from validator.flow.values import NONE_OBJ
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP564", "host-tensor-over-nccl", "error", "1.0", tokens=("nccl",))

_DEFAULTS = ("set_default_device", "set_default_tensor_type")
_MAKING = frozenset({"sizes", "size", "range", "contents"})  # layouts of what is made out of nothing


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    if next(queries.named_anywhere(*_DEFAULTS), None) is not None:
        return
    everywhere = _is_default(queries)
    for call in queries.collectives():
        row = call.operations[0].row
        tensor = call.argument(*row.tensor) if row.tensor is not None else None
        group = call.argument(*row.group) if row.group is not None else None
        asks = any("backend" in word for test in decided_by(call) for word in test.words)
        if tensor is None or is_aside(call.unit.path) or call.is_tried or asks:
            continue
        objs = group.closed.objs if group is not None else {NONE_OBJ}
        nccl = everywhere if objs == {NONE_OBJ} else all(o[0] == "group" and o[3] == "nccl" for o in objs)
        if objs and nccl and _is_on_host(tensor):
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{call.method}` in `{call.unit.qualname}` gets `{tensor.text}`, which lies in the memory of the host,"
                " over NCCL: no backend for device type cpu",
                help="make the tensor on the rank's device (`device=…`, `.cuda()`), or set up `cpu:gloo,cuda:nccl`",
                context=f"{call.unit.qualname}:{call.method}:{tensor.text}",
            )


def _is_default(queries: Queries) -> bool:
    """Whether all default groups that the project sets up are of NCCL alone."""
    found = []
    for call in queries.calls("torch.distributed.init_process_group"):
        backend = call.argument("backend", 0)
        if not is_test(call.unit.path):
            found.append(backend is not None and backend.closed.constant() == "nccl")
    return bool(found) and all(found)


def _is_on_host(tensor: Place) -> bool:
    """Whether a value is, on whatever way, a tensor just made without a device."""
    ways = origins(tensor.unit, tensor.root.number)
    return bool(ways) and all(_is_made_on_host(tensor.value_at(number)) for number in ways)


def _is_made_on_host(place: Place) -> bool:
    value, models = place.value, place.flow.models
    if value.op != "call" or "device" in value.data.names or "**" in value.data.names:
        return False
    rows = [models.call(o[1]) for o in place.operand(0).val.each if o[0] == "ext" and o[1].startswith("torch.")]
    managed = any(not is_idle(place.flow, place.unit, number) for number in place.unit.managers(place.number))
    return len(rows) == 1 and rows[0] is not None and rows[0].layout in _MAKING and not managed


INCORRECT = [
    """
import torch
import torch.distributed as dist

def mean(loss):
    total = torch.tensor(float(loss))
    dist.all_reduce(total)  # error: MP564
    return total / dist.get_world_size()

dist.init_process_group("nccl")
mean(3.0)
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist

def mean(loss):
    total = torch.tensor(float(loss), device="cuda")
    dist.all_reduce(total)
    other = torch.zeros(3).cuda()
    dist.all_reduce(other)
    return total / dist.get_world_size() + other

dist.init_process_group("nccl")
mean(3.0)
""",
    """
import torch
import torch.distributed as dist

def mean(loss):
    total = torch.tensor(float(loss))
    dist.all_reduce(total)
    return total / dist.get_world_size()

dist.init_process_group("cpu:gloo,cuda:nccl")
mean(3.0)
""",
]

"""A parameter of which each tensor-parallel rank holds a part, and which does not say so.

What it does
    Reports parameters of a module whose size is computed from the number of tensor-parallel ranks and which are not
    marked as tensor-parallel, in a class that marks others (`set_tensor_model_parallel_attributes`, or the attribute
    `tensor_model_parallel`).

Why is this bad
    Megatron takes a parameter without the mark for a copy that all ranks have: the norm of the gradients counts it on
    the first rank alone, and clipping goes by a norm that is too small.

References
    https://github.com/NVIDIA/Megatron-LM/pull/7530
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.access_paths import Path, paths_of
from validator.flow.calls.groups import axes_in
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP547", "sharded-parameter-unmarked", "warning", "0.5.0", tokens=("tensor_model_parallel",))

_MARKING = "set_tensor_model_parallel_attributes"
_MARK = "tensor_model_parallel"


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.mentioning(_MARKING, _MARK):
        marked = set(_marked(queries, unit))
        for store in queries.values(unit, "store_attr") if marked and not is_test(unit.path) else ():
            owner, made = (paths_of(unit).path(number) for number in store.value.args)
            if _is_part(store.operand(1)) and marked.isdisjoint(((*owner, f".{store.value.data}"), made)):
                yield RULE.finding(
                    unit.path,
                    store.at,
                    f"each tensor-parallel rank holds a part of `{store.value.data}`, made in `{unit.qualname}`, but"
                    " unlike the others it is not marked so: norms count the first rank's part alone",
                    help=f"call `{_MARKING}` for it, as for the others",
                    context=f"{unit.qualname}:{store.value.data}",
                )


def _marked(queries: Queries, unit: Unit) -> Iterator[Path]:
    """The parameters that a unit marks."""
    paths = paths_of(unit)
    for call in queries.calls_in(unit):
        given = call.argument("tensor", 0) if call.method == _MARKING else None
        if given is not None:
            yield paths.path(given.number)
    for store in queries.values(unit, "store_attr"):
        if store.value.data == _MARK:
            yield paths.path(store.value.args[0])
    for call in queries.calls_in(unit):
        if call.method == "setattr" and len(call.value.args) > 2 and call.operand(2).val.constant() == _MARK:
            yield paths.path(call.value.args[1])


def _is_part(made: Place) -> bool:
    """Whether a value is a parameter whose size depends on how many tensor-parallel ranks there are."""
    root = made.root
    if root.value.op != "call" or root.method != "Parameter":
        return False
    sizes = (o for each in root.parts if each.value.op == "call" for o in each.closed.of("size"))
    return any(axes_in(o[1]) == {"tp"} for o in sizes)


INCORRECT = [
    """
import torch
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes

class Attention(torch.nn.Module):
    def __init__(self, heads, hidden):
        super().__init__()
        local = heads // mpu.get_tensor_model_parallel_world_size()
        self.weight = torch.nn.Parameter(torch.empty(local, hidden))
        set_tensor_model_parallel_attributes(self.weight, True, 0, 1)
        self.sink = torch.nn.Parameter(torch.empty(local))  # error: MP547
""",
]

CORRECT = [
    """
import torch
from megatron.core import parallel_state as mpu
from megatron.core.tensor_parallel import set_tensor_model_parallel_attributes

class Attention(torch.nn.Module):
    def __init__(self, heads, hidden):
        super().__init__()
        local = heads // mpu.get_tensor_model_parallel_world_size()
        self.weight = torch.nn.Parameter(torch.empty(local, hidden))
        self.bias = torch.nn.Parameter(torch.zeros(hidden))
        self.sink = torch.nn.Parameter(torch.empty(local))
        set_tensor_model_parallel_attributes(self.weight, True, 0, 1)
        self.sink.tensor_model_parallel = True
""",
    """
import torch
from megatron.core import parallel_state as mpu

class Attention(torch.nn.Module):
    def __init__(self, heads):
        super().__init__()
        local = heads // mpu.get_tensor_model_parallel_world_size()
        self.sink = torch.nn.Parameter(torch.empty(local))
""",
]

"""A parameter that ZeRO-3 has spread over ranks, read or written where it is not gathered.

What it does
    Reports what is done with the contents of a parameter (`norm()`, `copy_()`, `clone()`, `.item()` …) of a model that
    is made under `deepspeed.zero.Init()` or handed to `deepspeed.initialize` with stage 3, outside of
    `deepspeed.zero.GatheredParameters`. Silent inside of other context managers, which may gather too.

Why is this bad
    Between uses such a parameter is empty: its norm is 0, a clone has no elements, and what is written to it is gone
    when the next layer gathers it. Nothing raises.

References
    https://deepspeed.readthedocs.io/en/latest/zero3.html#deepspeed.zero.GatheredParameters
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import mostly
from validator.finding import Finding
from validator.flow.aside import is_aside
from validator.flow.paths import ELEMENT
from validator.flow.placed import whole
from validator.flow.queries import Place, Queries
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP571", "parameter-outside-gather", "warning", "0.1.0", tokens=("zero",))

_CONTENTS = (
    "norm", "sum", "mean", "max", "min", "std", "item", "tolist", "numpy", "clone", "copy_", "fill_", "zero_",
    "normal_", "uniform_", "mul_", "add_", "div_", "clamp_", "isnan",
)  # fmt: skip
_MEMBERS = frozenset({".parameters()", ".named_parameters()"})


def check_project(project: Project) -> Iterator[Finding]:
    for call in project.analysis(Queries).named(*_CONTENTS):
        tensor = call.receiver
        if tensor is None or is_aside(call.unit.path) or not mostly(tensor.closed.state, "zero3"):
            continue
        path = whole(tensor)
        if _MEMBERS.isdisjoint(map(str, path)) or ELEMENT not in path or path[-1] == ".grad" or _managed(call):
            continue
        yield RULE.finding(
            call.unit.path,
            call.at,
            f"`{call.text}` in `{call.unit.qualname}` asks for the contents of a parameter that ZeRO-3 has spread over"
            " ranks: outside of `GatheredParameters` it is empty",
            help=f"put it into `with deepspeed.zero.GatheredParameters([{tensor.root.text}], modifier_rank=…):`",
            context=f"{call.unit.qualname}:{call.text}",
        )


def _managed(call: Place) -> bool:
    """Whether a context manager around may gather the parameter: all but those that only switch gradients off."""
    for number in call.unit.managers(call.number):
        manager = call._replace(number=number)
        callee = manager.operand(0) if manager.value.op == "call" else manager
        if not any(o[0] == "ext" and o[1] in ("torch.no_grad", "torch.inference_mode") for o in callee.val.objs):
            return True
    return False


INCORRECT = [
    """
import deepspeed
import torch
from transformers import AutoModel

def build(path):
    with deepspeed.zero.Init():
        model = AutoModel.from_pretrained(path)
    for name, param in model.named_parameters():
        with torch.no_grad():
            param.normal_()  # error: MP571
    return model
""",
    """
import deepspeed

def total(model, optimizer):
    config = {"zero_optimization": {"stage": 3}}
    engine, _, _, _ = deepspeed.initialize(model=model, config=config)
    found = []
    for param in engine.parameters():
        found.append(param.data.norm())  # error: MP571
    return found
""",
]

CORRECT = [
    """
import deepspeed
from transformers import AutoModel

def build(path):
    with deepspeed.zero.Init():
        model = AutoModel.from_pretrained(path)
    for name, param in model.named_parameters():
        with deepspeed.zero.GatheredParameters([param], modifier_rank=0):
            param.normal_()
    return model
""",
    """
import deepspeed

def total(model, stage):
    engine, _, _, _ = deepspeed.initialize(model=model, config={"zero_optimization": {"stage": 2}})
    return [param.data.norm() for param in engine.parameters()]
""",
]

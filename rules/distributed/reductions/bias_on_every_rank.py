"""A bias that is added before the ranks' parts of a product are summed.

What it does
    Follows the result of a linear layer with a bias (`F.linear(x, weight, bias)`, `torch.addmm`) inside a module into
    the collective that sums it over ranks, directly or through functions. Silent where the bias differs between ranks
    or is divided, where the result is scaled by the number of ranks afterwards, and where the ranks of the group hold
    other data.

Why is this bad
    Under row parallelism each rank has a part of the input and of the weight, and the parts of the product are summed.
    A bias that every rank adds is summed too: the output carries it once for each rank. One process is right, and so
    is a model that is trained and used at one size; at any other size it is another model.

References
    https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/tensor_parallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import varying
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.values.sums import KEEPING, is_scaled, is_sum
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP552", "bias-on-every-rank", "warning", "1.0", tokens=("linear", "addmm", "baddbmm"), solves=True)

_KEEPING = KEEPING | {"contiguous", "reshape", "flatten"}
_SUMMING = frozenset({"all_reduce", "reduce_scatter", "reduce_scatter_tensor"})
_ADDING = {"torch.nn.functional.linear": ("bias", 2), "torch.addmm": ("input", 0), "torch.baddbmm": ("input", 0)}


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.flow.effectful():
        if unit.has_receiver and not is_aside(unit.path):
            for product in queries.calls_in(unit):
                if _adds_bias(product) and (call := _summed(product)) is not None:
                    yield _finding(product, call)


def _adds_bias(product: Place) -> bool:
    """Whether a call is a linear layer that adds the same bias on all ranks."""
    for o in product.operand(0).val.each:
        name = product.flow.models.named(str(o[1])) if o[0] == "ext" else ""
        if name in _ADDING:
            bias = product.argument(*_ADDING[name]) if product.argument("beta") is None else None  # it scales the bias
            return bias is not None and _is_whole(bias)
    return False


def _is_whole(bias: Place) -> bool:
    root = bias.root
    return (
        root.value.op in ("attr", "param")
        and not bias.val.is_const(None)
        and not varying(bias.likely.v | bias.likely.p)
    )


def _summed(product: Place) -> Place | None:
    """The call that sums a product over ranks."""
    queue, seen = [product], {product.number}
    while queue:
        for user in queue.pop().users:
            if user.number in seen:
                continue
            seen.add(user.number)
            if user.value.op in ("phi", "mut", "attr") or user.value.op == "call" and user.method in _KEEPING:
                queue.append(user)
            elif user.value.op == "call" and _sums(user) and not is_scaled(user):
                return user
    return None


def _sums(call: Place) -> bool:
    """Whether a call does nothing among ranks but sum over some that work on the same samples."""
    found = list(call.reached())
    names = {operation.name for operation, _ in found}
    if not names or not names <= _SUMMING:
        return False
    operations = [(place, operation.row.operation) for operation, place in found]
    whole = all(which is None or is_sum(place.argument(*which)) for place, which in operations)
    return whole and not any("dp" in place.group for _, place in found)


def _finding(product: Place, call: Place) -> Finding:
    return RULE.finding(
        product.unit.path,
        product.at,
        f"`{product.text}`{product.where} adds a bias on every rank, and `{call.method}` sums the results",
        help="add the bias to the sum",
        related=[Related(call.unit.path, call.at[0], "summed here")],
        context=f"{product.unit.qualname}:{product.text}",
    )


INCORRECT = [
    """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None

class RowParallelLinear(nn.Module):
    def __init__(self, inputs, outputs, group):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.empty(outputs, inputs // dist.get_world_size(group)))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        y = F.linear(x, self.weight, self.bias)  # error: MP552
        return Reduce.apply(y, self.group)
""",
    """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

class RowParallelLinear(nn.Module):
    def __init__(self, weight, bias, group):
        super().__init__()
        self.weight, self.bias, self.group = weight, bias, group

    def forward(self, x):
        y = torch.addmm(self.bias, x, self.weight)  # error: MP552
        y = y.contiguous()
        dist.all_reduce(y, group=self.group)
        return y
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        dist.all_reduce(grad, group=ctx.group)
        return grad, None

class ColumnParallelLinear(nn.Module):
    def __init__(self, weight, bias, group):
        super().__init__()
        self.weight, self.bias, self.group = weight, bias, group

    def forward(self, x):
        x = F.linear(x, self.weight, self.bias)
        return Copy.apply(x, self.group)
""",
    """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

class RowParallelLinear(nn.Module):
    def __init__(self, weight, bias, group):
        super().__init__()
        self.weight, self.bias, self.group = weight, bias, group

    def forward(self, x):
        y = F.linear(x, self.weight)
        dist.all_reduce(y, group=self.group)
        return y + self.bias

    def first(self, x):
        y = F.linear(x, self.weight, self.bias if dist.get_rank(self.group) == 0 else None)
        dist.all_reduce(y, group=self.group)
        return y

    def shared(self, x):
        y = F.linear(x, self.weight, self.bias / dist.get_world_size(self.group))
        dist.all_reduce(y, group=self.group)
        return y

    def scaled(self, x):
        y = torch.addmm(self.bias, x, self.weight, beta=1 / dist.get_world_size(self.group))
        dist.all_reduce(y, group=self.group)
        return y

    def averaged(self, x):
        y = F.linear(x, self.weight, self.bias)
        dist.all_reduce(y, group=self.group)
        return y / dist.get_world_size(self.group)
""",
]

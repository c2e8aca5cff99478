"""Means of all ranks that are summed, and used as if the sum were a mean.

What it does
    Reports `all_reduce` with the operation SUM (the default) on the `mean()` of a tensor, where the function goes on to
    compute with the result and neither divides by anything afterwards nor divided by the number of ranks before.
    Silent where the result is given back or stored as it is: who gets it may divide. The same of the gradients of all
    parameters of a model, summed over the whole job, where neither the function, nor what calls it, nor what computes
    the gradients there divides or multiplies by anything that is a number of ranks, or was reduced over them itself
    (the tokens of all ranks): it rests on a loss that is a mean. And norms that are summed as they are, where the root
    is taken of the sum; and a quotient of which one part is a sum over the ranks and the other one a mean over them,
    by a function of the program, too, that is told how to reduce (`strategy.all_reduce(count, op="sum")`). Silent where
    it only matters whether a number is finite, or whether there is one that is not.

Why is this bad
    The result is as many times too large as there are ranks. A moving average, a threshold or a coefficient made of it
    changes with the number of GPUs, and nothing fails.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import calls_behind
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.values.reduced_as import reduced_as
from validator.flow.queries.values.sums import KEEPING, is_size, is_sum, quotient
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP565", "means-summed", "warning", "1.0", tokens=("all_reduce",))

_REDUCING = ("all_reduce", "reduce", "all_reduce_coalesced")
_COMPUTING = frozenset({"Add", "Sub", "Mult", "Pow", "MatMult"})
_TESTED = frozenset({"grad", "requires_grad"})
_NO_MEANS = frozenset({"sum", "sign", "normalize"})  # of a loss that is no mean, of gradients whose size does not count
_NORMS = frozenset({"norm", "vector_norm", "clip_grad_norm_", "get_total_norm"})
_NOTHING = frozenset({"zeros", "zeros_like", "new_zeros"})  # the norm of no gradients
_ROOTS = frozenset({"sqrt", "sqrt_"})
_WITHIN = ("In", "NotIn")
_DIVIDING = frozenset({"div", "div_", "mul", "mul_", "true_divide", "true_divide_"})


def check_project(project: Project) -> Iterator[Finding]:
    yield from _quotients(project.analysis(Queries))
    for call in project.analysis(Queries).collectives():
        row = call.operations[0].row
        tensor = call.argument(*row.equal) if row.equal is not None and row.operation is not None else None
        if tensor is None or row.operation is None or is_aside(call.unit.path) or row.result is not None:
            continue
        made = tensor.root
        if made.value.op == "attr" and made.value.data == "grad" and is_sum(call.argument(*row.operation)):
            if _is_of_all(call, made) and not _is_scaled(project.analysis(Queries), call):
                yield _of_gradients(call, made)
            continue
        if is_sum(call.argument(*row.operation)) and (root := _under_root(call, tensor)) is not None:
            yield _of_norms(call, made, root)
            continue
        is_mean = made.value.op == "call" and made.method == "mean" and made.receiver is not None
        if (
            not is_mean
            or any(map(_is_test, made.sources))
            or not is_sum(call.argument(*row.operation))
            or any(map(is_size, made.sources))
        ):
            continue
        if _is_computed_with(call, tensor):
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{call.method}` in `{call.unit.qualname}` sums `{made.text}` of all ranks, and nothing divides"
                " the sum by their number",
                help="divide by the number of ranks, or reduce with `ReduceOp.AVG`",
                context=f"{call.unit.qualname}:{made.text}",
            )


def _quotients(queries: Queries) -> Iterator[Finding]:
    """What is divided of which one part was summed over the ranks, and the other one averaged."""
    for unit in queries.mentioning(*_REDUCING):
        for place in queries.values(unit, "binary", "call") if not is_aside(unit.path) else ():
            if (parts := quotient(place)) is None:
                continue
            words = [reduced_as(queries, part) for part in parts]
            if set(words) == {"mean", "sum"}:
                yield _of_quotient(place, *parts, *words)


def _of_quotient(place: Place, above: Place, below: Place, word: str, other: str) -> Finding:
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{above.text}`{above.where} is a {word} over the ranks, and is divided by `{below.text}`, a {other} over"
        " them: the quotient changes with the number of ranks",
        help="reduce both alike",
        context=f"{place.unit.qualname}:{above.text}:{below.text}",
    )


def _of_gradients(call: Place, gradient: Place) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}` in `{call.unit.qualname}` sums `{gradient.text}` of all ranks, and nothing divides the sum by"
        " their number: of a loss that is a mean the gradients grow with the number of GPUs",
        help="divide by the number of ranks, or reduce with `ReduceOp.AVG`",
        context=f"{call.unit.qualname}:{gradient.text}",
    )


def _under_root(call: Place, tensor: Place) -> Place | None:
    """Where the sum of norms is put under a root: each had to be squared before."""
    made, place = tensor.root, tensor
    while place.value.op == "mut":
        if place.operand(1).value.op != "call" or place.operand(1).method.endswith("_"):
            return None  # it may be squared in place
        place = place.operand(0)
    norms = calls_behind(made, lambda each: each.method in _NORMS or each.method in _NOTHING) or []
    if not any(each.method in _NORMS for each in norms):
        return None
    summed = [place for place in tensor.users if place.value.op == "mut" and place.operand(1) == call]
    queue, seen = summed, {place.number for place in summed}
    for place in queue:
        for user in place.users:
            if user.value.op == "call" and user.method in _ROOTS:
                return user
            power = user.operand(1).val.constant() if user.value.op == "binary" and user.value.data == "Pow" else None
            if power == 0.5 and user.operand(0).number == place.number:
                return user
            kept = user.value.op == "binary" and user.value.data in ("Add", "Div")
            kept = kept or user.value.op == "attr" and user.value.data in _ROOTS | KEEPING
            if (kept or user.value.op == "call" and user.method in KEEPING) and user.number not in seen:
                seen.add(user.number)
                queue.append(user)
    return None


def _of_norms(call: Place, norm: Place, root: Place) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}` in `{call.unit.qualname}` sums the norm `{norm.text}` of all ranks, and `{root.text}` takes"
        " the root of the sum: it is no norm of the whole",
        help="sum the squares of the norms",
        related=[Related(root.unit.path, root.at[0], "the root is taken here")],
        context=f"{call.unit.qualname}:{norm.text}:norm",
        severity="error",
    )


def _is_of_all(call: Place, gradient: Place) -> bool:
    """Whether a gradient is that of each parameter of a model in turn, reduced over the whole job."""
    row = call.operations[0].row
    group = call.argument(*row.group) if row.group is not None else None
    if group is not None and not group.val.is_const(None):
        return False
    parameter = gradient.operand(0).root
    through = parameter.operand(0).gone_through.root if parameter.value.op == "next" else None
    if through is None or through.value.op != "call" or through.method != "parameters":
        return False
    parts = [part for test in call.tests_inside for part in test.sources]
    chosen = (part for part in parts if part.value.op == "attr" and part.operand(0).root == parameter)
    return all(part.value.data in _TESTED for part in chosen) and not any(part.value.data in _WITHIN for part in parts)


def _is_scaled(queries: Queries, call: Place) -> bool:
    """Whether the function, one that calls it, or one that it calls scales something by a number of ranks, or the
    gradients by anything."""
    units = {call.unit, *(each.unit for each in queries.calls_of(call.unit))}
    units |= {target for unit in set(units) for each in queries.calls_in(unit) for target in queries.targets(each)}
    return any(_scales(place) for unit in units for place in queries.values(unit, "binary", "call"))


def _scales(place: Place) -> bool:
    """Whether a value is divided or multiplied by a number of ranks, or is a gradient that is scaled."""
    if place.value.op == "binary" and place.value.data not in ("Div", "FloorDiv", "Mult"):
        return False
    if place.value.op == "call" and (place.method in _NO_MEANS or _is_summing(place)):
        return True
    if place.value.op == "call" and place.method not in _DIVIDING:
        return False
    parts = list(place.sources)
    divisor = place.operand(1) if place.value.op == "binary" and place.value.data != "Mult" else None
    if divisor is not None and any(_is_reduced(each) for each in divisor.sources):
        return True
    return any(_tells_ranks(each) or each.value.op == "attr" and each.value.data == "grad" for each in parts)


def _is_reduced(place: Place) -> bool:
    """Whether a value is what a collective has left in its argument, or given."""
    made = place.operand(1) if place.value.op == "mut" and place.value.args[1] >= 0 else place
    return any(operation.row.operation is not None for operation in made.operations)


def _is_test(place: Place) -> bool:
    """Whether a value tells of numbers whether they are finite."""
    return place.value.op == "call" and place.method in place.flow.models.tensors["testing"]


def _is_summing(call: Place) -> bool:
    reduction = call.argument("reduction") if "reduction" in call.value.data.names else None
    return reduction is not None and not reduction.val.is_const("mean")


def _is_computed_with(call: Place, tensor: Place) -> bool:
    """Whether something is computed with a tensor behind a call, and none of it is a division or leaves as it is."""
    unit, computed = call.unit, False
    behind = [user for user in tensor.users if user.value.op == "mut" and call.number in user.value.args]
    queue, seen = list(behind), {place.number for place in behind}
    for place in queue:
        if place.number in unit.code.returned and not computed:
            return False
        for user in place.users:
            value = user.value
            if value.op == "binary" and value.data in ("Div", "FloorDiv"):
                return False
            if value.op == "call" and (user.method in _DIVIDING or user.number == call.number):
                return False
            if value.op == "binary" and any(map(_tells_ranks, user.sources)):
                return False
            only_tested = bool(user.users) and all(map(_is_test, user.users))
            computed = computed or value.op == "binary" and value.data in _COMPUTING and not only_tested
            if value.op in ("phi", "mut", "binary", "attr") and user.number not in seen:
                seen.add(user.number)
                queue.append(user)
    return computed


def _tells_ranks(place: Place) -> bool:
    """Whether a value is a number of ranks, or is called after one (`inverse_world`)."""
    return is_size(place) or "world" in place.hint.lower()


_CENTER = """
import torch
import torch.distributed as dist

class Loss:
    def update(self, outputs):
        center = outputs.float().mean(dim=0, keepdim=True)
        dist.all_reduce(center){mark}{divided}
        self.center = self.center * 0.9 + center * 0.1
"""

_GRADIENTS = """
import torch
import torch.distributed as dist

def average(model, size):
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.grad is not None:
            dist.all_reduce(parameter.grad){mark}
            {divided}

def train(model, optimizer, batches):
    for batch in batches:
        loss = model(batch).mean(){scaled}
        loss.backward()
        average(model, dist.get_world_size())
        optimizer.step()
        optimizer.zero_grad()
"""

_NORM = """
import torch
import torch.distributed as dist

def local_norm(grads, kind=2.0):
    if not grads:
        return torch.zeros((), device="cuda")
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g, kind) for g in grads]), kind)

def total_norm(split, whole, group):
    total = {made}
    dist.all_reduce(total, group=group){mark}
    return {given}
"""

_QUOTIENT = """
import torch
import torch.distributed as dist


class Strategy:
    def __init__(self, world_size):
        self.world_size = world_size

    def all_reduce(self, data, op="mean"):
        data = data.clone()
        if op == "mean":
            data /= self.world_size
        dist.all_reduce(data, op=dist.ReduceOp.SUM)
        return data


def normalize(strategy: Strategy, values, mask):
    total, count = strategy.all_reduce(torch.stack([values.sum(), mask.sum()]), "sum")
    spread = strategy.all_reduce(((values - total / count) ** 2 * mask).sum(){op})
    return (values - total / count) / (spread / count).sqrt(){mark}


def spread(values, count):
    dist.all_reduce(values, op=dist.ReduceOp.{operation})
    dist.all_reduce(count)
    return values / count{mark}
"""

INCORRECT = [
    # norms that are not squared before they are summed
    _NORM.format(made="local_norm(split)", mark="  # error: MP565", given="(total + local_norm(whole) ** 2).sqrt()"),
    _NORM.format(made="split[0].norm()", mark="  # error: MP565", given="total.item() ** 0.5"),
    _GRADIENTS.format(mark="  # error: MP565", divided="", scaled=""),
    _CENTER.replace("{mark}", "  # error: MP565").replace("{divided}", ""),
    # one part of a quotient is a mean over the ranks, the other one a sum
    _QUOTIENT.format(op="", operation="AVG", mark="  # error: MP565"),
]

CORRECT = [
    _NORM.format(made="local_norm(split)\n    total.square_()", mark="", given="total.sqrt()"),
    _NORM.format(made="local_norm(split) ** 2", mark="", given="(total + local_norm(whole) ** 2).sqrt()"),
    _NORM.format(made="local_norm(split, 1.0)", mark="", given="total + local_norm(whole, 1.0)"),
    # the loss is divided by what all ranks have counted; numbers that are only tested
    """
import torch
import torch.distributed as dist

def add(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)

def train(model, optimizer, batches):
    for batch, mask in batches:
        count = torch.count_nonzero(mask)
        dist.all_reduce(count)
        loss = model(batch, mask) / count
        loss.backward()
        add(model)
        optimizer.step()
        optimizer.zero_grad()

def check(x):
    probe, bad = x.float().mean(), torch.isnan(x).float().mean()
    dist.all_reduce(probe)
    dist.all_reduce(bad)
    if torch.isnan(probe * 0) or bad * 1.0 > 0:
        raise ValueError("not a number")
""",
    _GRADIENTS.format(mark="", divided="parameter.grad /= size", scaled=""),
    _GRADIENTS.format(mark="", divided="parameter.grad = torch.sign(parameter.grad)", scaled=""),
    _GRADIENTS.format(mark="", divided="", scaled=" / dist.get_world_size()"),
    """
import torch.distributed as dist

def shared(model, group):
    for parameter in model.parameters():
        if parameter.is_shared:
            dist.all_reduce(parameter.grad)
        dist.all_reduce(parameter.grad, group=group)
""",
    _CENTER.replace("{mark}", "").replace("{divided}", "\n        center = center / dist.get_world_size()"),
    _CENTER.replace("{mark}", "").replace("{divided}", "\n        center.div_(self.ranks)"),
    _CENTER.replace("{mark}", "").replace("{divided}", "\n        center *= 1.0 / dist.get_world_size()"),
    """
import torch.distributed as dist

def total(losses, log):
    loss = losses.mean() / dist.get_world_size()
    dist.all_reduce(loss)
    log(loss * 2)
    value = losses.mean()
    dist.all_reduce(value)
    return value
""",
    _QUOTIENT.format(op=', op="sum"', operation="SUM", mark=""),
]

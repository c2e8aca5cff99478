"""A tensor that was gathered over a group, where each rank of the group is asked for its part.

What it does
    Reports arguments of functions that want each rank's own part of a tensor (`vocab_parallel_cross_entropy`) which
    were put together from all parts before (`gather_from_tensor_model_parallel_region`), over the same axis.

Why is this bad
    Each rank takes the whole for its part: sums over the group count everything as often as there are ranks. The loss
    is too large by the logarithm of their number, and nothing fails.

References
    https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/tensor_parallel.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.models import Row
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP546", "whole-where-part-is-asked", "error", "0.5.0", tokens=("parallel",))


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    rows = {name: row for name, row in queries.flow.models.calls.items() if row.sharded is not None}
    for call in queries.calls(*rows):
        row = _row(call)
        part = call.argument(*row.sharded) if row is not None and row.sharded is not None else None
        if row is None or part is None or is_test(call.unit.path):
            continue
        made = list(_made(part))
        gathered = [each for each in made if (found := _row(each)) is not None and set(row.axes) <= set(found.gathered)]
        if gathered:
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{call.method}` in `{call.unit.qualname}` wants the rank's own part and gets `{part.text}`, which was"
                " gathered before",
                help="pass the part as the layer gives it, or use the function for whole tensors",
                related=[Related(each.unit.path, each.at[0], "it is gathered here") for each in gathered],
                context=f"{call.unit.qualname}:{call.method}",
                severity=None if len(gathered) == len(made) else "warning",
            )


def _made(part: Place) -> Iterator[Place]:
    """The values of a variable, one for each way."""
    queue, seen = [part.origin], set()
    for each in queue:
        if each in seen:
            continue
        seen.add(each)
        if each.value.op == "phi":
            queue += [each.value_at(number).origin for number in each.value.args]
        else:
            yield each


def _row(call: Place) -> Row | None:
    """The row of what a call calls."""
    called = call.operand(0).val.of("ext") if call.value.op == "call" else []
    return call.flow.models.call(called[0][1]) if len(called) == 1 else None


INCORRECT = [
    """
from megatron.core import tensor_parallel

def loss_of(layer, hidden, labels):
    logits = tensor_parallel.gather_from_tensor_model_parallel_region(layer(hidden))
    return tensor_parallel.vocab_parallel_cross_entropy(logits, labels)  # error: MP546
""",
]

CORRECT = [
    """
from megatron.core import tensor_parallel

def loss_of(layer, hidden, labels):
    return tensor_parallel.vocab_parallel_cross_entropy(layer(hidden), labels)
""",
    """
import torch.nn.functional as F
from megatron.core import tensor_parallel

def loss_of(layer, hidden, labels, whole):
    logits = layer(hidden)
    if whole:
        return F.cross_entropy(tensor_parallel.gather_from_tensor_model_parallel_region(logits), labels)
    return tensor_parallel.vocab_parallel_cross_entropy(logits, labels)
""",
]

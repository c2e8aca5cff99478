"""A smallest value that the code calls the largest, or the reverse.

What it does
    Reports a collective with `ReduceOp.MIN` whose result is kept under a name that says it is the largest (`max_len`,
    `longest`) and that is the size of a tensor that is made, or padded; and one with `ReduceOp.MAX` under a name that
    says it is the smallest. It rests on the name. A limit that all ranks must keep (`max_blocks`) is the smallest.

Why is this bad
    What is padded to the shortest length of all ranks is cut off on the others, and a size that only the largest rank
    needs is missing there.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.ReduceOp
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP563", "reduced-against-its-name", "warning", "1.0", tokens=("ReduceOp",))

_WORDS = {
    "MIN": frozenset({"max", "maximum", "longest", "largest", "highest", "latest", "slowest"}),
    "MAX": frozenset({"min", "minimum", "shortest", "smallest", "lowest", "earliest", "fastest"}),
}
_KEEPING = frozenset({"item", "int", "float", "cpu", "tolist", "clone", "detach", "to", "long"})
_SIZED = frozenset({
    "zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_empty", "new_full", "pad", "expand", "resize_",
})  # fmt: skip
_CALLED = {"MIN": "smallest", "MAX": "largest"}


def check_project(project: Project) -> Iterator[Finding]:
    for call in project.analysis(Queries).collectives():
        row = call.operations[0].row
        how = call.argument(*row.operation) if row.operation is not None else None
        tensor = call.argument(*row.tensor) if row.tensor is not None else None
        names = [str(o[-1]).rpartition(".")[2] for o in how.closed.each] if how is not None else []
        if tensor is None or len(names) != 1 or names[0] not in _WORDS or is_aside(call.unit.path):
            continue
        told = [name for name in _names(call, tensor) if not _WORDS[names[0]].isdisjoint(name.lower().split("_"))]
        if (
            told
            and not any(_is_both(name) for name in told)
            and (names[0] == "MAX" or _is_size_of_something(call, tensor))
        ):
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{told[0]}` in `{call.unit.qualname}` is the {_CALLED[names[0]]} of all ranks, by its name it is not",
                help=f"reduce it with `ReduceOp.{'MAX' if names[0] == 'MIN' else 'MIN'}`, or call it what it is",
                context=f"{call.unit.qualname}:{told[0]}",
            )


def _names(call: Place, tensor: Place) -> list[str]:
    """The names that a tensor has, and the number that is taken out of it."""
    unit, held = tensor.unit, {tensor.root.number}
    found = [tensor.called or tensor.hint]
    for number, value in enumerate(unit.code.values):
        kept = value.op == "attr" and value.data in _KEEPING
        kept = kept or value.op == "call" and tensor.value_at(number).method in _KEEPING
        if number > call.number and kept and any(unit.root(each) in held for each in value.args):
            held.add(number)
            found += [unit.variables[number]] if number in unit.variables else []
    return [name for name in found if name]


def _is_size_of_something(call: Place, tensor: Place) -> bool:
    """Whether something is made or padded behind a call to a size that the tensor tells."""
    later = (
        each
        for each in (call.value_at(n) for n, v in enumerate(call.unit.code.values) if v.op == "call")
        if each.number > call.number
    )
    sized = (each for each in later if each.method in _SIZED)
    return any(part.root.number == tensor.root.number for each in sized for part in each.sources)


def _is_both(name: str) -> bool:
    words = set(name.lower().split("_"))
    return all(not words.isdisjoint(each) for each in _WORDS.values())


_PAD = """
import torch
import torch.distributed as dist

def padded(rows):
    length = torch.tensor([rows.shape[0]], device=rows.device)
    dist.all_reduce(length, op=dist.ReduceOp.{op}){mark}
    max_length = int(length.item())
    out = rows.new_zeros(max_length, rows.shape[1])
    out[: rows.shape[0]] = rows
    return out
"""

INCORRECT = [_PAD.replace("{op}", "MIN").replace("{mark}", "  # error: MP563")]

CORRECT = [
    _PAD.replace("{op}", "MAX").replace("{mark}", ""),
    """
import torch
import torch.distributed as dist

def common(steps):
    fewest = torch.tensor([steps], device="cuda")
    dist.all_reduce(fewest, op=dist.ReduceOp.MIN)
    min_steps = int(fewest.item())
    max_steps = steps
    return min_steps, max_steps
""",
    """
import torch
import torch.distributed as dist

def blocks(free):
    max_blocks = torch.tensor([free], device="cuda")
    dist.all_reduce(max_blocks, op=dist.ReduceOp.MIN)
    return int(max_blocks.item())
""",
]

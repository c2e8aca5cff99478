"""Tokens that are cut for the ranks of a ring, beside positions or labels that are not.

What it does
    Looks at what goes together into a model, a batch or a result: arguments of one call, a tuple that is returned, a
    dictionary. Where tensors in it are cut by the rank in a context-parallel (ring, sequence) group, reports the
    positions that are whole, in calls also labels and loss masks. Silent where such a tensor is computed from anything
    that knows the group, and where nothing in it is cut. A note: positions may be meant to be whole where the model
    makes its rotations of them first and cuts those, which the source of a call does not show.

Why is this bad
    Each rank of the ring holds a part of the sequence. With whole positions every part is rotated as if it were the
    first, or the shapes do not fit; with whole labels the loss compares tokens with others' labels.

References
    https://huggingface.co/docs/accelerate/concept_guides/context_parallelism
    https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/core/context_parallel.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import of_parallelism
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP586", "column-not-cut", "note", "0.4.0", tokens=("position_ids", "labels", "loss_mask", "positions"))

_RING = "cp"
_TAKING = frozenset(
    {"get", "pop", "to", "cuda", "long", "contiguous", "view", "reshape"}
)  # what a batch holds, as it is


class _Together(NamedTuple):
    """Values that go somewhere together: (name, value), and whether a call gets them."""

    place: Place
    parts: tuple[tuple[str, Place], ...]
    is_call: bool


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    likely = queries.flow.models.likely
    for unit in queries.mentioning(*likely["along"], *likely["scored"]):
        if is_aside(unit.path):
            continue
        reported: set[int] = set()
        for together in _displays(queries, unit):
            cut = next((part for _, part in together.parts if _is_cut(part)), None)
            wanted = likely["along"] | (likely["scored"] if together.is_call else frozenset())
            for name, part in together.parts if cut is not None else ():
                number = part.root.number
                if name in wanted and number not in reported and cut is not None and _is_whole(part):
                    reported.add(number)
                    yield _report(unit, name, together, _where(cut))


def _displays(queries: Queries, unit: Unit) -> Iterator[_Together]:
    """What goes together: arguments, dictionaries, tuples that are returned."""
    returned = unit.code.returned
    for place in queries.values(unit, "call", "dict", "tuple"):
        value = place.value
        if value.op == "call" and len(value.args) > 2:
            names = zip(value.data.names, value.args[1:], strict=True)
            parts = [(str(name or _name(unit, number)), place.value_at(number)) for name, number in names]
            yield _Together(place, tuple(parts), True)
        elif value.op == "dict":
            keys = [
                place.operand(i).val.constant() if value.args[i] >= 0 else None for i in range(0, len(value.args), 2)
            ]
            yield _Together(place, tuple((str(k), place.operand(2 * i + 1)) for i, k in enumerate(keys)), False)
        elif value.op == "tuple" and place.number in returned:
            parts = [(_name(unit, number), place.value_at(number)) for number in value.args]
            yield _Together(place, tuple(parts), False)


def _name(unit: Unit, number: int) -> str:
    """The variable that holds a value."""
    code, root = unit.code, unit.root(number)
    if code.values[root].op == "param":
        return str(code.values[root].data[1])
    if code.values[number].op == "phi":
        return str(code.values[number].data)
    return next((name for name, held in code.definitions.items() if number in held or root in held), "")


def _is_cut(part: Place) -> bool:
    """Whether a tensor holds another part on each rank of the ring."""
    return part.value.op != "const" and any(c.axis == _RING for c in part.varies("rank")) and not part.val.of("ordinal")


def _is_whole(part: Place) -> bool:
    """Whether a tensor is computed here, from nothing that knows the ring."""
    if part.closed.may_be_none():
        return False
    computed = False
    for source in part.sources:
        op = source.value.op
        computed = computed or op == "binary" or op == "call" and source.method not in _TAKING
        if any(c.kind == "rank" for c in source.closed.v):
            return False
        if op in ("param", "name", "attr", "free", "phi") and _RING in of_parallelism(source.hint):
            return False
    return computed


def _where(cut: Place) -> Place:
    """Where a tensor is cut: the first value on the way to it that differs by the rank."""
    cutting = [source for source in cut.sources if source.value.op in ("call", "item") and _is_cut(source)]
    return min(cutting, key=lambda source: source.at, default=cut)


def _report(unit: Unit, name: str, together: _Together, cut: Place) -> Finding:
    return RULE.finding(
        unit.path,
        cut.at,
        f"`{unit.qualname}` cuts tensors for the ranks of a ring here, but not `{name}`, which goes with them on line"
        f" {together.place.at[0]}",
        help=f"cut `{name}` in the same way, padding included",
        related=[Related(unit.path, together.place.at[0], "the parts and the whole go on together here")],
        context=f"{unit.qualname}:{name}",
    )


INCORRECT = [
    """
import torch
import torch.distributed as dist

def cut(tensors, ring_group):
    rank, size = dist.get_rank(ring_group), dist.get_world_size(ring_group)
    found = []
    for tensor in tensors:
        length = tensor.shape[-1] // size
        found.append(tensor[:, rank * length : (rank + 1) * length])
    return found

def prepare(tokens, mask, ring_group):
    rolled = torch.roll(tokens, -1, 1)
    position_ids = torch.cumsum(mask, -1) - 1
    if ring_group is not None:
        tokens, rolled = cut([tokens, rolled], ring_group)  # error: MP586
    return tokens, position_ids, rolled
""",
    """
import torch
from megatron.core import mpu

def forward(model, input_ids, labels):
    rank, size = mpu.get_context_parallel_rank(), mpu.get_context_parallel_world_size()
    labels = labels.roll(-1, 1)
    position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)
    input_ids = input_ids.chunk(size, 1)[rank]  # error: MP586
    position_ids = position_ids.chunk(size, 0)[rank]
    return model(input_ids=input_ids, position_ids=position_ids, labels=labels)
""",
]

CORRECT = [
    """
import torch
import torch.distributed as dist

def cut(tensors, ring_group):
    rank, size = dist.get_rank(ring_group), dist.get_world_size(ring_group)
    found = []
    for tensor in tensors:
        length = tensor.shape[-1] // size
        found.append(tensor[:, rank * length : (rank + 1) * length])
    return found

def prepare(tokens, mask, ring_group):
    position_ids = torch.cumsum(mask, -1) - 1
    if ring_group is not None:
        tokens, position_ids = cut([tokens, position_ids], ring_group)
    return tokens, position_ids

def other(tokens, positions_of, ring_group):
    position_ids = positions_of(tokens.shape[1], ring_group)
    (tokens,) = cut([tokens], ring_group)
    return tokens, position_ids

def packed(model, batch, ring_group):
    (tokens,) = cut([batch["input_ids"]], ring_group)
    return model(tokens, position_ids=batch.get("position_ids", None))
""",
    """
import torch
from megatron.core import mpu

def forward(model, input_ids, labels):
    rank, size = mpu.get_context_parallel_rank(), mpu.get_context_parallel_world_size()
    position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)
    input_ids = input_ids.chunk(size, 1)[rank]
    position_ids = position_ids.chunk(size, 0)[rank]
    logits = model(input_ids=input_ids, position_ids=position_ids)
    return logits, labels

def whole(model, input_ids, mask):
    position_ids = torch.cumsum(mask, -1) - 1
    return model(input_ids=input_ids, position_ids=position_ids)
""",
]

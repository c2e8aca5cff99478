"""A rank that takes the rows of another out of what all ranks have gathered.

What it does
    Follows tensors in which the rows of the ranks of a group lie one behind another (`accelerator.gather`,
    `all_gather_into_tensor`, `torch.cat` of what `all_gather` gave) to where a rank takes its own part out of them, and
    reports a block (`x[rank * n : (rank + 1) * n]`) that is counted by another number than the rank in that group: the
    number of the process on its node, the rank along another axis. Reports also a reshape of such a tensor in which
    the number of ranks is not the first size, and of whose second dimension a rank takes its part
    (`x.reshape(n, ranks, -1)[:, rank]`).

Why is this bad
    Shapes are right, and each row is somebody's. Losses and advantages belong to other samples than those beside them,
    and training gets worse without an error. On one node, or on one rank, nothing shows.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather_into_tensor
    https://huggingface.co/docs/accelerate/package_reference/accelerator#accelerate.Accelerator.gather
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import LOCAL, SOME, WHOLE, Axes
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.ranks.gathered_rows import Gathered, gathered
from validator.flow.queries.ranks.rank_shares import axes_of_rank
from validator.flow.queries.values.polynomials import polynomial
from validator.flow.queries.values.shares import counts_ranks
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP442", "rows-of-other-ranks", "error", "1.1", tokens=("gather",))

_SHAPING = frozenset({"reshape", "view", "unflatten"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    ranks = queries.flow.models.ranks
    for unit in queries.beside(*ranks["names"], *ranks["methods"], *ranks["attributes"]):
        for number, value in enumerate(unit.code.values) if not is_test(unit.path) else ():
            place = Place(queries.flow, unit, number)
            if value.op == "item":
                yield from _of_block(place)
                yield from _of_column(place)


def _of_block(place: Place) -> Iterator[Finding]:
    """`x[rank * n : (rank + 1) * n]` where the rank is not that of the group whose rows `x` has."""
    rank = _block(place)
    rows = gathered(place.operand(0)) if rank is not None else None
    if rank is None or rows is None:
        return
    counted = axes_of_rank(rank)
    if not SOME & (counted | rows.axes) and counted != rows.axes:
        yield _report(place, rows, f"the block of `{rank.text}`, which counts {_named(counted)}", rank)


def _block(place: Place) -> Place | None:
    """The rank whose block is taken: where it begins grows with the rank by as much as the block is long."""
    index = place.operand(1).root
    if index.value.op == "slice":
        first, last, step = (index.operand(i) for i in range(3))
        bounds = [first, last] if not _is_none(first) and not _is_none(last) and _is_none(step) else []
    elif index.value.op == "call" and index.method == "slice" and len(index.value.args) == 3:
        bounds = [index.operand(1), index.operand(2)]
    else:
        bounds = []
    if not bounds:
        return None
    start, stop = map(polynomial, bounds)
    length = start.growth(_is_rank)
    own = [atom.place for atom in start.atoms if _is_rank(atom.place)]
    return own[0] if length is not None and stop - start == length else None


def _is_none(place: Place) -> bool:
    return place.value.op == "const" and place.value.data is None


def _is_rank(place: Place) -> bool:
    return bool(place.closed.of("ordinal"))


def _of_column(place: Place) -> Iterator[Finding]:
    """`x.reshape(n, ranks, -1)[:, rank]` of a tensor whose rows lie rank by rank."""
    index, shaped = place.operand(1).root, place.operand(0).root
    if index.value.op != "tuple" or len(index.value.args) < 2 or shaped.value.op != "call":
        return
    first, second = index.operand(0).root, index.operand(1).root
    whole = first.value.op == "slice" and all(_is_none(first.operand(i)) for i in range(3))
    if not whole or not _is_rank(second):
        return
    sizes = [shaped.value_at(number) for number in shaped.value.args[1:]]
    if shaped.method not in _SHAPING or len(sizes) < 2 or shaped.receiver is None:
        return
    rows = gathered(shaped.receiver)
    if (
        rows is not None
        and counts_ranks(sizes[1])
        and not any(counts_ranks(a.place) for a in polynomial(sizes[0]).atoms)
    ):
        yield _report(place, rows, f"what lies at `{second.text}` of the second dimension of `{shaped.text}`", shaped)


def _named(axes: Axes) -> str:
    if axes == {LOCAL}:
        return "the processes of one node"
    return "all ranks" if axes == WHOLE else f"the {' and '.join(sorted(axes))} ranks"


def _report(place: Place, rows: Gathered, what: str, told: Place) -> Finding:
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.text}`{place.where} takes {what}, out of rows that `{rows.call.method}` has laid one behind another"
        f" for {_named(rows.axes)}: they are those of other ranks",
        help="take the rows from `rank * n` to `(rank + 1) * n`, by the rank in the group that gathers",
        related=[
            Related(rows.call.unit.path, rows.call.at[0], "the rows are gathered here"),
            Related(told.unit.path, told.at[0], "the part is chosen here"),
        ],
        context=f"{place.unit.qualname}:{place.text}",
        severity="warning" if LOCAL in axes_of_rank(told) else None,
    )


_ADVANTAGES = """\
import torch
from accelerate import Accelerator


class Trainer:
    def __init__(self, model):
        self.accelerator = Accelerator()
        self.model = self.accelerator.prepare(model)

    def advantages(self, rewards, prompts):
        rewards = self.accelerator.gather(rewards)
        rewards = rewards.sum(dim=1)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-4)
        own = slice(
            self.accelerator.{rank} * len(prompts),
            (self.accelerator.{rank} + 1) * len(prompts),
        )
        return advantages[own]{mark}
"""

_LISTS = """\
import torch
import torch.distributed as dist


def own_part(values, count):
    parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, values)
    whole = torch.cat(parts, dim=0).float()
    scaled = (whole - whole.mean()) / whole.std()
    return scaled.reshape({sizes}, -1)[{part}]{mark}
"""

_GROUPS = """\
import torch
import torch.distributed as dist
from megatron.core import parallel_state


def own_part(values):
    group = parallel_state.get_data_parallel_group()
    ranks = parallel_state.get_data_parallel_world_size()
    whole = values.new_empty(ranks * values.shape[0], *values.shape[1:])
    dist.all_gather_into_tensor(whole, values, group=group)
    rank, rows = {rank}, values.shape[0]
    return whole[rank * rows : rank * rows + rows]{mark}
"""

INCORRECT = (
    _ADVANTAGES.format(rank="local_process_index", mark="  # error: MP442"),
    _LISTS.format(sizes="count, dist.get_world_size()", part=":, dist.get_rank()", mark="  # error: MP442"),
    _GROUPS.format(rank="parallel_state.get_tensor_model_parallel_rank()", mark="  # error: MP442"),
)

CORRECT = (
    _ADVANTAGES.format(rank="process_index", mark=""),
    _LISTS.format(sizes="dist.get_world_size(), count", part="dist.get_rank()", mark=""),
    _GROUPS.format(rank="parallel_state.get_data_parallel_rank()", mark=""),
    # what one rank has, cut for the processes of its node; rows that were laid out for it before
    """
import torch
import torch.distributed as dist


def own_part(values, local_rank, count):
    rows = len(values) // count
    part = values[local_rank * rows : (local_rank + 1) * rows]
    whole = values.new_empty(dist.get_world_size() * count, 4)
    dist.all_gather_into_tensor(whole, values)
    columns = whole.view(dist.get_world_size(), count, 4).transpose(0, 1).reshape(count, dist.get_world_size(), 4)
    return part, columns[:, dist.get_rank()]
""",
)

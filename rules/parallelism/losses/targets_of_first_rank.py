"""Targets of a contrastive loss that count from 0 on every rank, against what all ranks have gathered.

What it does
    Reports `cross_entropy` of a product of what this rank holds with what a collective has gathered of all ranks
    (`rows @ torch.cat(all_gather(columns)).t()`), where the targets are `torch.arange(n)` and nothing of the rank is in
    them. Silent where the product is taken of gathered rows, too, and where the columns are in another order on each
    rank.

Why is this bad
    The own column of row i of rank r is `r * n + i`. With targets that begin at 0 all ranks but the first pull their
    rows towards the samples of rank 0. Nothing fails, and on one GPU it is right.

References
    https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather
    https://github.com/mlfoundations/open_clip/blob/main/src/open_clip/loss.py
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.spmd import UNIFORM, only
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import sources, values_behind
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP433", "targets-of-first-rank", "warning", stable_since="0.6.0", tokens=("cross_entropy", "CrossEntropyLoss"),
    solves=True,
)  # fmt: skip

_TURNING = frozenset({"t", "T", "mT", "transpose", "permute", "contiguous", "float", "detach"})
_PRODUCTS = frozenset({"matmul", "mm"})
_MOVING = frozenset({"to", "cuda", "long", "clone", "contiguous"})
_NUMBERING = frozenset({"arange", "range"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    found: dict[Place, list[tuple[Place, Place]]] = {}
    for call in _losses(queries):
        scores, target = call.argument("input", 0), call.argument("target", 1)
        if scores is None or target is None or is_aside(call.unit.path):
            continue
        columns = next((each for each in map(_gathered_columns, _products(scores)) if each is not None), None)
        numbers = _numbers(target) if columns is not None else None
        if columns is not None and numbers is not None:
            found.setdefault(numbers, []).append((call, columns))
    for numbers, rows in found.items():
        yield _report(numbers, rows)


def _losses(queries: Queries) -> Iterator[Place]:
    yield from queries.named("cross_entropy")
    for unit in queries.mentioning("CrossEntropyLoss"):
        for call in queries.calls_in(unit):
            if any(o[:2] == ("made", "torch.nn.CrossEntropyLoss") for o in call.operand(0).closed.each):
                yield call


def _report(numbers: Place, rows: list[tuple[Place, Place]]) -> Finding:
    columns = rows[0][1]
    return RULE.finding(
        numbers.unit.path,
        numbers.at,
        f"`{numbers.text}`{numbers.where} numbers the targets from 0 on every rank, and `{columns.text}` holds the"
        " columns of all ranks: the own ones of rank r begin at r times as many",
        help="add the rank times the number of rows",
        related=[Related(call.unit.path, call.at[0], f"held against `{each.text}` here") for call, each in rows],
        context=f"{numbers.unit.qualname}:{numbers.text}",
    )


def _products(scores: Place) -> Iterator[Place]:
    """The products of matrices of which a value is a multiple, or a sum with other things."""
    queue, seen = [scores.root], {scores.root}
    for place in queue:
        value = place.value
        if value.op == "binary" and value.data == "MatMult" or value.op == "call" and place.method in _PRODUCTS:
            yield place
            continue
        parts = [place.operand(0), place.operand(1)] if value.op == "binary" else []
        parts += [place.value_at(number) for number in value.args] if value.op == "phi" else []
        fresh = [part.root for part in parts if part.root not in seen]
        seen.update(fresh)
        queue += fresh


def _gathered_columns(product: Place) -> Place | None:
    """The second factor of a product, if a collective has made it of all ranks, and not the first."""
    value = product.value
    if value.op == "binary":
        rows, columns = product.operand(0), product.operand(1)
    else:
        given = [product.value_at(number) for number in value.args[1:]]
        factors = [*([product.receiver] if len(given) == 1 and product.receiver is not None else []), *given]
        if len(factors) != 2:
            return None
        rows, columns = factors
    alike = UNIFORM in _turned(columns).closed.v and not only(_turned(columns).closed.v, "rank", "member")
    return columns if alike and UNIFORM not in rows.closed.v and UNIFORM not in rows.val.v else None


def _turned(columns: Place) -> Place:
    """A matrix as it was before it was transposed."""
    root = columns.root
    while True:
        if root.value.op == "attr" and root.value.data in _TURNING:
            root = root.operand(0).root
        elif root.value.op == "call" and root.method in _TURNING and root.receiver is not None:
            root = root.receiver.root
        else:
            return root


def _numbers(target: Place) -> Place | None:
    """The call that numbers the rows from 0, if that is all that targets are."""
    if only(target.closed.v, "rank", "member", "data"):
        return None
    made = values_behind(target, lambda each: each.value.op == "call" and each.method in _NUMBERING, _before) or []
    counted = [each for each in made if each.method in _NUMBERING and len(each.value.args) - 1 >= 1]
    from_zero = [each for each in counted if sum(name is None for name in each.value.data.names) == 1]
    return from_zero[0] if made and len(from_zero) == len(made) else None


def _before(place: Place) -> list[Place] | None:
    """What a value was one step before: on another device, or in a table that the object keeps."""
    if place.value.op == "call" and place.method in _MOVING and place.receiver is not None:
        return [place.receiver]
    owner = place.operand(0).root if place.value.op == "item" else None
    if owner is None or owner.value.op != "attr":
        return sources(place)
    values = place.unit.code.values
    stores = (Place(place.flow, place.unit, number) for number, value in enumerate(values) if value.op == "store_item")
    kept = (each for each in stores if each.operand(0).root.text == owner.text)
    return [each.operand(2) for each in kept] or None


_LOSS = """
import torch
import torch.distributed as dist
import torch.nn.functional as F

def gathered(rows):
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows)
    return torch.cat(parts)

class Contrast:
    def __init__(self, scale):
        self.scale = scale

    def targets(self, rows):
        return {targets}{mark}

    def __call__(self, image, text):
        every = gathered(text)
        return F.cross_entropy(self.scale * {rows} @ every.t(), self.targets(image))
"""
_FROM_ZERO = "torch.arange(rows.size(0), device=rows.device)"

INCORRECT = (
    _LOSS.replace("{targets}", _FROM_ZERO).replace("{rows}", "image").replace("{mark}", "  # error: MP433"),
    """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_gather

def loss(image, text):
    criterion = nn.CrossEntropyLoss()
    labels = torch.arange(len(image)).cuda()  # error: MP433
    scores = torch.matmul(image, torch.cat(all_gather(text), dim=0).T) / 0.07
    return criterion(scores, labels)
""",
)

CORRECT = (
    _LOSS.replace("{targets}", f"{_FROM_ZERO} + rows.size(0) * dist.get_rank()")
    .replace("{rows}", "image")
    .replace("{mark}", ""),
    # all rows against all columns
    _LOSS.replace("{targets}", "torch.arange(rows.size(0) * dist.get_world_size())")
    .replace("{rows}", "gathered(image)")
    .replace("{mark}", ""),
    # each rank against its own
    _LOSS.replace("{targets}", _FROM_ZERO)
    .replace("{rows}", "image")
    .replace("{mark}", "")
    .replace("gathered(text)", "text"),
)

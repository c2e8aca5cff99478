"""A measure of a model that each rank takes of its own part of the data, and that nothing brings together.

What it does
    Finds loops without gradients over a loader that a `DistributedSampler` deals out among the ranks, also behind a
    generator of the project that hands the batches on, in which numbers are read (`item()`). Reports them where the
    function gives something back or prints it, and neither it, nor what it calls, nor its callers with the result
    reach a collective. Silent where anything is called that says by its name that it reduces, gathers or
    synchronises, and where what is measured is written to a file.

Why is this bad
    Each rank has a result for its part; the one that is printed, or by which the best checkpoint is chosen, is that of
    rank 0: of one n-th of the data. Nothing fails, and the result depends on the number of ranks.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries, blocks_of
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.gradients import without_gradients
from validator.flow.queries.training.loaders import deals_out, handed_through, loaders_of
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP577", "measured-on-a-part", "warning", "1.0", tokens=("DistributedSampler",), solves=True)

_TOGETHER = ("reduce", "gather", "sync", "broadcast", "merge", "collect", "compute", "all_")
_WRITING = frozenset({"save", "write", "dump", "savez", "to_csv", "to_json", "writerow"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.mentioning("item"):
        calls = [] if is_aside(unit.path) else list(queries.calls_in(unit))
        if any(call.method == "backward" or call.method in _WRITING for call in calls):
            continue
        for header, loop in unit.code.loops.items() if calls else ():
            body = _measuring(queries, calls, {*blocks_of(unit.code, header), header})
            if loop.iterator < 0 or not body:
                continue
            iterator = body[0].value_at(loop.iterator)
            loaders = loaders_of(handed_through(iterator.gone_through))
            dealt = bool(loaders) and all(map(deals_out, loaders))
            if dealt and not _meets([*calls, *queries.values(unit, "attr")]) and not _handed_over(queries, calls):
                yield _finding(iterator, loaders[0])


def _measuring(queries: Queries, calls: list[Place], inside: set[int]) -> list[Place]:
    """The calls of a loop in which numbers are read, and something runs without gradients."""
    body = [call for call in calls if call.value.block in inside]
    reads = any(call.method == "item" for call in body)
    return body if reads and any(without_gradients(queries, call) for call in body) else []


def _meets(calls: Iterable[Place]) -> bool:
    """Whether calls reach a collective with data, or may by their names."""
    for call in calls:
        if any(word in call.method for word in _TOGETHER):
            return True
        rows = [operation.row for operation, _ in call.reached()]
        if any(row.operation is not None or row.tensor is not None or row.equal is not None for row in rows):
            return True
    return False


def _handed_over(queries: Queries, calls: list[Place]) -> bool:
    """Whether a function that calls this one has its result meet that of other ranks, or drops it, or is not known."""
    sites = queries.calls_of(calls[0].unit)
    if not sites or any(_is_put_away(site) for site in sites):
        return True
    return any(_meets(_with_result(queries, site)) for site in sites)


def _is_put_away(site: Place) -> bool:
    """Whether a result is put into something that others may have, too: a dictionary, a queue."""
    return any(each.value.op == "store_item" or each.value.op == "call" and each.method == "put" for each in site.users)


def _with_result(queries: Queries, site: Place) -> Iterator[Place]:
    """The calls that are given the result of a call, or what is computed of it, and the attributes of it that are read:
    a property may bring something together."""
    for call in queries.values(site.unit, "call", "attr"):
        parts = (part for number in call.value.args for part in call.value_at(number).parts)
        if call.number != site.number and any(part.root.number == site.number for part in parts):
            yield call


def _finding(iterator: Place, loader: Place) -> Finding:
    unit = iterator.unit
    return RULE.finding(
        unit.path,
        iterator.at,
        f"`{unit.qualname}` measures this rank's part of the data, and nothing brings the ranks' results together",
        help="sum what was counted over the ranks (`all_reduce`) before it is divided, shown or compared",
        related=[Related(loader.unit.path, loader.at[0], "the loader deals the data out among the ranks")],
        context=f"{unit.qualname}:{iterator.operand(0).text}",
    )


_EVALUATION = """
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler


class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, count):
        self.total += value * count
        self.count += count

    def every(self, batches):
        for batch in batches:
            yield batch
            print(self.total)

    def synchronize(self):
        both = torch.tensor([self.total, self.count]).cuda()
        dist.all_reduce(both)
        self.total, self.count = both.tolist()


@torch.no_grad()
def evaluate(model, loader):
    meter = Meter()
    for data, label in {goes}:{mark}
        meter.update(F.cross_entropy(model(data.cuda()), label.cuda()).item(), len(data))
    {after}
    return meter.total / meter.count


def main(model, dataset, best):
    loader = DataLoader(dataset, batch_size=4, sampler={sampler})
    loss = evaluate(model, loader)
    {later}
    if dist.get_rank() == 0 and loss < best:
        with open("log.txt", "a") as log:
            log.write(f"{loss}")
"""
_DEALT = "DistributedSampler(dataset, shuffle=False)"


def _with(sampler: str = _DEALT, goes: str = "loader", mark: str = "", after: str = "", later: str = "") -> str:
    rows = {"{sampler}": sampler, "{goes}": goes, "{mark}": mark, "{after}": after, "{later}": later}
    text = _EVALUATION
    for name, row in rows.items():
        text = text.replace(name, row)
    return text


INCORRECT = [
    _with(mark="  # error: MP577"),
    _with(goes="meter.every(loader)", mark="  # error: MP577"),
]

CORRECT = [
    # a property brings the ranks' results together
    """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

class Meter:
    def __init__(self):
        self.right, self.count = 0.0, 0

    def update(self, right, count):
        self.right += right
        self.count += count

    @property
    def value(self):
        both = torch.tensor([self.right, self.count]).cuda()
        dist.all_reduce(both)
        return (both[0] / both[1]).item()

@torch.no_grad()
def evaluate(model, data):
    meter = Meter()
    for x, y in DataLoader(data, sampler=DistributedSampler(data, shuffle=False)):
        meter.update((model(x).argmax(-1) == y).sum().item(), len(y))
    return meter

def main(model, data):
    meter = evaluate(model, data)
    print(meter.value)
""",
    _with(after="meter.synchronize()"),
    _with(goes="meter.every(loader)", after="meter.synchronize()"),
    _with(sampler="None"),
    _with(later="results = {}\n    results[dist.get_rank()] = evaluate(model, loader)"),
    _with(later="loss = torch.tensor(loss).cuda()\n    dist.all_reduce(loss)"),
]

"""A count of each rank's own data that is used as if it were of all ranks.

What it does
    Finds counts of what a rank holds for itself: `len` of data whose length differs, a sum or number of the elements
    that a comparison or a mask selects (`(labels != -100).sum()`, `mask.sum()`, `len(x[x > 0])`), also through
    arithmetic, `.item()` and calls of the project. Reported where such a count is multiplied by the number of ranks to
    stand for a count over all of them, where a loss that is scaled by the number of ranks is divided by it, and where a
    sum of rows, of batches or of what a mask selects (`(x * mask).sum()`), that a collective has summed over the ranks
    is divided by their number on this rank, or a sum of this rank is divided by their number on all, and shown. Silent
    where a collective has reduced the count, and where nothing tells that ranks have different data. A note where rows
    of a batch are multiplied: of a loader that drops what is left over all ranks have as many. A warning where a sum of
    this rank is divided by a number that is summed over all ranks, and its gradients are computed, which DDP, FSDP,
    DeepSpeed and accelerate average over the ranks besides, unless the loss is multiplied by the number of ranks or the
    program sees to the division of gradients itself (`set_gradient_divide_factor`). A warning, too, where a
    sum over the batches that a `DistributedSampler` deals out to this rank is divided by the length of the whole data
    set, and shown, with nothing that reduces it over the ranks.

Why is this bad
    Ranks hold different numbers of tokens. The count of one rank times the number of ranks is nobody's count: each rank
    weights its samples otherwise, and the loss changes with the way samples are spread over ranks. DDP and FSDP average
    gradients; a loss that is scaled by the number of ranks undoes that only if it is divided by the sum over all ranks.

References
    https://huggingface.co/blog/gradient_accumulation
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.axes import WORLD
from validator.domains.spmd import Causes
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import passed_from, returned
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.gradients import averages_gradients
from validator.flow.queries.training.loaders import deals_out, is_data_of, loaders_of
from validator.flow.queries.training.placements import Derived
from validator.flow.queries.values.counts import Amount, added_up, counted, element, grows, laid_together, number_of
from validator.flow.queries.values.shares import OfLoss
from validator.flow.queries.values.sums import KEEPING, factors, is_scaled, is_size, is_sum, spanned, summed
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP580", "local-count", "error", "0.3.0", tokens=("torch", "accelerat"))

_KEEPING = frozenset({
    "item", "to", "float", "int", "long", "double", "detach", "cpu", "cuda", "clone", "clamp", "clamp_min",
    "clamp_", "max",
    "squeeze", "view", "reshape", "type", "tensor", "as_tensor", "FloatTensor", "LongTensor", "clamp_max",
})  # fmt: skip
_ADDING_UP = frozenset({"sum", "nansum", "dot", "vdot"})
_COUNTING = frozenset({"sum", "count_nonzero", "numel", "size"})


def check_project(project: Project) -> Iterator[Finding]:
    seen = set()
    queries = project.analysis(Queries)
    units = [unit for unit in queries.mentioning(*_COUNTING, "all_reduce", "reduce") if not is_aside(unit.path)]
    for place in (place for unit in units for place in queries.values(unit, "binary")):
        if place.value.data not in ("Mult", "Div"):
            continue
        left, right = place.operand(0), place.operand(1)
        if place.value.data == "Mult":
            pairs = [(left, right), (right, left)]
            found = next(((c, s) for c, s in pairs if is_size(s) and _counted(c)), None)
        else:
            size = next((s for s in factors(left) if is_size(s)), None)
            found = (right, size) if size is not None and _counted(right) else None
        finding = _report(place, *found) if found is not None else _of_quotient(queries, place)
        if finding is not None and (key := (place.unit.path, place.at[0])) not in seen:
            seen.add(key)
            yield finding


def _of_quotient(queries: Queries, place: Place) -> Finding | None:
    """What is wrong with a quotient neither part of which is scaled by the number of ranks."""
    if place.value.data != "Div":
        return None
    call = _summed_over_ranks(place)
    if call is not None:
        return _report_sum(place, call)
    call = _divided_by_all(place)
    if call is not None:
        return _report_share(place, call)
    call = _trained_share(queries, place)
    if call is not None:
        return _report_trained(place, call)
    loader = _part_of_whole(queries, place)
    return _report_part(place, loader) if loader is not None else None


def _part_of_whole(queries: Queries, quotient: Place) -> Place | None:
    """The loop over this rank's part of the data whose sum is divided by the length of all of the data."""
    whole = counted(quotient.operand(1).root)
    if whole is None or whole[1] != 0:
        return None
    for factor in factors(quotient.operand(0)):
        total = _given_back(queries, number_of(factor))
        loop = grows(total)
        loaders = loaders_of(loop.gone_through) if loop is not None else []
        dealt = bool(loaders) and all(deals_out(each) for each in loaders)
        if loop is None or not dealt or not any(is_data_of(whole[0], each, loop.gone_through) for each in loaders):
            continue
        shown = Derived(quotient.flow, quotient)
        reduced = shown.reduced or _is_reduced(quotient.operand(0)) or _is_reduced(total)
        return loop if shown.shown and not reduced and not is_scaled(quotient) else None
    return None


def _given_back(queries: Queries, place: Place) -> Place:
    """What the one function of the project that is called here gives back."""
    units = queries.targets(place) if place.value.op == "call" else []
    returned = [number for number in units[0].code.returned if number >= 0] if len(units) == 1 else []
    return number_of(Place(place.flow, units[0], returned[0]).root) if len(returned) == 1 else place


def _summed_over_ranks(quotient: Place) -> Place | None:
    """The collective that has summed over ranks what is then divided by its number on this rank alone."""
    count = quotient.operand(1)
    found = _sum_of(quotient.operand(0)) if not _is_reduced(count) else None
    if found is None or not _is_mean(count.root, found[1]) or is_scaled(quotient):
        return None
    return found[0]


def _divided_by_all(quotient: Place) -> Place | None:
    """The collective that has summed over ranks the number by which a sum of this rank alone is divided and shown."""
    total = quotient.operand(0)
    found = _sum_of(quotient.operand(1)) if not _is_reduced(total) else None
    if found is None or not _is_mean(found[1], total.root):
        return None
    shown = Derived(quotient.flow, quotient)
    trained = any(each.value.op == "attr" and each.value.data == "backward" for p in shown.all for each in p.users)
    return found[0] if shown.shown and not (shown.reduced or trained or is_scaled(quotient)) else None


def _trained_share(queries: Queries, quotient: Place) -> Place | None:
    """The collective that has summed over all ranks the number by which a sum of this rank is divided, of which
    gradients are computed that a library averages over the ranks."""
    total = quotient.operand(0)
    if not any(map(_adds_up, factors(total))) or any(summed(total)):
        return None
    count = _unwrapped(quotient.operand(1))
    ways = [count.value_at(number) for number in count.value.args] if count.value.op == "phi" else [count]
    found = next((found for way in ways if (found := _sum_of(way)) is not None), None)
    if any(map(is_size, factors(total))) or found is None:
        return None
    loss = OfLoss(quotient.flow, quotient)
    averaged = [each for each in loss.backward if averages_gradients(queries, each)]
    return found[0] if averaged and not loss.scaled else None


def _unwrapped(place: Place) -> Place:
    """A number before calls that keep it what it is: `count.clamp(min=1).item()`."""
    while place.value.op == "call" and place.method in KEEPING and place.receiver is not None:
        place = place.receiver
    return place


def _adds_up(place: Place) -> bool:
    """Whether a value is a sum over the elements of a tensor, on one of the ways that it may come."""
    ways = [place.value_at(number).root for number in place.value.args] if place.value.op == "phi" else [place]
    return any(way.value.op == "call" and way.method in _ADDING_UP for way in ways)


def _sum_of(place: Place) -> tuple[Place, Place] | None:
    """The collective that has summed a number over all ranks, or all that share the data, and what the number was on
    one of them; also of what a function of the project returns that is given it."""
    found = _in_place(place)
    if found is not None:
        return found
    call = _unwrapped(place)
    if call.value.op == "call" and (own := _summed_result(call)) is not None:
        return call, own
    results = returned(call) if call.value.op == "call" else None
    inner = next((found for each in results or () if (found := _in_place(each)) is not None), None)
    return (inner[0], passed_from(call, number_of(inner[1])).root) if inner is not None else None


def _summed_result(call: Place) -> Place | None:
    """What a collective was given that gives back the sum over all ranks: `accelerator.reduce(count, "sum")`."""
    row = next((each.row for each in call.operations), None)
    if row is None or row.result != "uniform" or row.operation is None or row.reads is None:
        return None
    given = call.argument(*row.reads)
    return given.root if given is not None and is_sum(call.argument(*row.operation)) else None


def _in_place(place: Place) -> tuple[Place, Place] | None:
    """The same, of a number that a collective has summed in place, perhaps in a tensor with others."""
    whole, position = element(place)
    calls = list(summed(whole))
    tensor = calls[-1].argument(*calls[-1].operations[0].row.equal) if calls else None
    if tensor is None or not spanned(calls[-1])[0] & {WORLD, "dp"}:
        return None
    own = tensor.root if position is None else laid_together(tensor.root, position)
    return (calls[-1], own) if own is not None else None


def _is_mean(count: Place, total: Place) -> bool:
    """Whether a sum has as many terms, or as much weight, as a number says."""
    number = counted(count)
    if number is None or number[1] is None and _amount(total) == _amount(count):  # of a sum by itself: a share
        return False
    return any(_same(number, amount) for amount in added_up(total))


def _amount(total: Place) -> Amount | None:
    return next(added_up(total), None)


def _same(one: Amount, other: Amount) -> bool:
    (of, along), (tensor, dimension) = one, other
    return along == dimension and of.unit is tensor.unit and (of == tensor or of.key == tensor.key)


def _is_reduced(total: Place) -> bool:
    """Whether a collective may have reduced a number, or anything by a name that says so."""
    for call in (each for each in total.sources if each.value.op == "call"):
        rows = [operation.row for operation, _ in call.reached()]
        if any(row.operation is not None or row.result == "uniform" or row.equal is not None for row in rows):
            return True
        if "reduce" in call.method or "gather" in call.method:
            return True
    return False


def _counted(place: Place) -> Causes:
    """How a count differs between ranks; nothing for what is no count, or is the same on all."""
    causes = place.varies("data")
    return causes if causes and _is_count(place, {}) else frozenset()


def _is_count(place: Place, seen: dict[tuple[Unit, int], None]) -> bool:
    """Whether a value counts elements, through what keeps a number what it is."""
    place = place.root
    if (place.unit, place.number) in seen:
        return False
    seen[place.unit, place.number] = None
    value = place.value
    if value.op == "phi" or (value.op == "binary" and value.data in ("Add", "Sub")):
        return any(_is_count(place.value_at(n), seen) for n in value.args)
    if value.op != "call":
        return False
    site = place.result.sites.get(place.number)
    if site is not None and site.targets:
        returned = (Place(place.flow, t.unit, number) for t in site.targets for number in t.unit.code.returned)
        return any(_is_count(each, seen) for each in returned)
    name = place.method
    receiver = place.receiver
    on_module = receiver is None or any(o[0] in ("ext", "module") for o in receiver.val.each)
    given = place.operand(1) if on_module and len(value.args) > 1 else receiver
    if given is None:
        return False
    if name == "len":
        return True
    if name in _COUNTING:
        return name != "sum" or _selects(given)
    return name in _KEEPING and _is_count(given, seen)


def _selects(place: Place) -> bool:
    """Whether a tensor says of each element whether it counts."""
    masks = place.flow.models.likely["masks"]
    own = place.root
    if own.value.op in ("attr", "param") and masks.intersection(own.words):
        return True
    if own.value.op == "item" and masks.intersection(own.operand(1).words):
        return True
    if own.value.op == "compare" or (own.value.op == "binary" and own.value.data in ("BitAnd", "BitOr")):
        return True
    if own.value.op == "call" and own.method in {"ne", "eq", "gt", "ge", "lt", "le", "logical_and"}:
        return True
    inner = own.receiver if own.value.op == "call" and own.method in _KEEPING | {"bool", "contiguous"} else None
    return _selects(inner) if inner is not None else own.value.op == "item" and _selects(own.operand(0))


def _report_sum(place: Place, call: Place) -> Finding:
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.unit.qualname}` divides what `{call.method}` has summed over the ranks by `{place.operand(1).text}`,"
        " the number on this rank alone",
        help="divide by the number on all ranks: times `dist.get_world_size()` where all have as many, else summed too",
        related=[Related(place.unit.path, call.at[0], "summed here")],
        context=f"{place.unit.qualname}:{place.operand(1).text}",
        severity="warning",
    )


def _report_share(place: Place, call: Place) -> Finding:
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.unit.qualname}` divides `{place.operand(0).text}`, a sum on this rank alone, by a number that"
        f" `{call.method}` has summed over the ranks",
        help="reduce the sum over the ranks, too",
        related=[Related(place.unit.path, call.at[0], "summed here")],
        context=f"{place.unit.qualname}:{place.operand(0).text}",
        severity="warning",
    )


def _report_trained(place: Place, call: Place) -> Finding:
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.unit.qualname}` divides `{place.operand(0).text}`, a sum on this rank alone, by a number that"
        f" `{call.method}` has summed over the ranks; the gradients are averaged over the ranks besides",
        help="multiply the loss by the number of ranks, or divide by the mean of the number over the ranks",
        related=[Related(place.unit.path, call.at[0], "summed here")],
        context=f"{place.unit.qualname}:{place.operand(0).text}",
        severity="warning",
    )


def _report_part(place: Place, loop: Place) -> Finding:
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.unit.qualname}` divides a sum over this rank's part of the data by `{place.operand(1).text}`, the"
        " length of all of it",
        help="reduce the sum over the ranks first (`dist.all_reduce(total)`)",
        related=[Related(loop.unit.path, loop.at[0], "summed up here, over a part")],
        context=f"{place.unit.qualname}:{place.operand(1).text}",
        severity="warning",
    )


def _calls(count: Place) -> Iterator[Place]:
    return (each for each in count.sources if each.value.op == "call")


def _report(place: Place, count: Place, size: Place | None) -> Finding:
    causes = _counted(count)
    what = count.text if len(count.text) <= 60 else count.text[:57] + "…"
    times = size.text if size is not None else "the number of ranks"
    if place.value.data == "Mult":
        message = (
            f"`{what}` in `{place.unit.qualname}` counts this rank's own data; times `{times}` it is no count over all"
            " ranks"
        )
    else:
        message = (
            f"`{place.unit.qualname}` scales by `{times}` and divides by `{what}`, which counts this rank's own data"
            " only"
        )
    # where the loader drops what is left over, all ranks have as many rows
    rows = place.value.data == "Mult" and not {"sum", "count_nonzero"} & {each.method for each in _calls(count)}
    return RULE.finding(
        place.unit.path,
        place.at,
        message,
        help="sum the count over the ranks (`dist.all_reduce(count, group=dp_group)`) before it is used for all",
        related=[Related(place.unit.path, count.root.at[0], "counted here")],
        context=f"{place.unit.qualname}:{what}",
        severity="note"
        if rows
        else "error"
        if size is not None and size.root.value.op == "call" and any(c.sure for c in causes)
        else "warning",
    )


_EVALUATION = """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

def correct_of(model, loader):
    correct = 0
    with torch.no_grad():
        for images, labels in loader:
            correct += (model(images).argmax(-1) == labels).sum().item()
    return correct

def evaluate(model, data):
    loader = DataLoader(data, batch_size=4, sampler={sampler})
    correct = 0
    for images, labels in loader:
        correct += (model(images).argmax(-1) == labels).sum().item()
    {before}
    print({accuracy})
"""
_PARTS = "DistributedSampler(data, shuffle=False)"


def _evaluation(accuracy: str, sampler: str = _PARTS, before: str = "pass") -> str:
    return _EVALUATION.format(accuracy=accuracy, sampler=sampler, before=before)


_GLOBAL_COUNT = """
import torch
import torch.nn.functional as F
from accelerate import Accelerator

def main(model, optimizer, loader):
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        mask = batch["labels"] != -100
        losses = F.cross_entropy(model(batch["tokens"]), batch["labels"], reduction="none")
        count = accelerator.reduce(mask.sum().float(), "{how}").clamp(min=1)
        loss = (losses * mask).sum() / count{scale}{mark}
        accelerator.backward(loss)
        optimizer.step()
        print(accelerator.reduce(loss.detach(), "mean"))
"""

_GLOBAL_MEAN = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def weighted_mean(values, weights):
    total, count = torch.dot(values, weights), weights.sum()
    if dist.is_initialized():
        count = count.detach().clone()
        dist.all_reduce(count)
    return total / count.clamp_min(1.0){mark}

def train(model, optimizer, loader):
    model = DistributedDataParallel(model)
    {factor}
    for values, weights in loader:
        loss = weighted_mean(model(values), weights)
        loss.backward()
        optimizer.step()
"""

INCORRECT = [
    # gradients are averaged over the ranks, a loss that is divided by a number of all of them as well
    _GLOBAL_COUNT.format(how="sum", scale="", mark="  # error: MP580"),
    _GLOBAL_MEAN.format(factor="", mark="  # error: MP580"),
    _evaluation("correct / len(data)  # error: MP580\n   "),
    _evaluation('f"accuracy {100.0 * correct / len(loader.dataset)}"  # error: MP580\n   '),
    _evaluation("correct_of(model, loader) / len(data)  # error: MP580\n   "),
    """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

def train(model, dataset, sampler):
    for batch in DataLoader(dataset, sampler=sampler):
        tokens = (batch["labels"] != -100).sum()
        loss = model(batch).sum() * dist.get_world_size() / tokens  # error: MP580
        loss.backward()
""",
    """
import torch
import torch.distributed as dist

def count(batch):
    return int(batch["attention_mask"].sum().item())

class Trainer:
    def __init__(self, model, group):
        self.model = model
        self.dp_size = dist.get_world_size(group)

    def step(self, batch):
        total = count(batch) * self.dp_size  # error: MP580
        return self.model(batch).sum() / total
""",
    """
import torch
import torch.distributed as dist

def centre(outputs):
    total = torch.sum(outputs, dim=0, keepdim=True)
    dist.all_reduce(total)
    return total / len(outputs)  # error: MP580
""",
    """
import torch
import torch.distributed as dist

def evaluate(model, loader):
    total, batches = torch.zeros(1), 0
    for batch in loader:
        total = total + model(batch).mean()
        batches += 1
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return total.item() / batches  # error: MP580
""",
    # what a mask selects
    """
import torch
import torch.distributed as dist

def statistics(xs, mask):
    count = mask.sum()
    both = torch.stack([(xs * mask).sum(), count])
    dist.all_reduce(both, dist.ReduceOp.SUM)
    mean = both[0] / both[1]
    deviation = torch.sum(((xs - mean) ** 2) * mask)
    dist.all_reduce(deviation, dist.ReduceOp.SUM)
    return mean, deviation / count  # error: MP580

def mean_of(losses, labels):
    both = torch.stack([losses[labels != -100].sum(), losses.max()])
    dist.all_reduce(both)
    return both[0] / (labels != -100).sum().clamp(min=1)  # error: MP580
""",
    # a Python number that becomes a tensor for the collective; one that a function reduces; the count alone reduced
    """
import torch
import torch.distributed as dist

def summed(value):
    if not dist.is_initialized():
        return value
    value = value.clone()
    dist.all_reduce(value, op=dist.ReduceOp.SUM)
    return value

def accuracy(model, loader):
    correct, rows = 0, 0
    for images, labels in loader:
        correct += (model(images).argmax(-1) == labels).sum().item()
        rows += len(labels)
    everywhere = torch.tensor(correct).cuda()
    dist.all_reduce(everywhere, op=dist.ReduceOp.SUM)
    return everywhere.item() / rows  # error: MP580

def loss_of(model, loader):
    total, rows = torch.zeros(1), 0
    for images, labels in loader:
        total += model(images, labels).sum()
        rows += labels.size(0)
    return summed(total) / max(rows, 1)  # error: MP580

def share_of(model, loader):
    correct, rows = torch.zeros(1), torch.zeros(1)
    for images, labels in loader:
        correct += (model(images).argmax(-1) == labels).sum()
        rows += labels.size(0)
    dist.all_reduce(rows)
    print(correct.item() / rows.item())  # error: MP580
""",
]

CORRECT = [
    # times the number of ranks; by the mean of the number; the program divides gradients by itself
    _GLOBAL_COUNT.format(how="sum", scale=" * accelerator.num_processes", mark=""),
    _GLOBAL_COUNT.format(how="mean", scale="", mark=""),
    _GLOBAL_COUNT.format(
        how="sum", scale=" * (accelerator.num_processes if accelerator.use_distributed else 1)", mark=""
    ),
    _GLOBAL_MEAN.format(factor="model.register_comm_hook(None, summed)", mark=""),
    _evaluation("correct / len(data)", "torch.utils.data.SequentialSampler(data)"),
    _evaluation("correct / len(sampler)", before="sampler = loader.sampler"),
    _evaluation("correct / len(data)", before="correct = reduce_sum(correct)"),
    _evaluation("correct.item() / len(data)", before="correct = torch.tensor(correct)\n    dist.all_reduce(correct)"),
    _evaluation("correct / (len(data) // dist.get_world_size())"),
    """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

def train(model, dataset, sampler):
    for batch in DataLoader(dataset, sampler=sampler):
        tokens = (batch["labels"] != -100).sum()
        dist.all_reduce(tokens)
        loss = model(batch).sum() * dist.get_world_size() / tokens
        loss.backward()
""",
    """
import torch
import torch.distributed as dist

def rows(micro_batch_size, accumulation):
    return micro_batch_size * accumulation * dist.get_world_size()

def step(model, batch, dataset):
    loss = model(batch).mean() * dist.get_world_size()
    loss.backward()
    return len(dataset) // dist.get_world_size(), (batch["labels"] != -100).sum()
""",
    """
import torch
import torch.distributed as dist

def centre(outputs):
    total = torch.sum(outputs, dim=0, keepdim=True)
    dist.all_reduce(total)
    return total / (len(outputs) * dist.get_world_size())

def mean(outputs):
    total = outputs.sum(dim=0)
    dist.all_reduce(total)
    total = total / outputs.shape[0]
    return total / dist.get_world_size()

def features(outputs, tp_group):
    total = outputs.sum(dim=-1)
    dist.all_reduce(total, group=tp_group)
    return total / len(outputs)
""",
    """
import torch
import torch.distributed as dist

def evaluate(model, loader):
    total, batches = torch.zeros(1), torch.zeros(1)
    for batch in loader:
        total += model(batch).mean()
        batches += 1
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    dist.all_reduce(batches, op=dist.ReduceOp.SUM)
    return total.item() / batches.item()

def averaged(model, loader):
    total, batches = torch.zeros(1), 0
    for batch in loader:
        total += model(batch).mean()
        batches += 1
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return total / batches / dist.get_world_size()
""",
    """
import torch
import torch.distributed as dist

def statistics(xs, mask):
    both = torch.stack([(xs * mask).sum(), mask.sum()])
    dist.all_reduce(both, dist.ReduceOp.SUM)
    mean, count = both[0] / both[1], both[1]
    deviation = torch.sum(((xs - mean) ** 2) * mask)
    dist.all_reduce(deviation, dist.ReduceOp.SUM)
    return mean, deviation / count

def mean_of(losses, mask, tp_group):
    total, count = (losses * mask).sum(), mask.sum()
    dist.all_reduce(total)
    scaled = total / count / dist.get_world_size()
    part = (losses * mask).sum()
    dist.all_reduce(part, group=tp_group)
    dist.all_reduce(count)
    return total / count.clamp(min=1), scaled, part / mask.sum()
""",
    # each rank's part of the mean, which is added up afterwards, or which the backward adds up
    """
import torch
import torch.distributed as dist

def trained(losses, mask):
    count = mask.sum()
    dist.all_reduce(count)
    loss = (losses * mask).sum() / count
    loss.backward()
    shown = (losses * mask).sum() / count
    dist.all_reduce(shown)
    print(shown.item())

def share(weights):
    total = weights.sum()
    dist.all_reduce(total)
    print((weights.sum() / total).item())

def accuracy(model, loader):
    correct, rows = 0, 0
    for images, labels in loader:
        correct += (model(images).argmax(-1) == labels).sum().item()
        rows += len(labels)
    both = torch.tensor([correct, rows]).cuda()
    dist.all_reduce(both, op=dist.ReduceOp.SUM)
    correct, rows = both.tolist()
    return correct / rows
""",
    # times the number of ranks, where the number of tokens is that of all
    """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def train(model, loader, optimizer, balanced):
    model = DistributedDataParallel(model)
    for batch in loader:
        mask = batch["labels"] != -100
        tokens = mask.sum()
        if balanced:
            dist.all_reduce(tokens)
            size = dist.get_world_size()
        else:
            size = 1
        loss = (model(batch) * mask).sum() / tokens * size
        loss.backward()
        optimizer.step()
""",
]

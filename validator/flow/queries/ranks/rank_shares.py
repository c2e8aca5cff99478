"""Where the number of a rank and a number of ranks go together: the share of something that is this rank's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.domains.axes import LOCAL, SOME, WHOLE, Axes
from validator.flow.calls.groups import axes_in
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.training.trainers import is_trainer

LOADER = "torch.utils.data.DataLoader"
_CHUNKING = frozenset({"chunk", "tensor_split", "array_split"})
_WRAPPING = frozenset({"enumerate", "tqdm", "iter"})
_EQUALITY = frozenset({"Eq", "NotEq"})
_ATTACHED = frozenset({"lightning.LightningModule", "lightning.LightningDataModule"})
_TRAINED = {"train_dataset": "get_train_dataloader", "eval_dataset": "get_eval_dataloader"}
INJECTING = ("use_distributed_sampler", "replace_sampler_ddp")  # the second in Lightning before 2.0


_IN_ENVIRONMENT = {"node": frozenset({LOCAL}), "job": WHOLE}  # among whom a variable of the environment counts


class Share(NamedTuple):
    """`user` takes the part of rank `rank` of `size` parts of `whole`: a sampler, `x[rank::size]`,
    `range(rank, n, size)`, `i % size == rank`. Without a rank and a size it is that of this rank among all."""

    rank: Place | None
    size: Place | None
    user: Place
    whole: Place | None


def shares(queries: Queries) -> Iterator[Share]:
    """All shares of a project: what the tables say of calls (`shares`), then slices, remainders and chunks."""
    models = queries.flow.models
    for name, row in models.calls.items():
        for call in queries.calls(name) if row.shares is not None else ():
            assert row.shares is not None
            rank, size = (call.argument(*each) for each in row.shares)
            yield Share(rank, size, call, call.argument("dataset", 0))
    for call in queries.named("shard"):
        rank, size = call.argument("index", 1), call.argument("num_shards", 0)
        if call.receiver is not None and rank is not None and size is not None:
            yield Share(rank, size, call, call.receiver)
    for call in queries.named("range", "arange", "islice"):
        if (found := _of_steps(call)) is not None:
            yield found
    ranks = models.ranks
    for unit in queries.beside(*ranks["names"], *ranks["methods"], *ranks["attributes"]):
        for number, value in enumerate(unit.code.values):
            if value.op in ("item", "compare"):
                place = Place(queries.flow, unit, number)
                found = _of_item(place) if value.op == "item" else _of_remainder(place)
                if found is not None:
                    yield found


def prepared(queries: Queries) -> Iterator[Share]:
    """The loaders that Accelerate shares out among all ranks."""
    for call in queries.calls("accelerate.Accelerator.prepare", "accelerate.Accelerator.prepare_data_loader"):
        for number in call.value.args[1:]:
            loader = call.value_at(number)
            if any(o[:2] == ("made", LOADER) for o in loader.closed.each):
                yield Share(None, None, call, loader)


def dealt_by_lightning(queries: Queries) -> Iterator[Share]:
    """The loaders for which the Trainer of Lightning makes a sampler that deals their data out among all ranks: those
    that the `…_dataloader` methods of modules and data modules make, without a sampler of their own."""
    trainers = list(queries.calls("lightning.Trainer"))
    if any(each.argument(name) is not None for each in trainers for name in INJECTING):
        return
    for call in queries.calls(LOADER):
        cls, models = call.unit.cls, queries.flow.models
        of_lightning = cls is not None and any(models.named(base) in _ATTACHED for base in cls.external_bases)
        if of_lightning and call.unit.name.endswith("_dataloader"):
            own = call.argument("sampler", 3) or call.argument("batch_sampler", 4)
            data = call.argument("dataset", 0)
            if own is None and data is not None and "**" not in call.value.data.names:
                yield Share(None, None, call, data)


def dealt_by_trainer(queries: Queries) -> Iterator[Share]:
    """The data sets whose elements a Trainer of transformers deals out among all ranks, which makes the loader itself:
    not where a class below it makes the loader."""
    models = queries.flow.models
    for name, own in _TRAINED.items():
        for unit in queries.mentioning(name):
            for call in queries.calls_in(unit):
                data = call.argument(name) if name in call.value.data.names else None
                made = call.operand(0).closed.each if data is not None else ()
                if data is not None and made and all(is_trainer(models, o, (own,)) for o in made):
                    yield Share(None, None, call, data)


def _of_steps(call: Place) -> Share | None:
    """`range(rank, n, size)`, `np.arange(rank, n, size)`, or `islice(x, rank, None, size)`."""
    if any(name is not None for name in call.value.data.names):
        return None
    given = [call.value_at(number) for number in call.value.args[1:]]
    whole = given.pop(0) if call.method == "islice" and given else None
    return Share(given[0], given[2], call, whole) if len(given) == 3 else None


def _of_item(place: Place) -> Share | None:
    """`x[rank::size]`, or `x.chunk(size)[rank]`."""
    owner, index = place.operand(0).root, place.operand(1)
    if index.value.op == "slice":
        first, _, step = index.value.args
        if first >= 0 and step >= 0:
            return Share(index.value_at(first), index.value_at(step), place, owner)
        return None
    return chunk_of(place)


def chunk_of(place: Place) -> Share | None:
    """`x.chunk(size)[rank]`."""
    owner, index = place.operand(0).root, place.operand(1)
    if owner.value.op != "call" or owner.method not in _CHUNKING:
        return None
    of_function = any(o[0] == "ext" for o in owner.operand(0).val.each)
    size = owner.argument("chunks", int(of_function)) or owner.argument("indices_or_sections", int(of_function))
    return Share(index, size, place, owner.receiver) if size is not None else None


def _of_remainder(place: Place) -> Share | None:
    """`i % size == rank`, either way round."""
    if place.value.data not in _EQUALITY:
        return None
    for one, other in ((0, 1), (1, 0)):
        divided = place.operand(one).root
        if divided.value.op == "binary" and divided.value.data == "Mod":
            return Share(place.operand(other), divided.operand(1), place, _gone_through(place))
    return None


def _gone_through(place: Place) -> Place | None:
    """What the loop around a value goes through: of `enumerate(x)` x."""
    header = place.unit.code.blocks[place.value.block].loop
    loop = place.unit.code.loops.get(header)
    if loop is None or loop.iterator < 0:
        return None
    return within(place.value_at(loop.iterator).root.gone_through.root)


def within(iterable: Place) -> Place:
    """What is gone through inside of `enumerate(tqdm(x))` and its like."""
    while iterable.value.op == "call" and iterable.method in _WRAPPING:
        wrapped = iterable.argument("", 0)
        if wrapped is None:
            break
        iterable = wrapped.root
    return iterable


def axes_of_rank(rank: Place | None) -> Axes:
    """Among the ranks of which axes a number counts; `SOME` where that is not known, or several may come."""
    if rank is None:
        return WHOLE
    counted = {WHOLE if o[1] == "job" else o[2] for o in rank.closed.each if o[0] == "ordinal"}
    environment = {o[2] for o in rank.closed.each if o[0] == "environment"}
    return _only(counted | {axes for name, axes in _IN_ENVIRONMENT.items() if name in environment}, rank)


def axes_of_size(size: Place) -> Axes:
    """The axes whose ranks a number counts; `SOME` where that is not known, or several may come."""
    return _only({axes_in(o[1]) for o in size.closed.of("size")}, size)


def _only(found: set[Axes], place: Place) -> Axes:
    told = [o for o in place.closed.each if o[0] not in ("ordinal", "environment", "size", "const")]
    return next(iter(found)) if len(found) == 1 and not told else SOME

"""A data set that is told the epoch while workers that stay alive have copies of it.

What it does
    Looks at loaders with `persistent_workers=True` (written there, in a dictionary that is spread, in a constant of a
    configuration, or `num_workers > 0`) and reports where, in a loop, the process that trains tells something to what
    their workers hold: `dataset.set_epoch(epoch)`, `loader.collate_fn.set_epoch(epoch)`, `loader.dataset.stage = 2`.
    Of a method one attribute that it stores must be one that `__getitem__`, `__iter__` or `__call__` of the class
    reads, each by itself or in what it calls. Silent about samplers, which live in the process that trains, without
    workers, where each round makes its loader, about memory that processes share (`self.epoch.value = epoch`, a tensor
    that is filled), and in projects that throw the workers of a loader away (`loader._iterator = None`).

Why is this bad
    Workers get copies of the data set and of `collate_fn` when the loader is first gone through. With
    `persistent_workers=True` they keep these copies for good: the curriculum never advances, the augmentation that
    should end goes on, each epoch shuffles as the first one did. Nothing fails.

References
    https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.DataLoader
    https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import ClassDef
from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import calls_behind, trail
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.loaders import makes_loader
from validator.flow.queries.training.sampler_rounds import Rounds
from validator.flow.values import Val
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP568", "told-to-kept-workers", "warning", "1.0", tokens=("persistent_workers",))

_Kept = tuple[ClassDef, str]  # an attribute of the objects of a class

# By argument of a loader that its workers get a copy of: its position, and the methods by which they use it.
_HELD = {"dataset": (0, ("__getitem__", "__getitems__", "__iter__")), "collate_fn": (6, ("__call__",))}
_LOADERS = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    loaders = [place for place in _loaders(queries) if _keeps_workers(place)]
    if not loaders or _throws_away(queries):
        return
    rounds = Rounds(queries)
    for place in _tellings(queries):
        owner = place.operand(0) if place.value.op == "store_attr" else place.receiver
        found = _held_by(owner, loaders) if owner is not None else None
        if found is not None and owner is not None:
            loader, argument = found
            if any(_reads(queries, *row, argument) for row in _told(queries, place, owner)) and _is_repeated(
                queries, rounds, place, loader
            ):
                yield _report(place, owner, loader)


def _loaders(queries: Queries) -> Iterator[Place]:
    """The calls that make a loader: of torch, or of a class of the project that is one."""
    own = (cls.name for cls in queries.project.classes() if not _LOADERS.isdisjoint(cls.external_bases))
    for call in queries.named("DataLoader", "StatefulDataLoader", *own):
        if not is_aside(call.unit.path) and (makes_loader(call) or _of_project(call.operand(0).closed, "class")):
            yield call


def _of_project(value: Val, *kinds: str) -> set[ClassDef]:
    """The classes of the project that are loaders, of which a value is one, or an object."""
    classes = {o[1] for o in value.each if o[0] in kinds}
    return {cls for cls in classes if not _LOADERS.isdisjoint(cls.external_bases)}


def _keeps_workers(loader: Place) -> bool:
    kept, workers = loader.passed("persistent_workers"), loader.passed("num_workers", 5)
    if kept is None or workers is not None and (not workers.objs and not workers.v or workers.constant() == 0):
        return False
    if kept.objs and all(o[0] == "const" for o in kept.each):
        return any(o[2] for o in kept.each)
    written, number = loader.argument("persistent_workers"), loader.argument("num_workers", 5)
    test = written.root if written is not None else None
    return test is not None and number is not None and test.value.op == "compare" and test.operand(0).key == number.key


def _throws_away(queries: Queries) -> bool:
    """Whether the program ends the workers of a loader itself."""
    units = queries.mentioning("_iterator")
    return any(
        place.value.data == "_iterator" for unit in units for place in queries.values(unit, "store_attr", "delete")
    )


def _tellings(queries: Queries) -> Iterator[Place]:
    """What may tell something to an object: calls of methods that are given something, and stores of attributes."""
    words = ("set_epoch", *_HELD)
    for unit in queries.mentioning(*words):
        for place in queries.values(unit, "store_attr", "call") if not is_aside(unit.path) else ():
            if place.value.op == "store_attr" or place.receiver is not None and len(place.value.args) == 2:
                yield place


def _held_by(owner: Place, loaders: list[Place]) -> tuple[Place, str] | None:
    """The loader whose workers have copies of an object, and the argument by which they got it."""
    root = owner.root
    if root.value.op == "attr" and root.value.data in _HELD:
        asked = root.operand(0)
        behind = calls_behind(
            asked, lambda call: makes_loader(call) or bool(_of_project(call.operand(0).closed, "class"))
        )
        classes = _of_project(asked.closed, "inst", "self")
        for loader in loaders:
            made = _of_project(loader.operand(0).closed, "class")
            if loader in behind if behind else any(cls in each.mro for each in made for cls in classes):
                return loader, str(root.value.data)
    before = {(each.unit, each.number) for each in trail(root, frozenset()) if each.value.op == "call"}
    for loader in loaders if before else ():
        for argument, (position, _) in _HELD.items():
            given = loader.argument(argument, position)
            made_of = trail(given, frozenset()) if given is not None else []
            if any((each.unit, each.number) in before for each in made_of):
                return loader, argument
    return None


def _told(queries: Queries, place: Place, owner: Place) -> Iterator[tuple[ClassDef, set[_Kept]]]:
    """The classes of which the object may be one, each with the attributes that are set, in what it holds too."""
    classes = {o[1] for o in owner.closed.each if o[0] in ("inst", "self")}
    if place.value.op == "store_attr":
        yield from ((cls, {(cls, str(place.value.data))}) for cls in classes)
        return
    if not classes and owner.root.value.op == "attr":
        classes = {unit.cls for unit in queries.called(place.method) if unit.cls is not None}
    for cls in {each for found in classes for each in (found, *found.descendants())}:
        method = cls.find(place.method)
        units = queries.reached(queries.flow.units(iter([method] if method is not None else ())))
        yield cls, {row for unit in units for row in _attributes(queries, unit, "store_attr")}


def _reads(queries: Queries, cls: ClassDef, told: set[_Kept], argument: str) -> bool:
    """Whether what workers run of an object reads one of some attributes."""
    entries = [method for name in _HELD[argument][1] if (method := cls.find(name)) is not None]
    units = queries.reached(queries.flow.units(iter(entries))) if told else []
    read = {row for unit in units for row in _attributes(queries, unit, "attr")}
    found = (method for owner, name in read if (method := (cls if owner in cls.mro else owner).find(name)) is not None)
    computed = queries.flow.units(method for method in found if method.facts.is_property)
    read.update(row for unit in computed for row in _attributes(queries, unit, "attr"))
    return any(name == other and (a in b.mro or b in a.mro) for a, name in told for b, other in read)


def _attributes(queries: Queries, unit: Unit, op: str) -> Iterator[_Kept]:
    """The attributes of its own object that a method reads, or sets."""
    for each in queries.values(unit, op):
        if unit.cls is not None and unit.is_receiver(each.operand(0).root.number):
            yield unit.cls, str(each.value.data)


def _is_repeated(queries: Queries, rounds: Rounds, place: Place, loader: Place) -> bool:
    """Whether something is told in the rounds of a loop none of which makes the loader anew, also where it is not known
    whose method it is that is called there."""
    if rounds.is_in_loop(place, loader):
        return True
    method = place.unit.method
    calls = queries.called_in_program(frozenset([method.name])) if method is not None else ()
    return any(not queries.targets(call) and rounds.is_in_loop(call, loader) for call in calls)


def _report(place: Place, owner: Place, loader: Place) -> Finding:
    what = place.unit.text(place.value.at) + (" = …" if place.value.op == "store_attr" else "")
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{what}`{place.where} reaches the object of this process alone: the workers of the"
        " loader keep the copies that they got at first (`persistent_workers=True`)",
        help="share the state with the workers (a tensor with `share_memory_()`, `multiprocessing.Value`), pass it by"
        " the sampler with each index, or let the workers go after each epoch: `persistent_workers=False`",
        related=[Related(loader.unit.path, loader.at[0], "the loader is made here")],
        context=f"{place.unit.qualname}:{owner.text}",
    )


_DATA = """
import multiprocessing

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SETTINGS = {{"num_workers": 4, "persistent_workers": True}}


class Crops(Dataset):
    def __init__(self, images):
        self.images, self.epoch, self.shown = images, 0, 0
        self.shared = multiprocessing.Value("i", 0)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def set_shown(self, shown):
        self.shown = shown

    def share_epoch(self, epoch):
        self.shared.value = epoch

    def size(self):
        return 224 if self.epoch < 10 else 384

    def __getitem__(self, index):
        return self.images[index].resize(self.size(), self.shared.value)


class Mixed:
    def __init__(self):
        self._stage = 0

    def set_stage(self, stage):
        self._stage = stage

    @property
    def stage(self):
        return self._stage

    def __call__(self, samples):
        return samples if self.stage else torch.stack(samples)


def train(images, model, epochs, workers):
    dist.init_process_group()
    data = Crops(images)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 8, sampler=sampler, collate_fn=Mixed(), {options})
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        {told}
        for batch in loader:
            model(batch)
"""

_KEPT = "num_workers=4, persistent_workers=True"

INCORRECT = (
    _DATA.format(options=_KEPT, told="data.set_epoch(epoch)  # error: MP568"),
    _DATA.format(options="**SETTINGS", told="loader.dataset.set_epoch(epoch)  # error: MP568"),
    _DATA.format(
        options="num_workers=workers, persistent_workers=workers > 0",
        told="loader.collate_fn.set_stage(epoch)  # error: MP568",
    ),
    _DATA.format(options=_KEPT, told="loader.dataset.epoch = epoch  # error: MP568"),
    # of what the data set holds
    """
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset


class Source:
    def __init__(self, files):
        self.files, self.epoch = files, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(self.files[self.epoch :])


class Stream(IterableDataset):
    def __init__(self, files):
        self.source = Source(files)

    def set_epoch(self, epoch):
        self.source.set_epoch(epoch)

    def __iter__(self):
        for each in self.source:
            yield each


def train(files, model):
    dist.init_process_group()
    data = Stream(files)
    loader = DataLoader(data, num_workers=2, persistent_workers=True)
    for epoch in range(10):
        data.set_epoch(epoch)  # error: MP568
        for batch in loader:
            model(batch)
""",
    # a loader of the project that hands it on, known by its class alone
    """
import torch.distributed as dist
from torch.utils import data


class Loader(data.DataLoader):
    def set_epoch(self, epoch):
        self.collate_fn.set_epoch(epoch)  # error: MP568


class Collate:
    def set_epoch(self, epoch):
        self.epoch = epoch

    def __call__(self, samples):
        return samples[: self.epoch]


def distributed(loader):
    return Loader(
        loader.dataset,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        persistent_workers=loader.num_workers > 0,
    )


def train(config, model):
    dist.init_process_group()
    loader = distributed(config.loader)
    for epoch in range(config.epochs):
        config.loader.set_epoch(epoch)
        for batch in loader:
            model(batch)
""",
)

CORRECT = (
    _DATA.format(options="num_workers=4", told="data.set_epoch(epoch)"),
    _DATA.format(options="num_workers=0, persistent_workers=False", told="data.set_epoch(epoch)"),
    _DATA.format(options=_KEPT, told="data.share_epoch(epoch)"),
    # nothing that the workers run reads it
    _DATA.format(options=_KEPT, told="data.set_shown(epoch)"),
    # told once, before there are copies
    _DATA.format(options=_KEPT, told="pass").replace("    for epoch in", "    data.set_epoch(3)\n    for epoch in"),
    # each round makes its loader
    _DATA.format(
        options=_KEPT, told=f"data.set_epoch(epoch)\n        loader = DataLoader(data, 8, sampler=sampler, {_KEPT})"
    ).replace(f"collate_fn=Mixed(), {_KEPT}", "collate_fn=Mixed()"),
    _DATA.format(options=_KEPT, told="data.set_epoch(epoch)\n        loader._iterator = None"),
)

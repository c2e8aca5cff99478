"""A schedule that Accelerate steps once for each process, and whose length counts the steps of one process.

What it does
    Looks for a scheduler that is given to `accelerator.prepare`, and whose number of steps (`total_steps=`, `T_max=`,
    `num_training_steps=`, …) is made of the length of a loader after that was prepared, or of the very number of steps
    at which the training loop ends (`if step >= args.max_train_steps: break`), with no number of processes in it.
    Silent where the accelerator is made with `split_batches` or `step_scheduler_with_optimizer=False`, and where the
    schedule is a constant one.

Why is this bad
    A prepared loader has a share of the batches, one of as many as there are processes, while a prepared scheduler
    takes that many steps each time it is asked for one. The learning rate is at its end after that part of the
    training, and stays there. On one process nothing shows.

References
    https://huggingface.co/docs/accelerate/concept_guides/performance
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from validator.analysis.options.namespaces import Namespaces
from validator.domains.placement import certainly
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import calls_behind, passed_from, returned, sources
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.values.shares import counts_ranks
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP430", "schedule-of-one-share", "warning", "1.0", tokens=("accelerat",), solves=True)

_PREPARING = ("accelerate.Accelerator.prepare", "accelerate.Accelerator.prepare_scheduler")
# Parameters of PyTorch's schedulers, and of those of transformers, that count the steps of the whole training.
_LENGTHS = frozenset({"total_steps", "T_max", "num_training_steps", "steps_per_epoch", "total_iters"})
_KINDS = ("name", "lr_scheduler_type")  # what transformers and diffusers call the kind of a schedule
_OTHERWISE = {"split_batches": False, "step_scheduler_with_optimizer": True}


def check_project(project: Project) -> Iterator[Finding]:
    queries, namespaces = project.analysis(Queries), project.analysis(Namespaces)
    said: set[Place] = set()
    for call in queries.calls(*_PREPARING):
        if is_test(call.unit.path) or _is_stepped_otherwise(call):
            continue
        for number in call.value.args[1:]:
            scheduler = call.value_at(number).root
            found = next(_too_short(call, scheduler, namespaces), None) if scheduler not in said else None
            if found is not None:
                said.add(scheduler)
                yield found


def _too_short(call: Place, scheduler: Place, namespaces: Namespaces) -> Iterator[Finding]:
    """What is wrong with the number of steps of a scheduler that a call prepares."""
    made = [scheduler, *(returned(scheduler) or ())] if scheduler.value.op == "call" else []
    for each in made:
        for length in _lengths(each.root):
            steps = Steps(length, scheduler)
            if steps.count_processes():
                continue
            if not _is_constant(each.root, namespaces) and (bound := steps.bound(call)) is not None:
                told = "is the number of steps at which the training ends"
                yield _report(call, steps.passed, told, "multiply", bound)
            elif (loader := steps.own_share()) is not None:
                told = f"counts the batches of one process (`len({loader.text})` after `prepare`)"
                yield _report(call, steps.passed, told, "count before the loader is prepared, or multiply")


def _is_stepped_otherwise(call: Place) -> bool:
    """Whether the accelerator is not known to be made with what Accelerate does by itself."""
    made = calls_behind(call.receiver, _makes_accelerator) if call.receiver is not None else None
    return not made or any(
        _may_set_otherwise(name, each.value_at(number))
        for each in made
        for name, number in zip(each.value.data.names, each.value.args[1:], strict=True)
    )


def _may_set_otherwise(name: str | None, given: Place) -> bool:
    """Whether an argument may say how often a scheduler is stepped, or how batches are shared."""
    if name == "**":
        kinds = list(given.closed.each)
        known = bool(kinds) and all(o[0] == "dict" and o[2] is None for o in kinds)
        return not known or any(key in _OTHERWISE for o in kinds for key, _ in o[1])
    if name == "dataloader_config":
        made = [given.root] if given.root.value.op == "call" else calls_behind(given, _configures_loaders)
        return not made or any(
            not _configures_loaders(each) or _OTHERWISE.keys() & set(each.value.data.names) for each in made
        )
    return name == "*" or name in _OTHERWISE and not given.val.is_const(_OTHERWISE[name])


def _configures_loaders(call: Place) -> bool:
    return "**" not in call.value.data.names and call.method == "DataLoaderConfiguration"


def _makes_accelerator(call: Place) -> bool:
    named = call.flow.models.named
    return any(o[0] == "ext" and named(o[1]) == "accelerate.Accelerator" for o in call.operand(0).closed.each)


def _lengths(scheduler: Place) -> Iterator[Place]:
    """The arguments of the call that makes a scheduler which say how many steps it has."""
    if scheduler.value.op == "call" and not _stands_for_deepspeed(scheduler):
        names = zip(scheduler.value.data.names, scheduler.value.args[1:], strict=True)
        yield from (scheduler.value_at(number) for name, number in names if name in _LENGTHS)


def _stands_for_deepspeed(call: Place) -> bool:
    """Whether a call makes what stands for the scheduler of a DeepSpeed configuration: the engine steps that."""
    named = call.flow.models.named
    return any(
        o[0] == "ext" and named(o[1]).rpartition(".")[2] == "DummyScheduler" for o in call.operand(0).closed.each
    )


class Steps:
    """A number of steps, and the call of a function through which it may have been passed."""

    def __init__(self, length: Place, call: Place) -> None:
        self.length = length
        self.call = call

    def _walk(self, before: Callable[[Place], Iterable[Place]]) -> Iterator[Place]:
        queue, seen = [self.length.root], {self.length.root}
        for place in queue:
            yield place
            fresh = dict.fromkeys(each.root for each in before(place) if each.root not in seen)
            seen.update(fresh)
            queue += fresh

    def _sources(self, place: Place) -> list[Place]:
        passed = passed_from(self.call, place) if place.value.op == "param" else place
        return [passed] if passed != place else sources(place) or []

    def _made_of(self, place: Place) -> list[Place]:
        """All of which a number is made, one step before."""
        if place.value.op == "call" and place.method == "len" and len(place.value.args) == 2:
            return []
        return [*self._sources(place), *(place.value_at(number) for number in place.value.args if number >= 0)]

    def _multiplied(self, place: Place) -> list[Place]:
        """What a number may be, or of which it is a multiple, one step before."""
        if place.value.op == "binary" and place.value.data == "Mult":
            return [place.operand(0), place.operand(1)]
        return self._sources(place) if place.value.op in ("param", "free", "phi", "call") else []

    @property
    def passed(self) -> Place:
        """The number, as it is written where the scheduler is made."""
        here = (each for each in self._walk(self._multiplied) if each.unit is self.call.unit)
        return self.length if self.length.unit is self.call.unit else next(here, self.length)

    def count_processes(self) -> bool:
        """Whether a number of processes is part of the number."""
        worlds = self.length.flow.models.likely["worlds"]
        return any(counts_ranks(each) or each.hint in worlds for each in self._walk(self._made_of))

    def own_share(self) -> Place | None:
        """The prepared loader by whose length the steps are counted."""
        counted = (each for each in self._walk(self._made_of) if each.value.op == "call" and each.method == "len")
        loaders = (each.operand(1) for each in counted if len(each.value.args) == 2)
        return next((each for each in loaders if certainly(each.closed.state, "prepared")), None)

    def bound(self, prepare: Place) -> Place | None:
        """The setting that the number is, or a multiple of it, at which a loop of the training function ends, too."""
        ends = {end.value.data: end for end in _ends(prepare) if end.value.op == "attr"}
        settings = (each for each in self._walk(self._multiplied) if each.value.op == "attr")
        return next((ends[each.value.data] for each in settings if each.value.data in ends), None)


def _ends(call: Place) -> Iterator[Place]:
    """The numbers at which the counters of a function are held to end something."""
    for number, value in enumerate(call.unit.code.values):
        if value.op == "compare" and value.data in ("GtE", "Gt", "Eq"):
            counter, bound = call.value_at(value.args[0]), call.value_at(value.args[1])
            test = call.value_at(number)
            if any(block.end[:2] == ("branch", test.number) for block in call.unit.code.blocks) and _is_counter(
                counter
            ):
                yield bound.root


def _is_counter(place: Place) -> bool:
    """Whether a variable is counted up by one."""
    queue, seen = [place], {place}
    for each in queue:
        if each.value.op == "binary" and each.value.data == "Add" and each.operand(1).val.is_const(1):
            return True
        fresh = {each.value_at(n) for n in each.value.args} - seen if each.value.op in ("phi", "mut") else set()
        seen |= fresh
        queue += fresh
    return False


def _is_constant(scheduler: Place, namespaces: Namespaces) -> bool:
    """Whether the kind of schedule that the program asks for, if nobody says otherwise, is one that stays where it
    is."""
    kinds = [kind for name in _KINDS if (kind := scheduler.argument(name, 0)) is not None]
    texts = {o[2] for kind in kinds for o in kind.closed.each if o[:2] == ("const", "str")}
    for kind in (each.root for each in kinds if each.root.value.op == "attr"):
        held = ((each, str(kind.value.data)) for each in namespaces.held(kind.operand(0)))
        options = (each.parser.option(each.below(name)) for each, name in held)
        texts |= {option.default for option in options if option is not None and isinstance(option.default, str)}
    return bool(texts) and all(text.startswith("constant") for text in texts)


def _report(call: Place, length: Place, told: str, advice: str, bound: Place | None = None) -> Finding:
    ends = [Related(bound.unit.path, bound.at[0], "the training ends here")] if bound is not None else []
    return RULE.finding(
        length.unit.path,
        length.at,
        f"`{length.text}`{length.where} {told}, and the scheduler that is prepared takes a step for every process each"
        " time",
        help=f"{advice} by `accelerator.num_processes`",
        related=[Related(call.unit.path, call.at[0], "the scheduler is prepared here"), *ends],
        context=f"{length.unit.qualname}:{length.text}",
    )


_TRAINING = """\
import torch
from accelerate import Accelerator


def main(model, data, epochs):
    accelerator = Accelerator({options})
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters())
    {before}
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    {after}
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
    schedule = accelerator.prepare(schedule)
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            accelerator.backward(model(batch).mean())
            optimizer.step()
            schedule.step()
"""

_COUNTED = "steps = epochs * len(loader)"


def _training(before: str = "print(data)", after: str = _COUNTED, options: str = "") -> str:
    return _TRAINING.format(before=before, after=after, options=options)


_BOUNDED = """\
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader
from transformers import get_scheduler


def schedule_of(args, optimizer, count):
    warmup = int(count * args.warmup_ratio)
    return get_scheduler({kind}, optimizer, num_warmup_steps=warmup, num_training_steps=count)


def main(args, model, optimizer, data):
    logging = {{}}
    if args.track:
        logging["log_with"] = args.tracker
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True), **logging)
    loader = DataLoader(data, batch_size=4, shuffle=True)
    counted = args.max_steps is None
    if counted:
        args.max_steps = args.epochs * len(loader)
    scheduler = schedule_of(args, optimizer, {steps}){mark}
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    if counted:
        args.max_steps = args.epochs * len(loader)
    step = 0
    while True:
        for batch in loader:
            accelerator.backward(model(**batch).loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step >= args.max_steps:
                return
"""
_SCALED = "args.max_steps if counted else args.max_steps * accelerator.num_processes"


def _bounded(steps: str, kind: str = "args.kind", mark: str = "") -> str:
    return _BOUNDED.format(steps=steps, kind=kind, mark=mark)


INCORRECT = (
    _training(after=f"{_COUNTED}  # error: MP430"),
    _bounded("args.max_steps", mark="  # error: MP430"),
)

CORRECT = (
    _training(before=_COUNTED, after="print(steps)"),
    _training(after=f"{_COUNTED} * accelerator.num_processes"),
    _training(options="step_scheduler_with_optimizer=False"),
    _bounded(_SCALED),
    _bounded("args.max_steps", kind='"constant_with_warmup"'),
)

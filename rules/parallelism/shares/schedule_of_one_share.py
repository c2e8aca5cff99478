"""A schedule that Accelerate steps once for each process, and whose length counts the steps of one process.

What it does
    Looks for a scheduler that is given to `accelerator.prepare`, and whose number of steps (`total_steps=`, `T_max=`,
    `num_training_steps=`, …) is made of the length of a loader after that was prepared, with no number of processes in
    it. Silent where the accelerator is made with `split_batches` or `step_scheduler_with_optimizer=False`.

Why is this bad
    A prepared loader has a share of the batches, one of as many as there are processes, while a prepared scheduler
    takes that many steps each time it is asked for one. The learning rate is at its end after that part of the
    training, and stays there. On one process nothing shows.

References
    https://huggingface.co/docs/accelerate/concept_guides/performance
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.domains.placement import certainly
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import calls_behind, sources
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.values.shares import counts_ranks
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP430", "schedule-of-one-share", "warning", "1.0", tokens=("accelerat",), solves=True)

_PREPARING = ("accelerate.Accelerator.prepare", "accelerate.Accelerator.prepare_scheduler")
# Parameters of PyTorch's schedulers, and of those of transformers, that count the steps of the whole training.
_LENGTHS = frozenset({"total_steps", "T_max", "num_training_steps", "steps_per_epoch", "total_iters"})
_OTHERWISE = {"split_batches": False, "step_scheduler_with_optimizer": True, "dataloader_config": None}


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    said: set[Place] = set()
    for call in queries.calls(*_PREPARING):
        if is_test(call.unit.path) or _is_stepped_otherwise(call):
            continue
        for number in call.value.args[1:]:
            scheduler = call.value_at(number).root
            for length in _lengths(scheduler):
                loader = _own_share(length)
                if loader is not None and scheduler not in said:
                    said.add(scheduler)
                    yield _report(call, length, loader)


def _is_stepped_otherwise(call: Place) -> bool:
    """Whether the accelerator is not known to be made with what Accelerate does by itself."""
    made = calls_behind(call.receiver, _makes_accelerator) if call.receiver is not None else None
    return not made or any(
        name in ("*", "**") or name in _OTHERWISE and not each.value_at(number).val.is_const(_OTHERWISE[name])
        for each in made
        for name, number in zip(each.value.data.names, each.value.args[1:], strict=True)
    )


def _makes_accelerator(call: Place) -> bool:
    named = call.flow.models.named
    return any(o[0] == "ext" and named(o[1]) == "accelerate.Accelerator" for o in call.operand(0).closed.each)


def _lengths(scheduler: Place) -> Iterator[Place]:
    """The arguments of the call that makes a scheduler which say how many steps it has."""
    if scheduler.value.op == "call":
        names = zip(scheduler.value.data.names, scheduler.value.args[1:], strict=True)
        yield from (scheduler.value_at(number) for name, number in names if name in _LENGTHS)


def _own_share(length: Place) -> Place | None:
    """The prepared loader by whose length a number of steps is counted; None where a number of processes is in it."""
    found: Place | None = None
    queue, seen = [length.root], {length.root}
    for place in queue:
        if counts_ranks(place) or place.hint in place.flow.models.likely["worlds"]:
            return None
        if place.value.op == "call" and place.method == "len" and len(place.value.args) == 2:
            loader = place.operand(1)
            found = loader if certainly(loader.closed.state, "prepared") else found
            continue
        before = [*(sources(place) or ()), *(place.value_at(number) for number in place.value.args if number >= 0)]
        fresh = dict.fromkeys(each.root for each in before if each.root not in seen)
        seen.update(fresh)
        queue += fresh
    return found


def _report(call: Place, length: Place, loader: Place) -> Finding:
    return RULE.finding(
        length.unit.path,
        length.at,
        f"`{length.text}`{length.where} counts the batches of one process (`len({loader.text})` after `prepare`), and"
        " the scheduler that is prepared takes a step for every process each time",
        help="count before the loader is prepared, or multiply by `accelerator.num_processes`",
        related=[Related(call.unit.path, call.at[0], "the scheduler is prepared here")],
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


INCORRECT = (_training(after=f"{_COUNTED}  # error: MP430"),)

CORRECT = (
    _training(before=_COUNTED, after="print(steps)"),
    _training(after=f"{_COUNTED} * accelerator.num_processes"),
    _training(options="step_scheduler_with_optimizer=False"),
)

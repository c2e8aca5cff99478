"""A schedule that is counted in steps and that Lightning steps once an epoch.

What it does
    Reports schedules that `configure_optimizers` of a module of Lightning gives back without `"interval": "step"`,
    where their length counts the steps of the training: they are made of `trainer.estimated_stepping_batches`, directly
    or in the function of a `LambdaLR`, or by `get_…_schedule_with_warmup` of transformers. Silent where a method of the
    module steps schedules itself (`self.lr_schedulers()`).

Why is this bad
    Lightning steps a schedule at the end of each epoch, if nothing else is asked for: of a warm-up of a thousand steps
    a run of ten epochs sees ten. The learning rate hardly moves, and nothing fails.

References
    https://lightning.ai/docs/pytorch/stable/common/lightning_module.html#configure-optimizers
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP434", "schedule-by-epoch", "warning", stable_since="0.6.0", tokens=("configure_optimizers",))

_MODULE = "lightning.LightningModule"
_STEPS = "estimated_stepping_batches"


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for cls in project.classes():
        method = cls.methods.get("configure_optimizers")
        unit = queries.flow.unit_of(method) if method is not None else None
        of_lightning = any(queries.flow.models.named(base) == _MODULE for base in cls.external_bases)
        if unit is None or not of_lightning or is_aside(unit.path) or _steps_itself(queries, unit):
            continue
        for number in unit.code.returned:
            for schedule in _by_epoch(Place(queries.flow, unit, number)):
                if _counts_steps(queries, schedule):
                    yield _report(schedule)


def _steps_itself(queries: Queries, unit: Unit) -> bool:
    """Whether the module asks for its schedules, to step them when it likes."""
    methods = unit.cls.every_method() if unit.cls is not None else ()
    return any(call.method == "lr_schedulers" for each in methods for call in each.facts.calls)


def _by_epoch(given: Place) -> Iterator[Place]:
    """The schedules in what is given back that are stepped at the end of each epoch."""
    root = given.root
    if root.value.op == "dict":
        schedule = root.entries.get("lr_scheduler")
        yield from _of_entry(schedule) if schedule is not None else ()
    elif root.value.op == "tuple" and len(root.value.args) == 2:
        schedules = root.operand(1).root
        for i in range(len(schedules.value.args)) if schedules.value.op in ("list", "tuple") else ():
            yield from _of_entry(schedules.operand(i))


def _of_entry(entry: Place) -> Iterator[Place]:
    root = entry.root
    if root.value.op != "dict":
        yield root
        return
    interval, schedule = root.entries.get("interval"), root.entries.get("scheduler")
    if schedule is not None and (interval is None or interval.closed.is_const("epoch")):
        yield schedule.root


def _counts_steps(queries: Queries, schedule: Place) -> bool:
    """Whether the length of a schedule is a number of steps."""
    if schedule.value.op != "call":
        return False
    for o in schedule.operand(0).closed.each:
        name = str(o[1]).rpartition(".")[2] if o[0] == "ext" else ""
        if name.startswith("get_") and name.endswith("_with_warmup"):
            return True
    for number in schedule.value.args[1:]:
        given = schedule.value_at(number)
        if any(part.value.op == "attr" and part.value.data == _STEPS for part in given.parts):
            return True
        units = [o[1] for o in given.closed.each if o[0] in ("unit", "bound")]
        if any(unit in queries.mentioning(_STEPS) for unit in units):
            return True
    return False


def _report(schedule: Place) -> Finding:
    return RULE.finding(
        schedule.unit.path,
        schedule.at,
        f"`{schedule.text}`{schedule.where} is counted in steps, and Lightning steps it once an epoch",
        help='give back `{"scheduler": …, "interval": "step"}`',
        context=f"{schedule.unit.qualname}:{schedule.text}",
    )


_NET = """
import lightning.pytorch as pl
import torch
from transformers import get_cosine_schedule_with_warmup

class Net(pl.LightningModule):
    def _factor(self, step):
        return step / int(self.trainer.estimated_stepping_batches)

    def training_step(self, batch, index):
        return self.net(batch)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        schedule = {schedule}{mark}
        return {given}
"""
_LAMBDA = "torch.optim.lr_scheduler.LambdaLR(optimizer, self._factor)"
_MARK = "  # error: MP434"

INCORRECT = (
    _NET.replace("{schedule}", _LAMBDA)
    .replace("{given}", '{"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule}}')
    .replace("{mark}", _MARK),
    _NET.replace("{schedule}", "get_cosine_schedule_with_warmup(optimizer, 100, 1000)")
    .replace("{given}", "[optimizer], [schedule]")
    .replace("{mark}", _MARK),
    _NET.replace(
        "{schedule}",
        "torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=self.trainer.estimated_stepping_batches)",
    )
    .replace("{given}", '{"optimizer": optimizer, "lr_scheduler": schedule}')
    .replace("{mark}", _MARK),
)

CORRECT = (
    _NET.replace("{schedule}", _LAMBDA)
    .replace("{given}", '[optimizer], [{"scheduler": schedule, "interval": "step"}]')
    .replace("{mark}", ""),
    _NET.replace("{schedule}", "torch.optim.lr_scheduler.StepLR(optimizer, 10)")
    .replace("{given}", "[optimizer], [schedule]")
    .replace("{mark}", ""),
)

"""An override that refuses the calls which the library itself makes.

What it does
    Holds the methods of classes that inherit from transformers' and trl's trainers and callbacks against the calls that
    the library makes of them, release by release. An error where each release that the requirements beside the code
    admit makes only calls that the override refuses; a warning where the newest one does, or where it makes some that
    are refused and others that are taken; a note where nothing is required, and where settings decide whether the call
    is made. Silent where the methods that make the call are overridden too, or all that come to them.

Why is this bad
    `TypeError` in the first step, or at the first evaluation: since transformers 4.46 `Trainer` passes
    `num_items_in_batch` to `compute_loss`, and callbacks get everything by keyword, each release something more.

References
    https://huggingface.co/docs/transformers/main_classes/trainer
    https://huggingface.co/docs/transformers/main_classes/callback
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.binding import Misfit, keeps_signature, misfit, signature
from validator.analysis.interfaces.library_calls import Refused, refused
from validator.facts.model import Argument, Call
from validator.finding import Finding
from validator.models.signatures import PACKAGES, HookCall, Library, Version, library
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP151", "override-refuses-library", "error", stable_since="1.0", tokens=PACKAGES)


def check_project(project: Project) -> Iterator[Finding]:
    for cls in project.classes():
        above = [(table, base) for base in cls.external_bases if (table := library(base.partition(".")[0])) is not None]
        if len(above) == 1:  # of several it is not known which one's loop is run
            (table, base), *_ = above
            for method in cls.methods.values():
                if _is_plain(method):
                    yield from _check(project, cls, method, table, base.rpartition(".")[2])


def _is_plain(method: Method) -> bool:
    facts = method.facts
    return not (facts.is_static or facts.is_classmethod or facts.is_property) and keeps_signature(method)


def _check(project: Project, cls: ClassDef, method: Method, table: Library, base: str) -> Iterator[Finding]:
    rows = [(each, misfit(method, _call(method, each))) for each in table.hook_calls(base, method.name)]
    runs = _Runs(project, cls, table, base)
    made = [(each, why) for each, why in rows if all(map(runs.is_run, each.callers))]
    if not any(why is not None for _, why in made):
        return

    def refuses(release: Version) -> Misfit | None:
        return next((why for each, why in made if why is not None and each.is_in(release)), None)

    found = refused(project, method.module, table, table.releases, refuses)
    if found is not None:
        weaker = found.severity == "error" and not _is_sure(made, found.newest)
        found = found._replace(severity="warning") if weaker else found
        always = any(why is not None and (not each.callers or each.callers - each.optional) for each, why in made)
        yield _report(cls, method, table, base, found if always else found._replace(severity="note"))


def _is_sure(made: list[tuple[HookCall, Misfit | None]], release: Version) -> bool:
    """Whether some method of the library makes only calls that are refused, whatever the settings are."""
    rows = [(each, why, caller) for each, why in made if each.is_in(release) for caller in each.callers or {""}]
    callers = {caller for each, _, caller in rows if caller not in each.optional}
    return any(all(why is not None for _, why, name in rows if name == caller) for caller in callers)


class _Runs:
    """Which methods of a library are still run for a class: a class that has its own way of making a call in one place
    is taken to have it everywhere."""

    def __init__(self, project: Project, cls: ClassDef, table: Library, base: str) -> None:
        self.project, self.cls, self.table, self.base = project, cls, table, base
        self._known: dict[str, bool] = {}

    def is_run(self, name: str) -> bool:
        """Whether a library's method is run, though classes of the project may override it, or all of those that run
        it; what the project calls itself is."""
        known = self._known.get(name)
        if known is None:
            self._known[name] = True  # a circle
            known = all(_runs_above(each.methods[name]) for each in self.cls.mro if name in each.methods)
            known = self._known[name] = known and (self._is_called(name) or any(map(self.is_run, self._callers(name))))
        return known

    def _is_called(self, name: str) -> bool:
        """Whether the project calls a method, or the library itself does not, so that others do."""
        return not self._callers(name) or any(True for _ in self.project.calls(name))

    def _callers(self, name: str) -> set[str]:
        return {caller for row in self.table.hook_calls(self.base, name) for caller in row.callers}


def _runs_above(method: Method) -> bool:
    """Whether a method calls the one that it overrides."""
    return any(call.method == method.name and call.receiver != "self" for call in method.facts.calls)


def _call(method: Method, shape: HookCall) -> Call:
    """The call that the library makes, as if it stood at the method."""
    at = method.facts.name_at
    given = [Argument(None, "path", "…", at)] * shape.positional
    given += [Argument(name, "path", name, at) for name in shape.keywords]
    return Call(f"self.{method.name}", tuple(given), "value", (), at, at)


def _report(cls: ClassDef, method: Method, table: Library, base: str, found: Refused) -> Finding:
    lacking = f"`{found.misfit.name}`" if found.misfit.name else "what is passed"
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"`{cls.name}.{signature(method)}` {found.misfit.message}, as `{base}` of {table.distribution}"
        f" {found.releases} calls it: TypeError",
        help=f"give {lacking} a default"
        if found.misfit.kind == "missing"
        else f"take {lacking}, best by `**kwargs`, which later releases need too",
        context=f"{method.qualname}:{found.misfit.kind}:{found.misfit.name}",
        severity=found.severity,
    )


INCORRECT = (
    """\
# file: requirements.txt
transformers>=4.46
# file: trainer.py
from transformers import Trainer, TrainerCallback


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):  # error: MP151
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


class Report(TrainerCallback):
    def on_step_end(self, args, state, control):  # error: MP151
        print(state.global_step)

    def on_evaluate(self, args, state, control, tokenizer, **kwargs):  # error: MP151
        print(tokenizer.vocab_size)
""",
)

CORRECT = (
    """\
# file: requirements.txt
transformers>=4.40,<4.46
# file: trainer.py
from transformers import Trainer


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss
""",
    """\
# file: requirements.txt
transformers>=4.46
# file: trainer.py
from transformers import Trainer, TrainerCallback


class WeightedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


class OwnLoop(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        return self.compute_loss(model, inputs)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        return self.compute_loss(model, inputs), None, None

    def compute_loss(self, model, inputs):
        return model(**inputs).loss


class Report(TrainerCallback):
    def on_step_end(self, args, state, control, model=None, **kwargs):
        print(state.global_step, model)
""",
    # the loop is the project's own: the library's, and what only that comes to, is not run
    """\
# file: requirements.txt
transformers>=5.3
# file: trainer.py
from transformers import Trainer


class OwnTrainer(Trainer):
    def create_optimizer(self):
        self.optimizer = self.args.make(self.model)
        return self.optimizer

    def create_scheduler(self, num_training_steps, optimizer):
        self.lr_scheduler = self.args.schedule(optimizer, num_training_steps)

    def _inner_training_loop(self, batch_size=None, args=None, resume_from_checkpoint=None, trial=None, **kwargs):
        self.create_scheduler(args.max_steps, self.create_optimizer())
        for batch in self.get_train_dataloader():
            self.training_step(self.model, batch, len(batch))
""",
)

"""A measure by which the best model is kept, and that nothing measures.

What it does
    Reports `ModelCheckpoint` and `EarlyStopping` of Lightning that watch a name which is no text of the project's code
    and which code puts together nowhere (`self.log(f"{stage}/loss", …)`), where modules of the project log something;
    and `metric_for_best_model` of `TrainingArguments` (in code, and on command lines of programs whose options are its
    fields) that is neither the loss nor a key of what `compute_metrics` gives, where all Trainers of the project are
    transformers' own and all keys are known. Silent where the Trainer does not evaluate, where metrics of a library
    name themselves (`MetricCollection`), and in tests.

Why is this bad
    Lightning raises MisconfigurationException, the Trainer KeyError: at the end of the first evaluation, when the first
    epoch is done.

References
    https://lightning.ai/docs/pytorch/stable/common/checkpointing_intermediate.html
    https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.metric_for_best_model
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.monitors import callback_of, monitored
from validator.analysis.options.training_arguments import Said, TrainingArguments
from validator.analysis.options.written_texts import WrittenTexts
from validator.errors import nearest
from validator.finding import Finding
from validator.flow.literals import UNKNOWN
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.values import NONE_OBJ
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP330", "monitored-never-logged", "warning", stable_since="1.1",
    tokens=("ModelCheckpoint", "EarlyStopping", "metric_for_best_model"), languages=("python", "shell"), solves=True,
)  # fmt: skip

_LOGGING = ("log", "log_dict")
_MODULE = "lightning.LightningModule"
_SUFFIXES = ("_step", "_epoch")  # which Lightning adds to what is logged at both times
_TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
_MEASURED = frozenset({
    "loss", "runtime", "samples_per_second", "steps_per_second", "epoch", "jit_compilation_time",
    "model_preparation_time",
})  # fmt: skip
_PREFIX = "eval_"


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    yield from _of_callbacks(queries)
    yield from _of_trainers(queries)


def _of_callbacks(queries: Queries) -> Iterator[Finding]:
    """What callbacks of Lightning watch in vain."""
    watching = [(call, name) for call, name in monitored(queries) if not is_aside(call.unit.path)]
    if not watching or not _logs_itself(queries):
        return
    texts = WrittenTexts(queries.flow)
    asked = {monitor.root for call, _ in watching if (monitor := _monitor(queries, call)) is not None}
    for call, watched in watching:
        plain = watched.partition("/dataloader_idx_")[0]
        names = {watched, plain, *(plain.removesuffix(suffix) for suffix in _SUFFIXES)}
        if not any(texts.may_write(name, but=asked) for name in names):
            yield RULE.finding(
                call.unit.path,
                call.at,
                f"`{call.method}`{call.where} watches {watched!r}, which nothing in the project logs",
                help=f"watch a name that is logged{nearest(watched, sorted(texts.plain(but=asked)))}",
                context=f"{call.unit.qualname}:{watched}",
            )


def _monitor(queries: Queries, call: Place) -> Place | None:
    return call.argument("monitor", callback_of(queries, call).monitor)


def _logs_itself(queries: Queries) -> bool:
    """Whether modules of the project log something, and nothing that names itself is logged: all of them inherit from
    Lightning's own class."""
    named = queries.flow.models.named
    bases = {named(base) for cls in queries.project.classes() for base in cls.external_bases}
    own = _MODULE in bases and not any(base.endswith("LightningModule") and base != _MODULE for base in bases)
    logging = any(call.unit.cls is not None for call in queries.named_anywhere(*_LOGGING))
    return own and logging and not any(True for _ in queries.named_anywhere("MetricCollection"))


def _of_trainers(queries: Queries) -> Iterator[Finding]:
    """What the Trainer of transformers takes for the best model, and does not measure."""
    said = [each for each in queries.project.analysis(TrainingArguments).all if _is_watched(each)]
    keys = _keys(queries) if said else None
    for each in said if keys is not None else ():
        watched = each.get("metric_for_best_model")
        name = watched.removeprefix(_PREFIX)
        if keys is not None and not any(name == key or name.endswith(f"_{key}") for key in keys):
            yield RULE.finding(
                each.path,
                each.place("metric_for_best_model"),
                f"`{each.name}` keeps the best model by {watched!r}, and its evaluation gives no such key: KeyError",
                help=f"name a key that `compute_metrics` gives, or the loss{nearest(name, sorted(keys))}",
                context=f"{each.name}:{watched}",
            )


def _is_watched(said: Said) -> bool:
    evaluates = said.get("eval_strategy", "evaluation_strategy", default="no")
    return isinstance(said.get("metric_for_best_model"), str) and evaluates not in ("no", UNKNOWN)


def _keys(queries: Queries) -> frozenset[str] | None:
    """The names, without their prefix, of all that the Trainers of a project measure; None where that is not known."""
    stored = any(queries.flow.stores.writers("compute_metrics"))
    calls = [call for call in queries.calls_anywhere(*_TRAINERS) if not is_aside(call.unit.path)]
    below = any(base in _TRAINERS for cls in queries.project.classes() for base in cls.external_bases)
    if stored or below or not calls:
        return None
    found = set(_MEASURED)
    for call in calls:
        given = call.argument("compute_metrics")
        if "*" in call.value.data.names or "**" in call.value.data.names:
            return None
        keys = _given(queries, given) if given is not None else frozenset()
        if keys is None:
            return None
        found |= {key.removeprefix(_PREFIX) for key in keys}
    return frozenset(found)


def _given(queries: Queries, function: Place) -> frozenset[str] | None:
    """The keys of the dictionaries that a function gives back."""
    found: set[str] = set()
    for o in function.closed.objs - {NONE_OBJ}:
        units = [o[1]] if o[0] == "unit" else []
        keys = [_of_unit(queries, unit) for unit in units]
        if not keys or keys[0] is None:
            return None
        found |= keys[0]
    return frozenset(found)


def _of_unit(queries: Queries, unit: Unit) -> set[str] | None:
    found: set[str] = set()
    for number in unit.code.returned:
        objs = Place(queries.flow, unit, number).closed.objs
        if not objs or any(o[0] != "dict" or o[2] is not None for o in objs):
            return None
        found |= {str(key) for o in objs for key, _ in o[1]}
    return found


_FIT = """
import lightning as L
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

class Policy(L.LightningModule):
    def training_step(self, batch, number):
        loss = self(batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, number):
        self.log_measures("val", self(batch))

    def log_measures(self, stage, loss):
        self.log_dict({{f"{{stage}}/loss": loss, stage + "_reward": -loss}})

def main(data):
    keep = {callback}
    L.Trainer(callbacks=[keep]).fit(Policy(), data)
"""

_TRAIN = """
from transformers import Trainer, TrainingArguments

def measure(prediction):
    right = (prediction.predictions == prediction.label_ids).mean()
    return {{"accuracy": right, "f1_macro": right}}

def main(model, data):
    args = TrainingArguments(
        "out",
        eval_strategy="epoch",
        metric_for_best_model={metric},{mark}
    )
    Trainer(model=model, args=args, train_dataset=data, eval_dataset=data, {more}).train()
"""

INCORRECT = (
    _FIT.format(callback='ModelCheckpoint(monitor="val_loss")  # error: MP330'),
    _FIT.format(callback='EarlyStopping("val/reward", patience=3)  # error: MP330'),
    _TRAIN.format(metric='"f1"', mark="  # error: MP330", more="compute_metrics=measure"),
    _TRAIN.format(metric='"eval_accuracy"', mark="  # error: MP330", more=""),
)

CORRECT = (
    _FIT.format(callback='ModelCheckpoint(monitor="val/loss")'),
    _FIT.format(callback='ModelCheckpoint(monitor="train_loss_epoch")'),
    _FIT.format(callback='EarlyStopping("val_reward", mode="max")'),
    _TRAIN.format(metric='"eval_f1_macro"', mark="", more="compute_metrics=measure"),
    _TRAIN.format(metric='"loss"', mark="", more=""),
    _TRAIN.format(metric='"f1"', mark="", more="compute_metrics=lambda p: score(p)"),
    _TRAIN.format(metric='"f1"', mark="", more="**options"),
)

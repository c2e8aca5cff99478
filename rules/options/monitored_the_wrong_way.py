"""A measure that is better when it is larger, of which the smallest is kept.

What it does
    Reports `ModelCheckpoint` and `EarlyStopping` of Lightning that watch a measure whose name says that more is better
    (`val_acc`, `f1`, `auc`, `bleu`), without `mode="max"`: by default both look for the smallest; and `mode="max"` for
    a loss. Of `TrainingArguments` of transformers, and command lines that set them, it reports `metric_for_best_model`
    with the wrong `greater_is_better`: left out it is true for all but names that end in `loss`. Silent where the mode
    is not told, or the name says both.

Why is this bad
    The worst checkpoints are kept, and `ckpt_path="best"` tests the worst of them; training stops when the model gets
    better. Nothing fails.

References
    https://lightning.ai/docs/pytorch/stable/api/lightning.pytorch.callbacks.ModelCheckpoint.html
    https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.greater_is_better
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.monitors import callback_of, monitored
from validator.analysis.options.training_arguments import Said, TrainingArguments
from validator.finding import Finding
from validator.flow import Flow
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP319", "monitored-the-wrong-way", "warning", stable_since="0.6.0",
    tokens=("ModelCheckpoint", "EarlyStopping", "metric_for_best_model"), languages=("python", "shell"), solves=True,
)  # fmt: skip

_MORE = frozenset({
    "acc", "accuracy", "f1", "auc", "auroc", "bleu", "rouge", "iou", "miou", "map", "recall", "precision", "psnr",
    "ssim", "dice", "r2", "top1", "top5", "score", "reward", "return",
})  # fmt: skip
_LESS = frozenset({"loss", "error", "err", "wer", "cer", "ppl", "perplexity", "mse", "mae", "rmse", "nll", "fid", "kl"})


# Words that turn what a measure says round, or speak of what is made of several.
_TURNED = frozenset({
    "neg", "negative", "inv", "inverse", "minus", "gap", "std", "var", "variance", "diff", "delta", "disparity",
    "brier", "reduction", "drop", "recovery", "detection", "attack", "anomaly", "improvement",
})  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for call, watched in monitored(queries):
        mode, wanted = _mode(queries, call), _wanted(watched)
        if mode and wanted and mode != wanted and not is_aside(call.unit.path):
            yield _report(call, watched, mode, wanted)
    yield from _of_trainers(project)


def _of_trainers(project: Project) -> Iterator[Finding]:
    """What the Trainer of transformers takes for the best model."""
    if any(project.analysis(Flow).stores.writers("greater_is_better")):
        return
    for said in project.analysis(TrainingArguments).all:
        watched, greater = said.get("metric_for_best_model"), said.get("greater_is_better", default=None)
        if isinstance(watched, str) and (greater is None or isinstance(greater, bool)):
            mode = "max" if greater or greater is None and not watched.endswith("loss") else "min"
            wanted = _wanted(watched)
            if wanted and mode != wanted:
                yield _report_trainer(said, watched, greater, wanted)


def _report_trainer(said: Said, watched: str, greater: bool | None, wanted: str) -> Finding:
    better = "larger" if wanted == "max" else "smaller"
    name = said.shown("greater_is_better")
    asked = f"`{name}` is {greater}" if greater is not None else f"without `{name}` the largest counts as the best"
    return RULE.finding(
        said.path,
        said.place("metric_for_best_model"),
        f"`{said.name}` keeps the best model by {watched!r}, which is better when it is {better}: {asked}, so that it"
        " keeps the worst",
        help=f"set `{name}` to {wanted == 'max'}",
        context=f"{said.name}:{watched}",
    )


def _mode(queries: Queries, call: Place) -> str:
    """Which of two values a callback takes for the better one; empty where that is not known."""
    given = call.argument("mode", callback_of(queries, call).mode)
    value = given.closed.constant() if given is not None else "min"
    return value if value in ("min", "max") else ""


def _wanted(watched: str) -> str:
    words = set(watched.lower().replace("/", "_").replace("-", "_").replace("@", "_").split("_"))
    if words & _TURNED:
        return ""
    more, less = bool(words & _MORE), bool(words & _LESS)
    return "" if more is less else "max" if more else "min"


def _report(call: Place, watched: str, mode: str, wanted: str) -> Finding:
    better = "larger" if wanted == "max" else "smaller"
    asked = f"`mode={mode!r}`" if call.argument("mode") is not None else f"{mode!r}, the default of `mode`,"
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.method}`{call.where} watches {watched!r}, which is better when it is {better}: {asked} keeps"
        " the worst",
        help=f"pass `mode={wanted!r}`",
        context=f"{call.unit.qualname}:{watched}",
    )


_FIT = """
import lightning as L
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

def main(module, data):
    keep = {callback}{mark}
    L.Trainer(callbacks=[keep]).fit(module, data)
"""

_BEST = """
from transformers import Seq2SeqTrainingArguments

args = Seq2SeqTrainingArguments(
    "out",
    metric_for_best_model={metric},{mark}
    load_best_model_at_end=True,{more}
)
"""
_LAUNCH = """# file: train.py
from transformers import HfArgumentParser, TrainingArguments

if __name__ == "__main__":
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    print(args.output_dir)
# file: run.sh
torchrun --nproc_per_node 4 train.py --output_dir out --metric_for_best_model {more}
"""

INCORRECT = (
    _BEST.format(metric='"wer"', mark="  # error: MP319", more=""),
    _BEST.format(metric='"eval_loss"', mark="  # error: MP319", more="\n    greater_is_better=True,"),
    _LAUNCH.format(more="eval_mae  # error: MP319"),
    _FIT.replace("{callback}", 'ModelCheckpoint(monitor="val_f1", save_top_k=2)').replace("{mark}", "  # error: MP319"),
    _FIT.replace("{callback}", 'EarlyStopping("val/acc", patience=3)').replace("{mark}", "  # error: MP319"),
    _FIT.replace("{callback}", 'EarlyStopping("val_loss", mode="max")').replace("{mark}", "  # error: MP319"),
)

CORRECT = (
    _BEST.format(metric='"wer"', mark="", more="\n    greater_is_better=False,"),
    _BEST.format(metric='"eval_loss"', mark="", more=""),
    _BEST.format(metric='"wer"', mark="", more="\n    **options(),"),
    _BEST.format(metric='"wer"', mark="", more="") + "args.greater_is_better = False\n",
    _LAUNCH.format(more="wer --greater_is_better false"),
    _LAUNCH.format(more='wer "$@"'),
    _FIT.replace("{callback}", 'ModelCheckpoint(monitor="val_f1", mode="max")').replace("{mark}", ""),
    _FIT.replace("{callback}", 'EarlyStopping("val_loss", patience=3)').replace("{mark}", ""),
    _FIT.replace("{callback}", 'EarlyStopping("score_loss")').replace("{mark}", ""),
)

"""Arguments of the Trainer of transformers that exclude each other by their values.

What it does
    Reports `TrainingArguments` (also a class that trl derives from it, and command lines of programs whose options are
    its fields) with `load_best_model_at_end` where the strategies of evaluating and saving are not the same, or where
    both go by steps and `save_steps` is no multiple of `eval_steps`. Silent about values that the code does not tell,
    and about `save_strategy="best"`.

Why is this bad
    The constructor raises ValueError: the job ends when it starts, after it was queued.

References
    https://huggingface.co/docs/transformers/main_classes/trainer#transformers.TrainingArguments.load_best_model_at_end
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.options.training_arguments import Said, TrainingArguments, is_plain
from validator.finding import Finding
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP321", "trainer-settings-disagree", "error", "1.0",
    tokens=("load_best_model_at_end",), languages=("python", "shell"), solves=True,
)  # fmt: skip

_EVALUATING, _SAVING = ("eval_strategy", "evaluation_strategy"), ("save_strategy",)
_STEPS = "steps"
_SAVE_STEPS = 500  # unless it is given


def check_project(project: Project) -> Iterator[Finding]:
    for said in project.analysis(TrainingArguments).all:
        if said.get("load_best_model_at_end", default=False) is not True or said.dashes and not is_plain(project):
            continue
        if wrong := _wrong(said):
            names, why, advice = wrong
            yield RULE.finding(
                said.path,
                said.place(*names, "load_best_model_at_end"),
                f"`{said.name}` loads the best model at the end, {why}: ValueError",
                help=advice,
                context=f"{said.name}:{names[0]}",
            )


def _wrong(said: Said) -> tuple[tuple[str, ...], str, str] | None:
    """What is wrong with the arguments: their names, why, and what to do."""
    evaluating, saving = said.get(*_EVALUATING, default="no"), said.get(*_SAVING, default=_STEPS)
    if not isinstance(evaluating, str) or not isinstance(saving, str) or saving == "best":
        return None
    if evaluating != saving:
        why = f"but evaluates by {evaluating!r} and saves by {saving!r}"
        return (*_EVALUATING, *_SAVING), why, "give both strategies the same value"
    evaluates, saves = said.get("eval_steps"), said.get("save_steps", default=_SAVE_STEPS)
    if evaluating != _STEPS or type(evaluates) is not int or type(saves) is not int or evaluates < 1:
        return None
    if saves % evaluates == 0:
        return None
    why = f"but saves each {saves} steps, which is no multiple of the {evaluates} between evaluations"
    return ("save_steps", "eval_steps"), why, f"`{said.shown('save_steps')}` must be a multiple of `eval_steps`"


_CALL = """
from transformers import Trainer, TrainingArguments

def main(model, data):
    args = TrainingArguments(
        "out",
        load_best_model_at_end=True,
        eval_strategy={strategy},
        eval_steps={every},
        save_steps=500,{mark}
    )
    Trainer(model=model, args=args, train_dataset=data, eval_dataset=data).train()
"""

_LAUNCH = """# file: train.py
from transformers import HfArgumentParser, TrainingArguments

if __name__ == "__main__":
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    print(args.output_dir)
# file: run.sh
torchrun --nproc_per_node 4 train.py --output_dir out --load_best_model_at_end true --save_strategy steps \\
    --save_steps 500 --eval_strategy steps {more}
"""

INCORRECT = (
    _CALL.format(strategy='"steps"', every=400, mark="  # error: MP321"),
    _LAUNCH.format(more="--eval_steps 300  # error: MP321"),
    """
from transformers import TrainingArguments

args = TrainingArguments("out", load_best_model_at_end=True, eval_strategy="epoch")  # error: MP321
""",
)

CORRECT = (
    _CALL.format(strategy='"steps"', every=250, mark=""),
    _CALL.format(strategy='"steps"', every="len(data)", mark=""),
    _CALL.format(strategy='"steps"', every="0.1", mark=""),
    _LAUNCH.format(more="--eval_steps 250"),
    _LAUNCH.format(more="--eval_steps $EVERY"),
    _LAUNCH.format(more='--eval_steps 300 "$@"').replace("--load_best_model_at_end true", ""),
    """
from transformers import TrainingArguments

args = TrainingArguments("out", load_best_model_at_end=True, eval_strategy="epoch", save_strategy="best")
other = TrainingArguments("out", eval_strategy="epoch", eval_steps=3)
""",
)

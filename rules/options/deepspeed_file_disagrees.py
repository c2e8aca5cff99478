"""A value that the arguments of a Trainer and the DeepSpeed file beside them state otherwise.

What it does
    Compares `TrainingArguments` (also a class that trl derives from it, and command lines of programs whose options are
    its fields) with the DeepSpeed file that they name, where both state a value that the Trainer requires to be the
    same: the batch of a device, the steps of accumulation, the clipping of gradients, the learning rate and the other
    values of the optimizer, half precision. Silent about `"auto"`, about what only one of them states, about values
    that the code does not tell, and where a class of the project changes its arguments before the library looks.

Why is this bad
    The Trainer raises ValueError ("Please correct the following DeepSpeed config values that mismatch
    TrainingArguments values"): the job ends when it starts, after it was queued.

References
    https://huggingface.co/docs/transformers/deepspeed#deepspeed-and-trainer-arguments
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rules.launch._reading.files import Files
from validator.analysis.options.training_arguments import SAME_IN_FILE, Said, TrainingArguments, is_plain
from validator.facts.config_files import Setting, Settings
from validator.finding import Finding, Related
from validator.flow.literals import UNKNOWN
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP327", "deepspeed-file-disagrees", "error", stable_since="1.1",
    tokens=("deepspeed",), languages=("python", "shell"), solves=True,
)  # fmt: skip

_FREE = {"per_device_train_batch_size": "auto_find_batch_size"}  # what lets a value differ where it is switched on


class _Difference(NamedTuple):
    name: str
    stated: Any
    setting: Setting


def check_project(project: Project) -> Iterator[Finding]:
    files = Files(project)
    for said in project.analysis(TrainingArguments).all:
        named = said.get("deepspeed")
        if not isinstance(named, str) or said.dashes and not is_plain(project):
            continue
        path, settings = files.by_path(named, said.path, said.home) or ("", Settings())
        for each in _differences(said, settings):
            yield _report(said, path, each)


def _report(said: Said, path: str, each: _Difference) -> Finding:
    key = ".".join(each.setting.path)
    return RULE.finding(
        said.path,
        said.place(each.name),
        f"`{said.name}` is given `{said.shown(each.name)}` {each.stated}, and `{key}` of {path} is"
        f" {each.setting.value}: the Trainer raises ValueError",
        help=f'write "auto" for `{key}` in {path}, or the same value in both',
        related=[Related(path, each.setting.at[0], f"`{key}` stands here")],
        context=f"{said.name}:{key}",
    )


def _differences(said: Said, settings: Settings) -> Iterator[_Difference]:
    for setting in settings.settings:
        names = SAME_IN_FILE.get(setting.path, ())
        stated = [said.given[name] for name in names if name in said.given]
        if not stated or UNKNOWN in stated or said.get(_FREE.get(names[0], ""), default=False) is not False:
            continue
        value = any(stated) if isinstance(stated[0], bool) else stated[0]
        if _is_comparable(value, setting.value) and value != setting.value:
            yield _Difference(next(name for name in names if name in said.given), value, setting)


def _is_comparable(one: Any, other: Any) -> bool:
    """Whether both are numbers, or both switches; not texts such as `"auto"`."""
    switches = [isinstance(each, bool) for each in (one, other)]
    return all(switches) or not any(switches) and all(isinstance(each, int | float) for each in (one, other))


_TRAIN = """# file: train.py
from transformers import HfArgumentParser, Trainer, TrainingArguments

if __name__ == "__main__":
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    Trainer(model=None, args=args).train()
# file: zero2.json
{
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": {steps},
  "gradient_clipping": 1.0,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 2}
}
# file: run.sh
torchrun --nproc_per_node 8 train.py --deepspeed zero2.json --output_dir out --per_device_train_batch_size 4 \\
    {more}
"""

_CALL = """# file: config/ds.json
{"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "weight_decay": "auto"}}}
# file: train.py
from transformers import Trainer, TrainingArguments

def main(model, data, rate):
    args = TrainingArguments(
        "out",
        deepspeed="config/ds.json",
        weight_decay=0.1,
        learning_rate={rate},{mark}
    )
    Trainer(model=model, args=args, train_dataset=data).train()
"""

INCORRECT = (
    _TRAIN.replace("{steps}", "1").replace("{more}", "--gradient_accumulation_steps 4 --bf16 true  # error: MP327"),
    _TRAIN.replace("{steps}", '"auto"').replace("{more}", "--max_grad_norm 0.3 --bf16  # error: MP327"),
    _TRAIN.replace("{steps}", '"auto"').replace("{more}", "--bf16 false --fp16 true  # error: MP327"),
    _CALL.replace("{rate}", "1e-5").replace("{mark}", "  # error: MP327"),
)

CORRECT = (
    _TRAIN.replace("{steps}", "4").replace("{more}", "--gradient_accumulation_steps 4 --bf16 true --max_grad_norm 1"),
    _TRAIN.replace("{steps}", '"auto"').replace("{more}", "--gradient_accumulation_steps $STEPS --bf16 true"),
    _TRAIN.replace("{steps}", "1").replace("{more}", "--gradient_accumulation_steps $STEPS --max_grad_norm $CLIP"),
    _CALL.replace("{rate}", "2e-5").replace("{mark}", ""),
    _CALL.replace("{rate}", "rate").replace("{mark}", ""),
)

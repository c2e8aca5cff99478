"""A Trainer that saves a model which ZeRO-3 has cut up, with a file that does not let it be gathered.

What it does
    Takes the DeepSpeed file of `TrainingArguments` (also of a class that trl derives from it, and of command lines of
    programs whose options are its fields) with stage 3 and without `stage3_gather_16bit_weights_on_model_save`, or with
    false, where the project calls `save_model` of a Trainer. Silent where code, a script or a text of the project
    speaks of what puts the shards together (`zero_to_fp32`).

Why is this bad
    The Trainer cannot collect the weights: it writes a checkpoint of DeepSpeed instead, with the state of the
    optimizer and one file for each rank. The folder holds no weights that `from_pretrained` loads, which is noticed
    when somebody evaluates the model.

References
    https://huggingface.co/docs/transformers/deepspeed#save-model-weights
    https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.launch._reading.files import Files
from validator.analysis.options.training_arguments import Said, TrainingArguments
from validator.facts.config_files import Setting, Settings
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.values import Obj
from validator.project import Project
from validator.rule import Rule

RULE = Rule(
    "MP328", "weights-left-in-shards", "warning", stable_since="1.1",
    tokens=("save_model",), languages=("python", "shell"), solves=True,
)  # fmt: skip

_ZERO, _STAGE = "zero_optimization", "stage"
_GATHERING = ("stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save")
_JOINING = (b"zero_to_fp32", b"from_zero_checkpoint")  # names of what puts the shards together


def check_project(project: Project) -> Iterator[Finding]:
    saving = _saving(project.analysis(Queries))
    if saving is None or any(word in source.data for source in project.files.values() for word in _JOINING):
        return
    files, seen = Files(project), set[str]()
    for said in project.analysis(TrainingArguments).all:
        path, settings = _file_of(said, files)
        if path not in seen and (setting := _left(settings)) is not None:
            seen.add(path)
            yield _report(path, setting, said, saving)


def _saving(queries: Queries) -> Place | None:
    """Where the model of a Trainer is saved."""
    for call in queries.named_anywhere("save_model"):
        asked = call.receiver
        if asked is not None and not is_aside(call.unit.path) and any(map(_is_trainer, asked.closed.each)):
            return call
    return None


def _is_trainer(o: Obj) -> bool:
    if o[0] == "made":
        return o[1].split(".")[0] in ("transformers", "trl") and o[1].endswith("Trainer")
    bases = o[1].external_bases if o[0] in ("inst", "self") else ()
    return any(_is_trainer(("made", base)) for base in bases)


def _file_of(said: Said, files: Files) -> tuple[str, Settings]:
    named = said.get("deepspeed")
    found = files.by_path(named, said.path, said.home) if isinstance(named, str) else None
    return found or ("", Settings())


def _left(settings: Settings) -> Setting | None:
    """What lets ZeRO-3 keep its shards when a model is saved: the setting, or the stage where it is left out."""
    stage = settings.get(_ZERO, _STAGE)
    if stage is None or stage.value != 3:
        return None
    told = [setting for name in _GATHERING if (setting := settings.get(_ZERO, name)) is not None]
    return None if any(setting.value is not False for setting in told) else (told or [stage])[0]


def _report(path: str, setting: Setting, said: Said, saving: Place) -> Finding:
    what = "is false" if setting.value is False else "is left out"
    return RULE.finding(
        path,
        setting.at,
        f"`{_GATHERING[0]}` {what}, and `{said.name}` trains with this file: `{saving.text}` writes shards of DeepSpeed"
        " instead of weights that `from_pretrained` loads",
        help=f'set "{_GATHERING[0]}" to true, or say how the shards are put together (`zero_to_fp32.py`)',
        related=[
            Related(said.path, said.place("deepspeed")[0], "this file is named here"),
            Related(saving.unit.path, saving.at[0], "the model is saved here"),
        ],
        context=f"{said.name}:{path}",
    )


_TRAIN = """# file: train.py
from transformers import HfArgumentParser, Trainer, TrainingArguments

if __name__ == "__main__":
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    trainer = Trainer(model=None, args=args)
    trainer.train()
    trainer.save_model(args.output_dir)
# file: run.sh
torchrun --nproc_per_node 8 train.py --deepspeed zero.json --output_dir out
# file: zero.json
{
  "train_micro_batch_size_per_gpu": "auto",
  {ZERO}
}
"""

_CALL = """# file: ds/zero3.json
{
  "zero_optimization": {
    "stage": 3{mark}
  },
  "train_batch_size": "auto"
}
# file: train.py
from transformers import Trainer, TrainingArguments


class Own(Trainer):
    pass


def main(model, data):
    args = TrainingArguments("out", deepspeed="ds/zero3.json")
    trainer = Own(model=model, args=args, train_dataset=data)
    trainer.train()
    trainer.save_model()
"""

INCORRECT = (
    _TRAIN.replace(
        "{ZERO}",
        '"zero_optimization": {\n    "stage": 3,\n'
        '    "stage3_gather_16bit_weights_on_model_save": false  # error: MP328\n  }',
    ),
    _CALL.replace("{mark}", "  # error: MP328"),
)

CORRECT = (
    _TRAIN.replace("{ZERO}", '"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}'),
    _TRAIN.replace("{ZERO}", '"zero_optimization": {"stage": 2}'),
    _TRAIN.replace("{ZERO}", '"zero_optimization": {"stage": 3}') + "python out/zero_to_fp32.py out out/model.bin\n",
    _CALL.replace("{mark}", "").replace("    trainer.save_model()\n", ""),
)

"""A Trainer that saves a model which ZeRO-3 has cut up, with a file that does not let it be gathered.

What it does
    Takes the DeepSpeed file of `TrainingArguments` (also of a class that trl derives from it), which the code names, or
    a command of a script or in a page (`README.md`), with stage 3 and without
    `stage3_gather_16bit_weights_on_model_save`, or with false, where that program calls `save_model` of a Trainer. So
    it is with a file for `accelerate launch` with `zero_stage: 3` and `zero3_save_16bit_model: false`, or with such a
    file of DeepSpeed, where the project asks an Accelerator for `get_state_dict`.
    Silent about a Trainer where code, a script or a text of the project speaks of what puts the shards together
    (`zero_to_fp32`): it saves them. An Accelerator raises.

Why is this bad
    The Trainer cannot collect the weights: it writes a checkpoint of DeepSpeed instead, with the state of the
    optimizer and one file for each rank. The folder holds no weights that `from_pretrained` loads, which is noticed
    when somebody evaluates the model. Accelerate raises ValueError at the first checkpoint, after hours perhaps.

References
    https://huggingface.co/docs/transformers/deepspeed#save-model-weights
    https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training
    https://huggingface.co/docs/accelerate/usage_guides/deepspeed#saving-and-loading
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.launch._reading.files import Files
from validator.analysis.commands.launch import Launches
from validator.analysis.commands.programs import Programs
from validator.analysis.options.training_arguments import Said, TrainingArguments
from validator.facts.config_files import Setting, Settings
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside, is_test
from validator.flow.values import Obj
from validator.project import Project
from validator.rule import Rule
from validator.settings.filled import Filled

RULE = Rule(
    "MP328", "weights-left-in-shards", "warning", stable_since="1.1",
    tokens=("save_model", "get_state_dict"), languages=("python", "shell"), solves=True,
)  # fmt: skip

_ZERO, _STAGE = "zero_optimization", "stage"
_GATHERING = ("stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save")
_LAUNCHED, _SAVING, _FILE = ("deepspeed_config",), "zero3_save_16bit_model", "deepspeed_config_file"
_ASKING = "is_deepspeed_zero3_enabled"  # of transformers: what stands under it knows what it does
_JOINING = (b"zero_to_fp32", b"from_zero_checkpoint")  # names of what puts the shards together


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    joined = any(word in source.data for source in project.files.values() for word in _JOINING)
    saving = list(_saving(queries)) if not joined else []
    if saving:
        yield from _of_trainers(project, saving)
    gathering = _gathering(queries)
    if gathering is not None:
        yield from _of_launches(project, gathering)


def _of_trainers(project: Project, saving: list[Place]) -> Iterator[Finding]:
    files, seen = Files(project), set[str]()
    programs = project.analysis(Programs)
    arguments = project.analysis(TrainingArguments)
    for said in (*arguments.all, *arguments.shown):
        path, settings = _file_of(said, files)
        parts = set(programs.modules(said.program)) if said.program is not None else None
        saved = next((each for each in saving if parts is None or each.unit.module in parts), None)
        if saved is not None and path not in seen and (setting := _left(settings)) is not None:
            seen.add(path)
            yield _report(path, setting, said, saved)


def _of_launches(project: Project, gathering: Place) -> Iterator[Finding]:
    """The files of `accelerate launch` under which a state dict cannot be gathered."""
    files, found = Files(project), dict[str, tuple[str, Setting]]()
    for path, settings in project.analysis(Filled).files.items():
        stage, told = settings.get(*_LAUNCHED, "zero_stage"), settings.get(*_LAUNCHED, _SAVING)
        if stage is not None and stage.value == 3 and (told is None or told.value is False):
            found.setdefault(path, (_SAVING, told or stage))
        named = settings.get(*_LAUNCHED, _FILE)
        _add(found, files.by_path(str(named.value), path) if named is not None else None)
    launches = project.analysis(Launches)
    for launch in (*launches.all, *launches.shown):
        option = launch.launcher_option(_FILE)
        _add(
            found, files.by_path(option.text, launch.path, launch.home) if option is not None and option.known else None
        )
    for path, (name, setting) in found.items():
        if not is_test(path):
            yield RULE.finding(
                path,
                setting.at,
                f"`{name}` is {'false' if setting.value is False else 'left out'}: `{gathering.text}`{gathering.where}"
                " raises ValueError where a program is launched with this file",
                help=f"set `{name}` to true, or save with `save_checkpoint` instead",
                related=[Related(gathering.unit.path, gathering.at[0], "the weights are asked for here")],
                context=f"{path}:{name}",
            )


def _add(found: dict[str, tuple[str, Setting]], file: tuple[str, Settings] | None) -> None:
    """A file of DeepSpeed that a launcher is given."""
    if file is not None and (setting := _left(file[1])) is not None:
        found.setdefault(file[0], (_GATHERING[0], setting))


def _saving(queries: Queries) -> Iterator[Place]:
    """Where the model of a Trainer is saved, also under ZeRO-3."""
    for call in queries.named_anywhere("save_model"):
        asked = call.receiver
        known = asked is not None and not is_aside(call.unit.path) and any(map(_is_trainer, asked.closed.each))
        if known and not any(_ASKING in test.words for test in call.tests_inside):
            yield call


def _gathering(queries: Queries) -> Place | None:
    """Where an Accelerator is asked for all weights of a model."""
    for call in queries.named_anywhere("get_state_dict"):
        asked = call.receiver
        known = asked is not None and any(o[:2] == ("made", "accelerate.Accelerator") for o in asked.closed.each)
        if known and not is_aside(call.unit.path) and "unwrap" not in call.value.data.names:
            return call
    return None


def _is_trainer(o: Obj) -> bool:
    if o[0] == "made":
        return o[1].split(".")[0] in ("transformers", "trl") and o[1].endswith("Trainer")
    own = o[0] in ("inst", "self") and o[1].find("save_model") is None  # else it saves as it likes
    bases = o[1].external_bases if own else ()
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

_LAUNCH = """# file: train.py
from accelerate import Accelerator


class Trainer:
    def __init__(self, model, optimizer):
        self.accelerator = Accelerator()
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)

    def save(self, folder):
        self.accelerator.unwrap_model(self.model).save_pretrained(
            folder,
            is_main_process=self.accelerator.is_main_process,
            state_dict=self.accelerator.get_state_dict(self.model),
        )
# file: configs/zero.yaml
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  gradient_accumulation_steps: 1
  zero_stage: {stage}
  zero3_save_16bit_model: {saves}
num_processes: 8
"""

_COMMAND = """# file: run.sh
accelerate launch --use_deepspeed --deepspeed_config_file ds/zero3.json train.py
# file: ds/zero3.json
{
  "zero_optimization": {
    "stage": 3{mark}
  }
}
"""

_PAGE = """# file: README.md
# Training

```bash
accelerate launch train.py --zero ./zero.json
```
# file: zero.json
{
  "zero_optimization": {
    "stage": 3,
    "stage3_gather_16bit_weights_on_model_save": {GATHERS}
  }
}
# file: train.py
from dataclasses import dataclass, field

from transformers import HfArgumentParser, Trainer, TrainingArguments


@dataclass
class ScriptArguments:
    zero: str | None = field(default=None)


if __name__ == "__main__":
    (args,) = HfArgumentParser(ScriptArguments).parse_args_into_dataclasses()
    trainer = Trainer(model=None, args=TrainingArguments("out", deepspeed=args.zero))
    trainer.train()
    trainer.save_model("out/last")
"""

INCORRECT = (
    _TRAIN.replace(
        "{ZERO}",
        '"zero_optimization": {\n    "stage": 3,\n'
        '    "stage3_gather_16bit_weights_on_model_save": false  # error: MP328\n  }',
    ),
    _CALL.replace("{mark}", "  # error: MP328"),
    _LAUNCH.format(stage=3, saves="false  # error: MP328"),
    _LAUNCH.format(stage=3, saves="true") + _COMMAND.replace("{mark}", "  # error: MP328"),
    _PAGE.replace("{GATHERS}", "false  # error: MP328"),
)

CORRECT = (
    _TRAIN.replace("{ZERO}", '"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}'),
    _TRAIN.replace("{ZERO}", '"zero_optimization": {"stage": 2}'),
    _TRAIN.replace("{ZERO}", '"zero_optimization": {"stage": 3}') + "python out/zero_to_fp32.py out out/model.bin\n",
    _CALL.replace("{mark}", "").replace("    trainer.save_model()\n", ""),
    _LAUNCH.format(stage=3, saves="true"),
    _LAUNCH.format(stage=2, saves="false"),
    _PAGE.replace("{GATHERS}", "true"),
    _PAGE.replace("{GATHERS}", "false").replace("bash", "python"),
)

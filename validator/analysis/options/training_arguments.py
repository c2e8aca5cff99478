"""What is said of the arguments with which a Trainer of transformers trains: by a call of `TrainingArguments`, or of a
class that a library derives from it, and on the command lines of programs whose options are its fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from validator.analysis.commands.command_line import CommandLine, CommandLines, Given
from validator.analysis.commands.launch import Launch
from validator.analysis.options.parsers import Parser
from validator.facts.model import At
from validator.flow.literals import UNKNOWN
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.models.signatures import Signature, signature
from validator.project import Project

_FIELDS = ("load_best_model_at_end", "metric_for_best_model", "greater_is_better")
_ASKED = (*_FIELDS, "deepspeed")  # what rules ask of calls
_TEXTS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
_FILE = "--config"
# By key of a DeepSpeed file the arguments that must say the same: what `transformers.integrations.deepspeed` compares.
SAME_IN_FILE: dict[tuple[str, ...], tuple[str, ...]] = {
    ("train_micro_batch_size_per_gpu",): ("per_device_train_batch_size",),
    ("gradient_accumulation_steps",): ("gradient_accumulation_steps",),
    ("gradient_clipping",): ("max_grad_norm",),
    ("optimizer", "params", "lr"): ("learning_rate",),
    ("optimizer", "params", "eps"): ("adam_epsilon",),
    ("optimizer", "params", "weight_decay"): ("weight_decay",),
    ("scheduler", "params", "warmup_max_lr"): ("learning_rate",),
    ("bf16", "enabled"): ("bf16", "bf16_full_eval"),
    ("fp16", "enabled"): ("fp16", "fp16_full_eval"),
}


class Said(NamedTuple):
    """The arguments of one training: by name what each is, `UNKNOWN` where the code does not tell. `complete`: nothing
    else sets any. `name`: of the call, or of the program. `home`: the folder in which that is started, if known."""

    path: str
    at: At
    name: str
    given: Mapping[str, Any]
    places: Mapping[str, At]
    complete: bool
    dashes: str = ""
    home: str = ""

    def get(self, *names: str, default: Any = UNKNOWN) -> Any:
        """The value of an argument that has had several names, or its default."""
        found = [self.given[name] for name in names if name in self.given]
        return found[-1] if found else default if self.complete else UNKNOWN

    def place(self, *names: str) -> At:
        return next((self.places[name] for name in names if name in self.places), self.at)

    def shown(self, name: str) -> str:
        """An argument as it is written there."""
        return f"{self.dashes}{name}"


class TrainingArguments:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.queries = project.analysis(Queries)

    @cached_property
    def all(self) -> tuple[Said, ...]:
        return (*self._calls(), *self._launches())

    def _calls(self) -> Iterator[Said]:
        for module in self.queries.flow.mentions.spelling(*_ASKED):
            for unit in self.queries.flow.whole_units(module) if not is_test(module.path) else ():
                for call in self.queries.calls_in(unit):
                    if any(name in _ASKED for name in call.value.data.names) and _is_of_library(call):
                        yield _of_call(call)

    def _launches(self) -> Iterator[Said]:
        for launch, line in self.project.analysis(CommandLines).all:
            if launch.parser is not None and any(map(_has_fields, launch.parser.taken)):
                yield _of_launch(launch, launch.parser, line)


def is_plain(project: Project) -> bool:
    """Whether nothing in the project changes options before the library looks at them: no class whose fields they are,
    no other defaults, no files of arguments."""
    if any(project.calls("set_defaults")):
        return False
    if any(b"args_file" in module.source.data for module in project.modules.values()):
        return False
    return not any("__post_init__" in cls.methods and cls.external_bases for cls in project.classes())


def _has_fields(taken: Signature) -> bool:
    """Whether a class has the fields of the arguments of a Trainer."""
    names = {param.name for param in taken.parameters(taken.releases[-1])}
    return names.issuperset(_FIELDS)


def _is_of_library(call: Place) -> bool:
    objs = call.operand(0).closed.each
    taken = [signature(o[1]) for o in objs if o[0] == "ext"]
    return bool(taken) and len(taken) == len(objs) and all(each is not None and _has_fields(each) for each in taken)


def _of_call(call: Place) -> Said:
    names = call.value.data.names
    rows = {name: call.value_at(n) for name, n in zip(names, call.value.args[1:], strict=True) if name is not None}
    given = {name: _constant(place) for name, place in rows.items() if not place.closed.is_const(None)}
    places = {name: place.at for name, place in rows.items()}
    complete = "*" not in names and "**" not in names
    return Said(
        call.unit.path, call.at, call.method, {k: v for k, v in given.items() if v is not None}, places, complete
    )


def _constant(place: Place) -> Any:
    value = place.closed.constant()
    return UNKNOWN if value is None else value


def _of_launch(launch: Launch, parser: Parser, line: CommandLine) -> Said:
    given = {option.dest: option.default for option in parser.options if option.default is not None}
    rows = [(each, each.flag.text.lstrip("-").replace("-", "_")) for each in line.given if each.flag.known]
    given.update((name, _value(each)) for each, name in rows)
    complete = not line.open and not any(each.flag.text == _FILE or not each.flag.known for each in line.given)
    words = [each.flag.place for each in line.given]
    at = (words[0].line, words[0].column, words[0].line, words[0].column + 1) if words else (1, 1, 1, 2)
    places = {name: each.at for each, name in rows}
    return Said(launch.path, at, launch.name, given, places, complete, "--", launch.home)


def _value(given: Given) -> Any:
    """What an option is given: a flag alone switches it on."""
    if not given.values:
        return True
    text = given.values[0].text if given.values[0].known and len(given.values) == 1 else None
    if text is None:
        return UNKNOWN
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return _TEXTS.get(text.lower(), text)

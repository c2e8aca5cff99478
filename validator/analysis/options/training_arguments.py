"""What is said of the arguments with which a Trainer of transformers trains: by a call of `TrainingArguments`, or of a
class that a library derives from it, and on the command lines of programs whose options are its fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from validator.analysis.commands.command_line import CommandLine, CommandLines, Given
from validator.analysis.commands.launch import Launch
from validator.analysis.options.namespaces import Namespaces
from validator.analysis.options.option import Option
from validator.analysis.options.parsers import Parser
from validator.definitions import ClassDef, Module
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
    else sets any. `name`: of the call, or of the program. `home`: the folder in which that is started, if known;
    `program`: the file that a command starts."""

    path: str
    at: At
    name: str
    given: Mapping[str, Any]
    places: Mapping[str, At]
    complete: bool
    dashes: str = ""
    home: str = ""
    program: Module | None = None

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
        lines = self.project.analysis(CommandLines).all
        return (*map(_of_call, self._calls), *_launched(lines), *self._passed(lines))

    @cached_property
    def shown(self) -> tuple[Said, ...]:
        """What commands say that pages show."""
        lines = self.project.analysis(CommandLines).shown
        return (*_launched(lines), *self._passed(lines))

    @cached_property
    def _calls(self) -> tuple[Place, ...]:
        """The calls that make such arguments with something that rules ask for."""
        modules = (each for each in self.queries.flow.mentions.spelling(*_ASKED) if not is_test(each.path))
        units = (unit for module in modules for unit in self.queries.flow.whole_units(module))
        calls = (call for unit in units for call in self.queries.calls_in(unit))
        return tuple(c for c in calls if any(name in _ASKED for name in c.value.data.names) and _is_of_library(c))

    def _passed(self, lines: Iterable[tuple[Launch, CommandLine]]) -> Iterator[Said]:
        """What command lines say of a call, by options of the program that it is given: `deepspeed=args.deepspeed`."""
        for call in self._calls:
            asked = [(name, *held) for name in _ASKED for held in self._options(call.argument(name))]
            for launch, line in lines if asked else ():
                said = [(n, g) for n, parser, dest in asked if parser is launch.parser and (g := line.given_to(dest))]
                if said:
                    own, values = _of_call(call), {name: _value(given) for name, given in said}
                    places = {**own.places, **{name: given.at for name, given in said}}
                    yield own._replace(
                        path=launch.path, name=launch.name, given={**own.given, **values}, places=places,
                        home=launch.home, program=launch.module,
                    )  # fmt: skip

    def _options(self, given: Place | None) -> Iterator[tuple[Parser, str]]:
        """The options of programs that an argument may be, by parser and name."""
        place = given.root if given is not None else None
        if place is None or place.value.op != "attr":
            return
        asked, name = place.operand(0), place.value.data
        namespaces = self.queries.project.analysis(Namespaces)
        yield from ((held.parser, held.below(name)) for held in namespaces.held(asked))
        classes = {cls for o in asked.closed.each if o[0] == "inst" for cls in o[1].mro}
        for parser in namespaces.options.parsers if classes else ():
            option = parser.option(name) if parser.from_dataclasses else None
            if option is not None and any(_is_in(option, cls) for cls in classes):
                yield parser, name


def _is_in(option: Option, cls: ClassDef) -> bool:
    """Whether an option is for a field that a class has itself."""
    return option.path == cls.module.path and cls.facts.at[0] <= option.at[0] <= cls.facts.at[2]


def _launched(lines: Iterable[tuple[Launch, CommandLine]]) -> Iterator[Said]:
    for launch, line in lines:
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
    return Said(launch.path, at, launch.name, given, places, complete, "--", launch.home, launch.module)


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

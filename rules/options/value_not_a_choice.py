"""A value of a configuration file that the field it sets does not allow.

What it does
    In the sections of YAML, TOML and JSON files whose class is known (see MP307), reports a value that is none of those
    that the annotation of the field allows (`Literal[…]`, an enumeration), whichever class of several the section may
    be for; and the name of a class under a key that elsewhere names classes which a decorator registers
    (`@OptimizerConfig.register_subclass("adam")`, `type: adam`), where no class below that of the field has the name.
    Also a text that the program which reads the file looks up in a table that lacks it, or refuses by itself
    (`OPTIMIZERS[config["optim"]]`, `Mode[settings.mode]` of an enumeration, see MP315). Where somebody is handed the
    class, who may hold it to its annotations, the name and the value of a member of an enumeration are one.
    As a note also a value that no code spells under a key whose values in other files are entries of one table of
    functions or classes (a dictionary, a decorator): that the table is what this file's value is looked up in, and by
    which program, the source does not say. Upper and lower case are one. A note, too, where the code spells the value
    as a text and nothing holds data classes to their annotations: the annotation may be what is behind. Silent
    about computed values (`${…}`), and about fields that allow anything else too.

Why is this bad
    The reader refuses the file when the job starts, or the value is looked up in vain where it is used.

References
    https://docs.python.org/3/library/typing.html#typing.Literal
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from validator.analysis.interfaces.unspelled import Unspelled
from validator.analysis.options.accepted import Accepted, Asked
from validator.analysis.options.spelled import Spelled
from validator.analysis.recipes.composed import Node
from validator.analysis.recipes.sections import Sections
from validator.errors import nearest
from validator.facts.config_files import Setting
from validator.finding import Finding, Related, Severity
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule
from validator.settings.classes import Field, Schemas
from validator.settings.filled import Fill, Filled
from validator.settings.registries import Registries, Registry
from validator.settings.sections import field_name

RULE = Rule("MP308", "value-not-a-choice", "warning", "0.3.0", languages=("yaml", "json", "toml"), solves=True)

_SHOWN = 8  # choices that a finding lists
_KNOWN = 3  # values of a key that a table must have


def check_project(project: Project) -> Iterator[Finding]:
    fills = [fill for fills in project.analysis(Filled).all for fill in fills if not is_test(fill.section.path)]
    for fill in fills:
        for setting, field in fill.fields:
            if field.choices and (allowed := _allowed(fill, field.name)) and _is_refused(setting, allowed):
                known = project.analysis(Spelled).as_text(str(setting.value).replace("-", "_"))
                severity: Severity = "note" if known and not fill.schema.is_strict else "warning"
                yield _report(fill, setting, f"`{fill.schema.cls.name}.{field.name}` allows", allowed, severity)
    yield from _unregistered(project, fills)
    yield from _looked_up(project, fills)
    yield from _refused_by_program(project, fills)
    yield from _unlisted(project)


def _looked_up(project: Project, fills: list[Fill]) -> Iterator[Finding]:
    """Values of fields that the code looks up in vain, or refuses."""
    asked, schemas = project.analysis(Accepted).fields if fills else {}, project.analysis(Schemas)
    for fill in fills:
        for setting, field in fill.fields:
            text = setting.value
            if not isinstance(text, str) or not _is_written(text):
                continue
            same = _same(schemas, fill, field, text)
            rows = asked.get((fill.schema.cls, field.name), ())
            refused = next((each for each in rows if all(map(each.always_refuses, same))), None)
            if refused is not None and not fill.alike:
                yield _refused(setting, fill.section.path, field.name, refused)


def _same(schemas: Schemas, fill: Fill, field: Field, text: str) -> set[str]:
    """The texts that say the same as the one under a key, when the class has been made of it."""
    return field.spellings(text) if schemas.is_converted(fill.schema.cls) else {text}


def _refused(setting: Setting | Node, path: str, key: str, asked: Asked) -> Finding:
    text = str(setting.value)
    return RULE.finding(
        path,
        setting.at,
        f"`{key}` is {text!r}: {asked.told(text)}",
        help=asked.advice(text),
        related=[asked.related],
        context=f"{key}={text}",
    )


def _refused_by_program(project: Project, fills: list[Fill]) -> Iterator[Finding]:
    """Values that the program which reads the file looks up in vain, or refuses by itself."""
    files = project.analysis(Filled).files
    if not files:
        return
    sections, schemas, told = project.analysis(Sections), project.analysis(Schemas), set()
    fields = {(fill.section.path, setting.at): (fill, field) for fill in fills for setting, field in fill.fields}
    for o, key, asked in project.analysis(Accepted).keys:
        links = [*o[2].split(".")] if o[2] else []
        for root in sections.roots(o[1]):
            node = root.node.find([*links, key])
            text = node.value if node is not None else None
            if node is None or not isinstance(text, str) or not _is_written(text):
                continue
            filled = fields.get((node.path, node.at))
            same = _same(schemas, *filled, text) if filled is not None else {text}
            if all(map(asked.always_refuses, same)) and root.given and (node.path, node.at) not in told:
                told.add((node.path, node.at))
                yield _refused(node, node.path, key, asked)


def _allowed(fill: Fill, name: str) -> list[object]:
    """What the classes that a section may be for allow; nothing where one of them allows anything."""
    fields = [schema.fields[name] for schema in fill.among if name in schema.fields]
    return [] if any(not field.choices for field in fields) else [value for field in fields for value in field.choices]


def _is_refused(setting: Setting, allowed: Iterable[object]) -> bool:
    value = setting.value
    if setting.kind != "scalar" or value is None or isinstance(value, bool) or not _is_written(value):
        return False
    return str(value).lower() not in {str(each).lower() for each in allowed}


def _is_written(value: object) -> bool:
    """Whether a value is what the file says: nothing to be filled in."""
    return not isinstance(value, str) or value.replace("-", "_").replace(".", "_").replace("/", "_").isidentifier()


def _unregistered(project: Project, fills: list[Fill]) -> Iterator[Finding]:
    """Names under keys that mostly name registered classes, of whichever family."""
    registered = project.analysis(Registries)
    rows: dict[str, list[tuple[Fill, Setting, frozenset[str]]]] = {}
    for fill in fills:
        names = registered.names(schema.cls for schema in fill.among) if fill.declared else frozenset()
        for key, setting in fill.section.keys.items() if len(names) > 1 else ():
            if key not in fill.schema.fields and isinstance(setting.value, str) and _is_written(setting.value):
                rows.setdefault(key, []).append((fill, setting, names))
    for key, places in rows.items():
        known = Counter(setting.value in names for _, setting, names in places)
        for fill, setting, names in places if known[True] > known[False] else ():
            if setting.value not in names:
                yield _report(fill, setting, f"`{key}` names a registered class:", sorted(names), "warning")


def _unlisted(project: Project) -> Iterator[Finding]:
    """Values of a key that mostly, in other files, names entries of one table of the project: functions, classes."""
    values: dict[str, dict[str, list[tuple[str, Setting]]]] = {}
    for path, settings in project.analysis(Filled).files.items():
        for each in settings.settings if not is_test(path) else ():
            if isinstance(each.value, str) and _is_written(each.value):
                values.setdefault(each.path[-1], {}).setdefault(each.value, []).append((path, each))
    registries = project.analysis(Registries).all if values else ()
    spelled, names = project.analysis(Spelled), project.analysis(Unspelled)
    listed = frozenset().union(*(each.names for each in registries))
    for key, places in values.items():
        table = max(registries, key=lambda each: len(each.names & places.keys()), default=None)
        strange = [value for value in places if value not in listed and not _is_allowed(project, key, value)]
        known = table.names & places.keys() if table is not None else frozenset()
        if table is None or len(known) < max(_KNOWN, 2 * len(strange)):
            continue
        often = sum(len(places[value]) for value in known)
        for value in strange:
            formed = names.may_be_formed(value)
            if formed or 2 * len(places[value]) > often or spelled.as_text(value.replace("-", "_")):
                continue
            yield from (_of_table(key, path, setting, table) for path, setting in places[value])


def _is_allowed(project: Project, key: str, value: str) -> bool:
    """Whether a field of that name, of whichever class, may have a value; where its choices are too many to read."""
    name = field_name(key)
    fields = [schema.fields[name] for schema in project.analysis(Schemas).by_field.get(name, ())]
    return any(value in each.choices or "Literal" in each.annotation and not each.choices for each in fields)


def _of_table(key: str, path: str, setting: Setting, table: Registry) -> Finding:
    names = sorted(table.names)
    return RULE.finding(
        path,
        setting.value_at,
        f"`{setting.value}` is in no table of the project: `{key}` names {', '.join(names[:_SHOWN])} elsewhere",
        help=f"name an entry of the table{nearest(str(setting.value), names)}",
        related=[Related(table.path, table.line, "the table that most values of this key are looked up in")],
        context=f"{key}={setting.value}",
        severity="note",
    )


def _report(fill: Fill, setting: Setting, what: str, allowed: Iterable[object], severity: Severity) -> Finding:
    texts = list(dict.fromkeys(str(each) for each in allowed if each is not None))
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    cls = fill.schema.cls
    return RULE.finding(
        fill.section.path,
        setting.value_at,
        f"`{setting.value}` is no choice: {what} {', '.join(texts[:_SHOWN])}{more}",
        help=f"choose one of them{nearest(str(setting.value), texts)}",
        related=[Related(cls.path, cls.facts.name_at[0], f"`{cls.name}` is defined here")],
        context=f"{cls.qualname}:{setting.path[-1]}={setting.value}",
        severity=severity,
    )


_CLASSES = """# file: rl/__init__.py
# file: rl/settings.py
import enum
from dataclasses import dataclass, field
from typing import Literal, Optional

import draccus


class Sharding(enum.Enum):
    FULL = "full_shard"
    NONE = "no_shard"


class OptimizerConfig(draccus.ChoiceRegistry):
    pass


@OptimizerConfig.register_subclass("adam")
@dataclass
class Adam(OptimizerConfig):
    lr: float = 1e-6
    beta: float = 0.9


@OptimizerConfig.register_subclass("sophia_h")
@dataclass
class Sophia(OptimizerConfig):
    lr: float = 1e-6
    gamma: float = 0.01


@dataclass
class Training:
    optimizer: OptimizerConfig = field(default_factory=Adam)
    sharding: Sharding = Sharding.FULL
    backend: Optional[Literal["fsdp2", "deepspeed"]] = None
    batch_size: int = 8
    steps: int = 100
"""

_TABLE = """# file: rl/__init__.py
# file: rl/estimators.py
def register(name):
    return lambda function: function


@register("gae")
def gae(rewards):
    return rewards


@register("grpo")
def grpo(rewards):
    return rewards


@register("reinforce")
def reinforce(rewards):
    return rewards


@register("grpo_multiturn")
def multiturn(rewards):
    return rewards
# file: a.yaml
algorithm: {adv_type: gae}
# file: b.yaml
algorithm: {adv_type: grpo}
# file: c.yaml
algorithm: {adv_type: reinforce}
"""

_LOOKED_UP = """# file: train.py
import yaml

SCHEDULES = {"cosine": max, "linear": min}


def main():
    with open("conf/train.yaml") as file:
        config = yaml.safe_load(file)
    print(SCHEDULES[config["schedule"]["kind"]](1, 2))


main()
# file: conf/train.yaml
schedule:
  kind: {kind}{mark}
"""

INCORRECT = (
    # an enumeration is looked up by the names of its members
    """# file: settings.py
from dataclasses import dataclass
from enum import Enum

import yaml


class Mode(str, Enum):
    FULL = "full-shard"
    HYBRID = "hybrid-shard"


@dataclass
class Wrapping:
    mode: Mode = Mode.FULL
    prefetch: bool = False

    @classmethod
    def load(cls, path):
        with open(path) as file:
            made = cls(**yaml.safe_load(file)["wrapping"])
        made.mode = Mode[made.mode]
        return made
# file: configs/many.yaml
wrapping:
  mode: hybrid-shard  # error: MP308
  prefetch: true
""",
    _LOOKED_UP.replace("{kind}{mark}", "cosin  # error: MP308"),
    _TABLE
    + """# file: d.yaml
algorithm:
  adv_type: grpo_dynamic  # error: MP308
""",
    _CLASSES
    + """# file: a.yaml
batch_size: 64
steps: 200
sharding: hybrid_shard  # error: MP308
backend: fsdp  # error: MP308
optimizer:
  type: adam
# file: b.yaml
batch_size: 64
steps: 200
sharding: full_shard
backend: fsdp2
optimizer:
  type: sophia-h  # error: MP308
  gamma: 0.1
# file: c.yaml
batch_size: 64
steps: 200
sharding: full_shard
backend: fsdp2
optimizer:
  type: adam
""",
)

CORRECT = (
    """# file: settings.py
from dataclasses import dataclass
from enum import Enum

import yaml


class Mode(str, Enum):
    FULL = "full-shard"
    HYBRID = "hybrid-shard"


@dataclass
class Wrapping:
    mode: Mode = Mode.FULL
    prefetch: bool = False

    @classmethod
    def load(cls, path):
        with open(path) as file:
            made = cls(**yaml.safe_load(file)["wrapping"])
        made.mode = Mode(made.mode)
        return made
# file: configs/many.yaml
wrapping:
  mode: hybrid-shard
  prefetch: true
""",
    _LOOKED_UP.replace("{kind}{mark}", "linear"),
    _TABLE
    + """# file: d.yaml
algorithm: {adv_type: grpo_multiturn}
""",
    _CLASSES
    + """# file: a.yaml
batch_size: 64
steps: 200
sharding: NONE
backend: ${oc.env:BACKEND}
optimizer:
  type: adam
# file: b.yaml
batch_size: 64
steps: 200
sharding: no_shard
backend: null
optimizer:
  type: sophia_h
  gamma: 0.1
""",
    # one of several classes, told apart by a field of its own
    """# file: rl/__init__.py
# file: rl/settings.py
from typing import Literal, Union

from pydantic import BaseModel


class Disk(BaseModel):
    type: Literal["disk"] = "disk"
    path: str = "."


class Nccl(BaseModel):
    type: Literal["nccl"] = "nccl"
    port: int = 29500


class Config(BaseModel):
    broadcast: Union[Disk, Nccl]
    steps: int = 1
    seed: int = 0
    name: str = ""
# file: a.toml
steps = 3
seed = 4
name = "run"
[broadcast]
type = "nccl"
""",
    # refused where another field asks for it; too small a section to tell which class of a union it is
    """# file: rl/__init__.py
# file: rl/settings.py
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field, model_validator


class Disk(BaseModel):
    type: Literal["disk"] = "disk"


class Nccl(BaseModel):
    type: Literal["nccl"] = "nccl"
    port: int = 29500


class Shared(BaseModel):
    type: Literal["disk", "nccl"] = "disk"
    every: int = 1


Broadcast: TypeAlias = Annotated[Disk | Nccl, Field(discriminator="type")]


class Model(BaseModel):
    impl: Literal["hf", "custom", "auto"] = "auto"
    trusted: bool = False
    layers: int = 2

    @model_validator(mode="after")
    def trusted_only_with_hf(self):
        if self.trusted:
            if self.impl not in ("hf", "auto"):
                raise ValueError("trusted code needs impl = 'hf'")
        return self


class Config(BaseModel):
    broadcast: Broadcast
    model: Model
    steps: int = 1
    seed: int = 0
    name: str = ""


def load(data):
    return Config.model_validate(data)
# file: a.toml
steps = 3
seed = 4
name = "run"
[broadcast]
type = "nccl"
[model]
impl = "custom"
layers = 4
# file: b.toml
batch_size = 4
[broadcast]
type = "disk"
""",
    # the reader makes a member of an enumeration of its name
    """# file: settings.py
import enum
from dataclasses import dataclass

from omegaconf import OmegaConf


class Save(enum.Enum):
    MERGED = "merged"
    ADAPTER = "adapter"


@dataclass
class Training:
    save: Save = Save.ADAPTER
    batch_size: int = 8
    steps: int = 100
    seed: int = 0


def load(path):
    return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Training), OmegaConf.load(path)))


def save(settings: Training, model):
    if settings.save == Save.MERGED:
        return model.merged()
    elif settings.save == Save.ADAPTER:
        return model.adapter()
    raise ValueError(settings.save)
# file: a.yaml
save: MERGED
batch_size: 4
steps: 10
seed: 1
""",
)

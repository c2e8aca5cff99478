"""A key of a configuration file that is no field of the class that the section fills.

What it does
    Finds the class that a section of a YAML, TOML or JSON file sets the fields of (a data class, a model of pydantic,
    a class of attrs): by the annotation of the field that the section stands under, by the call that code hands it to
    (`C(**section)`, `C.from_dict(section)`), elsewhere by its keys, most of which must be fields, or by the path of
    keys that it stands under, where all sections there are of one class (then the key must be a name that the code does
    not have at all). A file all of whose keys are those of a format of another program (SkyPilot, Ray, Compose) is for
    that. Reports a key that the class has no field for, once
    for each class and key. Silent about keys that the code spells as a text (an alias, an old name that is still
    read), asks the section for (`config.training.strategy`), or that begin with what it takes off a name
    (`removeprefix("fsdp_")`); about sections of which most is strange to the class; about keys that other values take
    over (`${key}`) or name, where a base outside of the project may have more fields, in tests, and in the files of
    models. A note where another class that shares keys with the section has the field (nothing where only the keys
    tell the class), and for a `TypedDict`, to which any key may be given. A note, too, where nobody is seen to make
    objects of the class from data (`C(**section)`, `tyro.cli(C)`, a field of such a class): then only the names are
    alike.

Why is this bad
    A strict reader refuses the file when the job starts, or when the section is reached: at the first evaluation.
    Others drop the key without a word, and the default trains in its place.

References
    https://docs.pydantic.dev/latest/concepts/models/#extra-data
    https://omegaconf.readthedocs.io/en/latest/structured_config.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from validator.analysis.options.spelled import Spelled
from validator.errors import nearest
from validator.facts.config_files import Setting
from validator.finding import Finding, Related, Severity
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule
from validator.settings.classes import Schema
from validator.settings.filled import Fill, Filled
from validator.settings.sections import field_name

RULE = Rule("MP307", "key-of-no-field", "warning", "0.3.0", languages=("yaml", "json", "toml"), solves=True)

_SHOWN = 3  # other files that a finding names


def check_project(project: Project) -> Iterator[Finding]:
    found: dict[tuple[Schema, str], list[tuple[Fill, Setting]]] = {}
    for fill, stranger in _strangers(project):
        found.setdefault((fill.schema, field_name(stranger.path[-1])), []).append((fill, stranger))
    filled = project.analysis(Filled)
    for (schema, name), places in found.items():
        elsewhere = [other for fill, _ in places for other in filled.others(fill, name)]
        if not elsewhere or all(fill.declared for fill, _ in places):
            yield _report(schema, name, places, elsewhere, filled.schemas.is_read(schema.cls))


def _strangers(project: Project) -> Iterator[tuple[Fill, Setting]]:
    filled, spelled = project.analysis(Filled), project.analysis(Spelled)
    contradicted = _contradicted(filled)
    for fills in filled.all:
        for fill in fills if fills and not is_test(fills[0].section.path) else ():
            for each in fill.strangers if fill.schema not in contradicted else ():
                name = field_name(each.path[-1])
                if not name.isidentifier() or filled.is_taken_over(each) or spelled.as_text(name):
                    continue
                if spelled.as_part(fill.section.name, name):
                    continue
                unheard = each.kind == "scalar" and name not in filled.schemas.by_field and not spelled.as_name(name)
                if unheard or not fill.alike:
                    yield fill, each


def _contradicted(filled: Filled) -> set[Schema]:
    """The classes to which most of what most sections set is strange: they do not fill them, whatever is annotated."""
    strange: Counter[Schema] = Counter()
    for fills in filled.all:
        for fill in fills:
            strange[fill.schema] += 1 if len(fill.strangers) > max(1, sum(1 for _ in fill.fields)) else -1
    return {schema for schema, count in strange.items() if count > 0}


def _report(
    schema: Schema, name: str, places: list[tuple[Fill, Setting]], elsewhere: list[Schema], read: bool
) -> Finding:
    """`read`: whether the project is seen to make objects of the class from data."""
    fill, setting = places[0]
    known = sum(1 for _ in fill.fields)
    where = f"`{fill.section.dotted}`" if fill.section.setting is not None else "this file"
    unset = [each for each in schema.fields if each not in fill.section.keys]
    other = f", which `{elsewhere[0].cls.name}` has" if elsewhere else ""
    sure = not elsewhere and not schema.is_typed_dict and read
    severity: Severity = "warning" if sure else "note"
    return RULE.finding(
        fill.section.path,
        setting.at,
        f"`{schema.cls.name}` has no field `{name}`{other}; {where} sets {_number(known)} of it{_more(places)}",
        help=f"set a field that it has{nearest(name, unset)}, or drop the key: it is refused, or nothing reads it",
        related=[
            Related(schema.cls.path, schema.cls.facts.name_at[0], f"`{schema.cls.name}` is defined here"),
            *(Related(f.section.path, s.at[0], f"`{name}` is set here, too") for f, s in places[1 : 1 + _SHOWN]),
        ],
        context=f"{schema.cls.qualname}:{name}",
        severity=severity,
    )


def _number(known: int) -> str:
    return "one field" if known == 1 else f"{known} fields" if known else "no field"


def _more(places: list[tuple[Fill, Setting]]) -> str:
    others = len({fill.section.path for fill, _ in places}) - 1
    return f", and so it is in {others} more file{'s' if others > 1 else ''}" if others else ""


_CLASSES = """# file: rl/__init__.py
# file: rl/settings.py
from dataclasses import dataclass, field
from typing import Any

from omegaconf import OmegaConf


@dataclass
class Offload:
    enable_activation: bool = False
    gpu_limit: float = 0.0


@dataclass
class Accelerator:
    ulysses_size: int = 1
    tp_size: int = 1
    offload_config: Offload = field(default_factory=Offload)


@dataclass
class Training:
    accelerator: Accelerator = field(default_factory=Accelerator)
    learning_rate: float = 1e-6
    batch_size: int = 8
    steps: int = 100
    evaluation: Any = None


def load(path):
    return OmegaConf.merge(OmegaConf.structured(Training), OmegaConf.load(path))
"""

INCORRECT = (
    # code hands the section to the class
    """# file: rollout.py
import dataclasses
from dataclasses import dataclass

import yaml


@dataclass
class Generation:
    temperature: float = 1.0
    max_new_tokens: int = 256

    @classmethod
    def from_dict(cls, given):
        names = {each.name for each in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in given.items() if key in names})


class Engine:
    def __init__(self, path="configs/rollout.yaml"):
        with open(path) as file:
            config = yaml.safe_load(file)["rollout"]
        self.generation = Generation.from_dict(config["generation"])
# file: configs/rollout.yaml
rollout:
  generation:
    temperature: 1.0
    max_new_token: 2048  # error: MP307
""",
    _CLASSES
    + """# file: configs/ppo.yaml
learning_rate: 1.0e-6
batch_size: 64
step: 200  # error: MP307
accelerator:
  ulysses_size: 2
  offload:  # error: MP307
    enable_activation: true
""",
    # pydantic drops the key without a word
    """# file: rl/__init__.py
# file: rl/config.py
from pydantic import BaseModel


class EnvConfig(BaseModel):
    group_size: int = 4
    max_tokens: int = 2048
    worker_timeout_seconds: float = 600
    tokenizer: str
    wandb: bool = False
# file: environment.toml
[env]
group_size = 8
max_tokens = 4096
tokenizer = "model"
wandb = true
worker_timeout = 7200  # error: MP307
""",
)

CORRECT = (
    """# file: rollout.py
import dataclasses
from dataclasses import dataclass

import yaml


@dataclass
class Generation:
    temperature: float = 1.0
    max_new_tokens: int = 256

    @classmethod
    def from_dict(cls, given):
        names = {each.name for each in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in given.items() if key in names})


class Engine:
    def __init__(self, path="configs/rollout.yaml"):
        with open(path) as file:
            config = yaml.safe_load(file)["rollout"]
        self.generation = Generation.from_dict(config["generation"])
# file: configs/rollout.yaml
rollout:
  generation:
    temperature: 1.0
    max_new_tokens: 2048
""",
    _CLASSES
    + """# file: configs/ppo.yaml
common: &offload
  enable_activation: true
defaults: [base]
learning_rate: 1.0e-6
batch-size: 64
steps: 200
evaluation: {anything: 1}
accelerator:
  ulysses_size: 2
  offload_config: *offload
# file: other.yaml
learning_rate: 0.1
name: of another program
host: localhost
""",
    # an alias, an old name that is still read, a beginning that is taken off
    """# file: rl/__init__.py
# file: rl/config.py
from pydantic import BaseModel, Field, model_validator


class Config(BaseModel):
    steps: int = Field(8, alias="max_steps")
    batch_size: int = 1
    offload: bool = False
    state: str = "full"
    lr: float = 1e-6

    @model_validator(mode="before")
    @classmethod
    def old(cls, data):
        data.setdefault("batch_size", data.pop("micro_batch", 1))
        return {key.removeprefix("fsdp_"): value for key, value in data.items()}
# file: conf.yaml
max_steps: 3
micro_batch: 2
batch_size: 4
offload: true
state: full
lr: 1.0e-5
fsdp_offload: true
""",
    # what an annotation says is not what the file is read for: the code asks for other keys
    """# file: rl/__init__.py
# file: rl/definitions.py
from dataclasses import dataclass, field


@dataclass
class Training:
    seed: int = 1
    steps: int = 8
    rate: float = 1e-6


@dataclass
class Arguments:
    training: Training = field(default_factory=Training)
    name: str = ""
    host: str = ""
    port: int = 0
# file: rl/native.py
from omegaconf import OmegaConf

from rl.definitions import Arguments


def main(path):
    config: Arguments = OmegaConf.load(path)
    print(config.training.strategy)
# file: conf.yaml
name: one
host: here
port: 1
training:
  seed: 3
  steps: 4
  rate: 0.1
  strategy: fsdp
""",
    # a part of the file that another part names
    """# file: rl/__init__.py
# file: rl/config.py
import yaml
from pydantic import BaseModel


class Parts(BaseModel):
    steps: int
    loader: dict
    rate: float


def main(path):
    return Parts(**yaml.safe_load(open(path)))
# file: conf.yaml
steps: 3
rate: 0.1
train_set:
  path: data
loader:
  set: train_set
""",
    # a job that another program starts; the project has a class for jobs of its own
    """# file: rl/__init__.py
# file: rl/jobs.py
from dataclasses import dataclass, field

from omegaconf import OmegaConf


@dataclass
class Resources:
    cpus: str = ""
    memory: str = ""
    region: str = ""
    disk_size: int = 0


@dataclass
class Job:
    name: str = ""
    working_dir: str = "."
    resources: Resources = field(default_factory=Resources)
    envs: dict = field(default_factory=dict)
    setup: str = ""
    run: str = ""


def load(path):
    return OmegaConf.merge(OmegaConf.structured(Job), OmegaConf.load(path))
# file: scripts/sky.yaml
name: tokens
resources:
  cpus: "32+"
  memory: "64+"
  region: us-central1
  disk_size: 200
  any_of:
    - use_spot: false
workdir: .
envs:
  NAME: tokens
setup: pip install rl
run: python tokens.py
""",
    # a small section under the name of one that fills a class, for another program: most is strange to that
    """# file: rl/__init__.py
# file: rl/settings.py
from dataclasses import dataclass

from omegaconf import OmegaConf


@dataclass
class AsyncTraining:
    staleness_threshold: float = 0.1
    trigger_sync_step: int = 4
    partial_rollout: bool = False
    minibatches: int = 1


def load(path):
    return AsyncTraining(**OmegaConf.load(path).async_training)
# file: conf/own.yaml
async_training:
  staleness_threshold: 0.5
  trigger_sync_step: 2
  partial_rollout: true
  minibatches: 2
# file: conf/verl.yaml
async_training:
  staleness_threshold: 0.5
  require_batches: 1
  required_samples: 128
  use_trainer_do_validate: false
""",
)

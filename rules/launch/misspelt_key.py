"""A configuration file has a key that its program does not know, and that is nearly one that it does.

What it does
    Reports keys of DeepSpeed's and accelerate's configuration that are unknown and close to a known one, in the
    sections whose keys are fixed, or that belong in another section of the file. Unknown keys that resemble none are
    left alone: a newer version may have them.
    In a configuration file that a launch hands to a program of the project, it reports a key that occurs nowhere in
    the program, beside one of nearly the same name that the program has (a field of the settings class that the file
    fills, or a key that its code reads) and that the file leaves out.

Why is this bad
    DeepSpeed's `zero_optimization` and accelerate refuse the file when the job starts; elsewhere the setting is left
    unread, and the default trains in its place.

References
    https://www.deepspeed.ai/docs/config-json/
    https://huggingface.co/docs/accelerate/package_reference/cli
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from validator.facts.config_files import Setting, Settings
from validator.finding import Finding
from validator.project import Module, Project
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule(
    "MP711", "misspelt-key", "error", "0.1.0",
    tokens=("zero_optimization", "compute_environment", "parallel", "batch", "seq_len"),
    languages=("json", "yaml", "toml"),
)  # fmt: skip

_NEAR = 0.8
_SECTION = 2  # keys that a program reads, which make the section theirs its own


class Schema(NamedTuple):
    """The keys that a program knows, by section (dotted; empty for the top)."""

    name: str
    language: str
    marks: tuple[str, ...]
    elsewhere: Mapping[str, tuple[str, ...]]  # by another language the keys by which a file in it is known
    keys: Mapping[str, tuple[str, ...]]


@lru_cache(maxsize=1)
def schemas() -> tuple[Schema, ...]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schemas.toml")
    with open(path, "rb") as file:
        rows = tomllib.load(file)["schema"]
    return tuple(
        Schema(
            r["name"],
            r["language"],
            tuple(r["marks"]),
            {k: tuple(v) for k, v in r.get("elsewhere", {}).items()},
            {k: tuple(v) for k, v in r["keys"].items()},
        )
        for r in rows
    )


def check_project(project: Project) -> Iterator[Finding]:
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for path, settings, module in _own_files(project):
        for setting, near, owner in _unread(project, settings, module):
            if (path, setting.path) not in seen:
                seen.add((path, setting.path))
                yield RULE.finding(
                    path,
                    setting.at,
                    f"`{module.name}` has no key `{setting.path[-1]}`, but `{near}`{owner}",
                    help=f"name it `{near}`",
                    context=".".join(setting.path),
                )


def _own_files(project: Project) -> Iterator[tuple[str, Settings, Module]]:
    """The configuration files that launches hand to programs of the project."""
    if not any("settings" in source.facts.extra for source in project.files.values()):
        return
    from rules.launch._reading.files import Files
    from rules.launch._reading.offers import files_named
    from validator.analysis.commands.command_line import CommandLines

    files = Files(project)
    for launch, line in project.analysis(CommandLines).all:
        for name in files_named(line, launch.parser) if launch.module is not None else ():
            found = files.by_path(name, launch.path, launch.home)
            if found is not None and launch.module is not None and not _is_known(*found):
                yield *found, launch.module


def _is_known(path: str, settings: Settings) -> bool:
    """Whether a file is another program's: one of the schemas, or the shape of a model."""
    known = any(all(settings.get(mark) for mark in schema.marks) for schema in schemas())
    return known or path.endswith("config.json") or settings.get("defaults") is not None


def _unread(project: Project, settings: Settings, module: Module) -> Iterator[tuple[Setting, str, str]]:
    """The keys that the program does not have, each with the one that is meant and where that is."""
    import difflib

    from rules.launch._reading.offers import fills
    from validator.analysis.commands.programs import Programs

    programs = project.analysis(Programs)
    words = programs.words(module)
    scalars = [each for each in settings.settings if each.kind == "scalar" and each.path[-1].isidentifier()]
    strangers = [each for each in scalars if each.path[-1] not in words]
    filled = fills(settings, programs.settings(module)) if strangers else []
    present = {each.path[-1] for each in settings.settings}
    for each in strangers:
        beside = [other.path[-1] for other in scalars if other.path[:-1] == each.path[:-1] and other is not each]
        known = {name: f", a field of `{c.cls.facts.name}`" for c in filled for name in c.fields}
        if not known and len(beside) >= _SECTION and all(name in words for name in beside):
            known = dict.fromkeys(programs.keys(module), ", which it reads")
        near = difflib.get_close_matches(each.path[-1], sorted(known.keys() - present), 1, _NEAR)
        if near and (filled or near[0].rstrip("s") != each.path[-1].rstrip("s")):
            yield each, near[0], known[near[0]]


def check_file(source: SourceFile) -> Iterator[Finding]:
    settings: Settings | None = source.facts.extra.get("settings")
    if settings is None:
        return
    for schema in schemas():
        language = source.facts.language
        marks = schema.marks if schema.language == language else schema.elsewhere.get(language, ())
        if marks and all(settings.get(mark) for mark in marks):
            for setting in settings.settings:
                if (known := schema.keys.get(".".join(setting.path[:-1]))) is not None:
                    yield from _report(source, schema, setting, known, settings)


def _report(
    source: SourceFile, schema: Schema, setting: Setting, known: tuple[str, ...], settings: Settings
) -> Iterator[Finding]:
    import difflib

    name = setting.path[-1]
    if name in known or name.startswith("_"):
        return
    if (section := _home(schema, name, settings)) is not None:
        yield RULE.finding(
            source.path,
            setting.at,
            f"{schema.name} knows `{name}` in `{section or 'the top level'}` alone: it is not read here",
            help=f"move it into `{section}`" if section else "move it to the top level",
            context=".".join(setting.path),
        )
        return
    near = difflib.get_close_matches(name, known, 1, _NEAR)
    if not near or settings.get(*setting.path[:-1], near[0]) is not None:
        return
    where = ".".join(setting.path[:-1])
    place = f"`{where}` of {schema.name}" if where else schema.name
    yield RULE.finding(
        source.path,
        setting.at,
        f"{place} has no key `{name}`, but `{near[0]}`",
        help=f"name it `{near[0]}`",
        context=".".join(setting.path),
    )


def _home(schema: Schema, name: str, settings: Settings) -> str | None:
    """The one section of a schema that has a key, where the file has that section, and the key is not in it."""
    homes = [section for section, keys in schema.keys.items() if name in keys]
    if len(homes) != 1 or "_" not in name:
        return None  # `enabled`, `type`: keys of sections that the schema may not have
    path = tuple(homes[0].split(".")) if homes[0] else ()
    there = not path or settings.get(*path) is not None
    return homes[0] if there and settings.get(*path, name) is None else None


_PROGRAM = """# file: pre/__init__.py
# file: pre/train.py
import argparse
import tomllib

from pre.settings import Config

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="conf.toml")
with open(parser.parse_args().config, "rb") as file:
    raw = tomllib.load(file)
known = Config.__dataclass_fields__
print(Config(**{k: v for part in raw.values() for k, v in part.items() if k in known}))
# file: pre/settings.py
from dataclasses import dataclass, field


@dataclass
class Config:
    seq_len: int = 8192
    local_batch: int = 1
    global_batch: int = 64
    betas: tuple = field(default=(0.9, 0.95))
# file: run.sh
torchrun --nproc_per_node 8 -m pre.train --config conf.toml
"""

_READER = """# file: plain/__init__.py
# file: plain/train.py
import sys

import yaml

with open(sys.argv[1]) as file:
    config = yaml.safe_load(file)
train = config["train"]
print(train["seq_len"], train["learning_rate"], train.get("warmup_steps", 0), config["optimizer"])
# file: run.sh
torchrun --nproc_per_node 8 plain/train.py conf.yaml
"""

_IN_YAML = """# file: ds.yaml
train_micro_batch_size_per_gpu: 4
gradient_clipping: 1.0
zero_optimization:
  stage: 3
  overlap_comm: true
{inside}{outside}steps_per_print: 100
"""

INCORRECT = (
    _IN_YAML.replace("{inside}", "").replace(
        "{outside}", "stage3_gather_16bit_weights_on_model_save: true  # error: MP711\n"
    ),
    """# file: ds_config.json
{
  "train_micro_batch_size_per_gpus": 4,  # error: MP711
  "zero_optimization": {
    "stage": 3,
    "overlap_com": true,  # error: MP711
    "offload_param": {
      "device": "cpu",
      "pin_memmory": true  # error: MP711
    }
  }
}
""",
    """# file: fsdp.yaml
compute_environment: LOCAL_MACHINE
num_procesess: 8  # error: MP711
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_foward: true  # error: MP711
""",
    _PROGRAM
    + """# file: conf.toml
[training]
seq_len = 4096
local_bach = 2  # error: MP711
global_batch = 128
""",
    _READER
    + """# file: conf.yaml
train:
  seq_len: 4096
  learning_rate: 1.0e-5
  warm_up_steps: 100  # error: MP711
""",
)

CORRECT = (
    _IN_YAML.replace("{inside}", "  stage3_gather_16bit_weights_on_model_save: true\n").replace("{outside}", ""),
    """# file: ds_config.json
{
  "_comment": "for eight GPUs",
  "train_micro_batch_size_per_gpu": "auto",
  "a_new_feature": {"anything": 1},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "beta": [0.9, 0.95]}},
  "zero_optimization": {"stage": 3, "overlap_comm": true, "offload_param": {"device": "none"}}
}
""",
    """# file: other.yaml
num_procesess: 8
zero_optimizations: 3
# file: fsdp.yaml
compute_environment: LOCAL_MACHINE
num_processes: 8
fsdp_config:
  fsdp_version: 2
  my_own_key: true
""",
    _PROGRAM
    + """# file: conf.toml
[training]
seq_len = 4096
local_batch = 2
global_batch = 128
[notes]
author = "somebody"
# file: other.toml
[training]
seq_len = 4096
local_bach = 2
""",
    _READER
    + """# file: conf.yaml
train:
  seq_len: 4096
  learning_rate: 1.0e-5
  warmup_steps: 100
  warmup_stepss_of_others: 5
optimizer:
  learning_rates: 3
  fused: true
""",
    # keys that older releases of DeepSpeed had
    """# file: old.json
{
  "fp32_allreduce": true,
  "zero_optimization": {"stage": 3, "cpu_offload": true, "cpu_offload_params": true}
}
""",
    # a key without its prefix
    """\
# file: fsdp.yaml
compute_environment: LOCAL_MACHINE
num_processes: 8
fsdp_config:
  cpu_ram_efficient_loading: true
  fsdp_version: 2
""",
)

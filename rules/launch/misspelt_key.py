"""A configuration file has a key that its program does not know, and that is nearly one that it does.

What it does
    Reports keys of DeepSpeed's JSON and accelerate's YAML configuration that are unknown and close to a known one, in
    the sections whose keys are fixed. Unknown keys that resemble none are left alone: a newer version may have them.

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
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule(
    "MP711", "misspelt-key", "error", "0.1.0", tokens=("zero_optimization", "compute_environment"),
    languages=("json", "yaml"),
)  # fmt: skip

_NEAR = 0.8


class Schema(NamedTuple):
    """The keys that a program knows, by section (dotted; empty for the top)."""

    name: str
    language: str
    marks: tuple[str, ...]
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
        Schema(r["name"], r["language"], tuple(r["marks"]), {k: tuple(v) for k, v in r["keys"].items()}) for r in rows
    )


def check_file(source: SourceFile) -> Iterator[Finding]:
    settings: Settings | None = source.facts.extra.get("settings")
    if settings is None:
        return
    for schema in schemas():
        if schema.language == source.facts.language and all(settings.get(mark) for mark in schema.marks):
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


INCORRECT = (
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
)

CORRECT = (
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
)

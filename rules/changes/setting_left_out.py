"""A setting that a change gave some files and began to ask for, and that another file of the kind does not have.

What it does
    Compares the keys of configuration files before and after a change, and what code asks configurations for. Reports
    a file without a key that the change put into others, and for which code asks without a default since
    (`info.ann_file`, `config["ann_file"]`): a file that the class which asks names, or, where none is named, one
    beside those with the key, with the same keys else. Silent where code may set the key itself, or tests for it.

Why is this bad
    The run with the recipe that was changed works; each of the others stops at the first read of the key.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.change import Change
from validator.drift.settings.new_settings import NewSettings
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP915", "setting-left-out", "warning", stable_since="0.6.0")


def check_change(change: Change) -> Iterator[Finding]:
    for row in change.analysis(NewSettings).lacking:
        path, line = row.given
        yield RULE.finding(
            row.source.path,
            row.at,
            f"`{row.name}` is not set here: the change set it in `{path}`, and `{row.asked.path}` asks for it since, "
            "without a default",
            help=f"set `{row.name}` here, too, or ask with a default",
            related=[
                Related(path, line, f"`{row.name}` is set here since the change"),
                Related(row.asked.path, row.asked.at[0], "asked for here"),
            ],
            context=f"{row.source.path}:{row.name}",
        )


_BUILDERS = """import os


class Builder:
    def __init__(self, config):
        self.config = config

    def build(self):
        info = self.config.build_info
        return [os.path.join(info.storage, "train.json")]


class First(Builder):
    CONFIGS = {"default": "configs/first.yaml"}

    def build(self):
        info = self.config.build_info
        return [os.path.join(info.storage, {first})]


class Second(Builder):
    CONFIGS = {"default": "configs/second.yaml"}

    def build(self):
        info = self.config.build_info
        return [os.path.join(info.storage, {second})]
"""
_FILES = """# before: configs/first.yaml
build_info:
  storage: data/first
# file: configs/second.yaml
build_info:
  storage: data/second{second}
# file: configs/third.yaml
build_info:
  storage: data/third
# file: configs/first.yaml
build_info:
  storage: data/first
  ann_file: first.json
"""


def _builders(second: str, read: str) -> str:
    before = _BUILDERS.replace("{first}", '"first.json"').replace("{second}", '"second.json"')
    after = _BUILDERS.replace("{first}", "info.ann_file").replace("{second}", read)
    return f"# before: build.py\n{before}{_FILES.replace('{second}', second)}# file: build.py\n{after}"


_RECIPES = """# before: train.py
import sys

import yaml


def main():
    config = yaml.safe_load(open(sys.argv[1]))
    return config["lr"] * 2, config["batch"]
# before: recipes/small.yaml
lr: 0.1
batch: 8
# file: recipes/small.yaml
lr: 0.1
batch: 8
warmup: 10
# file: recipes/large.yaml
{mark}lr: 0.01
batch: 64
# file: recipes/serve.yaml
port: 80
# file: train.py
import sys

import yaml


def main():
    config = yaml.safe_load(open(sys.argv[1]))
    return config["lr"] * 2, config["batch"], {read}
"""

INCORRECT = (
    _builders("  # error: MP915", "info.ann_file"),
    _RECIPES.replace("{mark}", "# the large model\n")
    .replace("{read}", 'config["warmup"]')
    .replace("lr: 0.01", "lr: 0.01  # error: MP915"),
)

CORRECT = (
    _builders("", '"second.json"'),
    _builders("\n  ann_file: second.json", "info.ann_file"),
    _RECIPES.replace("{mark}", "").replace("{read}", 'config.get("warmup", 0)'),
)

"""What `--help` says of settings that several commands have: a line on each, with the default that would hold."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from bench import backends
from bench.configuration import SETTINGS

OWN = "the model’s own"


def describe(parser: argparse.ArgumentParser, gpus: Mapping[str, Any], cpu: Mapping[str, Any]) -> None:
    """Give flags without help the text of the setting of their name, and all their default: `gpus` and `cpu` hold what
    settings are where nobody gives them, on machines with GPUs and without. None there means: by the model or the
    inputs."""
    seen: set[str] = set()
    for action in parser._actions:  # argparse has no public list of them
        if action.help == argparse.SUPPRESS or action.dest == "help":
            continue
        alias = action.dest in seen and action.nargs == 0
        seen.add(action.dest)
        said = action.help or (_same_as(action) if alias else told(action.dest))
        action.help = "; ".join(part for part in (said, _default(action, said, gpus, cpu)) if part)


def told(name: str) -> str:
    """What the help of a flag says of the setting of its name; "" for one that is none."""
    setting = SETTINGS.get(name)
    if setting is None:
        return ""
    return setting.text.format(choices=", ".join(map(str, setting.choices)), backends=", ".join(backends.names()))


def _same_as(action: argparse.Action) -> str:
    """For a switch that stands for a value of another flag."""
    return f"the same as --{action.dest.replace('_', '-')}={_shown(action.const)}"


def _default(action: argparse.Action, said: str, gpus: Mapping[str, Any], cpu: Mapping[str, Any]) -> str:
    switch = action.nargs == 0 and not isinstance(action, argparse.BooleanOptionalAction)
    if "default" in said or switch:
        return ""
    here, there = (_shown(values.get(action.dest, action.default)) for values in (gpus, cpu))
    if here == there:
        return f"default {here}" if here else ""
    return f"default {here or OWN}, without GPUs {there or OWN}"


def _shown(value: Any) -> str:
    if value is None or value == []:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_shown, value))
    return str(value).replace("%", "%%")

"""The flags of `bench run` that are settings: made from the settings themselves, each of which takes a list."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.configuration import SETTINGS, Configuration, kinds
from bench.terminal.help_texts import told
from bench.terminal.parsing import choice, listed, switch, whole


def add(p: argparse.ArgumentParser) -> None:
    """A flag for each setting that takes a list, and the switches that stand for values; None where it is not given."""
    for title in dict.fromkeys(setting.group for setting in SETTINGS.values() if setting.group):
        group = p.add_argument_group(title)
        for name in (name for name, setting in SETTINGS.items() if setting.group == title):
            _add(group, name)
    add_old_names(group, several=True)


def _add(group: Any, name: str) -> None:
    setting = SETTINGS[name]
    flags = _names(name)
    alone = True if bool in kinds()[name] else setting.alone
    more: dict[str, Any] = {"nargs": "?", "const": [alone]} if alone is not None else {}
    text = "; ".join(filter(None, (told(name), setting.unset)))  # `described` adds the default
    group.add_argument(*flags, dest=name, type=listed_value(name), help=text, **more)
    if bool in kinds()[name] and getattr(Configuration, name):
        negative = [flag.replace("--", "--no-", 1) for flag in flags[: 1 + ("_" in name)]]
        group.add_argument(*negative, *setting.off, dest=name, action="store_const", const=[False])


def add_one(group: Any, *names: str, **more: Any) -> None:
    """A flag for each setting that takes one value, None where it is not given; `more` goes to argparse."""
    for name in names:
        kind, setting = kinds()[name], SETTINGS[name]
        if bool in kind:
            how: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
        elif setting.choices:
            how = {"choices": setting.choices, "type": int if int in kind else str}
        else:
            how = {"type": reader(name)}
        if setting.alone is not None:
            how |= {"nargs": "?", "const": setting.alone}
        group.add_argument(*_names(name), dest=name, **{"help": told(name), **how, **more})


OLD_NAMES = (
    ("--flash-attn", "attn", "flash_attention_2"), ("--no-flash-attn", "attn", "sdpa"),
    ("--deepcompile", "compile", "deepcompile"), ("--use_hf_tp_plan", "tp_plan", "hf"),
)  # fmt: skip
"""Flags of OpenRLHF's scripts, and the settings that they give."""


class _StandsFor(argparse.Action):
    """A switch that gives another flag a value, unless that one is given itself."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        if getattr(namespace, self.dest) == parser.get_default(self.dest):
            setattr(namespace, self.dest, self.const)


def add_old_names(group: Any, *, several: bool = False) -> None:
    """The flags that OpenRLHF's scripts have for values of settings, and what its launchers pass to every rank."""
    for flag, name, value in OLD_NAMES:
        group.add_argument(flag, dest=name, action=_StandsFor, nargs=0, const=[value] if several else value,
                           help=f"the same as --{name.replace('_', '-')}={value}")  # fmt: skip
    group.add_argument("--local_rank", "--local-rank", type=int, help=argparse.SUPPRESS)


def given(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that the flags give."""
    return {name: value for name, value in vars(options).items() if name in SETTINGS and value is not None}


def _names(name: str) -> list[str]:
    return [f"--{name.replace('_', '-')}", *[f"--{name}"] * ("_" in name), *SETTINGS[name].others]


def listed_value(name: str) -> Callable[[str], list[Any]]:
    """What reads a setting's values on a command line. It raises argparse.ArgumentTypeError."""
    if reader(name) is str:
        return _paths if name in ("inputs", "model") else _texts
    return listed(reader(name))


def reader(name: str) -> Callable[[str], Any]:
    """What reads one value of a setting. It raises argparse.ArgumentTypeError."""
    allowed, setting = kinds()[name], SETTINGS[name]
    if setting.choices:
        return choice(setting.choices)
    if bool in allowed:
        return switch
    if float in allowed:
        return _number(float, "a number")
    if int in allowed:
        return _number(int, "a whole number") if setting.any_number else whole
    return str


def _texts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _paths(text: str) -> list[str]:
    """A comma may be part of a path that is there."""
    return [text] if Path(text).exists() else _texts(text) or [text]


def _number(kind: Callable[[str], Any], words: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {words}") from None

    return read

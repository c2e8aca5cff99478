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
    group.add_argument("--flash-attn", dest="flash_attn", action=argparse.BooleanOptionalAction,
                       help="FlashAttention-2, or SDPA")  # fmt: skip
    group.add_argument("--deepcompile", action="store_true", help="the same as --compile=deepcompile")
    group.add_argument("--use_hf_tp_plan", dest="tp_plan", action="store_const", const=["hf"])


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
            number = int if setting.any_number else whole if int in kind else str
            how = {"type": float if float in kind else number}
        if setting.alone is not None:
            how |= {"nargs": "?", "const": setting.alone}
        group.add_argument(*_names(name), dest=name, **{"help": told(name), **how, **more})


def _names(name: str) -> list[str]:
    return [f"--{name.replace('_', '-')}", *[f"--{name}"] * ("_" in name), *SETTINGS[name].others]


def listed_value(name: str) -> Callable[[str], list[Any]]:
    """What reads a setting's values on a command line. It raises argparse.ArgumentTypeError."""
    allowed, setting = kinds()[name], SETTINGS[name]
    if setting.choices:
        return listed(choice(setting.choices))
    if bool in allowed:
        return listed(switch)
    if float in allowed:
        return listed(_number(float, "a number"))
    if int in allowed:
        return listed(_number(int, "a whole number") if setting.any_number else whole)
    return _paths if name in ("inputs", "model") else _texts


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

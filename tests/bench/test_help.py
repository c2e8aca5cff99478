"""`--help` of the commands that measure: a text on every flag, and the defaults that hold."""

from __future__ import annotations

import argparse
import importlib

import pytest

from bench.commands import run
from bench.configuration import SETTINGS
from bench.terminal.help_texts import told


def texts(command: str) -> dict[str, str]:
    """What `--help` says of every flag, by its first name."""
    parser: argparse.ArgumentParser = importlib.import_module(f"bench.commands.{command}").parser()
    parser.format_help()  # a stray per cent sign would raise here
    return {a.option_strings[0]: a.help or "" for a in parser._actions if a.option_strings}


@pytest.mark.parametrize("command", ["run", "suite", "sft", "matrix"])
def test_every_flag_is_described(command: str) -> None:
    assert [flag for flag, text in texts(command).items() if not text] == []


def test_the_defaults_told_are_those_that_hold() -> None:
    told = texts("run")
    laptop, server = run.expand({}, 0)[0], run.expand({}, 1)[0]
    for flag in ("--tp", "--lr", "--max-norm", "--head", "--warmup", "--optimizer", "--random-seed"):
        value = getattr(laptop, flag[2:].replace("-", "_"))
        assert told[flag].endswith(f"default {value}"), flag
    for flag in ("--model", "--dtype", "--steps", "--seq-len", "--device"):
        name = flag[2:].replace("-", "_")
        assert told[flag].endswith(f"default {getattr(server, name)}, without GPUs {getattr(laptop, name)}"), flag
    assert told["--packing"].endswith("default on")


def test_flags_of_a_run_are_made_from_the_settings() -> None:
    """A setting is described in one place: its field. No flag is lacking, none takes what the setting does not."""
    parser = run.parser()
    flags = {action.dest: action for action in reversed(parser._actions)}
    for name, setting in SETTINGS.items():
        if not setting.text:
            assert name not in flags  # the hash of the inputs, which nobody gives
            continue
        assert set(setting.others) < set(flags[name].option_strings) or not setting.others, name
        assert str(flags[name].help).startswith(told(name)), name
        if setting.choices and not setting.single:
            for value in setting.choices:
                assert vars(parser.parse_args([f"--{name.replace('_', '-')}", str(value)]))[name] == [value]
            with pytest.raises(SystemExit):
                parser.parse_args([f"--{name.replace('_', '-')}", "none-of-these"])


def test_a_switch_for_a_value_of_another_flag_says_so() -> None:
    assert texts("run")["--use_hf_tp_plan"] == "the same as --tp-plan=hf"
    assert texts("sft")["--no-flash-attn"] == "the same as --attn=sdpa"

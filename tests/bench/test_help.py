"""`--help` of the commands that measure: a text on every flag, and the defaults that hold."""

from __future__ import annotations

import argparse
import importlib

import pytest

from bench.commands import run


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


def test_a_switch_for_a_value_of_another_flag_says_so() -> None:
    assert texts("run")["--use_hf_tp_plan"] == "the same as --tp-plan=hf"
    assert texts("sft")["--no-flash-attn"] == "the same as --attn=sdpa"

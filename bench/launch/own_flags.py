"""The commands of bench in a launch script, held against the flags that they have. Nothing of the script is run."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
from collections.abc import Iterator
from typing import Any, NoReturn

from bench.cli import COMMANDS, DEFAULT
from bench.launch.script import commands
from bench.terminal.parsing import nearest

EXPANDED = ("$", "`", "*", "?", "{", "~")
"""What a shell replaces: the word that comes of it is not known here."""
CODE = "bench-flags"


class _Wrong(Exception):
    """What argparse has to say of arguments."""


def check(text: str) -> list[dict[str, Any]]:
    """Findings for each `-m bench …` of a script, as the validator writes them: line, severity, code, message."""
    found = []
    for line, arguments in _calls(text):
        problem = _problem(arguments)
        if problem:
            found.append({"line": line, "severity": "error", "code": CODE, "message": problem, "help": ""})
    return found


def _calls(text: str) -> Iterator[tuple[int, list[str]]]:
    """The line of each call of bench, and its arguments."""
    for line, words in commands(text):
        for at in range(len(words) - 1):
            if words[at] in ("-m", "--module") and words[at + 1] == "bench":
                yield line, words[at + 2 :]


def _problem(arguments: list[str]) -> str | None:
    """What is wrong with the arguments; None too where the shell makes words that are not known, or where the
    command's packages are not on this machine."""
    name, rest = (
        (DEFAULT, arguments) if not arguments or arguments[0].startswith("-") else (arguments[0], arguments[1:])
    )
    if any(mark in name for mark in EXPANDED):
        return None
    if name not in COMMANDS:
        return f"bench has no command `{name}`{nearest(name, COMMANDS)}"
    try:
        parser: argparse.ArgumentParser = importlib.import_module(f"bench.commands.{name.replace('-', '_')}").parser()
    except ImportError:
        return None
    flags = [flag for flag in parser._option_string_actions if flag.startswith("--")]
    known = [word.partition("=")[0] for word in rest if word.startswith("--") and word != "--"]
    for flag in known:
        if flag not in flags and not any(mark in flag for mark in EXPANDED):
            return f"`{flag}` is no option of `bench {name}`{nearest(flag, flags)}"
    if any(mark in word for word in rest for mark in EXPANDED):
        return None
    return _parsed(parser, name, rest)


def _parsed(parser: argparse.ArgumentParser, name: str, arguments: list[str]) -> str | None:
    def error(message: str) -> NoReturn:
        raise _Wrong(message)

    parser.error = error  # type: ignore[method-assign]
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # of --help
            parser.parse_args(arguments)
    except _Wrong as wrong:
        return f"`bench {name}`: {wrong}"
    except SystemExit:
        pass
    return None

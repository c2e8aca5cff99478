"""Command lines: one line for what is wrong with them, with the nearest name; lists of values."""

from __future__ import annotations

import argparse
import difflib
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

USAGE = 2
LARGEST = 10**12
"""Of all sizes: more is a slip, and arithmetic with it would leave the range of floats."""
WIDE = "all columns, however wide the terminal is"


def nearest(name: str, names: Iterable[str]) -> str:
    """Words for the name that was probably meant, letter case aside; "" where none is near."""
    known = {each.lower(): each for each in names}
    near = difflib.get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {known[near[0]]}?" if near else ""


def share(text: str) -> float:
    """A relative difference such as 0.05, or 5%. Raises argparse.ArgumentTypeError."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no share: write 0.05 or 5%")
    return value


class Parser(argparse.ArgumentParser):
    """argparse's, without abbreviations, whose errors are one line on stderr and exit status 2."""

    def __init__(self, *, prog: str, description: str | None, epilog: str | None = None) -> None:
        super().__init__(prog=f"python -m {prog}", description=description, epilog=epilog, allow_abbrev=False)

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse's; the first flag that does not exist is told with the nearest one."""
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            name = rest[0].partition("=")[0]
            kind = "flag" if name.startswith("-") else "argument"
            said = [flag for flag in self._option_string_actions if flag == "-" + flag[1:].replace("_", "-")]
            hint = (
                nearest(name, said)
                or nearest(name, self._option_string_actions)
                or f"; {self.prog} --help shows what there is"
            )
            self.error(f"no such {kind}: {name}{hint}")
        return options

    def error(self, message: str) -> NoReturn:
        name = self.prog.removeprefix("python -m ")
        print(f"{name}: {' '.join(message.split())}", file=sys.stderr)
        raise SystemExit(USAGE)


def listed(read: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    """A reader of comma-separated values, of which there may be one. Raises argparse.ArgumentTypeError."""

    def values(text: str) -> list[Any]:
        parts = [part.strip() for part in text.split(",")]
        return [read(part) for part in parts if part or len(parts) == 1]

    return values


def whole(text: str) -> int:
    """A number from 1 on. Raises argparse.ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or len(text) > 4000 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 1 on")
    if int(text) > LARGEST:
        raise argparse.ArgumentTypeError(f"{text[:40]} is larger than {LARGEST}")
    return int(text)


def switch(text: str) -> bool:
    """`on` or `off`, and what else people write for these. Raises argparse.ArgumentTypeError."""
    words = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
    if text.lower() not in words:
        raise argparse.ArgumentTypeError(f"{text!r} is neither on nor off")
    return words[text.lower()]


def choice(values: Sequence[Any]) -> Callable[[str], Any]:
    """One of few values, named when it is none of them. Raises argparse.ArgumentTypeError."""

    def read(text: str) -> Any:
        for value in values:
            if str(value) == text:
                return value
        shown = ", ".join(map(str, values))
        hint = nearest(text, map(str, values))
        raise argparse.ArgumentTypeError(f"{text!r}: choose from {shown}{hint}")

    return read

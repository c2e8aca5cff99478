"""The command in a launch script, read as the validator reads shell scripts, and its options by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from typing import TypeVar

from bench.launch.script import commands
from bench.problems import Problem

T = TypeVar("T", int, float)
Names = str | tuple[str, ...]
"""An option, or one under all the names that it has had."""
_SETTING = re.compile(r"\+{0,2}[A-Za-z_][\w.]*")
_NEAR = 0.8
"""How alike two names are before one is taken for a misspelling of the other."""


@dataclass
class Command:
    """`words` as the shell would give them; `flags` by name without dashes, true for those without a value;
    `settings` those written as `key=value`, `added` those of them with Hydra's `+`, which makes new keys.

    `asked` collects the names that were looked up: what else is given, nobody has understood.
    """

    words: list[str]
    flags: dict[str, str | bool] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)

    def given(self, names: Names) -> str | bool | None:
        """What the first of these names that is given has; None where none is."""
        every = _listed(names)
        self.asked.update(every)
        name = next((name for name in every if name in self.settings or name in self.flags), None)
        return None if name is None else self.settings.get(name, self.flags.get(name))

    def number(self, names: Names, default: int) -> int:
        """A whole number under a flag or a setting. Raises `Problem` for anything else."""
        return self._converted(names, default, int, "a whole number")

    def share(self, names: Names, default: float) -> float:
        return self._converted(names, default, float, "a number")

    def text(self, names: Names, default: str = "") -> str:
        value = self.given(names)
        return default if value is None else str(value)

    def several(self, names: Names) -> tuple[str, ...]:
        """All values of an option: words up to the next one, or a list as Hydra writes it; () where it is not given."""
        first = self.given(names)
        if first is None or isinstance(first, bool) or first.lower() in ("null", "none"):
            return ()
        at = next(
            (at for at, word in enumerate(self.words) if word.startswith("--") and _key(word) in _listed(names)), None
        )
        words = [first]
        if at is not None and "=" not in self.words[at]:
            words = list(takewhile(lambda word: not word.startswith("-"), self.words[at + 1 :]))
        return tuple(filter(None, re.split(r"[\s,\[\]'\"]+", " ".join(words))))

    def on(self, names: Names, default: bool = False) -> bool:
        """Whether a switch is set."""
        value = self.given(names)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        return value.lower() in ("true", "1", "yes", "on")

    def _converted(self, names: Names, default: T, kind: Callable[[str], T], words: str) -> T:
        value = self.given(names)
        if value is None or str(value).lower() in ("null", "none"):
            return default
        try:
            return kind(str(value))
        except ValueError:
            shown = next(name for name in _listed(names) if name in self.settings or name in self.flags)
            outside = "; the script does not say it, or only further down: write its value there" * str(
                value
            ).startswith("$")
            raise Problem(f"{shown}: {value!r} is not {words}{outside}") from None

    def options(self) -> list[str]:
        """The options as words, flags first."""
        valued = {name: [] if value is True else [str(value)] for name, value in self.flags.items()}
        flags = [word for name, values in valued.items() for word in (f"--{name}", *values)]
        return [*flags, *(f"{name}={value}" for name, value in self.settings.items())]

    def not_asked(self) -> list[str]:
        """The options that nothing has asked for."""
        return [name for name in (*self.flags, *self.settings) if name not in self.asked]

    def misspelt(self, name: str, known: Iterable[str]) -> str:
        """The option that a strange one was meant to be; "" where none is near."""
        if name in self.added:
            return ""
        free = [each for each in known if each not in self.flags and each not in self.settings]
        alike = {each: likeness for each in free if (likeness := _likeness(name, each)) >= _NEAR}
        return max(alike, key=lambda each: (alike[each], -abs(len(each) - len(name))), default="")


def _likeness(name: str, other: str) -> float:
    """From 0 to 1, that of the least alike of their parts; a name without a section is held against the last."""
    parts, others = name.split("."), other.split(".")
    others = others[-1:] if len(parts) == 1 else others
    pairs = zip(parts, others, strict=True) if len(parts) == len(others) else ()
    return min((difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs), default=0.0)


def _key(word: str) -> str:
    """The name of an option as flags are kept."""
    return word.partition("=")[0].lstrip("-").replace("-", "_")


def _listed(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def read(text: str, is_meant: Callable[[Sequence[str]], bool]) -> Command:
    """The command of a script that starts what is meant; the longest where several do.

    Lines of comments between the options are left out: posted commands have them. Raises `Problem`, one line, where
    there is none.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    candidates = [words for _, words in commands("\n".join(lines)) if is_meant(words)]
    if not candidates:
        raise Problem("no command of OpenRLHF, verl or TRL in it")
    return parse(max(candidates, key=len))


def parse(words: list[str]) -> Command:
    """The options among these words; what stands before the program (`NAME=value python …`) is its environment."""
    command = Command(words)
    words = list(dropwhile(lambda word: "=" in word, words))
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else "--"
        name, equals, value = word.partition("=")
        if word.startswith("--") and len(word) > 2:
            key = _key(word)
            bare = True if following.startswith("-") and not re.fullmatch(r"-\d[\d.e-]*", following) else following
            command.flags[key] = value if equals else bare
        elif equals and _SETTING.fullmatch(name):
            command.settings[name.lstrip("+")] = value
            if name.startswith("+"):
                command.added.add(name.lstrip("+"))
    return command

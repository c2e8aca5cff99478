"""The command in a launch script: its words after variables of the script are put in, and its options by name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.problems import Problem

_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s;#]*)\s*(?:#.*)?$")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::-([^}]*))?\}|([A-Za-z_]\w*))")
_FRAMEWORKS = re.compile(r"openrlhf|train_ppo|verl\.|verl/|\btrl\b|grpo|ppo", re.IGNORECASE)


@dataclass
class Command:
    """`words` as the shell would give them; `flags` by name without dashes, true for those without a value;
    `settings` those written as `key=value`."""

    words: list[str]
    flags: dict[str, str | bool] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)

    def number(self, name: str, default: int) -> int:
        """A whole number under a flag or a setting. Raises `Problem` for anything else."""
        value = self.settings.get(name, self.flags.get(name, default))
        try:
            return int(str(value))
        except ValueError:
            raise Problem(f"{name}: {value!r} is not a whole number") from None

    def share(self, name: str, default: float) -> float:
        value = self.settings.get(name, self.flags.get(name, default))
        try:
            return float(str(value))
        except ValueError:
            raise Problem(f"{name}: {value!r} is not a number") from None

    def text(self, name: str, default: str = "") -> str:
        return str(self.settings.get(name, self.flags.get(name, default)))

    def on(self, name: str, default: bool = False) -> bool:
        """Whether a switch is set."""
        value = self.settings.get(name, self.flags.get(name, default))
        return value if isinstance(value, bool) else value.lower() in ("true", "1", "yes", "on")


def read(text: str, variables: Mapping[str, str] | None = None) -> Command:
    """The command of a script that starts an RLHF framework; the longest where several look like one.

    Raises `Problem`, one line, where there is none.
    """
    known = dict(variables or {})
    candidates: list[list[str]] = []
    for line in _lines(text):
        assigned = _ASSIGNMENT.match(line)
        if assigned:
            known.setdefault(assigned[1], _expanded(assigned[2].strip("\"'"), known))
            continue
        if _FRAMEWORKS.search(line):
            try:
                words = shlex.split(_expanded(line, known), comments=True)
            except ValueError:
                continue
            candidates.append(words)
    if not candidates:
        raise Problem("no command of OpenRLHF, verl or TRL in it")
    return parse(max(candidates, key=len))


def parse(words: list[str]) -> Command:
    command = Command(words)
    for at, word in enumerate(words):
        following = words[at + 1] if at + 1 < len(words) else "--"
        name, equals, value = word.partition("=")
        if word.startswith("--") and len(word) > 2:
            key = name.lstrip("-").replace("-", "_")
            bare = True if following.startswith("-") and not re.fullmatch(r"-\d[\d.e-]*", following) else following
            command.flags[key] = value if equals else bare
        elif equals and re.fullmatch(r"\+{0,2}[A-Za-z_][\w.]*", name):
            command.settings[name.lstrip("+")] = value
    return command


def _lines(text: str) -> list[str]:
    """Logical lines: continuations joined, comments between them left out, bodies of here-documents as lines."""
    joined, kept = "", []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            continue
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
            continue
        kept.append(joined + line)
        joined = ""
    return [*kept, joined] if joined else kept


def _expanded(text: str, variables: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        return variables.get(name, match[2] if match[2] is not None else match[0])

    return _VARIABLE.sub(value, text)

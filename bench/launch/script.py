"""A launch script with a Slurm job's sizes: reading its `#SBATCH` lines, and giving it others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from validator.project import Project

DIRECTIVE = re.compile(r"^#SBATCH\s+(?P<option>--?[A-Za-z][\w-]*)(?:[=\s]\s*(?P<value>\S+))?")
LAUNCHERS = ("torch", "accelerate", "deepspeed", "pip", "venv")
SHORT = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus", "-c": "--cpus-per-task"}
SIZES = ("--nodes", "--ntasks", "--ntasks-per-node", "--gpus", "--gpus-per-node", "--gres", "--gpus-per-task")


def project(text: str) -> Project:
    """A project of one shell script."""
    from validator.project import Project
    from validator.run.config import Config
    from validator.source import SourceFile

    return Project([SourceFile("job.sh", "/job.sh", text.encode())], Config(root="/"))


def commands(text: str) -> Iterator[tuple[int, list[str]]]:
    """The line and the words of each command that a shell script runs, with the variables that it sets itself."""
    from validator.analysis.commands.scripts import Scripts

    for run in Scripts(project(text)).runs:
        yield run.at[0], [field.text for field in run.fields]


@dataclass(frozen=True)
class Script:
    """The text of a launch script."""

    text: str

    @property
    def is_slurm(self) -> bool:
        return any(DIRECTIVE.match(line) for line in self.text.splitlines())

    def modules(self) -> list[str]:
        """The modules that it starts by `-m` or `--module`, but for launchers."""
        words = [word for _, each in commands(self.text) for word in each]
        found = [name for flag, name in pairwise(words) if flag in ("-m", "--module")]
        return [name for name in dict.fromkeys(found) if name.partition(".")[0] not in LAUNCHERS]

    def sizes(self) -> dict[str, str]:
        """The `#SBATCH` options that set the size of the job, in their long form."""
        found = {}
        for line in self._head():
            match = DIRECTIVE.match(line)
            option = SHORT.get(match["option"], match["option"]) if match else ""
            if match and option in SIZES and match["value"]:
                found[option] = match["value"]
        return found

    def _head(self) -> list[str]:
        """Slurm reads its lines up to the first command."""
        lines = self.text.splitlines()
        end = next((n for n, line in enumerate(lines) if line.strip() and not line.startswith("#")), len(lines))
        return lines[:end]

    def with_sizes(self, options: Mapping[str, str]) -> Script:
        """The script as Slurm takes it when `sbatch` is given `options` as well, which win. Lines keep their numbers
        where all options are there already; others are added after the first line's end."""
        lines, left = self.text.splitlines(keepends=True), dict(options)
        for number, line in enumerate(lines[: len(self._head())]):
            match = DIRECTIVE.match(line)
            option = SHORT.get(match["option"], match["option"]) if match else ""
            if option in left:
                lines[number] = f"#SBATCH {option}={left.pop(option)}\n"
        added = [f"#SBATCH {option}={value}\n" for option, value in left.items()]
        return Script("".join([*lines[:1], *added, *lines[1:]]))

    def added_lines(self, options: Mapping[str, str]) -> int:
        """How many lines `with_sizes` puts after the first."""
        return len(set(options) - set(self.sizes()))

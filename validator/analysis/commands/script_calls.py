"""Which commands, of scripts and of Python code, run a shell script of the project, and with which arguments.

`bash run.sh $rank`, `./run.sh $rank`, `srun bash run.sh …`, `sbatch --nodes 2 run.slurm …`,
`subprocess.run(["sbatch", "run.slurm", path])`.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from functools import cached_property
from typing import NamedTuple

from validator.analysis.commands.fields import Field
from validator.analysis.commands.process_lists import ProcessLists
from validator.analysis.commands.script_parameters import Signature, signature
from validator.analysis.commands.scripts import Run, Scripts
from validator.analysis.commands.wrappers import OPERATORS, RUNS_OTHERS, SHELLS, SUBMITS
from validator.project import Project
from validator.source import SourceFile

_WITH_VALUE = frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"})  # options of bash


class ScriptCall(NamedTuple):
    """A command that runs a script. `arguments`: those whose position is known; `open`: more may follow them.
    `sure`: no other script of the project can be meant."""

    run: Run
    script: SourceFile
    path: Field
    arguments: tuple[Field, ...]
    open: bool
    sure: bool

    @property
    def written(self) -> tuple[str, ...]:
        """The script and its arguments as they stand there."""
        return (self.script.absolute, *(each.name or each.text for each in self.arguments))

    @property
    def is_certain(self) -> bool:
        """Whether it is certain which script gets how many arguments."""
        return self.sure and not self.open and not any(each.many for each in self.arguments)


class ScriptCalls:
    """The calls of a project's scripts."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.scripts: Scripts = project.analysis(Scripts)
        self._signatures: dict[SourceFile, Signature] = {}

    @cached_property
    def all(self) -> tuple[ScriptCall, ...]:
        if not self.scripts.files:
            return ()
        runs = (*self.scripts.runs, *self.project.analysis(ProcessLists).runs)
        calls = (self._call(run) for run in runs if not run.broken)
        return tuple(call for call in calls if call is not None)

    def signature(self, script: SourceFile) -> Signature:
        """What a script takes."""
        if script not in self._signatures:
            self._signatures[script] = signature(script.facts.extra["script"])
        return self._signatures[script]

    def _call(self, run: Run) -> ScriptCall | None:
        index = 0
        while index < len(run.fields):
            each = run.fields[index]
            name = posixpath.basename(each.text) if each.known else ""
            if name in SHELLS or name == SUBMITS:
                return self._started(run, index + 1, name == SUBMITS)
            if (script := self._script(each, run)) is not None:
                return self._called(run, script, index)
            if name not in RUNS_OTHERS and not _is_assignment(each):
                return None
            following = index + 1 if _is_assignment(each) else self._following(run, index + 1)
            if following is None:
                return None
            index = following
        return None

    def _following(self, run: Run, start: int) -> int | None:
        """Where the command begins that a wrapper runs: a shell, wherever, or a script that is its first word."""
        first = True
        for index in range(start, len(run.fields)):
            each = run.fields[index]
            name = posixpath.basename(each.text) if each.known else ""
            is_value = index > start and _takes_next(run.fields[index - 1])
            if not is_value and (name in SHELLS | RUNS_OTHERS or name == SUBMITS):
                return index
            if name.startswith("python") or name in OPERATORS:
                return None
            if is_value or each.text.startswith("-") or each.text[:1].isdigit() or _is_assignment(each):
                continue
            if first and self._script(each, run) is not None:
                return index
            first = False  # the command, a host, an image: a script behind it may be what it works on
        return None

    def _started(self, run: Run, start: int, submits: bool) -> ScriptCall | None:
        """The script that a shell or `sbatch` is given behind its options."""
        for index in range(start, len(run.fields)):
            each, before = run.fields[index], run.fields[index - 1]
            if each.text.startswith(("-", "+")) or each.many and not each.tail:
                if not submits and "c" in each.text[1:] and not each.text.startswith("--"):
                    return None  # a text to run
                continue
            script = self._script(each, run)
            if script is not None:
                return self._called(run, script, index)
            if not (before.text in _WITH_VALUE or submits and index > start and _takes_next(before)):
                return None
        return None

    def _script(self, path: Field, run: Run) -> SourceFile | None:
        """The script that a word means: below the folder that `cd` went to, or around the one that runs it."""
        tail = path.text if path.known else path.tail
        if not tail.strip("/.") or tail.startswith("-") or "/" not in tail and "." not in tail:
            return None
        folder = run.folder.tail.strip("/") if run.folder is not None else ""
        if folder and path.known and not tail.startswith("/"):
            below = self.scripts.find(posixpath.join(folder, tail), run.path, self.scripts.files)
            if below is not None:
                return below
        return self.scripts.near(path, run.path)

    def _called(self, run: Run, script: SourceFile, index: int) -> ScriptCall | None:
        sure = self._names[posixpath.basename(script.path)] == 1
        folder = run.folder.text.strip("./") if run.folder is not None and run.folder.known else ""
        if not sure and run.folder is not None and (not folder or f"/{folder}/" not in script.absolute):
            return None  # it may be the one of another folder, which is not known
        found, is_open = [], False
        for each in run.fields[index + 1 :]:
            if each.known and each.text in OPERATORS:
                break
            if each.many and not each.name:
                is_open = True
                break
            found.append(each)
        return ScriptCall(run, script, run.fields[index], tuple(found), is_open, sure)

    @cached_property
    def _names(self) -> Counter[str]:
        return Counter(posixpath.basename(path) for path in self.scripts.files)


def _is_assignment(each: Field) -> bool:
    name, equals, _ = each.lead.partition("=")
    return bool(equals) and name.isidentifier()


def _takes_next(option: Field) -> bool:
    """Whether a word may be an option whose value follows."""
    return option.text.startswith("-") and "=" not in option.text and option.text != "--"

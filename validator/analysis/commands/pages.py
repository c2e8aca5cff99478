"""The commands that a project's pages show in blocks of code (`README.md`): what people run by hand."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cached_property

from validator.analysis.beside import Beside
from validator.facts import shell
from validator.facts.model import FileFacts
from validator.flow.queries.outside_program import is_archived, is_foreign
from validator.project import Project
from validator.source import SourceFile

# Source: https://spec.commonmark.org/0.31.2/#fenced-code-blocks
_FENCE = re.compile(rb"^ {0,3}(`{3,}|~{3,})[ \t]*([\w+-]*)")
_KINDS = frozenset({b"", b"bash", b"sh", b"shell", b"console", b"zsh", b"shell-session"})
_PROMPT = re.compile(rb"^\s*[$>] ")
_ELSEWHERE = (b"git checkout", b"git clone")  # what follows may be of another revision, or of another project
# Words in the names of pages that show how things were started once.
_OF_THE_PAST = frozenset({"changelog", "changes", "history", "migration", "migrating", "news", "release", "releases"})
_WORD = re.compile(r"[a-z]+")
_COMMANDS = (b"python", b"torchrun", b"deepspeed", b"accelerate")  # a page without any of these starts no program


class Pages:
    """Answers for one project, remembered. Pages say how programs are started; they are no scripts that rules check."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def sources(self) -> dict[str, SourceFile]:
        """By path the pages that show commands, with these as a script whose lines are where they stand."""
        found: dict[str, SourceFile] = {}
        for absolute, text in self.project.analysis(Beside).pages:
            path = absolute.removeprefix(self._folder)
            told = not is_foreign(path) and not is_archived(path) and _OF_THE_PAST.isdisjoint(_words(path))
            data = _commands(text) if told and any(word in text for word in _COMMANDS) else b""
            if data.strip():
                with suppress(RecursionError, ImportError):  # without the parser of scripts no command is known
                    source = SourceFile(path, absolute)
                    source.facts = FileFacts(language="shell", extra={"script": shell.parse(data)})
                    found[source.path] = source
        return found

    @cached_property
    def _folder(self) -> str:
        """The folder to which the paths of the project are relative."""
        ends = (each for each in self.project.files.values() if each.absolute.endswith(f"/{each.path}"))
        return next((each.absolute.removesuffix(each.path) for each in ends), "")


def _words(path: str) -> list[str]:
    return _WORD.findall(path.rpartition("/")[2].lower())


def _commands(page: bytes) -> bytes:
    """The blocks of code of a page that may be commands, all other lines empty."""
    lines, fence, wanted, first = page.splitlines(), b"", False, 0
    found = [b""] * len(lines)
    for number, line in enumerate(lines):
        match = _FENCE.match(line)
        if match is None or fence and not match[1].startswith(fence):
            continue
        if not fence:
            fence, wanted, first = match[1], match[2].lower() in _KINDS, number + 1
            continue
        if wanted and not any(word in each for each in lines[first:number] for word in _ELSEWHERE):
            found[first:number] = [_PROMPT.sub(lambda p: b" " * len(p[0]), each) for each in lines[first:number]]
        fence = b""
    return b"\n".join(found)

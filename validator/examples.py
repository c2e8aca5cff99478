"""A rule's examples as files and expectations: they are its tests.

An example is source text, one file named `example.py` or several, each begun by a line `# file: a/b.py`. Each
line that the rule must report ends in `# error: CODE` (`# error: CODE, CODE` for two findings). What text
cannot say stands behind the name: `size=60000000` makes the file that long, `link=other.py` makes it a symbolic
link, `error=CODE` expects a finding on line 1. In files of other languages than Python the marks are taken out before
they are read: a comment would end a continued command. A `pyproject.toml` among the files is the configuration.

An example of a change has files as they were too, each begun by `# before: a/b.py`; one that stands only there is gone,
one that stands only under `# file:` is as it was, or `new=yes`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import NamedTuple

from validator.drift.revision import Older
from validator.files.discovery import discover
from validator.files.languages import language
from validator.finding import Finding
from validator.rule import LoadedRule
from validator.run.checker import Check, check_sources
from validator.run.config import Config, load
from validator.source import SourceFile

_FILE = re.compile(r"^# (file|before): (\S+)((?: \w+=\S+)*)[ \t]*$", re.MULTILINE)
_MARK = re.compile(r"# error: ([A-Z]+[0-9]+(?:, *[A-Z]+[0-9]+)*)[ \t]*$")

Place = tuple[str, int]


class File(NamedTuple):
    """A file of an example; `size` 0 and `link` empty where nothing is said of them. `before`: as it was."""

    path: str
    text: str
    size: int
    link: str
    errors: tuple[str, ...]
    before: bool = False
    new: bool = False


class Outcome(NamedTuple):
    """What an example expects, and what was found, both as (path, line) with their number."""

    expected: Counter[Place]
    found: Counter[Place]
    findings: list[Finding]
    errors: list[str]


def files(example: str) -> list[File]:
    """The files of an example."""
    heads = list(_FILE.finditer(example))
    if not heads:
        return [File("example.py", example, 0, "", ())]
    found = []
    for head, following in zip(heads, [*heads[1:], None], strict=True):
        text = example[head.end() + 1 : following.start() if following else len(example)]
        said = dict(part.split("=", 1) for part in head[3].split())
        errors = (said["error"],) if "error" in said else ()
        size, link = int(said.get("size", 0)), said.get("link", "")
        found.append(File(head[2], text, size, link, errors, head[1] == "before", "new" in said))
    return found


def expected(example: str, code: str) -> Counter[Place]:
    """The places where an example expects findings of a rule."""
    places: Counter[Place] = Counter()
    for file in files(example):
        if file.before:
            continue
        places[file.path, 1] += file.errors.count(code)
        for number, line in enumerate(re.split("\r\n|\r|\n", file.text), 1):
            if match := _MARK.search(line):
                places[file.path, number] += [part.strip() for part in match[1].split(",")].count(code)
    return +places


def write(example: str, folder: str) -> None:
    """Make the files of an example in a folder."""
    for file in files(example):
        if file.before:
            continue
        path = os.path.join(folder, file.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if file.link:
            os.symlink(file.link, path)
            continue
        with open(path, "w", encoding="utf-8", newline="") as out:
            out.write(file.text if language(file.path) == "python" else _unmarked(file.text))
        if file.size:
            os.truncate(path, file.size)


def _unmarked(text: str) -> str:
    return "\n".join(_MARK.sub("", line).rstrip() if _MARK.search(line) else line for line in text.split("\n"))


def run(rule: LoadedRule, example: str, folder: str) -> Outcome:
    """Check an example with its rule alone, in an empty folder."""
    write(example, folder)
    own = os.path.exists(os.path.join(folder, "pyproject.toml"))
    config = load(folder) if own else Config(root=folder)
    sources, problems = [], {}
    for entry in discover([folder], config):
        path = os.path.relpath(entry.absolute, folder).replace(os.sep, "/")
        sources.append(SourceFile(path, entry.absolute))
        problems[path] = entry.problem
    check = Check(config, [rule], [rule], 1, older=_older(example, folder, sources))
    result = check_sources(sources, check, problems=problems)
    found = Counter((finding.path, finding.span.line) for finding in result.findings)
    return Outcome(expected(example, rule.rule.code), found, result.findings, result.errors)


def _older(example: str, folder: str, sources: list[SourceFile]) -> Older | None:
    """What an example says of its files as they were; None where it says nothing."""
    rows = files(example)
    if not any(file.before for file in rows):
        return None
    absolute = {source.path: source.absolute for source in sources}
    before: dict[str, bytes | None] = {}
    gone = {}
    for file in rows:
        path = absolute.get(file.path, os.path.join(folder, file.path))
        if file.before:
            before[path] = file.text.encode()
            if file.path not in absolute:
                gone[path] = file.path
        elif file.new:
            before.setdefault(path, None)
    return Older("the example", before, gone, {})

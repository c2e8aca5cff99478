"""Modules that the project has only once somebody has brought them: built, copied, cloned, written by a script, or put
into `sys.modules`. What brings them stands in files that are not read as code."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

from validator.analysis.beside import Beside
from validator.definitions import Missing, Module
from validator.files.reading import regular
from validator.project import Project

# What brings a file: a line of a script or a page that has one of these words and names it.
_BRINGING = frozenset({
    b"cp", b"mv", b"ln", b"rsync", b"wget", b"curl", b"clone", b"unzip", b"tar", b"protoc", b"gdown", b"touch", b"cat",
    b"tee", b"sed", b"download", b"install", b"envsubst", b"scp",
})  # fmt: skip
_WORD = re.compile(rb"[\w.-]+")
_FOR_USERS = ("_template", "_example", "_sample", "_default", "_dist")
_TO_BUILD = (b"MODULE(%b", b"PyInit_%b", b"module(%b", b"fn %b", b"add_library(%b")  # compiled from other languages


class Brought:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.beside = project.analysis(Beside)

    def may_be(self, importer: Module, missing: Missing) -> bool:
        """Whether something beside the code may bring a module before it is imported."""
        links = tuple(missing.module.split("."))
        return (
            any(links[-1] in _links(text) or missing.module == text for text in self._of_setup)
            or self._is_put(links)
            or self._is_left_to_users(importer, links)
            or self._is_brought(links)
            or any(form % links[-1].encode() in text for text in self.beside.sources for form in _TO_BUILD)
        )

    @cached_property
    def _of_setup(self) -> frozenset[str]:
        """The texts of the scripts that build the project."""
        modules = (each for each in self.project.modules.values() if each.path.rpartition("/")[2] == "setup.py")
        return frozenset(text for each in modules for text in each.facts.texts)

    def _is_put(self, links: tuple[str, ...]) -> bool:
        """Whether code puts a module under such a name into `sys.modules`."""
        for module in self.project.modules.values():
            rows = (row for function in module.functions.values() for row in function.facts.assigns)
            put = b"sys.modules" in module.source.data and any(row.target.startswith("sys.modules[") for row in rows)
            if put and any(text.strip(".").split(".")[-1] == links[-1] for text in module.facts.texts):
                return True
        return False

    def _is_left_to_users(self, importer: Module, links: tuple[str, ...]) -> bool:
        """Whether git ignores a file of this name, has another repository in its place, or a model of it lies there."""
        file, path = f"{links[-1]}.py", "/".join(links)
        models = tuple(f"{path}{end}.py" for end in _FOR_USERS)
        if any(each.source.path.endswith(models) for each in self.project.modules.values()):
            return True
        for folder in _above(importer.source.absolute):
            ignored = {line.strip().lstrip("/") for line in _lines(f"{folder}/.gitignore")}
            if any(line == file or line.endswith(f"/{file}") and f"{path}.py".endswith(line) for line in ignored):
                return True
            rows = (line.partition("=") for line in _lines(f"{folder}/.gitmodules"))
            inside = (value.strip() for key, _, value in rows if key.strip() == "path")
            if any(f"/{own}/".endswith(f"/{above}/") for own in inside for above in _prefixes(links)):
                return True
        return False

    def _is_brought(self, links: tuple[str, ...]) -> bool:
        """Whether a script or a page brings a file of this name, or a folder in which it lies, or a setting of what
        builds the project names it."""
        others = (each for each in self.project.files.values() if each.facts.language != "python")
        paths = [path.encode() for path in _prefixes(links)]
        names = {link.encode() for link in links[1:]}
        file, dotted = f"{links[-1]}.py".encode(), f'"{".".join(links)}"'.encode()
        for text in (*(each.data for each in others), *self.beside.texts):
            if not any(name in text for name in names):
                continue
            if dotted in text.replace(b"'", b'"'):
                return True
            for line in text.splitlines():
                words = set(_WORD.findall(line))
                named = any(path in line for path in paths) or file in words
                writes = b"write" in line or b"version" in line
                if (
                    named
                    and (writes or not words.isdisjoint(_BRINGING))
                    or b"clone" in words
                    and _cloned(line) in names
                ):
                    return True
        return False


def _prefixes(links: tuple[str, ...]) -> list[str]:
    """The paths of a module and of the folders above it that lie in its package."""
    return ["/".join(links[:count]) for count in range(2, len(links) + 1)]


def _cloned(line: bytes) -> bytes:
    """The folder that a line with `git clone` makes."""
    last = line.strip(b"`'\" ,\\n").split()[-1:]
    return last[0].rstrip(b"/").rpartition(b"/")[2].removesuffix(b".git") if last else b""


def _links(text: str) -> list[str]:
    return text.removesuffix(".py").replace("/", ".").split(".")[-1:]


def _above(path: str) -> Iterator[str]:
    """The folders above a file, up to where the project ends."""
    folder = os.path.dirname(path)
    while folder and folder != os.path.dirname(folder):
        yield folder
        if os.path.exists(f"{folder}/.git"):
            return
        folder = os.path.dirname(folder)


def _lines(path: str) -> list[str]:
    with suppress(OSError):
        return regular(path, 100_000).decode(errors="replace").splitlines()
    return []

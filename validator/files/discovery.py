"""Finds the files of a run: what the paths name, less what git or the configuration leaves out.

Below a folder in a git work tree the files are those that git knows or would add; elsewhere the folder is
walked and `DEFAULT_EXCLUDE` left out. Folders behind symbolic links are not entered, so no loop can arise.
Excludes of the configuration hold for every file, also for one named by hand (a hook names files by hand).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

from validator.errors import UsageError
from validator.files import git
from validator.files.languages import CONFIGURATION, LANGUAGES, MAX_CONFIGURATION, has_suffix, language
from validator.run.config import Config

DEFAULT_EXCLUDE = (
    ".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", ".eggs", "*.egg-info", "__pycache__",
    ".mypy_cache", ".ruff_cache", ".pytest_cache", "node_modules", "site-packages", "build", "dist",
)  # fmt: skip

MAX_SIZE = 10_000_000  # bytes; the largest generated module that anybody trains with is a tenth of it


_REPORTS = (".json", ".yaml", ".yml", ".toml")  # no source file, whatever an option names


class Entry(NamedTuple):
    """A file that was found. `stamp`: size, times, inode, device; `problem`: kind and text, or None."""

    path: str
    absolute: str
    stamp: tuple[int, int, int, int, int]
    problem: tuple[str, str] | None


def discover(paths: list[str], config: Config, own: str | None = None) -> list[Entry]:
    """The files of a run, each once, in the order of their reported paths. Raises UsageError.

    What the validator itself wrote is not read: the baseline, and `own`, the file that the report goes to.
    """
    excluded = exclusions(config)
    written = {os.path.abspath(path) for path in (config.baseline, own) if path and path.endswith(_REPORTS)}
    found: dict[str, Entry] = {}
    links: list[Entry] = []
    around = roots(paths)
    named = {os.path.abspath(path) for path in paths}
    for path in paths:
        for reported, absolute in _candidates(path, config):
            if absolute in found or absolute in written or (excluded and excluded.match(absolute)):
                continue
            entry, linked = _entry(reported, absolute)
            if linked and entry:
                if within(absolute, around) or absolute in named:
                    links.append(entry)
            elif entry:
                found[absolute] = entry
    for entry in links:  # a link counts only if its target is not read anyway
        found.setdefault(os.path.realpath(entry.absolute), entry)
    return sorted(found.values())


def exclusions(config: Config) -> Globs:
    """What the configuration leaves out."""
    return Globs((*(config.exclude or ()), *config.extend_exclude), config.root)


def left_out(paths: list[str], config: Config) -> list[str]:
    """The PATHs of a command line that the configuration leaves out."""
    excluded = exclusions(config)
    return [path for path in paths if excluded.match(os.path.abspath(path))] if excluded else []


def is_code(path: str) -> bool:
    """Whether a file that was named by hand is of a kind that is read: by its suffix, or as a script by `#!`."""
    if has_suffix(path) or not os.path.isfile(path):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return True  # a finding, made where the file is looked at


def roots(paths: list[str]) -> tuple[str, ...]:
    """The real folders that the PATHs of a command line are, or (of a file) lie in."""
    return tuple(
        os.path.realpath(path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))) for path in paths
    )


def within(path: str, folders: tuple[str, ...]) -> bool:
    """Whether what really lies at a path lies below one of some real folders."""
    real = os.path.realpath(path)
    return any(real.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


def _candidates(path: str, config: Config) -> Iterator[tuple[str, str]]:
    """(reported path, absolute path) of every file that one PATH of the command line stands for."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if os.path.islink(path) and error.errno != 2:
            mode = stat.S_IFREG  # a loop of links: a finding, made where the file is looked at
        else:
            raise UsageError(f"{path}: {error.strerror or 'cannot be read'}") from error
    if stat.S_ISDIR(mode):
        absolute = os.path.abspath(path)
        try:
            os.scandir(absolute).close()
        except OSError as error:
            raise UsageError(f"{path}: the folder cannot be read: {error.strerror}") from error
        prefix = _reported(absolute)
        yield from _below(absolute, "" if prefix == "." else prefix + "/", config)
    elif stat.S_ISREG(mode):
        absolute = os.path.abspath(path)
        if is_code(path):
            yield _reported(absolute), absolute
    else:
        raise UsageError(f"{path}: neither a file nor a folder")


def _reported(absolute: str) -> str:
    """A path as it is reported: relative to the working directory, with forward slashes."""
    try:
        relative = os.path.relpath(absolute)
    except ValueError:  # another drive
        relative = absolute
    return relative.replace(os.sep, "/") if os.sep != "/" else relative


def _below(folder: str, prefix: str, config: Config) -> Iterator[tuple[str, str]]:
    waiting = [(folder, prefix)]  # repositories may lie in one another, deeper than calls can
    seen: set[str] = set()
    while waiting:
        folder, prefix = waiting.pop()
        if (real := os.path.realpath(folder)) in seen:
            continue
        seen.add(real)
        names = git.listed(folder) if git.inside_work_tree(folder) else None
        if names is None or (not names and git.ignored(folder)):
            defaults = DEFAULT_EXCLUDE if config.exclude is None else (".git",)
            yield from _walk(folder, prefix, Globs(defaults, folder))
            continue
        linked = _Linked(folder)
        for name in names:
            if linked.leads_through(os.path.dirname(name)):
                continue
            if os.path.splitext(name)[1] in LANGUAGES:
                yield prefix + name, os.path.join(folder, name)
            elif name.endswith("/") or (os.path.splitext(name)[1] == "" and _is_repository(os.path.join(folder, name))):
                inner = name.rstrip("/")
                if not linked.leads_through(inner):
                    waiting.append((os.path.join(folder, inner), f"{prefix}{inner}/"))


class _Linked:
    """Tells the folders that lie behind a link; git lists none, but an index that somebody wrote may name them.

    What they hold is found by its own name, or lies outside of the tree.
    """

    def __init__(self, top: str) -> None:
        self.top = top
        self._known = {"": False}

    def leads_through(self, folder: str) -> bool:
        """Whether a folder, relative to the top, is a link, lies behind one, or leads out of the top."""
        if folder not in self._known:
            bad, path = False, ""
            for name in folder.split("/"):
                path = f"{path}/{name}" if path else name
                if path not in self._known:
                    odd = name in ("", ".", "..")
                    self._known[path] = bad or odd or os.path.islink(os.path.join(self.top, path))
                bad = self._known[path]
            self._known[folder] = bad
        return self._known[folder]


def _is_repository(path: str) -> bool:
    """A submodule or an untracked checkout, which git lists as one entry."""
    return os.path.lexists(os.path.join(path, ".git"))


def _walk(folder: str, prefix: str, excluded: Globs) -> Iterator[tuple[str, str]]:
    waiting = [(folder, prefix)]
    while waiting:
        folder, prefix = waiting.pop()
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError:
            yield prefix, folder  # a finding, made where it is looked at
            continue
        for entry in entries:
            if excluded.match_name(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, f"{prefix}{entry.name}/"))
            elif os.path.splitext(entry.name)[1] in LANGUAGES:
                yield prefix + entry.name, entry.path


def _entry(reported: str, absolute: str) -> tuple[Entry | None, bool]:
    """What lies at a path, and whether it is a link; None for what is not a file to read."""
    linked = False
    try:
        status = os.lstat(absolute)
        if stat.S_ISLNK(status.st_mode):
            linked = True
            status = os.stat(absolute)
    except OSError as error:
        if linked and error.errno != 2:
            return Entry(reported, absolute, (0, 0, 0, 0, 0), ("unreadable", "a loop of symbolic links")), False
        return None, linked  # deleted but tracked, or a link to nothing
    if stat.S_ISDIR(status.st_mode) and reported.endswith("/"):
        why = ("unreadable", "the folder cannot be listed")
        return Entry(reported.rstrip("/"), absolute, (0, 0, 0, 0, 0), why), linked
    if not stat.S_ISREG(status.st_mode):
        return None, linked
    stamp = (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)
    problem = None
    if status.st_size > MAX_CONFIGURATION and language(reported) in CONFIGURATION:
        return None, linked  # data
    if status.st_size > MAX_SIZE:
        problem = ("size", f"{status.st_size / 1e6:.0f} MB; files above {MAX_SIZE / 1e6:.0f} MB are not read")
    return Entry(reported, absolute, stamp, problem), linked


class Globs:
    """Patterns as in .gitignore: without a slash a name at any depth, else a path from the root."""

    def __init__(self, patterns: tuple[str, ...], root: str) -> None:
        self.root = root.rstrip(os.sep) + os.sep
        names = [pattern.rstrip("/") for pattern in patterns if "/" not in pattern.rstrip("/")]
        paths = [pattern.strip("/").removeprefix("./") for pattern in patterns if "/" in pattern.rstrip("/")]
        self.names = _compiled(names)
        self.paths = _compiled(paths)

    def __bool__(self) -> bool:
        return self.names is not None or self.paths is not None

    def match_name(self, name: str) -> bool:
        return self.names is not None and self.names.fullmatch(name) is not None

    def match(self, absolute: str) -> bool:
        """Whether a path, or a folder that it lies in below the root, is matched; the root itself never is."""
        if absolute + os.sep == self.root:
            return False
        relative = absolute[len(self.root) :] if absolute.startswith(self.root) else absolute
        parts = relative.replace(os.sep, "/").split("/")
        if self.names is not None and any(self.names.fullmatch(part) for part in parts):
            return True
        if self.paths is None:
            return False
        return any(self.paths.fullmatch("/".join(parts[:count])) for count in range(1, len(parts) + 1))


def _compiled(patterns: list[str]) -> re.Pattern[str] | None:
    for pattern in patterns:
        if not pattern or pattern.startswith("!"):
            why = "what is left out cannot be taken back" if pattern else "it is empty"
            raise UsageError(f"{pattern!r} is no pattern of files: {why}")
        try:
            re.compile(_regex(pattern))
        except (re.error, RecursionError, OverflowError) as error:
            raise UsageError(f"{pattern!r} is no pattern of files: {error}") from error
    return re.compile("|".join(_regex(pattern) for pattern in patterns)) if patterns else None


def _regex(pattern: str) -> str:
    """`**` crosses slashes, `*` and `?` do not, `[…]` is a set of characters."""
    parts = []
    for piece in re.findall(r"\*\*/|\*\*|\*|\?|\[[^]]+\]|.", pattern, re.DOTALL):
        if piece == "**/":
            parts.append("(?:.*/)?")
        elif piece == "**":
            parts.append(".*")
        elif piece in ("*", "?"):
            parts.append("[^/]" + ("*" if piece == "*" else ""))
        elif len(piece) > 1:
            inner = piece[1:-1].replace("\\", "\\\\")
            parts.append("[" + ("^" + inner[1:] if inner.startswith("!") else inner) + "]")
        else:
            parts.append(re.escape(piece))
    return "".join(parts)

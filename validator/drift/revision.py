"""The other revision of a comparison: which files differ, and what was in them. Nothing is checked out or run."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from validator.errors import UsageError
from validator.files import discovery, git
from validator.files.languages import has_suffix
from validator.files.reading import regular
from validator.run import config

_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{2,}")
_MEASURED = ("changed_since", "staged", "against")


class Older(NamedTuple):
    """What the files of a run were before.

    `name`: what people call the revision. `files`: by absolute path the content before, None where there was no such
    file; only of files that differ. `gone`: reported paths of files that are there no longer, by absolute path. `now`:
    contents that stand in for what lies on disk (of the index). `what`: what is compared, where it is not the disk.
    """

    name: str
    files: dict[str, bytes | None]
    gone: dict[str, str]
    now: dict[str, bytes]
    what: str = ""

    @property
    def said(self) -> str:
        """What was compared, in one line."""
        count = len(self.files)
        what = f"{self.what}, " if self.what else ""
        return f"{what}compared with {self.name}: {count} file{'' if count == 1 else 's'} changed"

    @property
    def names_gone(self) -> frozenset[str]:
        """The names in the changed files that none of these files has any more."""
        before, after = Counter[str](), Counter[str]()
        for old, new in self._words:
            before += old
            after += new
        return frozenset(before.keys() - after.keys())

    @property
    def names_left(self) -> frozenset[str]:
        """The names that stand in some changed file less often than before."""
        return frozenset(name for old, new in self._words for name in old if new[name] < old[name])

    @property
    def _words(self) -> list[tuple[Counter[str], Counter[str]]]:
        """How often each name stands in each changed file, before and after."""
        return [
            (_count(data or b""), _count(self.now.get(path) or _content(path) or b""))
            for path, data in self.files.items()
        ]


def _count(data: bytes) -> Counter[str]:
    """How often each name stands in a file, without comments: what they speak of names nothing."""
    lines = (line.strip().partition(b"  #")[0] for line in data.split(b"\n"))
    code = b"\n".join(line for line in lines if not line.startswith(b"#"))
    return Counter(word.decode("ascii") for word in _WORD.findall(code.replace(b"-", b"_")))


def is_asked(options: object) -> bool:
    return any(getattr(options, name) for name in _MEASURED)


def older(options: object, settings: config.Config, entries: list[discovery.Entry], folder: str) -> Older:
    """The other revision that the options name. Raises UsageError."""
    against = getattr(options, "against", None)
    if against:
        return _of_folder(str(against), entries, folder, settings)
    if getattr(options, "staged", False):
        return _staged(entries, folder, settings)
    revision = str(getattr(options, "changed_since", ""))
    tree = git.tree(folder, revision)
    return _compared(f"{revision} ({tree.commit[:10]})", tree, entries, folder, settings, {})


def _staged(entries: list[discovery.Entry], folder: str, settings: config.Config) -> Older:
    """The index against the last commit; what is not staged stands as it is in the index."""
    start = os.environ.get("PRE_COMMIT_FROM_REF", "")  # `pre-commit run --from-ref`: commits, nothing is staged
    if start or git.has_commit(folder):
        tree = git.tree(folder, start or "HEAD", branched=bool(start))
        name = f"{start or 'HEAD'} ({tree.commit[:10]})"
    else:
        name, tree = "nothing (there is no commit yet)", git.Tree("", {}, frozenset())
    staged = git.index(folder)
    now = {}
    for entry in entries:
        path = os.path.realpath(entry.absolute)
        if path in staged and not git.is_blob(entry.absolute, staged[path]):
            now[entry.absolute] = git.blob(folder, staged[path])
    found = _compared(name, tree, entries, folder, settings, now, staged)
    return found._replace(what="what is staged")


def _compared(
    name: str,
    tree: git.Tree,
    entries: list[discovery.Entry],
    folder: str,
    settings: config.Config,
    now: dict[str, bytes],
    staged: dict[str, str] | None = None,
) -> Older:
    files: dict[str, bytes | None] = {}
    for entry in entries:
        path = os.path.realpath(entry.absolute)
        if tree.submodules and not tree.submodules.isdisjoint(_above(path)):
            continue  # a repository of its own: what was in it this one does not know
        before = tree.blobs.get(path)
        if staged is not None:
            same = staged.get(path) == before
        else:
            same = before is not None and git.is_blob(entry.absolute, before)
        if not same:
            files[entry.absolute] = git.blob(folder, before) if before is not None else None
    here = {os.path.realpath(entry.absolute) for entry in entries} | set(staged or ())
    gone = {}
    for path, blob in tree.blobs.items():
        if path not in here and not os.path.lexists(path) and _is_wanted(path, folder, settings):
            files[path] = git.blob(folder, blob)
            gone[path] = os.path.relpath(path).replace(os.sep, "/")
    return Older(name, files, gone, now)


def _above(path: str) -> Iterator[str]:
    """The folders that a path lies in."""
    while (parent := os.path.dirname(path)) != path:
        yield parent
        path = parent


def _of_folder(other: str, entries: list[discovery.Entry], folder: str, settings: config.Config) -> Older:
    if not os.path.isdir(other):
        raise UsageError(f"--against: {other} is no folder")
    files: dict[str, bytes | None] = {}
    seen = set()
    for entry in entries:
        relative = os.path.relpath(entry.absolute, folder)
        path = os.path.join(other, relative)
        seen.add(relative)
        before = _content(path)
        if before is None or before != _content(entry.absolute):
            files[entry.absolute] = before
    gone = {}
    for entry in discovery.discover([other], settings):
        relative = os.path.relpath(entry.absolute, os.path.abspath(other))
        path = os.path.join(folder, relative)
        if relative not in seen and not os.path.lexists(path) and _is_wanted(os.path.realpath(path), folder, settings):
            files[path] = _content(entry.absolute)
            gone[path] = os.path.relpath(path).replace(os.sep, "/")
    return Older(other, files, gone, {})


def _content(path: str) -> bytes | None:
    try:
        return regular(path)
    except OSError:
        return None


def _is_wanted(path: str, folder: str, settings: config.Config) -> bool:
    """Whether a file that is gone was one that a run reads."""
    if not has_suffix(path) or os.path.commonpath([path, os.path.realpath(folder)]) != os.path.realpath(folder):
        return False
    excluded = discovery.exclusions(settings)
    return excluded is None or not excluded.match(path)

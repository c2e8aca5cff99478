"""Asks git which files there are, without letting the repository run anything.

A repository's own `.git/config` is part of the tree that is read and may name programs: a file monitor,
hooks, external diffs, text converters, clean filters, a transport for missing objects. Only commands are
called that need none of them (`ls-files`, `ls-tree`, `cat-file blob`, `rev-parse`, `merge-base`, `check-ignore`); what
is left is switched off. In particular `git diff` and `git status` are never called: they run clean filters.

Nor may it make git wait: a pipe in place of `.git/HEAD` or of a `.gitignore` would. Where the few files that git
opens first are no files git is not asked; else it has a time-out, and after the first one it is not asked again.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from typing import NamedTuple

from validator.errors import UsageError
from validator.files import streams
from validator.files.reading import regular

_OFF = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.untrackedCache=false")
_OPENED = ("HEAD", "config", "index", "packed-refs", "commondir", "shallow", "info/exclude")
_PATIENCE = 60.0  # seconds; listing a million files on a cold disk takes less
_found: list[str | None] = []


def _program() -> str | None:
    """The absolute path of git; relative entries of PATH are skipped, they would be looked up in the tree."""
    if not _found:
        name = "git.exe" if sys.platform == "win32" else "git"
        folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
        paths = (os.path.join(folder, name) for folder in folders)
        _found.append(next((path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)), None))
    return _found[0]


def _environment(index: str = "") -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    kept.update(
        LC_ALL="C",
        GIT_OPTIONAL_LOCKS="0",
        GIT_TERMINAL_PROMPT="0",
        GIT_NO_LAZY_FETCH="1",
        GIT_ALLOW_PROTOCOL="none",  # an unknown one: no transport at all, whatever the configuration says
        GIT_NO_REPLACE_OBJECTS="1",
    )
    if index:
        kept["GIT_INDEX_FILE"] = index
    return kept


def run(folder: str, *arguments: str, index: str = "") -> tuple[int, bytes]:
    """Exit status and standard output of a git command in a folder; status 127 where there is no git that answers.

    `index`: the file of the index, where it is not the usual one.
    """
    program = _program()
    if program is None:
        return 127, b""
    command = [program, "--no-pager", *_OFF, "-C", folder, *arguments]
    if hasattr(os, "posix_spawn"):
        return _spawn(command, _environment(index))
    import subprocess

    try:
        done = subprocess.run(
            command,
            env=_environment(index),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return _given_up()
    return done.returncode, done.stdout


def _given_up() -> tuple[int, bytes]:
    _found[:] = [None]
    said = f"git did not answer within {_PATIENCE:g} s; going on without it, so that git-ignored files count too"
    streams.say(said)
    return 127, b""


def _spawn(command: list[str], environment: dict[str, str]) -> tuple[int, bytes]:
    """As `subprocess.run`, whose import alone would cost a warm run a quarter of its time."""
    reader, writer = os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writer, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    try:
        process = os.posix_spawn(command[0], command, environment, file_actions=actions)
    except OSError:
        os.close(reader)
        return 127, b""
    finally:
        os.close(writer)
    try:
        output = _read(reader, time.monotonic() + _PATIENCE)
    except BaseException:
        os.kill(process, 9)  # SIGKILL: the module that names it costs more than this call
        os.waitpid(process, 0)
        raise
    finally:
        os.close(reader)
    if output is None:
        os.kill(process, 9)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return _given_up() if output is None else (status, output)


def _read(pipe: int, deadline: float) -> bytes | None:
    """All that comes out of a pipe; None if it does not end before the deadline."""
    import select

    waiting = select.poll()
    waiting.register(pipe, select.POLLIN | select.POLLHUP)
    parts: list[bytes] = []
    while (left := deadline - time.monotonic()) > 0:
        if not waiting.poll(left * 1000):
            continue
        if not (part := os.read(pipe, 1 << 16)):
            return b"".join(parts)
        parts.append(part)
    return None


def inside_work_tree(folder: str) -> bool:
    """Whether a `.git` that git may be asked of lies here or above (no process is started for this)."""
    folder = os.path.abspath(folder)
    while True:
        inner = os.path.join(folder, ".git")
        if os.path.lexists(inner):
            return all(_harmless(os.path.join(inner, name)) for name in _OPENED)
        parent = os.path.dirname(folder)
        if parent == folder:
            return False
        folder = parent


def _harmless(path: str) -> bool:
    """Whether opening a path cannot make anybody wait."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def listed(folder: str) -> list[str] | None:
    """Tracked and untracked files below a folder, relative to it, git-ignored ones left out.

    None where git cannot say (not a work tree, no git, a repository of doubtful ownership). An entry that
    ends in `/` or is a folder is a repository of its own.
    """
    status, output = run(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".")
    if status != 0:
        return None
    return list(dict.fromkeys(os.fsdecode(name) for name in output.split(b"\0") if name))


def ignored(folder: str) -> bool:
    """Whether a folder that was named by hand is itself git-ignored."""
    parent, name = os.path.split(os.path.abspath(folder))
    return run(parent, "check-ignore", "-q", "--", name)[0] == 0


_FILES = (b"100644", b"100755", b"100664")  # no links, which name another file, and no submodules


class Tree(NamedTuple):
    """A commit, its files (blob ids by real path; links are none), and the real paths of its submodules."""

    commit: str
    blobs: dict[str, str]
    submodules: frozenset[str]


def tree(folder: str, revision: str, *, branched: bool = True) -> Tree:
    """The commit that a revision is, or where this branch left it, if `branched`. Raises UsageError."""
    top = _top(folder)
    commit = _commit(folder, revision, branched)
    status, listing = run(top, "ls-tree", "-r", "-z", "--full-tree", commit)
    if status != 0:
        raise UsageError(f"git cannot list the files of {revision!r}: the clone may lack them")
    blobs: dict[str, str] = {}
    submodules = set()
    for entry in listing.split(b"\0"):
        head, _, name = entry.partition(b"\t")
        if name and head.split(b" ")[0] in _FILES:
            blobs[os.path.join(top, os.fsdecode(name))] = head.split(b" ")[2].decode("ascii")
        elif head.startswith(b"160000 "):
            submodules.add(os.path.join(top, os.fsdecode(name)))
    return Tree(commit, blobs, frozenset(submodules))


def index(folder: str) -> dict[str, str]:
    """What is staged: blob ids by real path; links are left out. Raises UsageError."""
    top = _top(folder)
    status, listing = run(top, "ls-files", "-z", "--stage", index=_index_in_use(top))
    if status != 0:
        raise UsageError("git cannot list what is staged")
    found: dict[str, str] = {}
    for entry in listing.split(b"\0"):
        head, _, name = entry.partition(b"\t")
        if name and head.endswith(b" 0") and head.split(b" ")[0] in _FILES:  # not in the middle of a merge
            found[os.path.join(top, os.fsdecode(name))] = head.split(b" ")[1].decode("ascii")
    return found


def _index_in_use(top: str) -> str:
    """The index of the commit that a hook is run for, empty for the usual one: `git commit -a` fills one of its own."""
    given = os.environ.get("GIT_INDEX_FILE", "")
    if not given:
        return ""
    path = os.path.join(top, given)
    status, output = run(top, "rev-parse", "--absolute-git-dir")
    inside = os.path.realpath(os.fsdecode(output.rstrip(b"\n"))) == os.path.realpath(os.path.dirname(path))
    return path if status == 0 and inside and os.path.isfile(path) else ""


def has_commit(folder: str) -> bool:
    """Whether the branch that is checked out has a commit. Raises UsageError."""
    return run(_top(folder), "rev-parse", "--verify", "--quiet", "HEAD")[0] == 0


def blob(folder: str, name: str) -> bytes:
    """The content of a blob. Raises UsageError where the clone lacks it (nothing is fetched)."""
    status, output = run(folder, "cat-file", "blob", name)
    if status != 0:
        raise UsageError(f"this clone lacks the object {name[:12]}; fetch the revision with its files first")
    return output


def _top(folder: str) -> str:
    status, output = run(folder, "rev-parse", "--show-toplevel") if inside_work_tree(folder) else (128, b"")
    if status != 0:
        raise UsageError(f"{folder} is not in a git work tree that git can read")
    return os.path.realpath(os.fsdecode(output.rstrip(b"\n")))


def _commit(folder: str, revision: str, branched: bool) -> str:
    status, output = run(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}")
    if status != 0:
        raise UsageError(f"git knows no revision {revision!r}")
    commit = output.decode("ascii", "replace").strip()
    if not branched:
        return commit
    status, output = run(folder, "merge-base", commit, "HEAD")
    return output.decode("ascii", "replace").strip() if status == 0 else commit


def is_blob(path: str, blob: str) -> bool:
    """Whether a file holds what a blob holds; its id is computed here."""
    import hashlib

    try:
        data = regular(path)
    except OSError:
        return False
    method = hashlib.sha1 if len(blob) == 40 else hashlib.sha256
    for text in dict.fromkeys((data, data.replace(b"\r\n", b"\n"))):
        if method(b"blob %d\0" % len(text) + text).hexdigest() == blob:
            return True
    return False

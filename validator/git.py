"""Asks git which files there are, without letting the repository run anything.

A repository's own `.git/config` is part of the tree that is read and may name programs: a file monitor,
hooks, external diffs, text converters, clean filters, a transport for missing objects. Only commands are
called that need none of them (`ls-files`, `ls-tree`, `rev-parse`, `merge-base`, `check-ignore`); what is
left is switched off. In particular `git diff` and `git status` are never called: they run clean filters.
"""

from __future__ import annotations

import os
import sys

from validator.errors import UsageError

_OFF = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.untrackedCache=false")
_found: list[str | None] = []


def _program() -> str | None:
    """The absolute path of git; relative entries of PATH are skipped, they would be looked up in the tree."""
    if not _found:
        name = "git.exe" if sys.platform == "win32" else "git"
        folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
        paths = (os.path.join(folder, name) for folder in folders)
        _found.append(next((path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)), None))
    return _found[0]


def _environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    kept.update(
        LC_ALL="C",
        GIT_OPTIONAL_LOCKS="0",
        GIT_TERMINAL_PROMPT="0",
        GIT_NO_LAZY_FETCH="1",
        GIT_ALLOW_PROTOCOL="none",  # an unknown one: no transport at all, whatever the configuration says
        GIT_NO_REPLACE_OBJECTS="1",
    )
    return kept


def run(folder: str, *arguments: str) -> tuple[int, bytes]:
    """Exit status and standard output of a git command in a folder; status 127 where there is no git."""
    program = _program()
    if program is None:
        return 127, b""
    command = [program, "--no-pager", *_OFF, "-C", folder, *arguments]
    if hasattr(os, "posix_spawn"):
        return _spawn(command)
    import subprocess

    done = subprocess.run(command, env=_environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode, done.stdout


def _spawn(command: list[str]) -> tuple[int, bytes]:
    """As `subprocess.run`, whose import alone would cost a warm run a quarter of its time."""
    reader, writer = os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writer, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    try:
        process = os.posix_spawn(command[0], command, _environment(), file_actions=actions)
    except OSError:
        os.close(reader)
        return 127, b""
    finally:
        os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        output = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), output


def inside_work_tree(folder: str) -> bool:
    """Whether a `.git` lies here or above (no process is started for this)."""
    folder = os.path.abspath(folder)
    while True:
        if os.path.lexists(os.path.join(folder, ".git")):
            return True
        parent = os.path.dirname(folder)
        if parent == folder:
            return False
        folder = parent


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


def changed_since(folder: str, revision: str, paths: list[str]) -> set[str]:
    """Those of the absolute `paths` that differ from where this branch left `revision`. Raises UsageError.

    A file that git does not know counts as changed. Contents are compared by their blob ids, computed here.
    """
    status, output = run(folder, "rev-parse", "--show-toplevel")
    if status != 0:
        raise UsageError(f"--changed-since: {folder} is not in a git work tree that git can read")
    top = os.path.realpath(os.fsdecode(output.rstrip(b"\n")))
    commit = _commit(folder, revision)
    status, listing = run(top, "ls-tree", "-r", "-z", "--full-tree", commit)
    if status != 0:
        raise UsageError(f"--changed-since: git cannot list the files of {revision!r}")
    blobs: dict[str, str] = {}
    for entry in listing.split(b"\0"):
        head, _, name = entry.partition(b"\t")
        if name:
            blobs[os.path.join(top, os.fsdecode(name))] = head.split(b" ")[2].decode("ascii")
    return {path for path in paths if not _same(path, blobs.get(os.path.realpath(path)))}


def _commit(folder: str, revision: str) -> str:
    status, output = run(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}")
    if status != 0:
        raise UsageError(f"--changed-since: git knows no revision {revision!r}")
    commit = output.decode("ascii", "replace").strip()
    status, output = run(folder, "merge-base", commit, "HEAD")
    return output.decode("ascii", "replace").strip() if status == 0 else commit


def _same(path: str, blob: str | None) -> bool:
    if blob is None:
        return False
    import hashlib

    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return False
    method = hashlib.sha1 if len(blob) == 40 else hashlib.sha256
    for text in dict.fromkeys((data, data.replace(b"\r\n", b"\n"))):
        if method(b"blob %d\0" % len(text) + text).hexdigest() == blob:
            return True
    return False

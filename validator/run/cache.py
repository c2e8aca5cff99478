"""Remembers what a run found, under the user's cache folder, so that an unchanged tree costs no analysis.

Three files per working directory and set of enabled rules, all named after a fingerprint of this program
(its version, the sizes and times of its own files, the Python that runs it):

- `*.runs`: for each file its stamp and digest, and the findings of the last runs under a key made of
  everything that they depend on. It is read with `marshal`, which needs no import.
- `*.facts`: for each file the pickled facts, file findings and suppressions under the digest of its content.
  It is opened only if a run is not known whole.
- `*.rules`: what there is to know of our rules without importing their modules.

And for each table in TOML that was read its content, under the digest of its bytes (`*.table`).

*Trust.* What is read decides what is reported, so nothing is read from a folder that another user owns or may write
to; then there is no cache. *Damage.* Each file begins with a digest of the rest; whatever does not fit, or is not
made of what a cache is made of, is dropped without a word and made again; unpickling makes nothing but records.
*Two runs at once.* Files are replaced atomically; the later writer wins and the other's work is done again some day.
*Stale stamps.* As in git, the stamp of a file (size, times, inode) is believed only if it was taken two seconds or
more after the file last changed; else the file is read.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
import time
from typing import Any, NamedTuple

from validator import __version__
from validator.files.discovery import Entry
from validator.files.reading import regular
from validator.finding import Edit, Finding, Fix, Related, Span, is_finding, is_fix

try:  # `hashlib` loads OpenSSL, which takes longer than all the hashing of a warm run
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

_MAGIC = b"meshproof-1\n"
_SETTLED = 2_000_000_000  # ns; the coarsest clock of a file system in use
_RUNS_KEPT = 16
_FIXES_KEPT = 2_000
_FACTS_BYTES = 192_000_000
_FOLDER_BYTES = 512_000_000


class Run(NamedTuple):
    """What is remembered of a run: its findings before baseline and notes are left out, and how many were
    silenced by comments."""

    findings: list[Finding]
    suppressed: int


def folder() -> str:
    """The cache folder, which need not exist."""
    if chosen := os.environ.get("MESHPROOF_CACHE_DIR"):
        return os.path.abspath(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~\\AppData\\Local")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(os.path.abspath(base), "meshproof")


def _trusted(path: str) -> bool:
    """Whether a folder is ours alone to write (it is made if it does not exist)."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.stat(path)
    except OSError:
        return False
    if hasattr(os, "getuid"):
        return status.st_uid == os.getuid() and not status.st_mode & 0o022
    return True


def digest(data: bytes) -> bytes:
    """BLAKE2b-128."""
    return blake2b(data, digest_size=16).digest()


def fingerprint(folders: tuple[str, ...]) -> str:
    """A digest of this program: version, interpreter, and the stamps of its files and of user rules."""
    home = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    seen: list[Any] = [__version__, sys.version, sys.platform]
    for path in (os.path.join(home, "validator"), os.path.join(home, "rules"), *folders):
        _stamps(path, seen)
    return digest(repr(seen).encode("utf-8", "surrogateescape")).hex()


def _stamps(path: str, seen: list[Any]) -> None:
    try:
        with os.scandir(path) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.endswith((".py", ".toml")):
            try:
                status = entry.stat()
            except OSError:  # a link to nothing
                continue
            seen.append((entry.path, status.st_size, status.st_mtime_ns))
        elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
            _stamps(entry.path, seen)


class Cache:
    """The cache of one working directory; every method does nothing where there can be none."""

    def __init__(self, fingerprint: str, enabled: bool = True) -> None:
        self.folder = folder()
        self.usable = enabled and _trusted(self.folder)
        name = digest(f"{os.getcwd()}\0{fingerprint}".encode("utf-8", "surrogateescape")).hex()
        self._base = os.path.join(self.folder, name)
        self._stamps: dict[str, tuple[Any, bytes]] = {}
        self._runs: dict[bytes, Any] = {}
        self._fixes: dict[bytes, Any] = {}
        self._dirty = False
        self._facts: dict[str, tuple[bytes, bytes]] | None = None
        self.used = False  # whether facts or fixes came out of it
        parts = self._loaded(".runs")
        if isinstance(parts, tuple) and len(parts) == 3 and all(isinstance(part, dict) for part in parts):
            self._stamps, self._runs, self._fixes = parts

    def _loaded(self, suffix: str) -> Any:
        """What a file of this cache holds, of whatever shape; None where there is none."""
        return self._held(self._base + suffix)

    def _held(self, path: str) -> Any:
        body = _load(path) if self.usable else None
        try:
            return marshal.loads(body) if body is not None else None
        except Exception:  # bytes that are no marshal may raise anything
            return None

    def digests(self, entries: list[Entry]) -> list[bytes]:
        """The digest of the content of each file (of its problem, where it cannot be read)."""
        return [self._digest(entry) for entry in entries]

    def _digest(self, entry: Entry) -> bytes:
        if entry.problem is not None:
            return digest(repr(entry.problem).encode())
        match self._stamps.get(entry.absolute):
            case (stamp, bytes(known)) if stamp == entry.stamp:
                return known
        now = time.time_ns()
        try:
            value = digest(regular(entry.absolute))
        except OSError as error:
            return digest(f"unreadable {error.errno}".encode())
        if max(entry.stamp[1:3]) + _SETTLED < now:
            self._stamps[entry.absolute] = (entry.stamp, value)
            self._dirty = True
        return value

    def run(self, key: bytes) -> Run | None:
        """The remembered run of a key."""
        if key not in self._runs:
            return None
        try:
            findings, suppressed = self._runs[key]
            run = Run([_finding(each) for each in findings], suppressed)
            if all(map(is_finding, run.findings)) and type(suppressed) is int:
                return run
        except Exception:  # of any other shape
            pass
        del self._runs[key]
        return None

    def remember(self, key: bytes, run: Run) -> None:
        self._runs.pop(key, None)
        self._runs[key] = ([_plain(each) for each in run.findings], run.suppressed)
        while len(self._runs) > _RUNS_KEPT:
            del self._runs[next(iter(self._runs))]
        self._dirty = True

    def fix(self, key: bytes) -> tuple[Fix | None] | None:
        """The remembered fix of a finding (which may be that there is none), in a tuple."""
        if key not in self._fixes:
            return None
        try:
            fix = _fix(self._fixes[key])
        except Exception:  # of any other shape
            return None
        if fix is not None and not is_fix(fix, first=0):
            return None
        self.used = True
        return (fix,)

    def remember_fix(self, key: bytes, fix: Fix | None) -> None:
        self._fixes[key] = _plain_fix(fix)
        while len(self._fixes) > _FIXES_KEPT:
            del self._fixes[next(iter(self._fixes))]
        self._dirty = True

    def save(self) -> None:
        """Write the stamps and runs, if anything about them is new."""
        if self.usable and self._dirty:
            _store(self._base + ".runs", marshal.dumps((self._stamps, self._runs, self._fixes)))
            self._dirty = False

    def rules(self) -> list[Any] | None:
        """The index of the rules, as it was saved."""
        rows = self._loaded(".rules")
        return rows if isinstance(rows, list) else None

    def save_rules(self, rows: list[Any]) -> None:
        if self.usable:
            _store(self._base + ".rules", marshal.dumps(rows))

    def table(self, key: bytes) -> dict[str, Any] | None:
        """The content of a TOML file whose bytes have this digest, wherever it lies."""
        table = self._held(self._table(key))
        return table if isinstance(table, dict) else None

    def save_table(self, key: bytes, table: dict[str, Any]) -> None:
        if self.usable:
            with contextlib.suppress(ValueError):  # dates
                _store(self._table(key), marshal.dumps(table))

    def _table(self, key: bytes) -> str:
        return os.path.join(self.folder, f"{key.hex()}.table")

    # -- facts ---------------------------------------------------------------------------------------------

    def open_facts(self) -> None:
        """Read the store of facts; before this, `facts` knows nothing."""
        facts = self._loaded(".facts")
        self._facts = facts if isinstance(facts, dict) else {}

    def forget_facts(self) -> None:
        """Drop the facts and the fixes, here and on disk: something about them is wrong."""
        self._facts, self._fixes, self.used = {}, {}, False
        self._dirty = True
        if self.usable:
            with contextlib.suppress(OSError):
                os.unlink(self._base + ".facts")

    def facts(self, path: str, content: bytes) -> bytes | None:
        """The pickled record of a file of this content at this path."""
        match (self._facts or {}).get(path):
            case (bytes(known), bytes(record)) if known == content:
                self.used = True
                return record
        return None

    def save_facts(self, records: dict[str, tuple[bytes, bytes]]) -> None:
        """Write the records of this run; those of other runs stay while there is room."""
        if not self.usable:
            return
        size = sum(len(record) for _, record in records.values())
        merged = dict(records)
        for path, known in (self._facts or {}).items():
            match known:
                case (bytes(), bytes(record)) if path not in merged and size + len(record) < _FACTS_BYTES:
                    merged[path] = known
                    size += len(record)
        if size < _FACTS_BYTES:
            _store(self._base + ".facts", marshal.dumps(merged))
            _prune(self.folder)


def _load(path: str) -> bytes | None:
    """The body of a cache file; None if it is missing, damaged or not ours."""
    try:
        data = regular(path)
    except OSError:
        return None
    start = len(_MAGIC) + 16
    body = memoryview(data)[start:]
    if not data.startswith(_MAGIC) or digest(body) != data[len(_MAGIC) : start]:  # type: ignore[arg-type]
        return None
    return body  # type: ignore[return-value]


def _store(path: str, body: bytes) -> None:
    """Replace a cache file atomically. A full disk or a vanished folder only costs the cache."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_MAGIC + digest(body))
            file.write(body)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _prune(path: str) -> None:
    """Drop the files that were not written for the longest time once the folder is too large."""
    try:
        with os.scandir(path) as scan:
            files = [
                (entry.stat(), entry.path)
                for entry in scan
                if entry.name.endswith((".runs", ".facts", ".rules", ".table", ".tmp"))
            ]
        files.sort(key=lambda each: each[0].st_mtime_ns)
        size = sum(status.st_size for status, _ in files)
        for status, name in files[:-2]:
            abandoned = name.endswith(".tmp") and status.st_mtime < time.time() - 3600
            if size > _FOLDER_BYTES or abandoned:
                os.unlink(name)
                size -= status.st_size
    except OSError:
        return


def _plain(finding: Finding) -> tuple[Any, ...]:
    """A finding as `marshal` can hold it: exact tuples."""
    return (
        finding.code, finding.name, finding.severity, finding.path, tuple(finding.span), finding.message,
        finding.help, tuple(tuple(each) for each in finding.related), _plain_fix(finding.fix),
        finding.context,
    )  # fmt: skip


def _plain_fix(fix: Fix | None) -> tuple[Any, ...] | None:
    if fix is None:
        return None
    return fix.safety, fix.message, tuple((tuple(edit.span), edit.text) for edit in fix.edits)


def _finding(plain: tuple[Any, ...]) -> Finding:
    related = tuple(Related(*each) for each in plain[7])
    code, name, severity, path, span, message, help = plain[:7]
    return Finding(code, name, severity, path, Span(*span), message, help, related, _fix(plain[8]), plain[9])


def _fix(plain: tuple[Any, ...] | None) -> Fix | None:
    if plain is None:
        return None
    return Fix(plain[0], plain[1], tuple(Edit(Span(*span), text) for span, text in plain[2]))

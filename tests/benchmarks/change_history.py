"""What the rules about changes say of real history: the last commits of a project, each against its parent.

    python tests/benchmarks/change_history.py CLONE [--commits 200] [--seconds S] [--draw 60] [--out FILE]

CLONE is a git repository (a bare one will do). Commits with changes of Python files are taken along the first parents,
merges and those of more than 150 files left out. Every finding is written as a line of JSON, notes too, which are
counted apart; `--draw` prints some of the errors and warnings, drawn at random by a fixed seed, to be judged by
reading. After `--seconds` no further commit is begun. Only the family `changes` is asked.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from validator.drift import Change, Side
from validator.files.languages import has_suffix
from validator.finding import Finding
from validator.registry import load_rules
from validator.run.config import Config
from validator.source import SourceFile

MOST = 150  # files of a commit


class History:
    """The files of the commits of a clone; contents are read once for each blob."""

    def __init__(self, clone: Path, folder: Path) -> None:
        self.git = ["git", "-C", str(clone)]
        self.folder = folder
        self.sources: dict[tuple[str, str], SourceFile | None] = {}
        self.there: set[str] = set()
        self.sides: dict[tuple[tuple[str, str], ...], Side] = {}  # the parent of a commit is often the next one
        command = [*self.git, "cat-file", "--batch"]  # one process: starting one takes longer than many files
        self.blobs = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, *arguments: str) -> bytes:
        return subprocess.run([*self.git, *arguments], capture_output=True, check=True).stdout

    def commits(self, count: int) -> list[str]:
        rows = self.run("log", "--first-parent", "--no-merges", "--format=%H", f"-{count}", "HEAD", "--", "*.py")
        return rows.decode().split()

    def files(self, commit: str) -> dict[str, str]:
        """The blob of each file that the validator reads."""
        found = {}
        for entry in self.run("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
            head, _, name = entry.partition(b"\t")
            path = name.decode("utf-8", "replace")
            if name and has_suffix(path) and head.startswith(b"100"):
                found[path] = head.split()[2].decode()
        return found

    def source(self, path: str, blob: str) -> SourceFile | None:
        """A file at a path; None where the clone lacks its content."""
        key = (path, blob)
        if key not in self.sources:
            data = self.content(blob)
            self.sources[key] = SourceFile(path, str(self.folder / path), data) if data is not None else None
        return self.sources[key]

    def content(self, blob: str) -> bytes | None:
        assert self.blobs.stdin is not None
        assert self.blobs.stdout is not None
        self.blobs.stdin.write(f"{blob}\n".encode())
        self.blobs.stdin.flush()
        head = self.blobs.stdout.readline().split()  # name, kind, size; or `missing`
        return self.blobs.stdout.read(int(head[2]) + 1)[:-1] if len(head) == 3 else None

    def close(self) -> None:
        self.blobs.terminate()
        self.blobs.communicate()

    def side(self, files: dict[str, str], config: Config) -> Side:
        """A commit as a project."""
        key = tuple(sorted(files.items()))
        if key not in self.sides:
            self.sides[key] = Side([source for path, blob in key if (source := self.source(path, blob))], config)
        return self.sides[key]

    def forget(self, side: Side, but: Side) -> None:
        """Lets go of the files of a commit that another one does not have: a hundred commits would fill the memory."""
        kept = {id(source) for source in but.project.files.values()}
        gone = {id(source): source for source in side.project.files.values() if id(source) not in kept}
        self.sources = {key: source for key, source in self.sources.items() if id(source) not in gone}
        for source in gone.values():
            source.release()

    def lay_out(self, files: dict[str, str]) -> None:
        """Empty files where those of a commit would lie: packages are told by their `__init__.py`."""
        for path in files.keys() - self.there:
            place = self.folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        for path in self.there - files.keys():
            (self.folder / path).unlink()
        self.there = set(files)


def findings(history: History, commit: str) -> list[Finding] | None:
    """What a commit broke, as the rules see it; None where it cannot be compared."""
    try:
        new, old = history.files(commit), history.files(f"{commit}^")
    except subprocess.CalledProcessError:
        return None
    changed = [path for path in new.keys() | old.keys() if new.get(path) != old.get(path)]
    if len(changed) > MOST:
        return None
    history.lay_out(new)
    config = Config(root=str(history.folder))
    sides = (history.side(old, config), history.side(new, config))
    history.sides = {key: side for key, side in history.sides.items() if side is sides[0]}
    change = Change(*sides, [str(history.folder / path) for path in changed])
    rules = [each for each in load_rules() if each.check_change is not None]
    found = [finding for each in rules if each.check_change for finding in each.check_change(change)]
    history.forget(sides[1], sides[0])
    return found


def rows(clone: Path, count: int) -> Iterator[tuple[str, list[Finding]]]:
    with tempfile.TemporaryDirectory() as folder:
        history = History(clone, Path(folder).resolve())
        try:
            for number, commit in enumerate(history.commits(count)):
                found = findings(history, commit)
                if found is not None:
                    yield commit, found
                if number % 20 == 0:
                    gc.collect()
        finally:
            history.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("clone", type=Path)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--draw", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sys.setrecursionlimit(6000)
    began, compared, notes, lines = time.monotonic(), 0, 0, []
    out = options.out.open("w", encoding="utf-8") if options.out else None
    for commit, found in rows(options.clone, options.commits):
        compared += 1
        for each in found:
            row = {"commit": commit, "code": each.code, "severity": each.severity, "path": each.path}
            row |= {"line": each.span.line, "message": each.message}
            if each.severity == "note":
                notes += 1
            else:
                lines.append(row)
            if out is not None:  # at once: a history takes its time
                print(json.dumps(row), file=out, flush=True)
        if time.monotonic() - began > options.seconds:
            break
    drawn = random.Random(0).sample(lines, min(options.draw, len(lines)))
    for line in drawn:
        print(json.dumps(line))
    rate = len(lines) / max(compared, 1)
    seconds = time.monotonic() - began
    print(f"{compared} commits, {len(lines)} findings, {rate:.3f} a commit, {notes} notes, {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

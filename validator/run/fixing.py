"""The runs that change files: `--fix`, `--fix-only`, `--diff` and `--add-ignore`.

Files are changed in memory and checked again until nothing more can be mended; only then is anything written,
each file as a whole, and only if it still holds what was checked.
"""

from __future__ import annotations

import argparse
import io
import os
from collections import Counter

from validator.drift.revision import Older
from validator.errors import UsageError
from validator.files import discovery, streams, writing
from validator.files.reading import regular
from validator.finding import Finding
from validator.output import clean
from validator.run import fixes, ignoring
from validator.run.checker import Check, check_sources
from validator.run.config import Config
from validator.run.records import Record
from validator.run.reporting import new_findings, report, status_of
from validator.run.running import Checked, check_of, older_of
from validator.source import SourceFile

_ROUNDS = 10  # a fix may uncover another; two that undo each other must end


def run(options: argparse.Namespace, settings: Config) -> int:
    """Do what was asked for and report what is left; the exit status."""
    paths = options.paths or ["."]
    entries = discovery.discover(paths, settings, options.output)
    older = older_of(options, settings, entries)
    check = check_of(settings, any(os.path.isdir(path) for path in paths))
    if not options.no_change_rules:
        check = check._replace(older=older)
    tree = _Tree(entries, check, discovery.roots(paths), older)
    if options.add_ignore:
        _silence(options, settings, tree)
    else:
        _mend(options, settings, tree)
    tree.leave_links()
    if options.diff:
        return _show(options, tree)
    tree.write()
    count = sum(tree.count.values())
    checked = tree.checked()
    if options.add_ignore:
        left = len(new_findings(options, settings, checked))
        streams.say(
            f"{_number(count, 'finding')} silenced" + (f"; {left} left, where no comment can do it" if left else "")
        )
    else:
        streams.say(f"{_number(count, 'fix', 'fixes')} applied")
    if options.fix_only:  # what no fix can mend is for the run that checks
        return status_of(checked, 0)
    return report(options, settings, checked)


def _number(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


class _Tree:
    """The files of a run as they are changed, and what is found in them. `count`: of changes, by path."""

    def __init__(
        self, entries: list[discovery.Entry], check: Check, roots: tuple[str, ...] = (), older: Older | None = None
    ) -> None:
        self.entries = entries
        self.check = check
        self.older = older
        self.before: dict[str, bytes] = {}
        self.now: dict[str, bytes] = {}
        self.records: dict[str, Record] = {}
        self.absolute = {entry.path: entry.absolute for entry in entries}
        self.roots = roots
        self.count: Counter[str] = Counter()

    def checked(self) -> Checked:
        """The findings as the files stand."""
        sources = [SourceFile(entry.path, entry.absolute, self.now.get(entry.path)) for entry in self.entries]
        problems = {entry.path: entry.problem for entry in self.entries}
        result = check_sources(sources, self._compared(), self.records, problems)
        return Checked(
            findings=result.findings,
            files=self.entries,
            suppressed=result.suppressed,
            errors=result.errors,
            now=self.now,
            changed=frozenset(self.older.files) if self.older is not None else None,
        )

    def _compared(self) -> Check:
        """What is checked, where two revisions are compared with the files that a fix has changed among them."""
        if self.check.older is None:
            return self.check
        mended = {self.absolute[path]: data for path, data in self.before.items() if data != self.now[path]}
        return self.check._replace(older=self.check.older._replace(files={**mended, **self.check.older.files}))

    def data(self, path: str) -> bytes:
        if path not in self.now:
            self.before[path] = self.now[path] = regular(self.absolute[path])
        return self.now[path]

    def change(self, path: str, data: bytes, count: int) -> None:
        self.now[path] = data
        self.count[path] += count
        self.records.pop(path, None)

    def changed(self) -> list[str]:
        return sorted(path for path, data in self.now.items() if data != self.before[path])

    def leave_links(self) -> None:
        """Take back what would be written outside of the tree."""
        for path in self.changed():
            if not discovery.within(self.absolute[path], self.roots):
                streams.say(f"{clean(path)}: a link that leads elsewhere; not written")
                self.change(path, self.before[path], -self.count[path])

    def write(self) -> None:
        """Write what was changed. Raises UsageError for a file that cannot be written, or that changed."""
        for path in self.changed():
            try:
                if regular(self.absolute[path]) != self.before[path]:
                    raise UsageError(f"{path} was changed by someone else meanwhile; nothing more is written")
                writing.replace(self.absolute[path], self.now[path])
            except OSError as error:
                raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def _by_file(findings: list[Finding]) -> dict[str, list[Finding]]:
    grouped: dict[str, list[Finding]] = {}
    for finding in findings:
        grouped.setdefault(finding.path, []).append(finding)
    return grouped


def _mend(options: argparse.Namespace, settings: Config, tree: _Tree) -> None:
    """Apply fixes until none is left."""
    for _ in range(_ROUNDS):
        checked = tree.checked()
        findings = [
            each for each in new_findings(options, settings, checked) if fixes.allowed(each, options.unsafe_fixes)
        ]
        count = 0
        for path, found in _by_file(findings).items():
            data, number = fixes.applied(tree.data(path), [each.fix for each in found if each.fix is not None], path)
            if data != tree.data(path):
                tree.change(path, data, number)
                count += number
        if not count:
            break


def _silence(options: argparse.Namespace, settings: Config, tree: _Tree) -> None:
    """Put a comment beside each finding."""
    checked = tree.checked()
    for path, found in _by_file(new_findings(options, settings, checked)).items():
        if path not in tree.absolute:  # a page whose commands a change left behind
            streams.say(f"{clean(path)}: no comment silences what is found here; `--update-baseline` does")
            continue
        data, count = ignoring.silenced(tree.data(path), found, options.reason or ignoring.REASON)
        tree.change(path, data, count)


def _show(options: argparse.Namespace, tree: _Tree) -> int:
    """Print what would change; 1 if anything would."""
    import difflib

    from validator.facts.decode import encoding_of

    changed = tree.changed()
    parts = []
    # What a terminal would obey is shown escaped there; a file or `patch` gets the bytes as they are.
    shown = _for_terminal if options.output is None and streams.is_terminal() else str
    for path in changed:
        before, after = (data.decode(encoding_of(data)) for data in (tree.before[path], tree.now[path]))
        lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{clean(path)}", f"b/{clean(path)}")
        parts += [
            shown(line) if line.endswith(("\n", "\r")) else f"{shown(line)}\n\\ No newline at end of file\n"
            for line in lines
        ]
    streams.write("".join(parts), options.output)
    return 1 if changed and not options.exit_zero else 0


def _lines(text: str) -> list[str]:
    """The lines with their ends; a form feed ends none."""
    return list(io.StringIO(text, newline=""))


def _for_terminal(line: str) -> str:
    bare = line.rstrip("\r\n")
    return clean(bare.replace("\t", "    ")) + ("\n" if len(bare) < len(line) else "")

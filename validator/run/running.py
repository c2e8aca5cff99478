"""What a command line asks to be checked, out of the cache where it knows the whole run.

Only what a run needs of which the cache knows everything is imported at the top.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from validator.errors import UsageError
from validator.files import discovery, streams
from validator.finding import Finding
from validator.run import cache, config
from validator.run.arguments import common_folder

if TYPE_CHECKING:
    from validator.drift.revision import Older


class Checked(argparse.Namespace):
    """The outcome of a run: findings before the baseline, files, how many were silenced, internal errors.

    `now` holds the bytes of files that are not, or not yet, what lies on disk.
    """

    findings: list[Finding]
    files: list[discovery.Entry]
    suppressed: int
    errors: list[str]
    now: dict[str, bytes]
    changed: frozenset[str] | None = None  # absolute paths, where the run compares two revisions
    gone: frozenset[str] = frozenset()  # names that stood in changed files and do not any more
    left: frozenset[str] = frozenset()  # names that stand in some changed file less often


def findings(options: argparse.Namespace, settings: config.Config) -> Checked:
    """The findings of the paths, out of the cache where it knows the whole run."""
    paths = options.paths or ["."]
    entries = discovery.discover(paths, settings, options.output)
    before = older_of(options, settings, entries)
    if not entries and all(map(os.path.isdir, paths)):  # the wrong folder, most likely
        streams.say(f"nothing to check: no Python, shell or configuration file in {_listed(paths)}")
    return _findings(options, settings, entries, before)


def _findings(
    options: argparse.Namespace, settings: config.Config, entries: list[discovery.Entry], before: Older | None
) -> Checked:
    whole = any(os.path.isdir(path) for path in options.paths or ["."])
    marks = repr((settings.select, settings.ignore, settings.extend_select, settings.target_python))
    store = cache.Cache(cache.fingerprint(settings.rules) + marks, not options.no_cache)
    digests = store.digests(entries)
    changed = frozenset(before.files) if before is not None else None
    staged = before.now if before is not None else {}
    now = {entry.path: staged[entry.absolute] for entry in entries if entry.absolute in staged}
    if now:
        digests = [
            cache.digest(now[e.path]) if e.path in now else known for e, known in zip(entries, digests, strict=True)
        ]
    compared = before if before is not None and not options.no_change_rules else None
    key = run_key(entries, digests, settings, whole, compared)
    known = store.run(key)
    if known is not None:
        store.save()
        return Checked(
            findings=known.findings, files=entries, suppressed=known.suppressed, errors=[], changed=changed, now=now,
            gone=compared.names_gone if compared is not None else frozenset(),
            left=compared.names_left if compared is not None else frozenset(),
        )  # fmt: skip
    checked = analyse(entries, digests, settings, whole, store, compared, now)
    checked.changed = changed
    if compared is not None:
        checked.gone, checked.left = compared.names_gone, compared.names_left
    if not checked.errors:
        store.remember(key, cache.Run(checked.findings, checked.suppressed))
    store.save()
    return checked


def older_of(options: argparse.Namespace, settings: config.Config, entries: list[discovery.Entry]) -> Older | None:
    """The other revision of a comparison; None where the options name none."""
    if not (options.changed_since or options.staged or options.against):
        return None
    from validator.drift import revision

    folder = common_folder(options.paths)
    found = revision.older(options, settings, entries, folder)
    streams.say(found.said)
    return found


def tell_of_left_out(options: argparse.Namespace, settings: config.Config) -> None:
    """Say which PATHs are not read: who names a file expects to hear of it."""
    named = [options.stdin_filename] if options.stdin_filename else [path for path in options.paths if path != "-"]
    excluded = discovery.left_out(named, settings)
    if excluded:
        streams.say(f"excluded by {settings.source}, so not checked: {_listed(excluded)}")
    foreign = [path for path in options.paths if path not in excluded and not discovery.is_code(path)]
    if foreign:
        streams.say(f"not checked, being neither Python, shell nor configuration: {_listed(foreign)}")


def _listed(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


def run_key(
    entries: list[discovery.Entry],
    digests: list[bytes],
    settings: config.Config,
    whole: bool,
    before: Older | None = None,
) -> bytes:
    """A digest of everything that the findings of a run depend on and the name of the cache does not say."""
    notes = settings.notes and before is not None  # of those that are shown it is asked which are old
    parts = [repr(whole).encode(), *map(cache.digest, config.decisive(settings, notes))]
    parts += [os.fsencode(folder) for folder in _packages_above(entries)]
    for entry, content in zip(entries, digests, strict=True):
        parts += (os.fsencode(entry.path), content)
    if before is not None:
        parts.append(b"compared")
        for path, data in sorted(before.files.items()):
            parts += (os.fsencode(path), b"" if data is None else cache.digest(data))
    return cache.digest(b"\0".join(parts))


def _packages_above(entries: list[discovery.Entry]) -> list[str]:
    """The package folders that hold files of the run; they decide what its modules are called."""
    seen: dict[str, bool] = {}
    for entry in entries:
        folder = os.path.dirname(entry.absolute)
        while folder not in seen:
            seen[folder] = os.path.isfile(os.path.join(folder, "__init__.py"))
            if not seen[folder]:
                break
            folder = os.path.dirname(folder)
    return sorted(folder for folder, is_package in seen.items() if is_package)


def analyse(
    entries: list[discovery.Entry],
    digests: list[bytes],
    settings: config.Config,
    whole: bool,
    store: cache.Cache | None = None,
    before: Older | None = None,
    now: dict[str, bytes] | None = None,
) -> Checked:
    """Run the rules. Raises UsageError for a selector that no rule answers to."""
    from validator.files import tables
    from validator.run import checker

    tables.keep_in(store)
    run = check_of(settings, whole, store)._replace(older=before)
    result = checker.check(entries, digests, run, store, now or {})
    return Checked(
        findings=result.findings, files=entries, suppressed=result.suppressed, errors=result.errors, now=now or {}
    )


def check_of(settings: config.Config, whole: bool, store: cache.Cache | None = None) -> Any:
    from validator import registry
    from validator.run import checker

    errors: list[str] = []
    if store is not None and store.usable:
        known = registry.indexed_rules(settings.rules, errors, store)
    else:
        known = registry.load_rules(settings.rules, errors)
    for where, selectors in _selectors(settings):
        registry.check_selectors(selectors, known, where)
    rules = registry.enabled(known, settings.select, settings.ignore, settings.extend_select)
    return checker.Check(settings, rules, known, settings.jobs or os.cpu_count() or 1, whole, tuple(errors))


def _selectors(settings: config.Config) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Where selectors of rules are written, as a person finds it, and those that are written there."""
    given = dict(settings.given)
    for name in ("select", "ignore", "extend_select"):
        selectors, option = getattr(settings, name), name.replace("_", "-")
        of_file = len(selectors) - given.get(name, 0)
        yield f"{settings.source}: {option}", selectors[:of_file]
        yield f"--{option}", selectors[of_file:]
    for pattern, selectors in settings.per_file_ignores:
        yield f"{settings.source}: per-file-ignores.{pattern}", selectors


# as findings show places; the column says no more
_PLACE = re.compile(r"(.+?):([0-9]{1,9})(?::[0-9]{1,9})?", re.DOTALL)


def told_of(options: argparse.Namespace, settings: config.Config) -> str:
    """What the analysis of the whole project knows of one line."""
    from validator.run.checker import patience

    with patience():
        return _told_of(options, settings)


def _told_of(options: argparse.Namespace, settings: config.Config) -> str:
    from validator.analysis.commands.why_launch import why_launch
    from validator.effects.why import why
    from validator.files.languages import language
    from validator.project import Project
    from validator.source import SourceFile

    match = _PLACE.fullmatch(options.why)
    if match is None or int(match[2]) < 1:
        raise UsageError(f"--why takes FILE:LINE, not {options.why!r}")
    path, line = match[1], match[2]
    entries = discovery.discover(options.paths or ["."], settings, options.output)
    same = [e.path for e in entries if e.absolute == os.path.abspath(path).replace(os.sep, "/")]
    place = same[0] if same else os.path.normpath(path).replace(os.sep, "/")
    before = older_of(options, settings, entries)
    staged = before.now if before is not None else {}
    sources = [SourceFile(e.path, e.absolute, staged.get(e.absolute)) for e in entries if e.problem is None]
    project = Project(sources, settings)
    try:
        tell = why_launch if place in project.files and language(place) != "python" else why
        known = [*tell(project, place, int(line)), *_by_rules(project, place, int(line), settings)]
    except LookupError as error:
        parsed = any(module.path == place for module in project.modules.values())
        if not parsed and language(place) == "python" and place in (entry.path for entry in entries):
            raise UsageError(f"--why: {place} cannot be parsed; checking it tells why") from error
        raise UsageError(f"--why: {error}") from error
    checked = _findings(options, settings, entries, before)
    reported = [f for f in checked.findings if f.path == place and f.span.line <= int(line) <= max(f.span[::2])]
    told = [f"  {f.severity} {f.code} ({f.name}): {f.message}" for f in reported]
    if before is not None and not options.no_change_rules:
        from validator.drift.making import compared
        from validator.drift.why import why as why_changed

        change = compared(sources, before, settings)
        known += why_changed(change, check_of(settings, whole=True).rules, place, int(line), reported)
    return _clean_lines([*known, "reported at this line:", *(told or ["  nothing"])])


def _by_rules(project: Any, place: str, line: int, settings: config.Config) -> Iterator[str]:
    """What the rules know of a line beside their findings."""
    for each in check_of(settings, whole=True).rules:
        if each.about_line is not None:
            yield from each.about_line(project, place, line)


def _clean_lines(lines: list[str]) -> str:
    from validator.output import clean

    return "".join(clean(line) + "\n" for line in lines)


def of_standard_input(options: argparse.Namespace, settings: config.Config) -> Checked:
    from validator.run import checker
    from validator.source import SourceFile

    name = (options.stdin_filename or "stdin.py").replace(os.sep, "/")
    data = streams.read()
    source = SourceFile(name, os.path.abspath(name), data)
    entry = discovery.Entry(name, source.absolute, (len(data), 0, 0, 0, 0), None)
    if options.stdin_filename and discovery.left_out([name], settings):
        return Checked(findings=[], files=[], suppressed=0, errors=[])
    result = checker.check_sources([source], check_of(settings, False))
    found = result.findings
    if not options.stdin_filename:  # text from nowhere: what it imports cannot be looked for
        found = [f for f in found if f.code not in ("MP201", "MP202")]
    return Checked(
        findings=found,
        files=[entry],
        suppressed=result.suppressed,
        errors=result.errors,
        now={name: data},
    )

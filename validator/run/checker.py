"""Runs the rules over files and project and brings their findings together.

Per file (in several processes where there is much to do): facts, file rules, suppression comments; all of it
depends on that file alone and is cached under its content. Then, once: the project is linked from the facts,
the project rules run, and the comments are applied last, so that one that does nothing is itself a finding.
"""

from __future__ import annotations

import gc
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from validator.drift.revision import Older
from validator.errors import UsageError, told
from validator.facts.model import FileFacts, Problem
from validator.files.discovery import Entry, Globs
from validator.files.languages import language
from validator.finding import SEVERITIES, Finding, Fix, is_finding
from validator.project import Project
from validator.rule import LoadedRule
from validator.run.beside import Lifeline, Shared, beside, uninterrupted
from validator.run.cache import Cache, Run, digest
from validator.run.config import Config, decisive
from validator.run.records import Record, unpickled
from validator.run.suppressions import Outcome, Suppression, apply, comments_of, covers
from validator.source import SourceFile

if TYPE_CHECKING:
    from validator.drift.change import Change

_WORTH_A_PROCESS = 400_000  # bytes of uncached source per further process; below, starting it costs more
_WORTH_A_FORK = 20  # files from which on half of the project rules run in a process of their own
_ORDER = {  # families, so that two processes that begin at the two ends share little
    family: place
    for place, family in enumerate(("options", "parallelism", "source", "launch", "loading", "names", "interface"))
}
_SOLVING = ("compilation", "distributed")  # families whose rules ask the solver: one process solves for all of them
_WORD = re.compile(rb"\w+")
_RECURSION_LIMIT = 6_000  # a generated file may chain thousands of `+`; deeper ones are a finding


# Families whose findings say that something fails or goes wrong when it is run; MP205 says so of a whole file.
_BY_USE = frozenset({"MP1", "MP2", "MP3", "MP4", "MP5", "MP6", "MP7"})
_BY_ITSELF = frozenset({"MP141", "MP160", "MP205"})  # they say that nobody uses the line, or speak of whole files
_OF_ALL_FILES = frozenset({"MP160"})  # what they say is only so if all files of the project were read


class Result(NamedTuple):
    """The findings of a run, how many comments silenced, and the internal errors (one line each)."""

    findings: list[Finding]
    suppressed: int
    errors: list[str]


class Check(NamedTuple):
    """What a run is about.

    `rules` are the enabled ones of `known`. `whole`: a folder was named, so that what no project rule reports
    is not there (with single files its cause may not have been read). `errors`: from loading the rules. `older`: the
    revision that the run is compared with.
    """

    config: Config
    rules: list[LoadedRule]
    known: list[LoadedRule]
    jobs: int = 1
    whole: bool = True
    errors: tuple[str, ...] = ()
    older: Older | None = None


def check(
    entries: list[Entry],
    digests: list[bytes],
    run: Check,
    cache: Cache | None = None,
    now: dict[str, bytes] | None = None,
) -> Result:
    """All findings of the files, sorted. `now`: by reported path contents that are not what lies on disk."""
    if now:
        return _with_contents(entries, run, now)
    with patience():
        try:
            result = _checked(entries, digests, run, cache)
            if not result.errors or cache is None or not cache.used:
                return result
        except UsageError:
            raise
        except Exception:
            if cache is None or not cache.used:
                raise
        # What went wrong may have come out of the cache: only what goes wrong without it is an error.
        cache.forget_facts()
        return _checked(entries, digests, run, cache)


def _with_contents(entries: list[Entry], run: Check, now: dict[str, bytes]) -> Result:
    """The findings of files some of which are read from elsewhere."""
    sources = [SourceFile(entry.path, entry.absolute, now.get(entry.path)) for entry in entries]
    return check_sources(sources, run, problems={entry.path: entry.problem for entry in entries})


def _checked(entries: list[Entry], digests: list[bytes], run: Check, cache: Cache | None) -> Result:
    sources, records = _examined(entries, digests, run, cache)
    contents = {entry.path: content for entry, content in zip(entries, digests, strict=True)}
    return _joined(sources, records, run, cache, contents)


def check_sources(
    sources: list[SourceFile],
    run: Check,
    known: dict[str, Record] | None = None,
    problems: dict[str, tuple[str, str] | None] | None = None,
) -> Result:
    """All findings of sources that are at hand (standard input, files being mended, an example).

    `known` holds the records of files that have not changed, and is added to; `problems` as in `Entry`.
    """
    records = {} if known is None else known
    with patience():
        for source in sources:
            if source.path not in records:
                records[source.path] = examine(source, (problems or {}).get(source.path), run.rules)
            source.facts = records[source.path].facts
        return _joined(sources, records, run)


@contextmanager
def patience() -> Iterator[None]:
    """Deeper recursion and no garbage collection, until the analysis is done."""
    limit, collecting = sys.getrecursionlimit(), gc.isenabled()
    sys.setrecursionlimit(max(limit, _RECURSION_LIMIT))
    gc.disable()  # trees and facts are many, long-lived and without cycles: collecting is a third of the time
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
        if collecting:
            gc.enable()


# -- one file ----------------------------------------------------------------------------------------------


def examine(source: SourceFile, problem: tuple[str, str] | None, rules: list[LoadedRule]) -> Record:
    """Facts, file findings and comments of one file. `problem`: why it must not be read, if so."""
    errors: list[str] = []
    if problem is None:
        problem = _unreadable(source)
    if problem is not None:
        source.facts = FileFacts(problem=Problem(problem[0], 1, 1, problem[1]), language=language(source.path))
        data = b""
    else:
        data = source.data
        try:
            source.facts  # noqa: B018  (extracted here, where a crash can be named)
        except Exception as error:
            errors.append(f"internal error: the facts of {source.path} could not be extracted: {told(error)}")
            source.facts = FileFacts(language=language(source.path))
    tokens = _tokens_in(data, all_tokens(rules))
    findings = list(_file_findings(source, rules, tokens, errors))
    comments = () if problem is not None else comments_of(data, source)
    return Record(source.facts, tuple(findings), comments, tokens, tuple(errors))


def _tokens_in(data: bytes, tokens: Iterable[str]) -> frozenset[str]:
    """The tokens that a file contains: a word is in a file where it is in one of its words."""
    words = b" ".join(set(_WORD.findall(data)))
    spelled = ((token, *_spelled(token)) for token in tokens)
    return frozenset(token for token, it, is_word in spelled if it in (words if is_word else data))


@cache
def _spelled(token: str) -> tuple[bytes, bool]:
    """A token as it stands in files, and whether it is a word."""
    return token.encode(), _WORD.fullmatch(token.encode()) is not None


def all_tokens(rules: Iterable[LoadedRule]) -> frozenset[str]:
    return frozenset(token for each in rules for token in each.rule.tokens)


def _unreadable(source: SourceFile) -> tuple[str, str] | None:
    try:
        source.data  # noqa: B018
    except OSError as error:
        return "unreadable", error.strerror or "cannot be read"
    return None


def _file_findings(
    source: SourceFile, rules: list[LoadedRule], tokens: frozenset[str], errors: list[str]
) -> Iterator[Finding]:
    broken = source.facts.problem is not None
    for each in rules:
        if each.check_file is None or not _relevant(each, tokens):
            continue
        if broken and each.family != "source":
            continue  # there is no tree to look at
        if not broken and source.facts.language not in each.rule.languages:
            continue
        yield from _guarded(each, each.check_file, source, source.path, errors)


def _relevant(rule: LoadedRule, tokens: frozenset[str]) -> bool:
    return not rule.rule.tokens or not tokens.isdisjoint(rule.rule.tokens)


def _concerned(rule: LoadedRule, tokens: dict[str, set[str]]) -> bool:
    """Whether there is a file that a project rule may be about."""
    return any(_relevant(rule, frozenset(tokens[each])) for each in rule.rule.languages if each in tokens)


def _guarded(
    rule: LoadedRule, hook: Callable[..., Iterable[Finding]], subject: object, where: str, errors: list[str]
) -> list[Finding]:
    """The findings of a rule; a crash names the rule and its file and the others go on."""
    name = f"{rule.rule.code} ({rule.rule.name})"
    try:
        found = list(hook(subject))
    except (UsageError, KeyboardInterrupt):  # a contract that the configuration names cannot be read
        raise
    except BaseException as error:  # `sys.exit` in a rule ends the rule
        errors.append(f"internal error: rule {name} failed on {where}: {told(error)}")
        return []
    odd = next((each for each in found if not is_finding(each)), None)
    if odd is not None:
        errors.append(f"internal error: rule {name} failed on {where}: it gave {odd!r:.80}, which is no finding")
    return _once(each for each in found if is_finding(each))


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """What a rule says of one place in the same words is one finding, with all that is related to it."""
    found: dict[tuple[Any, ...], Finding] = {}
    for each in findings:
        known = found.get(each.sort_key())
        found[each.sort_key()] = each if known is None else known._replace(
            related=tuple(dict.fromkeys((*known.related, *each.related))),
            severity=min(known.severity, each.severity, key=SEVERITIES.index),
        )  # fmt: skip
    return list(found.values())


# -- many files --------------------------------------------------------------------------------------------


def _examined(
    entries: list[Entry], digests: list[bytes], run: Check, cache: Cache | None
) -> tuple[list[SourceFile], dict[str, Record]]:
    """Each file's record, from the cache or made now."""
    if cache is not None:
        cache.open_facts()
    sources = [SourceFile(entry.path, entry.absolute) for entry in entries]
    pickled: dict[str, tuple[bytes, bytes]] = {}
    records: dict[str, Record] = {}
    missing: list[tuple[Entry, bytes]] = []
    for entry, content in zip(entries, digests, strict=True):
        known = cache.facts(entry.path, content) if cache is not None else None
        record = unpickled(known) if known is not None else None
        if known is None or record is None:
            missing.append((entry, content))
        else:
            pickled[entry.path] = (content, known)
            records[entry.path] = record
    keep = cache is not None and cache.usable
    for path, content, data, record in _made(missing, run, keep, {each.path: each for each in sources}):
        records[path] = record
        if data and not record.errors:
            pickled[path] = (content, data)
    for source in sources:
        source.facts = records[source.path].facts
    if cache is not None and missing:
        cache.save_facts(pickled)
    return sources, records


def _made(
    missing: list[tuple[Entry, bytes]], run: Check, keep: bool, sources: dict[str, SourceFile]
) -> Iterator[tuple[str, bytes, bytes, Record]]:
    """(path, digest, pickled record, record) of each file, in the processes that it is worth."""
    size = sum(entry.stamp[0] for entry, _ in missing if entry.problem is None)
    count = min(run.jobs, 1 + size // _WORTH_A_PROCESS)
    if count > 1 and hasattr(os, "fork"):
        yield from _made_in_processes(missing, run, count)
        return
    solving = any(map(is_solving, run.rules))
    for entry, content in missing:
        source = sources[entry.path]
        content, data, record = _one(entry, content, run.rules, keep, source)
        if solving:
            source.lower()
        source.let_go()
        yield entry.path, content, data, record


def _one(
    entry: Entry, content: bytes, rules: list[LoadedRule], keep: bool, source: SourceFile | None = None
) -> tuple[bytes, bytes, Record]:
    """The record of a file under the digest of what was really read (it may have changed since)."""
    source = source or SourceFile(entry.path, entry.absolute)
    record = examine(source, entry.problem, rules)
    problem = record.facts.problem
    if problem is None or problem.kind not in ("size", "unreadable"):
        content = digest(source.data)
    return content, pickle.dumps(record, pickle.HIGHEST_PROTOCOL) if keep else b"", record


def _made_in_processes(
    missing: list[tuple[Entry, bytes]], run: Check, count: int
) -> Iterator[tuple[str, bytes, bytes, Record]]:
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    _Worker.rules = run.rules  # inherited by fork: rule modules cannot be pickled
    batches = _batches(missing, count)
    done: set[str] = set()
    line = Lifeline()
    # fork only: a started-from-scratch interpreter would look for modules in the working directory
    with ProcessPoolExecutor(count, mp_context=get_context("fork"), initializer=line.hold) as pool:
        try:
            with uninterrupted():  # the first task forks all processes
                answered = pool.map(_Worker.examine, batches)
            for answers in answered:
                for path, content, data in answers:
                    done.add(path)
                    yield path, content, data, pickle.loads(data)
        except BrokenProcessPool:
            pass
        except BaseException:  # interrupted: leaving the pool would wait for all that it was asked
            line.cut()
            raise
    line.cut()
    for entry, content in missing:  # the files of a process that was killed, one by one
        if entry.path not in done:
            content, data, record = _one(entry, content, run.rules, True)
            yield entry.path, content, data, record


class _Worker:
    """What a forked process does; `rules` is set before the fork."""

    rules: ClassVar[list[LoadedRule]] = []

    @classmethod
    def examine(cls, batch: list[tuple[Entry, bytes]]) -> list[tuple[str, bytes, bytes]]:
        answers = []
        for entry, content in batch:
            content, data, _ = _one(entry, content, cls.rules, True)
            answers.append((entry.path, content, data))
        return answers


def _batches(missing: list[tuple[Entry, bytes]], count: int) -> list[list[tuple[Entry, bytes]]]:
    """Batches of like size, small enough that the processes end together and large enough to be few."""
    target = max(100_000, sum(entry.stamp[0] for entry, _ in missing) // (count * 8))
    batches: list[list[tuple[Entry, bytes]]] = [[]]
    size = 0
    for item in missing:
        if size > target:
            batches.append([])
            size = 0
        batches[-1].append(item)
        size += item[0].stamp[0]
    return batches


# -- the project -------------------------------------------------------------------------------------------


def _joined(
    sources: list[SourceFile],
    records: dict[str, Record],
    run: Check,
    cache: Cache | None = None,
    contents: dict[str, bytes] | None = None,
) -> Result:
    """What the rules say of all files. `contents`: by path the digest of each, where there is a cache."""
    errors = [*run.errors, *(error for source in sources for error in records[source.path].errors)]
    findings = [finding for source in sources for finding in records[source.path].findings]
    project = _linked(sources, run, errors)
    of_project = _project_findings(project, records, run, errors) if project is not None else []
    compared = _Compared(sources, run, errors, cache, contents or {})
    if project is not None:
        compared.keep(project, of_project)
        findings, of_project = (_by_use(found, project, run, errors) for found in (findings, of_project))
    findings += _with_change(of_project, compared)
    by_path: dict[str, list[Finding]] = {source.path: [] for source in sources}
    for finding in dict.fromkeys(findings):
        by_path.setdefault(finding.path, []).append(finding)
    kept: list[Finding] = []
    suppressed = 0
    for path, found in by_path.items():
        comments = records[path].comments if path in records else ()
        left, silenced = _after_comments(path, found, comments, run, errors)
        kept += left
        suppressed += silenced
    kept = sorted(_not_ignored(_with_age(kept, compared), run.config), key=Finding.sort_key)
    return Result(_with_fixes(kept, sources, run, cache, errors), suppressed, sorted(set(errors)))


def _with_fixes(
    findings: list[Finding], sources: list[SourceFile], run: Check, cache: Cache | None, errors: list[str]
) -> list[Finding]:
    """The findings with the fixes that the modules of their rules can make."""
    able = {each.rule.code: each for each in run.rules if each.fix is not None}
    by_path = {source.path: source for source in sources}
    done = []
    for finding in findings:
        rule, source = able.get(finding.code), by_path.get(finding.path)
        if rule is not None and source is not None and finding.fix is None and source.facts.language == "python":
            finding = finding._replace(fix=_fix(finding, rule, source, cache, errors))
        done.append(finding)
    return done


def _fix(finding: Finding, rule: LoadedRule, source: SourceFile, cache: Cache | None, errors: list[str]) -> Fix | None:
    """The fix of one finding, remembered: making it takes LibCST, whose import is half of a small run."""
    key = digest(f"{source.digest}\0{finding!r}".encode("utf-8", "surrogatepass"))
    if cache is not None and (known := cache.fix(key)) is not None:
        return known[0]
    from validator.run.fixes import moved, offered, stretch

    try:
        first, text = stretch(source, finding.span)
        # What is written elsewhere in the file has no say in how a statement is mended.
        near = digest(f"{text}\0{moved(finding, -first)!r}".encode("utf-8", "surrogatepass"))
        if cache is not None and (known := cache.fix(near)) is not None:
            fix = known[0] and moved(known[0], first)
        else:
            fix = offered(finding, rule, source)
            if cache is not None:
                cache.remember_fix(near, fix and moved(fix, -first))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        name = f"{rule.rule.code} ({rule.rule.name})"
        errors.append(f"internal error: the fix of rule {name} failed on {finding.path}: {told(error)}")
        return None
    if cache is not None:
        cache.remember_fix(key, fix)
    return fix


def _linked(sources: list[SourceFile], run: Check, errors: list[str]) -> Project | None:
    try:
        return Project(sources, run.config) if sources else None
    except Exception as error:
        errors.append(f"internal error: the project could not be linked: {told(error)}")
        return None


def _project_findings(project: Project, records: dict[str, Record], run: Check, errors: list[str]) -> list[Finding]:
    tokens: dict[str, set[str]] = {}  # by language, the tokens that its files contain
    for record in records.values():
        tokens.setdefault(record.facts.language, set()).update(record.tokens)
    rules = [each for each in run.rules if each.check_project is not None and _concerned(each, tokens)]
    if not rules:
        return []
    if run.jobs < 2 or len(rules) < 2 or len(project.files) < _WORTH_A_FORK or not hasattr(os, "fork"):
        answers = [_ruled(project, rules)]
    else:
        answers = _ruled_by_two(project, rules)
    for _, failed in answers:
        errors += failed
    return [finding for found, _ in answers for finding in found]


def _by_use(findings: list[Finding], project: Project, run: Check, errors: list[str]) -> list[Finding]:
    """The findings, less severe where they stand where nobody who runs the project comes to. Files that were named one
    by one do not show who uses them."""
    if not run.whole:
        return [finding for finding in findings if finding.code not in _OF_ALL_FILES]
    from validator.analysis.usage import Usage
    from validator.flow.queries.outside_program import is_test

    def judged(finding: Finding) -> Finding:
        if finding.severity == "note" or finding.code[:3] not in _BY_USE:
            return finding
        if finding.code in _BY_ITSELF and not is_test(finding.path):
            return finding
        idle = project.analysis(Usage).idle(finding.path, finding.span.line)
        if idle is None or SEVERITIES.index(finding.severity) >= SEVERITIES.index(idle.severity):
            return finding
        help = f"{finding.help} (a {idle.severity}, for {idle.why})".strip()
        return finding._replace(severity=idle.severity, help=help)

    try:
        return [judged(finding) for finding in findings]
    except Exception as error:
        errors.append(f"internal error: who uses what could not be told: {told(error)}")
        return findings


class _Compared:
    """The two revisions of a run that compares some."""

    def __init__(
        self, sources: list[SourceFile], run: Check, errors: list[str], store: Cache | None, contents: dict[str, bytes]
    ) -> None:
        self.sources, self.run, self.errors, self.store, self.contents = sources, run, errors, store, contents
        self.files = run.older.files if run.older is not None else {}
        self.changed = {source.path for source in sources if source.absolute in self.files}

    @cached_property
    def change(self) -> Change | None:
        """Both, linked when this is first asked; None where they are one, or cannot be linked."""
        from validator.drift.making import compared

        try:
            return compared(self.sources, self.run.older, self.run.config) if self.run.older and self.files else None
        except Exception as error:
            self.errors.append(f"internal error: the two revisions could not be compared: {told(error)}")
            return None

    def said_before(self, codes: frozenset[str]) -> list[Finding]:
        """What the project rules of some codes say of the older revision; kept, for other changes follow it, too."""
        assert self.change is not None
        project = self.change.before.project
        wanted = [each for each in self._of_project if each.rule.code in codes]
        content = self._content(project) if self.store is not None else b""
        of_all, of_these = (_key(content, rules) for rules in (self._of_project, wanted))
        known = (self.store.run(of_all) or self.store.run(of_these)) if self.store is not None else None
        if known is not None:
            return [finding for finding in known.findings if finding.code in codes]
        said, failed = _ruled(project, wanted)
        self.errors.extend(failed)
        if self.store is not None and not failed:
            self.store.remember(of_these, Run(said, 0))
        return said

    def keep(self, project: Project, found: list[Finding]) -> None:
        """Keep what all project rules say of the newer revision: to the next change it is the older one."""
        if self.store is not None and self.store.usable and not self.errors:
            self.store.remember(_key(self._content(project), self._of_project), Run(found, 0))

    @cached_property
    def _of_project(self) -> list[LoadedRule]:
        return [each for each in self.run.rules if each.check_project is not None]

    def _content(self, project: Project) -> bytes:
        """A digest of all of a project, of one of the two revisions, that what rules say of it depends on."""
        newer = {source.path: source for source in self.sources}
        parts = list(map(digest, decisive(self.run.config)))
        for path, source in sorted(project.files.items()):
            module = project.modules.get(source.absolute)
            same = newer.get(path) is source
            parts += (os.fsencode(path), os.fsencode(module.name) if module is not None else b"")
            parts.append(self.contents[path] if same else digest(source.data))
        return digest(b"\0".join(parts))

    def found_before(self, codes: frozenset[str]) -> list[Finding]:
        """What the rules of some codes found in the changed files as they were, beside the comments there."""
        assert self.change is not None
        project = self.change.before.project
        old = {path: source for path, source in project.files.items() if source.absolute in self.files}
        records = {path: examine(source, None, self.run.rules) for path, source in old.items()}
        found = [each for record in records.values() for each in record.findings]
        comments = [comment for record in records.values() for comment in record.comments]
        found += self.said_before(codes | self._silenced_by(comments, codes))
        found = _by_use(found, project, self.run, self.errors)
        return [
            each
            for path, record in records.items()
            for each in _after_comments(
                path, [one for one in found if one.path == path], record.comments, self.run, self.errors
            )[0]
        ]

    def _silenced_by(self, comments: list[Suppression], codes: frozenset[str]) -> frozenset[str]:
        """The rules that comments name, where it is asked which of the comments did something."""
        if not any(each.check_suppressions is not None and each.rule.code in codes for each in self.run.rules):
            return frozenset()
        selectors = {selector for comment in comments for selector in comment.selectors}
        rules = (each.rule for each in self.run.rules)
        return frozenset(r.code for r in rules if any(covers(selector, r.code, r.name) for selector in selectors))


def _key(content: bytes, rules: list[LoadedRule]) -> bytes:
    """Under which it is kept what rules say of a project."""
    return digest(content + repr(sorted(each.rule.code for each in rules)).encode())


def _with_change(findings: list[Finding], compared: _Compared) -> list[Finding]:
    """The findings of project rules with what a change broke; those are marked that it brought about in files that it
    left alone."""
    rules = [each for each in compared.run.rules if each.check_change is not None]
    if compared.change is None:
        return findings
    from validator.drift.indirect_findings import marked

    found = marked(findings, compared.changed.__contains__, compared.said_before)
    for each in rules:
        assert each.check_change is not None
        found += _guarded(each, each.check_change, compared.change, "the change", compared.errors)
    return found


def _with_age(findings: list[Finding], compared: _Compared) -> list[Finding]:
    """The findings, those in changed files marked that were there before the change."""
    if not compared.files:
        return findings
    from validator.drift.earlier_findings import marked

    def before(codes: frozenset[str]) -> list[Finding]:
        return compared.found_before(codes) if compared.change is not None else []

    def lines_before(path: str) -> list[str]:
        return compared.change.before.project.files[path].lines if compared.change is not None else []

    now = {source.path: source for source in compared.sources}
    notes = compared.run.config.notes
    return marked(findings, compared.changed.__contains__, before, lambda path: now[path].lines, lines_before, notes)


def _ruled_by_two(project: Project, rules: list[LoadedRule]) -> list[tuple[list[Finding], list[str]]]:
    """What the rules say, asked by this process and by one beside it.

    Rules that share an analysis stand together, those that take longest at the ends; those that ask
    the solver are taken as a whole.
    """
    last = len(_ORDER)
    together, alone = [each for each in rules if is_solving(each)], [each for each in rules if not is_solving(each)]
    alone.sort(key=lambda each: (_ORDER.get(each.family, last), each.rule.code))
    shared = Shared([*([each] for each in alone), *([together] if together else [])])
    try:
        with beside(
            lambda: _ruled(project, chain.from_iterable(shared.back())),
            instead=lambda: _ruled(project, chain.from_iterable(shared.rest())),
        ) as waiting:
            return [_ruled(project, chain.from_iterable(shared.front())), waiting()]
    finally:
        shared.close()


def is_solving(each: LoadedRule) -> bool:
    """Whether a rule may ask the solver."""
    return each.rule.solves or each.family in _SOLVING


def _ruled(project: Project, rules: Iterable[LoadedRule]) -> tuple[list[Finding], list[str]]:
    """What some rules say of the project, and their internal errors."""
    findings: list[Finding] = []
    errors: list[str] = []
    for each in rules:
        assert each.check_project is not None
        findings += _guarded(each, each.check_project, project, "the project", errors)
    return findings, errors


def _after_comments(
    path: str, findings: list[Finding], comments: tuple[Suppression, ...], run: Check, errors: list[str]
) -> tuple[list[Finding], int]:
    """The findings of a file that its comments leave, with those about the comments themselves."""
    if not comments:
        return findings, 0
    kept, used, silenced = apply(findings, comments)
    about = _about_comments(path, used, run, errors)
    # A comment may silence what is said of other comments: only then is it known which do nothing.
    _, more, _ = apply(about, comments)
    used = [(comment, first | second) for (comment, first), (_, second) in zip(used, more, strict=True)]
    left, _, hushed = apply(_about_comments(path, used, run, errors), comments)
    return kept + left, silenced + hushed


def _about_comments(
    path: str, used: list[tuple[Suppression, frozenset[str]]], run: Check, errors: list[str]
) -> list[Finding]:
    """What the rules have to say of a file's comments."""
    outcomes = [_outcome(comment, selectors, run) for comment, selectors in used]
    about: list[Finding] = []
    for each in run.rules:
        if each.check_suppressions is not None:
            about += _guarded(each, partial(each.check_suppressions, path), outcomes, path, errors)
    return about


def _outcome(comment: Suppression, used: frozenset[str], run: Check) -> Outcome:
    disabled, unknown = set(), set()
    for selector in comment.selectors:
        covered = [each for each in run.known if covers(selector, each.rule.code, each.rule.name)]
        if not covered:
            unknown.add(selector)
        elif not any(_would_show(each, run) for each in covered if each in run.rules):
            disabled.add(selector)
    return Outcome(comment, used, frozenset(disabled), frozenset(unknown))


def _would_show(rule: LoadedRule, run: Check) -> bool:
    """Whether the run would have reported what the rule has to say.

    What a change broke is found as long as the other revision is compared with: in one run and not in the next.
    """
    return rule.check_change is None and (run.whole or rule.check_project is None)


def _not_ignored(findings: list[Finding], config: Config) -> Iterator[Finding]:
    """The findings that `per-file-ignores` leaves."""
    ignores = [(Globs((pattern,), config.root), selectors) for pattern, selectors in config.per_file_ignores]
    for finding in findings:
        absolute = os.path.abspath(finding.path)
        if not any(
            globs.match(absolute) and any(_covers(selector, finding) for selector in selectors)
            for globs, selectors in ignores
        ):
            yield finding


def _covers(selector: str, finding: Finding) -> bool:
    return selector == "ALL" or covers(selector, finding.code, finding.name)

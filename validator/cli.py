"""The command line: what was asked for, in which order it is done, and the exit status.

0: nothing found; 1: errors or warnings were found (with `--diff`: fixes would change something); 2: wrong
usage or configuration, or an internal error. Notes never count.

A run of which the cache knows everything imports only what stands at the top of this module: start-up is what
people wait for. Everything else is imported where it is used.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Any

from validator import __version__, cache, config, discovery, pin_packages
from validator.errors import UsageError
from validator.finding import Finding
from validator.output import Report, render


def main(arguments: list[str] | None = None) -> int:
    """Run the validator; the exit status. `arguments` are those of the command line without the program."""
    pin_packages()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a file name may hold anything
    try:
        options = _parser().parse_args(arguments)
        return _dispatch(options)
    except UsageError as error:
        print(f"meshproof: error: {_one_line(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has gone, as `head` does; what is still buffered must have somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if os.environ.get("MESHPROOF_TRACEBACK"):
            raise
        from validator.errors import told

        hint = "set MESHPROOF_TRACEBACK=1 for the whole story"
        print(f"meshproof: internal error: {_one_line(told(error))}; {hint}", file=sys.stderr)
        return 2


def _one_line(text: str) -> str:
    from validator.output import clean

    return clean(" ".join(text.split()))


class _Parser(argparse.ArgumentParser):
    """Wrong usage is one line, not the whole synopsis."""

    def error(self, message: str) -> Any:
        raise UsageError(f"{message} (see --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="meshproof",
        description="Prove from the source of LLM training code what would fail after an hour in the queue.",
        epilog="exit status: 0 nothing found, 1 findings, 2 wrong usage, configuration or an internal error",
        allow_abbrev=False,
        # a width of its own: asking the terminal for one imports shutil, with every option that is added
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=30, width=100),
    )
    add = parser.add_argument
    add("paths", nargs="*", metavar="PATH", help="files and folders; '-' is standard input (default: .)")
    add("--version", action="version", version=f"meshproof {__version__}")
    _add_choice(parser.add_argument_group("rules"))
    _add_report(parser.add_argument_group("report"))
    _add_changes(parser.add_argument_group("changing files"))
    _add_run(parser.add_argument_group("run"))
    return parser


def _add_choice(group: Any) -> None:
    for name, text in (
        ("select", "only these rules: codes, beginnings of codes, names, or ALL"),
        ("ignore", "not these rules"),
        ("extend-select", "these rules too"),
    ):
        group.add_argument(f"--{name}", action="append", default=[], metavar="RULES", help=text)
    group.add_argument(
        "--rules", action="append", default=[], metavar="DIR", help="load the rules of a folder of yours"
    )
    group.add_argument("--list-rules", action="store_true", help="list the rules (with --format json as JSON)")
    group.add_argument("--explain", metavar="RULE", help="explain a rule")
    group.add_argument("--why", metavar="FILE:LINE", help="tell what is known of a line, and why it is reported or not")


def _add_report(group: Any) -> None:
    group.add_argument("--format", choices=config.FORMATS, help="format of the report (default: full)")
    group.add_argument("--output", metavar="FILE", help="write the report to a file")
    group.add_argument("--notes", action="store_true", help="show notes too; they never set the exit status")
    group.add_argument("--statistics", action="store_true", help="count the findings by rule instead of listing them")
    group.add_argument("--exit-zero", action="store_true", help="exit with 0 in spite of findings")
    group.add_argument("--baseline", metavar="FILE", help="leave out the findings that this file knows")
    group.add_argument("--update-baseline", action="store_true", help="write the present findings to the baseline")
    group.add_argument("--changed-since", metavar="REV", help="report on files that changed since a git revision")


def _add_changes(group: Any) -> None:
    group.add_argument("--fix", action="store_true", help="apply safe fixes")
    group.add_argument("--unsafe-fixes", action="store_true", help="with --fix or --diff: unsafe fixes too")
    group.add_argument("--diff", action="store_true", help="print what --fix would change; write nothing")
    group.add_argument("--add-ignore", action="store_true", help="silence the present findings with comments")
    group.add_argument("--reason", metavar="TEXT", help="with --add-ignore: the reason to write")


def _add_run(group: Any) -> None:
    group.add_argument("--isolated", action="store_true", help="read no configuration")
    group.add_argument("--show-config", action="store_true", help="print the configuration that holds")
    group.add_argument("--target-python", metavar="X.Y", help="the oldest Python that the code must run on")
    group.add_argument("--stdin-filename", metavar="NAME", help="with '-': the path that standard input stands for")
    group.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core, if worth it)")
    group.add_argument("--no-cache", action="store_true", help="neither read nor write the cache")


# -- what was asked for ------------------------------------------------------------------------------------


def _dispatch(options: argparse.Namespace) -> int:
    settings = _settings(options)
    if options.show_config:
        sys.stdout.write(config.shown(settings))
        return 0
    if options.explain or options.list_rules:
        from validator import explain

        rules = explain.known(settings.rules)
        text = (
            explain.listed(rules, options.format == "json")
            if options.list_rules
            else explain.explained(rules, options.explain)
        )
        return write(text, options.output)
    _check_combinations(options)
    if options.why:
        return write(_why(options, settings), options.output)
    if settings.rules_refused:
        print(f"meshproof: user rules are not loaded: {settings.rules_refused} (see --rules)", file=sys.stderr)
    if options.fix or options.diff or options.add_ignore:
        from validator import changes

        return changes.run(options, settings)
    if "-" in options.paths:
        return report(options, settings, _standard_input(options, settings))
    return report(options, settings, _findings(options, settings))


def _check_combinations(options: argparse.Namespace) -> None:
    if "-" in options.paths and len(options.paths) > 1:
        raise UsageError("'-' stands alone: standard input is one file")
    if options.stdin_filename and options.paths != ["-"]:
        raise UsageError("--stdin-filename needs '-' as its only PATH")
    if options.unsafe_fixes and not (options.fix or options.diff):
        raise UsageError("--unsafe-fixes needs --fix or --diff")
    if options.reason and not options.add_ignore:
        raise UsageError("--reason needs --add-ignore")
    if options.reason and "#" in options.reason:
        raise UsageError("--reason may not hold a '#'")
    if options.add_ignore and (options.fix or options.diff):
        raise UsageError("--add-ignore goes with neither --fix nor --diff")
    if "-" in options.paths and (options.fix or options.diff or options.add_ignore or options.changed_since):
        raise UsageError("standard input can only be checked, not changed or compared")
    if options.jobs is not None and options.jobs < 1:
        raise UsageError("--jobs must be at least 1")


def _settings(options: argparse.Namespace) -> config.Config:
    """The configuration with what the command line changes of it."""
    loaded = config.load(_common_folder(options.paths), options.isolated)
    changed: dict[str, Any] = {}
    for name in ("select", "ignore", "extend_select"):
        chosen = [part.strip() for text in getattr(options, name) for part in text.split(",") if part.strip()]
        if chosen:
            before = () if name == "select" else getattr(loaded, name)
            changed[name] = (*before, *chosen)
    if options.format:
        changed["output_format"] = options.format
    if options.baseline:
        changed["baseline"] = os.path.abspath(options.baseline)
    if options.rules:
        changed["rules"] = (*loaded.rules, *(os.path.abspath(folder) for folder in options.rules))
    if options.target_python:
        changed["target_python"] = config.version(options.target_python, "--target-python")
    if options.jobs:
        changed["jobs"] = options.jobs
    return loaded._replace(notes=options.notes or loaded.notes, **changed)


def _common_folder(paths: list[str]) -> str:
    """The folder whose configuration holds: the innermost one that contains every PATH."""
    if not paths or paths == ["-"]:
        return os.getcwd()
    folders = [os.path.abspath(path if os.path.isdir(path) else os.path.dirname(path) or ".") for path in paths]
    try:
        return os.path.commonpath(folders)
    except ValueError:  # different drives
        return os.getcwd()


# -- checking ----------------------------------------------------------------------------------------------


class Checked(argparse.Namespace):
    """The outcome of a run: findings before the baseline, files, how many were silenced, internal errors.

    `now` holds the bytes of files that are not, or not yet, what lies on disk.
    """

    findings: list[Finding]
    files: list[discovery.Entry]
    suppressed: int
    errors: list[str]
    now: dict[str, bytes]


def _findings(options: argparse.Namespace, settings: config.Config) -> Checked:
    """The findings of the paths, out of the cache where it knows the whole run."""
    paths = options.paths or ["."]
    entries = discovery.discover(paths, settings)
    whole = any(os.path.isdir(path) for path in paths)
    marks = repr((settings.select, settings.ignore, settings.extend_select, settings.target_python))
    store = cache.Cache(cache.fingerprint(settings.rules) + marks, not options.no_cache)
    digests = store.digests(entries)
    key = run_key(entries, digests, settings, whole)
    known = store.run(key)
    if known is not None:
        store.save()
        return Checked(findings=known.findings, files=entries, suppressed=known.suppressed, errors=[])
    checked = analyse(entries, digests, settings, whole, store)
    if not checked.errors:
        store.remember(key, cache.Run(checked.findings, checked.suppressed))
    store.save()
    return checked


def run_key(entries: list[discovery.Entry], digests: list[bytes], settings: config.Config, whole: bool) -> bytes:
    """A digest of everything that the findings of a run depend on and the name of the cache does not say."""
    parts = [repr((settings._replace(output_format="", baseline="", notes=False, jobs=0), whole)).encode()]
    for table in (*settings.contracts, *settings.collectives):
        try:
            parts.append(cache.digest(config.read_regular(table)))
        except OSError:
            parts.append(b"missing")
    parts += [os.fsencode(folder) for folder in _packages_above(entries)]
    for entry, content in zip(entries, digests, strict=True):
        parts += (os.fsencode(entry.path), content)
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
) -> Checked:
    """Run the rules. Raises UsageError for a selector that no rule answers to."""
    from validator import checker

    run = check_of(settings, whole)
    result = checker.check(entries, digests, run, store)
    return Checked(findings=result.findings, files=entries, suppressed=result.suppressed, errors=result.errors)


def check_of(settings: config.Config, whole: bool) -> Any:
    from validator import checker, registry

    errors: list[str] = []
    known = registry.load_rules(settings.rules, errors)
    where = settings.source or "the command line"
    for selectors in (settings.select, settings.ignore, settings.extend_select):
        registry.check_selectors(selectors, known, where)
    for pattern, selectors in settings.per_file_ignores:
        registry.check_selectors(selectors, known, f"{where}: per-file-ignores.{pattern}")
    rules = registry.enabled(known, settings.select, settings.ignore, settings.extend_select)
    return checker.Check(settings, rules, known, settings.jobs or os.cpu_count() or 1, whole, tuple(errors))


def _why(options: argparse.Namespace, settings: config.Config) -> str:
    """What the analysis of the whole project knows of one line."""
    from validator.analysis.why import why
    from validator.project import Project
    from validator.source import SourceFile

    path, _, line = options.why.rpartition(":")
    if not path or not (line.isascii() and line.isdecimal() and len(line) < 10) or int(line) < 1:
        raise UsageError(f"--why takes FILE:LINE, not {options.why!r}")
    place = os.path.normpath(path).replace(os.sep, "/")
    entries = discovery.discover(options.paths or ["."], settings)
    project = Project([SourceFile(e.path, e.absolute) for e in entries if e.problem is None], settings)
    try:
        known = why(project, place, int(line))
    except LookupError as error:
        raise UsageError(str(error)) from error
    findings = _findings(options, settings).findings
    reported = [f for f in findings if f.path == place and f.span.line <= int(line) <= max(f.span[::2])]
    told = [f"  {f.severity} {f.code} ({f.name}): {f.message}" for f in reported]
    return _clean_lines([*known, "reported at this line:", *(told or ["  nothing"])])


def _clean_lines(lines: list[str]) -> str:
    from validator.output import clean

    return "".join(clean(line) + "\n" for line in lines)


def _standard_input(options: argparse.Namespace, settings: config.Config) -> Checked:
    from validator import checker
    from validator.source import SourceFile

    name = (options.stdin_filename or "stdin.py").replace(os.sep, "/")
    data = sys.stdin.buffer.read()
    source = SourceFile(name, os.path.abspath(name), data)
    entry = discovery.Entry(name, source.absolute, (len(data), 0, 0, 0, 0), None)
    excluded = discovery.Globs((*(settings.exclude or ()), *settings.extend_exclude), settings.root)
    if options.stdin_filename and excluded and excluded.match(source.absolute):
        return Checked(findings=[], files=[], suppressed=0, errors=[])
    result = checker.check_sources([source], check_of(settings, False))
    findings = result.findings
    if not options.stdin_filename:  # text from nowhere: what it imports cannot be looked for
        findings = [f for f in findings if f.code not in ("MP201", "MP202")]
    return Checked(
        findings=findings,
        files=[entry],
        suppressed=result.suppressed,
        errors=result.errors,
        now={name: data},
    )


# -- reporting ---------------------------------------------------------------------------------------------


def report(options: argparse.Namespace, settings: config.Config, checked: Checked) -> int:
    """Write the report and say how it went."""
    if options.update_baseline:
        return _update_baseline(options, settings, checked)
    findings = new_findings(options, settings, checked)
    baselined = len(shown(options, settings, checked)) - len(findings) if settings.baseline else 0
    summary = summarise(findings, checked, baselined)
    if options.statistics:
        from validator.output import statistics

        text = statistics.render(findings, summary, settings.output_format == "json")
    else:
        text = render(settings.output_format, _as_report(options, settings, checked, findings, summary))
    write(text, options.output)
    failed = bool(summary["errors"] or summary["warnings"]) and not options.exit_zero
    return _status(checked, 1 if failed else 0)


def _update_baseline(options: argparse.Namespace, settings: config.Config, checked: Checked) -> int:
    from validator import baseline

    if not settings.baseline:
        raise UsageError("--update-baseline needs --baseline FILE (or `baseline` in the configuration)")
    if checked.errors:
        return _status(checked, 2)  # a baseline that lacks what a crashed rule would have found helps nobody
    if not options.baseline and not _inside(settings.baseline, settings.root):
        raise UsageError(
            f"{settings.source}: baseline leads out of {settings.root}; to write it there, name it with --baseline"
        )
    absolute = {entry.path: entry.absolute for entry in checked.files}
    names: Iterable[str] = absolute
    if options.changed_since:
        changed = _changed(options, checked)
        names = [path for path in absolute if absolute[path] in changed]
    count = baseline.write(settings.baseline, shown(options, settings, checked), line_reader(checked), names)
    print(f"meshproof: {count} findings written to {_one_line(settings.baseline)}", file=sys.stderr)
    return 0


def _inside(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(os.path.realpath(folder).rstrip(os.sep) + os.sep)


def _changed(options: argparse.Namespace, checked: Checked) -> set[str]:
    """The absolute paths of the files that --changed-since reports on."""
    from validator import git

    paths = [entry.absolute for entry in checked.files]
    return git.changed_since(_common_folder(options.paths), options.changed_since, paths)


def new_findings(options: argparse.Namespace, settings: config.Config, checked: Checked) -> list[Finding]:
    """The findings that count and that the baseline, if there is one, does not know."""
    findings = shown(options, settings, checked)
    if not settings.baseline:
        return findings
    from validator import baseline

    return baseline.without_known(settings.baseline, findings, line_reader(checked))


def shown(options: argparse.Namespace, settings: config.Config, checked: Checked) -> list[Finding]:
    """The findings that count for this report: with notes or without, in changed files or in all."""
    findings = checked.findings
    if not settings.notes:
        findings = [finding for finding in findings if finding.severity != "note"]
    if options.changed_since:
        absolute = {entry.path: entry.absolute for entry in checked.files}
        changed = _changed(options, checked)
        findings = [finding for finding in findings if absolute.get(finding.path) in changed]
    return findings


def summarise(findings: list[Finding], checked: Checked, baselined: int) -> dict[str, Any]:
    count = {kind: sum(finding.severity == kind for finding in findings) for kind in ("error", "warning", "note")}
    return {
        "files": len(checked.files),
        "errors": count["error"],
        "warnings": count["warning"],
        "notes": count["note"],
        "fixable": sum(finding.fix is not None for finding in findings),
        "suppressed": checked.suppressed,
        "baselined": baselined,
        "internal_errors": len(checked.errors),
    }


def _as_report(
    options: argparse.Namespace,
    settings: config.Config,
    checked: Checked,
    findings: list[Finding],
    summary: dict[str, Any],
) -> Report:
    def rules() -> Any:
        return check_of(settings, True).rules

    color = not options.output and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return Report(findings, summary, line_reader(checked), rules, color)


def line_reader(checked: Checked) -> Any:
    """A function from a reported path to the lines of that file (empty where it cannot be read)."""
    absolute = {entry.path: entry.absolute for entry in checked.files if entry.problem is None}
    given: dict[str, bytes] = getattr(checked, "now", {})
    known: dict[str, list[str]] = {}

    def lines(path: str) -> list[str]:
        if path not in known:
            known[path] = _lines_of(absolute.get(path), given.get(path))
        return known[path]

    return lines


def _lines_of(path: str | None, data: bytes | None) -> list[str]:
    from validator.facts.decode import decode
    from validator.reading import regular

    if data is None:
        if path is None:
            return []
        try:
            data = regular(path)
        except OSError:
            return []
    return decode(data)[0].split("\n")


def _status(checked: Checked, status: int) -> int:
    for error in checked.errors:
        print(f"meshproof: {_one_line(error)}", file=sys.stderr)
    return 2 if checked.errors else status


def write(text: str, path: str | None) -> int:
    if path is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return 0
    from validator import writing

    try:
        writing.replace(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
    return 0

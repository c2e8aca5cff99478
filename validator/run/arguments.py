"""The arguments of the command line, what they make of the configuration, and which do not go together."""

from __future__ import annotations

import argparse
import os
from typing import Any

from validator import __version__
from validator.errors import UsageError
from validator.files import streams
from validator.run import config


class _Parser(argparse.ArgumentParser):
    """Wrong usage is one line, not the whole synopsis."""

    def error(self, message: str) -> Any:
        raise UsageError(f"{message} (see --help)")

    def _print_message(self, message: str, file: Any = None) -> None:
        streams.write(message, None)  # help and version; argparse itself swallows what goes wrong


def parser() -> argparse.ArgumentParser:
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
    group.add_argument(
        "--changed-since", metavar="REV", help="report on files that changed since a git revision, and what that broke"
    )
    group.add_argument("--staged", action="store_true", help="the same for what is staged, against the last commit")
    group.add_argument("--against", metavar="DIR", help="the same against another copy of the project")
    group.add_argument(
        "--old-findings", action="store_true", help="with one of these three: report what was there before, too"
    )
    group.add_argument("--no-change-rules", action="store_true", help="compare nothing; report on changed files alone")


def _add_changes(group: Any) -> None:
    group.add_argument("--fix", action="store_true", help="apply safe fixes")
    group.add_argument(
        "--fix-only", action="store_true", help="apply safe fixes and report nothing; what is left is no failure"
    )
    group.add_argument("--unsafe-fixes", action="store_true", help="with --fix, --fix-only or --diff: unsafe fixes too")
    group.add_argument("--diff", action="store_true", help="print what --fix would change; write nothing")
    group.add_argument("--add-ignore", action="store_true", help="silence the present findings with comments")
    group.add_argument(
        "--reason",
        metavar="TEXT",
        help="with --add-ignore: the reason to write (default: what is there was there before)",
    )


def _add_run(group: Any) -> None:
    group.add_argument("--isolated", action="store_true", help="read no configuration")
    group.add_argument("--show-config", action="store_true", help="print the configuration that holds")
    group.add_argument("--target-python", metavar="X.Y", help="the oldest Python that the code must run on")
    group.add_argument("--stdin-filename", metavar="NAME", help="with '-': the path that standard input stands for")
    group.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core, if worth it)")
    group.add_argument("--no-cache", action="store_true", help="neither read nor write the cache")


def check_values(options: argparse.Namespace) -> None:
    """Raise UsageError for an option that was given nothing, as a script does whose variable is not set."""
    for name in (
        "against",
        "baseline",
        "changed_since",
        "explain",
        "output",
        "reason",
        "stdin_filename",
        "target_python",
        "why",
    ):
        if getattr(options, name) == "":
            raise UsageError(f"--{name.replace('_', '-')} was given an empty text")


def check_combinations(options: argparse.Namespace) -> None:
    if "-" in options.paths and len(options.paths) > 1:
        raise UsageError("'-' stands alone: standard input is one file")
    if options.stdin_filename and options.paths != ["-"]:
        raise UsageError("--stdin-filename needs '-' as its only PATH")
    if options.fix_only and (options.diff or options.output or options.statistics or options.update_baseline):
        raise UsageError(
            "--fix-only reports nothing: it goes with none of --diff, --output, --statistics and --update-baseline"
        )
    if options.unsafe_fixes and not (options.fix or options.diff):
        raise UsageError("--unsafe-fixes needs --fix, --fix-only or --diff")
    if options.reason and not options.add_ignore:
        raise UsageError("--reason needs --add-ignore")
    if options.reason and "#" in options.reason:
        raise UsageError("--reason may not hold a '#'")
    if options.add_ignore and (options.fix or options.diff):
        raise UsageError("--add-ignore goes with neither --fix nor --diff")
    compared = [bool(options.changed_since), options.staged, bool(options.against)]
    if "-" in options.paths and (options.fix or options.diff or options.add_ignore or any(compared)):
        raise UsageError("standard input can only be checked, not changed or compared")
    if sum(compared) > 1:
        raise UsageError("--changed-since, --staged and --against: one of them")
    if options.no_change_rules and not any(compared):
        raise UsageError("--no-change-rules needs --changed-since, --staged or --against")
    if options.old_findings and not any(compared):
        raise UsageError("--old-findings needs --changed-since, --staged or --against")
    if options.staged and (options.fix or options.diff or options.add_ignore):
        raise UsageError(
            "--staged reads the index, which --fix, --diff and --add-ignore do not change; use --changed-since HEAD"
        )
    if options.jobs is not None and options.jobs < 1:
        raise UsageError("--jobs must be at least 1")


def settings_of(options: argparse.Namespace) -> config.Config:
    """The configuration with what the command line changes of it."""
    loaded = config.load(common_folder(options.paths), options.isolated)
    changed: dict[str, Any] = {}
    for name in ("select", "ignore", "extend_select"):
        chosen = [part.strip() for text in getattr(options, name) for part in text.split(",") if part.strip()]
        if chosen:
            before = () if name == "select" else getattr(loaded, name)
            changed[name] = (*before, *chosen)
            changed["given"] = (*changed.get("given", ()), (name, len(chosen)))
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


def common_folder(paths: list[str]) -> str:
    """The folder whose configuration holds: the innermost one that contains every PATH."""
    if not paths or paths == ["-"]:
        return os.getcwd()
    folders = [os.path.abspath(path if os.path.isdir(path) else os.path.dirname(path) or ".") for path in paths]
    try:
        return os.path.commonpath(folders)
    except ValueError:  # different drives
        return os.getcwd()

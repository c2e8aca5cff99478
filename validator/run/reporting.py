"""What becomes of the findings of a run: which of them are shown, the report, the baseline, the exit status."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterable
from typing import Any

from validator.errors import UsageError
from validator.files import streams
from validator.finding import Finding, speaks_of_change
from validator.output import Report, render
from validator.run import config
from validator.run.running import Checked, check_of

_OF_VALUES = ("MP4", "MP5", "MP6")  # what these quote are variables of the place itself, not names that it looks for
_QUOTED = re.compile(r"[`'\"]([\w.-]+)[`'\"]")


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
    streams.write(text, options.output)
    _tell_of_old(options, settings, checked, findings)
    failed = bool(summary["errors"] or summary["warnings"]) and not options.exit_zero
    return status_of(checked, 1 if failed else 0)


def _tell_of_old(
    options: argparse.Namespace, settings: config.Config, checked: Checked, findings: list[Finding]
) -> None:
    """Say what a comparison left out, or what it did not leave out and a baseline would."""
    if checked.changed is None:
        return
    if options.no_change_rules:
        if not settings.baseline and any(each.severity != "note" for each in findings):
            streams.say(
                "what was there before the change is among these findings; a baseline leaves it out: "
                "--baseline FILE --update-baseline, once, on the older revision"
            )
        return
    if options.old_findings:
        return
    from validator.drift.earlier_findings import is_marked

    old = sum(map(is_marked, checked.findings))
    if old:
        were = "1 finding was" if old == 1 else f"{old} findings were"
        streams.say(f"{were} in the changed files before the change, too: not shown; --old-findings shows them")


def _update_baseline(options: argparse.Namespace, settings: config.Config, checked: Checked) -> int:
    from validator.run import baseline

    if not settings.baseline:
        raise UsageError("--update-baseline needs --baseline FILE (or `baseline` in the configuration)")
    if checked.errors:
        return status_of(checked, 2)  # a baseline that lacks what a crashed rule would have found helps nobody
    if not options.baseline and not _inside(settings.baseline, settings.root):
        raise UsageError(
            f"{settings.source}: baseline leads out of {settings.root}; to write it there, name it with --baseline"
        )
    absolute = {entry.path: entry.absolute for entry in checked.files}
    names: Iterable[str] = absolute
    if checked.changed is not None:
        names = [path for path in absolute if absolute[path] in checked.changed]
    count = baseline.write(settings.baseline, shown(options, settings, checked), line_reader(checked), names)
    streams.say(f"{count} finding{'' if count == 1 else 's'} written to {settings.baseline}")
    return 0


def _inside(path: str, folder: str) -> bool:
    return os.path.realpath(path).startswith(os.path.realpath(folder).rstrip(os.sep) + os.sep)


def new_findings(options: argparse.Namespace, settings: config.Config, checked: Checked) -> list[Finding]:
    """The findings that count and that the baseline, if there is one, does not know."""
    findings = shown(options, settings, checked)
    if not settings.baseline:
        return findings
    from validator.run import baseline

    return baseline.without_known(settings.baseline, findings, line_reader(checked))


def shown(options: argparse.Namespace, settings: config.Config, checked: Checked) -> list[Finding]:
    """The findings that count for this report: with notes or without, in changed files or in all. Who changes something
    is shown the notes about that change, and not what was wrong before it.

    Of what a change broke and what is wrong by itself, one is told where both are the same mistake.
    """
    findings = checked.findings
    if not settings.notes:
        findings = [finding for finding in findings if finding.severity != "note" or speaks_of_change(finding)]
    changed = checked.changed
    if changed is not None:  # what a change broke is told wherever it stands
        from validator.drift.earlier_findings import is_marked as is_old
        from validator.drift.same_cause import told_once

        if not (options.old_findings or options.update_baseline):
            findings = [finding for finding in findings if not is_old(finding)]
        absolute = {entry.path: entry.absolute for entry in checked.files}
        findings = told_once([each for each in findings if _is_of_change(each, changed, absolute, checked)])
    return findings


def _is_of_change(finding: Finding, changed: frozenset[str], absolute: dict[str, str], checked: Checked) -> bool:
    """Whether a finding is in a changed file, or elsewhere because of the change: it was not there before, or is about
    a name that is gone, or that a changed file which the finding speaks of has less often than before."""
    from validator.drift.indirect_findings import is_marked

    if absolute.get(finding.path) in changed or speaks_of_change(finding) or is_marked(finding):
        return True
    if _is_about(finding, checked.gone):
        return True
    speaks = any(absolute.get(each.path) in changed for each in finding.related)
    return speaks and _is_about(finding, checked.left)


def _is_about(finding: Finding, names: frozenset[str]) -> bool:
    """Whether a finding elsewhere tells of a name that the change took out of the files that it changed."""
    if not names or finding.severity == "note" or finding.code.startswith(_OF_VALUES):
        return False
    words = _QUOTED.findall(finding.message)
    return any(name.lstrip("-").replace("-", "_") in names for name in words)


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

    color = not options.output and streams.is_terminal() and not os.environ.get("NO_COLOR")
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
    from validator.files.reading import regular

    if data is None:
        if path is None:
            return []
        try:
            data = regular(path)
        except OSError:
            return []
    return decode(data)[0].split("\n")


def status_of(checked: Checked, status: int) -> int:
    """The exit status of a run, after its internal errors have been told."""
    for error in checked.errors:
        streams.say(error)
    return 2 if checked.errors else status

"""What a sweep found in its output and what it did about that, in a few lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.configuration import parse_known
from bench.process.verdict import BADLY
from bench.results.identity import packages


def told(
    rows: Sequence[Mapping[str, Any]],
    standing: Sequence[Mapping[str, Any]],
    stale: Mapping[str, Sequence[str]],
    added: int,
    whole: int = 0,
) -> list[str]:
    """Lines on a sweep of `rows`, of which `standing` were there; `stale` has the labels of those measured again, with
    the reasons, `added` counts those that got more processes, `whole` processes that an interrupted sweep had measured.
    Nothing for a sweep that found nothing."""
    if not (standing or stale or added or whole):
        return []
    run = len(rows) - len(standing) - sum(row["status"] == "unsupported" and not row["log"] for row in rows)
    words = [f"kept {_rows(len(standing))}{_whence(standing)}"] * bool(standing)
    words.append(f"ran {_rows(run)}" + f", {added} of them to add processes" * bool(added))
    words += [f"kept {whole} process{'es' * (whole != 1)} of rows that were interrupted"] * bool(whole)
    lines = ["; ".join(words)]
    for label, reasons in stale.items():
        lines.append(f"stale, run again: {label}: {', '.join(reasons)}")
    failed = sum(row["status"] in BADLY for row in standing)
    return lines + [f"{_rows(failed)} of these had failed: --retry-failed runs them again"] * bool(failed)


def _rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


def _whence(rows: Sequence[Mapping[str, Any]]) -> str:
    """From when, on which hosts, with which versions; as far as the rows say it."""
    environments = [dict(row.get("environment") or {}) for row in rows]
    times = sorted(str(each["time"])[:16].replace("T", " ") for each in environments if each.get("time"))
    hosts = sorted({str(each["host"]) for each in environments if each.get("host")})
    span = "" if not times else f" of {times[0]}" + f" to {times[-1]}" * (times[0] != times[-1]) + " UTC"
    versions: dict[str, set[str]] = {}
    for row, each in zip(rows, environments, strict=True):
        for package in packages(parse_known(row["configuration"])):
            if package != "meshproof" and package in dict(each.get("versions") or {}):
                versions.setdefault(package, set()).add(str(each["versions"][package]))
    stack = ", ".join(f"{name} {' and '.join(sorted(found))}" for name, found in versions.items())
    return span + f" on {', '.join(hosts)}" * bool(hosts) + f" with {stack}" * bool(stack)

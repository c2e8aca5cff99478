"""Where a row is measured, and what becomes its result: only a newer measurement replaces a measurement.

A row that is measured already is measured again in a folder beside its own, `<row>.attempt`, whose files move over once
there is a result. What fails there stays there, with its verdict in `attempt.json`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.configuration import Configuration
from bench.results import environment, results

SUFFIX = ".attempt"
VERDICT = "attempt.json"
TRACE = "MESHPROOF_TRACE"
"""Environment variable by which ranks are told to write a profiler trace: 1."""
TRACES = "traces"
"""The folder of profiler traces in that of a row, of its first process."""
NOT_RUN = ("unsupported", "skipped", "interrupted")


def weight(result: Mapping[str, Any] | None) -> int:
    """2 for what was measured, 1 for what ran and failed, 0 for what did not run to an end."""
    if result is None:
        return 0
    if "summary" in result:
        return 2
    found_out = result.get("status") == "unsupported" and bool(result.get("log"))
    return int(found_out or result.get("status") not in NOT_RUN)


def begin(directory: Path) -> Path:
    """An empty folder to measure in: the row's own, or the one beside it where the row has a result that counts."""
    folder = beside(directory) if weight(results.read_result(directory, any_schema=True)) else directory
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def add_to(directory: Path) -> Path:
    """As `begin`, for more processes of a row that is measured: those that it has are there already."""
    folder, old = begin(directory), results.read_result(directory)
    for number, run in enumerate(old["runs"] if old is not None else []):
        (folder / f"run.{number}.json").write_text(json.dumps(run), encoding="utf-8")
    return folder


def beside(directory: Path) -> Path:
    """The folder of an attempt to measure again what `directory` holds."""
    return directory.with_name(directory.name + SUFFIX)


def failed(directory: Path) -> dict[str, Any] | None:
    """The latest attempt to measure a row again, where it came to nothing."""
    return results.read_result(beside(directory), VERDICT)


def conclude(directory: Path, folder: Path, result: dict[str, Any]) -> bool:
    """Keep a result that came about in `folder`; whether it is the row's now. Where it is not, the row keeps what it
    has, and `result["kept"]` says since when."""
    old = results.read_result(directory, any_schema=True)
    if old is not None and weight(result) < weight(old):
        result["kept"] = str(dict(old.get("environment") or {}).get("time") or "earlier")
        if folder != directory:
            _leave(folder, result)
        return False
    log = Path(result["log"])
    result["log"] = str(directory / log.name) if log.parent == folder else result["log"]
    results.write_json(directory / results.FILE, result)
    if folder != directory and folder.is_dir():
        (folder / VERDICT).unlink(missing_ok=True)
        _move(folder, directory, keep=len(old["runs"]) if old is not None and _extends(old, result) else 0)
    if result["status"] == "ok":
        results.write_suite(directory / results.SUITE, result)
    return True


def keep(configuration: Configuration, folder: Path, **verdict: str) -> dict[str, Any]:
    """The result of what a launcher of somebody's own ran in a row's folder, kept there."""
    verdict.setdefault("status", "ok")
    runs = results.read_runs(folder)[:1] if verdict["status"] == "ok" else []
    described = environment.describe(configuration)
    result = results.build_result(configuration, runs, environment=described, **verdict)
    conclude(folder, folder, result)
    return result


def _leave(folder: Path, result: dict[str, Any]) -> None:
    if result["status"] == "interrupted":
        shutil.rmtree(folder, ignore_errors=True)
        result["log"] = ""
    elif folder.is_dir():
        results.write_json(folder / VERDICT, result)


def _extends(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    runs = old.get("runs") or []
    return bool(runs) and new["runs"][: len(runs)] == runs


def _move(folder: Path, directory: Path, keep: int) -> None:
    """Files of an attempt to the row, over its own; logs of the first `keep` processes stay."""
    stay = {f"log.{number}.txt" for number in range(keep)} | ({TRACES} if keep else set())
    for path in directory.iterdir():
        if path.name != results.FILE and path.name not in stay:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in folder.iterdir():
        path.replace(directory / path.name)
    folder.rmdir()

"""Where a row is measured, and what becomes its result: only a newer measurement replaces a measurement.

A row that is measured already is measured again in a folder beside its own, `<row>.attempt`, whose files move over once
there is a result. What fails there stays there, with its verdict in `attempt.json`. A measurement that is interrupted
leaves its whole processes, with the environment that they depend on; the same command goes on after them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from bench.configuration import Configuration
from bench.process import files
from bench.results import environment, results

SUFFIX = ".attempt"
VERDICT = "attempt.json"
IDENTITY = "environment.json"
"""What the processes of a measurement that goes on depend on."""
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


def begin(directory: Path, whole: int = 0) -> Path:
    """A folder to measure in, with nothing but its first `whole` processes: see `_place`."""
    folder = _place(directory)
    stay = {name for number in range(whole) for name in (f"run.{number}.json", f"log.{number}.txt")}
    _clear(folder, stay | ({TRACES} if whole else set()))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _place(directory: Path) -> Path:
    """Where a row is measured: in its own folder, or in the one beside it where it has a result that counts."""
    return beside(directory) if weight(results.read_result(directory, any_schema=True)) else directory


def _clear(folder: Path, stay: set[str]) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name not in stay:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def identify(folder: Path, described: Mapping[str, Any]) -> None:
    """Note what the processes in `folder` depend on, for whoever goes on there."""
    results.write_json(folder / IDENTITY, described)


def left_whole(directory: Path) -> tuple[int, dict[str, Any]]:
    """How many processes, from the first on, an interrupted measurement of the row has left whole, and the environment
    that they depend on; 0 where that is not known, or where the measurement came to an end."""
    folder = _place(directory)
    described = files.read_json(folder / IDENTITY)
    if not isinstance(described, dict) or (folder / VERDICT).exists():
        return 0, {}
    whole = takewhile(lambda number: files.read_json(folder / f"run.{number}.json") is not None, count())
    return sum(1 for _ in whole), described


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
    if result["status"] != "interrupted":  # nobody goes on here
        (folder / IDENTITY).unlink(missing_ok=True)
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
        if not ((folder / IDENTITY).exists() and (folder / "run.0.json").exists()):
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
    _clear(directory, {results.FILE, *stay})
    for path in folder.iterdir():
        path.replace(directory / path.name)
    folder.rmdir()

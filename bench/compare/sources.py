"""Paths as runs: result directories, files of result rows, pyperf files, training logs, or directories of these."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.compare.logs import read_log
from bench.compare.series import Metric, Run, Series
from bench.configuration import SCHEMA, SEED_FOLDER, parse_known
from bench.problems import InputError
from bench.process.files import json_lines, read_json
from bench.results import file_kinds
from bench.results.measured import PHASES, STEP, peak_memory, process_means
from bench.results.results import read_result


def read(path: Path, loss: str | None = None) -> list[Run]:
    """The runs under `path`, at least one. `loss` names the loss of logs that hold several.

    Raises `InputError` for a path that is not there or holds nothing that can be compared.
    """
    try:
        runs = _directory(path, loss) if path.is_dir() else _file(path, loss)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    return _distinct(runs)


def _directory(path: Path, loss: str | None) -> list[Run]:
    if (path / "result.json").exists():
        return [_result_directory(path)]
    below = sorted(entry for entry in path.iterdir() if (entry / "result.json").exists())
    if below:
        return [_result_directory(entry) for entry in below]
    logs = sorted(path.glob("*.log"))
    if logs:
        return [run for log in logs for run in _file(log, loss)]
    raise InputError(f"{path}: no result.json in it or one level below, and no *.log; name a result directory or file")


def _result_directory(path: Path) -> Run:
    result = read_result(path)
    if result is None:
        raise foreign_file(path / "result.json")
    return _from_result(result, path / "result.json")


def _file(path: Path, loss: str | None) -> list[Run]:
    """By what the file holds, whatever it is called."""
    with path.open("rb") as file:
        head = file.read(4096)
    if not head.strip() or head[:2] == b"PK" or b"\0" in head:
        raise foreign_file(path)
    if head.lstrip().startswith(b"{"):
        rows = _rows(path)
        if rows:
            return rows
        whole = _whole(path, loss)
        if whole is not None:
            return whole
    with path.open(encoding="utf-8", errors="replace") as lines:
        return [_log(_table(lines) if path.suffix == ".csv" else lines, path, loss)]


def _table(lines: Iterable[str]) -> Iterator[str]:
    """The rows of a table with headings, as lines of JSON: numbers by their headings in small letters."""
    for row in csv.DictReader(lines):
        found = {}
        for heading, text in row.items():
            with contextlib.suppress(TypeError, ValueError, AttributeError):
                found[heading.lower()] = float(text)
        yield json.dumps(found)


def _log(lines: Iterable[str], path: Path, loss: str | None) -> Run:
    run = read_log(lines, path.stem, loss)
    if loss and run.loss is None and run.status == "ok":
        raise InputError(f"{path}: no {loss!r} found in it")
    if run.empty and run.status == "ok":
        raise foreign_file(path)
    return run


def foreign_file(path: Path) -> InputError:
    """That a file is not what it was named for, what it is, and what to do."""
    return InputError(f"{path}: {file_kinds.told(path)}")


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a result of `bench run`."""
    return value.get("schema") == SCHEMA and isinstance(value.get("configuration"), dict)


def _rows(path: Path) -> list[Run]:
    """Result rows or whole loss curves, one a line; none where the lines hold single steps or anything else."""
    found = []
    for value in json_lines(path, ('"losses"', '"schema"')):
        if is_row(value):
            found.append(_from_result(value, path))
        elif isinstance(value.get("losses"), list):
            found.append(_from_curve(value, path))
    return found


def _from_curve(value: dict[str, Any], path: Path) -> Run:
    name = next((str(value[key]) for key in ("name", "cell", "label") if key in value), path.stem)
    if "world" in value:
        name += f", {value['world']} rank" + ("s" if value["world"] != 1 else "")
    run = Run(name)
    run.loss = Series.of("loss", _numbers(value["losses"], path))
    if isinstance(value.get("grad_norms"), list):
        run.grad_norm = Series.of("grad_norm", _numbers(value["grad_norms"], path))
    return run


def _numbers(values: Any, path: Path) -> list[float]:
    try:
        return [math.nan if value is None else float(value) for value in values]
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{path}: a list of losses or gradient norms holds something that is not a number") from None


def _whole(path: Path, loss: str | None) -> list[Run] | None:
    """One JSON document: a result, a pyperf suite, the state of transformers' trainer; None for any other."""
    value = read_json(path)
    if not isinstance(value, dict):
        return None
    if is_row(value):
        return [_from_result(value, path)]
    if "benchmarks" in value:
        return _pyperf(path)
    if isinstance(value.get("log_history"), list):
        return [_log(map(json.dumps, value["log_history"]), path, loss)]
    if file_kinds.kind_of(value):
        raise foreign_file(path)
    return None


def _from_result(result: dict[str, Any], path: Path) -> Run:
    try:
        return _run_of(result, path)
    except InputError:
        raise
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, ArithmeticError) as error:
        raise InputError(f"{path}: the result of {result.get('label')} is incomplete ({error!r})") from None


def _run_of(result: dict[str, Any], path: Path) -> Run:
    run = Run(
        str(result["label"]), status=str(result["status"]), message=str(result.get("message", "")),
        identity=_identity(result["configuration"]), adaptive=True,
    )  # fmt: skip
    parse_known(run.identity)
    processes = result.get("runs") or []
    if not processes:
        return run
    curves = [_numbers(process["losses"], path) for process in processes]
    run.loss = Series.of("loss", curves[0])
    run.grad_norm = Series.of("grad_norm", _numbers(processes[0].get("grad_norms") or [], path))
    run.between_processes = _spread(curves)
    run.metrics = {name: Metric("second", means) for name, means in process_means(processes).items()}
    left = float(result.get("left_allocated", 0))
    run.metrics["peak_memory"] = Metric("byte", [peak_memory(process) - left for process in processes])
    return run


def _identity(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Its settings, without where a checkpoint that was made from a seed and inputs that have a hash lie."""
    found = dict(configuration)
    if SEED_FOLDER.fullmatch(Path(str(found.get("model"))).name):
        found["model"] = Path(found["model"]).name
    if found.get("input_hash"):
        found["inputs"] = Path(str(found.get("inputs"))).name
    return found


def _add_step(run: Run) -> None:
    """The whole step: the sum of its phases, process by process."""
    phases = [run.metrics[phase].means for phase in PHASES if phase in run.metrics]
    if len(phases) > 1 and len({len(means) for means in phases}) == 1:
        run.metrics[STEP] = Metric("second", [sum(parts) for parts in zip(*phases, strict=True)])


def _spread(curves: list[list[float]]) -> float | None:
    """The largest relative difference between the loss curves of several processes."""
    if len(curves) < 2:
        return None
    steps = [step for step in zip(*curves, strict=False) if max(step) != min(step)]
    return max((0.0, *((max(step) - min(step)) / max(map(abs, step)) for step in steps)))


def _pyperf(path: Path) -> list[Run]:
    """One run per configuration that the benchmarks name, in their metadata or before a colon (`label:forward`), one
    mean per pyperf run: a process."""
    import pyperf

    try:
        suite = pyperf.BenchmarkSuite.load(str(path))
        runs: dict[str, Run] = {}
        for benchmark in suite.get_benchmarks():
            label, _, metric = benchmark.get_name().rpartition(":")
            label = label or str(benchmark.get_metadata().get("configuration", ""))
            means = [statistics.fmean(run.values) for run in benchmark.get_runs() if run.values]
            run = runs.setdefault(label or path.stem, Run(label or path.stem))
            run.metrics[metric] = Metric(benchmark.get_unit(), means)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a pyperf file that can be read ({error})") from None
    for run in runs.values():
        _add_step(run)
    return list(runs.values())


def _distinct(runs: Iterable[Run]) -> list[Run]:
    """Runs with names that differ: a second `zero2` becomes `zero2 #2`."""
    seen: dict[str, int] = {}
    found = []
    for run in runs:
        seen[run.name] = seen.get(run.name, 0) + 1
        if seen[run.name] > 1:
            run.name += f" #{seen[run.name]}"
        found.append(run)
    return found

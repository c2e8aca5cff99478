"""What a report is made of: result rows, loss curves, logs; read from directories and files."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.compare.series import Run
from bench.compare.sources import foreign_file, is_row, read
from bench.configuration import Configuration, model_name, own_layers, parse_known
from bench.metrics import every
from bench.problems import InputError
from bench.process.files import json_lines, read_json
from bench.report.matrices import Matrix, is_matrix, tail, to_matrix
from bench.results import file_kinds, identity
from bench.results.measured import peak_memory, process_means, rate, seconds_per_token, spread, step_times
from bench.sweep import attempts
from bench.sweep.labels import differing, labels, words

FEW = 3
"""Files that are passed over for one reason and still named one by one."""
IN_VARIANT = ("backend", "zero_stage", "tp", "ring")
"""Settings that `Row.variant` says."""
SHOWN = ("model", "seq_len")
"""Settings with a column of their own that labels only say where rows differ."""
GOOD = ("ok", "unsupported", "interrupted")
"""Statuses from best to less good; all others are failures."""
MOST = 1e30
"""No measured number is as large; sums and axes of larger ones would leave the range of floats."""


@dataclass
class Row:
    """One result. `memory` is the peak in bytes less what earlier rows of the same process had left allocated;
    times and rates are as `bench.metrics.times` defines them; None where nothing was measured."""

    source: Path
    label: str
    configuration: Configuration
    status: str
    message: str = ""
    hint: str = ""
    log: Path | None = None
    means: dict[str, list[float]] = field(default_factory=dict)
    """Seconds by phase, and of the whole `step`: the mean of each process."""
    spread: dict[str, float] = field(default_factory=dict)
    """By the same names: how far single steps lie apart."""
    per_token: list[float] = field(default_factory=list)
    """Seconds that a real token takes one GPU, by process."""
    summary: dict[str, Any] = field(default_factory=dict)
    """What the result keeps under this name; empty where nothing was measured."""
    processes: int = 0
    ended: list[float] = field(default_factory=list)
    """When each process ended, in seconds since 1970; empty where the result does not say."""
    memory: float | None = None
    parameters: int | None = None
    positions: float | None = None
    """Positions of one micro-batch of a data-parallel rank: of the longest in the step whose memory was measured,
    or on average where the result does not say."""
    settings: frozenset[str] = frozenset()
    """Names of the settings in the file: what came later the measured code did not have."""
    losses: list[float] = field(default_factory=list)
    steps: list[dict[str, float]] = field(default_factory=list)
    """Seconds by phase of the measured steps of the first process."""
    effective: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    number: int = 0
    """Its place in the collection, from 0."""
    apart: str = ""
    """What tells it from rows of the same settings: versions, processor, file."""
    more: str = ""
    """Settings in which the rows beside it differ and that no column of its own shows."""

    @property
    def seconds(self) -> dict[str, float]:
        """By phase, and of the whole `step`."""
        return {name: statistics.fmean(means) for name, means in self.means.items()}

    @property
    def tokens(self) -> float | None:
        """Real tokens per second and GPU."""
        return rate(self.per_token)

    @property
    def variant(self) -> str:
        """Backend with its splits: `zero2`, `fsdp2 tp2 ring2`."""
        return " ".join(self.configuration.split_words())

    @property
    def setting(self) -> str:
        """Attention, compilation and packing: a column of the grid."""
        return " ".join(self.configuration.way_words())

    @property
    def model(self) -> str:
        return model_name(self.configuration.model)

    @property
    def on_cpu(self) -> bool:
        return self.configuration.device == "cpu" or str(self.effective.get("device", "")).startswith("cpu")

    @property
    def layers(self) -> int | None:
        """Those that were asked for, else all of a model whose sizes are known here."""
        return self.configuration.num_layers or own_layers(self.configuration.model)

    def log_tail(self) -> str:
        """The end of the log, empty where there is none."""
        return "" if self.log is None else tail(self.log)


@dataclass
class Collection:
    """All that was found: rows, loss curves that belong to no row, matrices, and notes on what was passed over."""

    rows: list[Row] = field(default_factory=list)
    runs: dict[Path, list[Run]] = field(default_factory=dict)
    """Loss curves by what holds them: a folder of logs, or one file."""
    matrices: list[Matrix] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def curves(self) -> list[Run]:
        """All loss curves that belong to no row."""
        return [run for runs in self.runs.values() for run in runs]

    @property
    def passed_over(self) -> list[str]:
        """The notes; where one reason holds for more than three files, one line with their number."""
        by_reason: dict[str, list[str]] = {}
        for note in self.notes:
            by_reason.setdefault(note.partition(": ")[2], []).append(note)
        lines = []
        for reason, notes in by_reason.items():
            first = notes[0].partition(": ")[0]
            lines += notes if len(notes) <= FEW else [f"{len(notes)} files, the first is {first}: {reason}"]
        return lines


def collect(paths: Sequence[Path]) -> Collection:
    """Results under `paths`, in order; the same file is read once.

    Raises `InputError` for a path that is not there, and where nothing was found at all.
    """
    found = Collection()
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or directory")
        files = sorted(filter(_counts, _files(path))) if path.is_dir() else [path]
        if path.is_dir() and not files:
            found.notes.append(f"{path}: no result.json, matrix.json, .jsonl of results or training log in it")
        for file in (f for f in files if f.resolve() not in seen):
            seen.add(file.resolve())
            _add(file, found, named=not path.is_dir())
    name_apart(found.rows)
    if not (found.rows or found.curves or found.matrices):
        raise InputError("; ".join(found.passed_over))
    return found


def rank_word(rows: Sequence[Row]) -> str:
    """What ranks of rows are: GPUs, unless some are processes on a CPU."""
    return "rank" if any(row.on_cpu for row in rows) else "GPU"


def name_apart(rows: Sequence[Row]) -> None:
    """Give rows labels that hold every setting in which they differ, and, where that is nothing, what they were
    measured with or where they lie."""
    for number, row in enumerate(rows):
        row.number = number
    configurations = [row.configuration for row in rows]
    named = labels(configurations)
    more = words(configurations, [name for name in differing(configurations) if name not in SHOWN])
    by_label: dict[str, list[Row]] = {}
    for row, text in zip(rows, more, strict=True):
        row.more = text
        row.label = named[row.configuration.content_hash()]
        by_label.setdefault(row.label, []).append(row)
    for same in by_label.values():
        for row, apart in zip(same, _apart(same), strict=True):
            row.label, row.apart = f"{row.label}{f' ({apart})' * bool(apart)}", f"({apart})" * bool(apart)
            row.more = ", ".join(filter(None, (row.more, apart)))


def _apart(rows: Sequence[Row]) -> list[str]:
    """What tells rows of equal settings apart: processor, versions of what they need, then the place of their files."""
    if len(rows) < 2:
        return [""] * len(rows)
    versions = [dict(row.environment.get("versions") or {}) for row in rows]
    needed = {name for name in identity.packages(rows[0].configuration) if any(name in each for each in versions)}
    stacks = [
        {"on": identity.processor(row.environment), **{name: each.get(name, "unknown") for name in sorted(needed)}}
        for row, each in zip(rows, versions, strict=True)
    ]
    names = [name for name in stacks[0] if len({stack[name] for stack in stacks}) > 1]
    words = [", ".join(f"{name} {stack[name]}" for name in names) for stack in stacks]
    if len(set(words)) == len(rows):
        return words
    places = _places([row.source for row in rows])
    return [", ".join(filter(None, pair)) for pair in zip(words, places, strict=True)]


def _places(sources: Sequence[Path]) -> list[str]:
    """The parts of paths in which they differ; a number for rows of one file."""
    files = [source.resolve() for source in sources]
    shared = len(Path(os.path.commonpath([file.parent for file in files])).parts)
    parts = ["/".join(file.parts[shared:-1]) or file.stem for file in files]
    return [f"{part} #{parts[:n].count(part) + 1}" if parts.count(part) > 1 else part for n, part in enumerate(parts)]


def _counts(file: Path) -> bool:
    """Whether a file is one, and not of an attempt that came to nothing."""
    return file.is_file() and not any(parent.name.endswith(attempts.SUFFIX) for parent in file.parents)


def _files(folder: Path) -> Iterator[Path]:
    # Beside a result lie its own steps or inputs, which are no rows and no run of their own.
    yield from (file for file in folder.rglob("*.jsonl") if not file.with_name("result.json").is_file())
    yield from (file for file in folder.rglob("*.log") if not _of_a_matrix(file))
    yield from folder.rglob("result.json")
    yield from folder.rglob("matrix.json")


def _of_a_matrix(log: Path) -> bool:
    """Whether a log is that of a cell, which the matrix beside it shows."""
    return log.parent.name == "logs" and (log.parent.parent / "matrix.json").is_file()


def _add(file: Path, found: Collection, named: bool) -> None:
    try:
        if file.suffix == ".jsonl":
            _add_lines(file, found, named)
        elif file.suffix == ".json":
            _add_whole(file, found)
        else:
            _add_curves(file, file.parent, found)
    except InputError as error:
        found.notes.append(str(error))
    except OSError as error:
        found.notes.append(f"{file}: {error.strerror or error}")


def _add_whole(file: Path, found: Collection) -> None:
    value = read_json(file)
    if value is None:
        raise foreign_file(file)
    if isinstance(value, dict) and "log_history" in value:
        _add_curves(file, file.parent, found)
    else:
        _add_result(file, value, found)


def _add_lines(file: Path, found: Collection, named: bool) -> None:
    """Lines of something else, as data sets have, are passed over in silence where the file was not named."""
    values = list(json_lines(file))
    rows = [value for value in values if is_row(value)]
    for value in rows:
        _add_result(file, value, found)
    if not rows and any("losses" in value or "loss" in value for value in values):
        _add_curves(file, file, found)
    elif not rows and (named or any("schema" in value for value in values)):
        raise foreign_file(file)


def _add_curves(file: Path, holder: Path, found: Collection) -> None:
    curves = [run for run in read(file) if run.loss]
    if not curves:
        raise InputError(f"{file}: a log without a loss: it has times, which `bench compare` reads")
    found.runs.setdefault(holder, []).extend(curves)


def _add_result(file: Path, value: Any, found: Collection) -> None:
    what = "matrix" if is_matrix(value) else ""
    try:
        if what:
            found.matrices.append(to_matrix(value, file))
        elif isinstance(value, dict) and is_row(value):
            what = f"result of {value.get('label')}"
            found.rows.append(to_row(value, file))
        else:
            raise InputError(f"{file}: {file_kinds.described(value)}")
    except InputError:
        raise
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, ArithmeticError) as error:
        found.notes.append(f"{file}: the {what} is incomplete ({error!r})")


def to_row(result: dict[str, Any], source: Path) -> Row:
    """A `result.json` as a row; raises KeyError and its like for one that is incomplete."""
    configuration = parse_known(result["configuration"])
    row = Row(
        source, str(result["label"]), configuration, str(result["status"]), str(result.get("message", "")),
        str(result.get("hint", "")), _log(result, source), environment=dict(result.get("environment") or {}),
        settings=frozenset(result["configuration"]),
    )  # fmt: skip
    summary, runs = result.get("summary"), result.get("runs") or []
    return _measured(row, summary, runs, float(result.get("left_allocated", 0))) if summary and runs else row


def _measured(row: Row, summary: dict[str, Any], runs: list[dict[str, Any]], left: float) -> Row:
    steps = [step for run in runs for step in step_times(run)]
    first, c, peak = runs[0], row.configuration, max(map(peak_memory, runs))
    batches = len(first["times"]) * c.dp * max(c.batch // (c.rows * c.dp), 1)
    measured = replace(
        row,
        summary=dict(summary), means=process_means(runs), per_token=seconds_per_token(c.num_gpus, runs),
        spread={name: spread([step[name] for step in steps]) for name in steps[0]},
        processes=int(summary["processes"]), ended=[float(run["ended"]) for run in runs if "ended" in run],
        memory=peak - left if peak > left else None, parameters=int(summary["parameters"]),
        positions=float(first.get("memory_positions") or first["tokens"]["positions"] / batches),
        losses=[float(loss) for loss in first["losses"]], steps=list(first["times"]),
        effective=dict(summary["effective"]),
    )  # fmt: skip
    values = [metric.value(measured) for metric in every() if metric.finite]
    numbers = [value for value in (*values, measured.positions) if value is not None]
    if any(isinstance(number, str) or not abs(number) < MOST for number in numbers):
        raise ValueError("a time, rate or size is not finite")
    return measured


def _log(result: dict[str, Any], source: Path) -> Path | None:
    """The log that the result names, or the one of that name beside the result, where the tree was moved."""
    if not result.get("log"):
        return None
    named = Path(str(result["log"]))
    beside = source.parent / named.name
    return next((path for path in (beside, named) if path.is_file()), None)

"""One result directory per configuration: `result.json`, a pyperf file, logs.

`result.json`, schema 1:

    schema, hash, label      identity of the configuration
    status, message, phase   one of `bench.process.verdict.STATUSES`, and why; the message is the first error line of
                             the first failing rank
    hint                     what to change
    configuration            every field of `bench.configuration.Configuration`
    environment              time, host, versions, GPUs, command, git revision, seed, see `bench.results.environment`
    summary                  times and rates, see `bench.metrics`; absent where nothing was measured
    runs                     one entry per process: times by step and phase in seconds, losses, memory in bytes; in
                             `seconds` what its stages took, with the process time of the measured one
    log                      name of the log of the run that decided the status
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import metrics
from bench.configuration import SCHEMA, Configuration
from bench.process import files
from bench.results.measured import PHASES, peak_memory
from bench.terminal.text import valid_json

FILE = "result.json"
SUITE = "benchmarks.json"


def write_json(path: Path, value: Any) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, valid_json(value, indent=1, sort_keys=True))


def read_result(folder: Path, name: str = FILE, any_schema: bool = False) -> dict[str, Any] | None:
    """The finished result in `folder`, or None where there is none that this version can read; with `any_schema` that
    of another version too, to keep it and no more."""
    result = files.read_json(folder / name)
    return result if isinstance(result, dict) and (any_schema or result.get("schema") == SCHEMA) else None


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """What the worker processes wrote, in order of their numbers."""
    files = sorted(folder.glob("run.*.json"), key=lambda path: int(path.name.split(".")[1]))
    return [json.loads(path.read_text(encoding="utf-8")) for path in files]


def summarise(configuration: Configuration, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What every metric makes of the processes, with what was run in effect."""
    return {
        "processes": len(runs), **metrics.summarise(configuration, runs), "parameters": runs[0]["parameters"],
        "effective": runs[0]["effective"],
    }  # fmt: skip


def build_result(
    configuration: Configuration, runs: list[dict[str, Any]], environment: dict[str, Any] | None = None, **verdict: str
) -> dict[str, Any]:
    """The content of `result.json`; `verdict` has the status, and may have message, phase, hint and log. A loss that is
    not a number makes an ok run a `nan` one."""
    result: dict[str, Any] = {
        "schema": SCHEMA, "hash": configuration.content_hash(), "label": configuration.label(),
        **dict.fromkeys(("message", "phase", "hint", "log"), ""), **verdict,
        "configuration": asdict(configuration), "environment": environment or {}, "runs": runs,
    }  # fmt: skip
    if verdict["status"] == "ok":
        bad = [n for run in runs for n, loss in enumerate(run["losses"]) if not math.isfinite(loss)]
        if bad:
            result |= {"status": "nan", "message": f"the loss of step {bad[0]} is not finite", "runs": []}
            return result
        result["summary"] = summarise(configuration, runs)
    return result


Processes = Sequence[tuple[Sequence[float], Sequence[float]]]
"""Values, and those of the warm-up before them, of each process."""


def write_pyperf(path: Path, benchmarks: Iterable[tuple[Mapping[str, Any], Processes]]) -> None:
    """Benchmarks by their metadata as a pyperf suite, one pyperf run per process."""
    import pyperf

    made = [
        pyperf.Benchmark([
            pyperf.Run(values, warmups=[(1, one) for one in warm if one], metadata=told, collect_metadata=False)
            for values, warm in processes
        ])
        for told, processes in benchmarks if processes
    ]  # fmt: skip
    with files.whole(path) as part:
        pyperf.BenchmarkSuite(made).dump(str(part), replace=True)


def write_suite(path: Path, result: dict[str, Any]) -> None:
    """The measured values for pyperf: seconds by phase, and bytes."""
    runs = result["runs"]
    benchmarks: list[tuple[dict[str, Any], Processes]] = [
        (
            _metadata(result, phase, "second"),
            [([s[phase] for s in run["times"]], [s.get(phase, 0.0) for s in run["warmups"]])
             for run in runs if phase in run["times"][0]],
        )
        for phase in PHASES
    ]  # fmt: skip
    peaks: Processes = [([peak_memory(run)], []) for run in runs]
    # Without a duration pyperf adds up the values, as if bytes were seconds; the peak is that of one step.
    step = [runs[0]["times"][-1][phase] for phase in PHASES if phase in runs[0]["times"][-1]]
    memory = {**_metadata(result, "peak_memory", "byte"), "duration": math.fsum(step)}
    write_pyperf(path, [*benchmarks, (memory, peaks)])


def stack_metadata(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Versions and the first GPU, as pyperf takes them."""
    found = {f"version_{k.replace('-', '_')}": v for k, v in environment.get("versions", {}).items()}
    gpus = environment.get("gpus", [])[:1]
    return found | {f"gpu_{k.replace('.', '_')}": v for gpu in gpus for k, v in gpu.items() if v}


def _metadata(result: dict[str, Any], phase: str, unit: str) -> dict[str, Any]:
    """pyperf takes texts and numbers only, and no empty ones. The name is that of the phase alone, by which
    `compare_to` finds the same of another backend, setting or stack; what was measured stands beside it."""
    environment = result["environment"]
    found: dict[str, Any] = {"name": phase, "unit": unit, "configuration": result["label"], "hash": result["hash"]}
    found |= stack_metadata(environment)
    for name in ("command", "platform", "python", "git_revision", "topology"):
        found[name] = str(environment.get(name, "")).replace("\n", " | ")
    found["seed"] = environment.get("seed", 0)
    found["inputs"] = result["configuration"].get("input_hash") or "synthetic"
    found |= {name: value for name, value in result["summary"].items() if isinstance(value, float)}
    return {k: v for k, v in found.items() if v != ""}

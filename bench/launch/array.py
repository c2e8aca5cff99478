"""A sweep as Slurm job arrays: scripts that measure one configuration per task, to look at, change and submit."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.configuration import Configuration
from bench.launch.slurm import nodes_for
from bench.problems import Problem

SECONDS = 120


class SlurmError(Problem):
    """sbatch did not take a script; the message is one line."""

    status = 1


@dataclass(frozen=True)
class Request:
    """What every task asks of Slurm. `at_once` tasks of an array run at a time; `options` are sbatch's own."""

    per_node: int
    gpus: bool
    at_once: int | None = None
    options: tuple[str, ...] = ()
    flags: tuple[str, ...] = field(default=())
    """Of `bench run`, given to every task."""


def write(configurations: Sequence[Configuration], output: Path, request: Request) -> list[Path]:
    """One script per number of processes under `<output>/slurm`, with a file per configuration beside them."""
    folder = output.resolve() / "slurm"
    folder.mkdir(parents=True, exist_ok=True)
    scripts = []
    for size in sorted({configuration.num_gpus for configuration in configurations}):
        cells = [c for c in configurations if c.num_gpus == size]
        names = []
        for cell in cells:
            path = folder / f"{cell.label()}-{cell.content_hash()}.json"
            path.write_text(cell.to_json(), encoding="utf-8")
            names.append(str(path))
        listed = folder / f"cells-{size}.txt"
        listed.write_text("\n".join(names) + "\n", encoding="utf-8")
        script = folder / f"sweep-{size}.sh"
        script.write_text(text(size, len(cells), listed, request), encoding="utf-8")
        scripts.append(script)
    return scripts


def text(size: int, count: int, listed: Path, request: Request) -> str:
    """The script of `count` tasks with `size` ranks each."""
    folder = listed.parent
    tasks = min(request.per_node, size)
    limit = f"%{request.at_once}" if request.at_once else ""
    gpus = [f"#SBATCH --gpus-per-node={tasks}"] if request.gpus else []
    run = [sys.executable, "-m", "bench", "run", *request.flags]
    lines = [
        "#!/bin/bash",
        "#SBATCH --job-name=bench",
        f"#SBATCH --array=0-{count - 1}{limit}",
        f"#SBATCH --nodes={nodes_for(size, request.per_node)}",
        f"#SBATCH --ntasks-per-node={tasks}",
        *gpus,
        *(f"#SBATCH {option}" for option in request.options),
        f"#SBATCH --output={_word(f'{folder}/%A_%a.log')}",
        "",
        f"# One configuration per task; {listed.name} names its file by line.",
        "set -euo pipefail",
        f'cell=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {shlex.quote(str(listed))})',
        f"cd {shlex.quote(str(Path.cwd()))}",
        f'exec {shlex.join(run)} --cell "$cell"',
        "",
    ]
    return "\n".join(lines)


def _word(text: str) -> str:
    """A value of an `#SBATCH` line, which ends at the first space outside of quotes."""
    return f'"{text}"' if " " in text else text


def submit(*arguments: str) -> str:
    """Give a script to `sbatch`; the job's number. Raises `Problem` without `sbatch`, `SlurmError` where it refuses."""
    try:
        done = subprocess.run(
            ["sbatch", "--parsable", *arguments], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Problem(f"sbatch: {error}") from None
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
        raise SlurmError(f"sbatch refused it: {reason[0]}")
    return done.stdout.strip().partition(";")[0]

"""`python -m bench attention`: how fast each attention kernel is here, forward and backward, and how exact."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.attention import needs, suite
from bench.attention.shapes import Heads, Shape
from bench.cli import FAILED, OK
from bench.launch import local
from bench.problems import Problem, in_one_line
from bench.results import environment
from bench.sweep import availability
from bench.terminal.parsing import Parser, choice, listed, whole

SECONDS = 900
"""Of one kernel on all shapes, its compilation included."""


@dataclass(frozen=True)
class Request:
    """What one process measures: a kernel on every shape."""

    kernel: str
    shapes: tuple[Shape, ...]
    device: str
    dtype: str
    warmup: int
    steps: int


def parser() -> argparse.ArgumentParser:
    """The flags of `bench attention`."""
    p = Parser(prog="bench attention", description=__doc__)
    p.add_argument("--kernels", type=listed(choice(needs.NAMES)), default=list(needs.NAMES),
                   help="default: all; names as in --attn")  # fmt: skip
    p.add_argument("--lengths", type=listed(str), help="LENGTH or DOCUMENTSxLENGTH, packed; default: "
                   "8192,32768,10x868 on a GPU, 256,1024,4x256 without one")  # fmt: skip
    p.add_argument("--heads", type=listed(str), help="HEADSxKEYHEADSxSIZE; default: 32x8x128, without a GPU 8x4x64")
    p.add_argument("--dtype", choices=("bf16", "fp16", "fp32"), help="default: bf16, without a GPU fp32")
    p.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="default: a GPU if there is one")
    p.add_argument("--processes", type=whole, default=2, help="processes per kernel, in turns; default 2")
    p.add_argument("--warmup", type=whole, default=5, help="steps before those that count; default 5")
    p.add_argument("--steps", type=whole, default=15, help="steps of a process; default 15")
    p.add_argument("--output", type=Path, default=Path("results"), help="default ./results: its folder `attention`")
    p.add_argument("--markdown", action="store_true", help="the table as Markdown")
    return p


def _requests(options: argparse.Namespace) -> list[Request]:
    """One per kernel. Raises `ValueError` for shapes that are none, and for a GPU that is not there."""
    gpu = bool(environment.gpus())
    if options.device == "cuda" and not gpu:
        raise Problem("no GPU is visible: run with --device cpu")
    cuda = gpu and options.device != "cpu"
    heads = [Heads.parse(text) for text in options.heads or ["32x8x128" if cuda else "8x4x64"]]
    lengths = options.lengths or (["8192", "32768", "10x868"] if cuda else ["256", "1024", "4x256"])
    shapes = tuple(Shape.parse(text, each) for each in heads for text in lengths)
    dtype = options.dtype or ("bf16" if cuda else "fp32")
    device = "cuda" if cuda else "cpu"
    return [Request(k, shapes, device, dtype, options.warmup, options.steps) for k in dict.fromkeys(options.kernels)]


def _measured(request: Request, folder: Path) -> list[dict[str, Any]]:
    """The rows of one process; those that it did not come to end as crashes with its last line."""
    asked, answer = folder / "request.json", folder / "answer.jsonl"
    asked.write_text(json.dumps(asdict(request)), encoding="utf-8")
    answer.write_text("", encoding="utf-8")
    command = [sys.executable, "-m", "bench.attention.worker", str(asked), str(answer)]
    try:
        done = subprocess.run(
            command, env=local.environment(1), capture_output=True, text=True, timeout=SECONDS, check=False
        )
        lines = done.stderr.strip().splitlines()
        status, message = "crash", lines[-1] if lines else f"exit status {done.returncode}"
    except subprocess.TimeoutExpired:
        status, message = "hang", f"no end after {SECONDS} s"
    rows = [json.loads(line) for line in answer.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    rest = request.shapes[len(rows) :]
    return rows + [suite.ended(request.kernel, shape, status, message) for shape in rest]


def _run(requests: Sequence[Request], processes: int) -> list[list[dict[str, Any]]]:
    """Per kernel and shape, what each process found. Process n of every kernel runs before process n + 1 of any."""
    found: dict[tuple[str, Shape], list[dict[str, Any]]] = {}
    todo = len(requests) * processes
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(processes):
            for place, request in enumerate(requests, 1 + turn * len(requests)):
                missing = needs.lacking(request.kernel, request.device, request.dtype)
                if missing is None:
                    print(f"[{place}/{todo}] {request.kernel}", file=sys.stderr, flush=True)
                    rows = _measured(request, Path(folder))
                else:
                    rows = [suite.ended(request.kernel, shape, "unsupported", missing) for shape in request.shapes]
                for shape, row in zip(request.shapes, rows, strict=True):
                    found.setdefault((request.kernel, shape), []).append(row)
    return list(found.values())


def _described() -> dict[str, Any]:
    return {"versions": environment.versions(), "gpus": environment.gpus(), "platform": platform.platform()}


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0 measured, but for what is unsupported or too large; 1 a crash, a hang or nothing measured; 2 wrong
    usage."""
    options = parser().parse_args(arguments)
    if not availability.installed("torch"):
        raise Problem(f"torch is not installed: {availability.install('torch')}")
    requests = _requests(options)
    folder = options.output / "attention"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [suite.joined(several) for several in _run(requests, options.processes)]
    first = requests[0]
    suite.write(folder, rows, _described(), {"device": first.device, "dtype": first.dtype})
    print(suite.render(rows, options.markdown))
    print(f"results: {folder}")
    statuses = {row["status"] for row in rows}
    return OK if "ok" in statuses <= {"ok", "unsupported", "oom"} else FAILED

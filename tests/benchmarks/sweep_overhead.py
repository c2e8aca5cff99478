"""What a sweep adds to training itself, and what its rows leave for the next: prints Markdown.

    python tests/benchmarks/sweep_overhead.py [--rounds N] [--ranks N…] [--device cpu|cuda] [--compiled]
        [--inputs DIRECTORY]

A row of `python -m bench` against the same steps in a plain program with the same imports and model building, in
turns; with --compiled the warm-up of eight compiled rows; with --inputs what reading recorded batches costs. Exit
status 1 where a row adds more than 3 s.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tabulate import tabulate  # noqa: E402

from bench.configuration import Configuration, parse, store  # noqa: E402
from bench.launch import local  # noqa: E402
from tests.benchmarks.processes import Command  # noqa: E402

LIMIT = 3.0
ROWS = 3
"""Of one sweep."""

STEPS = 5
# As many steps as a row has warm-up and timed ones, and nothing else of the harness.
PLAIN = """
import os
import sys
from pathlib import Path
from bench.configuration import stored
from bench.process.process_exit import end
from bench.process.heartbeat import Heartbeat
from bench.measure.model import attention_context
from bench.strategies import processes
from bench.measure.training import no_phase
from bench.measure.worker import Run
folder = Path(sys.argv[1])
run = Run(stored(folder), Heartbeat(folder, int(os.environ.get("RANK", "0"))))
run.build()
with attention_context(run.configuration.attn):
    for _ in range(int(sys.argv[2])):
        run.step(no_phase)
processes.leave()
end(0)
"""


def sweep(output: Path, flags: Sequence[str], **variables: str) -> tuple[list[float], list[dict[str, Any]]]:
    """Seconds of each row and their results, in order. The first one's include the start of the program."""
    started = time.time()
    command = [sys.executable, "-m", "bench", *flags, "--processes", "1", "--quiet", "--output", str(output)]
    done = subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **variables}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    files = sorted(output.glob("*/result.json"), key=lambda path: path.stat().st_mtime)
    ends = [path.stat().st_mtime for path in files]
    seconds = [end - begin for begin, end in zip([started, *ends], ends, strict=False)]
    return seconds, [json.loads(path.read_text(encoding="utf-8")) for path in files]


def flags(device: str, ranks: int) -> list[str]:
    dtype = "fp32" if device == "cpu" else "bf16"
    return ["--backend", "ddp", "--model", "llama-tiny", "--device", device, "--dtype", dtype, "--num-gpus", str(ranks),
            "--steps", str(STEPS), "--warmup", "1", "--attn", "sdpa"]  # fmt: skip


def plain(folder: Path, configuration: Configuration, steps: int) -> Command:
    """The same steps under torchrun, or alone."""
    program = folder / "plain.py"
    program.write_text(PLAIN, encoding="utf-8")
    store(configuration, folder)
    ranks = configuration.num_gpus
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    arguments = (sys.executable, *launcher, str(program), str(folder), str(steps))
    return Command(f"plain-{ranks}", arguments, local.environment(ranks), cwd=REPOSITORY)


def overhead(device: str, ranks: int, rounds: int) -> list[Any]:
    """Medians of seconds: of a row, of the plain program, and what is between, by the wall and by the processors.

    On a machine with other work the processors' time says more; that of a sweep includes its own start.
    """
    rows: list[float] = []
    bare: list[float] = []
    busy: list[float] = []
    # Short steps: those in which memory and communication are measured count as added, whatever they train.
    lengths = ["--micro-batch-size", "1", "--seq-len", ",".join(str(32 + n) for n in range(ROWS))]
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as name:
            folder, before = Path(name), processors()
            seconds, results = sweep(folder / "rows", [*flags(device, ranks), *lengths])
            rows += seconds[1:]
            middle = processors()
            for result in results:
                steps = result["summary"]["effective"]["warmup_steps"] + STEPS
                bare.append(plain(folder, parse(result["configuration"]), steps).seconds("wall"))
            busy.append((middle - before - (processors() - middle)) / ROWS)
    row, program = statistics.median(rows), statistics.median(bare)
    return [ranks, len(rows), f"{row:.1f}", f"{program:.1f}", f"{statistics.median(busy):.1f}", f"{row - program:.1f}"]


def processors() -> float:
    """Processor seconds of all programs that were started from here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compiled(device: str) -> list[list[Any]]:
    """Eight rows, with an empty cache of the compiler at first: what was found there, and seconds of warm-up."""
    axes = ["--backend", "ddp,fsdp2", "--num-layers", "1,2", "--seq-len", "128,256", "--compile", "blocks"]
    with tempfile.TemporaryDirectory() as name:
        cache = {"TORCHINDUCTOR_CACHE_DIR": f"{name}/cache", "TRITON_CACHE_DIR": f"{name}/triton"}
        _, results = sweep(Path(name) / "rows", [*flags(device, 1), *axes], **cache)
    return [
        [r["configuration"][key] for key in ("backend", "num_layers", "seq_len")]
        + [r["summary"]["effective"]["graphs"][key] for key in ("cache_hits", "cache_misses")]
        + [f"{r['runs'][0]['seconds']['warmup']:.1f}"]
        for r in results
    ]  # fmt: skip


def recorded(inputs: Path) -> list[list[Any]]:
    """What rank 0 of a sweep's first row, and then any rank, spends on reading recorded batches."""
    from bench.inputs import CONVERTED, conversion_cache

    found = []
    with tempfile.TemporaryDirectory() as name:
        os.environ[CONVERTED] = name
        for row in ("first, which converts them", "second", "third"):
            started = time.process_time()
            batches = conversion_cache.read(inputs, "recorded")
            found.append([row, len(batches), f"{time.process_time() - started:.2f}"])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--inputs", type=Path)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2], help="of the rows; none: leave them out")
    options = parser.parse_args()
    added = [overhead(options.device, ranks, options.rounds) for ranks in options.ranks]
    heads = ["ranks", "rows", "row, s", "plain program, s", "added, s of processors", "added, s"]
    if added:
        print(tabulate(added, heads, tablefmt="github"), flush=True)
    if options.compiled:
        heads = ["backend", "layers", "seq_len", "found in the cache", "compiled", "warm-up, s"]
        print("\n" + tabulate(compiled(options.device), heads, tablefmt="github"), flush=True)
    if options.inputs is not None:
        print("\n" + tabulate(recorded(options.inputs), ["row", "batches", "processor seconds"], "github"))
    return int(any(float(row[-1]) > LIMIT for row in added))


if __name__ == "__main__":
    sys.exit(main())

"""Measures many configurations in one process group: what a sweep does, without paying for imports in every row.

    python many.py CELLS.jsonl OUT.jsonl            (one GPU)
    torchrun --standalone --nproc-per-node=4 many.py CELLS.jsonl OUT.jsonl

Each line of CELLS holds the settings of one `bench.configuration.Configuration`; a line of OUT is its row.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from bench.configuration import Configuration, parse
from bench.measure.worker import execute
from bench.parallel import ring_attention
from bench.process.heartbeat import Heartbeat
from bench.results import environment, results
from bench.strategies import processes
from bench.sweep.availability import installed
from bench.sweep.sweep import refusal


def destroy_engines() -> None:
    """Let go of DeepSpeed's memory: an engine's hooks hold each other, and ZeRO-3 keeps a list of all models."""
    if not installed("deepspeed"):
        return
    from deepspeed.runtime.zero import parameter_offload

    for engine in [found for found in gc.get_objects() if type(found).__name__ == "DeepSpeedEngine"]:
        with suppress(Exception):
            engine.destroy()
    parameter_offload.FWD_MODULE_STACK.clear()


def forget() -> None:
    """Free the last configuration's memory and what the compiler knows of it."""
    ring_attention.set_ring(None)
    destroy_engines()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.utils.compilation_time_metrics.clear()
    gc.collect()
    torch.cuda.empty_cache()


def measure(configuration: Configuration, gpus: int, heartbeat: Heartbeat) -> dict[str, Any]:
    refused = refusal(configuration, gpus)
    if refused is not None:
        return results.build_result(configuration, [], status="unsupported", message=refused[0])
    try:
        run = execute(configuration, heartbeat)
    except Exception as error:
        lines = traceback.format_exc().splitlines()[-12:]
        message = f"{type(error).__name__}: {str(error).strip()[:600]}"
        return results.build_result(configuration, [], status="crash", message=message) | {"traceback": lines}
    return results.build_result(configuration, [run], status="ok")


def main(cells: Path, target: Path) -> None:
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    gpus = len(environment.gpus())
    heartbeat = Heartbeat(Path(tempfile.mkdtemp()), rank)
    with target.open("a", encoding="utf-8") if rank == 0 else open(os.devnull, "w") as file:
        for line in cells.read_text().splitlines():
            started, left = time.time(), torch.cuda.memory_allocated()
            configuration = parse({"num_gpus": world, **json.loads(line)})
            row = measure(configuration, gpus, heartbeat)
            row |= {"wall": time.time() - started, "left_allocated": left}
            row.pop("environment")
            file.write(json.dumps(row) + "\n")
            file.flush()
            if rank == 0:
                summary = row.get("summary", {})
                text = {k: summary.get(k) for k in ("real_tokens_per_second", "peak_share", "last_loss")}
                print(f"{row['wall']:6.1f}s {row['status']:11} {line} {text} {row['message'][:300]}", flush=True)
            forget()
    processes.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)

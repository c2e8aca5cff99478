"""One row with and without changes to how it computes, each several times and in turns, in one process on one GPU.

    python changes.py CELLS.jsonl OUT.jsonl VARIANT [VARIANT ...]

A variant is `NAME+NAME` of what is taken back: `rows` (rows of the embedding's gradient alone), `cast` (gradients cast
by `_foreach_copy_`), or `none`; `graphs` adds CUDA graphs of each block. Milliseconds are means of 40 steps, the host
ahead. In run 28 there was `head` as well, of code that did not pay and is gone.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config
from many import forget

from bench.configuration import parse
from bench.measure.model import attention_context
from bench.measure.worker import Run
from bench.process.heartbeat import Heartbeat
from bench.strategies import master_weights
from bench.strategies.ddp import DDPStrategy

SKIPS, ADD = DDPStrategy._skips_zeros, master_weights._add


def _add_by_copies(master: torch.Tensor, gradient: torch.Tensor) -> None:
    if gradient.is_sparse:
        ADD(master, gradient)
    else:
        master.grad = gradient.float()


def apply(taken_back: set[str]) -> None:
    DDPStrategy._skips_zeros = (lambda *_: False) if "rows" in taken_back else SKIPS  # type: ignore[method-assign]
    master_weights._add = _add_by_copies if "cast" in taken_back else ADD
    torch._inductor.config.triton.cudagraphs = "graphs" in taken_back


def measured(settings: dict[str, Any], variant: str, heartbeat: Heartbeat) -> dict[str, Any]:
    apply(set(variant.split("+")))
    run = Run(parse({**settings, "num_gpus": 1, "steps": 40}), heartbeat)
    run.build()
    with attention_context(run.configuration.attn):
        run.warm_up()
        times = run.measure()
    phases = {name: 1e3 * statistics.fmean(t[name] for t in times) for name in times[0]}
    tokens = run.counts[-1]["real"]
    both, whole = phases["forward"] + phases["backward"], sum(phases.values())
    return {
        "variant": variant, "settings": settings, "milliseconds": phases, "tokens_per_second": 1e3 * tokens / both,
        "tokens_per_second_whole": 1e3 * tokens / whole, "losses": run.losses,
        "memory_gb": torch.cuda.max_memory_allocated() / 1e9,
    }  # fmt: skip


def main(cells: Path, target: Path, variants: list[str]) -> None:
    heartbeat = Heartbeat(Path(tempfile.mkdtemp()), 0)
    for line in filter(None, cells.read_text().splitlines()):
        for variant in variants:
            torch.cuda.reset_peak_memory_stats()
            try:
                row = measured(json.loads(line), variant, heartbeat)
            except Exception as error:
                traceback.print_exc()
                row = {
                    "variant": variant,
                    "settings": json.loads(line),
                    "error": f"{type(error).__name__}: {error}"[:600],
                }
            forget()
            with target.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps({k: v for k, v in row.items() if k not in ("losses", "settings")}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    sys.stdout.flush()
    os._exit(0)

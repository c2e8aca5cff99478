"""The plain loop under one setting after another, in one process on one GPU, with watts and clock: what is it held by?

    python variants.py OUT.jsonl VARIANT [VARIANT ...]

A variant is `NAME=VALUE+NAME=VALUE` of layers (4), seq_len (8192), attn (sdpa), compile (blocks), head (compiled),
autotune (none), blas (default; cublas, cublaslt), or `products:ROWSxINPUTSxOUTPUTS`, one matrix product again and
again.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from typing import Any

import torch
from floors import Plain
from power import metered

from bench.configuration import model_facts, parse
from bench.inputs.source import InputSource, to_inputs
from bench.measure.clock import graph_report
from bench.measure.model import attention_context
from bench.predict.flops import per_token
from bench.strategies.compilation import set_autotuning

DEFAULTS = {
    "layers": "4", "seq_len": "8192", "attn": "sdpa", "compile": "blocks", "head": "compiled", "autotune": "none",
    "blas": "default",
}  # fmt: skip


def product(sizes: str) -> dict[str, Any]:
    rows, inputs, outputs = map(int, sizes.split("x"))
    left = torch.randn(rows, inputs, device="cuda").bfloat16()
    right = torch.randn(outputs, inputs, device="cuda").bfloat16().t()
    found = metered(lambda: [left @ right for _ in range(10)])
    return found | {"tflops": 20 * rows * inputs * outputs / found["milliseconds"] / 1e9}


def loop(variant: dict[str, str]) -> dict[str, Any]:
    torch._dynamo.reset()
    set_autotuning(variant["autotune"])
    torch.backends.cuda.preferred_blas_library(variant["blas"])
    c = parse({
        "model": "llama-3.1-8b", "num_layers": int(variant["layers"]), "seq_len": int(variant["seq_len"]),
        "full_length": True, "micro_batch_size": 1, "attn": variant["attn"], "compile": variant["compile"],
        "head": variant["head"],
    })  # fmt: skip
    batch = next(InputSource(c, 128256, 0).micro_batches(1))[0]
    device = torch.device("cuda", 0)
    inputs = to_inputs(batch, c, use_actions=False, ring_rank=0, ring_size=1)
    with attention_context(c.attn):
        plain = Plain(c, inputs, device)
        for _ in range(4):
            plain.step().take()
        found = metered(plain.step)
    flops = per_token(model_facts(c.model, c.num_layers), c.seq_len).model * c.seq_len
    return found | {"tflops": flops / found["milliseconds"] / 1e9, "graphs": graph_report()}


def main(target: str, variants: list[str]) -> None:
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1024
    for variant in variants:
        started = time.time()
        try:
            if variant.startswith("products:"):
                row = product(variant.partition(":")[2])
            else:
                row = loop({**DEFAULTS, **dict(part.split("=") for part in variant.split("+"))})
        except Exception as error:
            traceback.print_exc()
            row = {"error": f"{type(error).__name__}: {error}"[:500]}
        row = {"variant": variant, **row}
        print(f"{time.time() - started:.0f} s", json.dumps(row), flush=True)
        with open(target, "a") as file:
            file.write(json.dumps(row) + "\n")
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
    sys.stdout.flush()
    os._exit(0)

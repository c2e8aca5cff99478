"""One matrix product again and again, by cuBLAS and by quack's kernels, with watts and clock.

    python quack_products.py OUT.jsonl

Sizes are those of a packed batch of 5,525 tokens in Llama-3.1-8B: forward, gradient of inputs, gradient of weights.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from power import metered
from quack.gemm_config import GemmConfig
from quack.gemm_interface import gemm_tuned

TOKENS, SIZE, WIDTH = 5525, 4096, 14336
CONFIGS: dict[str, GemmConfig | None] = {
    "default": None,
    "256x128 coop": GemmConfig(tile_m=256, tile_n=128, pingpong=False, is_dynamic_persistent=False),
    "128x256 coop": GemmConfig(tile_m=128, tile_n=256, pingpong=False, is_dynamic_persistent=False),
    "256x192 coop": GemmConfig(tile_m=256, tile_n=192, pingpong=False, is_dynamic_persistent=False),
}


def drawn(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, device="cuda").bfloat16()


def kinds() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    states, weight, grad = drawn(TOKENS, SIZE), drawn(WIDTH, SIZE), drawn(TOKENS, WIDTH)
    return {"forward": (states, weight.t()), "of inputs": (grad, weight), "of weights": (grad.t(), states)}


def measured(left: torch.Tensor, right: torch.Tensor, work: Callable[[], Any]) -> dict[str, Any]:
    found = metered(lambda: [work() for _ in range(10)], seconds=2.0)
    flops = 20 * left.shape[0] * left.shape[1] * right.shape[1]
    return found | {"tflops": flops / found["milliseconds"] / 1e9}


def rows_of(left: torch.Tensor, right: torch.Tensor) -> dict[str, dict[str, Any]]:
    expected = left @ right
    rows = {"cuBLAS": measured(left, right, lambda: left @ right)}
    for name, config in CONFIGS.items():
        work = partial(gemm_tuned.fn, left, right, out := torch.empty_like(expected), config=config)
        try:
            work()
            error = float((out - expected).float().norm() / expected.float().norm())
            rows[f"quack {name}"] = measured(left, right, work) | {"error": error}
        except Exception as problem:
            traceback.print_exc()
            rows[f"quack {name}"] = {"error": f"{type(problem).__name__}: {problem}"[:300]}
    return rows


def main(target: str) -> None:
    with open(target, "a") as file:
        for kind, (left, right) in kinds().items():
            for name, row in rows_of(left, right).items():
                print(kind, name, json.dumps(row), flush=True)
                file.write(json.dumps({"product": kind, "kernel": name, **row}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])

"""The rates of a model's matrix products one after the other without a pause, as long as a GPU's power limit counts.

    python products.py OUT.json

For positions T and a layer of that many inputs and outputs: TFLOP/s of the product forward, of the one for the inputs'
gradient and of the one for the weight's. `square` is 8192 x 8192 x 8192 for half a second, where `matmul_peak` waits
after each of ten products.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch

LENGTHS = (5525, 8192)
LAYERS = ((4096, 4096), (4096, 1024), (4096, 6144), (4096, 14336), (4096, 28672), (14336, 4096), (4096, 128256))


def milliseconds(product: Callable[[], torch.Tensor], seconds: float) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(3):
        product()
    torch.cuda.synchronize()
    start.record()
    product()
    end.record()
    end.synchronize()
    times = max(3, int(seconds * 1e3 / start.elapsed_time(end)))
    start.record()
    for _ in range(times):
        product()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / times


def random(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, device="cuda").to(torch.bfloat16)


def rates(length: int, inputs: int, outputs: int) -> list[float]:
    states, weight, grad = random(length, inputs), random(outputs, inputs), random(length, outputs)
    operations = 2 * length * inputs * outputs / 1e9
    products = (lambda: states @ weight.t(), lambda: grad @ weight, lambda: grad.t() @ states)
    return [round(operations / milliseconds(product, 0.12), 1) for product in products]


def main(target: str) -> None:
    left, right = random(8192, 8192), random(8192, 8192)
    found = {"square": 2 * 8192**3 / milliseconds(lambda: left @ right, 0.5) / 1e9}
    found["products"] = {f"{n} x {i} x {o}": rates(n, i, o) for n in LENGTHS for i, o in LAYERS}
    print(json.dumps(found, indent=1))
    with open(target, "w") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1])

"""Is there a faster matrix product than the one that PyTorch takes, at the power limit? All that cuBLASLt proposes.

    nvcc -O2 -shared -Xcompiler -fPIC -o libproducts.so cublaslt.cu -lcublasLt
    python products_lt.py libproducts.so OUT.jsonl ROWSxINPUTSxOUTPUTS [...]

Of each linear layer the three products of a step: `forward`, the gradient of `inputs`, that of `weights`. Each
algorithm runs alone for some tenths of a second, the host ahead, on a GPU that never rests, twice, the second time in
reverse order; PyTorch's own product (`torch`) at the beginning, in the middle and at the end. TFLOP/s of both rounds.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable

import torch

SECONDS = 0.25
PROPOSED = 12
KINDS = {"forward": (1, 0), "inputs": (0, 0), "weights": (0, 1)}
"""By kind: whether cuBLAS transposes its first and its second matrix."""


def timed(work: Callable[[int], None], guess: float) -> float:
    """Seconds of one call; `work` makes as many as it is told to."""
    times = max(2, int(SECONDS / guess))
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    work(max(1, times // 3))  # the clock follows the load within some tens of milliseconds
    start.record()
    work(times)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3 / times


def compared(library: ctypes.CDLL, kind: str, rows: int, inputs: int, outputs: int) -> dict[str, object]:
    x = torch.randn(rows, inputs, device="cuda").bfloat16()
    weight = torch.randn(outputs, inputs, device="cuda").bfloat16()
    gradient = torch.randn(rows, outputs, device="cuda").bfloat16()
    own: dict[str, tuple[Callable[[], torch.Tensor], torch.Tensor, torch.Tensor, tuple[int, int, int]]] = {
        "forward": (lambda: x @ weight.t(), weight, x, (outputs, rows, inputs)),
        "inputs": (lambda: gradient @ weight, weight, gradient, (inputs, rows, outputs)),
        "weights": (lambda: gradient.t() @ x, x, gradient, (inputs, outputs, rows)),
    }
    product, first, second, sizes = own[kind]
    result = product()
    flops = 2.0 * rows * inputs * outputs
    guess = flops / 600e12
    found = ctypes.c_void_p(library.find(*KINDS[kind], *sizes, PROPOSED))
    stream = torch.cuda.current_stream().cuda_stream
    out = torch.empty_like(result)

    def by(number: int) -> Callable[[int], None]:
        def work(times: int) -> None:
            pointers = [ctypes.c_void_p(t.data_ptr()) for t in (first, second, out)]
            status = library.multiply(found, number, *pointers, ctypes.c_void_p(stream), times)
            if status:
                raise RuntimeError(f"cuBLASLt status {status}")

        return work

    def torch_s(times: int) -> None:
        for _ in range(times):
            product()

    rates: dict[int, list[float]] = {}
    theirs = [flops / timed(torch_s, guess) / 1e12]
    shapes = {}
    for number in [*range(library.count(found)), *reversed(range(library.count(found)))]:
        out.zero_()
        rates.setdefault(number, []).append(flops / timed(by(number), guess) / 1e12)
        error = float((out.float() - result.float()).norm() / result.float().norm())
        if error > 0.01:
            raise RuntimeError(f"algorithm {number} is wrong: {error}")
        if number == library.count(found) - 1 and len(rates[number]) == 1:
            theirs.append(flops / timed(torch_s, guess) / 1e12)
        described = (ctypes.c_int * 3)()
        library.describe(found, number, described)
        shapes[number] = list(described)
    theirs.append(flops / timed(torch_s, guess) / 1e12)
    best = max(rates, key=lambda number: sum(rates[number]))
    return {
        "product": f"{rows}x{inputs}x{outputs}", "kind": kind, "torch": [round(r) for r in theirs],
        "best": [round(r) for r in rates[best]], "best_is": best,
        "ratio": (sum(rates[best]) / 2) / (sum(theirs) / len(theirs)),
        "all": {number: [round(r, 1) for r in each] for number, each in rates.items()}, "tile_stages_cluster": shapes,
    }  # fmt: skip


def main(path: str, target: str, products: list[str]) -> None:
    torch.zeros(1, device="cuda") @ torch.zeros(1, device="cuda")  # loads PyTorch's cuBLAS, which the library then uses
    library = ctypes.CDLL(path)
    library.find.restype = ctypes.c_void_p
    library.find.argtypes = [ctypes.c_int] * 2 + [ctypes.c_int64] * 3 + [ctypes.c_int]
    for product in products:
        rows, inputs, outputs = map(int, product.split("x"))
        for kind in KINDS:
            started = time.time()
            row = compared(library, kind, rows, inputs, outputs)
            print(
                f"{time.time() - started:.0f} s",
                json.dumps({k: v for k, v in row.items() if k != "tile_stages_cluster"}),
                flush=True,
            )
            with open(target, "a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])

"""`python -m bench.attention.worker REQUEST.json ANSWER.jsonl`: one kernel on every shape, one line per shape."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench.attention.kernels import KERNELS, Attend, UnsupportedError
from bench.attention.shapes import Shape
from bench.measure.clock import DTYPES, Clock, matmul_peak
from bench.pickles import one_line

PRODUCT, PRODUCTS = 8192, 3
CHECKED = 256
"""Positions of a document, at most, on which outputs and gradients are held against attention in fp64."""


def states(shape: Shape, device: torch.device, dtype: torch.dtype) -> list[torch.Tensor]:
    """Query, key, value, and the gradient of the output, from one seed."""
    generator = torch.Generator(device).manual_seed(0)
    heads = shape.heads
    sizes = [(1, shape.positions, n, heads.size) for n in (heads.heads, heads.key_heads, heads.key_heads, heads.heads)]
    return [torch.randn(size, generator=generator, device=device).to(dtype) for size in sizes]


def results_of(attend: Attend, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Output and gradients."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs[:3]]
    output = attend(*leaves)
    output.backward(inputs[3])
    return [output.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def error(kernel: str, shape: Shape, device: torch.device, dtype: torch.dtype) -> float:
    """The largest ‖found − exact‖ / ‖exact‖ of output and gradients, on documents that are short enough for fp64."""
    small = Shape(min(shape.documents, 3), min(shape.length, CHECKED), shape.heads)
    inputs = states(small, device, dtype)
    found = results_of(KERNELS[kernel](small, device), inputs)
    exact = results_of(KERNELS["eager"](small, device), [tensor.double() for tensor in inputs])
    pairs = zip(found, exact, strict=True)
    return max(float((mine.double() - right).norm() / right.norm()) for mine, right in pairs)


def _ahead(device: torch.device, dtype: torch.dtype) -> Callable[[], None]:
    """A few milliseconds of products for a GPU. They let the host launch a step before its clock starts, as it does in
    a model, where it runs ahead: some kernels take it longer than they take the GPU."""
    if device.type != "cuda":
        return lambda: None
    square = torch.randn(PRODUCT, PRODUCT, device=device).to(dtype)

    def work() -> None:
        for _ in range(PRODUCTS):
            square @ square

    return work


def measure(kernel: str, shape: Shape, device: torch.device, dtype: torch.dtype, request: dict[str, Any]) -> Any:
    """Seconds of each step's forward and backward pass, and the error."""
    wrong = error(kernel, shape, device, dtype)
    attend = KERNELS[kernel](shape, device)
    query, key, value, grad = states(shape, device, dtype)
    leaves = [tensor.requires_grad_() for tensor in (query, key, value)]
    clock, times, ahead = Clock(device), [], _ahead(device, dtype)
    for _ in range(request["warmup"] + request["steps"]):
        ahead()
        with clock.phase("forward"):
            output = attend(*leaves)
        with clock.phase("backward"):
            output.backward(grad)
        for leaf in leaves:
            leaf.grad = None
        times.append(clock.take())
    return {"error": wrong, "warmups": times[: request["warmup"]], "times": times[request["warmup"] :]}


def row(shape: Shape, request: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """The answer for one shape, with the status that it ends with."""
    head = {"kernel": request["kernel"], "shape": shape.as_dict()}
    try:
        return {**head, "status": "ok", **measure(request["kernel"], shape, device, DTYPES[request["dtype"]], request)}
    except torch.cuda.OutOfMemoryError as problem:
        return {**head, "status": "oom", "message": one_line(problem)}
    except (UnsupportedError, RuntimeError, ImportError) as problem:
        refused = isinstance(problem, UnsupportedError) or "No available kernel" in str(problem)
        return {**head, "status": "unsupported" if refused else "crash", "message": one_line(problem)}
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()


def main(request_file: Path, answer: Path) -> int:
    request = json.loads(request_file.read_text(encoding="utf-8"))
    device = torch.device(request["device"])
    peak = matmul_peak(device, DTYPES[request["dtype"]])
    with answer.open("w", encoding="utf-8") as file:
        for values in request["shapes"]:
            found = row(Shape.of(values), request, device)
            file.write(json.dumps({**found, "matmul_flops": peak}) + "\n")
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))

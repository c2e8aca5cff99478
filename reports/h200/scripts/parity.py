"""Twenty steps of training with every backend and size, the same samples in each step: the losses must agree.

    torchrun --standalone --nproc-per-node=4 parity.py OUT.jsonl CELL [CELL ...]

A cell is `BACKEND[:tpN][:ringN][:blocks][:full-head][:compiled-head][:sp][:async][:cudnn][:fa4][:padded][:exact]
[:copied][:unrounded][:broken]`, BACKEND one of ddp, fsdp2, zero0 to zero3. `sp` and `async` are sequence parallelism
and its overlap, `cudnn` and `fa4` the attention's kernel, `exact` eager attention in fp32. `ddp:exact:copied` computes
in fp32 too, with bf16 copies of weights that begin as bf16 ones: the weights of 16-bit training. `unrounded` gives a
16-bit strategy the fp32 weights that `ddp:exact` begins with, where all others begin with them rounded to bf16.
`broken` reduces FSDP2's gradients over data-parallel ranks alone.
Write the reference first; where OUT.jsonl has rows, its first is the reference.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from bench.configuration import Configuration, parse
from bench.measure.model import attention_context, build_actor, network_of
from bench.measure.training import no_phase
from bench.measure.worker import Run
from bench.parallel import ring_attention
from bench.process.heartbeat import Heartbeat
from bench.strategies import processes
from bench.strategies.master_weights import MasterWeights

STEPS = 20
COMMON = {
    "model": "llama-3.1-8b", "num_layers": 2, "attn": "flash_attention_2", "train_batch_size": 8,
    "micro_batch_size": 2, "seq_len": 2048, "lr": 1e-4, "head": "chunked",
}  # fmt: skip


PARTS: dict[str, dict[str, Any]] = {
    "full-head": {"head": "full"}, "sp": {"sequence_parallel": True, "tp_plan": "optimized"},
    "async": {"async_tp": True}, "cudnn": {"attn": "sdpa_cudnn"}, "padded": {"packing": False},
    "fa4": {"attn": "flash_attention_4"}, "compiled-head": {"head": "compiled"},
    "exact": {"attn": "eager", "dtype": "fp32"},
}  # fmt: skip


def configure(cell: str, world: int) -> Configuration:
    backend, *rest = cell.split(":")
    values: dict[str, Any] = {**COMMON, "num_gpus": world, "backend": backend}
    if backend.startswith("zero"):
        values |= {"backend": "deepspeed", "zero_stage": int(backend[-1])}
    for part in rest:
        if part == "blocks":
            values["compile"] = "blocks"
        values |= PARTS.get(part, {})
        for name in ("tp", "ring"):
            if part.startswith(name):
                values[name] = int(part.removeprefix(name))
    return parse(values)


@torch.no_grad()
def round_(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        parameter.copy_(parameter.bfloat16())


@torch.no_grad()
def unround(run: Run) -> None:
    """Write the weights of the seed in fp32 into what each strategy's optimizer steps."""
    c, strategy = run.configuration, run.strategy
    whole = build_actor(
        model=c.model, num_layers=c.num_layers, attn="sdpa", device=strategy.device, head=c.head, seed=c.random_seed
    )  # fmt: skip
    values = dict(network_of(whole).named_parameters())
    for name, parameter in list(network_of(run.actor).named_parameters()):
        strategy._write_parameter(run.actor, name, parameter, values[name].detach())


def train(cell: str, world: int, heartbeat: Heartbeat) -> dict[str, Any]:
    configuration = configure(cell, world)
    run = Run(configuration, heartbeat)
    if "broken" in cell:
        whole = run.strategy.setup_distributed

        def without_ring(*args: Any) -> None:
            whole(*args)
            run.strategy.shard_mesh = run.strategy.mesh["dp"]

        run.strategy.setup_distributed = without_ring
    run.build()
    if "unrounded" in cell:
        unround(run)
    copied = "copied" in cell
    if copied:
        round_(run.actor)
        run.strategy._masters[run.actor] = MasterWeights(run.actor, run.optimizer, torch.float32)
    with attention_context(configuration.attn):
        for _ in range(STEPS):
            if copied:
                round_(run.actor)
            run.step(no_phase)
    return {"losses": run.losses, "grad_norms": run.grad_norms, "attention": run.attention()}


def main(target: Path, cells: list[str]) -> None:
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    heartbeat = Heartbeat(Path(tempfile.mkdtemp()), rank)
    reference: list[float] = json.loads(target.read_text().splitlines()[0])["losses"] if target.exists() else []
    for cell in cells:
        started = time.time()
        row: dict[str, Any] = {"cell": cell, "world": world}
        try:
            row |= train(cell, world, heartbeat)
            reference = reference or row["losses"]
            pairs = list(zip(row["losses"], reference, strict=True))
            row["worst"] = max(abs(a - b) / b for a, b in pairs)
            row["fall"] = 1 - row["losses"][-1] / row["losses"][0]
        except Exception as error:
            row |= {"error": f"{type(error).__name__}: {error}"[:600], "traceback": traceback.format_exc()[-3000:]}
        if rank == 0:
            with target.open("a") as file:
                file.write(json.dumps(row) + "\n")
            shown = {k: row.get(k) for k in ("worst", "fall", "error")}
            print(f"{time.time() - started:6.1f}s {cell:20} {shown} {row.get('losses', [0])[-1]}", flush=True)
        ring_attention.set_ring(None)
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
    processes.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
    sys.stdout.flush()
    os._exit(0)

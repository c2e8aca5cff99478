"""Each backend against a plain loop in the same process, one GPU: steps of the two alternate.

    python floors.py OUT.json --num-layers 4 --seq-len 8192 --backends ddp,fsdp2,zero0,zero1,zero2,zero3

Every timed step, the plain loop's and the backend's, follows the same: a plain step and a while of memory traffic.
`zero2@NAME=VALUE+NAME=VALUE` sets options of DeepSpeed's `zero_optimization`; `fsdp2@groups=0` leaves embedding and
head in one group, `fsdp2@in_place=0` copies at the reduction, `fsdp2@reduce=bf16` reduces in 16 bits,
`fsdp2@gather=0` casts parameters in the forward pass, `fsdp2@cast=0` (before any other) leaves FSDP2 its own cast of
gradients;
`zero2@alone=0` drops the options for one rank.

The plain loop is the 16-bit model, forward and backward, no wrapper, no optimizer.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import traceback
from contextlib import suppress
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from bench.configuration import Configuration, model_facts, parse
from bench.inputs.source import InputSource, to_inputs
from bench.losses import sft
from bench.measure.clock import Clock, graph_report, matmul_peak
from bench.measure.model import attention_context, build_actor
from bench.measure.profiler import profile_step
from bench.measure.training import forward_loss, train_step
from bench.predict.flops import per_token
from bench.strategies import fsdp2_groups, get_strategy
from bench.strategies.compilation import apply_compile
from bench.strategies.deepspeed import DeepspeedStrategy
from bench.strategies.fsdp2 import FSDP2Strategy

BF16 = torch.bfloat16
LEAD_IN_SECONDS = 0.03


class Plain:
    def __init__(self, c: Configuration, device: torch.device) -> None:
        self.actor = build_actor(
            model=c.model, num_layers=c.num_layers, attn=c.attn, device=device, dtype=BF16, head=c.head
        ).to(BF16)
        apply_compile(self.actor, c.compile)
        self.clock = Clock(device)

    def step(self, inputs: Any) -> dict[str, float]:
        with self.clock.phase("forward"):
            loss = forward_loss(self.actor, inputs, sft, False)
        with self.clock.phase("backward"):
            (loss / inputs.loss_mask.sum()).backward()
        for parameter in self.actor.parameters():
            parameter.grad = None
        float(loss)
        return self.clock.take()

    def lead_in(self, inputs: Any) -> None:
        """What goes before every timed step: a plain step, then memory traffic as of an optimizer.

        A GPU runs matrix products at a higher clock after memory-bound work, so a step's time depends on what went
        before it, by up to 4%: both sides must follow the same.
        """
        self.step(inputs)
        low = [p.detach() for p in self.actor.parameters()]
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        while True:
            torch._foreach_mul_(low, 1.0)
            end.record()
            end.synchronize()
            if start.elapsed_time(end) >= 1e3 * LEAD_IN_SECONDS:
                return


class Backend:
    def __init__(self, c: Configuration) -> None:
        self.strategy = get_strategy(c)
        self.strategy.setup_distributed()
        self.device = self.strategy.device
        actor = build_actor(
            model=c.model, num_layers=c.num_layers, attn=c.attn, device=self.device, dtype=BF16, head=c.head
        )
        optimizer = self.strategy.create_optimizer(actor)
        self.actor, self.optimizer, _ = self.strategy.prepare((actor, optimizer, None))
        self.clock = Clock(self.device)

    def step(self, inputs: Any) -> dict[str, float]:
        result = train_step(self.strategy, self.actor, self.optimizer, None, [inputs], sft, phase=self.clock.phase)
        float(result.loss)
        return self.clock.take()


def core(steps: list[dict[str, float]]) -> float:
    return statistics.median(step["forward"] + step["backward"] for step in steps)


def casts(plain: Plain, device: torch.device) -> dict[str, float]:
    """Seconds to cast all parameters from fp32 to bf16, and all gradients back."""
    low = [p.detach() for p in plain.actor.parameters()]
    high = [p.float() for p in low]
    clock = Clock(device)
    times = []
    for _ in range(5):
        with clock.phase("parameters"):
            torch._foreach_copy_(low, high)
        with clock.phase("gradients"):
            torch._foreach_copy_(high, low)
        times.append(clock.take())
    return {k: statistics.median(t[k] for t in times) for k in times[0]}


def configure(options: argparse.Namespace, name: str, changes: dict[str, str]) -> Configuration:
    zero = {"backend": "deepspeed", "zero_stage": int(name[-1])} if name.startswith("zero") else {"backend": name}
    return parse({
        "model": "llama-3.1-8b", "num_layers": options.num_layers, "seq_len": options.seq_len, "full_length": True,
        "micro_batch_size": 1, "attn": options.attn, "compile": options.compile, "head": options.head,
        "reshard_after_forward": False, "reduce_dtype": changes.get("reduce", "fp32"), **zero,
    })  # fmt: skip


def entry(c: Configuration, steps: list[dict[str, float]], peak: float, allocated: int) -> dict[str, Any]:
    seconds = core(steps)
    flops = per_token(model_facts(c.model, c.num_layers), c.seq_len).model * c.seq_len
    return {
        "seconds": seconds, "forward": statistics.median(s["forward"] for s in steps),
        "backward": statistics.median(s["backward"] for s in steps),
        "optimizer": statistics.median(s.get("optimizer", 0.0) for s in steps),
        "tokens_per_second": c.seq_len / seconds, "tflops": flops / seconds / 1e12,
        "peak_share": flops / seconds / peak, "peak_gb": allocated / 1e9,
    }  # fmt: skip


ENGINE_CONFIG, CALLS_HEAD_ONCE, IN_PLACE = (
    DeepspeedStrategy._engine_config, fsdp2_groups._calls_head_once, fsdp2_groups._reduce_in_place,
)  # fmt: skip


ALONE, KEEPS_GATHERED, CAST_AT_ONCE = (
    DeepspeedStrategy._alone, FSDP2Strategy._keeps_gathered, fsdp2_groups.cast_at_once,
)  # fmt: skip


def apply(changes: dict[str, str]) -> None:
    """Change the strategies for the next backend; without changes they are what they are."""

    def engine_config(self: DeepspeedStrategy) -> dict[str, Any]:
        found = ENGINE_CONFIG(self)
        for name, value in changes.items():
            if name == "alone":
                continue
            found["zero_optimization"][name] = int(value) if int(value) > 1 else bool(int(value))
        return found

    DeepspeedStrategy._alone = ALONE if changes.get("alone") != "0" else (lambda self: {})
    FSDP2Strategy._keeps_gathered = KEEPS_GATHERED if changes.get("gather") != "0" else (lambda self: False)
    fsdp2_groups.cast_at_once = CAST_AT_ONCE if changes.get("cast") != "0" else (lambda device_type: None)
    DeepspeedStrategy._engine_config = engine_config if "zero" in changes.pop("_kind", "") else ENGINE_CONFIG
    fsdp2_groups._calls_head_once = (lambda model: False) if changes.get("groups") == "0" else CALLS_HEAD_ONCE
    fsdp2_groups._reduce_in_place = (lambda model: None) if changes.get("in_place") == "0" else IN_PLACE


def kernels(step: Any) -> dict[str, float]:
    """Milliseconds of device time by operation in one step, the largest first."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        step()
        torch.cuda.synchronize()
    times = {event.key[:90]: event.self_device_time_total / 1e3 for event in recorded.key_averages()}
    return dict(sorted(((k, v) for k, v in times.items() if v > 0.05), key=lambda pair: -pair[1])[:60])


def against(plain: Plain, c: Configuration, inputs: Any, peak: float, steps: int) -> dict[str, Any]:
    backend = Backend(c)
    for _ in range(4):
        plain.step(inputs), backend.step(inputs)
    pairs = []
    for _ in range(steps):
        plain.lead_in(inputs)
        first = plain.step(inputs)
        plain.lead_in(inputs)
        pairs.append((first, backend.step(inputs)))
    torch.cuda.reset_peak_memory_stats()
    backend.step(inputs)
    theirs = entry(c, [b for _, b in pairs], peak, torch.cuda.max_memory_allocated())
    ours = core([a for a, _ in pairs])
    return {
        **theirs, "plain_seconds": ours, "share_of_plain": ours / theirs["seconds"],
        "cast_seconds": profile_step(lambda: backend.step(inputs), backend.device).cast_seconds,
        "graphs": graph_report(), "kernels": kernels(lambda: backend.step(inputs)),
    }  # fmt: skip


def release() -> None:
    """Free the last backend: DeepSpeed's hooks hold each other, and with them its memory."""
    for engine in [found for found in gc.get_objects() if type(found).__name__ == "DeepSpeedEngine"]:
        with suppress(Exception):
            engine.destroy()
    gc.collect()
    torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--backends", default="")
    parser.add_argument("--num-layers", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=8192)
    parser.add_argument("--attn", default="sdpa")
    parser.add_argument("--compile", default="blocks")
    parser.add_argument("--head", default="compiled")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1024
    device = torch.device("cuda", 0)
    peak = matmul_peak(device, BF16)
    c = configure(options, "ddp", {})
    batch = next(InputSource(c, 128256, 0).micro_batches(1))[0]
    inputs = to_inputs(batch, c, use_actions=False, ring_rank=0, ring_size=1).to(device)
    found: dict[str, Any] = {"options": vars(options), "matmul_flops": peak}
    with attention_context(options.attn):
        plain = Plain(c, device)
        for _ in range(5):
            plain.step(inputs)
        torch.cuda.reset_peak_memory_stats()
        steps = [plain.step(inputs) for _ in range(options.steps)]
        found["plain"] = entry(c, steps, peak, torch.cuda.max_memory_allocated())
        print("plain", json.dumps(found["plain"]), flush=True)
        if options.backends:
            found["casts"] = casts(plain, device)
            found["plain"]["kernels"] = kernels(lambda: plain.step(inputs))
        for name in filter(None, options.backends.split(",")):
            try:
                short, _, text = name.partition("@")
                changes = dict(part.split("=") for part in text.split("+") if part)
                c = configure(options, short, changes)
                apply({"_kind": short, **changes})
                found[name] = against(plain, c, inputs, peak, options.steps)
            except Exception as error:
                found[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
                traceback.print_exc()
            print(name, json.dumps({k: v for k, v in found[name].items() if k != "kernels"}), flush=True)
            release()
            with open(options.out, "w") as file:
                json.dump(found, file, indent=1)
    with open(options.out, "w") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)

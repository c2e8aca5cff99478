"""Each backend against a plain loop in the same process, one GPU: steps of the two alternate.

    python floors.py OUT.json --num-layers 4 --seq-len 8192 --backends ddp,fsdp2,zero0,zero1,zero2,zero3

Every timed step, the plain loop's and the backend's, follows the same: a whole step of the backend, a plain step and a
while of memory traffic.
`zero2@NAME=VALUE+NAME=VALUE` sets options of DeepSpeed's `zero_optimization`; `fsdp2@groups=0` leaves embedding and
head in one group, `fsdp2@in_place=0` copies at the reduction, `fsdp2@reduce=bf16` reduces in 16 bits,
`fsdp2@gather=0` casts parameters in the forward pass, `fsdp2@cast=0` (before any other) leaves FSDP2 its own cast of
gradients, `fsdp2@beside=0` leaves that cast on the stream that computes;
`zero2@alone=0` drops the options for one rank, `zero2@passes=0` takes DeepSpeed's passes over gradients back that the
strategy leaves out; `zero3@events=N` lets N reductions of stage 3 be under way where DeepSpeed waits for all but two.

The host goes on while the GPU computes, as in training and in `bench run`; `each` holds the milliseconds of all these
steps, the plain loop's and the backend's. `waiting` is of a third as many steps before and after which it waits: they
also hold what the host needs until its first kernel, and the GPU, which pauses, has power to spare.

The plain loop is the 16-bit model, forward and backward, no wrapper, no optimizer.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import sys
import traceback
from typing import Any

import torch
from many import destroy_engines
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
    def __init__(self, c: Configuration, inputs: Any, device: torch.device) -> None:
        self.actor = build_actor(
            model=c.model, num_layers=c.num_layers, attn=c.attn, device=device, dtype=BF16, head=c.head
        ).to(BF16)
        apply_compile(self.actor, c.compile)
        self.device = device
        self.inputs = inputs.to(device)
        self.passes = 0

    def step(self) -> Clock:
        clock = Clock(self.device)
        with clock.phase("forward"):
            loss = forward_loss(self.actor, self.inputs, sft, False)
        with clock.phase("backward"):
            (loss / self.inputs.loss_mask.sum()).backward()
        for parameter in self.actor.parameters():
            parameter.grad = None
        return clock

    def lead_in(self, waits: bool) -> None:
        """What goes before every timed step: a plain step, then memory traffic as of an optimizer.

        A GPU runs matrix products at a higher clock after memory-bound work, so a step's time depends on what went
        before it, by up to 4%: both sides must follow the same.
        """
        self.step()
        low = [p.detach() for p in self.actor.parameters()]
        self.passes = self.passes or _passes(low)
        for _ in range(self.passes):
            torch._foreach_mul_(low, 1.0)
        if waits:
            torch.cuda.synchronize()


def _passes(tensors: list[torch.Tensor]) -> int:
    """How often they are to be read and written for the traffic to last as long as it should."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch._foreach_mul_(tensors, 1.0)
    start.record()
    torch._foreach_mul_(tensors, 1.0)
    end.record()
    end.synchronize()
    return math.ceil(1e3 * LEAD_IN_SECONDS / start.elapsed_time(end))


class Backend:
    """Its inputs lie on the host, as in training: the number of their tokens is read there, without waiting."""

    def __init__(self, c: Configuration, inputs: Any) -> None:
        self.inputs = inputs
        self.strategy = get_strategy(c)
        self.strategy.setup_distributed()
        self.device = self.strategy.device
        actor = build_actor(
            model=c.model, num_layers=c.num_layers, attn=c.attn, device=self.device, dtype=BF16, head=c.head
        )
        optimizer = self.strategy.create_optimizer(actor)
        self.actor, self.optimizer, _ = self.strategy.prepare((actor, optimizer, None))

    def step(self) -> Clock:
        clock = Clock(self.device)
        train_step(self.strategy, self.actor, self.optimizer, None, [self.inputs], sft, phase=clock.phase)
        return clock

    def allow_reductions(self, under_way: int) -> None:
        """How many of ZeRO-3's reductions the host may be ahead of the GPU."""
        self.actor.optimizer.max_param_reduce_events = under_way


def in_turns(plain: Plain, backend: Backend, steps: int, waits: bool) -> list[list[dict[str, float]]]:
    """The times of the plain loop's steps and of the backend's, one after the other.

    Before each lies a whole step of the backend: its optimizer is a rest for the GPU, of which the step after it has
    more than the one after that.
    """
    clocks: list[list[Clock]] = [[], []]
    for _ in range(steps):
        for side, found in zip((plain, backend), clocks, strict=True):
            backend.step()
            plain.lead_in(waits)
            found.append(side.step())
            if waits:
                torch.cuda.synchronize()
    return [[clock.take() for clock in found] for found in clocks]


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


WAITING, LEAVE_OUT = fsdp2_groups._waiting, DeepspeedStrategy._leave_out_passes


def apply(changes: dict[str, str]) -> None:
    """Change the strategies for the next backend; without changes they are what they are."""

    def engine_config(self: DeepspeedStrategy) -> dict[str, Any]:
        found = ENGINE_CONFIG(self)
        for name, value in changes.items():
            if name in ("alone", "events", "passes"):
                continue
            found["zero_optimization"][name] = int(value) if int(value) > 1 else bool(int(value))
        return found

    DeepspeedStrategy._leave_out_passes = LEAVE_OUT if changes.get("passes") != "0" else (lambda self, engine: None)
    DeepspeedStrategy._alone = ALONE if changes.get("alone") != "0" else (lambda self: {})
    FSDP2Strategy._keeps_gathered = KEEPS_GATHERED if changes.get("gather") != "0" else (lambda self: False)
    fsdp2_groups._waiting = WAITING if changes.get("beside") != "0" else (lambda *_: torch.cuda.current_stream())
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


def waiting(plain: list[dict[str, float]], backend: list[dict[str, float]]) -> dict[str, float]:
    return {
        "seconds": core(backend), "plain_seconds": core(plain), "share_of_plain": core(plain) / core(backend),
        "forward": statistics.median(s["forward"] for s in backend),
        "plain_forward": statistics.median(s["forward"] for s in plain),
    }  # fmt: skip


def against(
    plain: Plain, c: Configuration, inputs: Any, peak: float, options: argparse.Namespace, under_way: int | None
) -> dict[str, Any]:
    backend = Backend(c, inputs)
    if under_way is not None:
        backend.allow_reductions(under_way)
    for _ in range(4):
        plain.step(), backend.step()
    waited = in_turns(plain, backend, max(4, options.steps // 3), waits=True)
    plain_times, times = in_turns(plain, backend, options.steps, waits=False)
    torch.cuda.reset_peak_memory_stats()
    backend.step()
    theirs, ours = entry(c, times, peak, torch.cuda.max_memory_allocated()), core(plain_times)
    return {
        **theirs, "plain_seconds": ours, "share_of_plain": ours / theirs["seconds"],
        "plain_forward": statistics.median(s["forward"] for s in plain_times), "waiting": waiting(*waited),
        "each": [[round(1e3 * core([step]), 3) for step in steps] for steps in (plain_times, times)],
        "cast_seconds": profile_step(backend.step, backend.device).cast_seconds,
        "graphs": graph_report(), "kernels": kernels(backend.step),
    }  # fmt: skip


def release() -> None:
    """Free the last backend."""
    destroy_engines()
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
    inputs = to_inputs(batch, c, use_actions=False, ring_rank=0, ring_size=1)
    found: dict[str, Any] = {"options": vars(options), "gpu": torch.cuda.get_device_name(), "matmul_flops": peak}
    with attention_context(options.attn):
        plain = Plain(c, inputs, device)
        for _ in range(5):
            plain.step()
        torch.cuda.reset_peak_memory_stats()
        clocks = [plain.step() for _ in range(options.steps)]
        found["plain"] = entry(c, [clock.take() for clock in clocks], peak, torch.cuda.max_memory_allocated())
        print("plain", json.dumps(found["plain"]), flush=True)
        if options.backends:
            found["casts"] = casts(plain, device)
            found["plain"]["kernels"] = kernels(plain.step)
        for name in filter(None, options.backends.split(",")):
            try:
                short, _, text = name.partition("@")
                changes = dict(part.split("=") for part in text.split("+") if part)
                c = configure(options, short, changes)
                apply({"_kind": short, **changes})
                under_way = int(changes["events"]) if "events" in changes else None
                found[name] = against(plain, c, inputs, peak, options, under_way)
            except Exception as error:
                found[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
                traceback.print_exc()
            print(name, json.dumps({k: v for k, v in found[name].items() if k not in ("kernels", "each")}), flush=True)
            release()
            with open(options.out, "w") as file:
                json.dump(found, file, indent=1)
    with open(options.out, "w") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)

"""What one rank runs: build, warm up, measure, report. It does not know which launcher started it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import losses
from bench.attention.choice import resolve
from bench.configuration import Configuration, compiles, has_weights, stored
from bench.inputs.batch import Batch
from bench.inputs.packing import ModelInputs
from bench.inputs.source import InputSource, to_inputs
from bench.measure.clock import (
    DTYPES,
    LEAST_WARMUP,
    MAX_WARMUP_FACTOR,
    Clock,
    Memory,
    graph_report,
    is_steady,
    matmul_peak,
)
from bench.measure.model import attention_context, build_actor, count_parameters, network_of
from bench.measure.profiler import profile_step
from bench.measure.training import StepResult, no_phase, train_step
from bench.parallel import ring_attention
from bench.process.heartbeat import Heartbeat, reported, write_run
from bench.process.process_exit import end
from bench.strategies import Strategy, get_strategy, processes
from bench.strategies.compilation import set_autotuning
from bench.sweep.attempts import TRACE, TRACES


class Run:
    """One process's measurement of a configuration."""

    def __init__(self, configuration: Configuration, heartbeat: Heartbeat) -> None:
        self.configuration = configuration = resolve(configuration)
        self.heartbeat = heartbeat
        self.loss = losses.find_loss(configuration.loss)
        self.strategy: Strategy = get_strategy(configuration)
        self._results: list[StepResult] = []
        self.counts: list[dict[str, int]] = []
        self.steady = False
        """Whether the last steps of the warm-up were alike."""
        self.longest = 0
        """Positions of the longest micro-batch of the latest step."""

    def build(self) -> None:
        """Join the group and make model, optimizer and inputs."""
        configuration, strategy = self.configuration, self.strategy
        strategy.setup_distributed()
        set_autotuning(configuration.autotune)
        self.heartbeat.beat("load")
        actor = build_actor(
            model=configuration.model, num_layers=configuration.num_layers, attn=configuration.attn,
            device=strategy.device, dtype=DTYPES[configuration.dtype], head=configuration.head,  # type: ignore[arg-type]
            seed=configuration.random_seed, gradient_checkpointing=configuration.gradient_checkpointing,
            trust_remote_code=configuration.trust_remote_code, ring=configuration.ring,
        )  # fmt: skip
        self.parameters = count_parameters(actor)
        optimizer = strategy.create_optimizer(
            actor, configuration.optimizer, lr=configuration.lr, weight_decay=configuration.weight_decay
        )
        vocabulary = int(actor.config.vocab_size)
        self.actor, self.optimizer, _ = strategy.prepare((actor, optimizer, None))
        self.source = InputSource(configuration, vocabulary, strategy.dp_rank)
        self.steps = self.source.micro_batches(strategy.accumulated_gradient)

    def attention(self) -> str:
        """What computed the attention of the steps so far: transformers' name, or the kernels under a ring."""
        kernels = ring_attention.kernels_used()
        return f"ring: {', '.join(kernels)}" if kernels else str(network_of(self.actor).config._attn_implementation)

    def begin(self) -> None:
        """Enter the phase of the first step: where something is compiled, that has a deadline of its own."""
        self.heartbeat.beat("compile" if compiles(self.configuration) else "warmup")

    def next_inputs(self) -> list[ModelInputs]:
        """What this rank's model takes in the next step, one entry per micro-batch."""
        return [self.inputs_of(batch) for batch in next(self.steps)]

    def inputs_of(self, batch: Batch) -> ModelInputs:
        """What this rank's model takes of a batch."""
        rank, size = self.strategy.ring_attn_rank, self.strategy.ring_size
        return to_inputs(batch, self.configuration, use_actions=self.loss.use_actions, ring_rank=rank, ring_size=size)

    def step(self, phase: Any) -> StepResult:
        """One optimizer step on the next inputs, which are made before its clock starts."""
        strategy = self.strategy
        inputs = self.next_inputs()
        self.longest = max(i.positions for i in inputs)
        self.counts.append(
            {
                "real": sum(i.real_tokens for i in inputs), "positions": sum(i.positions for i in inputs),
                "squares": sum(i.sum_squared_lengths for i in inputs),
            }
        )  # fmt: skip
        result = train_step(
            strategy, self.actor, self.optimizer, None, inputs, self.loss.function, phase=phase,
            backward=self.configuration.backward,
        )  # fmt: skip
        self._results.append(result)
        return result

    @property
    def losses(self) -> list[float]:
        """Of all steps so far. Reading them waits for the device, which `step` does not."""
        return [float(result.loss) for result in self._results]

    @property
    def grad_norms(self) -> list[float]:
        """Of the steps that had one; reading them waits as well."""
        return [float(result.grad_norm) for result in self._results if result.grad_norm is not None]

    def warm_up(self) -> list[dict[str, float]]:
        """At least `warmup` steps, and on until three in a row are alike (at most four times as many)."""
        clock = Clock(self.strategy.device)
        times: list[dict[str, float]] = []
        least = max(self.configuration.warmup, LEAST_WARMUP.get(self.configuration.compile, 0))
        self.begin()
        while len(times) < least * MAX_WARMUP_FACTOR:
            self.step(clock.phase)
            times.append(clock.take())
            self.heartbeat.beat("warmup", len(times), least)
            if len(times) >= least:
                self.steady = self._agree(is_steady([sum(t.values()) for t in times]))
            if self.steady:
                break
        return times

    def _agree(self, steady: bool) -> bool:
        """Ranks go on together: all are steady or none is."""
        return self.strategy.all_reduce(0.0 if steady else 1.0, "max") == 0.0

    def measure(self) -> list[dict[str, float]]:
        """The host goes on to the next step while a GPU computes, as in training: a GPU that it let run dry would wait
        for the first launches of each step."""
        clocks = []
        for number in range(self.configuration.steps):
            clocks.append(Clock(self.strategy.device))
            self.step(clocks[-1].phase)
            self.heartbeat.beat("measure", number + 1, self.configuration.steps)
        return [clock.take() for clock in clocks]

    def everywhere(self, memory: Memory) -> dict[str, dict[str, int]]:
        """Peak bytes by kind and phase, the maximum over ranks."""
        found = {kind: self.strategy.all_reduce(by_phase, "max") for kind, by_phase in memory.peaks.items()}
        return {kind: {phase: int(value) for phase, value in by_phase.items()} for kind, by_phase in found.items()}

    def report(self, times: Sequence[dict[str, float]], memory: Memory, warm: int) -> dict[str, Any]:
        """What `execute` promises, of a run in which every step counts: `times` and `counts` of all its steps on this
        rank, of which the first `warm` stand for the warm-up, and the peaks of this rank."""
        strategy = self.strategy
        slowest = [strategy.all_reduce(step, "max") for step in times]
        counts = self.counts[warm : len(times)]
        totals = strategy.all_reduce({k: float(sum(c[k] for c in counts)) for k in counts[0]}, "sum")
        # Every rank of a ring and of a tensor-parallel group counts the same batch.
        shared = self.configuration.ring * self.configuration.tp
        return {
            "times": slowest[warm:], "warmups": slowest[:warm], "losses": self.losses[: len(times)],
            "grad_norms": self.grad_norms[: len(times)], "memory": self.everywhere(memory),
            "tokens": {name: value / shared for name, value in totals.items()}, "parameters": self.parameters,
            "matmul_flops": matmul_peak(strategy.device, DTYPES[self.configuration.dtype]),
            "effective": {
                "attention": self.attention(), "device": str(strategy.device), "graphs": graph_report(),
                "attention_kernels": [], "warmup_steps": warm,
                "weights": "checkpoint" if has_weights(self.configuration.model) else "drawn from the seed",
            },
        }  # fmt: skip


MakeRun = Callable[[Configuration, Heartbeat], Run]


def execute(
    configuration: Configuration, heartbeat: Heartbeat, make: MakeRun = Run, trace: Path | None = None
) -> dict[str, Any]:
    """The measurement of this process: values of every phase in seconds, as the slowest rank saw them. With `trace`,
    this rank's profiler trace is written there."""
    started = time.perf_counter()
    run = make(configuration, heartbeat)
    run.build()
    with attention_context(run.configuration.attn):
        return _measured(run, heartbeat, started, trace)


def _measured(run: Run, heartbeat: Heartbeat, started: float, trace: Path | None) -> dict[str, Any]:
    """What `execute` promises, of a run that is built."""
    built = time.perf_counter()
    warmups = run.warm_up()
    warm = time.perf_counter()
    worked = time.process_time()
    times = run.measure()
    measured, worked = time.perf_counter() - warm, time.process_time() - worked
    heartbeat.beat("report")
    memory = Memory(run.strategy.device)
    run.step(memory.phase)
    longest = run.strategy.all_reduce(float(run.longest), "max")
    found = run.report([*warmups, *times], memory, len(warmups))
    profiled = profile_step(lambda: run.step(no_phase), run.strategy.device, trace)
    found["effective"] |= {
        "attention_kernels": list(profiled.attention), "communication_share": profiled.communication,
        "cast_seconds": profiled.cast_seconds, "steady": run.steady,
    }  # fmt: skip
    # All threads of rank 0: on a CPU, less than the threads' share of `measure` means that others had the cores.
    seconds = {"build": built - started, "warmup": warm - built, "measure": measured, "measure_process": worked}
    return found | {"memory_positions": int(longest), "seconds": seconds}


def _trace(folder: Path, rank: int, number: int) -> Path | None:
    """Where this rank's trace goes: of the first process alone, since HTA takes one file per rank."""
    wanted = os.environ.get(TRACE) == "1" and number == 0
    return folder / TRACES / f"rank{rank}.json.gz" if wanted else None


def on_rank(folder: Path, number: int, measured: Callable[[Heartbeat], dict[str, Any]]) -> None:
    """Do what a worker does on this rank and, on rank 0, write what comes of it as `run.<number>.json`."""
    rank = int(os.environ.get("RANK", "0"))
    heartbeat = Heartbeat(folder, rank)
    with reported(heartbeat):
        result = measured(heartbeat)
        if rank == 0:
            write_run(folder, number, result)
        processes.leave()


def work(configuration: Configuration, folder: Path, number: int, make: MakeRun = Run) -> None:
    """Measure on this rank."""
    trace = _trace(folder, int(os.environ.get("RANK", "0")), number)
    on_rank(folder, number, lambda heartbeat: execute(configuration, heartbeat, make, trace))


def command(work: Callable[[Configuration, Path, int], None]) -> Callable[[Sequence[str]], int]:
    """The `main` of a worker, FOLDER NUMBER: the result directory, which holds configuration.json, and which of several
    processes this is."""

    def main(arguments: Sequence[str]) -> int:
        folder = Path(arguments[0])
        work(stored(folder), folder, int(arguments[1]))
        return 0

    return main


main = command(work)

if __name__ == "__main__":
    end(main(sys.argv[1:]))

"""Faults on purpose in real sweeps on GPUs: is every row of its class, is nothing left behind?

    python faults.py OUTDIR [--gpus N] [--share N] [--seconds S] [--only REGEX] [--cpu]

Drives `python -m bench` in several sweeps, side by side on pairs of GPUs, with the faults of `planted.py`. Leaves
OUTDIR/faults.json and OUTDIR/faults.md; exit status 1 where something is not as it must be.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.process import gpu_memory
from bench.process.heartbeat import SUPERVISOR
from bench.process.logs import LIMIT
from bench.results import environment

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SHORTEST = 64
"""Sequence length of a sweep's first row; the others follow one by one."""

DEADLINES = {"start": 90, "load": 12, "compile": 30, "warmup": 15, "measure": 8, "report": 15, "lost": 3}
SECONDS = {"hang": 29.0, "start": 60.0, "skipped": 0.0, "other": 18.0}
"""What a row takes, about: to decide whether another sweep fits into the time."""

NO_MEMORY = """#!/bin/sh
case "$*" in *memory.used*) exit 1 ;; esac
exec {program} "$@"
"""
"""`nvidia-smi` for sweeps that share GPUs: what neighbours hold is not what a sweep has left behind."""

LARGE = {
    "model_type": "llama", "vocab_size": 1024, "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 16, "max_position_embeddings": 1 << 19,
    "rms_norm_eps": 1e-5, "architectures": ["LlamaForCausalLM"],
}  # fmt: skip
TOO_LARGE = (1.4, 1.75)
"""Predicted bytes of GPUs' memory: too large to run, and not so large that `bench run` refuses it untried."""
PER_SQUARE = 774.0
"""Bytes that eight rows of the large model take with eager attention, per square of their positions."""


@dataclass(frozen=True)
class Case:
    """A fault of the last rank in a phase; no fault is a row that must be ok, after others that were not."""

    phase: str
    fault: str
    status: str
    words: str = ""

    def name(self) -> str:
        return f"{self.fault} in {self.phase}" if self.fault else "none"


@dataclass(frozen=True)
class Batch:
    """One call of `python -m bench`: its rows, in order. `lengths` are given where the configuration is the fault."""

    name: str
    cases: tuple[Case, ...]
    flags: tuple[str, ...] = ()
    ranks: int | None = None
    lengths: tuple[int, ...] = ()
    deadlines: tuple[tuple[str, int], ...] = ()

    @property
    def fills(self) -> bool:
        """Whether it takes the memory of its GPUs whole."""
        return any(case.status == "oom" for case in self.cases)

    def seq_lens(self) -> list[int]:
        return list(self.lengths or range(SHORTEST, SHORTEST + len(self.cases)))

    def seconds(self) -> float:
        kinds = ["start" if c.phase == "start" and c.status == "hang" else c.status for c in self.cases]
        return sum(SECONDS.get(kind, SECONDS["other"]) for kind in kinds)


OK = Case("", "", "ok")
RAISED = "RuntimeError: a fault that was planted"


def crash(phase: str, fault: str) -> Case:
    words = {"exception": RAISED, "killed": "killed by signal 9 (SIGKILL)", "exit_0": "ended before it had finished"}
    return Case(phase, fault, "crash", words[fault])


def hangs(phase: str, fault: str = "hang") -> Case:
    words = {"stopped": "its process is stopped", "endless_output": "in endless_output"}
    return Case(phase, fault, "hang", words.get(fault, f"in {phase}"))


def oom(phase: str) -> Case:
    return Case(phase, "out_of_memory", "oom", "memory")


def batches(most: int, ranks: int) -> list[Batch]:
    """In order of importance: what no longer fits into the time is left out. `most` GPUs, of which a sweep has
    `ranks`; where there are more, all of them have one more sweep at the end."""
    lengths = tuple(int(math.sqrt(share * environment.gpu_bytes() / PER_SQUARE)) // 64 * 64 for share in TOO_LARGE)
    too_large = (
        Case("warmup", "configuration too large", "oom", "memory"),
        Case("", "larger than one that ran out of memory", "skipped", "dominated by"),
    )
    large = ("--attn", "eager", "--no-packing", "--micro-batch-size", "8", "--model", "large.json", "--loss", "sft")
    found = [
        Batch("measure", (hangs("measure"), oom("measure"), crash("measure", "exit_0"), OK)),
        Batch("measure-fsdp2", (hangs("measure"), crash("measure", "exception"), OK), ("--backend", "fsdp2")),
        Batch("load", (hangs("load"), oom("load"), crash("load", "killed"))),
        Batch("report", (hangs("report"), oom("report"), crash("report", "killed"))),
        *[Batch("too-large", too_large, large, ranks=1, lengths=lengths, deadlines=(("warmup", 90),))]
        * bool(lengths[0]),
        Batch("warmup", (crash("warmup", "exception"), oom("warmup"), crash("warmup", "killed"), OK)),
        Batch("stopped", (hangs("measure", "stopped"), crash("measure", "killed"), Case("measure", "nan", "nan"))),
        Batch("ends", (crash("load", "exit_0"), crash("report", "exit_0"), crash("report", "exception"))),
        Batch("start", (crash("start", "exception"), crash("start", "killed"), crash("load", "exception"))),
        Batch("zero2", (hangs("warmup"), crash("warmup", "exit_0")), ("--backend", "deepspeed")),
        Batch("compile", (crash("compile", "exception"), hangs("compile")), ("--compile", "blocks")),
        Batch("output", (hangs("measure", "endless_output"), hangs("load", "stopped"))),
        Batch("start-hang", (hangs("start"),), deadlines=(("start", 45),)),
    ]
    if most > ranks:
        found.append(Batch("all-ranks", (hangs("measure"), OK), ("--backend", "fsdp2"), ranks=most))
    return [batch for batch in found if any(batch.lengths) or batch.name != "too-large"]  # memory of GPUs alone


@dataclass
class Outcome:
    """What came of one row: `wrong` says what is not as it must be."""

    sweep: str
    backend: str
    ranks: int
    phase: str
    fault: str
    expected: str
    status: str = ""
    message: str = ""
    hint: str = ""
    seconds: float = 0.0
    diagnosis: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass
class Swept:
    """What came of one sweep beyond its rows. Memory in MiB by GPU."""

    name: str
    gpus: str
    exit_status: int
    seconds: float
    processes_left: int
    memory_before: list[int]
    memory_after: list[int]
    notes: list[str]


class Bench:
    """Runs batches; `lane` names GPUs as CUDA_VISIBLE_DEVICES does. While `shared`, sweeps run side by side on the same
    GPUs, whose memory is looked at when all have ended."""

    shared = False

    def __init__(self, output: Path, cpu: bool, ranks: int) -> None:
        self.output, self.cpu, self.ranks = output, cpu, ranks
        self.outcomes: list[Outcome] = []
        self.sweeps: list[Swept] = []
        (output / "large.json").write_text(json.dumps(LARGE), encoding="utf-8")

    def run(self, batch: Batch, lane: str) -> None:
        ranks = batch.ranks or self.ranks
        command, started = self._command(batch, ranks), time.time()
        variables = os.environ | {"CUDA_VISIBLE_DEVICES": lane, "PLANTED": json.dumps(self._plan(batch))}
        variables["PYTHONPATH"] = os.pathsep.join([str(HERE), str(ROOT), os.environ.get("PYTHONPATH", "")])
        if self.shared:
            variables["PATH"] = os.pathsep.join([str(self._without_memory()), os.environ["PATH"]])
        before = [] if self.shared else used(lane)
        sweep = subprocess.Popen(command, env=variables, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True)  # fmt: skip
        _, errors = sweep.communicate()
        left = started_by(sweep.pid)
        notes = [line for line in errors.splitlines() if "not given back" in line or "Traceback" in line]
        self.sweeps.append(
            Swept(batch.name, lane, sweep.returncode, time.time() - started, len(left), before,
                  [] if self.shared else used(lane), notes)
        )  # fmt: skip
        for process in left:
            process.send_signal(signal.SIGKILL)
        self._rows(batch, ranks, started, errors)

    def share(self, todo: Sequence[Batch], lanes: Sequence[str], until: float) -> list[str]:
        """Run batches side by side on the same GPUs; the names of those that no longer fitted."""
        before, started, self.shared = used(lanes[0]), time.time(), True
        left_out = side_by_side(self, todo, lanes, until)
        self.shared, after = False, used(lanes[0])
        self.sweeps.append(Swept("all that shared", lanes[0], 0, time.time() - started, 0, before, after, []))
        return left_out

    def _without_memory(self) -> Path:
        folder = self.output / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "nvidia-smi"
        program.write_text(NO_MEMORY.format(program=shutil.which("nvidia-smi") or "false"), encoding="utf-8")
        program.chmod(0o755)
        return folder

    def _command(self, batch: Batch, ranks: int) -> list[str]:
        lengths = ",".join(map(str, batch.seq_lens()))
        deadlines = DEADLINES | dict(batch.deadlines)
        if self.cpu:
            deadlines = {**deadlines, "warmup": 60, "load": 60, "report": 60, "measure": 30}
        flags = [
            "--backend", "ddp", "--model", "llama-tiny", "--seq-len", lengths, "--num-gpus", str(ranks), "--loss",
            "planted:loss", "--steps", "3", "--warmup", "1", "--processes", "1", "--attn", "sdpa",
            "--dtype", "fp32" if self.cpu else "bf16", "--device", "cpu" if self.cpu else "cuda",
        ]  # fmt: skip
        flags += [f"--deadline={phase}={seconds}" for phase, seconds in deadlines.items()]
        own = [str(self.output / flag) if flag == "large.json" else flag for flag in batch.flags]
        # Lengths that only tell rows apart must not make one the smaller brother of another.
        own += [] if batch.lengths else ["--no-skip"]
        output = ["--output", str(self.output / "rows" / batch.name)]
        return [sys.executable, "-m", "bench", *flags, *own, *output]

    @staticmethod
    def _plan(batch: Batch) -> dict[str, tuple[str, str]]:
        if batch.lengths:
            return {}
        return {str(n): (c.phase, c.fault) for n, c in zip(batch.seq_lens(), batch.cases, strict=True) if c.fault}

    def _rows(self, batch: Batch, ranks: int, started: float, errors: str) -> None:
        rows: dict[int, tuple[Path, dict[str, Any]]] = {}
        for path in (self.output / "rows" / batch.name).glob("*/result.json"):
            row = json.loads(path.read_text(encoding="utf-8"))
            rows[row["configuration"]["seq_len"]] = (path, row)
        before = started
        for length, case in zip(batch.seq_lens(), batch.cases, strict=True):
            backend = batch.flags[batch.flags.index("--backend") + 1] if "--backend" in batch.flags else "ddp"
            outcome = Outcome(batch.name, backend, ranks, case.phase, case.fault or "none", case.status)
            self.outcomes.append(outcome)
            if length not in rows:
                outcome.wrong.append(f"no row: {errors.strip()[-300:]}")
                continue
            path, row = rows[length]
            outcome.status, outcome.message, outcome.hint = row["status"], row["message"], row["hint"]
            outcome.seconds, before = path.stat().st_mtime - before, path.stat().st_mtime
            outcome.wrong += wrong(case, row, ranks, planted=not batch.lengths)
            if case.status == "hang" and ranks > 1:
                outcome.diagnosis = diagnose(path.parent)
                outcome.wrong += misdiagnosed(outcome.diagnosis, ranks, self.cpu or case.phase == "start")


def wrong(case: Case, row: dict[str, Any], ranks: int, planted: bool) -> list[str]:
    """What a row lacks: its class, the rank that failed, the collective in which the others wait."""
    message, last = row["message"], ranks - 1
    found = [f"status {row['status']}, not {case.status}"] * (row["status"] != case.status)
    found += [f"the message does not say {case.words!r}"] * (case.words not in message)
    if planted and case.status in ("oom", "hang", "crash") and not message.startswith(f"rank {last}: "):
        found.append(f"the message does not name rank {last}")
    if case.status == "hang" and ranks > 1:
        found += [f"it does not say that rank {last} stayed away"] * (f"rank {last} stayed away" not in message)
        others = "rank 0 waits in" if ranks == 2 else f"ranks 0-{last - 1} wait in"
        found += [f"it does not say '{others} …'"] * (re.search(rf"{others} \w+", message) is None)
    if case.status != "skipped" and row["log"] and Path(row["log"]).stat().st_size > LIMIT:
        found.append("the log is larger than its limit")
    return found


def diagnose(folder: Path) -> list[str]:
    """What `python -m bench diagnose` says of a result directory, with its exit status as the last line."""
    command = [sys.executable, "-m", "bench", "diagnose", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    dumps = sorted(path.name for path in folder.glob("flight.*") if path.name[7:].isdigit())
    lines = (done.stdout + done.stderr).splitlines()
    return [*lines, f"dumps: {', '.join(dumps) or 'none'}; exit status {done.returncode}"]


def misdiagnosed(lines: Sequence[str], ranks: int, stacks_only: bool) -> list[str]:
    text, last = "\n".join(lines), ranks - 1
    found = [] if text.endswith("exit status 1") else ["diagnose does not say that ranks wait"]
    if not re.search(r"(waits?|wait) in \w+", text):
        found.append("diagnose names no collective")
    if not stacks_only and not re.search(rf"rank {last} (never came|left no dump)", text):
        found.append(f"diagnose does not say that rank {last} never came")
    return found


def used(lane: str) -> list[int]:
    """MiB in use on the GPUs of a lane."""
    everything = gpu_memory.used()
    return [everything[int(gpu)] for gpu in lane.split(",") if gpu and int(gpu) < len(everything)]


def started_by(supervisor: int) -> list[psutil.Process]:
    """Living processes of a sweep that has ended."""
    found, wanted = [], f"{supervisor}@{socket.gethostname()}"
    for process in psutil.process_iter():
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.environ().get(SUPERVISOR) == wanted:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def side_by_side(bench: Bench, todo: Sequence[Batch], lanes: Sequence[str], until: float) -> list[str]:
    """Run the batches on the lanes as they become free; the names of those that no longer fitted."""
    waiting: queue.SimpleQueue[Batch] = queue.SimpleQueue()
    for batch in todo:
        waiting.put(batch)
    left_out: list[str] = []

    def work(lane: str) -> None:
        while True:
            try:
                batch = waiting.get_nowait()
            except queue.Empty:
                return
            if time.time() + batch.seconds() > until:
                left_out.append(batch.name)
                continue
            bench.run(batch, lane)
            print(f"{time.strftime('%T')} {batch.name} on {lane or 'CPU'}", flush=True)

    threads = [threading.Thread(target=work, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return left_out


def markdown(bench: Bench, left_out: Sequence[str], seconds: float) -> str:
    """The tables of the report."""
    rows = [
        "| backend | ranks | fault | phase | row | s | as it must be |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for o in bench.outcomes:
        verdict = "; ".join(o.wrong).replace("|", "\\|").replace("\n", " ") or "yes"
        rows.append(
            f"| {o.backend} | {o.ranks} | {o.fault.replace('_', ' ')} | {o.phase or '–'} | {o.status or 'none'} "
            f"| {o.seconds:.0f} | {verdict} |"
        )
    good = sum(not o.wrong for o in bench.outcomes)
    clean = sum(not sweep_faults(s) for s in bench.sweeps)
    left = f"{clean} of {len(bench.sweeps)} sweeps left no process and no GPU memory; {seconds:.0f} s in all."
    rows += ["", f"{good} of {len(bench.outcomes)} rows are as they must be; {left}"]
    rows += [f"Left out for want of time: {', '.join(left_out)}."] * bool(left_out)
    rows += [f"- {s.name}: {'; '.join(sweep_faults(s))}" for s in bench.sweeps if sweep_faults(s)]
    rows += ["", "What the rows of hangs say:", ""]
    rows += [f"- {o.backend}, {o.ranks} ranks: `{o.message}`" for o in bench.outcomes if o.expected == "hang"]
    dumps = [o for o in bench.outcomes if o.diagnosis]
    for outcome in dumps:
        title = f"`python -m bench diagnose` of {outcome.backend}, {outcome.ranks} ranks, {outcome.fault} in"
        rows += ["", f"{title} {outcome.phase}:", "", "```", *outcome.diagnosis, "```"]
    return "\n".join(rows) + "\n"


def sweep_faults(sweep: Swept) -> list[str]:
    """What a sweep has left behind."""
    found = [f"{sweep.processes_left} processes left"] * (sweep.processes_left > 0)
    for gpu, (old, new) in enumerate(zip(sweep.memory_before, sweep.memory_after, strict=True)):
        found += [f"GPU {gpu} of {sweep.gpus} holds {new} MiB, {old} before"] * (new > old + gpu_memory.SLACK)
    return found + sweep.notes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUTDIR")
    parser.add_argument("--gpus", type=int, help="default: all")
    parser.add_argument("--share", type=int, default=1, help="sweeps at once on a pair, but for those that fill it")
    parser.add_argument("--seconds", type=float, default=225.0, help="start no sweep that would last beyond them")
    parser.add_argument("--only", type=re.compile, metavar="REGEX", help="sweeps by name")
    parser.add_argument("--cpu", action="store_true", help="over gloo, to try the script itself")
    options = parser.parse_args()
    started = time.time()
    options.output = options.output.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    gpus = 2 if options.cpu else options.gpus or len(environment.gpus())
    ranks = min(gpus, 2)
    todo = [b for b in batches(gpus, ranks) if options.only is None or options.only.search(b.name)]
    lanes = (
        [""] if options.cpu else [",".join(map(str, range(n, n + ranks))) for n in range(0, gpus - ranks + 1, ranks)]
    )
    bench = Bench(options.output, options.cpu, ranks)
    # The first import on a machine reads gigabytes from its disk: no row should pay for it.
    subprocess.run([sys.executable, "-c", "import torch, transformers.models.llama.modeling_llama"], check=False)
    everywhere = [b for b in todo if (b.ranks or ranks) > ranks]
    until = started + options.seconds - sum(b.seconds() for b in everywhere)
    few = [b for b in todo if b not in everywhere and options.share > 1 and not b.fills]
    left_out = side_by_side(bench, [b for b in todo if b not in [*everywhere, *few]], lanes, until)
    if few:
        left_out += bench.share(few, [*lanes] * options.share, until)
    left_out += side_by_side(bench, everywhere, [",".join(map(str, range(gpus)))], until + 3600)
    seconds = time.time() - started
    value = {
        "gpus": environment.gpus()[:gpus], "versions": environment.versions(), "seconds": seconds,
        "left_out": left_out, "cases": [asdict(o) for o in bench.outcomes], "sweeps": [asdict(s) for s in bench.sweeps],
    }  # fmt: skip
    (options.output / "faults.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    text = markdown(bench, left_out, seconds)
    (options.output / "faults.md").write_text(text, encoding="utf-8")
    print(text)
    return int(any(o.wrong for o in bench.outcomes) or any(map(sweep_faults, bench.sweeps)))


if __name__ == "__main__":
    sys.exit(main())

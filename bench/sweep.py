"""A list of configurations, run in turn, each ending as a row."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import environment, gpu_memory, results, supervise
from bench.agreement import mismatches
from bench.attention.choice import resolve
from bench.availability import lacking
from bench.configuration import Configuration, graph_mode, model_facts, store
from bench.domination import dominates
from bench.launch.engine import Launcher
from bench.locks import Locks
from bench.progress import Progress
from bench.verdict import HINTS
from rules.constraints import Quantities, check
from rules.models import ModelError

KEPT = ("ok", "unsupported")


class Interrupted(Exception):
    """Ctrl-C: carries the rows so far."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        super().__init__("interrupted")
        self.rows = rows


def refusal(configuration: Configuration, gpus: int) -> tuple[str, str] | None:
    """Why the configuration cannot run here, as (reason, hint); the table of constraints comes first."""
    configuration = resolve(configuration)
    on_gpu = configuration.device == "cuda" or (configuration.device == "auto" and gpus > 0)
    try:
        facts = model_facts(configuration.model, configuration.num_layers)
    except ModelError as error:
        return str(error), "--model"
    known: dict[str, Any] = {
        "backend": configuration.backend if ":" not in configuration.backend else None,
        "world_size": configuration.num_gpus, "tp": configuration.tp, "ring": configuration.ring,
        "device": "cuda" if on_gpu else "cpu", "dtype": configuration.dtype,
        "attn": "sdpa" if configuration.attn.startswith("sdpa_") else configuration.attn,
        "packing": configuration.packing,
        "compile": graph_mode(configuration.backend, configuration.zero_stage, configuration.compile),
        "sequence_parallel": configuration.sequence_parallel, "offload_optimizer": configuration.cpu_offload,
        "zero_stage": configuration.zero_stage if configuration.backend == "deepspeed" else None,
        "train_batch_size": configuration.batch, "micro_batch_size": configuration.rows,
        "pads_sequence": True, "dynamic_batch": False, "max_length_type": "int",
    }  # fmt: skip
    if configuration.ring > 1:
        known |= {"ring_impl": "zigzag" if on_gpu else "sdpa", "ring_import_shim": True, "ring_hf_adapter": False}
    for package, version in environment.versions().items():
        name = f"{package.replace('-', '_')}_version"
        if name in Quantities.__dataclass_fields__:
            known[name] = version
    merged = {**facts.quantities(), **{k: v for k, v in known.items() if v is not None}}
    for violation in check(Quantities.of(**merged).with_unit_sizes()).errors:
        return f"{violation.message} [{violation.constraint.id}]", violation.help()
    missing = lacking(configuration, gpus)
    return (missing, "") if missing else None


class Sweep:
    """Configurations with their result directories under `output`.

    `skip` records what is strictly larger than a configuration that ran out of memory without running it.
    `deadlines` in seconds by phase, see `bench.supervise.DEADLINES`. `check_losses` makes rows `loss_mismatch` that
    do not train like the first of their kind. `launcher` starts the ranks where they do not run on this host, whose
    GPUs then do not count, but `gpus`.
    """

    def __init__(
        self,
        configurations: Sequence[Configuration],
        output: Path,
        *,
        processes: int,
        force: bool = False,
        retry_failed: bool = False,
        quiet: bool = False,
        skip: bool = True,
        deadlines: Mapping[str, float] | None = None,
        check_losses: bool = False,
        launcher: Launcher | None = None,
        gpus: int | None = None,
    ) -> None:
        self.configurations = list(configurations)
        self.output = output
        self.processes = processes
        self.force, self.retry_failed = force, retry_failed
        self.skip, self.deadlines, self.check_losses = skip, deadlines, check_losses
        self.launcher = launcher
        self.gpus = len(environment.gpus()) if gpus is None else gpus
        self.locks = Locks(output)
        self.held = gpu_memory.used() if self.gpus and launcher is None else []
        self.progress = Progress(len(self.configurations) * processes, quiet)
        self.rows: dict[str, dict[str, Any]] = {}

    def run(self) -> list[dict[str, Any]]:
        """All rows in order. Process n of every configuration runs before process n + 1 of any: what drifts on
        the machine then touches all of them alike. Raises `Interrupted` on Ctrl-C."""
        try:
            waiting = self._waiting()
            self.progress.total = len(waiting) * self.processes  # rows that are there already take no time
            for number in range(self.processes):
                for place, configuration in enumerate(waiting):
                    if self._has_row(configuration):
                        continue
                    self.progress.begin(number * len(waiting) + place, configuration.label())
                    self._run_process(configuration, number)
            self._compare()
        except KeyboardInterrupt:
            raise Interrupted(self._ordered()) from None
        finally:
            self.progress.end()
            self.locks.release()
        return self._ordered()

    def _compare(self) -> None:
        """Rows keep what they measured; only their class and message change."""
        if not self.check_losses:
            return
        pairs = [(c, self.rows[c.content_hash()]) for c in self.configurations]
        for digest, message in mismatches(pairs).items():
            row = self.rows[digest]
            row |= {"status": "loss_mismatch", "message": message, "hint": HINTS["loss_mismatch"]}
            folder = next(c for c in self.configurations if c.content_hash() == digest).directory(self.output)
            results.write_json(folder / "result.json", row)

    def _waiting(self) -> list[Configuration]:
        """Those to run, in order. They are claimed in the order of their hashes, in which every sweep does: two that
        share some wait for each other, never both."""
        unique = {c.content_hash(): c for c in self.configurations}
        open_ = {digest for digest, c in sorted(unique.items()) if digest not in self.rows and not self._settled(c)}
        return [c for digest, c in unique.items() if digest in open_]

    def _has_row(self, configuration: Configuration) -> bool:
        """Whether the row is there, or now is because a smaller configuration ran out of memory."""
        if configuration.content_hash() in self.rows:
            return True
        if not self.skip:
            return False
        failed = {row["hash"] for row in self.rows.values() if row["status"] == "oom"}
        for other in self.configurations:
            if other.content_hash() in failed and dominates(other, configuration):
                row = self.rows[other.content_hash()]
                message = f"dominated by {other.directory(self.output).name}, which ran out of memory"
                self._finish(configuration, status="skipped", message=message, hint="--no-skip runs it all the same",
                             log=row["log"])  # fmt: skip
                return True
        return False

    def _ordered(self) -> list[dict[str, Any]]:
        hashes = [c.content_hash() for c in self.configurations]
        return [self.rows[h] for h in hashes if h in self.rows]

    def outstanding(self) -> list[Configuration]:
        """Those without a row that counts, for somebody else to run; the others' rows are there afterwards."""
        return [c for c in dict.fromkeys(self.configurations) if not self._known(c)]

    def _settled(self, configuration: Configuration) -> bool:
        """Whether the row needs no run; where it does, its directory is ours and empty."""
        self.locks.claim(configuration.content_hash(), configuration.label())
        if self._known(configuration):
            self.locks.release(configuration.content_hash())
            return True
        self._prepare(configuration, configuration.directory(self.output))
        return False

    def _known(self, configuration: Configuration) -> bool:
        """Whether the row needs no run: it is refused, or there already."""
        refused = refusal(configuration, self.gpus)
        if refused is not None:
            self._finish(configuration, status="unsupported", message=refused[0], hint=refused[1])
            return True
        old = None if self.force else results.read_result(configuration.directory(self.output))
        if old is not None and self._stands(old):
            self.rows[configuration.content_hash()] = old
            return True
        return False

    def _stands(self, old: Mapping[str, Any]) -> bool:
        """Whether a row that is there already counts."""
        if old["status"] == "skipped":
            return self.skip and not self.retry_failed
        if old["status"] == "interrupted":
            return False  # the same command goes on
        return old["status"] in KEPT or not self.retry_failed

    def _prepare(self, configuration: Configuration, folder: Path) -> None:
        """An empty result directory with what the ranks read."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        store(configuration, folder)

    def _show(self, phase: str, done: int, total: int) -> None:
        """Called at every poll of the process group that runs."""
        self.progress.update(phase, done, total)

    def _job(self, configuration: Configuration) -> supervise.Job:
        """What the ranks run."""
        return supervise.Job(launcher=self.launcher)

    def _run_process(self, configuration: Configuration, number: int) -> None:
        folder = configuration.directory(self.output)
        log = str(folder / f"log.{number}.txt")
        try:
            verdict = supervise.run_group(
                folder, number, configuration.num_gpus, self._show, self.deadlines, self._job(configuration)
            )
        except KeyboardInterrupt:
            self._finish(configuration, status="interrupted", message="stopped by Ctrl-C", log=log)
            raise
        if verdict.status != "ok":
            rank = "" if verdict.rank is None else f"rank {verdict.rank}: "
            self._finish(
                configuration, status=verdict.status, message=rank + verdict.message, phase=verdict.phase,
                hint=verdict.hint(configuration), log=log,
            )  # fmt: skip
            self.progress.note(gpu_memory.wait_until_free(self.held))
        elif number == self.processes - 1:
            self._finish(configuration, status="ok", log=log)

    def _finish(self, configuration: Configuration, **verdict: Any) -> None:
        folder = configuration.directory(self.output)
        described = environment.describe(configuration.random_seed)
        try:
            runs = results.read_runs(folder) if verdict["status"] == "ok" else []
            result = results.build_result(configuration, runs, environment=described, **verdict)
        except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
            message = f"the result of its processes cannot be used: {type(error).__name__}: {error}"
            verdict |= {"status": "crash", "message": message.splitlines()[0], "phase": "report"}
            result = results.build_result(configuration, [], environment=described, **verdict)
        results.write_json(folder / "result.json", result)
        if result["status"] == "ok":
            results.write_suite(folder / "benchmarks.json", result)
        self.rows[configuration.content_hash()] = result

"""A list of configurations, run in turn, each ending as a row."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from bench import hub, trackers
from bench.attention.choice import resolve
from bench.configuration import Configuration, ConfigurationError, compiles, model_facts, store
from bench.launch.engine import Launcher
from bench.pickles import one_line
from bench.predict import sizes
from bench.predict.capacity import impossible
from bench.predict.oom_pruning import dominates
from bench.process import gpu_memory, interrupts, supervise
from bench.process.locks import Locks
from bench.process.progress import Progress
from bench.process.verdict import BADLY, HINTS
from bench.results import environment, identity, results
from bench.results.table import problem
from bench.sweep import attempts, resuming
from bench.sweep.agreement import mismatches
from bench.sweep.availability import lacking, without_plan
from bench.sweep.labels import labels
from bench.trackers import Tracker
from rules.models import ModelError


class Interrupted(Exception):
    """Ctrl-C: carries the rows so far."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        super().__init__("interrupted")
        self.rows = rows


def refusal(configuration: Configuration, gpus: int, here: bool = True) -> tuple[str, str] | None:
    """Why the configuration cannot run, as (reason, hint); the table of constraints comes first. `here`: its ranks run
    on this host."""
    configuration = resolve(configuration)
    on_gpu = configuration.on_gpu(gpus)
    try:
        facts = model_facts(configuration.model, configuration.num_layers)
    except ModelError as error:
        return str(error), "--model"
    refused = sizes.refusal(configuration, "cuda" if on_gpu else "cpu", facts.quantities())
    if refused is not None:
        constraint, message, help_ = refused
        return f"{message} [{constraint}]", help_
    missing = lacking(configuration, gpus)
    if missing is not None:
        return missing, ""
    reason = here and hub.missing(configuration.model, "config.json")
    if reason:
        return f"--model {configuration.model}: {reason}", "a preset such as llama-3.1-8b, a config.json or a directory"
    reason = without_plan(configuration, facts) or impossible(configuration, facts, on_gpu, here)
    return (reason, "") if reason else None


def require(configuration: Configuration, gpus: int) -> None:
    """Raise `ConfigurationError` for a configuration that cannot run on this host."""
    refused = refusal(configuration, gpus)
    if refused is not None:
        raise ConfigurationError("; ".join(filter(None, refused)))


class Sweep:
    """Configurations with their result directories under `output`.

    `skip` records what is strictly larger than a configuration that ran out of memory without running it.
    `deadlines` in seconds by phase, see `supervise.DEADLINES`. `check_losses` makes rows `loss_mismatch` that do not
    train like the first of their kind. `launcher` starts the ranks where they do not run on this host, whose GPUs then
    do not count, but `gpus`.
    """

    module = supervise.Job.module
    """What ranks run."""

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
        trace: bool = False,
        tracker: Tracker | None = None,
    ) -> None:
        self.configurations = list(configurations)
        self.labels = labels(self.configurations)
        self.output = output
        self.processes = processes
        self.force, self.retry_failed = force, retry_failed
        self.skip, self.deadlines, self.check_losses = skip, deadlines, check_losses
        self.launcher, self.tracker = launcher, tracker
        self.environment = {attempts.TRACE: "1"} if trace else {}
        self.gpus = len(environment.gpus()) if gpus is None else gpus
        self.locks = Locks(output)
        self.held = gpu_memory.used() if self.gpus and launcher is None else []
        self.progress = Progress([compiles(c) for c in self.configurations] * processes, quiet)
        self.rows: dict[str, dict[str, Any]] = {}
        self.standing: list[dict[str, Any]] = []
        """The rows that were there already and count."""
        self.stale: dict[str, list[str]] = {}
        """By label: what has changed since a row was measured, for which it is measured again."""
        self._folders: dict[str, Path] = {}
        self._there: dict[str, int] = {}
        """By hash: the processes that a row to which more are added has already."""
        self._whole: dict[str, int] = {}
        """By hash: the processes that an interrupted measurement of a row has left whole."""

    def run(self) -> list[dict[str, Any]]:
        """All rows in order. Process n of every configuration runs before process n + 1 of any: what drifts on
        the machine then touches all of them alike. Raises `Interrupted` on Ctrl-C."""
        try:
            waiting = self._waiting()
            planned = [(c, number) for number in range(self.processes) for c in waiting if number >= self._first(c)]
            self.progress.plan = [compiles(c) for c, _ in planned]  # rows that are there already take no time
            for place, (configuration, number) in enumerate(planned):
                if self._has_row(configuration):
                    continue
                self.progress.begin(place, self.label(configuration))
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
            results.write_json(folder / results.FILE, row)

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

    def label(self, configuration: Configuration) -> str:
        """What the row is called, in the sweep and for good."""
        return self.labels[configuration.content_hash()]

    def _track(self, tracker: Tracker, result: dict[str, Any]) -> None:
        """Send a row to the tracker; one that fails is let go, and the sweep goes on."""
        try:
            tracker.add(trackers.measured(result))
        except Exception as error:  # whatever a network or a library of others may raise
            print(
                f"the tracker gets no more rows: {type(error).__name__}: {one_line(error)}", file=sys.stderr, flush=True
            )
            self.tracker = None

    def resumed(self) -> list[str]:
        """Lines on what was there and what was done about it; none where nothing was there."""
        whole = sum(self._whole.values())
        return resuming.told(self._ordered(), self.standing, self.stale, len(self._there), whole)

    def outstanding(self) -> list[Configuration]:
        """Those without a row that counts, for somebody else to run; the others' rows are there afterwards."""
        return [c for c in dict.fromkeys(self.configurations) if not self._known(c)]

    def _settled(self, configuration: Configuration) -> bool:
        """Whether the row needs no run; where it does, its directory is ours."""
        self.locks.claim(configuration.content_hash(), self.label(configuration))
        if self._known(configuration):
            self.locks.release(configuration.content_hash())
            return True
        return False

    def _known(self, configuration: Configuration) -> bool:
        """Whether the row needs no run: it is there already, or refused."""
        standing = None if self.force else self._standing(configuration)
        if standing is not None:
            standing["label"] = self.label(configuration)
            self.rows[configuration.content_hash()] = standing
            self.standing.append(standing)
            return True
        refused = self._refusal(configuration)
        if refused is not None:
            self._finish(configuration, status="unsupported", message=refused[0], hint=refused[1])
            return True
        if self._first(configuration) >= self.processes:  # all were whole, and nobody was left to make the row of them
            self._finish(configuration, status="ok", log=str(self._folder(configuration) / "log.0.txt"))
            return True
        return False

    def _refusal(self, configuration: Configuration) -> tuple[str, str] | None:
        return refusal(configuration, self.gpus, here=self.launcher is None)

    def foreseen(self, configuration: Configuration) -> str:
        """What would become of a row, in words; nothing is written."""
        standing = None if self.force else self._standing(configuration)
        if standing is not None:
            return f"kept: {standing['status']}"
        refused = self._refusal(configuration)
        if refused is not None:
            return f"unsupported: {refused[0]}"
        stale = self.stale.get(self.label(configuration))
        more = self.processes - self._first(configuration)
        if more < self.processes:
            return f"would run, {more} more process{'es' * (more > 1)}" if more > 0 else "would be concluded"
        return f"would run, is stale: {', '.join(stale)}" if stale else "would run"

    def _standing(self, configuration: Configuration) -> dict[str, Any] | None:
        """The row that is there already, where it counts; notes what is stale and what lacks processes."""
        directory = configuration.directory(self.output)
        whole, then = attempts.left_whole(directory)
        if whole and not self._differences(configuration, then):
            self._whole[configuration.content_hash()] = whole
        old = results.read_result(directory)
        if old is None:
            return None
        changed = self._changed(configuration, old)
        if changed:
            tried = attempts.failed(directory)
            if tried is not None and not self.retry_failed and not self._changed(configuration, tried):
                return tried
            self.stale[self.label(configuration)] = changed
            self.progress.note(f"stale, run again: {self.label(configuration)}: {', '.join(changed)}")
            return None
        if not self._stands(old):
            return None
        there = len(old.get("runs") or [])
        if attempts.weight(old) == 2 and there < self.processes:
            self._there[configuration.content_hash()] = there
            return None
        return old

    def _changed(self, configuration: Configuration, old: Mapping[str, Any]) -> list[str]:
        """What a row depends on that is otherwise now; nothing for rows that no process has run for."""
        return self._differences(configuration, old.get("environment") or {}) if attempts.weight(old) else []

    def _differences(self, configuration: Configuration, then: Mapping[str, Any]) -> list[str]:
        now = {**self._stack, "sources": identity.sources(configuration)}
        return identity.differences(configuration, then, now)

    @cached_property
    def _stack(self) -> dict[str, Any]:
        """What rows here depend on; with a launcher ranks compute elsewhere, on what is not known."""
        return environment.stack() | ({"gpus": [], "cpu": ""} if self.launcher is not None else {})

    def _stands(self, old: Mapping[str, Any]) -> bool:
        """Whether a row that is there already, and not stale, counts."""
        if old["status"] == "skipped":
            return self.skip and not self.retry_failed
        if old["status"] == "interrupted":
            return False  # the same command goes on
        if old["status"] == "unsupported":
            return bool(old["log"]) and not self.retry_failed  # found out by running; tables are looked up anew
        return old["status"] == "ok" or not self.retry_failed

    def _first(self, configuration: Configuration) -> int:
        """The number of the first process that the row lacks."""
        digest = configuration.content_hash()
        return max(self._there.get(digest, 0), self._whole.get(digest, 0))

    def _folder(self, configuration: Configuration) -> Path:
        """Where the row is being measured: made when its first process starts, not before."""
        digest = configuration.content_hash()
        if digest not in self._folders:
            self._folders[digest] = self._prepare(configuration)
        return self._folders[digest]

    def _prepare(self, configuration: Configuration) -> Path:
        """A folder for the row's processes, with what the ranks read."""
        directory = configuration.directory(self.output)
        digest = configuration.content_hash()
        whole, there = self._whole.get(digest, 0), self._there.get(digest, 0)
        folder = attempts.add_to(directory) if there > whole else attempts.begin(directory, whole)
        store(configuration, folder)
        if not self.force:
            attempts.identify(folder, environment.describe(configuration))
        return folder

    def _show(self, phase: str, done: int, total: int) -> None:
        """Called at every poll of the process group that runs."""
        self.progress.update(phase, done, total)

    def _job(self, configuration: Configuration) -> supervise.Job:
        """What the ranks run."""
        return supervise.job_of(
            configuration, self.gpus, self.module, environment=self.environment, launcher=self.launcher
        )

    def _run_process(self, configuration: Configuration, number: int) -> None:
        folder = self._folder(configuration)
        log = str(folder / f"log.{number}.txt")
        try:
            verdict = supervise.run_group(
                folder, number, configuration.num_gpus, self._show, self.deadlines, self._job(configuration)
            )
        except KeyboardInterrupt:
            self._finish(configuration, status="interrupted", message=f"stopped by {interrupts.words()}", log=log)
            raise
        if verdict.status != "ok":
            self._finish(
                configuration, status=verdict.status, message=verdict.told, phase=verdict.phase,
                hint=verdict.hint(configuration), log=log,
            )  # fmt: skip
            self.progress.note(gpu_memory.wait_until_free(self.held))
        elif number == self.processes - 1:
            self._finish(configuration, status="ok", log=log)

    def _finish(self, configuration: Configuration, **verdict: Any) -> None:
        """Make the row of what its processes left, and keep it where nothing better is there."""
        directory = configuration.directory(self.output)
        folder = self._folders.get(configuration.content_hash(), directory)
        described = environment.describe(configuration)
        try:
            runs = results.read_runs(folder) if verdict["status"] == "ok" else []
            result = results.build_result(configuration, runs, environment=described, **verdict)
        except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
            message = f"the result of its processes cannot be used: {type(error).__name__}: {error}"
            verdict |= {"status": "crash", "message": message.splitlines()[0], "phase": "report"}
            result = results.build_result(configuration, [], environment=described, **verdict)
        result["label"] = self.label(configuration)
        attempts.conclude(directory, folder, result)
        self.rows[configuration.content_hash()] = result
        if self.tracker is not None and result["status"] == "ok":
            self._track(self.tracker, result)
        if result["status"] in BADLY:
            self.progress.note(problem(result))

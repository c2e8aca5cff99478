"""`python -m bench replay`: take recorded inputs once each through a model; time, loss and memory of every one.

Starts its own processes, or is one rank of them under `torchrun -m bench replay` and `deepspeed --module bench replay`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import backends
from bench.cli import FAILED, INTERRUPTED, OK, USAGE
from bench.configuration import Configuration, ConfigurationError, hash_inputs, parse
from bench.debug import sharding
from bench.inputs.files import list_inputs
from bench.problems import in_one_line
from bench.process.process_exit import end
from bench.replay import records
from bench.results import environment
from bench.results.table import problem
from bench.sweep import attempts, availability
from bench.sweep.flags import add_old_names, add_one, given
from bench.sweep.sweep import Interrupted, Sweep, require
from bench.terminal.help_texts import told
from bench.terminal.parsing import Parser


def parser() -> argparse.ArgumentParser:
    """The flags of `bench replay`: those of `replay_inputs.py`, and where the model is split."""
    p = Parser(prog="bench replay", description=__doc__)
    data = p.add_argument_group("inputs")
    data.add_argument("--inputs", type=Path, default=Path("input_dumps"), help="directory or file; ./input_dumps")
    add_one(data, "max_inputs", "shuffle_inputs", "simulate_ranks", "random_seed", "fold_tokens")
    what = p.add_argument_group("model")
    add_one(
        what, "model", help="preset, config.json, directory or hub name; default llama-3.1-8b, without GPUs llama-tiny "
        "with --fold-tokens",
    )  # fmt: skip
    add_one(what, "num_layers", "compile", "attn", "packing", "dtype", "gradient_checkpointing")
    add_one(what, "head", help="default: compiled on a GPU, chunked without one")
    how = p.add_argument_group("how it runs")
    how.add_argument("--backend", help=f"{told('backend')}; default deepspeed")
    add_one(how, "zero_stage", help="of deepspeed; default 1")
    add_one(how, "num_gpus", help="processes; default 1; launchers say it themselves")
    add_one(how, "tp", "ring", "tp_plan", "device", "backward")
    how.add_argument("--loss", help="sft (default), ppo or module:function")
    add_one(how, "lr", help="learning rate; 0 leaves the weights as they are; default 1e-4")
    how.add_argument("--output", type=Path, default=Path("results"), help="default ./results")
    how.add_argument("--quiet", action="store_true", help="the table at the end, no line per input")
    add_old_names(how)
    return p


def _defaults(gpus: int) -> dict[str, Any]:
    """The old script's, where there are GPUs; elsewhere a tiny model that takes any token id."""
    common = {"backend": "deepspeed", "zero_stage": 1, "num_gpus": 1, "warmup": 1}
    if not gpus:
        return {**common, "model": "llama-tiny", "fold_tokens": True, "dtype": "fp32", "device": "cpu"}
    return {**common, "model": "llama-3.1-8b", "attn": "auto", "head": "compiled"}


def configuration_of(options: argparse.Namespace, gpus: int, launched: int | None) -> Configuration:
    """What the flags ask for; `launched` is the number of ranks that a launcher has started.

    Raises `ConfigurationError` or `InputError`.
    """
    files = list_inputs(options.inputs)[: options.max_inputs]
    settings = _defaults(gpus)
    if options.model is not None:
        settings.pop("fold_tokens", None)
    settings |= given(options)
    if launched is not None:
        settings["num_gpus"] = launched
    settings |= {"inputs": str(options.inputs.resolve()), "input_hash": hash_inputs(options.inputs)}
    made = parse(settings)
    if not backends.find(made.backend).stages:
        made = replace(made, zero_stage=Configuration.zero_stage)
    made = sharding.effective(made)
    problem = availability.loss_problem(made.loss)
    if problem:
        raise ConfigurationError(problem)
    dealt = 1 if made.shuffle_inputs else made.dp
    return replace(made, steps=-(-len(files) // dealt))


@in_one_line
def main(arguments: Sequence[str]) -> int:
    """Exit status 0 replayed, 1 it failed, 2 wrong usage or inputs, 130 interrupted."""
    options = parser().parse_args(arguments)
    gpus = len(environment.gpus())
    sharding.tell("replay")
    launched = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else None
    configuration = configuration_of(options, gpus, launched)
    require(configuration, gpus)
    return (_supervised if launched is None else _one_rank)(configuration, options.output, options.quiet)


def _total(configuration: Configuration) -> int:
    """The number of inputs, before any rank takes them."""
    return len(list_inputs(Path(configuration.inputs or ""))[: configuration.max_inputs])


class ReplaySweep(Sweep):
    """The one row of a replay, which is measured again whatever is there; tells each input as it is done."""

    module = "bench.replay.worker"

    def __init__(self, configuration: Configuration, output: Path, quiet: bool) -> None:
        super().__init__([configuration], output, processes=1, force=True, quiet=True)
        self.tell, self.total = not quiet, _total(configuration)
        self.tail: records.Tail | None = None

    def _show(self, phase: str, done: int, total: int) -> None:
        (configuration,) = self.configurations
        self.tail = self.tail or records.Tail(self._folder(configuration) / records.FILE)
        for record in self.tail.new() if self.tell else ():
            print(records.line(record, self.total, configuration.dp), flush=True)

    def _finish(self, configuration: Configuration, **verdict: Any) -> None:
        if self.tail is not None:
            self._show("", 0, 0)  # what came after the last look
        super()._finish(configuration, **verdict)


def _supervised(configuration: Configuration, output: Path, quiet: bool) -> int:
    """Start the ranks; another replay of the same into the same place is waited for."""
    sweep = ReplaySweep(configuration, output, quiet)
    try:
        (row,) = sweep.run()
    except Interrupted as stop:
        print("bench replay: interrupted: the same command goes through all inputs again", file=sys.stderr)
        for row in stop.rows:
            _summarise(configuration, output, row)
        return INTERRUPTED
    _summarise(configuration, output, row)
    if row["status"] == "ok":
        return OK
    print(f"bench replay: {problem(row)}", file=sys.stderr)
    return USAGE if "InputError: " in row["message"] else FAILED


def _one_rank(configuration: Configuration, output: Path, quiet: bool) -> int:
    """Under torchrun or deepspeed this process is one rank and starts no others."""
    from bench.replay.worker import show_nothing, work

    folder = configuration.directory(output)
    folder.mkdir(parents=True, exist_ok=True)
    total = _total(configuration)

    def show(record: records.Record) -> None:
        print(records.line(record, total, configuration.dp), flush=True)

    work(configuration, folder, 0, show_nothing if quiet else show)
    if int(os.environ["RANK"]) == 0:
        _summarise(configuration, folder.parent, attempts.keep(configuration, folder))
    end(OK)


def _summarise(configuration: Configuration, output: Path, row: Mapping[str, Any]) -> None:
    """The table over all inputs that were taken, from the row's folder, or from that of an attempt that failed."""
    directory = configuration.directory(output)
    path = (attempts.beside(directory) if row.get("kept") else directory) / records.FILE
    found = records.Tail(path).new()
    if found:
        print(records.summary(found))
        tokens, met = sum(record["real_tokens"] for record in found), len({record["index"] for record in found})
        print(f"{met} of {_total(configuration)} inputs, {tokens:,} tokens: {path}")

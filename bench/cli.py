"""The dispatcher of `python -m bench`: a table of commands, each imported only when it is asked for."""

from __future__ import annotations

import importlib
import os
import select
import sys
from collections.abc import Mapping, Sequence

from bench.problems import NOT_WRITTEN
from bench.process import interrupts
from bench.terminal.parsing import nearest
from bench.terminal.streams import printable

COMMANDS = {
    "run": "measure configurations: forward, backward, optimizer, memory, loss (the default command)",
    "convert": "rewrite recorded batches as safetensors",
    "compare": "do runs train alike, and is one slower? result directories, pyperf files, training logs",
    "report": "results as a table, Markdown, CSV, JSON or one HTML page",
    "plan": "every legal way to split a model over GPUs, with predicted memory and work; needs no torch",
    "suite": "train with every backend from one checkpoint on the same data; do the losses agree?",
    "matrix": "which combinations of attention, compilation, packing and backend work, and how fast",
    "attention": "how fast each attention kernel is on this machine, forward and backward",
    "tune": "search the fastest settings of a model here, within the memory that is predicted",
    "sft": "fine-tune with one backend on prompts and answers",
    "convert-ckpt": "weights between training checkpoints and Hugging Face safetensors",
    "replay": "take recorded inputs once each through a model: time, loss and memory of every one",
    "doctor": "is this machine ready? GPUs, links between them, packages, ports, disk, with what to do",
    "diagnose": "why a job hangs: flight-recorder dumps and stacks, held against its source",
    "watch": "run a job of your own, and say who waits where and why when it hangs",
    "submit": "check a Slurm or shell launch script with its sizes, then submit it",
}
"""Names and summaries. Command `x` is `main(arguments) -> exit status` in `bench/commands/x.py`."""

DEFAULT = "run"
"""The command of `python -m bench FLAGS`, and of `python -m bench` alone."""

RANKS = ("run", "replay", "sft")
"""Commands that are one rank where a launcher started them."""

STOPPABLE = ("run", "suite", "sft", "replay", "matrix", "attention", "tune")
"""Commands that end on SIGTERM, from their first moment on, as they do on Ctrl-C: what they started ends with them."""

STARTING_OVER = ("attention",)
"""Those of them that keep nothing of a measurement without an end."""

MEETING = ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")

REQUIRED = (
    "jinja2", "matplotlib", "numpy", "psutil", "pyarrow", "pyperf", "safetensors", "scipy", "tabulate", "torch", "tqdm",
    "transformers",
)  # fmt: skip
"""Modules of the extra `[bench]`, which the base install does without."""

OK, FAILED, USAGE, UNDECIDED, INTERRUPTED, NO_READER = 0, 1, 2, 3, 130, 141


def usage() -> str:
    """The list of commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items()]
    first, last = "usage: python -m bench [COMMAND] [FLAGS]", "COMMAND --help shows its flags."
    return "\n".join([first, "", *lines, "", last])


def main(arguments: Sequence[str]) -> int:
    """Run one command. Exit status 0 done, 1 a failed row, 2 wrong usage, 130 interrupted, 143 by SIGTERM."""
    arguments = _without_local_rank(arguments)
    name, *rest = arguments or [DEFAULT]
    if name in ("-h", "--help") and not rest:
        return _run("", rest)
    if name.startswith("-"):
        name, rest = DEFAULT, list(arguments)
    if name not in COMMANDS:
        hint = nearest(name, COMMANDS) or f"; there are: {', '.join(COMMANDS)}"
        print(f"bench: no command {name!r}{hint}", file=sys.stderr)
        return USAGE
    problem = _launched_wrongly(os.environ) if name in RANKS else None
    if problem:
        print(f"bench {name}: {problem}", file=sys.stderr)
        return USAGE
    if name in STOPPABLE and "RANK" not in os.environ:
        interrupts.listen()
    with printable():
        status = _run(name, rest)
    return interrupts.status() if status == INTERRUPTED else status


def _interrupted(name: str) -> int:
    if name in STOPPABLE:
        rest = "" if name in STARTING_OVER else ": the same command goes on from here"
        print(f"bench {name}: interrupted{rest}", file=sys.stderr)
    return INTERRUPTED


def _run(name: str, arguments: Sequence[str]) -> int:
    """The status of a command (without a name, of the list of commands), or of what it ends with that is nobody's
    mistake in the code: one line on stderr."""
    status = OK
    try:
        if name:
            status = importlib.import_module(f"bench.commands.{name.replace('-', '_')}").main(arguments)
        else:
            print(usage())
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _interrupted(name)
    except ImportError as error:
        if interrupts.STOPPED.is_set():
            return _interrupted(name)
        if not isinstance(error, ModuleNotFoundError) or (error.name or "").partition(".")[0] not in REQUIRED:
            raise
        print(f"bench: {error.name} is not installed: pip install 'meshproof[bench]'", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        if not _reader_has_gone():
            raise
        _drop_output()
        return NO_READER
    except OSError as error:
        if error.errno not in NOT_WRITTEN:
            raise
        _drop_output()
        print(f"bench: cannot write{f' {error.filename}' * bool(error.filename)}: {error.strerror}", file=sys.stderr)
        return USAGE
    except RecursionError:
        print(f"bench {name}: a file is nested too deeply to be read", file=sys.stderr)
        return USAGE
    return status


def _launched_wrongly(environment: Mapping[str, str]) -> str | None:
    """What is wrong with the variables by which a launcher tells a process its rank; None where nothing is."""
    if "RANK" not in environment:
        return None
    lacking = [name for name in MEETING if not environment.get(name)]
    if lacking:
        return f"RANK is set, but {', '.join(lacking)} not: start with torchrun or deepspeed, or unset RANK"
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT"):
        value = environment.get(name, "0")
        if not (value.isascii() and value.isdigit() and len(value) < 10):
            return f"{name}={value!r} in the environment is no number of a launcher: unset RANK to start without one"
    rank, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    if rank >= world:
        return f"RANK={rank} and WORLD_SIZE={world} in the environment contradict each other: ranks count from 0"
    return None if int(environment["MASTER_PORT"]) < 2**16 else f"MASTER_PORT={environment['MASTER_PORT']} is no port"


def _reader_has_gone() -> bool:
    """Whether standard output is a pipe whose other end is closed, as after `| head`."""
    poll = select.poll()
    poll.register(1, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _drop_output() -> None:
    """Send what is still buffered nowhere, so that the end of the process does not fail on it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _without_local_rank(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments without the `--local_rank=N` that DeepSpeed's launcher puts before all others; LOCAL_RANK says
    the same."""
    first = arguments[0] if arguments else ""
    return arguments[1:] if first.startswith(("--local_rank=", "--local-rank=")) else arguments

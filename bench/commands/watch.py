"""`python -m bench watch -- COMMAND…`: run a job of your own, unchanged, and say why when it hangs.

COMMAND is what you would type without it, such as `torchrun train.py`. Its input, output, signals and exit status are
its own. A small thread in each of its ranks looks where the rank stands; PyTorch's flight recorder is switched on. Once
a rank has stood still for --limit seconds, all ranks leave their stacks and dumps, the job is ended with exit status
124, and one paragraph on standard error says who waits where and why.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.cli import USAGE
from bench.commands.diagnose import diagnosis, read
from bench.diagnose import findings
from bench.diagnose.dumps import DumpError
from bench.launch import flight
from bench.process import sessions, supervise
from bench.process.stacks import Frame
from bench.terminal.parsing import Parser
from bench.validation import ValidatorError
from bench.watch import evidence
from bench.watch.forwarding import forwarded
from bench.watch.paragraph import paragraph
from bench.watch.ranks import Hang, Watcher

LIMIT = 540.0
HUNG, CANNOT_RUN, NOT_FOUND = 124, 126, 127
"""Exit statuses, as `timeout` has them."""


def parser() -> argparse.ArgumentParser:
    """The flags of `bench watch`."""
    p = Parser(
        prog="bench watch", description=__doc__,
        epilog="exit status: the job's (128 + n where signal n ended it), 124 it hung, 126 or 127 it cannot be run, "
        "2 wrong usage",
    )  # fmt: skip
    p.formatter_class = argparse.RawDescriptionHelpFormatter
    p.usage = "%(prog)s [FLAGS] -- COMMAND [ARGUMENT …]"
    p.add_argument(
        "--limit", type=_seconds, default=LIMIT, metavar="SECONDS",
        help="a rank that stands still for longer hangs: longer than your longest save or evaluation on one rank "
        "while the others wait. Default 540: NCCL gives up after 600",
    )  # fmt: skip
    p.add_argument("--source", type=Path, metavar="TREE", help="the job's source: which finding explains the hang?")
    p.add_argument(
        "--output", type=Path, metavar="DIR",
        help="where stacks and dumps go, a new or empty folder; default ./watch-DATE-TIME, gone if nothing hangs",
    )  # fmt: skip
    p.add_argument("--keep", action="store_true", help="tell, and let the job go on")
    return p


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 1e7:
        raise argparse.ArgumentTypeError(f"{text!r}: give seconds, from 1 on")
    return value


def main(arguments: Sequence[str]) -> int:
    """The job's exit status, 124 where it hung, 126 or 127 where it cannot be run, 2 wrong usage."""
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    if at == len(arguments) and not {"-h", "--help"} & {*arguments}:
        _say("give the job's command after --, as in `bench watch -- torchrun --nproc-per-node 2 train.py`")
        return USAGE
    options = parser().parse_args(arguments[:at])
    options.command = list(arguments[at + 1 :])
    problem = _problem(options)
    if problem:
        _say(problem)
        return USAGE
    tick = min(max(options.limit / 20, 0.1), 2.0)
    mark = sessions.new_mark()
    try:
        process = supervise.start(options.command, {**evidence.environment(options.output, tick), **mark}, True)
    except OSError as error:
        evidence.tidy(options.output)
        _say(f"{options.command[0]} cannot be run: {error.strerror}")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
    return Session(options, process, mark[sessions.MARK], tick).run()


def _problem(options: argparse.Namespace) -> str | None:
    """What is wrong with the command line; None after `--output` was made where nothing is."""
    if not options.command:
        return "there is no command after --"
    if options.source is not None and not options.source.is_dir():
        return f"--source {options.source}: no such directory"
    options.output = options.output or Path(time.strftime("watch-%Y%m%d-%H%M%S") + f"-{os.getpid()}")
    try:
        options.output.mkdir(parents=True, exist_ok=True)
        if any(options.output.iterdir()):
            return f"--output {options.output}: give a new or an empty folder"
        (options.output / "stacks.probe").touch()
        (options.output / "stacks.probe").unlink()
    except OSError as error:
        return f"--output {options.output}: cannot be written: {error.strerror}"
    return None


class Session:
    """One job from its start to its end."""

    def __init__(
        self, options: argparse.Namespace, process: subprocess.Popen[bytes], mark: str, tick: float
    ) -> None:  # fmt: skip
        self.options, self.process, self.mark, self.tick = options, process, mark, tick
        self.folder: Path = options.output
        self.watcher = Watcher(self.folder, options.limit, tick)
        self.told_deaf = False

    def run(self) -> int:
        """Attend the job; its exit status, or that of a hang."""
        hang = None
        try:
            with forwarded(self.process):
                hang = supervise.attend(self.process, self._look)
                if hang is not None:
                    self._collect(hang)
                if hang is not None and self.options.keep:
                    self._tell(hang)
                    self.process.wait()
        finally:
            # What a job leaves running when it ends by itself is its own affair.
            if self.process.poll() is None or (hang is not None and not self.options.keep):
                sessions.kill(self.process, self.mark)
        if hang is not None and not self.options.keep:
            self._tell(hang)
            status = HUNG
        else:
            status = self._own_status()
        evidence.tidy(self.folder)
        return status

    def _look(self) -> Hang | None:
        if not self.told_deaf and self.watcher.is_deaf():
            self.told_deaf = True
            _say(
                f"no rank has reported in {self.options.limit:.0f} s, so nothing is watched: ranks must be Python "
                "processes that know RANK or join a process group, started without -I, -E or -S"
            )
        return self.watcher.look()

    def _collect(self, hang: Hang) -> None:
        _say(f"the job hangs; asking its ranks where they stand, into {self.folder}")
        evidence.collect(self.folder, hang, self.mark, self.tick)

    def _own_status(self) -> int:
        """The job's. Where NCCL's own time-out has ended it, the dumps that it left are told of first."""
        if flight.dumps(self.folder) and self.process.returncode and not self.options.keep:
            _say("the job ended by itself and left flight-recorder dumps:")
            self._tell(None)
        code = self.process.returncode
        return code if code >= 0 else 128 - code

    def _tell(self, hang: Hang | None) -> None:
        try:
            recorded, stacks = read([self.folder])
            lines, waits, frames = diagnosis(recorded, stacks)
        except DumpError:
            lines, waits, frames = ["its ranks left neither stacks nor dumps"], False, []
        reason = self._reason(frames) if waits or hang is not None else ""
        print(f"\n{paragraph(hang, lines, reason)}\n", file=sys.stderr)
        ended = "the job goes on" if self.process.poll() is None else "the job has ended"
        _say(f"{ended}; more: python -m bench diagnose {self.folder} --source {self.options.source or 'TREE'}")

    def _reason(self, frames: Sequence[Frame]) -> str:
        """The finding about a function in which a rank stands; "" without one, or without `--source`."""
        if self.options.source is None:
            return ""
        try:
            nearest = findings.explain(self.options.source, frames)[:1]
        except ValidatorError as error:
            return f"the source was not read: {error}"
        return "".join(f"why: {one.place}: {one.message}" for one in nearest if one.nearness == 3)


def _say(text: str) -> None:
    print(f"bench watch: {text}", file=sys.stderr, flush=True)

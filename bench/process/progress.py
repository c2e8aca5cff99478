"""Where a sweep is: one line with a bar that rewrites itself on a terminal, a line per change of phase elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from bench.process.heartbeat import PHASES


class Progress:
    """Told of every poll; prints little. The time left comes from the cells that are done: compilation, which only
    some cells have, is reckoned apart from the rest.

    `plan` says of each cell whether it compiles.
    """

    def __init__(self, plan: Sequence[bool], quiet: bool = False) -> None:
        self.plan, self.quiet = plan, quiet
        self.index, self.label, self.phase = 0, "", ""
        self.begun = self.entered = time.monotonic()
        self.worked, self.compiled, self.compiling = 0.0, 0.0, 0
        """Seconds of ended cells without compilation, seconds of compilation, and how many cells had any."""
        self.terminal = sys.stderr.isatty()
        self._here = 0.0

    def begin(self, index: int, label: str) -> None:
        """The next cell; the one before it has ended."""
        now = time.monotonic()
        if self.label:
            self._enter("", now)
            self.worked += now - self.begun - self._here
        self.index, self.label, self.phase = index, label, ""
        self.begun = self.entered = now
        self._here = 0.0

    def _enter(self, phase: str, now: float) -> None:
        """Note the seconds of a compilation that has ended."""
        if self.phase == "compile" != phase:
            self._here += now - self.entered
            self.compiled += now - self.entered
            self.compiling += 1
        if phase != self.phase:
            self.phase, self.entered = phase, now

    def update(self, phase: str, done: int, total: int) -> None:
        new = phase != self.phase
        self._enter(phase, time.monotonic())
        if self.quiet or (not self.terminal and not new):
            return
        place = f"[{self.index + 1}/{len(self.plan)}] {self.label}: {phase}"
        if not self.terminal:
            print(f"{place}{self._words(done, total)}", file=sys.stderr, flush=True)
            return
        count = f" {done}/{total}" if total else ""
        print(f"\r\033[K{self._bar(f'{place}{count}', done, total)}", end="", file=sys.stderr, flush=True)

    def _share(self, done: int, total: int) -> float:
        """How much of the present cell is done, by its phases; all count alike, for none is known beforehand."""
        reached = PHASES.index(self.phase) if self.phase in PHASES else 0
        return (reached + (min(done / total, 1.0) if total else 0.0)) / len(PHASES)

    def left(self, done: int, total: int) -> float | None:
        """Seconds until the end; None before a whole cell has shown how long one takes.

        A cell's own work, and compilation, take as long as they took on average in the cells before; for what has
        not compiled yet, only its own work is known.
        """
        if not self.index:
            return None
        cells = len(self.plan) - self.index - self._share(done, total)
        coming = sum(self.plan[self.index + 1 :]) + (self.plan[self.index] and self.phase in ("start", "load"))
        each = self.compiled / self.compiling if self.compiling else 0.0
        return self.worked / self.index * max(cells, 0.0) + each * coming

    def _bar(self, text: str, done: int, total: int) -> str:
        import shutil

        from tqdm import tqdm

        left = self.left(done, total)
        remaining = "?" if left is None else tqdm.format_interval(left)
        bar: str = tqdm.format_meter(
            self.index + self._share(done, total), len(self.plan), 0.0, prefix=text,
            ncols=shutil.get_terminal_size().columns - 1,  # what is too long is cut off at its end
            bar_format=f"{{percentage:3.0f}}% |{{bar:16}}| {remaining} left {{desc}}",
        )  # fmt: skip
        return bar

    def _words(self, done: int, total: int) -> str:
        left = self.left(done, total)
        if left is None:
            return ""
        return f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"

    def end(self) -> None:
        if self.terminal and not self.quiet:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """A line that stays, where there is one."""
        if text and not self.quiet:
            self.end()
            print(text, file=sys.stderr, flush=True)

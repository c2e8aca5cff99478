"""Where a sweep is: one line with a bar that rewrites itself on a terminal, a line per change of phase elsewhere."""

from __future__ import annotations

import sys
import time

from bench.heartbeat import PHASES


class Progress:
    """Told of every poll; prints little. The time left comes from what is done of the cells, by their phases."""

    def __init__(self, total: int, quiet: bool = False) -> None:
        self.total, self.quiet = total, quiet
        self.index, self.label, self.phase = 0, "", ""
        self.started = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def begin(self, index: int, label: str) -> None:
        self.index, self.label, self.phase = index, label, ""

    def update(self, phase: str, done: int, total: int) -> None:
        if self.quiet or (not self.terminal and phase == self.phase):
            return
        self.phase = phase
        place = f"[{self.index + 1}/{self.total}] {self.label}: {phase}"
        if not self.terminal:
            print(f"{place}{self._left(phase, done, total)}", file=sys.stderr, flush=True)
            return
        count = f" {done}/{total}" if total else ""
        print(f"\r\033[K{self._bar(f'{place}{count}', phase, done, total)}", end="", file=sys.stderr, flush=True)

    def _done(self, phase: str, done: int, total: int) -> float:
        """Cells that are done, the present one by its phase: all phases count alike, for none is known beforehand."""
        reached = PHASES.index(phase) if phase in PHASES else 0
        return self.index + (reached + (min(done / total, 1.0) if total else 0.0)) / len(PHASES)

    def _bar(self, text: str, phase: str, done: int, total: int) -> str:
        import shutil

        from tqdm import tqdm

        bar: str = tqdm.format_meter(
            self._done(phase, done, total), self.total, time.monotonic() - self.started, prefix=text,
            ncols=shutil.get_terminal_size().columns - 1,  # what is too long is cut off at its end
            bar_format="{percentage:3.0f}% |{bar:16}| {remaining} left {desc}",
        )  # fmt: skip
        return bar

    def _left(self, phase: str, done: int, total: int) -> str:
        """Words for the time that is left, once a whole cell has shown how long one takes."""
        if not self.index:
            return ""
        cells = self._done(phase, done, total)
        left = (time.monotonic() - self.started) / cells * max(self.total - cells, 0.0)
        return f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"

    def end(self) -> None:
        if self.terminal and not self.quiet:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """A line that stays, where there is one."""
        if text and not self.quiet:
            self.end()
            print(text, file=sys.stderr, flush=True)

"""Where a sweep is: one line that rewrites itself on a terminal, a line per change of phase elsewhere."""

from __future__ import annotations

import sys
import time


class Progress:
    """Told of every poll; prints little. ETA comes from the cells that are done."""

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
        count = f" {done}/{total}" if total and self.terminal else ""
        text = f"[{self.index + 1}/{self.total}] {self.label}: {phase}{count}{self._eta()}"
        if self.terminal:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def _eta(self) -> str:
        if not self.index:
            return ""
        left = (time.monotonic() - self.started) / self.index * (self.total - self.index)
        return f", about {left / 60:.0f} min left" if left >= 90 else f", about {left:.0f} s left"

    def end(self) -> None:
        if self.terminal and not self.quiet:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """A line that stays, where there is one."""
        if text and not self.quiet:
            self.end()
            print(text, file=sys.stderr, flush=True)

"""What starts the ranks of a configuration: one small module per engine behind this interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Launcher(Protocol):
    """An engine. The worker does not know which one started it: all set RANK, WORLD_SIZE, LOCAL_RANK and where to
    meet, and record exit codes with `bench.launch.exits` where they see them."""

    def command(self, ranks: int, module: str, arguments: Sequence[str]) -> list[str]:
        """The command that runs `module.main(arguments)` on every rank, and ends when they have ended.

        It ends its ranks when it is terminated.
        """
        ...

"""What starts the ranks of a configuration: one small module per engine behind this interface."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol


def free_port() -> int:
    """A port of this host that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


class Launcher(Protocol):
    """An engine. The worker does not know which one started it: all set RANK, WORLD_SIZE, LOCAL_RANK and where to
    meet, and record exit codes with `bench.launch.exits` where they see them."""

    def command(self, ranks: int, module: str, arguments: Sequence[str]) -> list[str]:
        """The command that runs `module.main(arguments)` on every rank, and ends when they have ended.

        It ends its ranks when it is terminated.
        """
        ...

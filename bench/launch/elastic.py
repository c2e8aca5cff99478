"""Ranks on this host through torchrun's elastic agent: it finds its own free port and ends all when one fails."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bench.launch.exits import record
from bench.process.process_exit import end


def command(processes: int, module: str, arguments: Sequence[str]) -> list[str]:
    """The command line that runs `python -m module arguments` on every rank."""
    return [sys.executable, "-m", "bench.launch.elastic", str(processes), module, *arguments]


def main(arguments: Sequence[str]) -> int:
    """Run the ranks; 1 when one failed, after its exit code went to the supervisor."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    processes, module, *rest = arguments
    flags = ["--standalone", f"--nproc-per-node={processes}", "-m", module, *rest]
    try:
        run.run(run.parse_args(flags))
    except ChildFailedError as error:
        record({rank: failure.exitcode for rank, failure in error.failures.items()})
        print(error, file=sys.stderr)
        return 1
    except SignalException as ended:  # by the supervisor, which knows why
        return 128 + int(ended.sigval)
    return 0


if __name__ == "__main__":
    end(main(sys.argv[1:]))

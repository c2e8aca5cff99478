"""What is wrong with what a command was given: one line for its user and exit status 2, never a traceback."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable, Sequence
from functools import wraps

from rules.models import ModelError

Command = Callable[[Sequence[str]], int]
NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


class Problem(ValueError):
    """What the user can mend. The message is one line that names it; `status` is the command's exit status."""

    status = 2


class InputError(Problem):
    """A path, file or text that cannot be used; the message names it, and the field where there is one."""


def in_one_line(main: Command) -> Command:
    """A command whose problems, and files that cannot be read or written, are one line on standard error."""
    name = main.__module__.rpartition(".")[2].replace("_", "-")

    @wraps(main)
    def command(arguments: Sequence[str]) -> int:
        try:
            return main(arguments)
        except (Problem, ModelError) as problem:
            print(f"bench {name}: {problem}", file=sys.stderr)
            return problem.status if isinstance(problem, Problem) else Problem.status
        except OSError as error:
            if isinstance(error, BrokenPipeError) or error.errno in NOT_WRITTEN:
                raise  # output that nobody takes is the affair of all commands
            file = f"{error.filename}: " if error.filename else ""
            print(f"bench {name}: {file}{error.strerror or error}", file=sys.stderr)
            return Problem.status

    return command

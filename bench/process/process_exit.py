"""How a process of ours ends once its work is done. Imports nothing of torch."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def end(status: int) -> NoReturn:
    """End this process now, with what it printed written out.

    Backends' exit hooks have nothing left to do once the group is gone, and some of them hang.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

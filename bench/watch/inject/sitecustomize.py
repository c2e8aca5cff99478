"""Imported by every Python of a watched job as it starts: begins to watch, then gives way to the `sitecustomize` that
would have been imported without it."""

from __future__ import annotations

import os
import sys


def _watch() -> None:
    """Nothing that goes wrong in here may disturb the program."""
    try:
        meshproof_rank = __import__("meshproof_rank")

        meshproof_rank.begin()
    except Exception:
        pass


def _give_way() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    own = sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if own is not None:  # the import system looks for what it has just loaded
            sys.modules.setdefault("sitecustomize", own)


if os.environ.get("MESHPROOF_WATCH"):
    _watch()
_give_way()

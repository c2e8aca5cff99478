"""Imported by every Python of a watched job as it starts: begins to watch, then gives way to the `sitecustomize` that
would have been imported without it. Any Python at all reads this file; what it cannot run is passed over."""

import os
import sys

if os.environ.get("MESHPROOF_WATCH"):
    try:  # noqa: SIM105
        __import__("meshproof_rank").begin()
    except Exception:  # nothing that goes wrong in there may disturb the program
        pass

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _here]
_own = sys.modules.pop("sitecustomize", None)
try:
    __import__("sitecustomize")
except ImportError as error:
    if getattr(error, "name", "sitecustomize") != "sitecustomize":
        raise
finally:
    if _own is not None:  # the import system looks for what it has just loaded
        sys.modules.setdefault("sitecustomize", _own)

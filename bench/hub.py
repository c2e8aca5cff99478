"""What is named as on the hub: whether it is here, and whether it can be had, before anything waits for it."""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.parse
import urllib.request
from functools import cache
from pathlib import Path

SECONDS = 3.0
"""To connect; the hub's own client tries for minutes."""


def is_name(text: str) -> bool:
    """Whether a text names something on the hub: `owner/name`, and no path that is there."""
    path = Path(text)
    return bool(re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", text)) and not path.exists() and not path.parent.exists()


def is_cached(name: str, file: str) -> bool:
    """Whether a file of a model on the hub is on this disk."""
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return False
    try:
        return isinstance(try_to_load_from_cache(name, file), str)
    except HFValidationError:
        return False


def missing(name: str, file: str = "") -> str:
    """Why what is named on a hub, known by a file that it has, can be had neither here nor there; "" where it can."""
    if not is_name(name) or (file and is_cached(name, file)):
        return ""
    reason = unreachable()
    return reason and f"not on this disk, and {reason}"


def unreachable() -> str:
    """Why nothing can be had from the hub, "" where it answers."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "on", "yes", "true"):
        return "HF_HUB_OFFLINE is set"
    from huggingface_hub import constants

    return _problem(constants.ENDPOINT)


@cache
def _problem(endpoint: str) -> str:
    """Of a connection to the hub, through a proxy where the environment names one."""
    try:
        urllib.request.urlopen(endpoint, timeout=SECONDS).close()
    except urllib.error.HTTPError:
        pass  # an answer
    except OSError as error:
        reason, host = getattr(error, "reason", error), urllib.parse.urlsplit(endpoint).hostname
        return f"{host} cannot be reached: {getattr(reason, 'strerror', None) or reason}"
    return ""

"""The validator as bench asks it: another process, which reads files and runs none of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.launch.local import search_path
from bench.problems import Problem

SECONDS = 600
PATIENCE = 3.0


class ValidatorError(Problem):
    """The validator could not read what it was given; the message is one line."""


def findings(paths: Sequence[str], folder: Path, *flags: str) -> list[dict[str, Any]]:
    """Findings as in the validator's JSON report, with paths relative to `folder`, where it is run. A large tree takes
    minutes: what is read is said on standard error after `PATIENCE` seconds.

    Raises `ValidatorError`.
    """
    command = [sys.executable, "-m", "validator", "--exit-zero", "--format", "json", *flags, *paths]
    told = f"reading the Python files of {(folder / paths[0]).resolve()}; a smaller --source takes less time"
    telling = threading.Timer(PATIENCE, print, [told], {"file": sys.stderr, "flush": True})
    telling.start()
    # A module of the tree with the name of one of ours must not be imported: the working folder is no path.
    environment = {**os.environ, "PYTHONPATH": search_path(), "PYTHONSAFEPATH": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=True, env=environment
        )
        found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    except subprocess.CalledProcessError as error:
        reason = (error.stderr or "").strip().splitlines() or [f"exit status {error.returncode}"]
        raise ValidatorError(f"{folder}: {reason[-1]}") from None
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        raise ValidatorError(f"{folder}: the validator did not answer: {error}") from None
    finally:
        telling.cancel()
    return found

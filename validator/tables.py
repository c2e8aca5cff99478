"""Reads the TOML tables that ship beside the code or that a user names."""

from __future__ import annotations

import sys
from typing import Any


def load_toml(path: str) -> dict[str, Any]:
    """The content of a TOML file. Raises OSError, or ValueError with the path in its text."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    with open(path, "rb") as file:
        try:
            return tomllib.load(file)
        except ValueError as error:
            raise ValueError(f"{path}: not valid TOML: {error}") from error

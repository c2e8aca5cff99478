"""Packages of which every module is an entry of its own: adding one is adding a file."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any


def modules(package: str, path: Iterable[str]) -> dict[str, Any]:
    """The modules of a package, given its `__name__` and `__path__`, by name."""
    return {one.name: importlib.import_module(f"{package}.{one.name}") for one in pkgutil.iter_modules(path)}

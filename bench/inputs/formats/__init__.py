"""Formats of data sets: one module each, found by itself, with `SUFFIXES` and `rows(path)`, an iterator of objects."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

Rows = Callable[[Path], Iterator[Mapping[str, Any]]]


@cache
def readers() -> Mapping[str, Rows]:
    """What reads a file, by its suffix."""
    modules = [importlib.import_module(f"{__name__}.{found.name}") for found in pkgutil.iter_modules(__path__)]
    return {suffix: module.rows for module in modules for suffix in module.SUFFIXES}

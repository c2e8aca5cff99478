"""Formats of data sets: one module each, found by itself, with `SUFFIXES` and `rows(path)`, an iterator of objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from bench import registry

Rows = Callable[[Path], Iterator[Mapping[str, Any]]]


@cache
def readers() -> Mapping[str, Rows]:
    """What reads a file, by its suffix."""
    modules = registry.modules(__name__, __path__).values()
    return {suffix: module.rows for module in modules for suffix in module.SUFFIXES}

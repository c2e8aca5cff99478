"""Reads the TOML tables that ship beside the code or that a user names."""

from __future__ import annotations

import re
import sys
from typing import Any, ClassVar

from validator.run.cache import Cache, digest

MAX_TOML = 1_000_000  # bytes
_MAX_DOTS = 200
_QUOTED = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")


def too_dotted(text: str) -> bool:
    """Whether a key may have hundreds of parts: the parser takes quadratic time and memory for such."""
    for line in text.split("\n"):
        if line.count(".") > _MAX_DOTS:
            parts = re.split(r"[=,\[\]{}#]", _QUOTED.sub("_", line))
            if any(part.count(".") > _MAX_DOTS for part in parts):
                return True
    return False


def parse_toml(path: str, data: bytes) -> dict[str, Any]:
    """The content of a TOML file that somebody wrote. Raises ValueError with the path in its text."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if len(data) > MAX_TOML:
        raise ValueError(f"{path}: larger than {MAX_TOML // 1000} kB; such a file is not read")
    try:
        text = data.decode("utf-8")
        if text.startswith("\ufeff"):
            raise ValueError("it begins with a byte-order mark; save it as UTF-8 without one")
        if too_dotted(text):
            raise ValueError(f"a key of more than {_MAX_DOTS} parts")
        document: dict[str, Any] = tomllib.loads(text)
    except ValueError as error:
        raise ValueError(f"{path}: not valid TOML: {error}") from error
    except RecursionError:
        raise ValueError(f"{path}: not valid TOML: nested too deeply") from None
    return document


def load_toml(path: str) -> dict[str, Any]:
    """The content of a TOML file. Raises OSError, or ValueError with the path in its text."""
    from validator.files.reading import regular

    data = regular(path, MAX_TOML + 1)
    if _Known.cache is None:
        return parse_toml(path, data)
    key = digest(data)
    table = _Known.cache.table(key)
    if table is None:
        table = parse_toml(path, data)
        _Known.cache.save_table(key, table)
    return table


class _Known:
    """Where tables that were read before are kept: the standard library's parser is slow, and to import too."""

    cache: ClassVar[Cache | None] = None


def keep_in(cache: Cache | None) -> None:
    """Keep the content of the tables that are read from now on in a cache, or in none."""
    _Known.cache = cache

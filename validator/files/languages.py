"""The kinds of files that are read, by suffix. One more line is one more kind of file."""

from __future__ import annotations

import os

# By suffix, the language whose facts are extracted.
LANGUAGES = {
    ".py": "python", ".pyi": "python", ".pyw": "python",
    ".sh": "shell", ".bash": "shell", ".slurm": "shell", ".sbatch": "shell",
    ".yaml": "yaml", ".yml": "yaml", ".json": "json", ".conf": "json", ".toml": "toml",
}  # fmt: skip

CONFIGURATION = frozenset({"yaml", "json", "toml"})
"""Languages of configuration files: what cannot be read as one is data, and no finding."""

SETTINGS = tuple(suffix for suffix, kind in LANGUAGES.items() if kind in CONFIGURATION)
"""Their suffixes."""

MAX_CONFIGURATION = 400_000  # bytes; larger ones are data sets and lock files


def language(path: str) -> str:
    """The language of a path; one without a known suffix is a script named by hand, for now of Python."""
    return LANGUAGES.get(os.path.splitext(path)[1].lower(), "python")


def has_suffix(path: str) -> bool:
    """Whether the suffix of a path tells its language."""
    return os.path.splitext(path)[1].lower() in LANGUAGES

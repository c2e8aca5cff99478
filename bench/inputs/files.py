"""Files of recorded batches, listed without torch."""

from __future__ import annotations

from pathlib import Path

from bench.configuration import ConfigurationError

SUFFIXES = (".pkl", ".pickle", ".pt", ".pth", ".safetensors")


def list_inputs(path: Path) -> list[Path]:
    """Files of a directory in the order of their names, or the one file given. Raises `ConfigurationError`."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigurationError(f"{path}: no such file or directory")
    files = sorted(entry for entry in path.iterdir() if entry.suffix in SUFFIXES and entry.is_file())
    if not files:
        raise ConfigurationError(f"{path}: holds no {', '.join(SUFFIXES)} file")
    return files

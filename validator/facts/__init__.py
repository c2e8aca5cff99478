"""Source text to facts: pure functions, one module per language, no knowledge of any rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.languages import CONFIGURATION, language

if TYPE_CHECKING:
    from validator.facts.model import FileFacts
    from validator.source import SourceFile


def extract(source: SourceFile) -> FileFacts:
    """The facts of a file, by the extractor of its language. Only that extractor is imported."""
    kind = language(source.path)
    if kind == "shell":
        from validator.facts import shell

        return shell.extract(source)
    if kind in CONFIGURATION:
        from validator.facts import config_files

        return config_files.extract(source, kind)
    from validator.facts import python

    return python.extract(source)

"""Source text to facts: pure functions, one module per language, no knowledge of any rule."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from validator.files.languages import CONFIGURATION, has_suffix, language

_SHELL = re.compile(rb"#!\s*\S*/(?:env\s+(?:-S\s+)?)?(?:ba|da|z)?sh\b")

if TYPE_CHECKING:
    from validator.facts.model import FileFacts
    from validator.source import SourceFile


def extract(source: SourceFile) -> FileFacts:
    """The facts of a file, by the extractor of its language. Only that extractor is imported."""
    kind = language(source.path)
    if kind == "python" and not has_suffix(source.path) and _SHELL.match(source.data):
        kind = "shell"
    if kind == "shell":
        from validator.facts import shell

        return shell.extract(source)
    if kind in CONFIGURATION:
        from validator.facts import config_files

        return config_files.extract(source, kind)
    from validator.facts import python

    return python.extract(source)

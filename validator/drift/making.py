"""Makes the `Change` of a run: its files as they are, and as they were."""

from __future__ import annotations

from typing import Any

from validator.drift.change import Change, Side
from validator.drift.revision import Older
from validator.source import SourceFile


def compared(sources: list[SourceFile], older: Older, config: Any) -> Change:
    """The change from another revision to the files of a run; files that did not change are shared."""
    before = []
    for source in sources:
        if source.absolute not in older.files:
            before.append(source)
        elif (data := older.files[source.absolute]) is not None:
            before.append(SourceFile(source.path, source.absolute, data))
    for absolute, path in older.gone.items():
        before.append(SourceFile(path, absolute, older.files[absolute] or b""))
    return Change(Side(before, config), Side(sources, config), older.files, older.said)

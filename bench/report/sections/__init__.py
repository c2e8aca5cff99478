"""What a report is made of: one module per section, found by itself, shown in the order of `PLACE`.

A module here has `TITLE` and may have `content(found)`, what it shows of a collection, nothing where there is nothing;
without it that is the rows. Of that it may make `table(content) -> Table`, for text, Markdown and the page;
`text(content, style, wide) -> str` where a table is not enough; `data(content)` for JSON, under `KEY`; and `TEMPLATE`,
the name of a file beside it, for the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bench import registry
from bench.report.rows import Collection
from bench.terminal.text import NUMBER


class Table(NamedTuple):
    """Cells of text; `note` says how to read them."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @property
    def numbers(self) -> list[bool]:
        """Of each column, whether it holds nothing but numbers."""
        return [all(map(NUMBER.fullmatch, column)) for column in zip(*self.rows, strict=True)]


class Section(NamedTuple):
    """A section that has something to show."""

    name: str
    module: Any
    content: Any

    @property
    def title(self) -> str:
        return str(self.module.TITLE)

    @property
    def template(self) -> str | None:
        return getattr(self.module, "TEMPLATE", None)

    @property
    def table(self) -> Table | None:
        made: Table | None = self.module.table(self.content) if hasattr(self.module, "table") else None
        return made


@cache
def _modules() -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(registry.modules(__name__, __path__).items(), key=lambda pair: pair[1].PLACE))


def of(found: Collection) -> list[Section]:
    """The sections of a collection."""
    made = (Section(n, m, m.content(found) if hasattr(m, "content") else found.rows) for n, m in _modules())
    return [section for section in made if section.content]


def names() -> list[str]:
    """The names under which sections stand in JSON."""
    return [module.KEY for _, module in _modules() if hasattr(module, "KEY")]


def folders() -> list[Path]:
    """Where templates of sections lie."""
    return [Path(folder) for folder in __path__]

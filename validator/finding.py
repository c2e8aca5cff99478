"""A finding, the fix it may carry, and how severe it is: the vocabulary of every report."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Severity = Literal["error", "warning", "note"]
Safety = Literal["safe", "unsafe"]


class Span(NamedTuple):
    """A half-open stretch of source text: lines and columns count from 1, columns in characters."""

    line: int
    column: int
    end_line: int
    end_column: int


class Edit(NamedTuple):
    """Replace the text of `span` by `text`."""

    span: Span
    text: str


class Fix(NamedTuple):
    """Edits that, applied together, remove a finding. `safe` keeps the program's meaning."""

    safety: Safety
    message: str
    edits: tuple[Edit, ...]


class Related(NamedTuple):
    """Another place that explains a finding: the sibling, the caller, the definition."""

    path: str
    line: int
    message: str


class Finding(NamedTuple):
    """One defect at one place.

    `path` is relative to the root of the run with forward slashes. `context` is what identifies the
    finding when lines move (a qualified name, an attribute): it feeds baseline and SARIF fingerprints.
    """

    code: str
    name: str
    severity: Severity
    path: str
    span: Span
    message: str
    help: str = ""
    related: tuple[Related, ...] = ()
    fix: Fix | None = None
    context: str = ""

    def sort_key(self) -> tuple[Any, ...]:
        return (self.path, self.span, self.code, self.message)

"""A finding, the fix it may carry, and how severe it is: the vocabulary of every report."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")  # the gravest first
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


def speaks_of_change(finding: Finding) -> bool:
    """Whether a finding is of a rule that compares two revisions."""
    return finding.code.startswith("MP9")


def is_finding(value: object) -> bool:
    """Whether a value is a finding through and through: it may come from a rule of a user, or from a cache."""
    if not isinstance(value, Finding):
        return False
    texts = (value.code, value.name, value.path, value.message, value.help, value.context)
    return (
        all(isinstance(text, str) for text in texts)
        and value.severity in ("error", "warning", "note")
        and _is_span(value.span)
        and isinstance(value.related, tuple)
        and all(isinstance(each, Related) and _fits(each, (str, int, str)) for each in value.related)
        and (value.fix is None or is_fix(value.fix))
    )


def is_fix(value: object, first: int = 1) -> bool:
    """Whether a value is a fix through and through. `first`: the least line, 0 where lines count from a statement."""
    return (
        isinstance(value, Fix)
        and value.safety in ("safe", "unsafe")
        and isinstance(value.message, str)
        and isinstance(value.edits, tuple)
        and bool(value.edits)
        and all(isinstance(e, Edit) and _is_span(e.span, first) and isinstance(e.text, str) for e in value.edits)
    )


def _is_span(value: object, first: int = 1) -> bool:
    return isinstance(value, Span) and _fits(value, (int,) * 4) and min(value) >= first


def _fits(values: tuple[object, ...], kinds: tuple[type, ...]) -> bool:
    return len(values) == len(kinds) and all(map(isinstance, values, kinds))

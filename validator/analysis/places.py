"""Where a function stands: what kind of folder, inside which functions, and its own words."""

from __future__ import annotations

from validator.facts.model import Assign, At, Call
from validator.project import Method


def outermost(function: Method) -> Method:
    """The function that holds this one and is held by none."""
    while function.enclosing is not None and function.enclosing.qualname != "<module>":
        function = function.enclosing
    return function


def text_of(function: Method) -> str:
    """The source of a function; of the whole file for the top level of a module."""
    first, _, last, _ = function.facts.at
    return "\n".join(function.module.source_text.lines[first - 1 : last])


def within(inner: At, outer: At) -> bool:
    """Whether one place lies inside another."""
    return outer[:2] <= inner[:2] and inner[2:] <= outer[2:]


def call_bound(function: Method, row: Assign) -> Call | None:
    """The call whose result an assignment binds."""
    if row.kind != "call" and not row.kind.startswith("unpack"):
        return None
    return next((c for c in function.facts.calls if c.target == row.value and within(c.at, row.at)), None)

"""The formats of a report: one module each, with `render(report) -> str`; imported only when asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from validator.finding import Finding

if TYPE_CHECKING:
    from validator.rule import LoadedRule


class Report(NamedTuple):
    """What a format may use. `lines`: those of a reported path; `rules`: loads the registry on demand."""

    findings: list[Finding]
    summary: dict[str, Any]
    lines: Callable[[str], list[str]]
    rules: Callable[[], list[LoadedRule]]
    color: bool = False


_OBEYED = "##["


def render(style: str, report: Report) -> str:
    """A report in one of `validator.run.config.FORMATS`."""
    from importlib import import_module

    text: str = import_module(f"validator.output.{style}").render(report)
    return text


def clean(text: str) -> str:
    """A text from the tree as it may reach a terminal or a build log: one line, with nothing in it that is obeyed.

    Escape sequences, direction marks and other characters without a picture become escapes, and so does `##[`,
    which GitHub's runner takes for a command wherever it stands in a line.
    """
    if _OBEYED in text:
        text = text.replace(_OBEYED, "##\\x5b")
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def whole(text: str) -> str:
    """A text for a program: unchanged, but for the half characters of undecodable file names.

    JSON can spell them, and many of its readers refuse the whole document then.
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _escaped(char: str) -> str:
    code = ord(char)
    return "\\t" if char == "\t" else f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def tally(summary: dict[str, Any]) -> str:
    """`2 errors and 1 warning in 65 files (3 suppressed)`."""
    parts = [_count(summary[kind], kind[:-1]) for kind in ("errors", "warnings", "notes") if summary[kind]]
    files = _count(summary["files"], "file")
    if not parts:
        text = f"no findings in {files}"
    else:
        text = (", ".join(parts[:-1]) + " and " if len(parts) > 1 else "") + parts[-1] + f" in {files}"
    aside = [f"{summary[kind]} {kind}" for kind in ("suppressed", "baselined") if summary[kind]]
    return text + (f" ({', '.join(aside)})" if aside else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

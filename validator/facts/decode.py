"""Bytes to text by PEP 263, and the defects of a file that come before its grammar."""

from __future__ import annotations

import codecs
import re

from validator.facts.model import Problem

_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_CONFLICT = re.compile(r"^(<{7}|>{7}|\|{7})( |$)|^={7}$", re.MULTILINE)


def encoding_of(data: bytes) -> str:
    """The declared encoding: byte-order mark, else the coding comment of the first two lines, else UTF-8."""
    if data.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    for line in data.split(b"\n", 2)[:2]:
        if match := _CODING.match(line):
            return match[1].decode("ascii", "replace")
        if line.strip() and not line.lstrip().startswith(b"#"):
            break
    return "utf-8"


def decode(data: bytes) -> tuple[str, Problem | None]:
    """The text of a file with line feeds only, and what was wrong with its bytes."""
    encoding = encoding_of(data)
    problem = None
    try:
        text = data.decode(encoding)
    except LookupError:
        problem = Problem("encoding", 1, 1, f"unknown encoding {encoding!r} in the coding comment")
        text = data.decode("utf-8", "replace")
    except ValueError as error:
        start = getattr(error, "start", 0)
        line = data.count(b"\n", 0, start) + 1
        problem = Problem("encoding", line, 1, f"byte 0x{data[start]:02x} is not valid {encoding}")
        text = data.decode("utf-8", "replace")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if problem is None and "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        problem = Problem("nul", line, 1, "the file holds NUL bytes")
    return text, problem


def conflict_marker(text: str) -> Problem | None:
    """The first merge-conflict marker of a text, if it has a pair of them."""
    if "<<<<<<<" not in text or ">>>>>>>" not in text:
        return None
    match = _CONFLICT.search(text)
    if match is None:
        return None
    return Problem("conflict", text.count("\n", 0, match.start()) + 1, 1, "merge-conflict marker")

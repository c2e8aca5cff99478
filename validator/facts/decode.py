"""Bytes to text by PEP 263, and the defects of a file that come before its grammar."""

from __future__ import annotations

import codecs
import re
import warnings

from validator.facts.model import Problem

_CODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_CONFLICT = re.compile(r"^(<{7}|>{7}|\|{7})( |$)|^={7}$", re.MULTILINE)


def encoding_of(data: bytes) -> str:
    """The declared encoding: byte-order mark, else the coding comment of the first two lines, else UTF-8."""
    if data.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    return _declared(data) or "utf-8"


def _declared(data: bytes) -> str | None:
    """The encoding that a coding comment names, with the variants that Python takes for UTF-8 and Latin-1."""
    for line in data.removeprefix(codecs.BOM_UTF8).split(b"\n", 2)[:2]:
        if match := _CODING.match(line):
            name = match[1].decode("ascii", "replace")
            common = name[:12].lower().replace("_", "-")
            for family in ("utf-8", "latin-1", "iso-8859-1", "iso-latin-1"):
                if common == family or common.startswith(family + "-"):
                    return family
            return name
        if line.strip() and not line.lstrip().startswith(b"#"):
            break
    return None


def decode(data: bytes) -> tuple[str, Problem | None]:
    """The text of a file with line feeds only, and what was wrong with its bytes."""
    encoding = encoding_of(data)
    problem = None
    try:
        text = _decoded(data, encoding)
    except LookupError:
        problem = Problem("encoding", 1, 1, f"unknown encoding {encoding!r} in the coding comment")
        text = data.decode("utf-8", "replace")
    except ValueError as error:
        start = getattr(error, "start", 0)
        line = data.count(b"\n", 0, start) + 1
        problem = Problem("encoding", line, 1, f"byte 0x{data[start]:02x} is not valid {encoding}")
        text = data.decode("utf-8", "replace")
    if encoding == "utf-8-sig" and problem is None and _declared(data) not in (None, "utf-8"):
        what = f"declared as {_declared(data)}, but it begins with the byte-order mark of UTF-8"
        problem = Problem("encoding", 1, 1, what)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if problem is None and "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        problem = Problem("nul", line, 1, "the file holds NUL bytes")
    return text, problem


def _decoded(data: bytes, encoding: str) -> str:
    if encoding.startswith("utf-8"):
        return data.decode(encoding)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some codecs warn of what they decode; that is not ours to print
        return data.decode(encoding)


def conflict_marker(text: str) -> Problem | None:
    """The first merge-conflict marker of a text, if it has a pair of them."""
    if "<<<<<<<" not in text or ">>>>>>>" not in text:
        return None
    match = _CONFLICT.search(text)
    if match is None:
        return None
    return Problem("conflict", text.count("\n", 0, match.start()) + 1, 1, "merge-conflict marker")

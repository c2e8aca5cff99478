"""`--add-ignore`: puts a suppression beside each finding without changing what the file means."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings

from validator.facts.decode import encoding_of
from validator.finding import Finding

REASON = "was here before the validator"

_OURS = re.compile(r"(#\s*validator:\s*ignore\s*\[)([^\]]*)\]")
_NEWLINE = re.compile("\r\n|\r|\n")


def silenced(data: bytes, findings: list[Finding], reason: str) -> tuple[bytes, int]:
    """The bytes of a file with comments that silence the findings, and how many findings they silence.

    A finding in a file that cannot be parsed, or where no comment can stand, is left.
    """
    encoding = encoding_of(data)
    try:
        text = data.decode(encoding)
        tree = _tree(text)
    except (ValueError, LookupError, SyntaxError, RecursionError, MemoryError):
        return data, 0
    if tree is None:
        return data, 0
    codes: dict[int, list[str]] = {}
    ends = _statement_ends(text)
    for finding in findings:
        codes.setdefault(ends.get(finding.span.line, finding.span.line), []).append(finding.code)
    count = 0
    for line in sorted(codes, reverse=True):
        changed = _with_comment(text, line, sorted(set(codes[line])), reason)
        if changed is not None and _tree(changed) == tree:
            text = changed
            count += len(codes[line])
    try:
        return text.encode(encoding), count
    except UnicodeEncodeError:  # a reason that the encoding of the file cannot hold
        return data, 0


def _tree(text: str) -> str | None:
    """The syntax tree without positions, to compare."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.dump(ast.parse(_NEWLINE.sub("\n", text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _statement_ends(text: str) -> dict[int, int]:
    """For each physical line the last one of its statement: a comment there speaks for all of it."""
    ends: dict[int, int] = {}
    first = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(_NEWLINE.sub("\n", text)).readline):
            if token.type == tokenize.NEWLINE:
                ends.update(dict.fromkeys(range(first or token.start[0], token.start[0] + 1), token.start[0]))
                first = 0
            elif not first and token.type not in (
                tokenize.NL,
                tokenize.COMMENT,
                tokenize.INDENT,
                tokenize.DEDENT,
            ):
                first = token.start[0]
    except (tokenize.TokenError, SyntaxError):
        pass
    return ends


def _with_comment(text: str, line: int, codes: list[str], reason: str) -> str | None:
    """The text with the codes silenced on a line: added to the comment that is there, or in a new one."""
    starts = [0, *(match.end() for match in _NEWLINE.finditer(text)), len(text)]
    if line >= len(starts):
        return None
    begin, stop = starts[line - 1], starts[line]
    whole = text[begin:stop]
    bare = whole.rstrip("\r\n")
    match = _OURS.search(bare)
    if match is not None:
        known = [part.strip() for part in match[2].split(",") if part.strip()]
        merged = ", ".join([*known, *(code for code in codes if code not in known)])
        new = f"{bare[: match.start()]}{match[1]}{merged}]{bare[match.end() :]}"
    else:
        new = f"{bare.rstrip()}  # validator: ignore[{', '.join(codes)}] {reason}"
    return text[:begin] + new + whole[len(bare) :] + text[stop:]

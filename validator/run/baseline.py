"""The baseline: findings that were there before, so that only new ones are reported.

A finding is known by its file, its rule and a hash of its context (the text of its line and the name it is
about), and *counted*: two alike are known, the third is new. Lines may move; they are not part of it. Paths
are relative to the folder of the baseline file, so that it holds from every working directory.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable

from validator.errors import UsageError
from validator.finding import Finding
from validator.run.config import read_regular

Lines = Callable[[str], list[str]]
Key = tuple[str, str, str]


def context_hash(finding: Finding, lines: Lines) -> str:
    """16 hexadecimal digits for what a finding is about, wherever in its file it stands."""
    texts = lines(finding.path)
    line = texts[finding.span.line - 1] if 0 < finding.span.line <= len(texts) else ""
    text = f"{finding.context}\0{' '.join(line.split())}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _key(finding: Finding, folder: str, lines: Lines) -> Key:
    path = os.path.relpath(os.path.abspath(finding.path), folder).replace(os.sep, "/")
    return path, finding.code, context_hash(finding, lines)


def without_known(path: str, findings: list[Finding], lines: Lines) -> list[Finding]:
    """The findings that the baseline does not know, in order. Raises UsageError."""
    left = _read(path)
    folder = os.path.dirname(os.path.abspath(path))
    new = []
    for finding in findings:
        key = _key(finding, folder, lines)
        if left[key] > 0:
            left[key] -= 1
        else:
            new.append(finding)
    return new


def write(path: str, findings: list[Finding], lines: Lines, read: Iterable[str] = ()) -> int:
    """Write the findings as the new baseline; how many it holds of the files read. Raises UsageError.

    `read` are the files of this run. What the old baseline knows of other files that still exist is kept: a run
    over a part of the tree says nothing of the rest.
    """
    from validator.files import writing

    folder = os.path.dirname(os.path.abspath(path))
    counts = Counter(_key(finding, folder, lines) for finding in findings)
    if os.path.exists(path):  # what is not a baseline of ours is not overwritten: reading it raises
        seen = {os.path.relpath(os.path.abspath(name), folder).replace(os.sep, "/") for name in read}
        for key, count in _read(path).items():  # a rule about changes may report on a file that is not among them
            if key[0] not in seen and os.path.exists(os.path.join(folder, key[0])):
                counts[key] = max(counts[key], count)
    document: dict[str, dict[str, dict[str, int]]] = {}
    for (name, code, context), count in sorted(counts.items()):
        document.setdefault(name, {}).setdefault(code, {})[context] = count
    text = json.dumps({"version": 1, "findings": document}, indent=2) + "\n"
    try:
        writing.replace(path, text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise UsageError(f"{path}: the baseline cannot be written: {error.strerror}") from error
    return len(findings)


def _read(path: str) -> Counter[Key]:
    try:
        document = json.loads(read_regular(path).decode("utf-8", "surrogateescape"))
    except FileNotFoundError:
        raise UsageError(f"{path}: the baseline does not exist; --update-baseline makes it") from None
    except OSError as error:
        raise UsageError(f"{path}: the baseline cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: the baseline is not JSON: {error}") from error
    except RecursionError:
        raise UsageError(f"{path}: not a baseline of this program: nested too deeply") from None
    try:
        if document["version"] != 1:
            raise UsageError(f"{path}: a baseline of version {document['version']}; this program reads version 1")
        return Counter({
            (name, code, context): int(count)
            for name, codes in document["findings"].items()
            for code, contexts in codes.items()
            for context, count in contexts.items()
        })  # fmt: skip
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise UsageError(f"{path}: not a baseline of this program; remove it or name another file") from error

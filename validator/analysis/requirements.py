"""Which versions of a package a project admits, by what it declares beside its code."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from validator.files.reading import regular
from validator.project import Project

_FILES = re.compile(
    r"pyproject\.toml|setup\.py|setup\.cfg|[\w.-]*requirements[\w.-]*\.(?:txt|in)|environment[\w.-]*\.ya?ml"
)
_PROSE = re.compile(r"(?:readme|install\w*)[\w.-]*\.(?:md|rst|txt)", re.IGNORECASE)  # asked where no such file is
_FOLDERS = ("", "requirements")
_MARKERS = (".git", ".hg")  # a checkout ends here
_LONGEST = 400_000
_ANOTHER = re.compile(r"\s+(?=[A-Za-z])")  # the next package on a line: `pip install torch==2.4 trl==0.9`
_COMPARED = re.compile(r"(==|>=|<=|~=|!=|\^|<|>|=)\s*v?([0-9]{1,9}(?:\.[0-9]{1,9})*)")

Version = tuple[int, ...]


class Range(NamedTuple):
    """The versions that one declaration admits: from the first on, below the second; None where there is no bound."""

    low: Version | None
    high: Version | None

    def has_release(self, release: tuple[int, int]) -> bool:
        """Whether some version of a minor release is admitted."""
        major, minor = release
        return (self.low is None or self.low < (major, minor + 1)) and (
            self.high is None or self.high > (major, minor) and self.high != (major, minor, 0)
        )


_ANY = Range(None, None)


class Requirements:
    """Answers by folder, remembered."""

    def __init__(self, project: Project) -> None:
        self._known: dict[tuple[str, str], tuple[Range, ...]] = {}

    def oldest(self, package: str, path: str) -> Version | None:
        """The lower bound that holds for a file (absolute path); None where nothing says any."""
        return min((each.low for each in self.admitted(package, path) if each.low is not None), default=None)

    def admitted(self, package: str, path: str) -> tuple[Range, ...]:
        """What the nearest declarations of a package above a file (absolute path) admit, each on its own; empty where
        there is none."""
        return self._folder(package, os.path.dirname(path))

    def _folder(self, package: str, folder: str) -> tuple[Range, ...]:
        key = (package, folder)
        if key not in self._known:
            found = tuple(each for file in _declaring(folder) for each in _declared(package, file))
            told = (each for file in _telling(folder) for each in _declared(package, file) if each != _ANY)
            found = found or tuple(told)
            parent = os.path.dirname(folder)
            ends = parent == folder or any(os.path.exists(os.path.join(folder, m)) for m in _MARKERS)
            self._known[key] = found if found or ends else self._folder(package, parent)
        return self._known[key]


def _declaring(folder: str) -> list[str]:
    """The files of a folder that declare requirements."""
    found: list[str] = []
    for below in _FOLDERS:
        inside = os.path.join(folder, below) if below else folder
        try:
            names = sorted(os.listdir(inside))
        except OSError:
            continue
        found += [
            os.path.join(inside, name) for name in names if _FILES.fullmatch(name) or below and name[-4:] == ".txt"
        ]
    return found


def _telling(folder: str) -> list[str]:
    """The files of a folder, or of its documentation, that tell people what to install."""
    found: list[str] = []
    for inside in (folder, os.path.join(folder, "docs"), os.path.join(folder, "doc")):
        try:
            found += [os.path.join(inside, name) for name in sorted(os.listdir(inside)) if _PROSE.fullmatch(name)]
        except OSError:
            continue
    return found


def _declared(package: str, path: str) -> list[Range]:
    """What one file says: `torch>=2.4,<3`, `torch==2.9.1`, `torch = "^2.4"`, `"torch"`."""
    try:
        text = regular(path, _LONGEST).decode("utf-8", "replace")
    except OSError:
        return []
    name = re.sub(r"[-_.]", "[-_.]", re.escape(package).replace("\\", ""))
    pattern = re.compile(
        rf"(?:^|[\"'`\s]){name}(?:\[[^\]\n]*\])?\s*(?:=\s*[\"'])?\s*\(?((?:[=<>~!^][^\"'`\n;#)]*)?)(?=[\"'`\n;#)\s]|$)",
        re.MULTILINE | re.IGNORECASE,
    )
    bare = path.endswith(".txt") and re.search(
        rf"^{name}(?:\[[^\]\n]*\])?\s*(?:#.*)?$", text, re.MULTILINE | re.IGNORECASE
    )
    told = [_ANOTHER.split(said, maxsplit=1)[0] for said in pattern.findall(text)]
    found = [_range(_COMPARED.findall(said)) for said in told if said.strip()]
    return found + [_ANY] * bool(bare)


def _range(comparisons: list[tuple[str, str]]) -> Range:
    low: Version | None = None
    high: Version | None = None
    for operator, text in comparisons:
        given = tuple(map(int, text.split(".")))
        if operator in ("==", "=", ">=", ">", "~=", "^"):
            low = max(low, given) if low is not None else given
        above = _above(operator, given)
        if above is not None:
            high = min(high, above) if high is not None else above
    return Range(low, high)


def _above(operator: str, given: Version) -> Version | None:
    """The first version that a comparison does not admit any more."""
    if operator in ("==", "=", "<="):
        return (*given[:-1], given[-1] + 1) if len(given) > 2 else (*given, 0, 1) if operator == "<=" else _next(given)
    if operator == "<":
        return given
    if operator == "~=" and len(given) > 1:
        return _next(given[:-1])
    if operator == "^":
        kept = next((index for index, part in enumerate(given) if part), len(given) - 1)
        return _next(given[: kept + 1])
    return None


def _next(given: Version) -> Version:
    return (*given[:-1], given[-1] + 1)

"""Syntax that the oldest Python the project supports cannot read.

What it does
    Reports syntax newer than the lower bound of `requires-python` (pyproject.toml), `python_requires`
    (setup.cfg, setup.py) or `target-python` (our own configuration): quotes, backslashes, comments and line
    breaks inside the expressions of f-strings (3.12), type parameters and `type` (3.12), `except*` and starred
    subscripts (3.11), `match` (3.10), parenthesised context managers (3.9, where it works
    without being documented), `:=` and `/` (3.8).

Why is this bad
    The file is a SyntaxError on a Python that the project promises to support, at the first import of the
    module: on a cluster image with an older Python, often only where one option makes that import happen.

References
    https://peps.python.org/pep-0701/
    https://docs.python.org/3/whatsnew/
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from validator.analysis.oldest_python import OldestPython
from validator.facts.grammar import Feature
from validator.finding import Finding, Related
from validator.project import Project
from validator.rule import Rule
from validator.source import SourceFile

RULE = Rule("MP205", "syntax-too-new", "error", stable_since="0.1.0")


def check_project(project: Project) -> Iterator[Finding]:
    oldest = project.analysis(OldestPython)
    for source in project.files.values():
        features: tuple[Feature, ...] = source.facts.extra.get("newer_syntax", ())
        bound = oldest.of(source.absolute) if features else None
        told: set[str] = set()
        for feature in features:
            if bound is not None and feature.minor > bound.minor and feature.what not in told:
                told.add(feature.what)
                yield _report(source, feature, bound.minor, os.path.relpath(bound.file))
        if not told and source.facts.problem is not None and source.facts.problem.kind == "newer":
            yield _unread(source, max(features, key=lambda f: f.minor))


def _report(source: SourceFile, feature: Feature, minor: int, file: str) -> Finding:
    return RULE.finding(
        source.path,
        (feature.line, feature.column, feature.line, feature.end_column),
        f"{feature.what} needs Python 3.{feature.minor}, but the project supports Python 3.{minor}",
        help=f"write it in a way that Python 3.{minor} reads, or raise the lower bound in {os.path.basename(file)}",
        related=[Related(file, 1, f"declares Python 3.{minor} as the oldest")],
        context=feature.what,
    )


def _unread(source: SourceFile, feature: Feature) -> Finding:
    return RULE.finding(
        source.path,
        (feature.line, feature.column, feature.line, feature.end_column),
        f"cannot be checked: {feature.what} needs Python 3.{feature.minor}, newer than the Python that runs this",
        help="run the validator with that Python",
        context=feature.what,
        severity="note",
    )


_SETUP = '# file: setup.py\nfrom setuptools import setup\n\nsetup(name="m", python_requires=">=3.10")\n'

INCORRECT = (
    _SETUP
    + """# file: m/tp.py
import re


def compile_pattern(pattern):
    return re.compile(f"^{pattern.replace('.', r'\\.')}$")  # error: MP205
""",
    _SETUP
    + """# file: m/config.py
def first[T](items: list[T]) -> T:  # error: MP205
    return items[0]
""",
    _SETUP
    + """# file: m/launch.py
def run(task):
    try:
        task()
    except* ValueError as group:  # error: MP205
        print(group)
""",
)

CORRECT = (
    _SETUP
    + """# file: m/tp.py
def show(pattern, values):
    match pattern:
        case "dots":
            return f"{pattern!r:>{len(values)}} {{\\n}} {values['a']}\\n"
    # f"{pattern.replace('.', '\\.')}"
    return '''{f"{x["a"]}"}'''
""",
    """# no lower bound is declared
def show(pattern):
    match pattern:
        case "dots":
            return (n := len(pattern))
""",
)

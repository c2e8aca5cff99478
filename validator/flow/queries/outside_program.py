"""Which files are no part of the program: shown to people, run by hand, or somebody else's."""

from __future__ import annotations

from functools import cache

_FOLDERS = frozenset({
    "example", "examples", "benchmark", "benchmarks", "bench", "demo", "demos", "doc", "docs", "script", "scripts",
    "tool", "tools", "tutorial", "tutorials", "notebooks", "manim_animations", "ci", "docker", "legacy", "third_party",
})  # fmt: skip
_TESTS = frozenset({"test", "tests", "testing", "unit_tests", "functional_tests"})

_FOREIGN = frozenset({"third_party", "thirdparty", "vendor", "vendored", "_vendor", "3rdparty"})


@cache
def is_foreign(path: str) -> bool:
    """Whether a file is a copy of somebody else's code."""
    return not _FOREIGN.isdisjoint(path.split("/")[:-1])


@cache
def is_aside(path: str) -> bool:
    """Whether a file is a test, an example, a benchmark, a script or somebody else's code."""
    *folders, name = path.split("/")
    return not _FOLDERS.isdisjoint(folders) or name == "setup.py" or is_test(path)


@cache
def is_test(path: str) -> bool:
    """Whether a file belongs to the tests of a project."""
    *folders, name = path.split("/")
    return not _TESTS.isdisjoint(folders) or name.startswith(("test_", "conftest")) or name.endswith("_test.py")

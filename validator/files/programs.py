"""Which files that are called as tests are (`tools/test_net.py`, `test_time_aug.py`), or lie where copies of other
people's code do (`third_party/`), are part of the program.

Code bases of vision models call the evaluation so. A test is what pytest and unittest collect: a file that has nothing
of theirs is a program where it takes a command line, and a part of one where such a file, or any other that is no
test, imports it. A copy of somebody else's code knows nothing of the project around it: a file beside such copies that
imports from there is the project's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from validator.facts.model import Class, FileFacts, Function
    from validator.source import SourceFile

# One of these is in a file that takes a command line.
COMMAND_LINE = (b"argparse", b"argv", b"click", b"fire", b"tyro", b"absl", b"hydra", b"HfArgumentParser", b"typer")
_PARSING = (*COMMAND_LINE, b"parse_args(", b"parse_known_args(", b"argument_parser(")
_RUNNERS = frozenset({"pytest", "unittest", "nose"})
_FOREIGN = frozenset(
    {"third_party", "thirdparty", "vendor", "vendored", "_vendor", "3rdparty", "external", "externals"}
)
_TESTS = frozenset({"test", "tests", "testing", "test_utils", "testing_utils", "unit_tests", "functional_tests"})


class ProgramPath(str):
    """The path of a file that belongs to the program although it is called as a test is, or lies among copies of other
    people's code."""

    __slots__ = ()


def foreign_folder(path: str) -> int:
    """Which of the folders of a path is one of copies of somebody else's code: its place; -1 where none is."""
    return next((i for i, name in enumerate(path.split("/")[:-1]) if name in _FOREIGN), -1)


def is_in_tests(path: str) -> bool:
    """Whether a file lies among the tests of a project, or is what pytest reads beside them."""
    *folders, name = path.split("/")
    return not _TESTS.isdisjoint(folders) or name.startswith("conftest")


def is_called_test(path: str) -> bool:
    """Whether a file has a name by which pytest finds tests."""
    name = path.rpartition("/")[2]
    return name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py"))


def mark_programs(sources: Iterable[SourceFile]) -> None:
    """Give the Python files of a project that belong to the program although they are called as tests are, or lie among
    copies of other people's code, a `ProgramPath`."""
    sources = list(sources)
    for each in sources:
        if not is_called_test(each.path) and _imports_from_around(each):
            each.mark_as_program()
    sources = [each for each in sources if not is_in_tests(each.path)]
    called = {each: _stem(each) for each in sources if is_called_test(each.path)}
    possible = {each: stem for each, stem in called.items() if not _holds_tests(each.facts)}
    if not possible:
        return
    found = [each for each in possible if _is_started(each)]
    importing = [each for each in sources if each not in called] + found
    while importing:
        names = frozenset(name for each in importing for name in _imported(each.facts))
        importing = [each for each, stem in possible.items() if stem in names and each not in found]
        found += importing
    for each in found:
        each.mark_as_program()


def _imports_from_around(source: SourceFile) -> bool:
    """Whether a file in a folder of copies of other people's code imports from the package around that folder."""
    folders = source.path.split("/")[:-1]
    if (place := foreign_folder(source.path)) < 1:
        return False
    for row in source.facts.imports:
        first, *rest = row.module.split(".")
        if (
            row.level > len(folders) - place
            or not row.level
            and first in folders[:place]
            and folders[place] not in rest
        ):
            return True
    return False


def _stem(source: SourceFile) -> str:
    return source.path.rpartition("/")[2].removesuffix(".py")


def _imported(facts: FileFacts) -> set[str]:
    """The last names of what a file imports: one of them may be a module."""
    names = {row.module.rpartition(".")[2] for row in facts.imports}
    names.update(name.rpartition(".")[2] for name, _ in facts.star_imports)
    return names | {row.name for row in facts.imports if row.name is not None}


def _is_started(source: SourceFile) -> bool:
    """Whether a file is written to be started with options."""
    return b"__main__" in source.data and any(word in source.data for word in _PARSING)


def _holds_tests(facts: FileFacts) -> bool:
    """Whether pytest or unittest would find a test in a file."""
    if any(row.module.partition(".")[0] in _RUNNERS and not row.level for row in facts.imports):
        return True
    calls = [call for each in facts.functions for call in each.calls if call.args]
    given = {call.target for call in calls} | {a.value for call in calls for a in call.args if a.kind == "path"}
    return any(_is_test_function(each, given) for each in facts.functions) or any(
        _is_test_class(each, facts) for each in facts.classes
    )


def _is_test_function(function: Function, given: set[str]) -> bool:
    """Whether pytest would run a function: not where the file itself calls it with arguments, or passes it
    on (`mp.spawn(test_worker, …)`), as a program does."""
    return function.qualname.startswith("test_") and "." not in function.qualname and function.name not in given


def _is_test_class(cls: Class, facts: FileFacts) -> bool:
    """Whether pytest or unittest would look for tests in a class, and find one."""
    methods = {each.name for each in facts.functions if each.owner == cls.qualname}
    collected = any(base.endswith(("TestCase", "Test")) for base in cls.bases) or (
        cls.name.startswith("Test") and "__init__" not in methods
    )
    return collected and any(name.startswith("test_") for name in methods)

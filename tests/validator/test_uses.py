"""What counts as a use of a family, and what silences one."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.analysis.interfaces.uses import Uses, is_guarded, lead, open_reads, open_uses
from validator.facts.model import Guard
from validator.flow import Flow
from validator.flow.queries.escapes import Index
from validator.flow.queries.outside_program import is_foreign, is_test
from validator.project import Project
from validator.run.config import Config
from validator.source import SourceFile

STRATEGIES = """\
class DeepspeedStrategy:
    def backward(self, loss): self.engine.backward(loss)
    @property
    def rank(self): return 0

class FsdpStrategy:
    def backward(self, loss): loss.backward()
    @property
    def rank(self): return 0

def get_strategy(args):
    if args.backend == "fsdp":
        return FsdpStrategy()
    return DeepspeedStrategy()
"""
CALLERS = """\
from strategies import DeepspeedStrategy, get_strategy

def annotated(strategy: DeepspeedStrategy, loss):
    strategy.backward(loss)
    return strategy.rank

def guarded(args, loss):
    strategy = get_strategy(args)
    if args.kind == "fsdp":
        strategy.backward(loss)
    return strategy.rank if hasattr(strategy, "rank") else 0
"""


def linked(folder: Path, callers: str = CALLERS, name: str = "callers.py", **config: object) -> Project:
    files = {"strategies.py": STRATEGIES, name: callers}
    sources = []
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        sources.append(SourceFile(path, str(folder / path)))
    return Project(sources, Config(root=str(folder), **config))  # type: ignore[arg-type]


def test_a_file_among_copies_of_others_code_that_imports_from_around_them_is_the_projects_own(tmp_path: Path) -> None:
    texts = {"copy.py": "import torch\nfrom rl.third_party import other\n", "own.py": "from rl.models import Model\n"}
    texts["deep/near.py"] = "from ..other import x\n"
    texts["deep/out.py"] = "from ...models import Model\n"
    sources = []
    for name, text in texts.items():
        path = f"rl/third_party/{name}"
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        sources.append(SourceFile(path, str(tmp_path / path)))
    project = Project(sources)
    own = {path.rpartition("third_party/")[2] for path in project.files if not is_foreign(project.files[path].path)}
    assert own == {"own.py", "deep/out.py"}


def test_what_only_the_factory_makes_may_be_any_member(tmp_path: Path) -> None:
    project = linked(tmp_path)
    (family,) = project.families.all
    use = next(u for u in project.analysis(Uses).of(family, "backward") if u.caller.name == "annotated")
    assert {cls.name for cls in use.classes} == {"DeepspeedStrategy", "FsdpStrategy"}


def test_an_annotation_holds_where_somebody_makes_the_class_himself(tmp_path: Path) -> None:
    own = CALLERS + "\ndef plain(loss):\n    annotated(DeepspeedStrategy(), loss)\n"
    project = linked(tmp_path, own)
    (family,) = project.families.all
    use = next(u for u in project.analysis(Uses).of(family, "backward") if u.caller.name == "annotated")
    assert {cls.name for cls in use.classes} == {"DeepspeedStrategy"}


def test_guarded_uses_do_not_count(tmp_path: Path) -> None:
    project = linked(tmp_path)
    (family,) = project.families.all
    assert [use.caller.name for use in open_uses(project, family, "backward")] == ["annotated"]
    assert [read.caller.name for read in open_reads(project, family, "rank")] == ["annotated"]


def test_callers_in_tests_do_not_count(tmp_path: Path) -> None:
    project = linked(tmp_path, name="tests/test_callers.py")
    (family,) = project.families.all
    assert open_uses(project, family, "backward") == []


def test_annotations_name_the_leading_member(tmp_path: Path) -> None:
    project = linked(tmp_path)
    (family,) = project.families.all
    assert lead(project, family).name == "DeepspeedStrategy"


def test_a_family_may_be_configured(tmp_path: Path) -> None:
    text = "class A:\n    def go(self): ...\n\nclass B:\n    def run(self): ...\n"
    path = tmp_path / "both.py"
    path.write_text(text)
    config = Config(root=str(tmp_path), families=(("Pair", ("A", "both.B")),))
    (family,) = Project([SourceFile("both.py", str(path))], config).families.all
    assert (family.name, [cls.name for cls in family.members]) == ("Pair", ["A", "B"])


@pytest.mark.parametrize(
    ("kind", "text", "silent"),
    [
        ("if", "hasattr(strategy, 'rank')", True),
        ("if", "isinstance(strategy, FsdpStrategy)", True),
        ("if", "args.backend == 'x'", True),
        ("if", "args.fsdp", True),
        ("if", "step % 10 == 0", False),
        ("try", "AttributeError", True),
        ("try", "*", True),
        ("try", "KeyError, ValueError", False),
        ("loop", "for fsdp in range(3)", False),
    ],
)
def test_what_silences(kind: str, text: str, silent: bool) -> None:
    assert is_guarded([Guard(kind, text, False, 1)], ["fsdp"]) is silent


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("tests/a.py", True), ("a/test/b.py", True), ("a/test_b.py", True), ("conftest.py", True),
        ("a/attest.py", False), ("contests/b.py", False), ("a/latest.py", False),
    ],
)  # fmt: skip
def test_what_is_a_test(path: str, test: bool) -> None:
    assert is_test(path) is test


_PROGRAM = "import argparse\n\n\ndef main():\n    argparse.ArgumentParser().parse_args()\n"
_STARTED = '\n\nif __name__ == "__main__":\n    main()\n'


@pytest.mark.parametrize(
    ("path", "text", "test"),
    [
        ("tools/test_net.py", _PROGRAM + _STARTED, False),
        # its steps are called so, too: it calls them itself
        ("tools/test_net.py", _PROGRAM + "    test_epoch(1)\n\n\ndef test_epoch(net):\n    pass\n" + _STARTED, False),
        # a part of the program, that it imports
        ("nets/test_time_flip.py", "def flip(image):\n    return image\n", False),
        ("nets/test_helpers.py", "def flip(image):\n    return image\n", True),
        # pytest finds something in these
        ("tools/test_net.py", _PROGRAM + "\n\ndef test_main():\n    main()\n" + _STARTED, True),
        ("tools/test_net.py", "import pytest\n" + _PROGRAM + _STARTED, True),
        ("tools/test_net.py", _PROGRAM + "\n\nclass TestNet:\n    def test_it(self):\n        pass\n" + _STARTED, True),
        ("tests/test_net.py", _PROGRAM + _STARTED, True),
        ("test_net.py", "print(1)\n", True),
    ],
)
def test_programs_called_as_tests_are(path: str, text: str, test: bool) -> None:
    files = {path: text, "train.py": "from nets.test_time_flip import flip\n\nflip(1)\n"}
    project = Project([SourceFile(name, f"/nowhere/{name}", text.encode()) for name, text in files.items()])
    assert is_test(next(each for each in project.files if each == path)) is test


def test_reads_of_an_attribute_are_told_from_what_an_import_calls_by_its_name(tmp_path: Path) -> None:
    text = (
        "import data.loader as rows\n\ndef show(held):\n    return held.loader\n\n"
        "def other(held):\n    return held.rows\n"
    )
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    flow = Project([SourceFile("train.py", str(tmp_path / "train.py"))]).analysis(Flow)
    assert [unit.qualname for unit, _ in Index(flow).loads("loader")] == ["show"]

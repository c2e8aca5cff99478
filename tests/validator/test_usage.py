"""Findings where nobody who runs the project comes to are notes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from validator.cli import main

LIBRARY = {
    "setup.py": "from setuptools import setup\n\nsetup(name='core')\n",
    "core/__init__.py": "from core.scores import Scorer\n",
    "core/scores.py": """\
        class Scorer:
            def score(self):
                return user_1

            def _score(self):
                return gone_1

        class Inner:
            def score(self):
                return gone_2
        """,
    "train.py": """\
        import logging
        from collections import defaultdict

        import torch

        from model import Names, Net, Scale, Scores, cut, each, resize, wrapped

        log = logging.getLogger(__name__)

        def start(folder):
            log.info("go on")
            Net("bert", folder).load(resize(size=8, path=None))
            cut(kind=Scores)
            print(Names().shown() in ("shown",), Scale.apply(1))
            each([cut], 1), wrapped(cut)(1), wrapped(cut, deep=bool(folder))(1)
            cut(kind=torch.nn.Linear)

        if __name__ == "__main__":
            start("here")
        """,
    "model.py": """\
        import torch

        class Scores:
            def info(self):
                return gone_3

        class Net(torch.nn.Module):
            def __init__(self, kind, folder, strict=True):
                super().__init__()
                self.kind, self.folder, self.strict = kind, folder, strict
                if kind == "lora":
                    print(gone_4)
                if folder == "there":
                    print(gone_5)

            def forward(self, x):
                return here_1

            def invert(self, x):
                return gone_6

            def load(self, x):
                if not self.strict:
                    return gone_7
                return here_2

        class Trial:
            def __init__(self):
                self.x = gone_8

        def resize(path=None, size=8):
            low = -2 * size
            if path:
                return gone_9
            if low > 0:
                return gone_10
            return here_3

        def wrapped(layer, kind=None, deep=False):
            def run(x):
                if kind is not None:
                    return gone_12
                if deep:
                    return here_6
                return layer(x)
            return run

        def each(layers, x):
            for layer in layers:
                def wrapped(layer, kind=None):
                    def run(x):
                        if kind is not None:
                            return gone_13
                        return layer(x)
                    return run
                x = wrapped(layer)(x)
            return x

        def cut(kind, size=1):
            if kind is Scores:
                return here_4
            if isinstance(size, str):
                return {kind: count(each) for each in size if each in ("dict", "copied")}
            return here_5 if size != 2 else late()

        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return here_8

            @staticmethod
            def symbolic(graph, x):
                return gone_17

        class Names:
            def dict(self):
                return gone_14

            def copied(self):
                return gone_15

            def shown(self):
                return here_7

        def count(names):
            return Names()

        def late(size=1):
            if size is None:
                return early()
            return size

        def early():
            return gone_16

        if __name__ == "__main__":
            print(Trial(), gone_11)
        """,
}

TREE = {
    "train.py": """\
        import torch

        from parts import heads, losses, models
        from parts.models import Table

        TABLES = [Table]

        def start():
            from parts.models import Kept

            losses.kept = Kept, models.ask()
            getattr(heads, input())()
            losses.kinds[f"loss_of_{input()}"]
            eval("losses." + input() + ".chosen")()
            torch.load(input())["model"].float().fused()
            return losses.policy(models.Actor()).run_named("evaluate_all")

        if __name__ == "__main__":
            start()
        """,
    "parts/__init__.py": "",
    "parts/heads.py": "def linear():\n    return here_7\n",
    "parts/losses.py": """\
        def loss_of_value():
            return here_8

        def policy(model):
            return here_1

        def chosen():
            return here_11

        def forgotten():
            return inner_forgotten()

        def inner_forgotten():
            return gone_1

        def evaluate_all():
            if not policy:
                raise NotImplementedError
                return gone_7
            if False:
                return gone_8
            return here_2
        """,
    "parts/models.py": """\
        import torch
        from somewhere import register

        class Actor(torch.nn.Module):
            def forward(self, x):
                return here_3

        class Left(torch.nn.Module):
            def forward(self, x):
                return gone_2

        @register("critic")
        class Critic:
            def __init__(self):
                self.x = here_4

        class Plain:
            @classmethod
            def made(cls):
                return gone_6

            @classmethod
            def asked(cls):
                return here_10

        def ask():
            return Plain.asked()

        class Kept:
            def __init__(self):
                self.x = here_9

            def fused(self):
                return here_12

        class Table:
            def __init__(self):
                self.x = here_6

        class Reward:
            def __init__(self):
                self.x = here_5
        """,
    "parts/old.py": "def start():\n    return gone_3\n",
    "parts/vendor/copied.py": "def policy():\n    return gone_4\n",
    "tests/test_losses.py": "def test_policy():\n    return gone_5\n",
    "archived_scripts/train.py": "print(gone_9)\n\nif __name__ == '__main__':\n    print(gone_9)\n",
    "recipes/reward.yaml": "model: parts.models.Reward\n",
}


def _severities(folder: Path, tree: dict[str, str], capsys: pytest.CaptureFixture[str], *paths: str) -> dict[str, str]:
    for path, text in tree.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = text.splitlines(keepends=True)
        file.write_text("".join(line.removeprefix("        ") for line in lines), encoding="utf-8")
    main(["--isolated", "--no-cache", "--notes", "--select", "MP204", "--format", "json", *paths])
    found = json.loads(capsys.readouterr().out)["findings"]
    return {each["message"].split("`")[1]: each["severity"] for each in found}


def test_what_no_program_comes_to_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = _severities(tmp_path, TREE, capsys, ".")
    assert {name for name, severity in found.items() if severity == "error"} == {f"here_{n}" for n in range(1, 13)}
    assert {name for name, severity in found.items() if severity == "note"} == {f"gone_{n}" for n in range(1, 10)}


def test_what_no_call_leads_to_is_a_note_and_what_users_may_call_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = _severities(tmp_path, LIBRARY, capsys, ".")
    assert {name for name, severity in found.items() if severity == "error"} == {f"here_{n}" for n in range(1, 9)}
    assert {name for name, severity in found.items() if severity == "warning"} == {"user_1"}
    assert {name for name, severity in found.items() if severity == "note"} == {f"gone_{n}" for n in range(1, 18)}


def test_without_a_program_or_with_single_files_nothing_is_known_of_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    library = {path: text for path, text in TREE.items() if path.startswith("parts/") and "vendor" not in path}
    found = _severities(tmp_path, library, capsys, ".")
    unreached = {"gone_7": "note", "gone_8": "note"}
    assert found == dict.fromkeys(found, "error") | unreached
    single = _severities(tmp_path, TREE, capsys, "parts/losses.py", "train.py")
    assert single == dict.fromkeys(("here_1", "here_2", "here_8", "here_11", "gone_1", "gone_7", "gone_8"), "error")

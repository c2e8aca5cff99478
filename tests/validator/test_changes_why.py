"""What `--why` says of a line where two revisions are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.cli import main

BEFORE = {
    "rl/engine.py": """\
import torch.distributed as dist


class Engine:
    def pause_generation(self):
        self.paused = True


def start(size, group):
    count = size // group
    left = size % group
    dist.barrier()
    print(count)
    print(left)
    return count


def stop(size):
    return size
""",
    "rl/trainer.py": """\
from rl.engine import start


def sync(engines):
    for engine in engines:
        engine.pause_generation()
    return start(8, group=2)
""",
    "rl/__init__.py": "",
    "run.sh": "N=1\npython -m rl.trainer\n",
}
AFTER = BEFORE | {
    "rl/engine.py": BEFORE["rl/engine.py"]
    .replace("pause_generation", "pause_requests")
    .replace("size, group", "size, groups")
    .replace("size // group", "size // groups")
    .replace("    dist.barrier()\n", ""),
    "rl/fresh.py": "def load():\n    return 1\n",
    "run.sh": "N=2\npython -m rl.trainer\n",
}


@pytest.fixture(autouse=True)
def _revisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, files in (("before", BEFORE), ("after", AFTER)):
        for name, text in files.items():
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    monkeypatch.chdir(tmp_path / "after")


def told(capsys: pytest.CaptureFixture[str], place: str, *more: str) -> str:
    """What is said of a place, from the comparison on."""
    assert main(["--why", place, "--against", "../before", *more]) == 0
    out, err = capsys.readouterr()
    assert err == "meshproof: compared with ../before: 3 files changed\n"
    return out.partition("compared with ../before: 3 files changed\n")[2]


def test_a_place_that_was_left_behind(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, "rl/trainer.py:6")
    assert said.startswith("  rl/trainer.py is as it was\n")
    assert "`pause_generation`: the change took away its definition (before: rl/engine.py:5)" in said
    assert "it may be `pause_requests` now (rl/engine.py:5); nothing else defines it\n" in said
    assert "reported at this line:\n  warning MP901 (name-left-behind)" in said


def test_a_call_of_what_takes_other_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, "rl/trainer.py:7")
    assert "`start` has other parameters: `start(size, groups)` (rl/engine.py), before `start(size, group)`\n" in said
    assert "error MP121 (call-does-not-bind)" in said, "what the new revision alone shows is told as such"


def test_a_function_that_changed(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, "rl/engine.py:10")
    assert said.startswith("  `start` changed\n    it was `start(size, group)`\n")
    assert "    the statement here was `count = size // group`\n" in said
    assert "    taken out: `dist.barrier()`\n" in said
    assert "  breaks rl/trainer.py:7: MP902: `start` has no parameter 'group'" in said


def test_what_did_not_change_and_what_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "rl/engine.py:17").startswith("  rl/engine.py changed; `stop` is as it was\n")
    assert told(capsys, "rl/engine.py:6").startswith("  rl/engine.py changed; `Engine.pause_requests` is new\n")
    assert told(capsys, "rl/fresh.py:2").startswith("  rl/fresh.py is new\n")


def test_a_line_of_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "run.sh:1").startswith("  run.sh changed\n  `N=1` stood here before\n")
    assert told(capsys, "run.sh:2").startswith("  run.sh changed\nreported at this line:\n")


def test_a_finding_that_is_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = tmp_path / "after" / "rl" / "trainer.py"
    silenced = "engine.pause_generation()  # validator: ignore[MP901] of an old engine"
    trainer.write_text(AFTER["rl/trainer.py"].replace("engine.pause_generation()", silenced))
    assert main(["--why", "rl/trainer.py:6", "--against", "../before"]) == 0
    said = capsys.readouterr().out
    assert "not reported (another rule has an error here, or it is silenced): MP901: the change left nothing" in said
    assert said.endswith("reported at this line:\n  nothing\n")


def test_nothing_is_compared_without_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "rl/trainer.py:6", "--no-change-rules") == ""

"""The two rules that CONTRIBUTING.md shows: one on concrete syntax, one as a query on the flow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from validator.cli import main

ROOT = Path(__file__).parents[2]


def _examples() -> list[str]:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    return [block for block in blocks if "LAB002" in block or "LAB003" in block]


@pytest.mark.parametrize(
    ("index", "source", "line"),
    [
        (0, "def f(x):\n    print(x)\n    return x\n", 2),
        (
            1,
            "import torch.distributed as dist\n\ndef f(t, me):\n    me = dist.get_rank()\n    dist.broadcast(t, me)\n",
            5,
        ),
    ],
)
def test_the_examples_of_the_guide(
    index: int,
    source: str,
    line: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "rule.py").write_text(_examples()[index])
    (tmp_path / "train.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    assert main(["--rules", "mine", "--select", "LAB", "--format", "concise", "train.py"]) in (0, 1)
    told = capsys.readouterr().out
    assert f"train.py:{line}:" in told

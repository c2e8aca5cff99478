"""What `--why` says of a line, and that the user's own collectives count."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.cli import main

SOURCE = """\
import torch.distributed as dist
from mylib import everyone_meets

def save(step):
    if step % 10 == 0:
        dist.barrier()
    if dist.get_rank() == 0:
        everyone_meets()
"""


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)


def test_conditions_and_collectives_of_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--why", "train.py:6"]) == 0
    told = capsys.readouterr().out
    assert "barrier on the default group" in told
    assert "`step % 10 == 0` — the same on all ranks" in told
    assert "silent: all ranks take the same way" in told


def test_a_launch_script_and_a_configuration_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tune.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--tp_size', type=int, default=1)\nparser.add_argument('--model')\n"
        "print(parser.parse_args())\n"
    )
    (tmp_path / "run.sh").write_text(
        "TP=3\n\ntorchrun --nproc_per_node 8 tune.py \\\n  --tp_size $TP \\\n  --modell x\n"
    )
    (tmp_path / "conf.toml").write_text("[parallel]\ntp = 2\n")
    told = {}
    for place in ("run.sh:1", "run.sh:2", "run.sh:4", "run.sh:5", "conf.toml:2"):
        assert main(["--why", place]) == 0
        told[place] = capsys.readouterr().out
    assert "starts `tune` (tune.py) with torchrun: 8 processes per node on 1 node" in told["run.sh:1"]
    assert "--tp_size = 3: option `tp_size`, int (tune.py:3)" in told["run.sh:1"]
    assert "no program is started here" in told["run.sh:2"]
    assert "`--tp_size` is `tp` of `tune`: 3\n    dp-at-least-one holds\n" in told["run.sh:4"]
    assert "world-divisible does not hold" in told["run.sh:4"]
    assert "error MP705" in told["run.sh:4"]
    assert "--modell = x: an option that its parser does not define" in told["run.sh:5"]
    assert told["conf.toml:2"].startswith("conf.toml:2\n  key `parallel.tp`: 2\n")


OPTIONS = """\
import argparse

import megatron

from strategies import get_strategy


def build(more):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int)
    if more:
        megatron.add_options(parser)
    return parser


def main(other):
    args = build(True).parse_args()
    print(args.tp_size)
    print(other.args.seed)
    strategy = get_strategy(args)
    strategy.save(None, tag="last")
    other.save(None, tag="last")
    try:
        strategy.save()
    except TypeError:
        pass


main(None)
"""
STRATEGIES = """\
from elsewhere import Base


class DDP(Base):
    pass


class FSDP:
    def save(self, model, tag=None):
        return model, tag


def get_strategy(args):
    return DDP() if args.steps else FSDP()
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (18, ["`args.tp_size` is read of", "(options.py:17), which has no `tp_size`, but may have more: ",
              "silent: the parser of `options` may have more options: `megatron.add_options` may add options"]),
        (19, ["`other.args.seed` is not known to be read", "silent: what comes here cannot be followed"]),
        (21, ["`DDP.save` (strategies.py): not known, its base `elsewhere.Base` is not read",
              "`FSDP.save` (strategies.py): `save(model, tag=None)` fits", "silent: no class is known to refuse it"]),
        (22, ["MP103: `other.save(…)` is not held against", "silent: of which class `other` is, is not known"]),
        (24, ["`save(model, tag=None)` needs 'model'", "silent: a test around it asks which class"]),
    ],
)  # fmt: skip
def test_why_rules_about_options_and_siblings_are_silent(
    line: int, told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "options.py").write_text(OPTIONS)
    (tmp_path / "strategies.py").write_text(STRATEGIES)
    assert main(["--why", f"options.py:{line}"]) == 0
    said = capsys.readouterr().out
    assert [each for each in told if each not in said] == [], said
    assert said.endswith("reported at this line:\n  nothing\n")


@pytest.mark.parametrize("place", ["train.py:6:9", "{here}/train.py:6", "../{name}/train.py:6"])
def test_a_place_as_editors_and_findings_write_it(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--why", place.format(here=tmp_path, name=tmp_path.name)]) == 0
    assert capsys.readouterr().out.startswith("train.py:6 in save\n")


@pytest.mark.parametrize("place", ["train.py", "train.py:0", "train.py:x", "train.py:99", "other.py:1"])
def test_a_place_that_is_not_there(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--why", place]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_collectives_of_the_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ours.toml").write_text('[calls]\n"mylib.everyone_meets" = {}\n')
    (tmp_path / "pyproject.toml").write_text('[tool.validator]\ncollectives = ["ours.toml"]\n')
    assert main(["--select", "MP501", "--format", "concise", "."]) == 1
    assert "not every rank reaches `everyone_meets`" in capsys.readouterr().out


def test_broken_collectives_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ours.toml").write_text("[calls\n")
    (tmp_path / "pyproject.toml").write_text('[tool.validator]\ncollectives = ["ours.toml"]\n')
    assert main(["."]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_nobody_knows_is_not_the_same_on_all_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = "import torch.distributed as dist\n\ndef stop(done):\n    if done.all():\n        dist.barrier()\n"
    (tmp_path / "stop.py").write_text(source)
    assert main(["--why", "stop.py:4"]) == 0
    told = capsys.readouterr().out
    assert "`done.all()` — nothing is known by which ranks differ" in told
    assert "the same on all ranks" not in told

"""What shell scripts take by position, and what the commands that run them pass."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from validator.analysis.commands.same_names import likeness, words
from validator.analysis.commands.script_calls import ScriptCalls
from validator.analysis.commands.script_parameters import Signature, signature
from validator.facts.shell import parse
from validator.project import Project
from validator.run.config import Config
from validator.source import SourceFile


def taken(text: str) -> Signature:
    return signature(parse(text.encode()))


def names(text: str) -> dict[int, tuple[str, ...]]:
    return {number: position.names for number, position in taken(text).positions.items()}


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('A=$1\nexport B="$2"\nC=${3:-x}\n', {1: ("A",), 2: ("B",), 3: ("C",)}),
        ("A=$1; shift\nB=$1; shift 2\nC=$1\n", {1: ("A",), 2: ("B",), 4: ("C",)}),
        ("run --model $1 --size=$2 train.steps=$3 -n $4\n", {1: ("model",), 2: ("size",), 3: ("train.steps",), 4: ()}),
        ("ARGS=(--model $1 $2)\n", {1: ("model",), 2: ()}),
        ("f() { A=$1; }\nf x\nB=$2\n", {2: ("B",)}),
        ('main() { local A=$1; }\nmain "$@"\n', {1: ("A",)}),
        ("while [ $# -gt 0 ]; do case $1 in -a) A=$2; shift;; esac; shift; done\nB=$1\n", {}),
        ("if [ -n \"$1\" ]; then A=$1; shift; fi\nB=$1\n", {1: ("A",)}),
        ("if [ $# -lt 1 ]; then exit 1; else A=$1; fi\nB=$2\n", {1: ("A",), 2: ("B",)}),
        ("set -- a b\nA=$1\n", {}),
        ("A=$10\nB=${10}\n", {10: ("B",)}),
        ("(A=$1; shift)\nB=$1\n", {1: ("A", "B")}),
    ],
)  # fmt: skip
def test_positions_are_named_by_what_takes_them(script: str, expected: dict[int, tuple[str, ...]]) -> None:
    assert names(script) == expected


@pytest.mark.parametrize(
    ("script", "lack"),
    [
        ("set -euo pipefail\nA=$1\n", "unset"),
        ("set -o nounset\nA=$1\n", "unset"),
        ("set -u\nset +u\nA=$1\nrun --a $A\n", "option"),
        ("set -u\nA=${1:-x}\n", ""),
        ("A=${1:?which}\n", "refused"),
        ("A=$1\nrun --a $A\n", "option"),
        ("A=$1\nrun --a=$A\n", "option"),
        ("A=$1\nrun > out/$A; run out/$A\n", "text"),
        ("A=$1\nrun $A\n", ""),
        ("A=$1\nA=${A:-x}\nrun --a $A\n", ""),
        ('A=$1\n[ -z "$A" ] && A=x\nrun --a $A\n', ""),
        ("A=$1\n. ./more.sh\nrun --a $A\n", ""),
        ("if [ $# -gt 0 ]; then A=$1; fi\nrun --a $A\n", ""),
    ],
)
def test_what_comes_of_a_position_that_lacks(script: str, lack: str) -> None:
    assert taken(script).positions[1].lack == lack


@pytest.mark.parametrize(
    "test",
    [
        "if [ $# -ne 2 ]; then echo usage; exit 1; fi",
        'if [ "$#" -lt 2 ]; then exit 1; fi',
        "if (( $# < 2 )); then exit 3; fi",
        "if ((${#} >= 3)); then exit 3; fi",
        "[[ $# -eq 2 ]] || { echo usage; exit 1; }",
        "[ $# -gt 1 ] && exit 1",
        "if [ $# -eq 2 ]; then A=$1; else exit 1; fi",
        "if ! [ $# -eq 1 ]; then exit 1; fi",
        "usage() { echo usage; exit 1; }\n[ $# -ge 1 ] || usage",
        "if [ $# -eq 0 ]; then run_all; exit 0; fi",
        "A=${2:?second}",
        "set -u\nA=$2",
        "set -u\nA=$1\nshift\nB=${1:-}",
    ],
)
def test_the_numbers_that_a_script_refuses_are_those_of_bash(test: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"run_all() {{ :; }}\n{test}\n:\n", encoding="utf-8")
    takes = taken(script.read_text(encoding="utf-8"))
    for count in range(4):
        given = ["x"] * count
        failed = subprocess.run(["bash", str(script), *given], capture_output=True, check=False).returncode != 0
        lacking = any(n > count and p.lack in ("unset", "refused") for n, p in takes.positions.items())
        known = takes.refusal(count) is not None or not takes.ends(count) and lacking
        assert known == failed, count


def calls(**files: str) -> list[list[str]]:
    sources = [
        SourceFile(name.replace("__", "."), f"/tree/{name.replace('__', '.')}", text.encode())
        for name, text in files.items()
    ]
    found = ScriptCalls(Project(sources, Config(root="/tree"))).all
    return [[call.script.path, *(f"{each.name}:{each.text}" for each in call.arguments)] for call in found]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("bash run.sh $A b", ["A:$A", ":b"]),
        ("./run.sh b > log 2>&1 &", [":b"]),
        ("A=1 nohup bash -x run.sh step=$B", ["step:step=$B"]),
        ("sbatch -N 2 --time=1:00 --parsable ./run.sh $A", ["A:$A"]),
        ("srun --nodes 1 bash run.sh 1", [":1"]),
        ("env B=1 timeout 5m ./run.sh 2", [":2"]),
        ("docker run -it image bash run.sh 2", [":2"]),
        ("ssh -p 22 host \"cd /x && bash run.sh $A\"", ["A:$A"]),
        ("bash -c \"bash run.sh 1\"", [":1"]),
        ("C=1\nbash run.sh $C \"$@\" 2", ["C:1"]),
        ("f() { bash run.sh $1; }\nf $A", ["A:$A"]),
    ],
)  # fmt: skip
def test_commands_that_run_a_script(command: str, expected: list[str]) -> None:
    assert ["run.sh", *expected] in calls(run__sh="echo $1\n", all__sh=command + "\n")


@pytest.mark.parametrize(
    "command", ["echo bash run.sh", "bash -c run", "cat run.sh", "python run.py run.sh", "bash $X", "srun cp run.sh x"]
)
def test_commands_that_run_no_script(command: str) -> None:
    assert calls(run__sh="echo $1\n", all__sh=command + "\n") == []


def test_commands_of_python_code() -> None:
    code = """
import os
import subprocess

def start(cfg, step, rest):
    subprocess.run(["bash", "run.sh", str(step), cfg.eval["limit"]])
    subprocess.run(["sbatch", "run.sh"] + rest)
    os.system(f"sbatch run.sh {cfg.path} {step:05d}")
"""
    assert calls(run__sh="echo $1\n", all__py=code) == [
        ["run.sh", "step:step", "cfg.eval.limit:cfg.eval['limit']"],
        ["run.sh"],
        ["run.sh", "cfg.path:cfg.path", "step:step"],
    ]


def test_names_are_compared_by_their_words() -> None:
    assert words("lmmsEval_Tasks") == ("lmm", "eval", "task")
    assert likeness("train_cfg.lmms_eval_limit", "LIMIT") == 1
    assert likeness("tasks", "EVAL_TASKS") == 1
    assert likeness("cfg.model.path", "MODEL_PATH") > likeness("cfg.model.path", "DATA_PATH")
    assert likeness("rank", "ranking") == 0

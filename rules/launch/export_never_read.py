"""A script exports a variable that nothing reads, while the program reads one of nearly the same name that nobody sets.

What it does
    Reports `export SYNC_PORT=…` where no file of the project names the variable otherwise, the code reads
    `WEIGHT_SYNC_PORT`, nothing sets that one, and the script exports another variable that the code reads: it is meant
    for this program. Near are names whose words one has beside more (two words at least), and names that differ by a
    letter or two. Silent about the variables of libraries and of launchers (`NCCL_…`, `MASTER_PORT`).

Why is this bad
    Nothing complains: the program takes its default. Two jobs on one host then meet on one port.

References
    https://docs.python.org/3/library/os.html#os.environ
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from validator.facts.script import Assign, Script
from validator.files.languages import language
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.flow.queries.values.text_origins import text_origins
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP714", "export-never-read", "warning", "1.1", tokens=("export ",), languages=("shell",), solves=True)

_ENVIRONMENT = "os.environ"
_ASKING = frozenset({"os.getenv", "os.environ.get", "os.environ.setdefault", "os.environ.pop"})
_NEAR = 0.9
_WORDS = 2  # of the shorter name
# What variables begin with that libraries, launchers and systems read.
_OF_OTHERS = frozenset({
    "ACCELERATE", "ASCEND", "CUBLAS", "CUDA", "CUDNN", "DEEPSPEED", "DS", "FSDP", "GLOO", "GROUP", "HCCL", "HF",
    "HYDRA", "LD", "LOCAL", "LOGLEVEL", "MASTER", "MKL", "MLFLOW", "NCCL", "NODE", "NVTE", "OMP", "OPENAI", "PATH",
    "PYTHON", "PYTHONPATH", "PYTORCH", "RANK", "RAY", "ROCM", "SGL", "SGLANG", "SLURM", "TF", "TOKENIZERS", "TORCH",
    "TRANSFORMERS", "TRITON", "UCX", "VLLM", "WANDB", "WORLD", "XDG", "XLA",
})  # fmt: skip


def check_project(project: Project) -> Iterator[Finding]:
    scripts = [(source.path, source.facts.extra.get("script")) for source in project.files.values()]
    exports = [(path, _exports(script)) for path, script in scripts if script is not None and not is_test(path)]
    if not any(rows for _, rows in exports):
        return
    reads = _reads(project)
    stored = _stored(project)
    unset = {n: place for n, place in reads.items() if n not in stored and not _is_named(n, project, outside=True)}
    for path, rows in exports:
        if not any(row.name in reads for row in rows):
            continue
        for row in rows:
            near = next((name for name in sorted(unset) if _are_near(row.name, name)), None)
            theirs = row.name.partition("_")[0] in _OF_OTHERS or row.name in reads
            if near is not None and not theirs and not _is_named(row.name, project, outside=False):
                yield _report(path, row, near, unset[near])


def _exports(script: Script) -> list[Assign]:
    rows = (each for each in script.every() if isinstance(each, Assign))
    return [each for each in rows if each.keyword == "export" and each.value is not None]


def _reads(project: Project) -> dict[str, Place]:
    """The variables of the environment that the program reads, also by helpers that are given the name."""
    queries, found = project.analysis(Queries), dict[str, Place]()
    for unit in queries.of_program():
        for place in queries.values(unit, "call", "item"):
            key = _key(place)
            for origin in text_origins(key, lambda each: False) if key is not None and not is_test(unit.path) else ():
                text = origin.place.value.data
                if origin.place.value.op == "const" and isinstance(text, str):
                    found.setdefault(text, origin.place)
    return found


def _stored(project: Project) -> set[object]:
    """The keys under which code stores anything: it may set variables of the environment for what it starts."""
    queries = project.analysis(Queries)
    places = (place for unit in queries.of_program() for place in queries.values(unit, "store_item", "dict"))
    return {part.value.data for place in places for part in place.parts if part.value.op == "const"}


def _key(place: Place) -> Place | None:
    """The name of the variable that a value is read from."""
    names = {o[1] for o in place.operand(0).val.each if o[0] == "ext"}
    if place.value.op == "item":
        return place.operand(1) if _ENVIRONMENT in names else None
    return place.operand(1) if names & _ASKING and len(place.value.args) > 1 else None


def _is_named(name: str, project: Project, outside: bool) -> bool:
    """Whether a file of the project names a variable, but where it is set; `outside`: a file that is not Python's,
    wherever."""
    word = re.compile(rf"\b{re.escape(name)}\b" if outside else rf"\b{re.escape(name)}\b(?!=)")
    for path, source in project.files.items():
        if name.encode() in source.data and (not outside or language(path) != "python") and word.search(source.text):
            return True
    return False


def _are_near(one: str, other: str) -> bool:
    few, many = sorted((one.split("_"), other.split("_")), key=len)
    if len(few) >= _WORDS and len(few) < len(many):
        return few in (many[: len(few)], many[-len(few) :])
    return len(few) >= _WORDS and difflib.SequenceMatcher(None, one, other).ratio() >= _NEAR


def _report(path: str, row: Assign, near: str, read: Place) -> Finding:
    return RULE.finding(
        path,
        row.at,
        f"nothing reads `{row.name}`; the program reads `{near}`, which nothing sets",
        help=f"export `{near}`",
        related=[Related(read.unit.path, read.at[0], f"`{near}` is read here")],
        context=row.name,
    )


_CODE = """# file: serving.py
import os


def number(name, default):
    return int(os.environ.get(name, default))


def endpoints():
    return os.environ.get("ROLLOUT_HOST", "127.0.0.1"), number("WEIGHT_SYNC_PORT", 51216)


print(endpoints())
# file: run.sh
#!/bin/bash
export NCCL_SYNC_PORT=1
if [ -n "$1" ]; then
    export ROLLOUT_HOST=$1
fi
"""

INCORRECT = [_CODE + "export SYNC_PORT=51200  # error: MP714\npython serving.py\n"]

CORRECT = [
    _CODE + "export WEIGHT_SYNC_PORT=51200\npython serving.py\n",
    _CODE + "export SYNC_PORT=51200\nWEIGHT_SYNC_PORT=$SYNC_PORT python serving.py\n",
    _CODE.replace("export ROLLOUT_HOST", "export OTHER_HOST") + "export SYNC_PORT=51200\npython other.py\n",
]

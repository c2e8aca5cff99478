"""A shell that gets text put together from arguments.

What it does
    Reports `subprocess.run`, `call`, `check_call`, `check_output` and `Popen` with `shell=True`, and `os.system` and
    `os.popen`, whose command is an f-string, a concatenation or a `format` with a parameter of the function or an
    attribute of one: a note, for who may set it is not known. Constant commands, quoted parts (`shlex.quote`), tests,
    examples and scripts are silent.

Why is this bad
    A path with a space breaks the command, one with `;` runs another.

References
    https://docs.python.org/3/library/subprocess.html#security-considerations
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.facts.model import Call
from validator.finding import Finding
from validator.flow.queries.outside_program import is_by_hand
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP805", "shell-with-argument", "note", "0.1.0", tokens=("shell=True", "os.system", "os.popen"))

_SHELLS = ("system", "popen")
_RUNNERS = frozenset({"run", "call", "check_call", "check_output", "Popen"})


def check_project(project: Project) -> Iterator[Finding]:
    for function, call in project.calls(*_SHELLS, *_RUNNERS):
        if is_by_hand(function.path) or not _is_shell(project, function, call) or not call.args:
            continue
        names = _interpolated(function, call.args[0].value, call.args[0].kind)
        given = sorted(names & {p.name for p in function.facts.params} - {"self", "cls"})
        if given:
            yield RULE.finding(
                function.path,
                call.at,
                f"`{function.qualname}` puts `{given[0]}` into a command for the shell (`{call.target}`)",
                help="pass a list of arguments without `shell=True`, or quote the part with `shlex.quote`",
                context=f"{function.qualname}:{call.target}:{given[0]}",
            )


def _is_shell(project: Project, function: Method, call: Call) -> bool:
    if call.method in _SHELLS:
        return project.dotted(function, call.target) in ("os.system", "os.popen")
    shell = call.keyword("shell")
    return (
        call.method in _RUNNERS
        and shell is not None
        and shell.value == "True"
        and project.dotted(function, call.target).startswith("subprocess.")
    )


def _interpolated(function: Method, text: str, kind: str) -> set[str]:
    """The names that are put into the text of a command."""
    if kind == "path":
        rows = [row for row in function.facts.assigns if row.target == text]
        text = rows[0].value if len(rows) == 1 and rows[0].kind == "other" else ""
    if re.search(r"quote\(|join\(", text):
        return set()
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return set()
    if not isinstance(node, ast.JoinedStr | ast.BinOp | ast.Call):
        return set()
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


INCORRECT = [
    """
import subprocess

def upload(path, bucket):
    subprocess.run(f"hdfs dfs -put {path} {bucket}", shell=True)  # error: MP805
""",
    """
import os

def upload(path):
    command = "cp " + path
    os.system(command)  # error: MP805
""",
]

CORRECT = [
    """
import subprocess

def upload(path, bucket):
    subprocess.run(["hdfs", "dfs", "-put", path, bucket], check=True)
""",
    """
import shlex
import subprocess

def upload(path):
    subprocess.run(f"cat {shlex.quote(path)} | gzip", shell=True)
    subprocess.run("nvidia-smi | head", shell=True)
""",
]

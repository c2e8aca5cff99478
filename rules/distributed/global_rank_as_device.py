"""The rank in the job used as the number of a device of the node.

What it does
    Reports `set_device(…)`, `device_ids=[…]`, `torch.device("cuda", …)` and `f"cuda:{…}"` that get the global rank:
    `dist.get_rank()`, `process_index`, `global_rank`, `RANK` of the environment, or a variable assigned from one.
    `rank % torch.cuda.device_count()` and local ranks are silent. One number that a function gives to several of them
    is reported once, where it is first used.

Why is this bad
    The second node has ranks 8 to 15 and devices 0 to 7: "invalid device ordinal", on every node but the first.

References
    https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from validator.analysis.places import is_aside, within
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP536", "global-rank-as-device", "error", "0.1.0", tokens=("rank", "process_index"))

_NAMES = re.compile(r"(^|\.)(process_index|global_rank|world_rank)$")
_DEVICE_TEXT = re.compile(r"f[\"'](cuda|npu|xpu|hpu|musa):\{([\w.()]+)\}[\"']$")
_ONE_DEVICE = re.compile(r"nproc_per_node|num_nodes|nnodes|single_node")


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if is_aside(function.path):
            continue
        # one number, however many devices it names: `set_device(rank)` and `torch.device("cuda", rank)` are one mistake
        taken: dict[str, list[Call]] = {}
        for call in function.facts.calls:
            text = _index(project, function, call)
            if text and (text in taken or _global_rank(project, function, text)):
                taken.setdefault(text, []).append(call)
        for text, calls in taken.items():
            yield _finding(function, text, _global_rank(project, function, text), calls)


def _finding(function: Method, text: str, source: str, calls: list[Call]) -> Finding:
    first, *others = calls
    return RULE.finding(
        function.path,
        first.at,
        f"`{function.qualname}` takes `{text}`, the rank in the whole job"
        + (f" (from `{source}`)" if source != text else "")
        + f", for the number of a device in `{first.method}`",
        help="use the rank on the node (LOCAL_RANK, `local_process_index`), or the rank modulo the devices of a node",
        related=tuple(Related(function.path, c.at[0], f"and in `{c.method}` here") for c in others),
        context=f"{function.qualname}:{first.method}:{text}",
    )


def _index(project: Project, function: Method, call: Call) -> str:
    """The source of the device number that a call gets."""
    if call.method == "set_device" and len(call.args) == 1 and _is_torch(project, function, call):
        return _source(call.args[0].kind, call.args[0].value)
    if call.method == "device" and len(call.args) == 2 and project.dotted(function, call.target) == "torch.device":
        return _source(call.args[1].kind, call.args[1].value)
    ids = call.keyword("device_ids")
    if ids is not None and ids.kind == "tuple" and (match := re.fullmatch(r"\[([\w.()]+)\]", ids.value)):
        return match[1]
    for argument in call.args:
        if argument.kind == "other" and (match := _DEVICE_TEXT.match(argument.value)):
            return match[2]
    return ""


def _is_torch(project: Project, function: Method, call: Call) -> bool:
    return project.dotted(function, call.target).startswith("torch.") or call.receiver in (
        "get_torch_device()",
        "get_accelerator()",
    )


def _source(kind: str, value: str) -> str:
    return f"{value}()" if kind == "call" else value if kind == "path" else ""


def _global_rank(project: Project, function: Method, text: str) -> str:
    """What makes the value of a source text the global rank; empty where nothing does."""
    if text.endswith("()"):
        return text if project.dotted(function, text[:-2]) == "torch.distributed.get_rank" else ""
    if _NAMES.search(text):
        return text
    rows = [row for row in function.facts.assigns if row.target == text]
    if len(rows) != 1 or "." in text:
        return ""
    row = rows[0]
    if row.kind == "call" and project.dotted(function, row.value) == "torch.distributed.get_rank":
        call = next((c for c in function.facts.calls if c.target == row.value and c.at[:2] >= row.at[:2]), None)
        return "" if call is not None and call.args else f"{row.value}()"
    if row.kind != "call" or row.value != "int":
        return ""  # something was done with it, such as the remainder by the devices of a node
    node = next(
        (c for c in function.facts.calls if within(c.at, row.at) and c.target == "int"),
        None,
    )
    return (
        'os.environ["RANK"]'
        if node is not None and node.args and _is_environment(node.args[0].value, function, row.at[0])
        else ""
    )


def _is_environment(value: str, function: Method, line: int) -> bool:
    text = function.module.source_text.lines[line - 1]
    try:
        names = [n.value for n in ast.walk(ast.parse(text.strip())) if isinstance(n, ast.Constant)]
    except SyntaxError:
        return False
    return "environ" in value + text and "RANK" in names


INCORRECT = [
    """
import torch

class State:
    def wait_for_everyone(self):
        torch.distributed.barrier(device_ids=[self.process_index])  # error: MP536
""",
    """
import torch
import torch.distributed as dist

def setup():
    rank = dist.get_rank()
    torch.cuda.set_device(rank)  # error: MP536
""",
    """
import os
import torch
import torch.distributed as dist

def setup():
    rank = int(os.environ["RANK"])
    return torch.device("cuda", rank)  # error: MP536
""",
    """
import torch
import torch.distributed as dist

def setup():
    rank = dist.get_rank()
    torch.cuda.set_device(rank)  # error: MP536
    return torch.device("cuda", rank)
""",
]

CORRECT = [
    """
import torch

class State:
    def wait_for_everyone(self):
        torch.distributed.barrier(device_ids=[self.local_process_index])
""",
    """
import torch
import torch.distributed as dist

def setup():
    rank = dist.get_rank() % torch.cuda.device_count()
    torch.cuda.set_device(rank)
""",
    """
import os
import torch

def setup():
    local = int(os.environ["RANK"]) % torch.cuda.device_count()
    torch.cuda.set_device(local)
""",
    """
import torch

def worker(rank, world_size):
    torch.cuda.set_device(rank)
""",
]

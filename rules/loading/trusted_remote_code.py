"""Code from a model repository that runs without anybody having said so.

What it does
    Notes `trust_remote_code=True` written as a literal in a call, and a parameter or option `trust_remote_code` whose
    default is True. Tests and examples are silent.

Why is this bad
    Loading a model then runs the Python files of its repository, at whatever revision it stands today.

References
    https://huggingface.co/docs/transformers/custom_models
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.facts.model import Call
from validator.finding import Finding
from validator.flow.queries.outside_program import is_by_hand
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP804", "trusted-remote-code", "note", "0.1.0", tokens=("trust_remote_code", "trust-remote-code"))

HELP = "leave it to the user, with False as the default, and pin the revision where it is on"


def check_project(project: Project) -> Iterator[Finding]:
    for function in project.functions():
        if is_by_hand(function.path):
            continue
        for call in function.facts.calls:
            given = call.keyword("trust_remote_code")
            if given is not None and given.value == "True":
                yield _report(
                    function,
                    given.at,
                    f"`{call.target}` in `{function.qualname}` trusts the code of any model repository",
                )
            elif call.method == "add_argument" and _is_on(call):
                yield _report(function, call.at, "the option `--trust_remote_code` is on unless it is switched off")
        for param in function.facts.params:
            if param.name == "trust_remote_code" and param.default == "True":
                yield _report(
                    function, param.at, f"`{function.qualname}` trusts the code of any model repository by default"
                )


def _is_on(call: Call) -> bool:
    default = call.keyword("default")
    names = {a.value.strip("\"'").lstrip("-").replace("-", "_") for a in call.positional}
    return "trust_remote_code" in names and default is not None and default.value == "True"


def _report(function: Method, at: tuple[int, int, int, int], message: str) -> Finding:
    return RULE.finding(function.path, at, message, help=HELP, context=f"{function.qualname}:trust_remote_code")


INCORRECT = [
    """
from transformers import AutoModel

def build(path):
    return AutoModel.from_pretrained(path, trust_remote_code=True)  # error: MP804
""",
]

CORRECT = [
    """
from transformers import AutoModel

def build(path, trust_remote_code=False):
    return AutoModel.from_pretrained(path, trust_remote_code=trust_remote_code)
""",
    """
import argparse

def options(parser: argparse.ArgumentParser):
    parser.add_argument("--trust_remote_code", action="store_true", default=False)
""",
]

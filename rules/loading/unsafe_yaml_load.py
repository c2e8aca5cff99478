"""`yaml.load` with a loader that makes any Python object, or with none.

What it does
    Reports `yaml.load` without a `Loader`, or with `Loader`, `CLoader` or `UnsafeLoader`, and
    `yaml.unsafe_load`. Tests and examples are silent.

Why is this bad
    A YAML file can then call any function. Without a `Loader` PyYAML 6 raises TypeError.

References
    https://pyyaml.org/wiki/PyYAMLDocumentation
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from validator.finding import Finding
from validator.flow.queries.outside_program import is_by_hand
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP803", "unsafe-yaml-load", "warning", "0.1.0", tokens=("yaml.load", "unsafe_load"), fix="unsafe")

_UNSAFE = frozenset({"yaml.Loader", "yaml.UnsafeLoader", "yaml.CLoader"})


def check_project(project: Project) -> Iterator[Finding]:
    for function, call in project.calls("load", "load_all", "unsafe_load", "unsafe_load_all"):
        if is_by_hand(function.path):
            continue
        name = project.dotted(function, call.target)
        if not name.startswith("yaml.") or name.count(".") != 1 or any(a.keyword == "**" for a in call.args):
            continue
        loader = call.keyword("Loader") or (call.positional[1] if len(call.positional) > 1 else None)
        if "unsafe" in name:
            reason = "makes any object that the file asks for"
        elif loader is None:
            reason = "names no loader: PyYAML 6 raises TypeError, older ones run what the file says"
        elif loader.value in _UNSAFE:
            reason = f"uses `{loader.value}`, which makes any object that the file asks for"
        else:
            continue
        yield RULE.finding(
            function.path,
            call.at,
            f"`{call.target}` in `{function.qualname}` {reason}",
            help="use `yaml.safe_load`",
            context=f"{function.qualname}:{call.target}",
        )


def fix(node: Any, finding: Finding) -> Any:
    """`yaml.load(file)` without a loader becomes `yaml.safe_load(file)`: it could not have run with PyYAML 6; with an
    older one it may have made what `safe_load` refuses, so that the fix is unsafe."""
    import libcst as cst

    if not isinstance(node, cst.Call) or "names no loader" not in finding.message or len(node.args) != 1:
        return None
    if not isinstance(node.func, cst.Attribute) or node.func.attr.value != "load":
        return None
    return node.with_changes(func=node.func.with_changes(attr=cst.Name("safe_load")))


INCORRECT = [
    """
import yaml

def read(path):
    with open(path) as file:
        return yaml.load(file)  # error: MP803
""",
    """
import yaml

def read(file):
    return yaml.load(file, Loader=yaml.UnsafeLoader)  # error: MP803
""",
]

CORRECT = [
    """
import yaml

def read(file):
    return yaml.safe_load(file)
""",
    """
import yaml

def read(file):
    return yaml.load(file, Loader=yaml.SafeLoader)
""",
]

"""A default value that differs between siblings, at a call that leaves the argument out.

What it does
    Reports a parameter whose literal default is not that of the sibling, where a caller uses the method on
    objects of the family without passing it. `None` against an empty list or dict is the usual idiom and silent.

Why is this bad
    The same line of the training loop means one thing with one backend and another thing with the other.

References
    https://docs.python.org/3/tutorial/controlflow.html#default-argument-values
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from rules.interface.siblings._examples import pair
from validator.analysis.interfaces.binding import bind, parameters
from validator.analysis.interfaces.families import Family
from validator.analysis.interfaces.uses import Use, Uses, called_in, open_uses
from validator.contracts import Contracts, implementations, standard
from validator.facts.model import Param
from validator.finding import Finding, Related
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP104", "sibling-default-differs", "warning", stable_since="0.1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        for name in project.analysis(Uses).names(family) if len(family.members) > 1 else ():
            methods = implementations(family, name)
            for param, owners in _defaults(methods).items():
                if len({_value(p.default) for p in owners.values()} - {_UNKNOWN}) > 1:
                    yield from _check(project, family, methods, param, owners)


_UNKNOWN = "?"


def _defaults(methods: dict[ClassDef, Method]) -> dict[str, dict[ClassDef, Param]]:
    found: dict[str, dict[ClassDef, Param]] = {}
    for cls, method in methods.items():
        for param in parameters(method):
            if param.default is not None:
                found.setdefault(param.name, {})[cls] = param
    return found


def _value(default: str | None) -> str:
    """A default such that equal ones compare equal: `1` and `1.0`, `None` and `{}`."""
    try:
        value: Any = ast.literal_eval(default or "")
    except (ValueError, SyntaxError):
        return _UNKNOWN
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(float(value))
    return repr(value) if value or isinstance(value, bool | str) else "None"


def _check(
    project: Project, family: Family, methods: dict[ClassDef, Method], name: str, owners: dict[ClassDef, Param]
) -> Iterator[Finding]:
    method_name = next(iter(methods.values())).name
    declared = project.analysis(Contracts).operation(family, method_name)
    wanted = next((p.default for p in declared.params if p.name == name), None) if declared is not None else None
    values = {cls: _value(param.default) for cls, param in owners.items()}
    first = standard(project, family, values, _value(wanted) if wanted is not None else None)
    uses = open_uses(project, family, method_name)
    reported: set[Method] = set()
    for cls, param in owners.items():
        method = methods[cls]
        if method in reported or values[cls] == values[first] or _UNKNOWN in (values[cls], values[first]):
            continue
        felt = [u for u in uses if {cls, first} <= u.classes and _leaves_out(methods[cls], u, name)]
        if felt:
            reported.add(method)
            yield _report(cls, method, first, methods[first], param, owners[first], felt)


def _leaves_out(method: Method, use: Use, name: str) -> bool:
    spread = any(a.keyword in ("*", "**") for a in use.call.args)
    return not spread and name not in bind(method, use.call)


def _report(
    cls: ClassDef, method: Method, sibling: ClassDef, other: Method, param: Param, theirs: Param, uses: list[Use]
) -> Finding:
    return RULE.finding(
        method.path,
        param.at,
        f"`{cls.name}.{method.name}` has `{param.name}={param.default}` where `{sibling.name}` has "
        f"`{theirs.default}`, and `{uses[0].caller.qualname}` leaves it out",
        help=f"use one default in all siblings, or pass `{param.name}` at the calls",
        related=[
            Related(other.path, theirs.at[0], f"the default in `{sibling.name}`"),
            *called_in(uses),
        ],
        context=f"{cls.qualname}.{method.name}:{param.name}",
    )


_BASE = 'def all_reduce(self, data, op="mean"): return self.engine.reduce(data, op)'
_USE = "return strategy.all_reduce(model.loss)"
_OTHER = """
def all_reduce(
    self,
    data,
    op="sum",  # error: MP104
): return self.group.reduce(data, op)
"""

INCORRECT = [pair(_BASE, _OTHER, _USE)]
CORRECT = [
    pair(_BASE, _OTHER.replace("  # error: MP104", ""), 'return strategy.all_reduce(model.loss, op="max")'),
    pair(_BASE, "def all_reduce(self, data, op='mean'): return self.group.reduce(data, op)", _USE),
    pair(
        "def save(self, model, state={}): model.save(state)",
        "def save(self, model, state=None): model.write(state or {})",
        "strategy.save(model)",
    ),
]

"""An option that a sibling honours and this class takes but never looks at.

What it does
    Reports parameters of a family member's method that nothing in its body reads, although a sibling reads the
    parameter of the same name. Only parameters that ask for something count: those with a boolean or numeric
    default, those with default None that a caller passes, and those with a member of an enumeration
    (`ReduceOp.AVG`) for a default of which a caller passes another. Objects handed on for the sake of a common
    signature (the optimizer that another engine owns), labels, names with a leading underscore, `del name`, stubs and
    bodies that use `locals()` are silent.

Why is this bad
    `load_optimizer_states=True` loads them with one backend; with the other training goes on with a fresh
    optimizer, and nothing says so.

References
    https://docs.python.org/3/tutorial/controlflow.html#defining-functions
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rules.interface.siblings._examples import pair
from validator.analysis.interfaces.binding import bind, parameters
from validator.analysis.interfaces.bodies import Bodies
from validator.analysis.interfaces.families import Family, hands_on
from validator.analysis.interfaces.uses import Use, Uses, called_in, open_uses
from validator.contracts import implementations
from validator.facts.model import Param
from validator.files.integers import is_whole
from validator.finding import Finding, Related, Severity
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP108", "sibling-parameter-ignored", "warning", stable_since="0.1.0", solves=True)

_NOTHING = ("None", "False")
_MEMBER = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*\.([A-Z][A-Z0-9_]*)")


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        for name in project.analysis(Uses).names(family) if len(family.members) > 1 else ():
            methods = implementations(family, name)
            own = {cls: m for cls, m in methods.items() if m.cls is cls and not m.facts.stub and not hands_on(m)}
            if len(own) > 1:
                yield from _check(project, family, name, own)


def _check(project: Project, family: Family, name: str, methods: dict[ClassDef, Method]) -> Iterator[Finding]:
    asking = {cls: [p for p in parameters(method) if _may_ask(p)] for cls, method in methods.items()}
    shared = {p.name for cls, params in asking.items() for p in params if _elsewhere(asking, cls, p.name)}
    if not shared:
        return
    uses = open_uses(project, family, name)
    bodies = project.analysis(Bodies)
    for cls, method in methods.items():
        felt = [use for use in uses if cls in use.classes]
        params = [p for p in asking[cls] if p.name in shared and p.name not in bodies.reads(method)]
        ignored = [p for p in params if felt and (_always_asks(p) or _passed(method, p, felt))]
        for sibling, other in methods.items():
            honoured = [p for p in ignored if _honours(bodies, other, p.name)]
            if sibling is not cls and honoured:
                asked = any(_asks_for_something(p) or _passed(method, p, felt) for p in honoured)
                yield _report(cls, method, sibling, other, honoured, felt, RULE.severity if asked else "note")
                break


def _may_ask(param: Param) -> bool:
    if param.name.startswith("_") or param.kind not in ("any", "kw") or param.default is None:
        return False
    return param.default == "None" or _always_asks(param) or _choice(param.default) is not None


def _always_asks(param: Param) -> bool:
    """Whether the default asks for something too, so that it does not matter what callers pass."""
    return param.default in ("True", "False") or is_whole((param.default or "").lstrip("-")[:1])


def _asks_for_something(param: Param) -> bool:
    """Whether the default is more than a switch that is off."""
    return param.default not in _NOTHING


def _choice(text: str) -> str | None:
    """`AVG` of `dist.ReduceOp.AVG`: the member of an enumeration."""
    found = _MEMBER.fullmatch(text)
    return found[1] if found else None


def _elsewhere(asking: dict[ClassDef, list[Param]], cls: ClassDef, name: str) -> bool:
    return any(p.name == name for other, params in asking.items() if other is not cls for p in params)


def _passed(method: Method, param: Param, uses: list[Use]) -> bool:
    passed = (argument.value for use in uses if (argument := bind(method, use.call).get(param.name)) is not None)
    usual = _choice(param.default or "")
    if usual is None:
        return any(value not in _NOTHING for value in passed)
    return any(_choice(value) not in (None, usual) for value in passed)


def _honours(bodies: Bodies, method: Method, name: str) -> bool:
    return any(p.name == name for p in parameters(method)) and name in bodies.reads(method)


def _report(
    cls: ClassDef, method: Method, sibling: ClassDef, other: Method, params: list[Param], uses: list[Use],
    severity: Severity,
) -> Finding:  # fmt: skip
    names = [f"`{p.name}`" for p in params]
    listed = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
    return RULE.finding(
        method.path,
        params[0].at,
        f"`{cls.name}.{method.name}` takes {listed} and never uses {'it' if len(names) == 1 else 'them'}, "
        f"while `{sibling.name}` does",
        help="honour it as the sibling does, or refuse values that ask for what this class cannot do",
        related=[
            Related(other.path, other.facts.name_at[0], f"`{sibling.name}.{other.name}` uses it"),
            *called_in(uses),
        ],
        context=f"{cls.qualname}.{method.name}",
        severity=severity,
    )


_BASE = "def load_ckpt(self, model, path, load_optimizer=True): return model.load(path, load_optimizer)"
_USE = "strategy.load_ckpt(model, args.path)"
_DEAF = "def load_ckpt(self, model, path, load_optimizer=True):  # error: MP108\n    return model.read(path)"

_CHOICE = "def all_reduce(self, data, op=ReduceOp.AVG): {}"
_OTHER = "return strategy.all_reduce(model.loss, op=ReduceOp.{})"

INCORRECT = [
    pair(_BASE, _DEAF, _USE),
    pair(
        _CHOICE.format("return self.group.reduce(data, op)"),
        _CHOICE.format(" # error: MP108\n    return data.mean()"),
        _OTHER.format("MAX"),
    ),
]
CORRECT = [
    pair(
        _CHOICE.format("return self.group.reduce(data, op)"),
        _CHOICE.format("return data.mean()"),
        _OTHER.format("AVG"),
    ),
    pair(_BASE, "def load_ckpt(self, model, path, load_optimizer=True): return self.read(path, load_optimizer)", _USE),
    pair(_BASE, "def load_ckpt(self, model, path, _load_optimizer=True): return model.read(path)", _USE),
    pair(
        "def optimizer_step(self, optimizer, model, name='model'): optimizer.step(name)",
        "def optimizer_step(self, optimizer, model, name='model'): model.step()",
        "strategy.optimizer_step(model.optimizer, model, name='actor')",
    ),
]

"""A class that does not honour the contract which the configuration declares for its family.

What it does
    Holds every member of a family against the contracts that `contracts = ["…toml"]` of the configuration names:
    an operation that is missing, is a property instead of a method, lacks or renames or moves a declared parameter,
    demands one that is not declared, or has another default. Contracts that ship with the tool are not binding.
    A contract may build on one of those: `extends = "openrlhf-0.9"`.

Why is this bad
    Code that was written for the contract, perhaps in another repository, fails on this class.

References
    https://en.wikipedia.org/wiki/Design_by_contract
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.binding import keeps_signature, parameters, signature
from validator.contracts import Contract, Contracts, Operation
from validator.facts.model import Param
from validator.finding import Finding
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP115", "contract-broken", "error", stable_since="0.1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    contracts = project.analysis(Contracts)
    for family in project.families.all:
        for contract in contracts.binding(family):
            for cls in family.members:
                for operation in contract.operations.values():
                    yield from _check(contract, cls, operation)


def _check(contract: Contract, cls: ClassDef, operation: Operation) -> Iterator[Finding]:
    method = cls.find(operation.name)
    if method is None:
        if not operation.optional and operation.name not in cls.attributes and not cls.is_open:
            yield _report(contract, cls, None, operation, "is missing")
        return
    if method.facts.is_property != (operation.kind == "property"):
        wanted = "property" if operation.kind == "property" else "method"
        yield _report(contract, cls, method, operation, f"is not a {wanted}")
    elif keeps_signature(method):
        problem = _misfit(operation.params, parameters(method))
        if problem:
            yield _report(contract, cls, method, operation, problem)


def _misfit(declared: tuple[Param, ...], params: tuple[Param, ...]) -> str:
    """The first way in which a call that the contract allows would not do the same; empty if none."""
    plain = [p for p in params if p.kind in ("any", "pos")]
    by_name = {p.name: p for p in params if p.kind in ("any", "kw")}
    spread = {p.kind for p in params}
    for index, want in enumerate(p for p in declared if p.kind == "any"):
        got = plain[index] if index < len(plain) else None
        if want.name not in by_name and not (got is None and {"*", "**"} <= spread):
            return f"has no parameter `{want.name}`"
        if got is not None and got.name != want.name:
            return f"takes `{got.name}` as parameter {index + 1} instead of `{want.name}`"
        if got is None and "*" not in spread:
            return f"takes `{want.name}` only by keyword"
        if got is not None and (problem := _default(want, got)):
            return problem
    names = {p.name for p in declared}
    for want in (p for p in declared if p.kind == "kw"):
        if want.name not in by_name and "**" not in spread:
            return f"has no parameter `{want.name}`"
    for kind, text in (("*", "*args"), ("**", "**kwargs")):
        if any(p.kind == kind for p in declared) and kind not in spread:
            return f"takes no `{text}`"
    extra = next((p for p in by_name.values() if p.name not in names and p.default is None), None)
    return f"demands `{extra.name}`" if extra is not None and "**" not in {p.kind for p in declared} else ""


def _default(want: Param, got: Param) -> str:
    if want.default is not None and got.default is None:
        return f"has no default for `{want.name}`"
    same = (want.default or "").replace('"', "'") == (got.default or "").replace('"', "'")
    return "" if want.default is None or same else f"has `{got.name}={got.default}` instead of `{want.default}`"


def _report(contract: Contract, cls: ClassDef, method: Method | None, operation: Operation, problem: str) -> Finding:
    shown = f"; it is `{signature(method)}`" if method is not None and operation.kind == "method" else ""
    return RULE.finding(
        method.path if method is not None else cls.path,
        method.facts.name_at if method is not None else cls.facts.name_at,
        f"`{cls.name}.{operation.name}` {problem}, against the contract `{contract.name}`{shown}",
        help="change the class, or the contract if the interface is meant to change",
        context=f"{cls.qualname}.{operation.name}",
    )


_EXAMPLE = """\
# file: pyproject.toml
[tool.validator]
contracts = ["contract.toml"]
# file: contract.toml
name = "mine"
applies = "Strategy"
[operation.backward]
signature = "backward(loss, model, name='model')"
[operation.save_ckpt]
signature = "save_ckpt(model, path)"
# file: strategy.py
class {cls}:{missing}
    def backward(self, loss, {model}, name="model"): loss.backward(){renamed}
    def {save}(self, model, path, tag=None): model.save(path)

def get_strategy(args):
    return {cls}()
"""
_MARK = "  # error: MP115"

INCORRECT = [
    _EXAMPLE.format(cls="FsdpStrategy", save="save", model="network", missing=_MARK, renamed=_MARK),
]
CORRECT = [
    _EXAMPLE.format(cls="FsdpStrategy", save="save_ckpt", model="model", missing="", renamed=""),
    _EXAMPLE.format(cls="FsdpThing", save="save", model="network", missing="", renamed=""),
]

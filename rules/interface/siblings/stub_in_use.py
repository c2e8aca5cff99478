"""A method without a body that callers rely on.

What it does
    Reports a method of a family member whose body is `raise NotImplementedError`, or `pass`, `...`, a docstring or
    a constant where a sibling does real work, if callers use it on objects of the family without asking first
    (`hasattr`, a test of the backend, `except NotImplementedError`). A body that does nothing and whose result
    nobody uses is reported only for operations that change or store something. Abstract classes, protocols and
    classes that nobody makes are silent.

Why is this bad
    The run ends with NotImplementedError at the first checkpoint, or goes on without having saved one.

References
    https://docs.python.org/3/library/exceptions.html#NotImplementedError
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.interface.siblings._examples import pair
from validator.analysis.interfaces.families import Family, stands_out
from validator.analysis.interfaces.uses import Use, Uses, called_in, open_uses, where
from validator.contracts import Contracts, implementations
from validator.finding import Finding, Related
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP107", "stub-in-use", "error", stable_since="0.1.0", solves=True)

_WHAT = {
    "raise": "raises NotImplementedError and nothing else",
    "pass": "does nothing",
    "ellipsis": "does nothing",
    "docstring": "does nothing",
    "constant": "returns a constant and nothing else",
}


def check_project(project: Project) -> Iterator[Finding]:
    for family in project.families.all:
        for name in project.analysis(Uses).names(family):
            methods = implementations(family, name)
            stubs = sum(bool(method.facts.stub) for method in methods.values())
            for cls, method in methods.items() if stands_out(stubs, len(methods) - stubs) else ():
                if method.facts.stub and method.cls is cls and not method.facts.is_abstract and not cls.is_abstract:
                    felt = [use for use in open_uses(project, family, name) if cls in use.classes]
                    sibling = _working(methods)
                    if felt and _matters(project, family, method, sibling, felt):
                        yield _report(cls, method, sibling, felt)


def _working(methods: dict[ClassDef, Method]) -> tuple[ClassDef, Method] | None:
    return next(((cls, method) for cls, method in methods.items() if not method.facts.stub), None)


def _matters(
    project: Project, family: Family, method: Method, sibling: tuple[ClassDef, Method] | None, uses: list[Use]
) -> bool:
    stub = method.facts.stub
    if stub == "raise":
        return True
    if sibling is None or method.facts.is_property:
        return False
    used = any(use.call.use not in ("discard", "await") for use in uses)
    if stub == "constant":
        return method.name in _WORKING_NAMES  # elsewhere a constant may well be the answer
    declared = project.analysis(Contracts).operation(family, method.name)
    return used or method.name in _WORKING_NAMES or declared is not None and not declared.optional


# operations that change or store something: doing nothing is never an answer
_WORKING_NAMES = frozenset({
    "backward", "optimizer_step", "prepare", "create_optimizer", "setup_distributed", "setup_dataloader", "save_model",
    "load_model", "save_ckpt", "load_ckpt", "save_checkpoint", "load_checkpoint", "all_reduce", "all_gather", "step",
    "clip_grad_norm", "get_grad_norm",
})  # fmt: skip


def _report(cls: ClassDef, method: Method, sibling: tuple[ClassDef, Method] | None, uses: list[Use]) -> Finding:
    related = called_in(uses)
    if sibling is not None:
        other = sibling[1]
        related.append(Related(other.path, other.facts.name_at[0], f"`{sibling[0].name}` does the work here"))
    callers = len({use.caller for use in uses})
    more = f" (and {callers - 1} other{'s' * (callers > 2)})" if callers > 1 else ""
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"`{cls.name}.{method.name}` {_WHAT[method.facts.stub]}, but {where(uses[0])}{more} calls it without asking",
        help="write it, or refuse the options that lead to the call before training starts",
        related=related,
        context=f"{cls.qualname}.{method.name}",
    )


_BASE = "def save_ckpt(self, model, path): model.save(path)"
_USE = "strategy.save_ckpt(model, args.path)"

INCORRECT = [
    pair(_BASE, "def save_ckpt(self, *args):  # error: MP107\n    raise NotImplementedError('phase 5')", _USE),
    pair(_BASE, "def save_ckpt(self, model, path):  # error: MP107\n    pass", _USE),
]
CORRECT = [
    pair(_BASE, "def save_ckpt(self, model, path):\n    raise NotImplementedError", "print(strategy)"),
    pair(
        _BASE,
        "def save_ckpt(self, model, path):\n    raise NotImplementedError",
        "try:\n    strategy.save_ckpt(model, args.path)\nexcept NotImplementedError:\n    print('no checkpoint')",
    ),
    pair(
        "def is_rank_0(self): return self.rank == 0",
        "def is_rank_0(self): return True",
        "print(strategy.is_rank_0())",
    ),
]

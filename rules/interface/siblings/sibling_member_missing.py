"""A member that callers use and that a sibling has, but this class has not.

What it does
    For classes that stand in for each other (a family: what one factory may return, and classes of one suffix with
    common methods) reports the class that lacks a method or attribute which callers use on objects of the family
    and at least one sibling defines. Silent: uses behind `hasattr`, `isinstance`, a test of the backend or an
    `except AttributeError`; classes with `__getattr__`, mixins or bases outside the project; attributes that
    anything sets from outside.

Why is this bad
    The program runs with one backend and raises AttributeError with the other, at the first call: often after the
    model is loaded, or at the first checkpoint.

References
    https://docs.python.org/3/reference/expressions.html#attribute-references
"""

from __future__ import annotations

from collections.abc import Iterator

from rules.interface.siblings._examples import pair
from validator.analysis.interfaces.families import Family, stands_out
from validator.analysis.interfaces.members import Members
from validator.analysis.interfaces.uses import Read, Use, called_in, open_reads, open_uses, where
from validator.finding import Finding, Related
from validator.project import ClassDef, Project
from validator.rule import Rule

RULE = Rule("MP101", "sibling-member-missing", "error", stable_since="0.1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    members = project.analysis(Members)
    for family in project.families.all:
        if len(family.members) < 2:
            continue
        names = frozenset().union(*(cls.attributes for cls in family.members))
        for name in sorted(n for n in names if not n.startswith("__")):
            having = [cls for cls in family.members if name in cls.attributes]
            lacking = [cls for cls in family.members if cls not in having and members.lacks(cls, name)]
            uses = _uses(project, family, name) if lacking and stands_out(len(lacking), len(having)) else []
            for cls in lacking:
                felt = [use for use in uses if cls in use.classes]
                if felt:
                    yield _report(cls, name, having[0], felt)


def _uses(project: Project, family: Family, name: str) -> list[Use | Read]:
    return [*open_uses(project, family, name), *open_reads(project, family, name)]


def _report(cls: ClassDef, name: str, sibling: ClassDef, uses: list[Use | Read]) -> Finding:
    method = sibling.find(name)
    kind = "method" if method is not None and not method.facts.is_property else "attribute"
    verb = "calls" if isinstance(uses[0], Use) else "reads"
    related = called_in(uses)
    if method is not None:
        related.append(Related(method.path, method.facts.name_at[0], f"`{sibling.name}` defines it here"))
    return RULE.finding(
        cls.path,
        cls.facts.name_at,
        f"`{cls.name}` has no {kind} `{name}`, which {where(uses[0])} {verb} and its sibling `{sibling.name}` has",
        help=f"define `{name}` in `{cls.name}` with the meaning it has in `{sibling.name}`, or guard the callers",
        related=related,
        context=f"{cls.qualname}.{name}",
    )


_FULL = "def backward(self, loss): loss.backward()\ndef get_grad_norm(self, model): return model.norm()"
_BARE = "def backward(self, loss): loss.backward()"

INCORRECT = [
    pair(_FULL, _BARE, "print(strategy.get_grad_norm(model))").replace(
        "class FsdpStrategy:", "class FsdpStrategy:  # error: MP101"
    ),
]
CORRECT = [
    pair(_FULL, _BARE, "print(strategy.get_grad_norm(model) if hasattr(strategy, 'get_grad_norm') else 0.0)"),
    pair(_FULL, _BARE, 'print(strategy.get_grad_norm(model) if args.backend == "deepspeed" else 0.0)'),
    pair(_FULL, _BARE, "strategy.backward(model.loss)"),
    # what a function inside of its own method asks for
    pair(
        _FULL + "\ndef clip(self, model):\n    def norm(): return self.get_grad_norm(model)\n    return norm",
        _BARE + "\ndef clip(self, model): return None",
        "strategy.clip(model)",
    ),
]

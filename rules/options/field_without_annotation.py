"""A new default of a data class's field without an annotation: objects keep the old one.

What it does
    Reports names that the body of a class sets without an annotation, where a data class above it declares them as a
    field and makes `__init__`. Silent where a class between has an `__init__` of its own, and for class variables.

Why is this bad
    Only what is annotated is a field. `__init__` goes on to store the default of the base in every object, where it
    hides the new one: a recipe trains with the number of updates that it meant to change.

References
    https://docs.python.org/3/library/dataclasses.html#inheritance
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.facts.model import Assign
from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Project
from validator.rule import Rule

RULE = Rule("MP312", "field-without-annotation", "error", stable_since="1.0", tokens=("dataclass",))

_MAKING = frozenset({"dataclass", "dataclasses.dataclass"})


def check_project(project: Project) -> Iterator[Finding]:
    for cls in project.classes():
        body = (
            cls.module.functions.get(f"{cls.qualname}.<class>") if len(cls.mro) > 1 and not is_test(cls.path) else None
        )
        for row in body.facts.assigns if body is not None else ():
            base = _declaring(cls, row.target) if row.kind not in ("aug", "for", "with", "none") else None
            if base is not None:
                yield _report(cls, base, row)


def _declaring(cls: ClassDef, name: str) -> ClassDef | None:
    """The data class above a class whose field a name is, and whose `__init__` an object of the class runs."""
    if any(own == name and annotation for own, annotation in cls.facts.attributes):
        return None
    for each in cls.mro:
        if "__init__" in each.methods or name in each.methods or each.facts.keywords:
            return None
        said = [annotation for own, annotation in each.facts.attributes if own == name and annotation]
        if said and each is not cls:
            plain = "ClassVar" not in said[0] and "InitVar" not in said[0]
            made = any(decorator.removesuffix("()") in _MAKING for decorator in each.facts.decorators)
            return each if plain and made else None
    return None


def _report(cls: ClassDef, base: ClassDef, row: Assign) -> Finding:
    return RULE.finding(
        cls.path,
        row.at,
        f"`{row.target}` in `{cls.name}` has no annotation, so it is no field: objects keep the default of"
        f" `{base.name}`",
        help=f"annotate it, as `{base.name}` does",
        related=[Related(base.path, base.facts.name_at[0], f"`{base.name}` declares `{row.target}`")],
        context=f"{cls.qualname}:{row.target}",
        # what a decorator is given may leave `__init__` out
        severity=RULE.severity if not _MAKING.isdisjoint(base.facts.decorators) else "warning",
    )


INCORRECT = (
    """
from dataclasses import dataclass

@dataclass
class Base:
    actor_updates: int = 1
    critic_updates: int = 4

@dataclass
class Recipe(Base):
    actor_updates: int = 2
    critic_updates = 12  # error: MP312
""",
)

CORRECT = (
    """
from dataclasses import dataclass
from typing import ClassVar

@dataclass
class Base:
    name: ClassVar[str] = "base"
    actor_updates: int = 1
    critic_updates: int = 4

@dataclass
class Recipe(Base):
    name = "recipe"
    seeds = (1, 2)
    critic_updates: int = 12
""",
    """
from dataclasses import dataclass

@dataclass
class Base:
    updates: int = 1

class Own(Base):
    updates = 2

    def __init__(self):
        self.made = True

class Plain:
    updates = 1

class Below(Plain):
    updates = 2
""",
)

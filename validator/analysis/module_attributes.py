"""Attributes that code asks modules of the project for, and that these do not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.imports import Imports
from validator.effects.variants import Variants
from validator.flow import Flow
from validator.flow.queries.base import Place
from validator.project import Missing, Module, Project


class Asked(NamedTuple):
    """`utils.reduce_dict`, where the module that `utils` is has no such name."""

    place: Place
    missing: Missing


def lacking(project: Project) -> Iterator[Asked]:
    """What is asked of a module that the project has, and of nothing else, under a name that it does not define; where
    code asks first, takes the error, or sets the name from outside, nothing is said."""
    flow, imports = project.analysis(Flow), project.analysis(Imports)
    for module in project.modules.values():
        for unit in flow.whole_units(module):
            for number, value in enumerate(unit.code.values):
                if value.op != "attr":
                    continue
                place = Place(flow, unit, number)
                missing = _missing(project, place) if _may_be_module(place) else None
                if missing is None or imports.may_have(module, missing) or place.may_lack(value.data):
                    continue
                if _is_imported(module, place.text):
                    continue
                if missing.owner is None or not imports.is_namesake(module, missing.owner):
                    yield Asked(place, missing)


def _is_imported(module: Module, text: str) -> bool:
    """Whether an import names what is asked for (`import util.misc.text`): whether that is there is a question to the
    import, which may find an installed package of the same name."""
    rows = (row for row in module.facts.imports if not row.level and row.name is None)
    return any(f"{row.module}.".startswith(f"{text}.") for row in rows)


def _may_be_module(place: Place) -> bool:
    """Whether what is asked has a name of its own: modules come by imports, and are hardly ever made or given back."""
    return place.operand(0).root.value.op in ("import", "name", "free", "attr", "phi")


def _missing(project: Project, place: Place) -> Missing | None:
    objs = place.operand(0).closed.objs
    owners = [o[1] for o in objs if o[0] == "module"]
    if len(owners) != 1 or len(objs) != 1 or not isinstance(owners[0], Module):
        return None
    if project.analysis(Variants).rules_out(place, owners[0]):
        return None
    found = project.member_of_any(place.unit.module, owners[0], place.value.data)
    return found if isinstance(found, Missing) and found.name is not None else None

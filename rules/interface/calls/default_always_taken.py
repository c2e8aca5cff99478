"""`getattr` with a default, of a name that the object cannot have.

What it does
    Finds `getattr(x, "name", default)` where `x` is declared to be an object of classes of the project, and none of
    them, nor a class below them, has or is given an attribute of that name: a note. It is a warning, whatever else `x`
    may be, where one of the classes has an attribute of a similar name that no code reads.

Why is this bad
    The default is always taken: since the attribute was renamed, say, and this place was forgotten.

References
    https://docs.python.org/3/library/functions.html#getattr
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.members import Members
from validator.analysis.interfaces.unspelled import Unspelled
from validator.errors import nearest
from validator.finding import Finding, Related
from validator.flow.annotations import classes_of
from validator.flow.objects import Objects
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Project
from validator.rule import Rule

RULE = Rule("MP142", "default-always-taken", "warning", "0.3.0", tokens=("getattr",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    queries, objects, members = project.analysis(Queries), project.analysis(Objects), project.analysis(Members)
    for unit in queries.flow.mentions.calling("getattr"):
        for place in queries.calls_in(unit) if not is_test(unit.path) else ():
            name = _name(place)
            if name and not members.is_given_outside(name):
                declared = _declared(objects, place.operand(1), place)
                classes = _sorted(declared or objects.held(place.operand(1), place).classes)
                if classes and all(members.lacks(cls, name) for cls in classes):
                    unread = _unread(project, classes, name) if declared or _is_known(place.operand(1)) else None
                    if declared or unread is not None:
                        yield _report(place, name, classes, unread)


def _is_known(asked: Place) -> bool:
    """Whether more is said of an object than that callers pass it: others may pass what has the name."""
    root = asked.root
    params = root.unit.method.facts.params if root.value.op == "param" and root.unit.method is not None else ()
    return root.value.op != "param" or any(p.name == root.value.data[1] and p.annotation for p in params)


def _sorted(classes: frozenset[ClassDef]) -> list[ClassDef]:
    return sorted(classes, key=lambda cls: (cls.path, cls.qualname))


def _unread(project: Project, classes: list[ClassDef], name: str) -> tuple[ClassDef, str] | None:
    """A class with an attribute that is like a name, and that no code reads: what is meant."""
    rows = ((cls, project.analysis(Unspelled).unread_like(name, cls)) for cls in classes)
    return next(((cls, like) for cls, like in rows if like is not None), None)


def _name(call: Place) -> str:
    """The name that `getattr` asks for with a default; empty for other calls."""
    shape = call.value.data.names
    if call.operand(0).value.op != "name" or call.operand(0).value.data != "getattr" or shape != (None, None, None):
        return ""
    name = call.operand(2).value
    return name.data if name.op == "const" and isinstance(name.data, str) else ""


def _declared(objects: Objects, asked: Place, user: Place) -> frozenset[ClassDef]:
    """The classes that annotations say of a value: the objects that the project itself makes may not be all."""
    held = objects.held(asked, user)
    if asked.value.op == "attr":
        owners = objects.held(asked.operand(0))
        said = [classes_of(objects.flow.fields.declared(cls, asked.value.data)) for cls in owners.classes]
        if owners.complete and said and all(said):
            return frozenset().union(*said)
    return held.classes if held.complete and held.classes == held.below else frozenset()


def _report(place: Place, name: str, classes: list[ClassDef], unread: tuple[ClassDef, str] | None) -> Finding:
    shown = " or ".join(f"`{cls.name}`" for cls in classes)
    known = sorted(frozenset().union(*(cls.attributes for cls in classes)))
    instead = f"; `{unread[0].name}.{unread[1]}`, which is like it, nobody reads" if unread is not None else ""
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`getattr`{place.where} always takes the default: {shown} has no attribute `{name}`{instead}",
        help=f"ask for an attribute that is there{nearest(name, known)}, or leave `getattr` out",
        related=[Related(cls.path, cls.facts.name_at[0], f"`{cls.name}` is defined here") for cls in classes],
        context=f"{place.unit.qualname}:{name}",
        severity=RULE.severity if unread is not None else "note",
    )


_CONFIG = """\
from dataclasses import dataclass


@dataclass
class Data:
    {field}: int = 8


def train(strategy, data: Data):
    return strategy.fit(getattr(data, "debug_max_samples", None)){mark}


def main(strategy):
    return train(strategy, Data())
"""

_UNION = """\
from dataclasses import dataclass


@dataclass
class Dense:
    _doc_masking: bool = False


@dataclass
class Sparse:
    experts: int = 8


def collate(strategy, model: "Dense | Sparse"):
    return strategy.collator(model, doc_masking=getattr(model, "{name}", None)){mark}


def main(strategy, load):
    collate(strategy, Dense(_doc_masking=True))
    return collate(strategy, Sparse()), collate(strategy, load())
"""

INCORRECT = (
    _CONFIG.format(field="max_samples", mark="  # error: MP142"),
    # whatever else may come: the field that is filled is read nowhere
    _UNION.format(name="doc_masking", mark="  # error: MP142"),
)

CORRECT = (
    _CONFIG.format(field="debug_max_samples", mark=""),
    # somebody sets it; a class below has it
    _CONFIG.format(field="max_samples", mark="") + "\n\ndef debug(data):\n    data.debug_max_samples = 1\n",
    _CONFIG.format(field="max_samples", mark="")
    + "\n\n@dataclass\nclass Debug(Data):\n    debug_max_samples: int = 1\n",
    # the attribute that is alike is read; it is another one
    _UNION.format(name="_doc_masking", mark=""),
    _UNION.format(name="doc_masking", mark="")
    .replace(': "Dense | Sparse"', "")
    .replace("load())", "load()._doc_masking)"),
)

"""An attribute that is stored on an object whose data class has no such field, and that nobody reads there.

What it does
    Reports `config.ref.kl_coef = …` where all classes of which the object may be are data classes of the project that
    declare no such field and have none of that name in their family, another data class of the project declares it, and
    either each place that reads an attribute of that name asks objects of other classes, or the constructor of that
    other class does not take the field (`init=False`) and nobody stores it there. Silent where one of the readers, or
    of those that store, asks something of unknown class, where the name stands in a text (`getattr`), and in tests.

Why is this bad
    Python stores it without a word. Whoever was to be told keeps its default, and the setting has no effect.

References
    https://docs.python.org/3/library/dataclasses.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.constructors import fields_of
from validator.flow.objects import Objects
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Project
from validator.rule import Rule

RULE = Rule("MP165", "stored-on-another", "warning", stable_since="1.1", tokens=("dataclass",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    objects = project.analysis(Objects)
    declaring: dict[str, list[ClassDef]] = {}
    for cls in project.classes():
        for name in fields_of(cls) or ():
            declaring.setdefault(name, []).append(cls)
    for unit in objects.queries.of_program():
        for place in objects.queries.values(unit, "store_attr"):
            name, owner = place.value.data, place.operand(0)
            if name not in declaring or unit.is_receiver(owner.root.number) or is_test(unit.path):
                continue
            held = objects.held(owner)
            if not held.complete or not held.classes or any(_has(cls, name) for cls in held.classes):
                continue
            others = [cls for cls in declaring[name] if not is_test(cls.path)]
            unset = next((cls for cls in others if _is_never_set(objects, name, cls)), None)
            if unset is not None or others and not _may_be_read(objects, name, held.classes):
                yield _report(place, name, held.classes, unset or others[0], unset is not None)


def _has(cls: ClassDef, name: str) -> bool:
    """Whether a class may have an attribute: its fields are not all known, or one of its family has it."""
    return fields_of(cls) is None or cls.is_opaque or any(name in each.attributes for each in cls.relatives)


def _is_never_set(objects: Objects, name: str, cls: ClassDef) -> bool:
    """Whether a class declares a field that its constructor does not take, and nobody stores on its objects."""
    params = objects.constructors.of(cls)
    if params is None or any(param.name == name or param.kind == "**" for param in params):
        return False
    for unit in objects.flow.mentions.naming(name):
        for place in objects.queries.values(unit, "store_attr"):
            held = objects.held(place.operand(0)) if place.value.data == name else None
            if held is not None and (not held.complete or not held.classes.isdisjoint(cls.relatives)):
                return False
        if any(unit.code.values[number].op == "const" for number in unit.named.get(name, ())):
            return False  # `setattr(config, "name", value)`
    return True


def _may_be_read(objects: Objects, name: str, classes: frozenset[ClassDef]) -> bool:
    """Whether somebody may ask an object of some classes for an attribute."""
    family = {each for cls in classes for each in cls.relatives}
    for unit in objects.flow.mentions.naming(name):
        for number in unit.named.get(name, ()):
            value = unit.code.values[number]
            if value.op == "const":
                return True
            if value.op == "attr":
                held = objects.held(Place(objects.flow, unit, value.args[0]))
                if not held.complete or not family.isdisjoint(held.classes):
                    return True
    return False


def _report(place: Place, name: str, classes: frozenset[ClassDef], other: ClassDef, unset: bool) -> Finding:
    shown = " and ".join(sorted(f"`{cls.name}`" for cls in classes))
    return RULE.finding(
        place.unit.path,
        place.at,
        f"{shown} has no field `{name}`, which `{place.unit.qualname}` stores on it"
        + (
            f": that of `{other.name}`, which its constructor does not take, is set by nobody"
            if unset
            else f", and nobody reads it there: `{other.name}` has such a field"
        ),
        help=f"store it on a `{other.name}`, or declare the field",
        related=[Related(other.path, other.facts.name_at[0], f"`{other.name}` declares `{name}`")],
        context=f"{place.unit.qualname}:{place.text}",
    )


_CONFIG = """\
from dataclasses import dataclass, field


@dataclass
class Actor:
    strategy: str = "fsdp"
    kl_coef: float = field(default=0.0, init=False)


@dataclass
class Reference:
    strategy: str = "fsdp"


@dataclass
class Config:
    kl_coef: float = 0.1
    actor: Actor = field(default_factory=Actor)
    reference: Reference = field(default_factory=Reference)

    def finish(self):
        self.{part}.kl_coef = self.kl_coef{mark}


def loss(config: Actor, kl):
    return config.kl_coef * kl


def main(kl):
    config = Config()
    config.finish()
    return loss(config.actor, kl)
"""

_SHOWN = """

def show(part):
    return part.kl_coef


print(show(Config().reference))
"""

INCORRECT = (
    _CONFIG.format(part="reference", mark="  # error: MP165"),
    # somebody may read it there, but the field that the constructor leaves out is set by nobody
    _CONFIG.format(part="reference", mark="  # error: MP165") + _SHOWN,
)

CORRECT = (
    _CONFIG.format(part="actor", mark=""),
    # somebody reads it there, and who makes the other one may set it
    (_CONFIG.format(part="reference", mark="") + _SHOWN).replace("field(default=0.0, init=False)", "0.0"),
)

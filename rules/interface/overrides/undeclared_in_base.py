"""A method that callers use on a base class, and that the base class does not declare.

What it does
    Where a value is *some* subclass of an abstract class of the project (it is annotated with the base class), a call
    of a method is looked for in the base class. Reported, at the base class, is one that it does not declare and that
    a concrete class below it lacks. A note: which of the classes ever come to the call, an annotation does not say,
    and often one caller is made for one kind alone. Where objects that lack the method are known to come there, MP120
    and MP133 report them. Silent behind `hasattr`, `isinstance` or `except AttributeError`.

Why is this bad
    Every new subclass is free to forget it, and AttributeError comes only with the subclasses that do.

References
    https://docs.python.org/3/library/abc.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.members import Members, excused, own_object
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP126", "undeclared-in-base", "note", stable_since="0.1.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    abstract = [cls for cls in project.classes() if cls.subclasses and cls.is_abstract]
    if not abstract:
        return
    objects = project.analysis(Objects)
    seen: set[tuple[ClassDef, str]] = set()
    for function in project.functions():
        for call in function.facts.calls if not is_test(function.path) else ():
            if not call.receiver or call.receiver == own_object(function):
                continue
            place = objects.call_at(function.module, call.at)
            receiver = place.receiver if place is not None else None
            for cls in objects.held(receiver).below if receiver is not None else ():
                if (cls, call.method) in seen or cls not in abstract:
                    continue
                if not excused(call.guards, call.receiver, call.method):
                    seen.add((cls, call.method))
                    yield from _check(project, cls, function, call)


def _check(project: Project, cls: ClassDef, function: Method, call: Call) -> Iterator[Finding]:
    members = project.analysis(Members)
    if not members.may_lack(cls, call.method):
        return
    concrete = [each for each in cls.descendants() if not each.is_abstract and not is_test(each.path)]
    lacking = sorted(each.name for each in concrete if members.may_lack(each, call.method))
    if not lacking:
        return
    names = ", ".join(f"`{name}`" for name in lacking[:4]) + (" and others" if len(lacking) > 4 else "")
    yield RULE.finding(
        cls.path,
        cls.facts.name_at,
        f"`{cls.name}` declares no method `{call.method}`, which `{function.qualname}` calls on some kind of it; "
        f"{names} {'lacks' if len(lacking) == 1 else 'lack'} it",
        help=f"declare `{call.method}` in `{cls.name}`, abstract or raising, and implement it below",
        related=[Related(function.path, call.at[0], f"`{call.target}` is called here")],
        context=f"{cls.qualname}.{call.method}",
    )


INCORRECT = (
    """\
from abc import ABC, abstractmethod


class Plugin(ABC):  # error: MP126
    @abstractmethod
    def configure(self, model):
        ...


class DDPPlugin(Plugin):
    def configure(self, model):
        return model

    def no_sync(self, model):
        return model.no_sync()


class GeminiPlugin(Plugin):
    def configure(self, model):
        return model


class Booster:
    def __init__(self, plugin: Plugin, strategy=None):
        self.plugin = plugin

    def no_sync(self, model):
        return self.plugin.no_sync(model)
""",
)

CORRECT = (
    """\
from abc import ABC, abstractmethod


class Plugin(ABC):
    @abstractmethod
    def configure(self, model):
        ...

    def no_sync(self, model):
        raise NotImplementedError


class DDPPlugin(Plugin):
    def configure(self, model):
        return model


class Booster:
    def __init__(self, plugin: Plugin, strategy=None):
        self.plugin = plugin

    def no_sync(self, model):
        return self.plugin.no_sync(model)
""",
    # every kind has it; the other is asked for first
    """\
from abc import ABC, abstractmethod


class Plugin(ABC):
    @abstractmethod
    def configure(self, model):
        ...


class DDPPlugin(Plugin):
    def configure(self, model):
        return model

    def no_sync(self, model):
        return model.no_sync()


def run(plugin: Plugin, model, strategy=None):
    if hasattr(plugin, "prepare"):
        plugin.prepare(model)
    return plugin.no_sync(model)
""",
)

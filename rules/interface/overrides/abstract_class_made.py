"""An object of a class that still lacks abstract methods of its bases.

What it does
    Reports calls of a class below `abc.ABC` (or with `ABCMeta`) for which an abstract method of a base is left without
    a definition. Where the class comes by a value (a table of classes, a choice between two, a function that gives it
    back), it is a warning, and silent for classes that others inherit from, for the class that is a method's own, and
    behind a test that asks what is called. Silent where a base outside of the project may define the method, in tests,
    and where TypeError is expected.

Why is this bad
    Python refuses to make the object: TypeError. It is mostly found where an abstract method was renamed or added and
    one class was forgotten.

References
    https://docs.python.org/3/library/abc.html#abc.abstractmethod
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import PLAIN_BASES
from validator.facts.model import At, Guard
from validator.finding import Finding, Related
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule(
    "MP143",
    "abstract-class-made",
    "error",
    stable_since="0.3.0",
    tokens=("abstractmethod", "abstractproperty"),
    solves=True,
)

# Decorators that leave a method abstract; `functools.cached_property` around one does not.
_FORWARDING = frozenset({
    "abstractmethod", "abc.abstractmethod", "property", "abstractproperty", "abc.abstractproperty", "classmethod",
    "staticmethod", "typing.override", "override", "typing_extensions.override",
})  # fmt: skip
_ABSTRACT_BASES = frozenset({"abc.ABC", "ABC"})


def check_project(project: Project) -> Iterator[Finding]:
    for cls in project.classes():
        lacking = _lacking(cls) if not is_test(cls.path) else []
        for function, call in project.calls(cls.name) if lacking else ():
            if project.lookup(function, call.target) is not cls or is_test(function.path) or _is_tried(call.guards):
                continue
            yield _report(function.path, call.at, function.qualname, cls, lacking)
        for place in _by_value(project, cls) if lacking and not cls.subclasses else ():
            yield _report(place.unit.path, place.at, place.unit.qualname, cls, lacking, f"`{place.text}` may be of ")


def _by_value(project: Project, cls: ClassDef) -> Iterator[Place]:
    """The calls of what may be a class and does not bear its name: an element of a table, one of two, a result."""
    flow = project.analysis(Queries).flow
    for site in flow.calls_by_name.objects.makers(cls):
        place = Place(flow, *site)
        callee = place.operand(0)
        spoken = callee.value.op in ("name", "import", "attr") or place.unit.is_receiver(callee.root.number)
        if spoken or ("class", cls) not in callee.closed.objs or place.catches("TypeError", "Exception"):
            continue
        if not any(callee.root.key == part.root.key for test in place.tests for part in test.parts):
            yield place


def _report(path: str, at: At, where: str, cls: ClassDef, lacking: list[Method], chosen: str = "") -> Finding:
    names = " and ".join(f"`{method.name}`" for method in lacking)
    return RULE.finding(
        path,
        at,
        f"{chosen}`{cls.name}`{', which' if chosen else ''} cannot be made: it lacks the abstract {names}: TypeError",
        help=f"define {names} in `{cls.name}`",
        related=[
            Related(cls.path, cls.facts.name_at[0], f"`{cls.name}` is defined here"),
            *(Related(each.path, each.facts.name_at[0], f"`{each.qualname}` is abstract") for each in lacking),
        ],
        context=f"{where}:{cls.name}",
        severity="warning" if chosen else RULE.severity,
    )


def _lacking(cls: ClassDef) -> list[Method]:
    """The abstract methods that a class leaves without a definition; none where others may define them."""
    if not any(base in _ABSTRACT_BASES for base in cls.external_bases) and not any(map(_has_abc_meta, cls.mro)):
        return []
    if any(base not in PLAIN_BASES for base in cls.external_bases) or cls.is_protocol or cls.facts.decorators:
        return []
    abstract = {name for each in cls.mro for name, method in each.methods.items() if method.facts.is_abstract}
    given = {name for each in cls.mro for name, _ in each.facts.attributes if name not in each.methods}
    found = [method for name in sorted(abstract - given) if (method := cls.find(name)) is not None]
    return [method for method in found if method.facts.is_abstract and _FORWARDING.issuperset(method.facts.decorators)]


def _has_abc_meta(cls: ClassDef) -> bool:
    return any(name == "metaclass" and value.endswith("ABCMeta") for name, value in cls.facts.keywords)


def _is_tried(guards: tuple[Guard, ...]) -> bool:
    return any(guard.kind == "try" or guard.kind == "with" and "raises" in guard.text for guard in guards)


_CLUSTERS = """\
import abc


class Cluster(abc.ABC):
    @abc.abstractmethod
    def stream_logs(self):
        ...

    @property
    @abc.abstractmethod
    def name(self):
        ...


class Frontier(Cluster):
    name = "frontier"

    def {method}(self):
        return []


def start(strategy):
    return strategy.run(Frontier()){mark}
"""

_CHOSEN = """\
import abc


class Backend(abc.ABC):
    @abc.abstractmethod
    def wake_up(self):
        ...


class Local(Backend):
    def wake_up(self):
        return 1


class Served(Backend):
    def {method}(self):
        return 2


class Worker:
    def __init__(self, strategy, name):
        made = {{"local": Local, "served": Served}}[name]
        self.backend = made(){mark}
        self.other = (Served if strategy.served else Local)(){mark}
"""

INCORRECT = (
    _CLUSTERS.format(method="get_logs_stream", mark="  # error: MP143"),
    _CHOSEN.format(method="wakeup", mark="  # error: MP143"),
)

CORRECT = (
    _CHOSEN.format(method="wake_up", mark=""),
    # `cached_property` does not tell that what it wraps is abstract
    """\
import abc
import functools


class Base(abc.ABC):
    @functools.cached_property
    @abc.abstractmethod
    def device(self):
        raise NotImplementedError


class Trainer(Base):
    pass


def main():
    return Trainer()
""",
    _CLUSTERS.format(method="stream_logs", mark=""),
    # without ABC the decorator does nothing
    _CLUSTERS.replace("class Cluster(abc.ABC):", "class Cluster:").format(method="get_logs_stream", mark=""),
    # Python looks at each base once, behind all that are below it: `Shown.log` comes before `Logger.log`
    """\
import abc


class Logger(abc.ABC):
    @abc.abstractmethod
    def log(self, strategy): ...


class Named(Logger): ...


class Shown(Logger):
    def log(self, strategy):
        print(strategy)


class Both(Named, Shown): ...


Both().log(1)
""",
)

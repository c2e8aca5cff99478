"""A method that overrides a property, or the reverse; plain where the base is `async def`, or the reverse.

What it does
    Compares the kind of a method with that of the one that it overrides, and with how the project uses the name.
    Reported is a method in the place of a property that somebody reads without a call, a property in the place of a
    method that somebody calls, a plain method in the place of a coroutine that somebody awaits (of `__call__` always),
    and a coroutine in the place of a plain method that nobody awaits. Silent about methods that hand on what another
    call gives (it may be awaitable), that only raise, and in tests. What a method calls on its own object counts where
    objects of the overriding class run that method; what is called of an actor (`.remote()`) is awaited
    in any case, and so is what an object calls that stands for several: its result is asked for a method which other
    classes of the project have than those that the method gives. A coroutine is a note where the project makes no
    objects of the class by its name: they may be actors.

Why is this bad
    Who goes through the base gets the other kind: a bound method that is true in every condition, TypeError for calling
    a number or awaiting one, a coroutine of which no line runs.

References
    https://docs.python.org/3/reference/datamodel.html#the-standard-type-hierarchy
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.members import method_of, own_object
from validator.definitions import ClassDef, Method
from validator.finding import Finding, Related, Severity
from validator.flow.queries.base import Queries
from validator.flow.queries.other_results import OtherResults
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP138", "override-changes-kind", "warning", stable_since="0.3.0", tokens=("class ",), solves=True)

_OF_ITS_CLASS = ("__init__", "__new__")  # called by making an object of this very class, never through a base


def check_project(project: Project) -> Iterator[Finding]:
    families = {cls for family in project.families.all for cls in family.members}  # MP105 compares those
    for cls in project.classes():
        if is_test(cls.path) or cls in families:
            continue
        for method in cls.methods.values():
            base = _overridden(cls, method.name)
            if base is not None and method.name not in _OF_ITS_CLASS and (why := _differs(project, method, base)):
                elsewhere = method.facts.is_async and not _is_made(project, cls)  # Ray awaits what its actors do
                yield _report(method, base, why, "note" if elsewhere else RULE.severity)


def _is_made(project: Project, cls: ClassDef) -> bool:
    """Whether the program makes objects of a class, or of one below it, by its name."""
    return any(True for each in (cls, *cls.descendants()) for _ in project.calls(each.name))


def _overridden(cls: ClassDef, name: str) -> Method | None:
    return next((above.methods[name] for above in cls.mro[1:] if name in above.methods), None)


def _differs(project: Project, method: Method, base: Method) -> str:
    """How the kind of a method misleads those who know that of its base; empty where it does not."""
    own, old, name = method.facts, base.facts, method.name
    if own.is_property is not old.is_property:
        if own.is_property and any(_uses(project, method)):
            return "a property, which callers call as a method"
        return "a method, which others read as a property" if old.is_property and _is_read(project, name) else ""
    if own.is_async is old.is_async or own.is_generator or old.is_generator or own.stub:
        return ""
    uses = set(_uses(project, method))
    awaited = "await" in uses
    if old.is_async:
        hands_on = any(row.kind == "call" for row in own.returns)
        return "no coroutine, but callers await it" if (awaited or name == "__call__") and not hands_on else ""
    remote = any(call.target.endswith(f".{name}.remote") for _, call in project.calls("remote", name))
    return "a coroutine, which nobody awaits" if uses and not awaited and not remote else ""


def _uses(project: Project, method: Method) -> Iterator[str]:
    """How the results of the calls that may reach an override are used: `super().name()` never does."""
    others = _handles(project, method)
    for function, call in project.calls(method.name):
        if (function.path, call.at[:2]) in others:
            continue
        if call.receiver in ("", "super()") or call.target.endswith(".remote") or is_test(function.path):
            continue
        outer = method_of(function)
        if call.receiver != own_object(outer) or _runs(method, outer):
            yield call.use or "value"


def _handles(project: Project, method: Method) -> set[tuple[str, tuple[int, int]]]:
    """Where calls by the name of a method give another object than it does: they are of one that stands for others."""
    if not method.facts.is_async:
        return set()
    results, calls = (
        project.analysis(OtherResults),
        project.analysis(Queries).called_in_program(frozenset({method.name})),
    )
    return {(call.unit.path, call.at[:2]) for call in calls if results.are_of_others(call, [method])}


def _runs(method: Method, function: Method) -> bool:
    """Whether the objects that run a function, or some of them, have a method."""
    if method.cls is None or function.cls is None:
        return True
    kinds = (cls for cls in (method.cls, *method.cls.descendants()) if cls.find(method.name) is method)
    return any(cls.find(function.name) is function or function.name not in function.cls.methods for cls in kinds)


def _is_read(project: Project, name: str) -> bool:
    """Whether somebody reads an attribute of that name, on its own object or another one."""
    return any(
        ref.context == "load" and ref.path.endswith(f".{name}")
        for function in project.functions()
        if not is_test(function.path)
        for ref in function.facts.refs
    )


def _report(method: Method, base: Method, why: str, severity: Severity) -> Finding:
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"`{method.qualname}` is {why}: it overrides `{base.qualname}`, which is of another kind",
        help="make it what the base is, or change the base and its callers as well",
        related=[Related(base.path, base.facts.name_at[0], f"`{base.qualname}` is defined here")],
        context=method.qualname,
        severity=severity,
    )


_MODELS = """\
class Preference:
    async def __call__(self, pair):
        raise NotImplementedError

    @property
    def size(self):
        return 0

    async def close(self):
        return None


class Shorter(Preference):
    {kind}def __call__(self, pair):{mark}
        return len(pair[0]) - len(pair[1])

    {decorator}
    def size(self):{mark}
        return 2


async def compare(strategy, preference, pairs):
    print(strategy.rank, preference.size)
    return [await preference(pair) for pair in pairs]
"""

INCORRECT = (_MODELS.format(kind="", decorator="# two models", mark="  # error: MP138"),)

CORRECT = (
    _MODELS.format(kind="async ", decorator="@property", mark=""),
    # what may be awaitable; what nobody uses
    """\
class Base:
    async def fetch(self, key):
        return key

    def close(self):
        return None


class Remote(Base):
    def fetch(self, key):
        return self.client.get(key)

    async def close(self):
        return None


async def main(strategy, store):
    return await store.fetch(strategy.rank)
""",
    # who awaits it on its own object is overridden as well; an actor's method is awaited by Ray
    """\
class Tinker:
    async def fit(self, strategy):
        return await self.validate(strategy)

    async def validate(self, strategy):
        return strategy

    def generate(self, strategy):
        return strategy


class Fireworks(Tinker):
    def fit(self, strategy):
        return self.validate(strategy)

    def validate(self, strategy):
        return 0.0

    async def generate(self, strategy):
        return strategy


def main(strategy, actor, engine):
    return actor.generate.remote(strategy), engine.generate(strategy)
""",
    # Ray awaits the constructor of an actor; whoever calls `super().__init__` does not call this one
    """import ray


class Engine:
    def __init__(self, path):
        self.path = path


class Loaded(Engine):
    def __init__(self, path):
        super().__init__(path)


@ray.remote
class Actor(Engine):
    async def __init__(self, path):
        super().__init__(path)


def main(strategy, path):
    return Actor.remote(path), Loaded(path), strategy.rank
""",
    # an object that stands for several actors gives a handle, whatever it is annotated as
    """
import ray
import torch.distributed as dist


class Handle:
    def __init__(self, references):
        self.references = references

    def wait(self):
        return ray.get(self.references)


class Group:
    def __init__(self, actors, names):
        self.actors = actors
        for name in names:
            setattr(self, name, self.calling(name))

    def calling(self, name):
        return lambda *given: Handle([getattr(actor, name).remote(*given) for actor in self.actors])


class Trainer:
    def fit(self, strategy):
        return {"rank": strategy.rank}


class Waiting(Trainer):
    async def fit(self, strategy):
        return {"rank": strategy.rank}


class Runner:
    def __init__(self, trainer: Trainer):
        self.trainer = trainer

    def run(self, strategy):
        handle: Handle = self.trainer.fit(strategy)
        return handle.wait()

    def run_if(self, strategy, wanted):
        if wanted:
            handle = self.trainer.fit(strategy)
        else:
            handle = Handle([])
        return handle.wait()
""",
    # a property by another name of its module
    """\
import abc
import functools as ft


class Source(abc.ABC):
    @property
    @abc.abstractmethod
    def fingerprint(self) -> str: ...


class Texts(Source):
    @ft.cached_property
    def fingerprint(self) -> str:
        return "texts"


def show(sources: list[Source]):
    return [each.fingerprint[:7] for each in sources]


print(show([Texts()]))
""",
)

"""A method of a mixin that is not run, because another base stands before it.

What it does
    Reports a class whose bases have a method of the same name that the earlier base calls on itself and the later one
    does not: it was written to change what the earlier one does, and does not. So it is where the earlier base is a
    class of a library whose members are known (`class MyTrainer(Trainer, Mixin)`). Silent where it has another use:
    objects are made of the later base, it is called by its class or through `super()`, or a class has it where there is
    nothing to replace. Silent about methods without a body, and where the bases know of each other.

Why is this bad
    Python looks names up from left to right. With `class DDPPO(PPO, DistributedMixin)` the methods by which the mixin
    reduces gradients are dead, each rank trains a model of its own, and nothing fails.

References
    https://docs.python.org/3/howto/mro.html
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from validator.finding import Finding, Related
from validator.flow.queries.outside_program import is_test
from validator.models.members.classes import members_of
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP147", "base-order-hides-method", "warning", stable_since="1.0")


def check_project(project: Project) -> Iterator[Finding]:
    for cls in project.classes():
        bases = [base for base in cls.bases if isinstance(base, ClassDef)] if not is_test(cls.path) else []
        for place, late in enumerate(bases):
            for early in bases[:place]:
                if _are_strangers(early, late) and (hidden := list(_hidden(project, cls, early, late))):
                    yield _report(cls, early, late, hidden)
        yield from _behind_libraries(project, cls) if bases else ()


def _behind_libraries(project: Project, cls: ClassDef) -> Iterator[Finding]:
    """The methods of mixins that stand behind a class of a library which has members of their names."""
    taken: dict[str, str] = {}  # by the name of a member the library's class that has it
    for base in cls.bases if not is_test(cls.path) else ():
        if not isinstance(base, ClassDef):
            path = getattr(base, "path", "")
            taken |= {name: path for name in (members_of(path) or ()) if name not in taken}
            continue
        if base.external_bases or _is_made(project, base) or base.facts.decorators:
            continue
        names = [name for name in base.methods if name in taken and not hasattr(object, name)]
        hidden = [m for name in names if cls.find(name) is (m := base.methods[name]) and not _is_left(project, base, m)]
        if hidden:
            yield _report_library(cls, taken[hidden[0].name], base, hidden)


def _is_left(project: Project, owner: ClassDef, method: Method) -> bool:
    """Whether a method has nothing to do, or is called by its class."""
    if method.facts.stub or method.facts.is_abstract:
        return True
    return any(call.receiver.rpartition(".")[2] == owner.name for _, call in project.calls(method.name))


def _are_strangers(early: ClassDef, late: ClassDef) -> bool:
    return late not in early.mro and early not in late.mro


def _hidden(project: Project, cls: ClassDef, early: ClassDef, late: ClassDef) -> Iterator[tuple[Method, Method]]:
    """The methods of the later base that are not run, with those of the earlier one that are run in their stead."""
    for name, method in late.methods.items():
        instead = early.find(name)
        if instead is None or hasattr(object, name) or method.facts.stub or method.facts.is_abstract:
            continue
        asked = _asks(early, name) and not _asks(late, name)
        if asked and instead is cls.find(name) and not _is_run(project, late, name):
            yield method, instead


def _asks(cls: ClassDef, name: str) -> bool:
    """Whether a class calls a method on itself: what another class gives under that name changes what it does."""
    calls = (call for each in cls.mro for method in each.methods.values() for call in method.facts.calls
             if call.receiver == method.own_object)  # fmt: skip
    return any(call.method == name for call in calls)


def _is_run(project: Project, owner: ClassDef, name: str) -> bool:
    """Whether a method has another use than to be put in the place of somebody else's."""
    if _is_made(project, owner) or owner.facts.decorators:
        return True
    for cls in owner.descendants():
        place = cls.mro.index(owner)
        defining = [each for each in cls.mro if each is not owner and (name in each.methods or name in _set(each))]
        before = [each for each in defining if cls.mro.index(each) < place]
        if not defining or any(owner in each.mro for each in before):
            return True  # nothing is replaced, or a class that knows of it replaces it
        if any(call.receiver == "super()" and call.method == name
               for each in before if name in each.methods for call in each.methods[name].facts.calls):  # fmt: skip
            return True
    return any(call.receiver.rpartition(".")[2] == owner.name for _, call in project.calls(name))


def _set(cls: ClassDef) -> frozenset[str]:
    """What the body of a class sets without `def`."""
    return frozenset(name for name, _ in cls.facts.attributes if name not in cls.methods)


@cache
def _is_made(project: Project, cls: ClassDef) -> bool:
    """Whether an object is made of just this class."""
    return any(project.lookup(function, call.target) is cls for function, call in project.calls(cls.name))


def _report(cls: ClassDef, early: ClassDef, late: ClassDef, hidden: list[tuple[Method, Method]]) -> Finding:
    names = " and ".join(f"`{method.name}`" for method, _ in hidden)
    verb = "is" if len(hidden) == 1 else "are"
    method, instead = hidden[0]
    return RULE.finding(
        cls.path,
        cls.facts.name_at,
        f"`{cls.name}` has `{early.name}` before `{late.name}`: {names} of `{late.name}` {verb} not run",
        help=f"if `{late.name}` is to change what `{early.name}` does, put it first: `class {cls.name}({late.name},"
        f" {early.name})`",
        related=[
            Related(method.path, method.facts.name_at[0], f"`{method.qualname}` is never run"),
            Related(instead.path, instead.facts.name_at[0], f"`{instead.qualname}` is run in its stead"),
        ],
        context=f"{cls.qualname}:{late.name}",
    )


def _report_library(cls: ClassDef, library: str, late: ClassDef, hidden: list[Method]) -> Finding:
    names = " and ".join(f"`{method.name}`" for method in hidden)
    first, verb = library.rpartition(".")[2], "is" if len(hidden) == 1 else "are"
    return RULE.finding(
        cls.path,
        cls.facts.name_at,
        f"`{cls.name}` has `{first}` before `{late.name}`: {names} of `{late.name}` {verb} not run",
        help=f"if `{late.name}` is to change what `{first}` does, put it first:"
        f" `class {cls.name}({late.name}, {first})`",
        related=[Related(hidden[0].path, hidden[0].facts.name_at[0], f"`{hidden[0].qualname}` is never run")],
        context=f"{cls.qualname}:{late.name}",
    )


_SCHEDULED = """
from transformers import Trainer

class Scheduled:
    def create_scheduler(self, num_training_steps, optimizer=None):
        return warmed_up(optimizer, num_training_steps)

    def saved_as(self):
        return "run"

def warmed_up(optimizer, steps):
    return optimizer, steps

class MyTrainer({bases}):{mark}
    {body}
"""

_PPO = """
import torch.distributed as dist

class PPO:
    def update(self, batch):
        return self._evaluate(batch)

    def _evaluate(self, batch):
        return self.actor(batch)

class DistributedMixin:
    def setup(self, ddp):
        self.ddp = ddp

    def _evaluate(self, batch):
        return self.ddp(batch)

"""

INCORRECT = (
    _SCHEDULED.format(bases="Trainer, Scheduled", mark="  # error: MP147", body="pass"),
    _PPO
    + """
class DDPPO(PPO, DistributedMixin):  # error: MP147
    pass
""",
)

CORRECT = (
    _SCHEDULED.format(bases="Scheduled, Trainer", mark="", body="pass"),
    _SCHEDULED.format(
        bases="Trainer, Scheduled",
        mark="",
        body="def create_scheduler(self, steps):\n        return Scheduled.create_scheduler(self, steps)",
    ),
    _PPO
    + """
class DDPPO(DistributedMixin, PPO):
    pass
""",
    _PPO
    + """
class DDPPO(PPO, DistributedMixin):
    def _evaluate(self, batch):
        return DistributedMixin._evaluate(self, batch)

class Other(PPO, DistributedMixin):
    pass
""",
    """
class Logged:
    def step(self):
        print("step")
        return super().step()

class Engine:
    def step(self):
        return 1

class Trainer(Logged, Engine):
    pass

class Plain:
    def close(self):
        pass

    def stop(self):
        self.close()

class Closing:
    def close(self):
        raise NotImplementedError

class Both(Plain, Closing):
    pass
""",
)

"""What members of a family set up for the whole process: state of a module that others read back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.families import Family
from validator.analysis.interfaces.module_state import ModuleState
from validator.analysis.interfaces.reach import Reach, self_name
from validator.analysis.interfaces.uses import backend_words
from validator.flow.objects import Objects
from validator.project import ClassDef, Method, Project

_ALL = 120  # functions below a method that `Reach` gives at most: with so many some may be left out


class SetUp(NamedTuple):
    """A function that keeps `name` in its module, one that reads it, and a user of that outside the family.

    `inputs` are the attributes of its own object that a member gives to it.
    """

    function: Method
    name: str
    reader: Method
    user: Method
    inputs: frozenset[str]


class SetUps:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.state = project.analysis(ModuleState)
        self.reach = project.analysis(Reach)

    def steps(self, family: Family, methods: dict[ClassDef, Method]) -> list[SetUp]:
        """What the members set up from an operation, and nobody else does."""
        below = {cls: self.reach.below(cls, method) for cls, method in methods.items()}
        functions = dict.fromkeys(f for each in below.values() for f in each if self.state.sets(f))
        words = backend_words(family)
        found = []
        for function in functions:
            for name in sorted(self.state.sets(function)):
                own = any(word in f"{function.name}_{name}".lower() for word in words)
                if not own and (step := self._step(family, function, name)) is not None:
                    found.append(step)
        return found

    def _step(self, family: Family, function: Method, name: str) -> SetUp | None:
        setters = self.state.setters(function.module, name)
        inside = self._inside(family)
        if any(caller not in inside for each in setters for caller in self.state.callers(each)):
            return None
        if any(self.state.is_called_unseen(each) for each in setters):
            return None
        inputs = frozenset(self._inputs(family, function))
        for reader in self.state.readers(function.module, name) if inputs else ():
            user = next((each for each in self.state.callers(reader) if each not in inside), None)
            if user is not None and user.module is not function.module:
                return SetUp(function, name, reader, user, inputs)
        return None

    def _inside(self, family: Family) -> set[Method]:
        """The methods of the members, and the functions inside them."""
        methods = [m for cls in family.members for owner in cls.mro for m in owner.every_method()]
        return {each for method in methods for each in (method, *self.project.nested(method))}

    def _inputs(self, family: Family, function: Method) -> Iterator[str]:
        for cls in family.members:
            for method in cls.every_method():
                own = f"{self_name(method)}."
                for call in method.facts.calls:
                    if function in self.project.analysis(Objects).targets(method, call):
                        values = (a.value for a in call.args if a.value.startswith(own))
                        yield from (value.removeprefix(own).partition(".")[0].partition("[")[0] for value in values)

    def is_taken(self, cls: ClassDef, step: SetUp) -> bool:
        """Whether any method of a class may call the function, or another that sets the same."""
        setters = self.state.setters(step.function.module, step.name)
        for owner in cls.mro:
            for method in owner.every_method():
                below = self.reach.below(cls, method)
                if len(below) >= _ALL or not set(setters).isdisjoint(below):
                    return True
        return False

    def could_take(self, cls: ClassDef, step: SetUp) -> bool:
        """Whether objects of a class have what the siblings give to the function."""
        return step.inputs <= cls.attributes

"""Which calls are worth the question what they reach: those that something of their name would refuse.

Most calls of a project fit everything in it that bears the name. Only the others, and calls of what is known under a
name of its own (a variable, an attribute, an import with another name), are followed through the flow.
"""

from __future__ import annotations

from validator.analysis.interfaces.binding import Misfit, misfit_of, parameters
from validator.facts.model import Call, Param
from validator.flow.callgraph.dispatch import SENDING
from validator.flow.constructors import Constructors
from validator.flow.program.flow import Flow
from validator.project import Method, Project


class Suspects:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._signatures = _signatures(project)
        self._guessed = project.analysis(Flow).guessed
        self._held = self._guessed.held.union(project.analysis(Flow).stores.written)  # `self.model(x)`
        self._known: dict[tuple[str, tuple[str | None, ...], bool], bool] = {}

    def may_refuse(self, function: Method, call: Call, partial: bool) -> bool:
        """Whether something that the call may reach refuses it, by the names alone."""
        name = _called(call)
        if call.target == name and name in function.facts.bound or name in self._held:
            return True
        if name.endswith(("[]", "()")):  # an entry of a table, or what a call gives: the name tells nothing
            return True
        key = (name, tuple([argument.keyword for argument in call.args]), partial)
        if key not in self._known:
            rows = self._signatures.get(name, ())
            self._known[key] = any(misfit_of(params, call, partial=partial) is not None for params in rows)
        return self._known[key]

    def refused_by_name(self, function: Method, call: Call) -> tuple[Method, Misfit] | None:
        """A method that refuses a call, as all of its name do, whoever is asked for it: a name that no known library
        has, and that nothing but methods bears."""
        methods = self._guessed.methods(call.method)
        if any(a.keyword in ("*", "**") for a in call.args):
            return None
        if function.name == call.method:
            return None  # it hands the call on to what it wraps
        if call.positional[:1] and call.positional[0].value == "self":
            return None  # a class is asked for the function, which gets its object like any argument
        found = [(method, misfit_of(parameters(method), call)) for method in methods]
        refusing = [(method, misfit) for method, misfit in found if misfit is not None]
        return refusing[0] if 0 < len(refusing) == len(methods) else None


def _called(call: Call) -> str:
    """The name of what runs: of a call in another process (`worker.fit.options(…).remote(batch)`) that before it."""
    target, _, name = call.target.rpartition(".")
    while name in SENDING and target:
        target, _, name = target.removesuffix("()").rpartition(".")
    return name


def _signatures(project: Project) -> dict[str, list[tuple[Param, ...]]]:
    """By name the parameters of all that is called so; of methods with and without their object."""
    constructors = project.analysis(Constructors)
    found: dict[str, list[tuple[Param, ...]]] = {}
    for function in project.functions():
        if not function.name.startswith("<"):
            rows = found.setdefault(function.name, [])
            rows.append(function.facts.params)
            if function.is_method:
                rows.append(function.facts.params[1:])
    for cls in project.classes():
        params = constructors.of(cls)
        if params is not None:
            found.setdefault(cls.name, []).append(params)
    return found

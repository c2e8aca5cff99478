"""Decorators of the project that give back what they decorate, or call it with all that they are given.

def on_main(function):
    @wraps(function)
    def run(self, *args, **kwargs):
        return function(self, *args, **kwargs) if is_main() else None
    return run

def register(function):
    TABLE[function.__name__] = function
    return function
"""

from __future__ import annotations

from validator.analysis.interfaces.given_back import gives_back_each
from validator.facts.model import Call
from validator.project import Method, Project


class Decorators:
    """Answers for one project; asked for with `project.analysis(Decorators)`."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[Method, bool] = {}

    def hands_on(self, function: Method, decorator: str) -> bool:
        """Whether a decorator as it is written above a function passes on whatever the function is called with."""
        symbol = self.project.lookup(function.module.top, decorator.removesuffix("()"))
        if not isinstance(symbol, Method) or symbol.cls is not None and not decorator.endswith("()"):
            return False
        if not decorator.endswith("()"):
            return self._is_plain(symbol)
        inner = self._returned(symbol)
        return bool(inner) and all(map(self._is_plain, inner))

    def _returned(self, function: Method) -> list[Method]:
        """The functions inside of one that it gives back; none where it may give back something else."""
        inner = {each.name: each for each in self.project.nested(function)}
        found = [inner.get(row.value) for row in function.facts.returns]
        return [each for each in found if each is not None] if None not in found else []

    def _is_plain(self, decorator: Method) -> bool:
        known = self._known.get(decorator)
        if known is None:
            self._known[decorator] = False  # a circle shows nothing
            params = decorator.facts.params
            returned = self._returned(decorator) if len(params) == 1 else []
            known = bool(returned) and all(self._calls_wrapped(each, params[0].name) for each in returned)
            known = known or _gives_back(decorator)
            self._known[decorator] = known
        return known

    def _calls_wrapped(self, wrapper: Method, wrapped: str) -> bool:
        """Whether a function calls another with its own arguments alone, and changes none of them before."""
        params = wrapper.facts.params
        names = {param.name for param in params}
        if not {"*", "**"} <= {param.kind for param in params} or not self._keeps_given(wrapper, names):
            return False
        calls = wrapper.facts.calls
        whole = [call for call in calls if call.target == wrapped]
        if any(call.receiver in names and call.receiver != params[0].name for call in calls):
            return False  # `kwargs.pop("step")`
        return bool(whole) and all(_is_whole(wrapper, call) for call in whole)

    def _keeps_given(self, wrapper: Method, names: set[str]) -> bool:
        """Whether whatever a function stores under the names of its parameters is as many arguments, of the same
        names: nothing, or `args, kwargs = loaded(*args, **kwargs)`."""
        spread = [(param.kind, param.name) for param in wrapper.facts.params if param.kind in ("*", "**")]
        places = {name: f"unpack:{index}/2" for index, (_, name) in enumerate(spread)}
        stored = [row for row in wrapper.facts.assigns if row.target in names]
        for function in {row.value for row in stored}:
            symbol = self.project.lookup(wrapper.module.top, function)
            calls = [call for call in wrapper.facts.calls if call.target == function]
            given = [[(argument.keyword, argument.value) for argument in call.args] for call in calls]
            if not isinstance(symbol, Method) or not gives_back_each(symbol) or any(each != spread for each in given):
                return False
        return all(row.kind == places.get(row.target) for row in stored)


def _gives_back(decorator: Method) -> bool:
    """Whether a function gives back its first argument, whatever else it does."""
    facts = decorator.facts
    name = facts.params[0].name if facts.params else ""
    given = [row.value for row in facts.returns]
    return bool(name) and set(given) == {name} and all(row.target != name for row in facts.assigns)


def _is_whole(wrapper: Method, call: Call) -> bool:
    """Whether a call passes the parameters of the function around it, one after the other."""
    params = wrapper.facts.params
    keywords = {"*": "*", "**": "**"}
    wanted = [(keywords.get(param.kind), param.name) for param in params]
    return [(argument.keyword, argument.value) for argument in call.args] == wanted

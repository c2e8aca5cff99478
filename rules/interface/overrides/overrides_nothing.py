"""A method that overrides nothing any more: its hook has another name now.

What it does
    Reports a method that says that it overrides (`@override`) where no class above it has one of that name; and a
    method that nobody asks for, by name or by text, of a class that leaves an empty hook of its base as it is: one with
    the same parameters and a name of the same words, which the project calls. Silent where a base outside of the
    project may have the method or call it, and in tests. A note where code asks objects of the class for the method by
    the name that it has: it runs, and only says what is not so.

Why is this bad
    The code of the class never runs: the empty hook of the base runs in its place, without a word.

References
    https://docs.python.org/3/library/typing.html#typing.override
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.options.spelled import Spelled
from validator.analysis.usage import Usage
from validator.definitions import PLAIN_BASES
from validator.finding import Finding, Related, Severity
from validator.flow.queries.outside_program import is_test
from validator.models.members import is_known, of_libraries
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP141", "overrides-nothing", "error", stable_since="0.3.0", solves=True)

_EMPTY = frozenset({"pass", "docstring", "constant", "ellipsis", "raise"})
_WORDS = re.compile(r"[a-z0-9]+")


def check_project(project: Project) -> Iterator[Finding]:
    for cls in project.classes():
        if len(cls.mro) < 2 or is_test(cls.path) or not all(map(_is_listed, cls.external_bases)):
            continue
        for method in cls.methods.values():
            if any(method.name in above.methods for above in cls.mro[1:]) or method.name.startswith("__"):
                continue
            if any(each.rpartition(".")[2] == "override" for each in method.facts.decorators):
                if not cls.external_bases or method.name not in of_libraries():
                    yield _report(method, [], "note" if _is_asked(project, method) else "error")
                continue
            hooks = [hook for hook in _left(cls, method) if _is_called(project, hook)]
            if hooks and _is_unasked(project, method.name):
                yield _report(method, hooks)


def _is_listed(base: str) -> bool:
    """Whether all is known that a base outside of the project gives to a class."""
    return base in PLAIN_BASES or is_known(base)


def _is_called(project: Project, hook: Method) -> bool:
    return any(call.receiver for _, call in project.calls(hook.name))


def _is_unasked(project: Project, name: str) -> bool:
    spelled = project.analysis(Spelled)
    return name not in of_libraries() and not spelled.as_name(name) and not spelled.as_text(name)


def _is_asked(project: Project, method: Method) -> bool:
    """Whether code asks for a method by its name, of objects that may have it."""
    usage = project.analysis(Usage)
    unit = usage.flow.unit_of(method)
    return unit is not None and any(number >= 0 for _, number in usage.mentions(unit))


def _left(cls: ClassDef, method: Method) -> list[Method]:
    """The empty hooks of bases one of which a method may have overridden before a name was changed."""
    if method.facts.stub or method.facts.decorators:
        return []
    hooks = {name: each for above in reversed(cls.mro[1:]) for name, each in above.methods.items()}
    empty = [h for h in hooks.values() if h.facts.stub in _EMPTY and not h.facts.decorators]
    return [hook for hook in empty if hook.name not in cls.methods and _alike(hook, method)]


def _alike(hook: Method, method: Method) -> bool:
    """Whether a method takes what a hook takes, or an override of it elsewhere, and bears at least half of the words of
    its name, or rare parameters."""
    below = hook.cls.descendants() if hook.cls is not None else ()
    forms = [hook, *(each.methods[hook.name] for each in below if hook.name in each.methods)]
    taken = _taken(method)
    words, others = (set(_WORDS.findall(each.name)) for each in (hook, method))
    common = len(words & others)
    enough = 2 * common >= max(len(words), len(others)) or bool(taken) and common > 0
    return enough and any(_taken(each) == taken for each in forms)


def _taken(method: Method) -> list[tuple[str, str]]:
    return [(param.name, param.kind) for param in method.facts.params[1:]]


def _report(method: Method, hooks: list[Method], severity: Severity = "warning") -> Finding:
    assert method.cls is not None
    base = method.cls.mro[1]
    if not hooks:
        return RULE.finding(
            method.path,
            method.facts.name_at,
            f"`{method.qualname}` overrides nothing: no class above it has a `{method.name}`",
            help="name it as the method that it means to override",
            related=[Related(base.path, base.facts.name_at[0], f"`{base.name}` is defined here")],
            context=method.qualname,
            severity=severity,
        )
    shown = " or ".join(f"`{hook.qualname}`" for hook in hooks)
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"nobody calls `{method.qualname}`, which overrides nothing; {shown}, which does nothing, is called",
        help=f"name it {' or '.join(f'`{hook.name}`' for hook in hooks)}, or drop it",
        related=[Related(hook.path, hook.facts.name_at[0], f"`{hook.qualname}` does nothing") for hook in hooks],
        context=method.qualname,
        severity=severity,
    )


_HOOKS = """\
{head}class TrainUnit:
    def on_step_begin(self, step_nr):
        pass

    def needs_hidden_states(self):
        return False


class FrozenEncoder(TrainUnit):
    {decorator}def {first}(self, step_nr):{mark}
        self.frozen = step_nr < 100

    def {second}(self):{mark}
        return self.layers > 0


def train(strategy, unit, steps):
    for step_nr in range(steps):
        unit.on_step_begin(step_nr)
        strategy.step(unit, unit.needs_hidden_states())
"""

INCORRECT = (
    _HOOKS.format(
        head="", decorator="", first="set_step_nr", second="requires_hidden_states", mark="  # error: MP141"
    ).replace("set_step_nr(self", "before_step(self"),
    _HOOKS.format(
        head="from typing import override\n\n\n",
        decorator="@override\n    ",
        first="start_step",
        second="needs_hidden_states",
        mark="",
    ).replace("start_step(self, step_nr):", "start_step(self, step_nr):  # error: MP141"),
    # it runs all the same: a note
    """
from typing import override

class Search:
    def __init__(self, steps):
        self.steps = steps

class Tree(Search):
    @override
    def prune(self, depth):  # error: MP141
        return self.steps[:depth]

print(Tree([1, 2]).prune(1))
""",
)

CORRECT = (
    _HOOKS.format(head="", decorator="", first="on_step_begin", second="needs_hidden_states", mark=""),
    # asked for by a text; another thing
    _HOOKS.format(head='STEPS = ["begin_step"]\n', decorator="", first="begin_step", second="size", mark=""),
)

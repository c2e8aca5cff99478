"""A method that overrides nothing any more: its hook has another name now.

What it does
    Reports a method that says that it overrides (`@override`) where no class above it has one of that name; and a
    method that nobody asks for, by name or by text, of a class that leaves an empty hook of its base as it is: one
    with the same parameters and a name of the same words, which the project calls, or asks for by its name in a text
    (`self.emit("on_train_step_end")`). So where no base has the hook, and classes beside it do that code asks for by
    texts alone, and where the base is a library's whose own code calls a hook of the same words (`get_train_sampler`
    beside `Trainer._get_train_sampler`). Silent where a base outside of the project may have the method or call it,
    where code puts such a name together (`f"on_{name}"`), and in tests. A note where code asks objects of the class
    for the method by the name that it has: it runs, and only says what is not so.

Why is this bad
    The code of the class never runs: the empty hook of the base runs in its place, without a word.

References
    https://docs.python.org/3/library/typing.html#typing.override
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from validator.analysis.interfaces.binding import keeps_signature
from validator.analysis.options.spelled import Spelled
from validator.analysis.usage import Usage
from validator.definitions import PLAIN_BASES
from validator.finding import SEVERITIES, Finding, Related, Severity
from validator.flow.program.flow import Flow
from validator.flow.queries.outside_program import is_test
from validator.models.members import is_known, of_libraries, packages_having
from validator.models.members.classes import members_of
from validator.models.signatures import library
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP141", "overrides-nothing", "error", stable_since="0.3.0", solves=True)

_EMPTY = frozenset({"pass", "docstring", "constant", "ellipsis", "raise"})
_WORDS = re.compile(r"[a-z0-9]+")


def check_project(project: Project) -> Iterator[Finding]:
    gone_through = _is_gone_through(project)
    for cls in project.classes():
        if len(cls.mro) < 2 or is_test(cls.path) or not all(map(_is_listed, cls.external_bases)):
            continue
        for method in cls.methods.values():
            if any(method.name in above.methods for above in cls.mro[1:]) or method.name.startswith("__"):
                continue
            if any(each.rpartition(".")[2] == "override" for each in method.facts.decorators):
                if not cls.external_bases or method.name not in of_libraries():
                    yield _report(method, [], _at_most(project, cls, "note" if _is_asked(project, method) else "error"))
                continue
            if gone_through or _is_marked(project, method):
                continue
            hooks = [hook for hook in _left(cls, method) if _is_called(project, hook)]
            hooks = hooks or [hook for hook in _beside(cls, method) if _is_told(project, hook.name)]
            if hooks and _is_unasked(project, method.name) and not _is_of_library(project, cls, method.name):
                yield _report(method, hooks, _at_most(project, cls, "warning"))
    if not gone_through:
        yield from _beside_libraries(project)


def _beside_libraries(project: Project) -> Iterator[Finding]:
    """Methods that nobody asks for, beside a hook of the same words that a library's class calls on itself."""
    for cls in project.classes():
        above = [(table, base) for base in cls.external_bases if (table := library(base.partition(".")[0])) is not None]
        if len(above) != 1 or is_test(cls.path):
            continue
        ((table, base),) = above
        known = members_of(base) or frozenset()
        has = {name for each in cls.mro for name in each.methods}
        hooks = {_bare(name): name for name in sorted(known - has) if table.hook_calls(base.rpartition(".")[2], name)}
        for method in cls.methods.values():
            hook = hooks.get(_bare(method.name))
            if hook is None or method.name in known or method.facts.decorators or method.name.startswith("__"):
                continue
            if _is_unasked(project, method.name) and not _is_of_library(project, cls, method.name):
                yield _report_library(method, base, hook, _at_most(project, cls, "warning"))


def _bare(name: str) -> str:
    return name.replace("_", "")


def _report_library(method: Method, base: str, hook: str, severity: Severity) -> Finding:
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"nobody calls `{method.qualname}`, which overrides nothing; `{base}` calls `{hook}`",
        help=f"name it `{hook}`, or drop it",
        context=method.qualname,
        severity=severity,
    )


def _is_gone_through(project: Project) -> bool:
    """Whether something in the project goes through all that an object has."""
    return any(any(project.calls(name)) for name in ("dir", "getmembers", "getmembers_static"))


def _is_marked(project: Project, method: Method) -> bool:
    """Whether a decorator of the project may mark or register a method."""
    names = (each.removesuffix("()") for each in method.facts.decorators)
    return any(isinstance(project.lookup(method.module.top, name), Method | ClassDef) for name in names)


def _at_most(project: Project, cls: ClassDef, severity: Severity) -> Severity:
    """A severity, or what one may be at most in a class that nobody uses."""
    idle = project.analysis(Usage).idle(cls.path, cls.facts.name_at[0])
    return max(severity, idle.severity, key=SEVERITIES.index) if idle is not None else severity


def _is_listed(base: str) -> bool:
    """Whether all is known that a base outside of the project gives to a class."""
    return base in PLAIN_BASES or is_known(base)


def _is_called(project: Project, hook: Method) -> bool:
    return any(call.receiver for _, call in project.calls(hook.name)) or _is_told(project, hook.name)


def _is_told(project: Project, name: str) -> bool:
    """Whether code asks for something by its name in a text, and nobody puts such names together."""
    return project.analysis(Spelled).as_text(name) and not project.analysis(Usage).is_put_together(name)


def _is_unasked(project: Project, name: str) -> bool:
    spelled, usage = project.analysis(Spelled), project.analysis(Usage)
    return not (usage.is_put_together(name) or spelled.as_name(name) or spelled.as_text(name))


def _is_of_library(project: Project, cls: ClassDef, name: str) -> bool:
    """Whether a library may ask objects of a class, or of one below it, for a name: one that it knows."""
    packages = packages_having(name)
    plain = all(PLAIN_BASES.issuperset(each.external_bases) for each in (cls, *cls.descendants()))
    unused = plain and "python" not in packages and not project.analysis(Flow).mentions.libraries(*packages)
    return bool(packages) and not unused


def _is_asked(project: Project, method: Method) -> bool:
    """Whether code asks for a method by its name, of objects that may have it."""
    usage = project.analysis(Usage)
    unit = usage.flow.unit_of(method)
    return unit is not None and any(number >= 0 for _, number in usage.mentions(unit))


def _left(cls: ClassDef, method: Method) -> list[Method]:
    """The empty hooks of bases one of which a method may have overridden before a name was changed."""
    if method.facts.stub or not keeps_signature(method):
        return []
    hooks = {name: each for above in reversed(cls.mro[1:]) for name, each in above.methods.items()}
    empty = [h for h in hooks.values() if h.facts.stub in _EMPTY and not h.facts.decorators]
    return [hook for hook in empty if hook.name not in cls.methods and _alike(hook, method)]


def _beside(cls: ClassDef, method: Method) -> list[Method]:
    """The hooks of classes under the same base that no base has, nor this class, one of which it may mean."""
    if method.facts.stub or not keeps_signature(method) or method.name.startswith("_"):
        return []
    has = {name for above in cls.mro for name in above.methods}
    others = {each for above in cls.mro[1:] for each in above.descendants()} - {cls, *cls.descendants()}
    hooks = [h for each in others for name, h in each.methods.items() if name not in has and not h.facts.decorators]
    alike = {h.name: h for h in hooks if h.is_method and _taken(h) == _taken(method) != [] and _is_named_so(h, method)}
    return [alike[name] for name in sorted(alike)]


def _alike(hook: Method, method: Method) -> bool:
    """Whether a method takes what a hook takes, or an override of it elsewhere, and bears at least half of the words of
    its name, or rare parameters."""
    below = hook.cls.descendants() if hook.cls is not None else ()
    forms = [hook, *(each.methods[hook.name] for each in below if hook.name in each.methods)]
    taken = _taken(method)
    enough = _is_named_so(hook, method) or bool(taken) and bool(_words(hook) & _words(method))
    return enough and any(_taken(each) == taken for each in forms)


def _is_named_so(hook: Method, method: Method) -> bool:
    """Whether two names have at least half of their words in common."""
    words, others = _words(hook), _words(method)
    return 2 * len(words & others) >= max(len(words), len(others))


def _words(method: Method) -> set[str]:
    return set(_WORDS.findall(method.name))


def _taken(method: Method) -> list[tuple[str, str]]:
    return [(param.name, param.kind) for param in method.facts.params[1:]]


def _report(method: Method, hooks: list[Method], severity: Severity) -> Finding:
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
    asked = ", which does nothing, is called" if hooks[0].cls in method.cls.mro else " is asked for by its name"
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"nobody calls `{method.qualname}`, which overrides nothing; {shown}{asked}",
        help=f"name it {' or '.join(f'`{hook.name}`' for hook in hooks)}, or drop it",
        related=[Related(hook.path, hook.facts.name_at[0], f"`{hook.qualname}` is defined here") for hook in hooks],
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

_STUBS = """\
    def on_fit_start(self, engine): ...
    def on_train_step_end(self, engine, loss): ..."""

_EVENTS = """\
import torch


class Callback:
{base}


class Average(Callback):
    def on_fit_start(self, engine):
        self.shadow = dict(engine.net.state_dict())

    @torch.no_grad()
    def {name}(self, engine, loss):{mark}
        for key, value in engine.net.state_dict().items():
            self.shadow[key].lerp_(value, 0.1)


class Printer(Callback):
    def on_train_step_end(self, engine, loss):
        print(engine.step, loss)


class Engine:
    def __init__(self, net, callbacks):
        self.net, self.callbacks, self.step = net, list(callbacks), 0

    def emit(self, hook, *args):
        for callback in self.callbacks:
            method = getattr(callback, hook, None)
            if method is not None:
                method(self, *args)

    def fit(self, batches):
        self.emit("on_fit_start")
        for batch in batches:
            self.emit("{text}", self.net(batch))
"""

INCORRECT = (
    _EVENTS.format(base=_STUBS, name="on_step_end", mark="  # error: MP141", text="on_train_step_end"),
    _EVENTS.format(base="    pass", name="on_step_end", mark="  # error: MP141", text="on_train_step_end"),
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
    """\
from torch.utils.data import SequentialSampler
from transformers import Trainer


class InOrder(Trainer):
    def get_train_sampler(self):  # error: MP141
        return SequentialSampler(self.train_dataset)


def main(model, args, rows):
    InOrder(model=model, args=args, train_dataset=rows).train()
""",
)

CORRECT = (
    _EVENTS.format(base=_STUBS, name="on_train_step_end", mark="", text="on_train_step_end"),
    _EVENTS.format(base="    pass", name="on_train_step_end", mark="", text="on_train_step_end"),
    # a name that code puts together; a helper of another name, and one that takes something else
    _EVENTS.format(base=_STUBS, name="on_step_end", mark="", text="on_train_step_end")
    + """
    def tell(self, kind):
        self.emit(f"on_{kind}_end", kind)
""",
    _EVENTS.format(base="    pass", name="describe_end", mark="", text="on_train_step_end"),
    _EVENTS.format(base="    pass", name="on_step_end", mark="", text="on_train_step_end").replace(
        "on_step_end(self, engine, loss)", "on_step_end(self, engine)"
    ),
    _HOOKS.format(head="", decorator="", first="on_step_begin", second="needs_hidden_states", mark=""),
    # asked for by a text; another thing
    _HOOKS.format(head='STEPS = ["begin_step"]\n', decorator="", first="begin_step", second="size", mark=""),
    # it is asked for, or overrides the hook beside it
    """\
from torch.utils.data import SequentialSampler
from transformers import Trainer


class InOrder(Trainer):
    def get_train_sampler(self):
        return SequentialSampler(self.train_dataset)

    def _get_train_sampler(self):
        return self.get_train_sampler()


class ByLength(Trainer):
    def evaluation_loops(self, loader):
        return super().evaluation_loop(loader, "by length")

    def get_eval_data_loader(self, rows):
        return self.accelerator.prepare(rows)


def main(model, args, rows):
    InOrder(model=model, args=args, train_dataset=rows).train()
    ByLength(model=model, args=args).get_eval_data_loader(rows)
""",
)

"""The result of a function that gives nothing back is kept and used.

What it does
    Reports `x = f(…)`, where `x` is read further on, or where the call is stored in a key, a keyword or an attribute
    that something reads, and no way through the functions that may be called returns a value. Silent where one of
    them cannot be followed, is abstract, empty, decorated, a generator or only raises, where `x` is tested first, and
    in tests.

Why is this bad
    The variable is None. The state of a callback is saved as None and lost with the next resume, a metric is None in
    every report, and mostly nothing fails. Often a `return` was lost on the way through a wrapper.

References
    https://docs.python.org/3/reference/simple_stmts.html#the-return-statement
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.finding import Finding, Related
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP148", "nothing-given-back", "warning", "1.0", solves=True)

_KEEPING = frozenset({"store_attr", "store_item", "dict"})
_TESTING = frozenset({"compare", "phi", "unary"})


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    for unit in queries.of_program():
        if not _gives_nothing(unit):
            continue
        for call in queries.calls_of(unit):
            use = None if is_test(call.unit.path) or not _is_certain(queries, call) else _use(queries, call)
            if use is not None:
                yield _report(call, unit, use)


def _gives_nothing(unit: Unit) -> bool:
    """Whether a function runs to its end and never returns a value."""
    method, code = unit.method, unit.code
    if code.kind != "function" or method is None or code.is_generator or code.is_async:
        return False
    facts = method.facts
    if facts.stub or facts.is_abstract or facts.decorators or not facts.falls or facts.returns_annotation:
        return False
    return all(row.value in ("", "None") for row in facts.returns)


def _is_certain(queries: Queries, call: Place) -> bool:
    """Whether all that a call may run gives nothing back."""
    site = call.result.sites.get(call.number)
    if site is None or site.others or site.away or call.value.op != "call" or call.hands_on:
        return False
    callee = call.operand(0).closed
    sure = all(o[0] in ("unit", "bound") for o in callee.each)
    return sure and all(_gives_nothing(target.unit) for target in site.targets)


def _use(queries: Queries, call: Place) -> Place | None:
    """Where the result is kept, or read after it was given a name; None where it is tested, or is not used."""
    code = call.unit.code
    users = call.taken_by
    tested = any(call.number in block.end[1:2] for block in code.blocks if block.end[0] == "branch")
    if tested or any(user.value.op in _TESTING and set(user.value.args) != {call.number} for user in users):
        return None
    named = call.number in call.unit.variables
    for user in users:
        keyword = user.value.op == "call" and call.number in user.value.args[1:]
        if user.value.op in _KEEPING and call.number in user.value.args or named and keyword:
            return user if user.value.op != "store_attr" or _is_read(queries, user) else None
    return None


def _is_read(queries: Queries, store: Place) -> bool:
    """Whether anything of the project reads the attribute that is stored, or a library may, which knows the class."""
    cls, name = store.unit.cls, store.value.data
    if cls is not None and cls.is_open:
        return True
    units = queries.flow.mentions.units(name)
    return any(value.op == "attr" and value.data == name for unit in units for value in unit.code.values)


def _report(call: Place, unit: Unit, use: Place) -> Finding:
    return RULE.finding(
        call.unit.path,
        call.at,
        f"`{call.text}`{call.where} is None: `{unit.qualname}` returns nothing",
        help=f"return what `{unit.name}` computes, or drop the result",
        related=[
            Related(unit.path, unit.code.at[0], f"`{unit.qualname}` is defined here"),
            Related(use.unit.path, use.at[0], "the result is used here"),
        ],
        context=f"{call.unit.qualname}:{unit.qualname}",
    )


_MANAGER = """
class Manager:
    def __init__(self, callbacks):
        self.callbacks = callbacks

    def on_save(self, trainer):
        return {type(each).__name__: each.state(trainer) for each in self.callbacks}

    def on_load(self, trainer):
        for each in self.callbacks:
            each.load(trainer)

"""

INCORRECT = (
    _MANAGER
    + """
class Trainer:
    def __init__(self, callbacks):
        self.manager = Manager(callbacks)

    def _on_save(self):
        self.manager.on_save(self)

    def save(self, store):
        states = self._on_save()  # error: MP148
        store(path="last", states=states)
        self.last = self._on_save()  # error: MP148

    def report(self):
        return self.last
""",
)

CORRECT = (
    _MANAGER
    + """
class Trainer:
    def __init__(self, callbacks):
        self.manager = Manager(callbacks)

    def _on_save(self):
        return self.manager.on_save(self)

    def save(self, store):
        states = self._on_save()
        store(path="last", states=states)
        self.manager.on_load(self)
        return self.manager.on_load(self)
""",
    # nobody reads what is kept
    """
class Scenes:
    def __init__(self, root):
        self.loaded = self._load(root)

    def _load(self, root):
        self.names = sorted(root)
""",
    """
class Hook:
    def before(self, batch):
        print(batch)

    def after(self, batch):
        pass

class Trainer:
    def __init__(self, hook):
        self.hook = hook

    def run(self, batch, log):
        seen = Hook().before(batch)
        if seen is None:
            seen = batch
        log(seen)
        after = self.hook.after(batch)
        log(after)
""",
)

"""An attribute that only the constructor of a base sets, which the class's own constructor never runs.

What it does
    Finds classes whose `__init__` neither calls `super().__init__` nor that of a base, itself or in a method of the
    object that it runs (`getattr(super(), name)(…)` too), and methods that their objects run and that read `self.x`,
    where nothing but the `__init__` of the base sets `x`. Silent where a property, a class attribute, another method or
    code outside may set it, and behind `hasattr`, `getattr` and `except AttributeError`.
    A warning where a method of a base reads it that the class itself, or a call of such an object, comes to, and where
    other code asks an object of the class for it; a note where no such call is seen.

Why is this bad
    It raises AttributeError, at the first call of that method.

References
    https://docs.python.org/3/library/functions.html#super
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.members import Members, excused
from validator.definitions import ClassDef, Method
from validator.facts.model import At, Ref
from validator.finding import Finding, Related, Severity
from validator.flow.narrowing import OBJECTS
from validator.flow.objects import Objects
from validator.flow.queries.base import Queries
from validator.flow.queries.outside_program import is_test
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP139", "base-not-set-up", "error", stable_since="0.3.0", tokens=("__init__",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    for cls in project.classes():
        own = cls.methods.get("__init__")
        base = next((above for above in cls.mro[1:] if "__init__" in above.methods), None)
        if own is None or base is None or own.facts.stub or is_test(cls.path):
            continue
        missing = _left_out(project, cls, base)
        if missing and not _runs_another(project, own) and (found := _worst(project, cls, missing)) is not None:
            yield _report(cls, base, found)


class _Read(NamedTuple):
    """Where an attribute is read that nothing sets: in `function`, the name of it."""

    name: str
    path: str
    at: At
    function: str
    severity: Severity


def _worst(project: Project, cls: ClassDef, missing: set[str]) -> _Read | None:
    """The most certain of the reads of some attributes."""
    reads = list(_reads(project, cls, missing))
    run = _run(project, cls) if reads else set()
    first = min(reads, key=lambda read: read[0] not in run, default=None)
    asked = next(_asked(project, cls, missing), None) if first is None or first[0] not in run else None
    if asked is not None or first is None:
        return asked
    method, ref, name = first
    severity: Severity = "error" if method.cls is cls else "warning" if method in run else "note"
    return _Read(name, method.path, ref.at, method.qualname, severity)


def _runs_another(project: Project, own: Method) -> bool:
    """Whether a constructor, or a method of the object that it runs, runs that of a base, or fills the object in
    another way."""
    for method in _run_on_itself(project.analysis(Queries), own):
        inside = [method, *project.nested(method)]
        calls = [call for function in inside for call in function.facts.calls]
        if any(call.method in ("__init__", "update", "setattr", "__setstate__") for call in calls):
            return True
        if method is not own and method.name == "__init__":
            return True
    return False


def _run_on_itself(queries: Queries, own: Method) -> list[Method]:
    """A method with those that it comes to on the same object, however the calls are written."""
    family = own.cls.relatives if own.cls is not None else ()
    queue = [own]
    for method in queue:
        unit = queries.flow.unit_of(method)
        for call in queries.calls_in(unit) if unit is not None else ():
            bound = call.operand(0).closed.of("bound")
            here = (o[1].method for o in bound if any(each[0] == "self" and each[1] in family for each in o[2].each))
            queue += dict.fromkeys(each for each in here if each is not None and each not in queue)
    return queue


def _left_out(project: Project, cls: ClassDef, base: ClassDef) -> set[str]:
    """The attributes that objects of just this class lack, because only the constructor of a base sets them."""
    members = project.analysis(Members)
    made = base.methods["__init__"]
    names = {name for name, setting in base.instance_attributes.items() if made in setting}
    for each in cls.mro:
        given = {
            name
            for name, setting in each.instance_attributes.items()
            if each is cls or any(method.name != "__init__" for method in setting)
        }
        names -= given | set(each.methods) | {name for name, _ in each.facts.attributes if not _is_stored(each, name)}
        if any(name in each.methods for name in ("__getattr__", "__getattribute__")):
            return set()
    return {name for name in names if not members.is_given_outside(name)}


def _is_stored(cls: ClassDef, name: str) -> bool:
    """Whether an attribute is only annotated, or stored by methods: not a variable of the class itself."""
    body = cls.module.functions.get(f"{cls.qualname}.<class>")
    rows = body.facts.assigns if body is not None else ()
    return not any(row.target == name and row.kind != "none" for row in rows)


def _reads(project: Project, cls: ClassDef, missing: set[str]) -> Iterator[tuple[Method, Ref, str]]:
    """Where methods that objects of the class run read one of some attributes."""
    for name in dict.fromkeys(name for each in cls.mro for name in each.methods):
        method = cls.find(name)
        if method is None or method.facts.is_static or method.facts.is_classmethod:
            continue
        for function in (method, *project.nested(method)):
            for ref in function.facts.refs:
                own, _, rest = ref.path.partition(".")
                asked = rest.partition(".")[0].partition("(")[0].partition("[")[0]
                reads = ref.context == "load" and own == method.own_object and asked in missing
                if reads and not excused(ref.guards, own, asked):
                    yield method, ref, asked


def _run(project: Project, cls: ClassDef) -> set[Method]:
    """The methods that objects of a class are seen to run: its own, those that others call on such an object, and
    what these come to."""
    queries = project.analysis(Queries)
    methods = [found for each in cls.mro for name in each.methods if (found := cls.find(name)) is not None]
    run = dict.fromkeys(each for each in methods if each.cls is cls or _is_called_on(queries, each, cls))
    queue = list(run)
    for method in queue:
        inside = [method, *project.nested(method)]
        named = {ref.path.split(".")[:2][-1].partition("(")[0] for function in inside for ref in function.facts.refs}
        more = [each for each in methods if each.name in named and each not in run]
        run |= dict.fromkeys(more)
        queue += more
    return set(run)


def _is_called_on(queries: Queries, method: Method, cls: ClassDef) -> bool:
    unit = queries.flow.unit_of(method)
    receivers = [call.receiver for call in queries.calls_of(unit)] if unit is not None else []
    held = (o for each in receivers if each is not None for o in each.closed.each)
    return any(o[0] in OBJECTS and cls in o[1].mro for o in held)


def _asked(project: Project, cls: ClassDef, missing: set[str]) -> Iterator[_Read]:
    """Where other code asks such an object for one of some attributes."""
    queries, objects = project.analysis(Queries), project.analysis(Objects)
    for unit in queries.of_program():
        places = queries.values(unit, "attr") if not missing.isdisjoint(unit.words) else ()
        for place in (place for place in places if place.value.data in missing):
            owner = place.operand(0).root
            asked = not unit.is_receiver(owner.number) and not place.may_lack(place.value.data)
            if asked and cls in objects.held(owner, place).classes:
                yield _Read(place.value.data, unit.path, place.at, unit.qualname, "warning")


def _report(cls: ClassDef, base: ClassDef, read: _Read) -> Finding:
    return RULE.finding(
        cls.path,
        cls.methods["__init__"].facts.name_at,
        f"`{cls.name}.__init__` does not run `{base.name}.__init__`, which alone sets `{read.name}`: "
        f"`{read.function}` reads it",
        help="call `super().__init__(…)`, or set the attribute",
        related=[
            Related(base.path, base.methods["__init__"].facts.name_at[0], f"`{read.name}` is set here"),
            Related(read.path, read.at[0], "it is read here"),
        ],
        context=f"{cls.qualname}.{read.name}",
        severity=read.severity,
    )


_CALLBACKS = """\
class Callback:
    def __init__(self, trainer):
        self.trainer = trainer
        self.state = trainer.strategy

    def on_step_end(self):
        print(self.state.rank)


class Meter(Callback):
    def __init__(self, trainer):{mark}
        {first}

    def on_step_end(self):
        print(self.state.rank, self.trainer)
"""

# what only the base does with it
_BENCHMARKS = """\
class Benchmark:
    def __init__(self, settings):
        self.settings = settings

    def inputs(self):
        return self.settings.inputs

    def run(self):
        return self.inputs()


class Own(Benchmark):
    def __init__(self, settings):{mark}
        self.rank = 0

    def run(self):
        return {first}
"""

# what other code asks the object for
_DATASETS = """\
class Dataset:
    def __init__(self, strategy, nodes):
        self.strategy = strategy
        self.starting_nodes = nodes


class Simulated(Dataset):
    def __init__(self, strategy, nodes):{mark}
        self.strategy = strategy
        self.{name} = nodes


def work(dataset: Dataset):
    return dataset.starting_nodes


def simulate(strategy):
    return work(Simulated(strategy, 2))
"""

INCORRECT = (
    _DATASETS.format(mark="  # error: MP139", name="initial_nodes"),
    _CALLBACKS.format(mark="  # error: MP139", first="self.trainer = trainer"),
    _BENCHMARKS.format(mark="  # error: MP139", first="self.inputs()"),
)

CORRECT = (
    _DATASETS.format(mark="", name="starting_nodes"),
    _CALLBACKS.format(mark="", first="super().__init__(trainer)"),
    # set elsewhere, asked for first, never read
    """\
class Base:
    state = None

    def __init__(self, strategy):
        self.state = strategy
        self.rank = strategy.rank
        self.size = strategy.size
        self.unused = 0
        self.names = None

    def name(self):
        self.names = {}

    def show(self):
        return self.state, self.rank


class Own(Base):
    def __init__(self, strategy):
        self.setup(strategy)

    def setup(self, strategy):
        self.rank = strategy.rank
        self.name()
        print(self.names[0])

    def count(self):
        return self.size if hasattr(self, "size") else 1
""",
    # the base's constructor is run by another method, by a name that is handed to one, and through a variable
    """
class Base:
    def __init__(self, model):
        self.models = [model]

    def has(self, model):
        return model in self.models


class Rpc(Base):
    def __init__(self, model):
        self.rank = 0
        self.run("__init__", model=model)

    def run(self, method, **kwargs):
        return getattr(super(), method)(**kwargs)

    def load(self, model):
        return self.run("has", model=model)


class Late(Base):
    def __init__(self, model):
        self.rank = 0
        self.setup(model)

    def setup(self, model):
        super().__init__(model)


class Named(Base):
    def __init__(self, model):
        make = super().__init__
        make(model)


print(Rpc(1).load(1), Rpc(1).has(1), Late(1).has(1), Named(1).has(1))
""",
    # two classes of one name: a condition chooses, and one of them only says what is missing
    """\
try:
    import vllm
except ImportError:
    vllm = None


class Base:
    def __init__(self, name):
        self.name = name


if vllm is not None:

    class Model(Base):
        def __init__(self, name, **options):
            super().__init__(name)
            self.engine = vllm.LLM(name, **options)

        def save(self, write):
            return write(self.name, self.engine)

else:

    class Model(Base):
        def __init__(self, *args, **options):
            raise SystemError("vllm is missing")


def main(write):
    return Model("small").save(write)
""",
)

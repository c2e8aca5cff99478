"""A method that is called through its name in a text, with arguments that it does not take.

What it does
    Follows the name and the arguments together: `run("save", tag=1)` ends in `getattr(worker, "save").remote(tag=1)`,
    through however many functions that hand both on; so do libraries (`llm.collective_rpc("save", args=(1,))`, of which
    the project has the workers). Reported is a call that every object which may come there refuses; where the objects
    are not all known, every method of that name in the project. Where other objects take the call, a method of a
    relative of theirs is reported that refuses each call of that name in the project, as a warning. Silent about
    methods whose decorators may change the signature, about arguments that are not spelled out, and where the text
    reaches another place that calls the method otherwise.

Why is this bad
    It raises TypeError in another process, at the first call. No search for calls finds it, and no type checker.

References
    https://docs.python.org/3/reference/expressions.html#calls
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.analysis.interfaces.binding import Misfit, keeps_signature, misfit_of, parameters, written
from validator.analysis.named_workers import NamedWorkers
from validator.finding import Finding, Related, Severity
from validator.flow.callgraph.dispatch import Dispatched, Dispatches
from validator.flow.constructors import REMOTE
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP136", "dispatched-call-refused", "error", stable_since="0.3.0", solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    by_name: dict[str, list[Dispatched]] = {}
    for each in project.analysis(Dispatches).all:
        by_name.setdefault(each.name, []).append(each)
    for found in by_name.values():
        calls = [each for each in found if each.sent is not None]
        refusing: dict[Method, None] = {}
        taking: set[ClassDef] = set()
        for each in calls:
            methods, complete = methods_asked_for(project, each)
            refused = {method: misfit for method in methods if (misfit := _misfit(method, each)) is not None}
            if methods and len(refused) == len(methods):
                if _is_sent_otherwise(project, each, found):
                    continue
                certain = complete and not each.guessed
                yield _report(each, *next(iter(refused.items())), RULE.severity if certain else "warning")
            else:
                refusing.update(dict.fromkeys(refused))
                taking.update(method.cls for method in methods if method not in refused and method.cls is not None)
        for method in refusing:
            of_family = method.cls is not None and any(_is_sibling(method.cls, cls) for cls in taking)
            if (
                of_family
                and len(calls) == len(found)
                and all(_misfit(method, each) is not None for each in calls)
                and not _is_called_otherwise(project, method)
            ):
                yield _left_behind(method, calls)


def methods_asked_for(project: Project, each: Dispatched) -> tuple[list[Method], bool]:
    """The methods that a call may reach, and whether there can be no others; none where one may bear anything."""
    if each.by_library:  # it has other objects do so than the one that asks it
        asks = {unit.cls for unit in (each.asking.unit, each.text.unit)}
        workers = project.analysis(NamedWorkers).of(each.workers)
        found = [method for cls in workers if isinstance(method := cls.find(each.name), Method)]
        methods = found or [method for method in _defined(project, each.name) if asks.isdisjoint(_family(method))]
        return (methods, False) if all(map(_is_plain, methods)) else ([], False)
    held = project.analysis(Objects).held(each.asking.operand(1))
    known = {cls.find(each.name) for cls in held.classes if not cls.is_abstract and not is_test(cls.path)}
    defined = _defined(project, each.name)
    methods = [method for method in defined if method in known] if held.complete else defined
    return (methods, held.complete) if all(map(_is_plain, methods)) else ([], False)


def _family(method: Method) -> tuple[ClassDef, ...]:
    """The class of a method, and those above and below it."""
    return (*method.cls.mro, *method.cls.descendants()) if method.cls is not None else ()


def _is_sibling(cls: ClassDef, other: ClassDef) -> bool:
    """Whether a class stands above, below or beside another one, under a base of the project."""
    return not frozenset(cls.mro).isdisjoint(other.mro)


def _is_sent_otherwise(project: Project, each: Dispatched, found: list[Dispatched]) -> bool:
    """Whether the same text reaches another place that calls the method as it is, or as nobody can see: which of the
    places a caller comes to may be decided by what else it passes."""
    others = [other for other in found if other.text == each.text and other.asking != each.asking]
    return any(
        other.sent is None or any(_misfit(method, other) is None for method in methods_asked_for(project, other)[0])
        for other in others
    )


def _misfit(method: Method, each: Dispatched) -> Misfit | None:
    assert each.sent is not None
    return misfit_of(parameters(method), each.sent)


def _defined(project: Project, name: str) -> list[Method]:
    """The methods of a name that objects of the program may have."""
    found: Iterable[Method] = (cls.methods[name] for cls in project.classes() if name in cls.methods)
    return [method for method in found if not method.facts.is_abstract and not is_test(method.path)]


def _is_plain(method: Method) -> bool:
    plain = keeps_signature(method) or REMOTE.issuperset(method.facts.decorators)
    return plain and not method.facts.is_property and not method.facts.is_overload


def _is_called_otherwise(project: Project, method: Method) -> bool:
    """Whether somebody calls a method of that name directly, in a way that this one takes."""
    calls = project.calls(method.name)
    return any(misfit_of(parameters(method), call) is None for function, call in calls if not is_test(function.path))


def _report(each: Dispatched, method: Method, misfit: Misfit, severity: Severity) -> Finding:
    assert method.cls is not None
    through = each.asking.method if each.by_library else each.asking.unit.name
    shown = written(f"{method.cls.name}.{method.name}", parameters(method))
    return RULE.finding(
        each.text.unit.path,
        each.call.at,
        f"`{each.text.unit.qualname}` has `{each.name}` called through `{through}`: TypeError, for "
        f"`{shown}` {misfit.message}",
        help="pass what the method takes, or give it the parameters that it is called with",
        related=[
            Related(method.path, method.facts.name_at[0], f"`{method.qualname}` is defined here"),
            Related(each.asking.unit.path, each.asking.at[0], "the method is asked for by its name here"),
        ],
        context=f"{each.text.unit.qualname}:{method.qualname}:{misfit.kind}:{misfit.name}",
        severity=severity,
    )


def _left_behind(method: Method, calls: list[Dispatched]) -> Finding:
    """A method that takes none of the calls by its name, which others of that name take."""
    nearest = min(calls, key=lambda each: len(each.sent.args) if each.sent is not None else 0)
    misfit = _misfit(method, nearest)
    assert misfit is not None
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"`{written(method.qualname, parameters(method))}` refuses every call that `{nearest.asking.unit.name}` makes "
        f"by its name: it {misfit.message}, which `{nearest.text.unit.qualname}` passes",
        help="give it the parameters that it is called with, as the other methods of that name have them",
        related=[Related(each.text.unit.path, each.call.at[0], "called here") for each in calls],
        context=f"{method.qualname}:{misfit.kind}:{misfit.name}",
        severity="warning",
    )


_GROUP = """\
import ray


class Actor:
    def save(self, tag, metric_value=None):
        return tag, metric_value


class Policy(Actor):
    def fit(self, strategy, step):
        return strategy, step


class Critic(Actor):
    def fit(self, strategy, step):
        return strategy, step

    def save(self, tag, {name}=None):{mark}
        return tag, {name}


class Group:
    def __init__(self, cls, count):
        self.workers = [ray.remote(cls).options(num_gpus=1).remote() for _ in range(count)]

    def start(self, method_name, *args, **kwargs):
        return [getattr(worker, method_name).remote(*args, **kwargs) for worker in self.workers]

    def run(self, name, *args, **kwargs):
        return ray.get(self.start(name, *args, **kwargs))


def main(strategy):
    policy, critic = Group(Policy, 2), Group(Critic, 2)
    policy.run("save", "last", metric_value=1.0)
    critic.run("save", "last", metric_value=1.0)
"""

_OWN_SAVE = """\
class Policy(Actor):
    def save(self, tag, metric_value=None, state=None):
        return tag, state
"""

_RPC = """\
class WorkerExtension:
    def update_weight(self, name, dtype, shape, handles, empty_cache=False):
        return name, dtype, shape, handles, empty_cache

    def close_group(self):
        return None


class Actor:
    def __init__(self, vllm, **options):
        self.llm = vllm.LLM(worker_extension_cls="rl.workers.WorkerExtension", **options)

    def update_weight(self, name, dtype, shape, handles=None, empty_cache=False):
        return self.llm.collective_rpc("update_weight", {args}){mark}

    def close(self):
        return self._run("close_group")

    def _run(self, method, args=(), kwargs=None):
        return self.llm.collective_rpc(method, args=args, kwargs=kwargs)
"""

INCORRECT = (
    """\
class Worker:
    def update(self, strategy, batch):
        return strategy, batch


class Group:
    def __init__(self, count):
        self.workers = [Worker() for _ in range(count)]

    def run(self, name, *args, **kwargs):
        return [getattr(worker, name)(*args, **kwargs) for worker in self.workers]


def main(strategy, batch):
    group = Group(2)
    group.run("update", strategy, batch)
    group.run("update", strategy, batches=batch)  # error: MP136
    group.run(name="update", strategy=strategy)  # error: MP136
""",
    # one of two that refuses whatever is passed
    _GROUP.format(name="best", mark="  # error: MP136"),
    # the same, where the class beside it has a method of its own
    _GROUP.format(name="best", mark="  # error: MP136").replace("class Policy(Actor):", _OWN_SAVE),
    # a library that has workers of the project run the method
    _RPC.format(args="args=(name, dtype, shape)", mark="  # error: MP136"),
    _RPC.format(args='args=(name, dtype, shape, handles), kwargs={"empty": empty_cache}', mark="  # error: MP136"),
)

CORRECT = (
    _GROUP.format(name="metric_value", mark=""),
    # the other argument decides in which of two places the method is called
    """\
class Worker:
    def node(self):
        return 0

    def update(self, batch):
        return batch


class Chunks:
    @classmethod
    def dispatch(cls, strategy, method, *args):
        return [getattr(worker, method)(args[0]) for worker in strategy.workers]


class Plain:
    @classmethod
    def dispatch(cls, strategy, method, *args):
        return [getattr(worker, method)(*args) for worker in strategy.workers]


KINDS = {"chunks": Chunks, "plain": Plain}


def main(strategy, batch):
    KINDS[strategy.kind].dispatch(strategy, "update", batch)
    KINDS[strategy.other].dispatch(strategy, "node")
""",
    # each group calls the method as its own class has it; what is not spelled out
    """\
class Policy:
    def fit(self, strategy, batch):
        return strategy, batch


class Critic:
    def fit(self, strategy):
        return strategy


class Group:
    def __init__(self, cls, count):
        self.workers = [cls() for _ in range(count)]

    def run(self, name, *args, **kwargs):
        return [getattr(worker, name)(*args, **kwargs) for worker in self.workers]


def main(strategy, batch, extra):
    Group(Policy, 2).run("fit", strategy, batch)
    Group(Critic, 2).run("fit", strategy)
    Group(Critic, 2).run("fit", *extra)
""",
    _RPC.format(args='args=(name, dtype, shape, handles), kwargs={"empty_cache": empty_cache}', mark=""),
    # another library passes keywords on; what is not spelled out
    _RPC.format(args="name=name, dtype=dtype", mark=""),
    _RPC.format(args="args=(name, *shape)", mark=""),
)

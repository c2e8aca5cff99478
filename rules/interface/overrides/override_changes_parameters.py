"""An override that renames or drops parameters of the interface it implements, or puts one before others.

What it does
    Compares a public method with the one it overrides. Reported are a parameter that an *interface* (a class with
    abstract methods, or methods that only raise NotImplementedError) declares under another name at the same
    position (a note where no caller is known to use it through the base; silent where all are known and none names
    it), a parameter that the override no longer takes although callers pass it through the base class (to an object
    that may be the override's), and one that the override of an interface puts before others, although callers pass
    those by their positions, also on an object of which nothing is known but that all methods of the name are of this
    interface. Silent: overrides that take `*args` or `**kwargs`, names that begin with an underscore, tests, and
    callers that ask first whether the parameter is there (`"x" in inspect.signature(f).parameters`).

Why is this bad
    Whoever calls through the base class gets TypeError with this one implementation only, or what is passed by its
    position is taken for something else.

References
    https://mypy.readthedocs.io/en/stable/class_basics.html#overriding-statically-typed-methods
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.binding import parameters, signature
from validator.analysis.interfaces.members import own_object
from validator.facts.model import Call, Param
from validator.finding import Finding, Related, Severity
from validator.flow.objects import Objects
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP122", "override-changes-parameters", "warning", stable_since="0.1.0", solves=True)

Site = tuple[Method, Call]


def check_project(project: Project) -> Iterator[Finding]:
    yield from _renaming(project)
    yield from _inserting(project)


def _renaming(project: Project) -> Iterator[Finding]:
    changed = [pair for pair in _overrides(project) if _lost(*pair)]
    calls = _calls(project, {method.name for method, _ in changed})
    for method, base in changed:
        renamed = _renamed(method, base)
        sites = list(_sites(project, method, base, calls))
        passing = [
            (site, name)
            for site, through_base, name in _passed(sites)
            if through_base and name in _lost(method, base) and not _is_asked_for(project, site, name)
        ]
        if passing:
            yield _report(method, base, renamed, *passing[0])
        elif renamed and base.cls is not None and _is_interface(base.cls) and _named(sites, renamed):
            spoken = any(name in renamed for _, through_base, name in _passed(sites) if through_base)
            yield _report(method, base, renamed, None, "", "warning" if spoken else "note")


def _inserting(project: Project) -> Iterator[Finding]:
    """Overrides of an interface in which a parameter of their own stands before others, which callers pass by their
    positions."""
    shifted = [
        (method, base, at) for method, base in _overrides(project) if (at := _inserted(method, base)) is not None
    ]
    calls = _calls(project, {method.name for method, _, _ in shifted})
    for method, base, at in shifted:
        if base.cls is None or not _is_interface(base.cls):
            continue
        passing = [site for site in calls.get(method.name, ()) if _passes(site[1], at, method)]
        through_base = [site for site, through in _sites(project, method, base, {method.name: passing}) if through]
        known = through_base or [site for site in passing if _is_of_interface(project, site, base)]
        if known:
            yield _report_shifted(method, base, at, known[0])


def _inserted(method: Method, base: Method) -> int | None:
    """The position at which an override has a parameter that the base has not, and all that the base has from there on
    later; None where there is none."""
    own, old = ([p.name for p in parameters(each) if p.kind in ("any", "pos")] for each in (method, base))
    at = next((i for i, pair in enumerate(zip(own, old, strict=False)) if pair[0] != pair[1]), -1)
    if at < 0 or own[at] in old or [name for name in own[at:] if name in old] != old[at:]:
        return None
    return at


def _passes(call: Call, at: int, method: Method) -> bool:
    """Whether a call passes by its position what stands later in the override, and does not mean that one's own."""
    named = {argument.keyword for argument in call.args}
    positional = call.positional
    return (
        "*" not in named
        and len(positional) > at
        and positional[at].value.rpartition(".")[2] != parameters(method)[at].name
    )


def _is_of_interface(project: Project, site: Site, base: Method) -> bool:
    """Whether a call on an object of which nothing is known is one of an interface: all methods of its name are."""
    function, call = site
    assert base.cls is not None
    methods = project.analysis(Objects).flow.guessed.methods(call.method)
    alike = bool(methods) and all(each.cls is not None and base.cls in each.cls.mro for each in methods)
    return alike and call.receiver != own_object(function) and not project.analysis(Objects).receivers(function, call)


def _report_shifted(method: Method, base: Method, at: int, site: Site) -> Finding:
    function, call = site
    assert method.cls is not None
    assert base.cls is not None
    name, meant = parameters(method)[at].name, parameters(base)[at].name
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"`{method.cls.name}.{method.name}` takes `{name}` where `{base.cls.name}.{signature(base)}` takes `{meant}`; "
        f"`{function.qualname}` passes that by its position",
        help=f"put `{name}` behind those of `{base.cls.name}.{base.name}`, with a default, or keep it in the object",
        related=[
            Related(base.path, base.facts.name_at[0], f"`{base.cls.name}.{base.name}` is declared here"),
            Related(function.path, call.at[0], f"`{meant}` is passed here"),
        ],
        context=f"{method.qualname}:{name}>{meant}",
    )


def _overrides(project: Project) -> Iterator[tuple[Method, Method]]:
    """Public methods with the nearest method that they override; those that take anything left out."""
    for cls in project.classes():
        if len(cls.mro) < 2 or is_test(cls.path):
            continue
        for name, method in cls.methods.items():
            base = next((c.methods[name] for c in cls.mro[1:] if name in c.methods), None)
            if base is None or name.startswith("_") or not (_plain(method) and _plain(base)):
                continue
            if not any(p.kind in ("*", "**") for p in (*method.facts.params, *base.facts.params)):
                yield method, base


def _plain(method: Method) -> bool:
    facts = method.facts
    return not (facts.is_static or facts.is_classmethod or facts.is_property or facts.is_overload)


def _lost(method: Method, base: Method) -> dict[str, Param]:
    """Parameters that the base takes by name and the override does not."""
    kept = {p.name for p in parameters(method)}
    named = (p for p in parameters(base) if p.kind != "pos" and not p.name.startswith("_"))
    return {p.name: p for p in named if p.name not in kept}


def _renamed(method: Method, base: Method) -> dict[str, str]:
    """Old to new name of the parameters that only changed their names: same position, new to the base."""
    lost = _lost(method, base)
    known = {p.name for p in parameters(base)}
    pairs = zip(parameters(base), parameters(method), strict=False)
    return {
        old.name: new.name
        for old, new in pairs
        if old.name in lost and old.kind == new.kind == "any" and new.name not in known and not new.name.startswith("_")
    }


def _is_interface(cls: ClassDef) -> bool:
    return any(m.facts.is_abstract or m.facts.stub == "raise" for m in cls.methods.values())


def _calls(project: Project, names: set[str]) -> dict[str, list[Site]]:
    """The calls of methods of these names, tests left out."""
    found: dict[str, list[Site]] = {}
    for function, call in project.calls(*names):
        if call.receiver and not is_test(function.path):
            found.setdefault(call.method, []).append((function, call))
    return found


def _sites(project: Project, method: Method, base: Method, calls: dict[str, list[Site]]) -> Iterator[tuple[Site, bool]]:
    """Who calls `method`, and whether it does so on an object that may also be of another class than its own. A call on
    an object of the base is none where objects of the class are in other processes alone, and those of the base are
    not."""
    assert method.cls is not None
    flow = project.analysis(Objects).flow
    away = flow.is_remote(method.cls) and not (base.cls is not None and flow.is_remote(base.cls))
    for function, call in calls.get(base.name, ()):
        if call.receiver == own_object(function):
            if function.cls in method.cls.mro and method.cls.find(function.name) is function:
                yield (function, call), True
        elif call.receiver != "super()":
            objects = project.analysis(Objects)
            types = objects.receivers(function, call)
            if base.cls in types and not away or method.cls in types:
                both = method.cls in types or base.cls in objects.open_receivers(function, call)
                yield (function, call), base.cls in types and both


def _passed(sites: list[tuple[Site, bool]]) -> Iterator[tuple[Site, bool, str]]:
    for site, through_base in sites:
        for argument in site[1].args:
            if argument.keyword is not None:
                yield site, through_base, argument.keyword


def _is_asked_for(project: Project, site: Site, name: str) -> bool:
    """Whether a call passes an argument only to what takes it."""
    function, call = site
    place = project.analysis(Objects).call_at(function.module, call.at)
    return place is not None and place.asks_what_is_taken(name)


def _named(sites: list[tuple[Site, bool]], renamed: dict[str, str]) -> bool:
    """Whether a new name matters to somebody: callers are not known, or one of them uses the old or the new name."""
    return not sites or any(name in ("**", *renamed, *renamed.values()) for _, _, name in _passed(sites))


def _report(
    method: Method,
    base: Method,
    renamed: dict[str, str],
    site: Site | None,
    passed: str,
    severity: Severity = "warning",
) -> Finding:
    assert method.cls is not None
    assert base.cls is not None
    if passed and passed not in renamed:
        what = f"drops the parameter `{passed}` of `{base.cls.name}.{signature(base)}`"
    else:
        pairs = ", ".join(f"`{old}` to `{new}`" for old, new in renamed.items())
        what = f"renames parameters of `{base.cls.name}.{base.name}`: {pairs}"
    related = [Related(base.path, base.facts.name_at[0], f"`{base.cls.name}.{base.name}` is declared here")]
    if site is not None:
        function, call = site
        what += f"; `{function.qualname}` passes `{passed}=`"
        related.append(Related(function.path, call.at[0], f"`{passed}=` is passed here"))
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"`{method.cls.name}.{method.name}` {what}",
        help=f"give it the parameters of `{base.cls.name}.{signature(base)}`",
        related=related,
        context=f"{method.qualname}:{','.join(_lost(method, base))}",
        severity=severity,
    )


_STRATEGIES = """\
from abc import ABC, abstractmethod


class Strategy(ABC):
    @abstractmethod
    def save_ckpt(self, model, save_dir, tag, max_num=3): ...


class DeepspeedStrategy(Strategy):
    def save_ckpt(self, model, save_dir, tag, max_num=3):
        model.save_checkpoint(save_dir, tag=tag)


class FsdpStrategy(Strategy):
    def save_ckpt(self, model, save_dir, {params}max_num=3):{mark}
        model.save(save_dir, tag)


class Trainer:
    def __init__(self, strategy):
        self.strategy = strategy

    def save(self, model, step):
        self.strategy.save_ckpt(model, "ckpt", {passed})
"""

INCORRECT = (
    _STRATEGIES.format(params="optimizer, tag, ", mark="  # error: MP122", passed='f"step{step}", 3'),
    """\
class BaseEngine:
    def train_batch(self, data, loss_function):
        return self.forward_backward(data, loss_function)

    def forward_backward(self, data, loss_function):
        raise NotImplementedError


class FSDPEngine(BaseEngine):
    def train_batch(self, data, loss_fn):  # error: MP122
        return self.forward_backward(data, loss_fn)

    def forward_backward(self, data, loss_function):
        return loss_function(data)
""",
    """\
class Engine:
    def save(self, path, rank=0):
        return path, rank


class ShardedEngine(Engine):
    def save(self, path):  # error: MP122
        return path


def finish(engine: Engine, strategy):
    engine.save("out", rank=strategy.rank)
""",
)

CORRECT = (
    # passed by name, or behind what the interface has
    _STRATEGIES.format(params="optimizer, tag, ", mark="", passed="tag=step, max_num=3"),
    _STRATEGIES.format(params="tag, ", mark="", passed='f"step{step}", 3'),
    _STRATEGIES.format(params="tag, ", mark="", passed='f"step{step}", 3').replace(
        "max_num=3):\n        model.save(", "max_num=3, optimizer=None):\n        model.save("
    ),
    # the names are the base's; one more parameter has a default; the rest goes through
    """\
class BaseEngine:
    def train_batch(self, data, loss_function):
        raise NotImplementedError

    def save(self, path, rank):
        raise NotImplementedError


class FSDPEngine(BaseEngine):
    def train_batch(self, data, loss_function, strategy=None):
        return loss_function(data)

    def save(self, *args, **kwargs):
        return args
""",
    # an interface whose callers all pass the parameter by its position
    """\
import torch.distributed as dist


class BaseMerger:
    def save(self, state_dict):
        raise NotImplementedError


class MegatronMerger(BaseMerger):
    def save(self, merged):
        return merged

    def run(self, shards):
        self.save(shards.merged())
""",
    # who passes the parameter has made an object of the base itself
    """\
class Pieces:
    def encode(self, text, add_bos=True):
        return text, add_bos


class Plain(Pieces):
    def encode(self, text):
        return text


class Wrapper:
    def __init__(self, strategy):
        self.strategy = strategy
        self.pieces = Pieces()

    def encode(self, text):
        return self.pieces.encode(text, add_bos=False)
""",
    # no interface, and nobody names the parameter
    """\
class Engine:
    def save(self, path, rank=0):
        return path, rank


class ShardedEngine(Engine):
    def save(self, folder):
        return folder


def finish(engine: Engine, strategy):
    engine.save(strategy.path)
""",
    # the caller asks first whether the parameter is there
    """import inspect
from abc import ABC, abstractmethod


class Generator(ABC):
    @abstractmethod
    def generate(self, batch): ...


class Gym(Generator):
    def generate(self, batch, quiet=False):
        return batch if quiet else print(batch)


class Agent(Gym):
    def generate(self, batch):
        return batch


class Trainer:
    def __init__(self, generator: Gym):
        self.generator = generator

    def step(self, batch):
        if "quiet" in inspect.signature(self.generator.generate).parameters:
            return self.generator.generate(batch, quiet=True)
        return self.generator.generate(batch)


class Learner:
    def __init__(self, generator: Gym):
        self.generator = generator

    def step(self, batch):
        known = inspect.signature(self.generator.generate).parameters
        takes = "quiet" in known
        return self.generator.generate(batch, quiet=True) if takes else self.generator.generate(batch)


print(Trainer(Agent()).step([1]), Learner(Agent()).step([1]), Trainer(Gym()).step([1]))
""",
    # objects of the class are workers in processes of their own: who has one calls it in another way
    """\
from abc import ABC, abstractmethod

import ray


class PolicyInterface(ABC):
    @abstractmethod
    def train(self, data, timer=None): ...


class Policy(PolicyInterface):
    def __init__(self, workers):
        self.workers = workers

    def train(self, data, timer=None):
        return ray.get([worker.train.remote(data) for worker in self.workers])


class WorkerImpl(PolicyInterface):
    def train(self, data):
        return data


@ray.remote
class Worker(WorkerImpl):
    pass


def fit(policy: PolicyInterface, data, timer):
    return policy.train(data, timer=timer)


fit(Policy([Worker.remote()]), [1], None)
""",
)

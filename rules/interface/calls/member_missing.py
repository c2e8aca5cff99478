"""A member that no object of the class can have.

What it does
    Reports `self.x` and `receiver.x` (read or called) where the receiver is certain to be an object of classes
    of the project, and where neither these classes, nor their bases, nor any class below them, nor code that sets
    attributes from outside defines `x`. An object that takes over the members of a class (`for name in
    dir(worker_class): setattr(self, name, …)`), or whose `__getattr__` asks objects that it made of a class, has those
    of the class given to its constructor. A template method may call what only its subclasses define: one subclass
    that has the member is enough. A warning where annotations or callers alone say what the receiver is. Silent:
    classes with a base outside the project, `__getattr__`, `setattr`, or a decorator that may add members; mixins;
    places behind `hasattr`, `isinstance` or `except AttributeError`.

Why is this bad
    It raises AttributeError, often only on the branch that one backend or one option takes: hours into a job.

References
    https://docs.python.org/3/reference/expressions.html#attribute-references
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.members import Members, fills
from validator.errors import nearest
from validator.facts.model import At
from validator.finding import Finding, Related
from validator.flow import Flow
from validator.flow.callgraph.lent import Lent
from validator.flow.objects import Held, Objects, is_passed
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP120", "member-missing", "error", stable_since="0.1.0", solves=True)

_MANY = 5  # a class that lacks so many members is half rewritten: one finding says it all


class Use(NamedTuple):
    """A place that reads or calls `receiver.name` where none of `classes` has `name`."""

    function: Method
    receiver: str
    name: str
    classes: tuple[ClassDef, ...]
    at: At
    called: bool
    having: tuple[ClassDef, ...] = ()  # siblings that do have it
    said: bool = False  # the classes are what annotations or callers say; they may do otherwise


def check_project(project: Project) -> Iterator[Finding]:
    by_class: dict[tuple[ClassDef, ...], dict[str, list[Use]]] = {}
    for use in _uses(project):
        by_class.setdefault(use.classes, {}).setdefault(use.name, []).append(use)
    for classes, names in by_class.items():
        if len(names) >= _MANY:
            if not any(use.said for uses in names.values() for use in uses):  # else the annotation is what is wrong
                yield _half_rewritten(classes, names)
        else:
            for uses in names.values():
                yield from _reports(project, uses)


def _reports(project: Project, uses: list[Use]) -> Iterator[Finding]:
    """One finding for a member, or one for each file that asks a stand-in for it: there the callers may be wrong."""
    family = any(project.families.of(cls) is not None for cls in uses[0].classes)
    by_file: dict[str, list[Use]] = {}
    for use in uses:
        by_file.setdefault(use.function.path if family else "", []).append(use)
    for each in by_file.values():
        yield _report(project, min(each, key=lambda u: (u.function.path, u.at)), uses)


def _uses(project: Project) -> Iterator[Use]:
    """Every place that names a member which is not there."""
    flow, members = project.analysis(Flow), project.analysis(Members)
    for module in project.modules.values():
        for unit in flow.whole_units(module):
            for number, value in enumerate(unit.code.values):
                if value.op == "attr" and not members.is_given_outside(value.data):
                    place = Place(flow, unit, number)
                    use = _missing(project, place)
                    if use is not None and not place.may_lack(use.name):
                        yield use


def _missing(project: Project, place: Place) -> Use | None:
    """A read of an attribute that its object lacks. Only of their own objects tests are taken at their word."""
    own = place.owner
    if own is not None:
        return _own_missing(project, place, own)
    if is_test(place.unit.path):
        return None
    members, name, held = (
        project.analysis(Members),
        place.value.data,
        project.analysis(Objects).held(place.operand(0), place),
    )
    if lacking := _lent(project, place, name):
        return _use(place, lacking)._replace(said=is_passed(place.operand(0)))
    if not held.complete or not all(_lacks(members, held, cls, name) for cls in held.classes):
        return None
    if any(cls.is_abstract and cls.subclasses for cls in held.classes) and place.is_called:
        return None  # what a base class should declare is a matter of its own (MP126)
    found = _use(place, tuple(sorted(held.classes, key=lambda c: (c.module.name, c.qualname))))
    return found._replace(said=bool(held.below) or is_passed(place.operand(0)))


def _lent(project: Project, place: Place, name: str) -> tuple[ClassDef, ...]:
    """The classes whose members the object has that is asked, and its own, where all are known and lack the name."""
    members, lent, owner = project.analysis(Members), project.analysis(Lent), place.operand(0)
    taking = [o[1] for o in owner.closed.each if o[0] in ("inst", "self") and lent.param(o[1]) is not None]
    if len(taking) != 1 or name in taking[0].attributes or not _lists_itself(members, taking[0]):
        return ()
    lenders = sorted(lent.lenders(owner), key=lambda c: (c.module.name, c.qualname))
    return (*lenders, *taking) if lenders and all(members.lacks(cls, name) for cls in lenders) else ()


def _lists_itself(members: Members, cls: ClassDef) -> bool:
    """Whether nothing but what was lent gives objects of a class members that its source does not list."""
    filling = fills(cls)
    if "__getattr__" in cls.methods:
        return not filling and not cls.facts.decorators
    return len(filling) == 1 and filling[0][0].name == "__init__" and members.closed_but_for_itself(cls)


def _lacks(members: Members, held: Held, cls: ClassDef, name: str) -> bool:
    return members.lacks(cls, name) if cls in held.below else members.lacks_where_made(cls, name)


def _use(place: Place, classes: tuple[ClassDef, ...], having: tuple[ClassDef, ...] = ()) -> Use:
    return Use(place.unit.scope, _receiver(place), place.value.data, classes, place.at, place.is_called, having)


def _receiver(place: Place) -> str:
    """The source of the object that is asked."""
    return place.unit.text(place.value.at).rpartition(".")[0].rstrip()


def _own_missing(project: Project, place: Place, method: Method) -> Use | None:
    """`self.name` where the class does not define `name`: nobody below it does, or not everybody."""
    members, cls, name = project.analysis(Members), method.cls, place.value.data
    assert cls is not None
    if not members.closed(cls) or name in cls.attributes:
        return None
    if members.lacks(cls, name):
        return _use(place, (cls,))
    if place.is_called and place.unit.method is method:
        lacking, having = _template(project, method, name)
        if lacking:
            return _use(place, lacking, having)
    return None


def _template(project: Project, method: Method, name: str) -> tuple[tuple[ClassDef, ...], tuple[ClassDef, ...]]:
    """For a method that calls `self.name()`: the classes that run it and lack `name`, and those that have it."""
    members = project.analysis(Members)
    cls = method.cls
    assert cls is not None
    if not cls.subclasses or not members.may_lack(cls, name):
        return (), ()
    heirs = [c for c in cls.descendants() if c.find(method.name) is method]
    having = tuple(c for c in heirs if name in c.attributes)
    if not having:
        return (), ()
    starts = _leading_to(cls, method)
    return tuple(c for c in heirs if members.lacks(c, name) and _is_called_on(project, c, starts)), having


def _is_called_on(project: Project, cls: ClassDef, names: set[str]) -> bool:
    """Whether code outside a class may call one of the named methods on its objects."""
    objects = project.analysis(Objects)
    methods = [method for name in sorted(names) if (method := cls.find(name)) is not None]
    rows = ((caller, call) for method in methods for caller, call in objects.callers(method))
    return any(
        call.receiver not in ("super()", caller.own_object) and cls in objects.receivers(caller, call)
        for caller, call in rows
    )


def _leading_to(cls: ClassDef, method: Method) -> set[str]:
    """The names of the methods of a class that reach `method` through `self`."""
    found = {method.name}
    while True:
        more = {
            each.name
            for each in cls.every_method()
            if any(call.target.startswith("self.") and call.method in found for call in each.facts.calls)
        }
        if more <= found:
            return found
        found |= more


def _report(project: Project, use: Use, uses: list[Use]) -> Finding:
    kind = "method" if use.called else "attribute"
    one = "a method" if use.called else "an attribute"
    names = [f"`{cls.name}`" for cls in use.classes]
    subject = f"{names[0]} has no {kind}" if len(names) == 1 else f"neither {' nor '.join(names)} has {one}"
    how = f"`{use.function.qualname}` {'calls' if use.called else 'reads'} as `{use.receiver}.{use.name}`"
    siblings = f"; {', '.join(f'`{cls.name}`' for cls in use.having)} has it" if use.having else ""
    below = " and no class below it" if not use.having and any(cls.subclasses for cls in use.classes) else ""
    where = [Related(cls.path, cls.facts.name_at[0], f"`{cls.name}` is defined here") for cls in use.classes]
    others = sorted({(u.function.path, u.at[0]) for u in uses if u.at != use.at})
    return RULE.finding(
        use.function.path,
        _span(use),
        f"{subject} `{use.name}`{below and f' ({below.strip()})'}, which {how}{siblings}",
        help=_advice(project, use),
        related=[*where, *(Related(path, line, f"`{use.name}` is used here too") for path, line in others)],
        context=f"{use.classes[0].qualname}.{use.name}:{use.function.qualname}",
        severity="warning" if use.said else RULE.severity,
    )


def _half_rewritten(classes: tuple[ClassDef, ...], names: dict[str, list[Use]]) -> Finding:
    first = min((use for uses in names.values() for use in uses), key=lambda u: (u.function.path, u.at))
    listed = ", ".join(f"`{name}`" for name in sorted(names))
    subject = " and ".join(f"`{cls.name}`" for cls in classes)
    related = [
        Related(use.function.path, use.at[0], f"`{use.receiver}.{use.name}` is used here")
        for _, (use, *_) in sorted(names.items())
    ]
    return RULE.finding(
        first.function.path,
        _span(first),
        f"{subject} lacks {len(names)} members that its code uses: {listed}",
        help="set them in `__init__`, inherit them again, or remove the code that needs them",
        related=related,
        context=f"{classes[0].qualname}:members",
    )


def _span(use: Use) -> tuple[int, int, int, int]:
    line, column, end_line, end_column = use.at
    width = len(use.receiver) + 1 + len(use.name)
    return (line, column, line, column + width) if end_line == line else (line, column, end_line, end_column)


def _advice(project: Project, use: Use) -> str:
    """Where the member lives instead, or which name is close to it."""
    cls, objects = use.classes[0], project.analysis(Objects)
    for attribute in sorted(cls.attributes):
        if any(use.name in each.attributes for each in objects.kept(cls, attribute)):
            return f"`{use.receiver}.{attribute}` has it: use `{use.receiver}.{attribute}.{use.name}`"
    if "args" in cls.attributes and _is_option(project, use.name):
        return f"it is a command-line option: use `{use.receiver}.args.{use.name}`"
    hint = nearest(use.name, sorted(cls.attributes))
    owners = sorted(each.name for each in project.classes() if use.name in each.attributes and each not in use.classes)
    if not hint and owners:
        return f"`{owners[0]}` has one: use it through such an object, or define it on `{cls.name}`"
    return f"define it on `{cls.name}` or use the right name{hint}"


def _is_option(project: Project, name: str) -> bool:
    """Whether the code adds `--name` to a parser or reads it from some `args`."""
    added = (argument.value for _, call in project.calls("add_argument") for argument in call.positional)
    if any(value.strip("\"'-") == name for value in added):
        return True
    return any(ref.path.endswith(f"args.{name}") for function in project.functions() for ref in function.facts.refs)


INCORRECT = (
    """\
class Trainer:
    def __init__(self, strategy):
        self.strategy = strategy

    def fit(self, steps):
        for step in range(steps):
            self.ppo_train(step)  # error: MP120

    def ppo_train_actor(self, step):
        self.strategy.print(step)
""",
    """\
class Base:
    def __init__(self, strategy):
        self.strategy = strategy

    def fit(self):
        self.ppo_train()  # error: MP120


class Critic(Base):
    def ppo_train(self):
        self.strategy.print("critic")


class Actor(Base):
    def ppo_train_actor(self):
        self.strategy.print("actor")


def main(strategy):
    Actor(strategy).fit()
    Critic(strategy).fit()
""",
    """\
class FSDPPlugin:
    def __init__(self):
        self.fsdp_version = 2


class Accelerator:
    def __init__(self):
        self.fsdp_plugin = FSDPPlugin()

    def clip_grad_norm_(self, parameters):
        if self.fsdp_version == 1:  # error: MP120
            return None
""",
    """\
# file: strategy.py
class Strategy:
    def __init__(self, args):
        self.args = args


def get_strategy(args):
    return Strategy(args)
# file: train.py
from strategy import get_strategy


def train(args):
    strategy = get_strategy(args)
    return strategy.prompt_split  # error: MP120
""",
    """\
import ray


class CriticWorker:
    def __init__(self, config):
        self.config = config

    def update_critic(self, batch):
        return batch


class WorkerGroup:
    def __init__(self, worker_class, config):
        self.workers = [ray.remote(worker_class).remote(config) for _ in range(config.world_size)]
        for name in dir(worker_class):
            if not name.startswith("_"):
                setattr(self, name, self.bind(name))

    def bind(self, name):
        return lambda *args: [getattr(w, name).remote(*args) for w in self.workers]


class Trainer:
    def __init__(self, config):
        self.critic = WorkerGroup(CriticWorker, config)

    def step(self, batch):
        return self.critic.update_value(batch)  # error: MP120
""",
    """\
import ray


class CriticWorker:
    def __init__(self, config):
        self.config = config

    def update_critic(self, batch):
        return batch


class WorkerGroup:
    def __init__(self, worker_class, config):
        self.workers = [ray.remote(worker_class).remote(config) for _ in range(config.world_size)]

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError
        return lambda *args: ray.get([getattr(w, name).remote(*args) for w in self.workers])


def main(config, batch):
    critic = WorkerGroup(CriticWorker, config)
    critic.update_critic(batch)
    return critic.update_value(batch)  # error: MP120
""",
    # what functions hand on as it came stays what it is behind the call
    """\
class Strategy:
    def __init__(self, args):
        self.args = args


class Actor:
    def start(self, strategy):
        return strategy.get_grad_norm()  # error: MP120


class Group:
    def __init__(self, count):
        self.actors = [Actor() for _ in range(count)]

    def start(self, *args):
        return [actor.start(*args) for actor in self.actors]


def main(args):
    strategy = Strategy(args)
    Group(2).start(strategy)
    Group(4).start(strategy)
""",
)

_GROUP = """\
import ray


class CriticWorker:
    def __init__(self, config):
        self.config = config

    def update_critic(self, batch):
        return batch


class WorkerGroup:
    def __init__(self, worker_class, config{more}):
        self.workers = [ray.remote(worker_class).remote(config) for _ in range(config.world_size)]
        for name in dir(worker_class):
            setattr(self, name, self.bind(name))

    def bind(self, name):
        return lambda *args: [getattr(w, name).remote(*args) for w in self.workers]


class Trainer:
    def __init__(self, config{given}):
        self.critic = WorkerGroup({first}, config)

    def step(self, batch):
        return self.critic.{call}(batch), self.critic.workers
"""

CORRECT = (
    # a member of the class that was given, of the group itself, or of a class that is not known
    _GROUP.format(more="", given="", first="CriticWorker", call="update_critic"),
    _GROUP.format(more="", given="", first="CriticWorker", call="bind"),
    _GROUP.format(more="", given=", worker", first="worker", call="update_value"),
    # a template method: the subclass has it
    """\
class Base:
    def fit(self, strategy):
        self.train_step(strategy)


class PPOTrainer(Base):
    def train_step(self, strategy):
        strategy.print("step")
""",
    # asked for first
    """\
class Actor:
    def offload(self, strategy):
        if hasattr(self, "engine"):
            self.engine.offload()
        try:
            self.states.clear()
        except AttributeError:
            strategy.print("no states")
""",
    # set from outside, or by a base that is not shown
    """\
import torch


class Model(torch.nn.Module):
    def forward(self, strategy):
        return self.lm_head(strategy)


class Worker:
    def run(self):
        return self.strategy.step()


def make(strategy):
    worker = Worker()
    worker.strategy = strategy
    return worker
""",
    # a value that may be something else
    """\
class Strategy:
    def setup(self):
        return self


def train(strategy=None, accelerator=None):
    strategy = Strategy()
    strategy = accelerator.prepare(strategy)
    return strategy.anything
""",
    # a member of an enumeration is none of what its body says, but has it as its value
    """\
from enum import Enum


class Format:
    def __init__(self, largest):
        self.largest = largest


class Formats(Enum):
    E4M3 = Format(448)


def largest():
    return Formats.E4M3.value.largest
""",
    # a base is set up by its name, with the object as the first argument
    """\
class Buffers:
    def __init__(self, config):
        self.config = config


class Sampler:
    def __init__(self, loop, buffers: Buffers):
        self.loop, self.buffers = loop, buffers


class ParallelSampler(Sampler):
    def __init__(self, loop, buffers):
        Sampler.__init__(self, loop, buffers)


def run(strategy):
    loop, buffers = strategy.loop, Buffers(strategy.config)
    sampler = ParallelSampler(loop, buffers)
    loop.start(sampler)
""",
    # a data class that OmegaConf makes a dictionary of
    """\
from dataclasses import dataclass

from omegaconf import OmegaConf


@dataclass
class Modality:
    kind: str = "text"


class Embeddings:
    def __init__(self, strategy, modality: Modality = Modality()):
        self.width = modality.get("width", strategy.width)


def make(strategy):
    return Embeddings(strategy, OmegaConf.structured(Modality))
""",
    # an annotation that the only caller contradicts
    """\
class Options:
    def __init__(self, rows):
        self.rows = [Row(row) for row in rows]


class Row:
    def __init__(self, size):
        self.size = size


def make(strategy, row: Options):
    return strategy.layer(row.size)


def layers(strategy, sizes):
    return [make(strategy, row) for row in Options(sizes).rows]
""",
    # a function that the class only keeps: what it gets is no object of the class
    """\
class Scaler:
    def overflows(gradient):
        return gradient.float().isinf()

    def check(self, strategy, gradients):
        strategy.print(any(Scaler.overflows(each.data) for each in gradients))
""",
    # a helper asks what the object is
    """\
from torch.nn.parallel import DataParallel, DistributedDataParallel


def is_parallel(model):
    return type(model) in (DataParallel, DistributedDataParallel)


class Model:
    def __init__(self, strategy):
        self.strategy = strategy


def saved(model):
    return model.module if is_parallel(model) else model


def main(strategy):
    return saved(Model(strategy))
""",
    # one option chooses the object and what is asked of it
    """\
class Plain:
    def __init__(self, strategy):
        self.strategy = strategy


class Light:
    def __init__(self, strategy):
        self.strategy = strategy


def make_head(args, strategy):
    if args.head == "none":
        head = Plain(strategy)
    elif args.head == "light":
        head = Light(strategy)
    else:
        raise ValueError(args.head)
    return head


class Model:
    def __init__(self, head, args):
        self.width = head.config.width if args.head == "gpt2" else 0


def build(args, strategy):
    head = make_head(args, strategy)
    return Model(head, args)
""",
)

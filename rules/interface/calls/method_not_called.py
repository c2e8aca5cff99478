"""A method or function that is used as a value, or a property that is called.

What it does
    Finds attributes that can be nothing but methods of the project, and names that can be nothing but functions of the
    project or of a library (`if dist.is_initialized:`), with which is computed, that are compared with
    numbers or texts, tested as a condition, indexed, iterated over or written into a text; calls of attributes that are
    properties on every class that may be there and that give numbers, texts or truth values, or on one of several
    classes whose others have a method, if its annotation says such a value; and properties that are asked for on the
    handle of a Ray actor (`manager.stopped.remote()`).

Why is this bad
    A method or function is always true, and any other use raises TypeError. A property that is called raises TypeError,
    because what it gives cannot be called. Both are left behind when one becomes the other.

References
    https://docs.python.org/3/library/functions.html#property
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from validator.analysis.interfaces.binding import keeps_signature
from validator.finding import Finding, Related
from validator.flow.narrowing import OBJECTS
from validator.flow.objects import Objects, is_passed
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import stores
from validator.flow.values import NONE_OBJ
from validator.models import Models
from validator.models.members import of_libraries
from validator.project import Method, Project
from validator.rule import Rule

RULE = Rule("MP132", "method-not-called", "error", stable_since="0.3.0", solves=True)
_USED = {
    "binary": "computed with", "item": "indexed", "unpack": "taken apart", "iter": "iterated over",
    "join": "written into a text", "unary": "negated",
}  # fmt: skip
_MADE_HERE = frozenset({"compare", "const", "join", "tuple", "list", "set", "dict", "collect", "unary", "binary"})
_METHOD = "make it a method, or ask for it by one"
_ORDERING = frozenset({"Lt", "LtE", "Gt", "GtE"})
_PLAIN = frozenset({"int", "float", "bool", "str", "list", "dict", "tuple"})
_PLAIN_OBJECTS = frozenset({"const", "str", "tuple", "seq", "dict", "size", "ordinal", "tensor"})


def check_project(project: Project) -> Iterator[Finding]:
    queries, objects = project.analysis(Queries), project.analysis(Objects)
    methods = {m.name for cls in project.classes() for m in cls.every_method() if not m.facts.is_property}
    properties = {m.name for cls in project.classes() for m in cls.every_method() if m.facts.is_property}
    functions = {f.name for f in project.functions() if f.cls is None}
    for unit in queries.of_program():
        for place in queries.values(unit, "name", "import", "attr"):
            name = unit.known_as(place.number)
            if not (name in functions or _may_be_of_library(place, name)):
                continue
            how = _misused(place)
            if how == "tested" and (place.number in unit.variables or _is_given(place)):
                continue  # kept under another name, or passed: another function, or none, may stand there one day
            if how and how != _USED["join"] and _is_function(place, name):  # people print functions, too
                yield _function(place, how)
        for place in queries.values(unit, "attr"):
            if place.value.data in methods and (how := _misused(place)) and (found := _methods(place)):
                yield _report(place, found, f"is a method and is {how} without being called", "call it: add `()`")
        for place in queries.values(unit, "call"):
            if place.method in properties and (found := _called_property(objects, place)):
                of_all = not any(o[0] in ("bound", "unit") for o in place.operand(0).closed.each)
                what = "is a property and is called" if of_all else "is called, and a property of one of these objects"
                yield _report(place.operand(0), found, what, "leave out the `()`" if of_all else _METHOD)
            elif place.method == "remote" and (asked := _of_actor(place, properties)):
                yield _report(*asked, "is a property, and handles of actors have methods alone", _METHOD)


def _misused(place: Place) -> str:
    """What is done with an attribute that a method does not bear; empty where nothing is."""
    for user in place.users:
        op, data = user.value.op, user.value.data
        if op in _USED and user.value.args[0] == place.number or op in ("binary", "join"):
            return _USED[op]
        if op == "compare" and (data in _ORDERING or any(_is_plain_constant(user, n) for n in user.value.args)):
            return "compared"
    tested = (block.end[1] for block in place.unit.code.blocks if block.end[0] == "branch")
    return "tested" if place.number in tested and not place.is_tried else ""


def _is_given(place: Place) -> bool:
    """Whether an attribute holds what the constructor of its object was passed."""
    return place.value.op == "attr" and any(each.operand(1).root.value.op == "param" for each in stores(place))


def _may_be_of_library(place: Place, name: str) -> bool:
    return name.startswith("is_") or name in _of_libraries(place.flow.models)


@cache
def _of_libraries(known: Models) -> frozenset[str]:
    """The last names of the functions of libraries that the tables have; those of classes begin with a capital."""
    names = (name.rpartition(".")[2] for name in known.calls)
    return frozenset(name for name in names if name[:1].islower())


def _is_function(place: Place, name: str) -> bool:
    """Whether a name can be nothing but a function that bears it."""
    objs = place.closed.each
    if place.value.op == "name" and _is_stored(place, name):
        return False
    for o in objs:
        function = o[1].method if o[0] == "unit" else None
        if function is not None and (
            function.name != name or function.cls is not None or not keeps_signature(function)
        ):
            return False
        if function is None and not (o[0] == "ext" and _is_of_library(place, o[1])):
            return False
    return bool(objs)


def _is_stored(place: Place, name: str) -> bool:
    """Whether a variable of a module gets its value from an assignment, too: `flash_attn_func = None`."""
    units = place.flow.whole_units(place.unit.module)
    stores = ((unit, value) for unit in units for value in unit.code.values if value.op == "store_global")
    return any(
        value.data == name and unit.code.values[unit.root(value.args[0])].op not in ("import", "closure")
        for unit, value in stores
    )


def _is_of_library(place: Place, dotted: str) -> bool:
    """Whether the tables know a function, or torch can have nothing but one of its name: `torch.cuda.is_available`."""
    owner, _, name = dotted.rpartition(".")
    if not owner.islower() or not name[:1].islower() or dotted in place.flow.models.objects:
        return False  # of a class: an attribute, for what is known; or a class itself (`torch.device`)
    return place.flow.models.call(dotted) is not None or dotted.startswith("torch.") and name.startswith("is_")


def _function(place: Place, how: str) -> Finding:
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.text}`{place.where} is a function and is {how} without being called",
        help="call it: add `()`",
        context=f"{place.unit.qualname}:{place.text}",
    )


def _is_plain_constant(user: Place, number: int) -> bool:
    value = user.unit.code.values[number]
    return value.op == "const" and value.data is not None


def _methods(place: Place) -> list[Method]:
    """The methods that an attribute must be one of; none where it may be something else."""
    objs = place.closed.each
    units: list[Unit] = [o[1] for o in objs if o[0] == "bound"]
    found = [unit.method for unit in units if unit.method is not None and keeps_signature(unit.method)]
    sure = bool(objs) and len(found) == len(objs)
    return found if sure and not any(_may_be_kept(method, place) for method in found) else []


def _may_be_kept(method: Method, place: Place) -> bool:
    """Whether what is read may be no method of the object that is asked: a callback that it was given, and may be left
    out, or what a base of a library puts there (`training` of a module of a network)."""
    asked = [o[1] for o in place.operand(0).closed.each if o[0] in OBJECTS]
    if any(cls.find(method.name) is None or method.name in cls.every_instance_attribute for cls in asked):
        return True  # or what `__init__` stored under its name
    return method.name in of_libraries() and any(cls.external_bases for cls in asked)


def _called_property(objects: Objects, call: Place) -> list[Method]:
    """The properties that a call reaches, where all of them give something that cannot be called."""
    receiver = call.receiver
    held = objects.held(receiver) if receiver is not None else None
    if held is None or not held.complete or "remote" in call.operand(0).text:
        return []
    found = [cls.find(call.method) for cls in sorted(held.classes, key=lambda c: (c.path, c.qualname))]
    plain = [each for each in found if each is not None and each.facts.is_property]
    given = call.operand(0).closed.each
    bare = bool(given) and all(o[0] in _PLAIN_OBJECTS for o in given)
    bare = bare or not given and all(_gives_plain(objects, each) for each in plain)
    said = all(each.facts.returns_annotation.strip("\"'") in _PLAIN for each in plain)
    if None in found or not plain or not (said or bare and len(plain) == len(found)):
        return []
    return plain


def _of_actor(call: Place, names: set[str]) -> tuple[Place, list[Method]] | None:
    """What is asked for on the handle of an actor (`x.name.remote()`), where it is a property and nothing else."""
    asked = call.receiver
    if asked is None or asked.value.op != "attr" or asked.value.data not in names:
        return None
    objs = [o for o in asked.operand(0).closed.each if o != NONE_OBJ]
    actors = {o[1] for o in objs if o[0] == "handle"}
    if any(o[0] not in ("handle", "self") or o[1] not in actors for o in objs):  # `self`: an annotation says so
        return None
    found = [cls.find(asked.value.data) for cls in sorted(actors, key=lambda c: (c.path, c.qualname))]
    properties = [each for each in found if each is not None and each.facts.is_property]
    return (asked, properties) if properties and len(properties) == len(found) else None


def _gives_plain(objects: Objects, method: Method) -> bool:
    """Whether all that a property returns is made by comparing or computing, or is written out."""
    unit = objects.flow.unit_of(method)
    returned = [unit.root(number) for number in unit.code.returned] if unit is not None else []
    return bool(returned) and all(unit is not None and unit.code.values[n].op in _MADE_HERE for n in returned)


def _report(place: Place, methods: list[Method], what: str, advice: str) -> Finding:
    shown = f"{methods[0].cls.name}.{methods[0].name}" if methods[0].cls is not None else methods[0].name
    return RULE.finding(
        place.unit.path,
        place.at,
        f"`{place.text}`{place.where} {what}: `{shown}`",
        help=advice,
        related=[Related(each.path, each.facts.name_at[0], f"`{each.qualname}` is defined here") for each in methods],
        context=f"{place.unit.qualname}:{place.text}",
        severity="warning" if is_passed(place.operand(0)) else RULE.severity,
    )


INCORRECT = (
    """\
class Strategy:
    def __init__(self, args):
        self.args = args

    def is_last_stage(self):
        return True

    def world_size(self):
        return 8

    @property
    def dp_size(self) -> int:
        return 4

    @property
    def is_done(self):
        return self.args.steps >= 4


class Trainer:
    def __init__(self, args):
        self.strategy = Strategy(args)

    def fit(self, batch):
        if self.strategy.is_last_stage:  # error: MP132
            batch = batch / self.strategy.world_size  # error: MP132
        print(f"{self.strategy.world_size} ranks")  # error: MP132
        if self.strategy.is_done():  # error: MP132
            return batch
        return batch * self.strategy.dp_size()  # error: MP132
""",
    """\
import ray


class Manager:
    @property
    def stopped(self):
        return self.flag

    def stop(self):
        self.flag = True


@ray.remote
class Engine:
    def __init__(self, manager):
        self.manager = manager

    def step(self):
        return ray.get(self.manager.stopped.remote())  # error: MP132


def main():
    manager = ray.remote(num_cpus=1)(Manager).remote()
    ray.get(manager.stop.remote())
    return Engine.remote(manager)
""",
    """\
class Filterbank:
    def output_size(self):
        return 80


class Encoder:
    @property
    def output_size(self) -> int:
        return 1024


FRONTENDS = {"fbank": Filterbank, "encoder": Encoder}


def main(name):
    frontend = FRONTENDS[name]()
    return frontend.output_size()  # error: MP132


main("fbank")
""",
    """import torch
import torch.distributed as dist
from torch.distributed import get_rank


def is_main_process():
    return dist.get_rank() == 0


def save(model, path):
    if is_main_process and dist.is_initialized():  # error: MP132
        torch.save(model, path)
    if not dist.is_initialized or get_rank() == 0:  # error: MP132
        print("saved")
    rank = get_rank  # error: MP132
    return path if rank == 0 else torch.device("cuda" if torch.cuda.is_available else "cpu")  # error: MP132
""",
)

CORRECT = (
    # a function that may be absent, one that is given, one that is kept
    """import torch.distributed as dist

try:
    from flash_attn import flash_attn_func
except ImportError:
    flash_attn_func = None

try:
    from kernels import is_fast
except ImportError:

    def is_fast():
        return False


def log(text):
    print(text)


def train(batches, report=None):
    if flash_attn_func and is_fast():
        print(f"{log} {dist.get_rank()}")
    hooks = {"log": log, "rank": dist.get_rank}
    for batch in batches:
        if report and report is not log:
            report(batch)
        if hooks["rank"]() == 0:
            hooks["log"](batch)


train([], log)
""",
    # what is stored under the name of a method is there instead of it
    """\
class Env:
    def seed(self, number):
        return number


class Vectors(Env):
    def __init__(self, **options):
        self.seed = options.pop("seed", None)
        if self.seed is not None:
            print(self.seed + 1)


def main():
    return Vectors(seed=3)
""",
    # called; kept; compared with a method; None until it is set
    """\
class Strategy:
    def step(self):
        return True

    @property
    def hook(self):
        return self.step


class Trainer:
    callback = None

    def __init__(self, strategy_cls=Strategy):
        self.strategy = strategy_cls()
        self.stepping = self.strategy.step

    def fit(self):
        if self.callback:
            self.callback()
        if self.strategy.step() and self.stepping == self.strategy.step:
            return self.strategy.hook()
        return self.strategy.step if self.callback is None else self.callback
""",
    # what a decorator makes of it; one class has a field under the name
    """\
import triton


class Kernels:
    @triton.jit
    def scale(x):
        return x


class Strategy:
    def rank(self):
        return 0


class FakeStrategy(Strategy):
    def __init__(self):
        self.rank = 0


def run(grid, x, fake):
    Kernels.scale[grid](x)
    strategy = FakeStrategy() if fake else Strategy()
    return strategy.rank == 0
""",
    # a callback that may be left out; what a base of a library puts into its objects
    """\
import torch


class Stream:
    def __init__(self, strategy, process=None):
        self.strategy, self.process = strategy, process

    def step(self, batch):
        if self.process:
            batch = self.process(batch)
        return batch


class Manager:
    def process(self, batch):
        return batch

    def stream(self, strategy):
        return Stream(strategy, self.process).step(strategy.batch)


class Proposals(torch.nn.Module):
    def training(self, boxes):
        return boxes

    def forward(self, boxes):
        return boxes if self.training else self.training(boxes)


def main(strategy):
    return Manager().stream(strategy), Proposals()(strategy)
""",
    # a function of that name, whose receiver is nobody
    """\
from torch.distributed.rpc import remote


class Agent:
    @property
    def rewards(self):
        return [0.0]

    def run(self, worker):
        return remote(worker, self.rewards)
""",
    # a class in lower case
    """\
import torch


class Strategy:
    def move(self, model, device):
        return model.to(device) if isinstance(device, str | torch.device) else model
""",
    # a function that may be left out
    """\
def postprocess(output):
    return output * 2


class Head:
    def __init__(self, strategy, postprocess=None):
        self.strategy = strategy
        self.postprocess = postprocess

    def forward(self, x):
        if self.postprocess:
            x = self.postprocess(x)
        return x


def build(strategy):
    return Head(strategy, postprocess)
""",
)

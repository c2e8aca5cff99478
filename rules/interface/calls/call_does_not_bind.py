"""A call that does not fit the function or class of the project that it reaches.

What it does
    Binds calls by Python's rules to all that they may reach: functions, methods of `self`, `super()` and of objects
    that come through factories, fields, tables of classes and parameters, constructors (those of dataclasses too),
    modules of networks that are called, tasks and actors of Ray, `functools.partial`, what threads, processes and
    executors are given to run (`mp.spawn`, with the number of the process before its arguments), and what torch keeps
    as hooks (`register_forward_hook(f, with_kwargs=True)`). Where several definitions may be reached, all must refuse
    the call. `**` passes the keys that its dictionary surely has where the call stands, of a data class
    (`**asdict(config)`, `**vars(self)`) its fields; not where something else has the dictionary too, or code beside
    takes keys or attributes away. What comes from callers alone is a warning, for they may take another way; so are
    keywords for the `**` of a function that hands them on to others, which refuse them. Where nothing is known of the
    object, a call is a warning that no method of that name in the project takes, if the name is no library's, or if the
    object is asked for at least two such names that one class has, and neither this class nor one of its family takes
    the call. Also reports `**args` where `args` is the function's own `*args`: a tuple, which `**` cannot unpack.
    Silent where a decorator may change the signature, a test expects TypeError, or the callee takes anything.

Why is this bad
    It raises TypeError, on a path that nobody has run since the signature changed.

References
    https://docs.python.org/3/reference/expressions.html#calls
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.analysis.interfaces.binding import Misfit, advice, keeps_signature, misfit_of, parameters, written
from validator.analysis.interfaces.company import Company
from validator.analysis.interfaces.handed_on import Handed, HandedOn
from validator.analysis.interfaces.members import method_of, own_object
from validator.analysis.interfaces.outsiders import is_from_outside
from validator.analysis.interfaces.spread_keys import SpreadKeys
from validator.errors import nearest
from validator.facts.model import Call
from validator.finding import Finding, Related
from validator.flow.callgraph.indirect_calls import OF_LIBRARY
from validator.flow.callgraph.refusable_calls import Suspects
from validator.flow.callgraph.spelled_arguments import call_of
from validator.flow.constructors import PYDANTIC
from validator.flow.objects import Callee, Objects, is_of_unknown, is_passed, with_given
from validator.flow.queries.base import Place
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule("MP121", "call-does-not-bind", "error", stable_since="0.1.0", solves=True)
_HANDED = ("unknown-keyword", "twice")
_PARTIAL = frozenset({"partial", "functools.partial"})
_NOWHERE = (1, 1, 1, 1)
_TELLING = 2  # names by which it is known of which class an object is
_SHOWN = 3  # of all that refuse a call


class Failure(NamedTuple):
    """A call in `function` that nothing it reaches takes. `passed`: what is called comes from callers; `by_name`: what
    it reaches is not known, and all of that name refuse it; `handed`: what it calls hands its keywords on to one that
    refuses them; `beside`: what else it may reach, which refuses it, too."""

    function: Method
    call: Call
    seen: Call  # the same, or the call that a `partial` stands for
    callee: Callee
    misfit: Misfit
    passed: bool
    by_name: bool = False
    handed: bool = False
    beside: tuple[tuple[Callee, Misfit], ...] = ()


def check_project(project: Project) -> Iterator[Finding]:
    in_tests: dict[tuple[object, str, str], list[Failure]] = {}
    for function in project.functions():
        for call in function.facts.calls:
            yield from _unpacked_tuple(function, call)
    for failure in _failures(project):
        if is_test(failure.function.path):
            key = (failure.callee.place, failure.misfit.kind, failure.misfit.name)
            in_tests.setdefault(key, []).append(failure)
        else:
            yield _report(failure, [])
    for first, *others in in_tests.values():  # tests that were left behind together: once is enough
        yield _report(first, others)


def _failures(project: Project) -> Iterator[Failure]:
    objects = project.analysis(Objects)
    members = {cls for family in project.families.all for cls in family.members}
    suspects, spread = project.analysis(Suspects), project.analysis(SpreadKeys)
    for function in project.functions():
        for call in function.facts.calls:
            seen, partial = _unwrapped(call)
            if seen is not None and not partial and any(argument.keyword == "**" for argument in call.args):
                seen = spread.spelled_out(objects.call_at(function.module, call.at), seen)
            if seen is None or not (call.method in objects.lending or suspects.may_refuse(function, seen, partial)):
                continue
            if _expects_failure(call) or (place := objects.call_at(function.module, call.at)) is None:
                continue
            if place.is_switched_off:
                continue
            callee, seen = (place.operand(1), seen) if partial else objects.run_for(place, seen)
            if not suspects.may_refuse(function, seen, partial) or _of_another_sibling(callee):
                continue
            reached = objects.reached_by(callee, place)
            if not reached.callees and not partial and not is_test(function.path) and is_of_unknown(objects, callee):
                found = suspects.refused_by_name(function, seen) or _refused_in_company(project, callee, seen)
                if found is not None and not is_from_outside(callee.operand(0)):
                    method, misfit = found
                    known = Callee(method.qualname, parameters(method), method)
                    yield Failure(function, call, seen, known, misfit, True, True)
            if not reached.complete or _of_family(function, seen, reached.callees, members):
                continue
            if any(_refused_as_partial(each) for each in reached.callees):
                continue
            misfits = [misfit_of(each.params, with_given(seen, each), partial=partial) for each in reached.callees]
            if misfits and misfits[0] is not None and all(misfits):
                first, *others = zip(reached.callees, misfits, strict=True)
                beside = tuple((each, misfit) for each, misfit in others if misfit is not None)
                yield Failure(function, call, seen, first[0], misfits[0], is_passed(callee), beside=beside)
    for function in project.functions():
        yield from _handed_on(project, function)


def _refused_in_company(project: Project, callee: Place, call: Call) -> tuple[Method, Misfit] | None:
    """The method that an object has by which a call on it is not taken, as what else it is asked for tells."""
    known = project.analysis(Company).of(callee)
    if known is None or len(known.names) < _TELLING or any(a.keyword in ("*", "**") for a in call.args):
        return None
    family = dict.fromkeys(method for cls in known.cls.relatives if (method := cls.find(call.method)) is not None)
    if known.cls.find(call.method) is None or not all(map(keeps_signature, family)):
        return None
    found = [(method, misfit_of(parameters(method), call)) for method in family]
    refusing = [(method, misfit) for method, misfit in found if misfit is not None]
    return refusing[0] if len(refusing) == len(found) else None


def _handed_on(project: Project, function: Method) -> Iterator[Failure]:
    """Keywords that callers pass to a function which hands them on to others: those that nothing behind it takes, or
    one of several does not between which the call itself leaves the choice open."""
    handed, objects = project.analysis(HandedOn), project.analysis(Objects)
    behind = [(place, objects.reached_by(place.operand(0), place)) for place in handed.calls(function)]
    if not behind or not all(reached.complete for _, reached in behind):
        return
    for row in handed.received(function):
        refusing: list[tuple[Place, Callee, Misfit]] = []
        for place, reached in behind:
            passing = call_of(place.unit, place.number)
            whole = passing._replace(args=(*(a for a in passing.args if a.keyword != "**"), *row.arguments))
            misfits = [misfit_of(each.params, with_given(whole, each), partial=True) for each in reached.callees]
            if misfits and misfits[0] is not None and all(m is not None and m.kind in _HANDED for m in misfits):
                refusing.append((place, reached.callees[0], misfits[0]))
        if len(refusing) < len(behind):  # another way takes them
            refusing = [each for each in refusing if _is_chosen(each[0])] if _leaves_open(objects, row) else []
        for _, callee, misfit in refusing[:1]:
            yield Failure(row.caller, row.call, row.call, callee, misfit, True, handed=True)


def _is_chosen(place: Place) -> bool:
    """Whether callers choose that a call is made: what they pass is tested, not the object."""
    tests = place.tests_inside
    return bool(tests) and all(
        any(part.value.op == "param" and not part.unit.is_receiver(part.number) for part in test.parts)
        for test in tests
    )


def _leaves_open(objects: Objects, row: Handed) -> bool:
    """Whether no argument of a call says by a constant which way is to be taken, nor a text that a test around it
    compares."""
    named = {argument.keyword for argument in row.arguments}
    if any(argument.kind == "const" for argument in row.call.args if argument.keyword not in named):
        return False
    place = objects.call_at(row.caller.module, row.call.at)
    tests = (test for test in (place.tests if place is not None else ()) if test.value.op == "compare")
    compared = (test.operand(n).value for test in tests for n in range(len(test.value.args)))
    return not any(value.op == "const" and isinstance(value.data, str) for value in compared)


def _refused_as_partial(callee: Callee) -> bool:
    """Whether what a `partial` passes is refused whatever its calls add: reported where the `partial` is made."""
    nothing = Call("", (), "", (), _NOWHERE, _NOWHERE)
    return bool(callee.given) and misfit_of(callee.params, with_given(nothing, callee), partial=True) is not None


def _of_another_sibling(callee: Place) -> bool:
    """Whether a method that siblings define too calls what it is passed: each is called with what its own class made,
    and the calls, which stand in a base, do not tell which."""
    method = callee.unit.method
    asked = (callee.operand(0) if callee.value.op == "attr" else callee).root
    if asked.value.op != "param" or asked.unit.is_receiver(asked.number) or method is None or method.cls is None:
        return False
    bases = [base for base in method.cls.mro[1:] if method.name in base.methods]
    return any(each is not method.cls and method.name in each.methods for b in bases for each in b.descendants())


def _expects_failure(call: Call) -> bool:
    for guard in call.guards:
        if guard.kind == "try" and ("TypeError" in guard.text or guard.text == "*"):
            return True
        if guard.kind == "with" and ("raises" in guard.text.lower() or "suppress" in guard.text):
            return True
        if guard.kind == "if" and any(word in guard.text for word in ("signature", "accept", "support")):
            return True
    return False


def _unwrapped(call: Call) -> tuple[Call | None, bool]:
    """The call to check, and whether more arguments may follow: `partial(f, a)` calls `f(a, …)` later."""
    if call.target not in _PARTIAL:
        return call, False
    if not call.args or call.args[0].kind != "path":
        return None, True
    return call._replace(target=call.args[0].value, args=call.args[1:]), True


def _of_family(function: Method, call: Call, found: tuple[Callee, ...], members: set[ClassDef]) -> bool:
    """Calls on objects of a family are bound against each of its members by a rule of their own (MP103)."""
    if call.receiver in (own_object(method_of(function)), "super()"):
        return False
    methods = [c.place for c in found if isinstance(c.place, Method) and c.place.name != "__init__"]
    return any(method.cls in members for method in methods)


def _unpacked_tuple(function: Method, call: Call) -> Iterator[Finding]:
    star = next((p.name for p in function.facts.params if p.kind == "*"), None)
    for argument in call.args:
        if star is not None and argument.keyword == "**" and argument.value == star and not _rebound(function, star):
            yield RULE.finding(
                function.module.path,
                argument.at,
                f"`**{star}` in `{function.qualname}` unpacks a tuple: `{star}` holds its positional arguments",
                help=f"pass them on as `*{star}`",
                context=f"{function.qualname}:{call.target}:**{star}",
            )


def _rebound(function: Method, name: str) -> bool:
    return any(row.target == name for row in function.facts.assigns)


def _error(callee: Callee) -> str:
    checked = isinstance(callee.place, ClassDef) and not PYDANTIC.isdisjoint(callee.place.external_bases)
    return "ValidationError" if checked else "TypeError"


def _report(failure: Failure, others: list[Failure]) -> Finding:
    function, call, seen, callee, misfit, passed, by_name, handed, beside = failure
    at = misfit.at if misfit.kind != "missing" else call.name_at
    names = [p.name for p in callee.params if p.kind in ("any", "kw")]
    hint = nearest(misfit.name, names) if misfit.kind == "unknown-keyword" else ""
    place = callee.place.facts.name_at[0]
    alike = all(each.message == misfit.message for _, each in beside)
    where = "" if function.qualname == "<module>" else f" in `{function.qualname}`"
    how = "`partial` of " if call.target in _PARTIAL else f"`{call.target}`: " if seen.target != call.target else ""
    message = f"raises {_error(callee)}: `{written(callee.name, callee.params)}` {misfit.message}"
    if by_name:
        name = callee.place.qualname if isinstance(callee.place, Method) else callee.name
        message = (
            f"fits no `{call.method}` that it can reach, as far as the names tell: `{written(name, callee.params)}` "
            f"{misfit.message}"
        )
    elif handed:
        message = f"hands on what it is passed: `{written(callee.name, callee.params)}` {misfit.message}"
    return RULE.finding(
        function.module.path,
        at,
        f"{how}`{seen.target}(…)`{where} {message}",
        help=f"{advice(misfit)}{hint}{_of_library(seen)}" if alike else "pass what all take that may be called here",
        related=[
            Related(callee.place.path, place, f"`{callee.name}` is defined here"),
            *(
                Related(o.place.path, o.place.facts.name_at[0], f"`{written(o.name, o.params)}`, too, {m.message}")
                for o, m in beside[:_SHOWN]
            ),
            *(Related(o.function.path, o.call.at[0], "the same here") for o in others),
        ],
        context=f"{function.qualname}:{seen.target}:{misfit.kind}:{misfit.name}",
        severity="warning" if passed else RULE.severity,
    )


def _of_library(call: Call) -> str:
    adds = sum(argument.kind == OF_LIBRARY for argument in call.args)
    if adds == len(call.args) > 1:
        return f"; the library passes {adds} arguments"
    return "; the number of the process is passed before what is given here" if adds else ""


_LOOPED = """\
class Log:
    def write(self, loss, tokens=0, lr=0.0):
        print(loss, tokens, lr)


def train(losses, report):
    log = Log()
    for loss in losses:
        step = {{"{key}": loss}}
        if report:
            step["tokens"] = 1
        log.write(**step){mark}


def fit(losses):
    log = Log()
    step = {{"loss": 1, "losss": 2}}
    for loss in losses:
        if loss:
            {change}
    log.write(**step){mark}


def pick(small):
    step = {{"loss": 1, {other}: 2}} if small else {{"loss": 1, "losss": 2}}
    return Log().write(**step){mark}


if __name__ == "__main__":
    train([1], True)
    fit([1])
    pick(False)
"""

_PRETRAINED = """
import torch.distributed as dist
from transformers import PretrainedConfig, PreTrainedModel


class Base(PreTrainedModel):
    pass


class Actor(Base):
    def act(self, tokens, mask=None):
        return tokens, mask

    @classmethod
    def load(cls, path):
        model = super().from_pretrained(path)
        model.act(dist.get_rank(), {keyword}=1){mark}
        return model


def main(path):
    actor, said = Actor.from_pretrained(path, output_loading_info=True)
    actor.act(said, {keyword}=2){mark}
    return Actor.load(path)
"""

INCORRECT: tuple[str, ...] = (
    # decorators that give back what they decorate
    """\
TABLE = {}


def register(name):
    def keep(function):
        TABLE[name] = function
        return function

    return keep


@register("step")
def step(strategy):
    return strategy


def run(strategy, batch):
    step(strategy, batch)  # error: MP121
    return step(strategy)
""",
    # a folder that a file beside the program puts on the search path
    """\
# file: lib/core/loss.py
def criterion(config, train=True):
    return config, train
# file: tools/_init_paths.py
import os.path as osp
import sys


def add_path(path):
    sys.path.insert(0, path)


add_path(osp.join(osp.dirname(__file__), "..", "lib"))
# file: tools/train.py
import _init_paths
from core.loss import criterion

if __name__ == "__main__":
    criterion({}, training=False)  # error: MP121
""",
    # models that a registry of a library finds, because a package takes over all that their file has
    """\
# file: models/__init__.py
from .dense import *
# file: models/layers.py
def encoding(positions, dim):
    return positions * dim
# file: models/dense.py
from timm.models import register_model

from .layers import encoding


class Dense:
    def __init__(self):
        self.positions = encoding(positions=8, d_hid=4)  # error: MP121


@register_model
def dense():
    return Dense()
# file: train.py
from timm.models import create_model

import models

if __name__ == "__main__":
    create_model("dense")
""",
    # a network that is kept under a name which libraries have too; a class that a function makes and gives back
    """\
# file: models.py
from torch import nn


def pad(values, group, indices):
    return values, group, indices


def critic(base):
    class Critic(base):
        def forward(self, values, mask):
            return pad(values, mask)  # error: MP121

    return Critic


class Actor(nn.Module):
    def forward(self, tokens, mask, return_output=False):
        return (tokens, mask) if return_output else tokens
# file: train.py
from models import Actor, critic


class Trainer:
    def __init__(self):
        self.actor = Actor()

    def step(self, tokens, mask):
        return self.actor(tokens, attention_mask=mask)  # error: MP121


if __name__ == "__main__":
    Trainer().step([1], [1])
    critic(Actor)()([1], [1])
""",
    # by the whole path, through a folder that is no package
    """\
# file: src/sums.py
def average(value, count):
    return value / count
# file: src/hosts.py
NAMES = ()
# file: main.py
import src.hosts
import src.sums


def run(value):
    return src.sums.average(value, 2, src.hosts.NAMES)  # error: MP121
""",
    # a keyword that the function in between hands on
    """\
# file: data.py
def get_mmlu(tokenizer, length=512):
    return tokenizer, length


def get_bbh(tokenizer, length=512, zh=False):
    return tokenizer, length, zh


def get_dataset(task, **kwargs):
    if task == "mmlu":
        return get_mmlu(**kwargs)
    return get_bbh(**kwargs)
# file: main.py
from data import get_dataset


def main(args, tokenizer):
    return get_dataset(args.task, tokenizer=tokenizer, zh=args.zh)  # error: MP121
""",
    # a hook that gets keywords, too; one of a parameter
    """\
class Probe:
    def __init__(self, model):
        self.seen = []
        for module in model.modules():
            module.register_forward_hook(self.record, with_kwargs=True)  # error: MP121
            module.register_forward_pre_hook(self.before)

    def record(self, module, args, output):
        self.seen.append(output)

    def before(self, module, args):
        self.seen.clear()


def offload(parameter, strategy):
    def after(parameter, gradient):
        strategy.offload(parameter, gradient)

    parameter.register_post_accumulate_grad_hook(after)  # error: MP121
""",
    # whoever the optimizer is
    """\
# file: optimizer.py
class Overlapped:
    def gather_parameters(self, only_if_stepped=False):
        return only_if_stepped
# file: schedule.py
def run(strategy, optimizer):
    optimizer.gather_parameters(skip_if_not_stepped=True)  # error: MP121
    optimizer.gather_parameters(only_if_stepped=True)
""",
    """\
# file: losses.py
def policy_loss(log_probs, advantages, *, clip=0.2):
    return (log_probs * advantages).clamp(-clip, clip)


class ValueLoss:
    def __init__(self, clip):
        self.clip = clip

    def forward(self, values, returns, mask=None):
        return values - returns
# file: train.py
from functools import partial

from losses import ValueLoss, policy_loss


def train(strategy, batch):
    loss = policy_loss(batch.log_probs, batch.advantages, 0.2)  # error: MP121
    late = partial(policy_loss, clip_range=0.1)  # error: MP121
    late(batch.log_probs, batch.advantages)
    critic = ValueLoss()  # error: MP121
    return late, critic.forward(batch.values)  # error: MP121
""",
    """\
class WorkerGroup:
    def execute_all(self, method_name: str, *args, **kwargs):
        strategy = self
        return strategy.run(method_name, **args, **kwargs)  # error: MP121

    def run(self, name, *args, **kwargs):
        return name, args, kwargs
""",
    """\
from dataclasses import dataclass, field


@dataclass
class Batch:
    tokens: list
    rank: int = 0
    info: dict = field(default_factory=dict)


def make(tokens):
    return Batch(tokens, world_size=2)  # error: MP121
""",
    # keys that a dictionary surely has
    """\
from dataclasses import asdict, dataclass


@dataclass
class Checkpointer:
    path: str
    save_threads: int = 1
    read_threads: int = 1


@dataclass
class CheckpointerConfig:
    path: str
    save_threads: int = 1
    load_threads: int = 1

    def build(self):
        return Checkpointer(**asdict(self))  # error: MP121

    def build3(self, **kwargs):
        kwargs = {**asdict(self), **kwargs}
        path = kwargs.pop("path")
        return Checkpointer(path=path, **kwargs)  # error: MP121


def main():
    config = CheckpointerConfig("a")
    options = {"path": "a", "threads": 2}
    print(config.build(), config.build3())
    print(Checkpointer(**options))  # error: MP121
""",
    # all attributes that an object of a data class has
    """\
from dataclasses import dataclass


def make(path, save=1):
    return path, save


@dataclass
class Config:
    path: str
    load: int = 1

    def to_dict(self):
        return vars(self)


def main():
    config = Config("a")
    print(make(**vars(config)))  # error: MP121
    print(make(**config.__dict__))  # error: MP121
    print(make(**config.to_dict()))  # error: MP121
""",
    # fields that the constructor does not take, or only by name
    """\
from dataclasses import dataclass, field


@dataclass
class Options:
    path: str
    ranks: int = field(default=1, init=False)
    wide: bool = field(default=False, kw_only=True)


def main():
    print(Options("a", ranks=2))  # error: MP121
    print(Options("a", True))  # error: MP121
    print(Options("a", wide=True))
""",
)

_STARTED = """\
import threading
from concurrent.futures import ThreadPoolExecutor

import torch.multiprocessing as mp


def lost(world_size, args):
    return world_size, args


def work(rank, world_size, args, port=0):
    return rank, world_size, args, port


class Server:
    def __init__(self, size):
        self.size, self.pool = size, ThreadPoolExecutor(2)

    def serve(self, address):
        return address

    def start(self, address, options):
{starts}
"""

# What a module hands on to those that it keeps comes from whoever calls it.
_VARIANTS = """# file: infer/__init__.py
from importlib.metadata import version

mode = None
if version("engine") <= "0.6.3":
    mode = "old"
    from .old import LLM
else:
    mode = "new"
    from .new import LLM
# file: infer/old.py
SIZE = 1


class LLM:
    def sync(self, weights):
        return weights
# file: infer/new.py
from . import shards


class LLM:
    def sync(self, weights, load_format):
        return weights, load_format, shards.LEFT

    def wake_up(self):
        pass
# file: infer/shards.py
LEFT = 2
# file: train.py
from infer import LLM, mode


class Manager:
    def __init__(self):
        self.engine = LLM()

    def enter(self, weights):
        if mode in ("new", "newest"):
            self.engine.wake_up()
            self.engine.sync(weights, load_format="shards")
        elif not mode != "old":
            self.engine.sync({given}){mark}


if __name__ == "__main__":
    Manager().enter({{}})
"""

_NESTED = """\
from torch import nn


class Layer(nn.Module):
    def forward(self, x, w, gain=1):
        return x * w * gain


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer()])

    def forward(self, x, w, **layer_options):
        for layer in self.layers:
            x = layer(x, w, **layer_options)
        return x


class Strategy(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x, w):
        return self.block(x, w, gain=2)
"""
_SCHEDULED = """
import ray

class Rollouts:
    def get_batch(self, data, size):
        return data, size

class Samples:
    def get_batch(self, data, step, size):
        return data, step, size

def main(data):
    rollouts = ray.remote(Rollouts).options(name="rollouts").remote()
    samples = ray.remote(Samples).remote()
    ray.get(samples.get_batch.options(num_returns=1).remote(data, 1, 8))
    return ray.get(rollouts.get_batch.remote({first})){mark}
"""

INCORRECT += (
    _NESTED.replace("w, gain=2)", "w, update_emas=True)  # error: MP121"),
    _STARTED.replace(
        "{starts}",
        """\
        mp.spawn(lost, args=(self.size, options), nprocs=self.size)  # error: MP121
        mp.spawn(work, (0, self.size, options, 1), nprocs=self.size)  # error: MP121
        mp.spawn(work, nprocs=self.size)  # error: MP121
        given = (0, self.size)
        mp.Process(target=work, args=given).start()  # error: MP121
        threading.Thread(target=self.serve).start()  # error: MP121
        threading.Thread(target=self.serve, kwargs={"adress": address}).start()  # error: MP121
        return self.pool.submit(self.serve, address, 1)  # error: MP121""",
    ),
    # the same, where it is the one that refuses
    _VARIANTS.format(given='weights, load_format="whole"', mark="  # error: MP121"),
    # in another process, of two methods of the name
    _SCHEDULED.format(first="data, 1, 8", mark="  # error: MP121"),
    # keys that a dictionary has on each of several ways, and in each turn of a loop
    _LOOPED.format(key="losss", change='step["lr"] = 1', other='"losss"', mark="  # error: MP121"),
    # an object that a class method of a library makes
    _PRETRAINED.format(keyword="masks", mark="  # error: MP121"),
)

CORRECT = (
    # another method is put into its place
    """\
from torch import nn


class Encoder(nn.Module):
    def forward(self, x):
        return x, 1

    def chunk(self, x, offset, size):
        return x, offset, size


def export(strategy):
    encoder = Encoder()
    encoder.forward = encoder.chunk
    x, offset, size = encoder(strategy.x, 1, 2)
    return x, offset, size
""",
    _NESTED,
    # hooks that take what they are given; whether they get keywords is not known
    """\
def install(model, strategy):
    model.register_forward_hook(lambda module, args, output: output)
    model.register_forward_pre_hook(before, with_kwargs=True)
    model.register_forward_hook(before, with_kwargs=strategy.with_kwargs)


def before(module, args, kwargs):
    return args, kwargs
""",
    # the annotation says an object where the class itself is meant: callers pass it, or nobody is known
    """
import torch.nn as nn


class Block(nn.Module):
    expansion = 1

    def __init__(self, inplanes, planes):
        super().__init__()
        self.conv = nn.Conv2d(inplanes, planes, 3)

    def forward(self, x):
        return self.conv(x)


class Net(nn.Module):
    def __init__(self, block: Block, planes):
        super().__init__()
        self.first = block(planes, planes)
        self.second = self.layer(block, planes)

    def layer(self, block: Block, planes):
        return block(planes * block.expansion, planes=planes)


def layer(block: Block, planes):
    return block(planes, planes=planes)


Net(Block, 64)
""",
    # an object of a library
    """
import torch


class Batch:
    def size(self):
        return 3


def size(batch: Batch):
    if isinstance(batch, (torch.Tensor, torch.nn.Module)):
        return batch.size(0)
    return batch.size()


size(Batch())
""",
    # with the number of the process, the object of the method, what lists and dictionaries hold
    _STARTED.replace(
        "{starts}",
        """\
        mp.spawn(lost, args=(options,), nprocs=self.size)
        mp.spawn(work, (self.size, options), self.size)
        mp.spawn(work, args=options.given, nprocs=self.size)
        mp.spawn(work, args=(*options, 1), nprocs=self.size)
        mp.Process(target=work, args=(0, self.size), kwargs=dict(args=options)).start()
        mp.Process(target=work, args=(0, self.size), kwargs={"args": options, **options}).start()
        threading.Thread(target=self.serve, args=(address,), daemon=True).start()
        threading.Thread(None, self.serve, "server", [address]).start()
        threading.Thread(target=self.serve, kwargs={"address": address}).start()
        self.pool.submit(self.serve, address=address)
        return self.pool.submit(self.serve, address)""",
    ),
    # what a dictionary brings to a partial is passed, too
    """
from functools import partial

def embedding(steps, dim, scale):
    return steps * dim * scale

def build(config):
    known = partial(embedding, **dict(dim=2, scale=3))
    unknown = partial(embedding, **config)
    return known(1), unknown(1)

build({"dim": 1, "scale": 2})
""",
    # the state of the object says which way is taken
    """\
class Layer:
    def __init__(self):
        self.training = True

    def run_train(self, x, sample_lens):
        return x, sample_lens

    def run_inference(self, x, cache):
        return x, cache

    def run(self, x, **kwargs):
        if self.training:
            return self.run_train(x, **kwargs)
        return self.run_inference(x, **kwargs)


def train(x, lens):
    return Layer().run(x, sample_lens=lens)


def generate(x, cache):
    return Layer().run(x, cache=cache)
""",
    # the caller says which way it wants, or the function in between takes it out
    """\
def get_mmlu(tokenizer, length=512):
    return tokenizer, length


def get_bbh(tokenizer, length=512, zh=False):
    return tokenizer, length, zh


def get_dataset(task, **kwargs):
    if task == "mmlu":
        return get_mmlu(**kwargs)
    return get_bbh(**kwargs)


def build(tokenizer, **kwargs):
    kwargs.pop("zh", None)
    return get_mmlu(tokenizer, **kwargs)


def main(args, tokenizer):
    build(tokenizer, zh=args.zh)
    return get_dataset("bbh", tokenizer=tokenizer, zh=args.zh)
""",
    # each trainer makes the model that it is called with
    """\
class Gated:
    def forward(self, x, gate):
        return x * gate


class Trainer:
    def load(self, strategy):
        return None

    def step(self, model, batch):
        return None

    def fit(self, strategy, batches):
        model = self.load(strategy)
        for batch in batches:
            self.step(model, batch)


class GatedTrainer(Trainer):
    def load(self, strategy):
        return Gated()

    def step(self, model, batch):
        return model.forward(batch.x, batch.gate)


class PlainTrainer(Trainer):
    def step(self, model, batch):
        return model.forward(batch.x)


def main(strategy, batches):
    GatedTrainer().fit(strategy, batches)
    PlainTrainer().fit(strategy, batches)
""",
    # `super()` with a class, in a class method, and behind a base of a library; the last star import binds
    """\
# file: layers.py
from torch import nn

from blocks import *
from audio import *


class Plain:
    def __init__(self, rank=0):
        self.rank = rank

    def load(cls, kind, config, empty=False):
        return cls(kind, config, empty)


class Linear(Plain):
    def __init__(self, inputs, outputs, rank=0):
        super().__init__(rank)


class Fused(Linear):
    def __init__(self, inputs, outputs, rank=0):
        super(Linear, self).__init__(rank=rank)

    @classmethod
    def read(cls, config):
        return super().load(cls, "fused", config, empty=True)


class Piped(nn.Sequential, Plain):
    def __init__(self, layers):
        super().__init__(layers=layers)


def extractor():
    return Extractor(mode="plain")
# file: blocks.py
class Extractor:
    def __init__(self, depth):
        self.depth = depth
# file: audio.py
class Extractor:
    def __init__(self, mode):
        self.mode = mode
""",
    # anything goes through, and an unknown decorator may change what is taken
    """\
import functools


def task(function):
    return functools.partial(function, retries=3)


@task
def step(strategy):
    return strategy


def log(*args, **kwargs):
    return args, kwargs


def run(strategy, arguments):
    step(strategy, 1, 2)
    log(1, 2, rank=3)
    log(*arguments, **arguments)
    return functools.partial(log, 1)
""",
    # one of two definitions takes it; an override does
    """\
try:
    from fast import gather
except ImportError:
    def gather(tensor):
        return tensor


class Base:
    def run(self, strategy):
        return self.step(strategy, 1)

    def step(self, strategy):
        raise NotImplementedError


class Child(Base):
    def step(self, strategy, index):
        return gather(strategy, index)
""",
    # a test that wants the error
    """\
import pytest


def scale(loss, dist_size):
    return loss / dist_size


def test_scale():
    with pytest.raises(TypeError):
        scale(1)
""",
    # what a class holds under another name, or what a decorator gave back for it, gets the object too
    """\
import torch


def without_gradients(run):
    def inner(self, *args):
        with torch.no_grad():
            return run(self, *args)

    return inner


def weigh(loss, weight):
    return loss * weight


class Loop:
    def show(self, batch, size=1):
        return batch

    show_batch = show
    weigh = staticmethod(weigh)

    @without_gradients
    def run(self):
        return 1


class Trainer:
    def __init__(self, strategy):
        self.strategy, self.loop = strategy, Loop()

    def fit(self, batch):
        self.loop.show_batch(batch)
        self.loop.run()
        return self.loop.weigh(batch, 2)
""",
    # a test tells which class it is
    """\
class Plain(dict):
    pass


class Owned(dict):
    def __init__(self, strategy):
        self.strategy = strategy


def make(strategy, cls):
    if cls == Owned:
        return cls(strategy)
    return cls()


def run(strategy):
    return make(strategy, Owned)
""",
    # a `__new__` that gives what it wraps; `super(C)` is bound to nobody; `cls` is a class below
    """\
# file: timing.py
from contextlib import ContextDecorator


class Timed(ContextDecorator):
    def __new__(cls, function):
        made = super().__new__(cls)
        made.name = function.__name__
        return made(function)

    def __call__(self, function):
        def inner(*args, **kwargs):
            return function(*args, **kwargs)

        return inner


def timed(function):
    return Timed(function)
# file: encoders.py
from timing import timed


class Vocabulary:
    def __init__(self, words):
        self.words = words


class Letters(Vocabulary):
    def __init__(self, words):
        super(Letters).__init__()


class Encoder:
    @classmethod
    def read(cls, config):
        return cls(config)

    @timed
    def encode(self, batch, output=None):
        return batch


class Projection(Encoder):
    def __init__(self, config):
        self.config = config


def main(strategy):
    encoder = Projection.read(strategy.config)
    return encoder.encode(Letters("ab"), output=strategy.path)
""",
    # an installed package of which a program in a folder below keeps a copy
    """\
# file: tools/video/clip/__init__.py
def load(name, strategy):
    return name, strategy
# file: train.py
import clip


def main(strategy):
    return clip.load("ViT-L/14", strategy, download_root="models")
""",
    # another base of a class below has the method that is run
    """\
class Backbone:
    def run(self):
        raise NotImplementedError


class Swin:
    def run(self, x):
        return x


class D2Swin(Swin, Backbone):
    pass


class Strategy:
    def __init__(self, backbone: Backbone):
        self.backbone = backbone

    def step(self, x):
        return self.backbone.run(x)
""",
    # a constructor that is put into some class, which need not be this one
    """\
from torch import nn


def patch(layer_cls, strategy):
    original = layer_cls.__init__

    def patched(self, config, index):
        original(self, config, index)
        strategy.place(self)

    layer_cls.__init__ = patched


class Module(nn.Module):
    pass


class Experts(Module):
    def __init__(self):
        Module.__init__(self)


def main(strategy, other):
    patch(other.layer(), strategy)
    return Experts()
""",
    # behind a test of a class that is not known it is not what callers pass elsewhere
    """
import importlib
from enum import Enum


class Metric(Enum):
    EXACT = "exact"
    JUDGE = "judge"

    @property
    def kind(self):
        return importlib.import_module("judges." + self.value).Judge

    def match(self, response, answer):
        return response == answer


def score(metric, response, answer):
    if isinstance(metric, Metric.JUDGE.kind):
        return metric.match(response, answer, images=[])
    return metric.match(response, answer)


if __name__ == "__main__":
    print(score(Metric("exact"), "a", "b"))
""",
    # which class was imported is told by what was set beside the import
    _VARIANTS.format(given="weights", mark=""),
    _SCHEDULED.format(first="data, 8", mark=""),
    # a class is asked for the function: the object is an argument like others
    """
class Config:
    def after(self):
        return 1

    def set_up(self):
        for cls in type(self).__mro__[:-1]:
            if "after" in vars(cls):
                cls.after(self)

def main():
    Config().set_up()
""",
    # keys that are gone, or may be
    """\
from dataclasses import asdict, dataclass


def make(path, save=1):
    return path, save


@dataclass
class Config:
    path: str
    load: int = 1

    def to_dict(self, leave=()):
        return {k: v for k, v in vars(self).items() if k not in leave}


def popped(config: Config):
    options = asdict(config)
    save = options.pop("load")
    return make(save=save, **options)


def deleted(config: Config):
    options = asdict(config)
    del options["load"]
    return make(**options)


def some(config: Config, wide):
    options = {"path": 1}
    if wide:
        options["load"] = 2
    if not wide:
        return make(**options)
    options.pop("load")
    return make(**options)


def cleaned(config, clean):
    options = {"path": 1, "load": 2}
    clean(options)
    return make(**options)


def left(config: Config):
    return make(**config.to_dict(leave=["load"]))


def filtered(config: Config):
    return make(**{k: v for k, v in asdict(config).items() if k != "load"})


def tried(options):
    options = {**options, "load": 2}
    try:
        return make(**options)
    except TypeError:
        return None


def main(wide, clean):
    config = Config("a")
    first = popped(config), deleted(config), some(config, wide), cleaned(config, clean)
    return first, left(config), filtered(config), tried(config)


print(main(True, dict.clear))
""",
    # a field that a class below gives back to the constructor
    """\
from dataclasses import dataclass, field


@dataclass
class Base:
    path: str
    ranks: int = field(default=1, init=False)


@dataclass
class Options(Base):
    ranks: int = 2
    wide: bool = field(default=False, kw_only=True)


def main():
    print(Options("a", 4, wide=True), Options("a", ranks=3))
""",
    # keys that a loop takes away, and those of one of two ways
    _LOOPED.format(key="loss", change='step.pop("losss", None)', other='"lr"', mark=""),
    _PRETRAINED.format(keyword="mask", mark=""),
    # keys that a loop puts in, whichever they are
    """
class Row:
    def __init__(self, tokens, mask, gain):
        self.tokens, self.mask, self.gain = tokens, mask, gain


def make(rows, strategy):
    found = {}
    for key in ("tokens", "mask"):
        found[key] = [row[key] for row in rows]
    found["gain"] = strategy.gain
    return Row(**found)
""",
)

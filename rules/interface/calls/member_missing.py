"""A member that no object of the class can have.

What it does
    Reports `self.x` and `receiver.x` (read or called) where the receiver is certain to be an object of classes
    of the project, and where neither these classes, nor their bases, nor any class below them, nor code that sets
    attributes from outside defines `x`. An object that takes over the members of a class (`for name in
    dir(worker_class): setattr(self, name, …)`), or whose `__getattr__` asks objects that it made of a class, has those
    of the class given to its constructor. A template method may call what only its subclasses define: one subclass
    that has the member is enough. Bases of the standard library, torch, transformers, trl, accelerate, peft, deepspeed,
    datasets and Lightning give what their classes have in any release, and what such libraries set on objects of
    others. A warning where annotations or callers alone say what the receiver is, or where the project does not ask for
    a release of such a base that is known (transformers since 3.5), a note where it asks for an older one. Silent in
    classes with another base outside the project, `__getattr__`, `setattr`, or a decorator that may add members; in
    mixins; behind `hasattr`, `isinstance` of the object, or `except AttributeError`.

Why is this bad
    It raises AttributeError, often only on the branch that one backend or one option takes: hours into a job.

References
    https://docs.python.org/3/reference/expressions.html#attribute-references
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.missing_members import Older, Use, older_release, uses_of_missing
from validator.errors import nearest
from validator.finding import Finding, Related, Severity
from validator.flow.objects import Objects
from validator.project import ClassDef, Project
from validator.rule import Rule

RULE = Rule("MP120", "member-missing", "error", stable_since="0.1.0", solves=True)

_MANY = 5  # a class that lacks so many members is half rewritten: one finding says it all


def check_project(project: Project) -> Iterator[Finding]:
    by_class: dict[tuple[ClassDef, ...], dict[str, list[Use]]] = {}
    for use in uses_of_missing(project):
        by_class.setdefault(use.classes, {}).setdefault(use.name, []).append(use)
    for classes, names in by_class.items():
        older = older_release(project, classes)
        if len(names) >= _MANY:
            if not any(use.said for uses in names.values() for use in uses):  # else the annotation is what is wrong
                yield _half_rewritten(classes, names, older)
        else:
            for uses in names.values():
                yield from _reports(project, uses, older)


def _reports(project: Project, uses: list[Use], older: Older | None) -> Iterator[Finding]:
    """One finding for a member, or one for each file that asks a stand-in for it: there the callers may be wrong."""
    family = any(project.families.of(cls) is not None for cls in uses[0].classes)
    by_file: dict[str, list[Use]] = {}
    for use in uses:
        by_file.setdefault(use.function.path if family else "", []).append(use)
    for each in by_file.values():
        yield _report(project, min(each, key=lambda u: (u.function.path, u.at)), uses, older)


def _report(project: Project, use: Use, uses: list[Use], older: Older | None) -> Finding:
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
        f"{subject} `{use.name}`{below and f' ({below.strip()})'}, which {how}{siblings}{_basis(older)}",
        help=_advice(project, use),
        related=[*where, *(Related(path, line, f"`{use.name}` is used here too") for path, line in others)],
        context=f"{use.classes[0].qualname}.{use.name}:{use.function.qualname}",
        severity=_severity(older, use.said),
    )


def _basis(older: Older | None) -> str:
    """What a finding rests on where nothing says which release of a library is used."""
    return f"; nor has its base in {older.library} {older.first} and later" if older is not None else ""


def _severity(older: Older | None, said: bool) -> Severity:
    if older is None:
        return "warning" if said else RULE.severity
    return "note" if older.surely else "warning"


def _half_rewritten(classes: tuple[ClassDef, ...], names: dict[str, list[Use]], older: Older | None) -> Finding:
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
        f"{subject} lacks {len(names)} members that its code uses: {listed}{_basis(older)}",
        help="set them in `__init__`, inherit them again, or remove the code that needs them",
        related=related,
        context=f"{classes[0].qualname}:members",
        severity=_severity(older, False),
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
    # a test of another object; a literal name that is set in a roundabout way; a function that only lists attributes
    """\
from torch import nn
from torch.utils.data import DataLoader


def copied(target, source):
    for name, value in source.__dict__.items():
        setattr(target, name, value)


class Forever(DataLoader):
    def __init__(self, data, strategy):
        super().__init__(data)
        object.__setattr__(self, "batch_sampler", strategy.repeated(self.batch_sampler))
        self.iterator = super().__iter__()

    def __iter__(self):
        yield from self.iterators  # error: MP120


class Model(nn.Module):
    def __init__(self, strategy):
        super().__init__()
        self.layers = strategy.layers
        self.merged = strategy.merged
        if isinstance(self.layers[-1], nn.Linear):
            self.start_biases()  # error: MP120

    def forward(self, x):
        if type(x) == list:
            return self.merge(x)  # error: MP120
        return self.layers(x)

    def copy(self, other):
        copied(other, self)
        return other


def main(strategy):
    return Model(strategy), Forever(strategy.data, strategy)
""",
    # bases of libraries, whose members are known one by one
    """\
import threading
from collections.abc import Iterator

from torch.optim import Optimizer
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback


class LogCallback(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        print(logs, self.start_time)  # error: MP120


class PolicyTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False):
        print(self.state.global_step, self.args.seed, self._signature_columns, self.callback_handler)
        return self.policy_loss(model, inputs)  # error: MP120


class Batches(Iterator):
    def __init__(self, rows):
        self.rows = rows

    def __next__(self):
        return next(self._rows)  # error: MP120


class Texts(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self._rows)  # error: MP120


class Worker(threading.Thread):
    def run(self):
        print(self.name, self._target)
        self.queue.join()  # error: MP120


class Lion(Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                self.update(each, self.state[each])  # error: MP120


def make(rows, params):
    return LogCallback(), PolicyTrainer(), Batches(rows), Texts(rows), Worker(), Lion(params, 0.1)
""",
    # objects of a class that a function gives back, or that stands in a table, get what they are made with elsewhere
    """\
# file: trainers.py
class Trainer:
    def __init__(self, writer):
        self.writer = writer

    def step(self, loss):
        self.writer.write("loss", loss)  # error: MP120


class Evaluator:
    def __init__(self, writer):
        self.writer = writer

    def step(self, loss):
        self.writer.log("loss", loss)
        self.writer.flush()  # error: MP120


KINDS = {"evaluator": Evaluator}


def kind(config):
    return Trainer if config.trains else None


def named(name):
    return KINDS[name]
# file: train.py
from trainers import kind, named


class Writer:
    def log(self, name, value):
        print(name, value)


def main(config):
    made = kind(config)
    made(Writer()).step(1.0)
    other = named(config.name)
    other(writer=Writer()).step(2.0)
""",
    # an attribute that callers choose
    """\
class Model:
    def __init__(self, strategy, tied=False):
        self.strategy = strategy
        self.tied = tied

    def weights(self):
        return self.strategy if not self.tied else self.tied_weights  # error: MP120


Model(None)
""",
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
    # what older releases have
    """
# file: requirements.txt
transformers==4.28.1
# file: train.py
from transformers import Trainer


class Distiller(Trainer):
    def training_step(self, model, inputs):
        loss = self.compute_loss(model, inputs)
        if self.do_grad_scaling:
            return self.scaler.scale(loss)
        return loss if self.use_amp or self.is_world_master() else loss / 2


Distiller().train()
""",
    # bound again to what FSDP wraps it in
    """
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import enable_wrap, wrap


class Part(nn.Module):
    def forward(self, x):
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()

    def shard(self):
        with enable_wrap(wrapper_cls=FSDP):
            self.part = wrap(wrap(self.part))

        def clip(limit):
            self.part.clip_grad_norm_(limit)

        self.clip = clip


model = Model()
model.shard()
model.clip(1.0)
""",
    # the class is asked of the object, or of one that it is made of; a name that is computed; a name set in another way
    """
from torch import nn


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
        object.__setattr__(self, "strategy", None)

    def forward(self, x, strategy):
        if isinstance(self, strategy.kinds):
            return self.folded(x)
        return self.module(x), self.strategy


class Options:
    def __init__(self, values):
        for name in values:
            object.__setattr__(self, name, values[name])

    def width(self):
        return self.hidden_size


def main(kind):
    model = Wrapped(nn.Linear(2, 2))
    outer = Wrapped(model)
    inner = outer.module
    if type(inner) is kind:
        return inner.width
    if isinstance(outer, kind):
        return inner.height
    return Options({})
""",
    # what `fully_shard` adds, what other libraries set, what `__getattr__` gives, a library that nobody knows
    """
import torch
from somewhere import Base


class Model(torch.nn.Module):
    def __init__(self, strategy):
        super().__init__()
        self.strategy = strategy

    def prefetch(self):
        self.set_modules_to_forward_prefetch([])
        self.set_requires_gradient_sync(False)
        return self.hf_device_map, self.training


class Options(dict):
    __getattr__ = dict.get

    def width(self):
        return self.hidden_size


class Worker(Base):
    def run(self):
        return self.strategy


Model(None), Options(), Worker()
""",
    # an attribute that is never true
    """
class Config:
    is_encoder_decoder = False

    def __init__(self, hidden):
        self.hidden = hidden


class Model:
    def __init__(self, strategy):
        self.config = Config(strategy.hidden)
        self.tied = False

    def encode(self, strategy):
        if self.config.is_encoder_decoder:
            return self.get_encoder(strategy)
        return self.config.hidden if not self.tied else self.tied_weights


Model(None)
""",
    # a function that a library takes, to call it with something of its own
    """
from prompt_toolkit.key_binding import KeyBindings


class App:
    bindings = KeyBindings()

    def __init__(self, name):
        self.name = name

    @bindings.add("c-c")
    def _(event):
        event.app.exit()


App("x")
""",
    # what is found to be of a library's class is none of the project's, in what is called with it too
    """
import torch


class Batch:
    def __init__(self, tokens):
        self.tokens = tokens


def count(tensor):
    return tensor.numel()


def dense(tensor):
    if torch.is_tensor(tensor):
        return tensor.numel()
    return 0


def size(batch: Batch):
    if isinstance(batch, torch.Tensor):
        return count(batch)
    return len(batch.tokens) + dense(batch)


size(Batch([1]))
""",
    # all variables are handed on, the object among them
    """
def keep(values):
    for name, value in values.items():
        if name != "self":
            setattr(values["self"], name, value)


class Trainer:
    def __init__(self, model, steps):
        keep(locals())

    def run(self):
        return self.model(self.steps)


Trainer(print, 3).run()
""",
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
    # a decorator that gives a class another base
    """\
class State:
    def get_state(self, key):
        return self.states[key]


def with_state(cls):
    cls.__bases__ = (State, *(base for base in cls.__bases__ if base is not State))
    return cls


class Part:
    pass


@with_state
class Decoder(Part):
    def __init__(self, strategy):
        self.strategy = strategy


class LSTMDecoder(Decoder):
    def step(self):
        return self.get_state("hidden")


LSTMDecoder(None).step()
""",
    # decorators of libraries that add methods
    """\
import chex
import flax


@chex.dataclass(frozen=True)
class Metrics:
    rows: dict

    def update(self, strategy, rows):
        return self.replace(rows=strategy.join(self.rows, rows))


@flax.struct.dataclass
class State:
    rows: dict

    def update(self, strategy, rows):
        return self.replace(rows=strategy.join(self.rows, rows))


def main(strategy):
    return Metrics(rows={}).update(strategy, {}), State(rows={}).update(strategy, {})
""",
    # a static method of a base gets no object, whoever `super` is given
    """\
class Base:
    @staticmethod
    def add_args(parser):
        parser.add_argument("--strategy")


class Model(Base):
    @staticmethod
    def add_args(parser):
        super(Model, Model).add_args(parser)
        parser.add_argument("--size")


def main(parser):
    Model.add_args(parser)
""",
    # what a base is passed, and changes, is annotated as the base needs it
    """\
class Config:
    def __init__(self, size):
        self.size = size


class Task:
    def __init__(self, cfg: Config):
        if cfg.size is None:
            cfg.size = 1
        self.cfg = cfg


class Translation(Task):
    def __init__(self, args):
        super().__init__(args)
        self.languages = args.languages


def main(args, strategy):
    return Translation(args)
""",
    # two functions that pass the object to each other give it its members
    """\
def outer(target, values, depth):
    if depth:
        inner(target, values, depth - 1)
    for key, value in values.items():
        setattr(target, key, value)


def inner(target, values, depth):
    outer(target, values, depth)


class Model:
    def __init__(self, strategy, values):
        self.strategy = strategy
        inner(self, values, 2)


def width(strategy, values):
    return Model(strategy, values).width
""",
    # what a test puts into an object of the program
    """\
# file: src/processor.py
from dataclasses import dataclass


@dataclass
class Processor:
    strategy: object
    tokenizer: object

    def encode(self, text):
        return self.tokenizer.encode(text)


# file: tests/test_processor.py
from src.processor import Processor


class Fake:
    pad = 0


def test_pads():
    assert Processor(None, Fake()).tokenizer.pad == 0
""",
    # a part of a class that the program puts together by names
    """\
# file: plugin/__init__.py
from .args import PluginArgs

__all__ = ["PluginArgs"]


def args_of():
    return "plugin.PluginArgs"


# file: plugin/args.py
from pydantic import BaseModel


class PluginArgs(BaseModel):
    fused: bool = False

    def check(self, strategy):
        return self.fused and self.strategy_size > strategy.size
""",
    # a function gives back what it is passed only where that is something else
    """\
import torch


class Hidden:
    def __init__(self, x):
        self.x = x

    def to(self, *a):
        return Hidden(self.x.to(*a))


def hide(x: torch.Tensor) -> Hidden:
    return Hidden(x)


def unhide(x):
    if isinstance(x, Hidden):
        return x.x
    else:
        return x


class Router(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self._n = hide(torch.zeros(n))

    @property
    def n(self) -> torch.Tensor:
        return unhide(self._n)

    def run(self):
        n = self.n
        return n.mean(), n.max()


print(Router(3).run())
""",
    # methods bound under computed names, or to other objects; another object than one of the class
    """\
import types


class Hooked:
    def __init__(self):
        self.value = 1


def add(target, name, function):
    setattr(target, name, types.MethodType(function, target))


def scaled(self, by):
    return self.value * by


def main():
    one = Hooked()
    add(one, "scaled", scaled)
    return one.scaled(2)


class Shared:
    def gather(self):
        return self.weight


def share(model):
    model.gather = types.MethodType(Shared.gather, model)


class Logger:
    def __new__(cls):
        if not hasattr(cls, "one"):
            cls.one = __import__("logging").getLogger("a")
        return cls.one


def report():
    Logger().warning("done")
""",
)

"""A subclass that a change of its base left behind.

What it does
    Compares the methods of base classes before and after a change. Reports an override that still has the parameters
    that the base had before, where a call fits the base alone; an override of a method that the base no longer has, or
    has under another name, and that nothing calls any more, be it by a text that its callers put a name together of
    (`getattr(callback, f"on_{event}")`); an override that got a name for which nobody asks, so that callers reach what
    it overrode; a method of a family of classes that takes its parameters in another order than what it overrides, or
    than what overrides it, since the change, where a call passes them by position; and a class that is made although a
    method that it inherits is abstract since the change.

Why is this bad
    TypeError, as soon as the program runs with that subclass; or the base's way of doing it, without a word.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.interfaces.binding import signature
from validator.drift.change import Change
from validator.drift.interfaces.override_orders import OverrideOrders, Reordered
from validator.drift.interfaces.subclasses import LeftAbstract, LeftOverride, Subclasses, Unhooked
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP910", "subclass-left-behind", "warning", stable_since="0.2.0")


def check_change(change: Change) -> Iterator[Finding]:
    subclasses = change.analysis(Subclasses)
    for row in subclasses.overrides:
        yield _override(row)
    for each in subclasses.abstract:
        yield _abstract(each)
    for method in subclasses.unhooked:
        yield _unhooked(method)
    for reordered in change.analysis(OverrideOrders).rows:
        yield _reordered(reordered)


def _override(row: LeftOverride) -> Finding:
    override, base = row.override, row.base
    assert override.cls is not None
    assert base.cls is not None
    return RULE.finding(
        override.path,
        override.facts.name_at,
        f"`{override.cls.name}.{override.name}` still has the parameters that `{base.cls.name}.{base.name}` had before "
        f"the change: for the call in `{row.site.unit.qualname}` it {row.text}",
        help=f"the base takes `{signature(base)}` now",
        related=[
            Related(base.path, base.facts.name_at[0], f"`{base.cls.name}.{base.name}` as it is now"),
            Related(row.site.unit.path, row.site.call.at[0], "the call"),
        ],
        context=f"{override.qualname}:{base.cls.name}",
    )


def _reordered(row: Reordered) -> Finding:
    method, other = row.method, row.other
    assert method.cls is not None
    assert other.cls is not None
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"`{method.cls.name}.{method.name}` takes by position as `{row.name}` since the change what "
        f"`{other.cls.name}.{other.name}` takes as `{row.others}`, and callers pass it by position",
        help=f"keep the order of `{signature(other)}`, or change all classes of the family and their callers",
        related=[
            Related(other.path, other.facts.name_at[0], f"`{other.cls.name}.{other.name}`"),
            Related(row.path, row.at[0], "a call that passes it by position"),
        ],
        context=f"{method.qualname}:{other.cls.name}",
    )


def _unhooked(row: Unhooked) -> Finding:
    method, base = row.method, row.base
    assert method.cls is not None
    name = f"`{method.cls.name}.{method.name}`"
    if base is None or base.cls is None:
        return RULE.finding(
            method.path,
            method.facts.name_at,
            f"{name} is called by nothing since the change: its callers ask for `{row.renamed}`",
            help=f"give it the name `{row.renamed}`",
            context=f"{method.qualname}:{row.renamed}",
        )
    return RULE.finding(
        method.path,
        method.facts.name_at,
        f"{name} overrides what `{base.cls.name}` no longer has since the change, and nothing calls it now",
        help=f"give it the name that `{base.cls.name}` calls, or take it out",
        related=[Related(base.path, base.facts.name_at[0], f"`{base.cls.name}` had it here")],
        context=f"{method.qualname}:{base.cls.name}",
    )


def _abstract(row: LeftAbstract) -> Finding:
    assert row.method.cls is not None
    return RULE.finding(
        row.cls.path,
        row.cls.facts.name_at,
        f"`{row.cls.name}` cannot be made any more: `{row.method.name}` is abstract in `{row.method.cls.name}` since "
        "the change, and it does not define it",
        help=f"define `{row.method.name}`, or give the base one that does nothing",
        related=[
            Related(row.method.path, row.method.facts.name_at[0], f"`{row.method.name}` is abstract here"),
            Related(row.site.unit.path, row.site.call.at[0], f"`{row.cls.name}` is made here"),
        ],
        context=f"{row.cls.qualname}:{row.method.name}",
    )


_FAMILY = """# file: flows.py
class Flow:
    def from_pretrained(self, path, denoiser=None, lora=None):
        self.path, self.denoiser, self.lora = path, denoiser, lora


class StepFlow(Flow):
    def from_pretrained(self, path, denoiser=None, lora=None):
        self.path, self.lora = path, lora


class HunyuanFlow(Flow):
    def from_pretrained(self, path, denoiser=None, lora=None):
        self.path, self.lora = path, lora


class WanFlow(Flow):
    def from_pretrained(self, path, {order}):{mark}
        self.path, self.denoiser = path, denoiser
"""

_ORDERS = """# file: flows/__init__.py
# file: flows/base.py
class Flow:
    def from_pretrained(self, path, denoiser=None, lora=None):
        self.path, self.denoiser, self.lora = path, denoiser, lora
# before: flows/wan.py
from flows.base import Flow


class WanFlow(Flow):
    def from_pretrained(self, path, denoiser=None, lora=None):
        self.path, self.denoiser = path, denoiser
# file: flows/wan.py
from flows.base import Flow


class WanFlow(Flow):
    def from_pretrained(self, path, {order}):{mark}
        self.path, self.denoiser = path, denoiser
# file: train.py
def train(make, config, path, denoiser, lora):
    flow = make(config)
    {call}
    return flow
"""

_CALLBACKS = """class Checkpoint:
    def {first}(self, trainer):
        trainer.save()


class Stopping{base}:
    def {second}(self, trainer):{mark}
        trainer.stop = True
"""
_EVENTS = """class Trainer:
    def __init__(self, callbacks):
        self.callbacks, self.stop = callbacks, False

    def emit(self, event):
        for callback in self.callbacks:
            handler = getattr(callback, f"on_{event}", None)
            if handler is not None:
                handler(self)

    def save(self):
        self.emit("{event}")
"""


def _events(second: str, mark: str) -> str:
    old = {"first": "on_validation_end", "second": "on_validation_end", "base": "", "mark": ""}
    before = "# before: rl/callbacks.py\n" + _CALLBACKS.format(**old)
    before += "# before: rl/trainer.py\n" + _EVENTS.replace("{event}", "validation_end")
    new = {"first": "on_evaluation_end", "second": second, "base": "", "mark": mark}
    after = "# file: rl/callbacks.py\n" + _CALLBACKS.format(**new)
    return before + after + "# file: rl/trainer.py\n" + _EVENTS.replace("{event}", "evaluation_end")


_LOADER = """# file: rl/__init__.py
# file: rl/base.py
class BaseDataset:
    def collater(self, rows):
        return list(rows)
# file: rl/loader.py
def loader(dataset, rows):
    collate = getattr(dataset, "collater", None)
    return collate(rows) if collate is not None else rows
"""
_DATASET = """from rl.base import BaseDataset


class Packed(BaseDataset):
    def {name}(self, rows):{mark}
        return {{"input_ids": [token for row in rows for token in row]}}
"""


def _renamed(name: str, mark: str) -> str:
    before = "# before: rl/packed.py\n" + _DATASET.format(name="collater", mark="")
    return _LOADER + before + "# file: rl/packed.py\n" + _DATASET.format(name=name, mark=mark)


INCORRECT = (
    _renamed("collate_fn", "  # error: MP910"),
    # a handler of an event that has another name now
    _events("on_validation_end", "  # error: MP910"),
    """# before: rl/trainers.py
class Trainer:
    def step(self):
        return self.clip_gradient()

    def clip_gradient(self):
        return 1


class FSDPTrainer(Trainer):
    def clip_gradient(self):
        return 2
# file: rl/trainers.py
class Trainer:
    def step(self):
        return self.clip_grad_norm()

    def clip_grad_norm(self):
        return 1


class FSDPTrainer(Trainer):
    def clip_gradient(self):  # error: MP910
        return 2
""",
    """# file: rl/__init__.py
# before: rl/base.py
class Layer:
    def forward(self, x, bin_ids):
        return self.compute(x, None, bin_ids)

    def compute(self, x, indices, bin_ids):
        return x
# file: rl/base.py
class Layer:
    def forward(self, x, bin_ids):
        return self.compute(x, None), bin_ids

    def compute(self, x, indices):
        return x
# file: rl/dropless.py
from rl.base import Layer


class Dropless(Layer):
    def compute(self, tokens, order, bins):  # error: MP910
        return tokens, order, bins
""",
    """# file: rl/__init__.py
# before: rl/base.py
class Trainer:
    def step(self, batch):
        return self.call_model(batch, batch.weights)

    def call_model(self, batch, weights):
        return batch, weights
# file: rl/base.py
class Trainer:
    def step(self, batch):
        return self.call_model(batch)

    def call_model(self, batch):
        return batch
# file: rl/large.py
from rl.base import Trainer


class LargeTrainer(Trainer):
    def call_model(self, batch, weights):  # error: MP910
        return batch * weights
""",
    """# file: rl/__init__.py
# before: rl/base.py
from abc import ABC


class Interface(ABC):
    def prepare_for_validation(self):
        raise NotImplementedError
# file: rl/base.py
from abc import ABC, abstractmethod


class Interface(ABC):
    @abstractmethod
    def prepare_for_validation(self):
        pass
# file: rl/actor.py
from rl.base import Interface


class Actor(Interface):  # error: MP910
    def train(self):
        return 1


def main():
    return Actor()
""",
    """# before: rl/data.py
class Prompts:
    def frame_length(self, index):
        return len(self.rows[index])


class Pairs:
    def frame_length(self, index):
        return 2 * len(self.rows[index])


def batches(source, indices):
    return [source.frame_length(index) for index in indices]
# file: rl/data.py
class Prompts:
    def count_frames(self, index):
        return len(self.rows[index])


class Pairs:
    def frame_length(self, index):  # error: MP910
        return 2 * len(self.rows[index])


def batches(source, indices):
    return [source.count_frames(index) for index in indices]
""",
    # another order of what callers pass by position, for one class of a family
    _ORDERS.format(
        order="lora=None, denoiser=None", mark="  # error: MP910", call="flow.from_pretrained(path, denoiser, lora)"
    ),
    # an annotation tells of which family an object is, that another function makes
    _FAMILY.format(order="denoiser=None, lora=None", mark="").replace("# file: ", "# before: ")
    + _FAMILY.format(order="lora=None, denoiser=None", mark="  # error: MP910")
    + """# file: train.py
from flows import Flow


class Tokens:
    def from_pretrained(self, path, *args):
        return path, args


def run(module, name, config):
    flow: Flow = made(module, name)
    flow.from_pretrained(config.path, config.denoiser, config.lora)


def made(module, name):
    return None if name == "none" else getattr(__import__(module), name)()
""",
)
CORRECT = (
    # somebody asks for it under the new name
    _renamed("packed", "") + "# file: rl/pack.py\ndef pack(dataset, rows):\n    return dataset.packed(rows)\n",
    _events("on_evaluation_end", ""),
    """# file: rl/__init__.py
# before: rl/base.py
class Trainer:
    def step(self, batch):
        return self.call_model(batch, batch.weights)

    def call_model(self, batch, weights):
        return batch, weights
# file: rl/base.py
class Trainer:
    def step(self, batch):
        return self.call_model(batch)

    def call_model(self, batch):
        return batch
# before: rl/large.py
from rl.base import Trainer


class LargeTrainer(Trainer):
    def call_model(self, batch, weights):
        return batch * weights
# file: rl/large.py
from rl.base import Trainer


class LargeTrainer(Trainer):
    def call_model(self, batch):
        return batch * 2
""",
    """# file: rl/__init__.py
# before: rl/base.py
from abc import ABC


class Interface(ABC):
    def prepare(self):
        raise NotImplementedError
# file: rl/base.py
from abc import ABC, abstractmethod


class Interface(ABC):
    @abstractmethod
    def prepare(self):
        pass
# file: rl/actor.py
from rl.base import Interface


class Actor(Interface):
    def prepare(self):
        return 1


def main():
    return Actor()
""",
    """# before: rl/data.py
class Prompts:
    def frame_length(self, index):
        return len(self.rows[index])


class Pairs:
    def frame_length(self, index):
        return 2 * len(self.rows[index])


def batches(source, indices):
    return [source.frame_length(index) for index in indices]


def longest(source):
    return max(source.frame_length(index) for index in range(len(source.rows)))
# file: rl/data.py
class Prompts:
    def count_frames(self, index):
        return len(self.rows[index])

    frame_length = count_frames


class Pairs:
    def frame_length(self, index):
        return 2 * len(self.rows[index])

    count_frames = frame_length


def batches(source, indices):
    return [source.count_frames(index) for index in indices]


def longest(source):
    return max(source.frame_length(index) for index in range(len(source.rows)))
""",
    """# before: rl/groups.py
class Group:
    def wait_for_weights(self):
        self.ready = True

    def before_forward(self, args, kwargs):
        self.wait_for_weights()
        return args, kwargs


class Several(Group):
    def wait_for_weights(self):
        for group in self.groups:
            group.wait_for_weights()

    def before_forward(self, args, kwargs):
        for group in self.groups:
            args, kwargs = group.before_forward(args, kwargs)
        return args, kwargs
# file: rl/groups.py
class Group:
    def wait_for_weights(self, args=(), kwargs=None):
        self.ready = True
        return args, kwargs

    def before_forward(self, args, kwargs):
        args, kwargs = self.wait_for_weights(args=args, kwargs=kwargs)
        return args, kwargs


class Several(Group):
    def wait_for_weights(self):
        for group in self.groups:
            group.wait_for_weights()

    def before_forward(self, args, kwargs):
        for group in self.groups:
            args, kwargs = group.before_forward(args, kwargs)
        return args, kwargs
""",
    # callers pass it by its name; both classes have the new order
    _ORDERS.format(
        order="lora=None, denoiser=None", mark="", call="flow.from_pretrained(path, lora=lora, denoiser=denoiser)"
    ),
    """# file: flows.py
class Flow:
    def from_pretrained(self, path, lora=None, denoiser=None):
        self.path, self.denoiser, self.lora = path, denoiser, lora


class WanFlow(Flow):
    def from_pretrained(self, path, lora=None, denoiser=None):
        self.path, self.denoiser = path, denoiser


def train(make, config, path, denoiser, lora):
    flow = make(config)
    flow.from_pretrained(path, lora, denoiser)
    return flow
# before: flows.py
class Flow:
    def from_pretrained(self, path, denoiser=None, lora=None):
        self.path, self.denoiser, self.lora = path, denoiser, lora


class WanFlow(Flow):
    def from_pretrained(self, path, denoiser=None, lora=None):
        self.path, self.denoiser = path, denoiser


def train(make, config, path, denoiser, lora):
    flow = make(config)
    flow.from_pretrained(path, denoiser, lora)
    return flow
""",
)

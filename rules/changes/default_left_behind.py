"""A default that a change altered in one of several places that go by it.

What it does
    Compares the defaults of options, fields, parameters and `getattr(config, "name", default)` before and after a
    change. Reports one that differs now from the others of its name, all of which are as it was. Reports a call that
    gets another value because the default of a parameter changed, where the change made another call of the function
    ask for the old value, or no longer ask for what is the default now. Reports a call that still has a number or text
    by default, where the change made an option of the same name of it in another call beside. Reports also where a
    default, a field or an option was of one kind (a text, a number, a list of texts or of numbers) and is of another
    now, and what reads it, or a function that it is handed to, still does with it, or with an element of it, what only
    the other kind allows; so it is with a number of a YAML file that PyYAML, which alone reads such files in the
    project, takes for a text since the change (`1e-6`).

Why is this bad
    Which of them wins depends on the way that the program takes: the launcher, the config class and the function then
    work with different values.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.drift.change import Change
from validator.drift.interfaces.half_wired import HalfWired, HalfWiredOptions
from validator.drift.interfaces.kinds import Kinds, Misfit
from validator.drift.interfaces.relied_defaults import ReliedDefaults, Relying
from validator.drift.names.defaults import Defaults
from validator.drift.settings.default_types import DefaultTypes, Narrowed
from validator.drift.settings.now_texts import NowText, NowTexts
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP909", "default-left-behind", "warning", stable_since="0.2.0")


def check_change(change: Change) -> Iterator[Finding]:
    for row in change.analysis(Defaults).rows:
        new = row.new
        yield RULE.finding(
            new.path,
            new.at,
            f"the default of `{new.name}` is {new.value!r} here since the change, and {row.old!r} elsewhere",
            help="change all of them, or none",
            related=[Related(d.path, d.at[0], f"{row.old!r}") for d in row.others[:4]],
            context=f"{new.name}:{new.value!r}",
        )
    for relying in change.analysis(ReliedDefaults).rows:
        yield _relying(relying)
    for misfit in change.analysis(Kinds).misfits:
        yield _misfit(misfit)
    for wired in change.analysis(HalfWiredOptions).rows:
        yield _half_wired(wired)
    for text in change.analysis(NowTexts).rows:
        yield _now_text(text)
    for narrowed in change.analysis(DefaultTypes).narrowed:
        yield _narrowed(narrowed)


def _now_text(row: NowText) -> Finding:
    path = ".".join(row.text.setting.path)
    return RULE.finding(
        row.text.source.path,
        row.text.setting.value_at,
        f"`{path}` was the number {row.before!r} before the change; `{row.text.text}` is a text for PyYAML",
        help=f"write `{row.text.advice}`",
        context=path,
    )


def _narrowed(row: Narrowed) -> Finding:
    return RULE.finding(
        row.unit.path,
        row.at,
        f"the flag of `{row.name}` takes whole numbers alone since the change: ml_collections goes by the type of the "
        f"default, which was {row.old!r}",
        help=f"write `{float(row.new)!r}`",
        context=f"{row.unit.qualname}:{row.name}",
    )


def _half_wired(row: HalfWired) -> Finding:
    return RULE.finding(
        row.site.unit.path,
        row.site.call.at,
        f"`{row.called}` still has `{row.name}={row.default}` by default here, where `{row.option}` took the place of"
        f" {row.default} in line {row.line} of the same function",
        help=f"pass `{row.name}={row.option}`, or say why the two may differ",
        related=[Related(row.site.unit.path, row.line, f"`{row.option}` since the change")],
        context=f"{row.site.unit.qualname}:{row.called}:{row.name}",
    )


def _misfit(row: Misfit) -> Finding:
    path, line = row.given
    taker = row.unit.qualname
    return RULE.finding(
        row.unit.path,
        row.at,
        f"`{row.name}` is a {row.now} since the change and was a {row.was}: `{taker}` gets it and {row.text}",
        help="change what takes it, or leave it what it was",
        related=[Related(path, line, f"`{row.name}` is a {row.now} here")],
        context=f"{taker}:{row.name}:{row.now}",
    )


def _relying(row: Relying) -> Finding:
    did = f"asks for {row.old} since the change" if row.passed else f"asked for {row.new} before"
    adapted = row.adapted.unit
    return RULE.finding(
        row.site.unit.path,
        row.site.call.at,
        f"this call of `{row.method.name}` gets `{row.name}={row.new}` since the change, and got {row.old} by default; "
        f"the one in `{adapted.qualname}` {did}",
        help=f"pass `{row.name}={row.old}`, if that is still wanted here",
        related=[
            Related(row.method.path, row.method.facts.name_at[0], f"`{row.method.name}` as it is now"),
            Related(adapted.path, row.adapted.call.at[0], "the call that the change altered"),
        ],
        context=f"{row.site.unit.qualname}:{row.method.name}:{row.name}",
    )


_TOKENS = """# file: ip/__init__.py
# file: ip/parts.py
class Projection:
    def __init__(self, width, extra_tokens=4):
        self.size = width, extra_tokens


class Processor:
    def __init__(self, width, num_tokens=4):
        self.size = width, num_tokens
# before: train.py
import argparse

from ip.parts import Processor, Projection


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=8)
    args = parser.parse_args()
    projection = Projection(args.width, extra_tokens=4)
    return projection, [Processor(args.width) for _ in range(3)]
# file: train.py
import argparse

from ip.parts import Processor, Projection


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("{flag}", type=int, default=4)
    args = parser.parse_args()
    projection = Projection(args.width, extra_tokens=args.{name})
    return projection, [Processor({passed}) for _ in range(3)]{mark}
"""

_LIST_OPTION = """# before: rl/train.py
import argparse

from rl.model import Model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--average-from", nargs=2, default=None)
    args = parser.parse_args()
    Model().average("runs/", args.average_from[0] if args.average_from else None)
# file: rl/train.py
import argparse

from rl.model import Model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--average-from", nargs=2, type=int, default=None)
    args = parser.parse_args()
    Model().average("runs/", args.average_from[0] if args.average_from else None)
# file: rl/model.py
class Model:
    def average(self, folder, first):
        self.save(folder + "epoch-" + {first} + ".ckpt"){mark}

    def save(self, path):
        print(path)
"""

_READ_ELSEWHERE = """# before: rl/options/base.py
import argparse


class Options:
    def parse(self):
        parser = argparse.ArgumentParser()
        parser.add_argument("--decay-epochs", type=str, default="30,60")
        return self.modified(parser.parse_args())

    def modified(self, options):
        return options
# file: rl/options/base.py
import argparse


class Options:
    def parse(self):
        parser = argparse.ArgumentParser()
        parser.add_argument("--decay-epochs", type=int, nargs="+", default=[30, 60])
        return self.modified(parser.parse_args())

    def modified(self, options):
        return options
# file: rl/options/evaluating.py
from rl.options.base import Options


class Evaluating(Options):
    def modified(self, options):
        {use}{mark}
        return options
"""

_FIELD = """# before: rl/config.py
from dataclasses import dataclass


@dataclass
class Settings:
    stages: str = "2,3"
# file: rl/config.py
from dataclasses import dataclass, field


@dataclass
class Settings:
    stages: list[int] = field(default_factory=lambda: [2, 3])
# file: rl/plan.py
from rl.config import Settings


class Plan:
    def __init__(self, settings: Settings):
        self.stages = settings.stages

    def steps(self):
        return {use}{mark}
"""

_COLLECTION = """# before: config.py
import ml_collections


def get_config():
    config = ml_collections.ConfigDict()
    config.train = train = ml_collections.ConfigDict()
    train.steps = 50
    train.fraction = {before}
    return config
# file: config.py
import ml_collections


def get_config():
    config = ml_collections.ConfigDict()
    config.train = train = ml_collections.ConfigDict()
    train.steps = 50
    train.fraction = {after}
    return config
# before: small.py
from config import get_config


def get_small():
    config = get_config()
    config.train.fraction = 0.5
    return config
# file: small.py
from config import get_config


def get_small():
    config = get_config()
    config.train.fraction = 1
    return config
"""

_SWEEP = """# before: sweep.py
import yaml


def space(path):
    with open(path) as file:
        return {{name: row["values"] for name, row in yaml.safe_load(file).items()}}
# before: sweeps/lr.yml
optimizer.lr:
  strategy: loguniform
  values: [0.000001, 0.001]
# file: sweep.py
{imports}import yaml


def space(path):
    with open(path) as file:
        return {{name: row["values"] for name, row in yaml.safe_load(file).items()}}
# file: sweeps/lr.yml
optimizer.lr:
  strategy: loguniform
  values: {values}
"""

INCORRECT = (
    # an option that reaches one of two parts
    _TOKENS.format(flag="--num-tokens", name="num_tokens", passed="args.width", mark="  # error: MP909"),
    # an element of a list that holds numbers now, in the function that it is handed to
    _LIST_OPTION.format(first="first", mark="  # error: MP909"),
    # another class reads the option
    _READ_ELSEWHERE.format(
        use='options.decay_epochs = [int(each) for each in options.decay_epochs.split(",")]', mark="  # error: MP909"
    ),
    # a field of a data class, kept under an attribute
    _FIELD.format(use='[int(stage) for stage in self.stages.split(",")]', mark="  # error: MP909"),
    # a text that is a number now, and is taken apart where it is handed to
    """# before: rl/model.py
from rl.steps import spaced


class Model:
    def __init__(self, width, steps="100"):
        self.width = width
        self.steps = spaced(1000, steps)
# file: rl/model.py
from rl.steps import spaced


class Model:
    def __init__(self, width, steps=100):
        self.width = width
        self.steps = spaced(1000, steps)
# file: rl/steps.py
def spaced(total, counts):
    if isinstance(counts, str):
        counts = [int(each) for each in counts.split(",")]
    return [total // len(counts) for _ in counts]  # error: MP909
""",
    # the change took out the argument of one call, and another one relied on the default
    """# before: rl/data.py
def loader(rows, size, drop_last=True):
    return [rows[at : at + size] for at in range(0, len(rows), size) if not drop_last or at + size <= len(rows)]
# file: rl/data.py
def loader(rows, size, drop_last=False):
    return [rows[at : at + size] for at in range(0, len(rows), size) if not drop_last or at + size <= len(rows)]
# before: rl/evaluate.py
from rl.data import loader


def evaluate(model, rows):
    return [model(batch) for batch in loader(rows, 8, drop_last=False)]
# file: rl/evaluate.py
from rl.data import loader


def evaluate(model, rows):
    return [model(batch) for batch in loader(rows, 8)]
# file: rl/train.py
from rl.data import loader


def train(model, rows):
    for batch in loader(rows, 8):  # error: MP909
        model(batch).backward()
""",
    """# before: rl/config.py
from dataclasses import dataclass


@dataclass
class Algorithm:
    clip_range: float = 0.2
# file: rl/config.py
from dataclasses import dataclass


@dataclass
class Algorithm:
    clip_range: float = 0.28  # error: MP909
# file: rl/loss.py
def clipped(ratio, clip_range=0.2):
    return ratio.clamp(1 - clip_range, 1 + clip_range)


def from_config(ratio, config):
    return clipped(ratio, getattr(config, "clip_range", 0.2))
""",
    # a flag of which the default tells the type
    _COLLECTION.format(before="1.0", after="1  # error: MP909"),
    _SWEEP.format(imports="", values="[1e-6, 0.001]  # error: MP909"),
)
CORRECT = (
    _TOKENS.format(flag="--num-tokens", name="num_tokens", passed="args.width, num_tokens=args.num_tokens", mark=""),
    _TOKENS.format(flag="--extra", name="extra", passed="args.width", mark=""),
    _LIST_OPTION.format(first="str(first)", mark=""),
    _READ_ELSEWHERE.format(use="options.decay_epochs = [int(each) for each in options.decay_epochs]", mark=""),
    _READ_ELSEWHERE.format(
        use='options.decay_epochs = "10,20"\n        options.decay_epochs = options.decay_epochs.split(",")', mark=""
    ),
    _FIELD.format(
        use='self.stages.split(",") if isinstance(self.stages, str) else [stage + 1 for stage in self.stages]', mark=""
    ),
    # what takes it reckons with both kinds
    """# before: rl/model.py
from rl.steps import spaced, written


class Model:
    def __init__(self, width, steps="100"):
        self.width = width
        self.steps = spaced(1000, steps), written(steps)
# file: rl/model.py
from rl.steps import spaced, written


class Model:
    def __init__(self, width, steps=100):
        self.width = width
        self.steps = spaced(1000, steps), written(steps)
# file: rl/steps.py
def spaced(total, counts):
    if isinstance(counts, int):
        return [total // counts] * counts
    return [total // len(counts) for _ in counts]


def written(counts):
    if not isinstance(counts, str):
        counts = str(counts)
    return counts.split(",")
""",
    # no call speaks of the old or the new value: the change means all of them; or all speak of it
    """# before: rl/data.py
def loader(rows, size, drop_last=True):
    return rows, size, drop_last


def shuffled(rows, seed=None):
    return rows, seed
# file: rl/data.py
def loader(rows, size, drop_last=False):
    return rows, size, drop_last


def shuffled(rows, seed=0):
    return rows, seed
# before: rl/train.py
from rl.data import loader, shuffled


def train(model, rows, plan):
    return model(loader(rows, 8)), model(shuffled(rows)), model(shuffled(rows, seed=plan))
# file: rl/train.py
from rl.data import loader, shuffled


def train(model, rows, plan):
    return model(loader(rows, 8)), model(shuffled(rows, seed=None)), model(shuffled(rows, seed=plan))
""",
    # the change wrote the other one too
    """# before: serve.py
import argparse


def build(folder=None):
    return folder


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--concurrency-count", type=int, default=10)
    return build(), parser.parse_args().concurrency_count
# file: serve.py
import argparse


def build(folder=None, concurrency_count=10):
    return folder, concurrency_count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--concurrency-count", type=int, default=16)
    return build(concurrency_count=parser.parse_args().concurrency_count)
""",
    """# before: rl/config.py
class Algorithm:
    clip_range: float = 0.2
# file: rl/config.py
class Algorithm:
    clip_range: float = 0.28
# before: rl/loss.py
def clipped(ratio, clip_range=0.2):
    return ratio.clamp(1 - clip_range, 1 + clip_range)
# file: rl/loss.py
def clipped(ratio, clip_range=0.28):
    return ratio.clamp(1 - clip_range, 1 + clip_range)
""",
    """# before: rl/config.py
class Algorithm:
    clip_range: float = 0.2
# file: rl/config.py
class Algorithm:
    clip_range: float = 0.28
# file: rl/loss.py
def clipped(ratio, clip_range=0.1):
    return ratio.clamp(1 - clip_range, 1 + clip_range)
""",
    # another number; what is given to a setting that has its type
    _COLLECTION.format(before="1.0", after="2.0"),
    _SWEEP.format(imports="", values="[1.0e-6, 0.002]"),
    _SWEEP.format(imports="from omegaconf import OmegaConf\n", values="[1e-6, 0.001]"),
)

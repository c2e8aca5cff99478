"""A text by which two places find each other, changed in one of them.

What it does
    Reports a text without spaces (a key, the name of a file, of a variable of the environment or of a registered class)
    that a change replaced in some places while it stands unchanged in others, and whose replacement stands nowhere
    else: a warning where something looks for one of them (a key, a choice that is compared), a note where it is only
    handed on, as a default is, or is the same setting in each place. Reports also an attribute that is asked for since
    the change and that nothing in the project defines; a choice of an option that is given although the change took it
    away; and a key that is looked up behind a test for another one (`if "OLD" in os.environ: os.environ["NEW"]`).
    Reports also a special value (`-1` for "never", `None`, `"none"`) where a test of an option, a setting or a
    parameter asks for another one since the change, nothing in the project tells the old one apart any more, and a
    script, a file of settings, a default or a call still gives it: one finding for all of them. Reports also a value
    that is given under another name since the change (an attribute that is stored, a key, a setting, a variable of the
    environment, a keyword), where nothing in the project asks for the new name, while the old one is still asked for
    there (`getattr(config, "use_flash", False)`), or is what all others of the kind are given (`dict(type="Collect",
    …)`); a keyword that was a parameter and falls into a `**` where it is lost; and a parameter that fields or options
    filled by its name, handed on as a whole, which have the old one; and a value of a recipe that nothing in the
    program knows, where a function asks for the one of before among several and raises for all others, or has no `else`
    for them, or where nothing is done with it but to compare it with other texts, or a key of JSON on a command line
    which was a parameter's name. So with a key by which what a file holds is asked, and that nothing puts there, where
    the one of before is still written to the file of the same name, or is put somewhere while nobody asks for it any
    more, and is the new one spelled otherwise. Reports also a name with a number (`f"step_{step}"`) for which a pattern
    still looks as it was, and a key that was the name of the value under it (`info["top_p"] = args.top_p`) while the
    same is asked for the old one. Silent where the change itself writes the old text too, as an alias, or the new one
    in a statement that stands for none with the old one.

Why is this bad
    Who writes and who reads no longer mean the same: a checkpoint that is not found, a KeyError, a setting that is not
    seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import Method
from validator.drift.change import Change
from validator.drift.names.choices import Removed
from validator.drift.names.markers import Markers, Stale
from validator.drift.names.occurrences import name_span
from validator.drift.names.spread import Spread, Unnamed
from validator.drift.names.texts import Texts
from validator.drift.names.unheard import Unheard, UnheardNames
from validator.drift.names.written_json import Misnamed, WrittenKeys
from validator.drift.settings.unknown_choices import UnknownChoice, UnknownChoices
from validator.finding import Finding, Related
from validator.rule import Rule

RULE = Rule("MP908", "text-left-behind", "warning", stable_since="0.2.0", languages=("python", "shell"))

_SHOWN = 8  # places of one cause


def check_change(change: Change) -> Iterator[Finding]:
    for row in (*change.analysis(Texts).rows, *change.analysis(UnheardNames).ungiven):
        said = f"`{row.new}` stands nowhere else in the project; it is `{row.old}` before"
        if row.others:
            said = f"`{row.new}` was `{row.old}` before the change, and still is in {row.others[0][0]}"
        yield RULE.finding(
            row.unit.path,
            row.at,
            said,
            help=f"write `{row.new}` in all places, or `{row.old}` here",
            related=[Related(path, line, f"`{row.old}`") for path, line in row.others[:3]],
            context=f"{row.unit.qualname}:{row.old}>{row.new}",
            severity="warning" if row.sought else "note",
        )
    for stale in change.analysis(Removed).stale:
        option = stale.option
        yield RULE.finding(
            stale.path,
            stale.at,
            f"`{stale.value}` is no choice of `{option.name}` any more since the change",
            help=f"the choices are {', '.join(map(repr, sorted(option.values)))} now",
            related=[Related(option.unit.path, option.at[0], f"the choices of `{option.name}`")],
            context=f"{stale.where}:{option.name}:{stale.value}",
        )
    for marker in change.analysis(Markers).stale:
        yield _marker(marker)
    for unheard in change.analysis(UnheardNames).rows:
        yield _unheard(unheard)
    for unnamed in change.analysis(Spread).unnamed:
        yield _unnamed(unnamed)
    for choice in change.analysis(UnknownChoices).rows:
        yield _unknown(choice)
    for misnamed in change.analysis(WrittenKeys).rows:
        yield _misnamed(misnamed)


def _misnamed(row: Misnamed) -> Finding:
    """A key of JSON on a command line that no code knows."""
    return RULE.finding(
        row.path,
        row.at,
        f"nothing knows `{row.new}`, which was `{row.old}` before the change: that is a parameter of"
        f" `{_shown(row.taker)}`",
        help=f"write `{row.old}`, or rename the parameter",
        related=[Related(row.taker.path, row.taker.facts.name_at[0], f"`{row.taker.name}`")],
        context=f"{row.old}>{row.new}",
    )


def _unknown(row: UnknownChoice) -> Finding:
    """A value of a recipe that no code knows."""
    name, value, taker = row.setting.path[-1], row.setting.value, row.unit.qualname
    return RULE.finding(
        row.path,
        row.setting.value_at,
        f"nothing knows `{value}`, which was `{row.old}` before the change: `{taker}` asks for "
        f"{', '.join(map(repr, row.choices))}, and {'raises' if row.refuses else 'has nothing'} for others",
        help=f"give `{name}` one of these, or let `{taker}` take `{value}`",
        related=[Related(row.unit.path, row.line, f"`{row.old}` is asked for here")],
        context=f"{'.'.join(row.setting.path)}:{row.old}>{value}",
    )


def _unheard(row: Unheard) -> Finding:
    """A value that the change gives under a name which nothing asks for."""
    place, old = row.given.new, row.given.old
    where = f"`{old}` is still asked for in {row.readers[0].path}" if row.readers else ""
    if row.takers:
        where = f"`{old}`, a parameter of `{_shown(row.takers[0])}`, gets nothing here any more"
    elif row.others:
        where = f"{len(row.others)} others of the kind are still given `{old}`"
    related = [Related(each.path, each.at[0], f"`{old}` is asked for here") for each in row.readers[:3]]
    related += [Related(each.path, each.at[0], f"`{old}` is given here") for each in row.others[:3]]
    related += [Related(each.path, each.facts.name_at[0], f"`{each.name}`") for each in row.takers[:3]]
    said = f"nothing asks for `{place.name}`, which was `{old}` before the change"
    if row.is_handed_on:
        said = f"`{place.name}` goes on in a `**`, and was `{old}` before the change"
        where = f"`{old}`, a parameter of `{_shown(row.takers[0])}`, has its default now"
    return RULE.finding(
        place.path,
        name_span(place),
        f"{said}; {where}",
        help=f"write `{old}`, or ask for `{place.name}` where it is taken",
        related=related,
        context=f"{place.unit.qualname if place.unit else ''}:{old}>{place.name}",
    )


def _shown(method: Method) -> str:
    """A function as callers name it: a constructor is its class."""
    return method.cls.name if method.cls is not None and method.name == "__init__" else method.name


def _unnamed(row: Unnamed) -> Finding:
    """A parameter that what fills it calls otherwise."""
    place = row.callee.place
    return RULE.finding(
        place.path,
        row.new.at,
        f"nothing fills `{row.new.name}`, which was `{row.old}` before the change; what is handed on to "
        f"`{row.callee.name}` as a whole has `{row.old}` still",
        help=f"call it `{row.old}`, or rename what fills it, too",
        related=[Related(row.call.unit.path, row.call.at[0], f"`{row.old}` is handed on here")],
        context=f"{row.callee.name}:{row.old}>{row.new.name}",
    )


def _marker(row: Stale) -> Finding:
    first, *more = row.places
    files = {each.path for each in more} - {first.path}
    also = f", and in {len(files)} other file{'' if len(files) == 1 else 's'}" if files else ""
    name = row.new.name
    now = f"`{row.new.text}`" if row.new.op != "true" else f"whether `{row.new.text}` is true"
    return RULE.finding(
        first.path,
        first.at,
        f"`{name}` is given {row.value!r} here{also}, which nothing tells apart since the change: "
        f"`{row.new.unit.qualname}` asked `{row.old.text}`, and asks {now}",
        help=f"give `{name}` the value that means it now, or let {row.value!r} mean it, too",
        related=[
            Related(row.new.unit.path, row.new.at[0], "what is asked now"),
            *(Related(each.path, each.at[0], f"{row.value!r}") for each in more[:_SHOWN]),
        ],
        context=f"{name}:{row.value!r}",
    )


_MARKED = """# before: train.py
import argparse


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save-interval", type=int, default=1000)
    args = parser.parse_args()
    if args.save_interval == -1:
        args.save_interval = 500
    for step in range(1000):
        if step % args.save_interval == 0:
            print("saved")


if __name__ == "__main__":
    main()
# file: train.py
import argparse


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--save-interval", type=int, default=1000)
    args = parser.parse_args()
    {after}
    for step in range(1000):
        if step % args.save_interval == 0:
            print("saved")


if __name__ == "__main__":
    main()
{others}"""

_SCRIPTS = """# file: scripts/small.sh
OPTS="--save-interval 500"
python train.py $OPTS
# file: scripts/base.sh
OPTS=""
OPTS+=" --save-interval {value}"{mark}
python train.py $OPTS
# file: scripts/large.sh
OPTS=""
OPTS+=" --save-interval {value}"
python train.py $OPTS
"""

_KEPT = """# before: rl/saving.py
def prune(paths, keep={default}):
    if keep is None:
        return paths
    return paths[-keep:]
# file: rl/saving.py
def prune(paths, keep=0):
    if keep == 0:
        return paths
    return paths[-keep:]
# file: rl/train.py
from rl.saving import prune


def finish(paths):
    return prune(paths, keep={given}){mark}
"""

_FROZEN = """# before: model.py
def build(config):
    layers = layers_of(config["layers"])
    if config["freeze_part"] == "none":
        return layers
    return [layer.frozen() for layer in layers if layer.name.startswith(config["freeze_part"])]
# file: model.py
def build(config):
    layers = layers_of(config["layers"])
    if config["freeze_part"] is None:
        return layers
    return [layer.frozen() for layer in layers if layer.name.startswith(config["freeze_part"])]
# file: configs/base.yaml
layers: 12
freeze_part: {given}
"""


def _given(path: str, text: str, old: str, new: str, rest: str, mark: str = "") -> str:
    """A change of one name in a file; `MARK` stands where the name is."""
    before, after = (text.replace("NAME", name) for name in (old, new))
    return f"# before: {path}\n{before.replace('MARK', '')}# file: {path}\n{after.replace('MARK', mark)}{rest}"


_ERROR = "  # error: MP908"

_CONFIGURED = """import transformers

from rl.model import Captioner


def train(args):
    model = transformers.AutoModelForCausalLM.from_pretrained(args.base)
    model.config.tune_projector = args.tune_projector
    model.config.NAME = args.use_start_endMARK
    return Captioner(model)
"""

_CAPTIONER = """# file: rl/model.py
class Captioner:
    def __init__(self, model):
        self.model, self.config = model, model.config

    def tokens(self, ids):
        if getattr(self.config, "use_start_end", False):
            return [1, *ids, 2]
        return ids if getattr(self.config, "tune_projector", False) else ids[1:]
"""

_RECIPE = """depth: 12
width: 64
NAME: 256MARK
"""

_READ = """# file: rl/train.py
import sys

import yaml


def main():
    with open(sys.argv[1]) as file:
        config = yaml.safe_load(file)
    return config["depth"] * config["width"] * config.get("image_size", 224)
# file: recipes/large.yaml
depth: 24
width: 128
image_size: 448
"""

_COLLECTING = """train = dict(
    transform=[
        dict(type="Flip", p=0.5),
        dict(type="Collect", keys=("coord",), NAME=("color", "normal")),MARK
    ],
)
"""

_COLLECT = """# file: data.py
TRANSFORMS = {}


def register(cls):
    TRANSFORMS[cls.__name__] = cls
    return cls


@register
class Collect:
    def __init__(self, keys, **kwargs):
        self.keys, self.kwargs = keys, kwargs

    def __call__(self, row):
        data = {key: row[key] for key in self.keys}
        for name, keys in self.kwargs.items():
            data[name.replace("_keys", "")] = [row[key] for key in keys]
        return data


@register
class Flip:
    def __init__(self, p=0.5):
        self.p = p


def build(config):
    options = dict(config)
    return TRANSFORMS[options.pop("type")](**options)
"""
_OTHERS = "".join(
    f"# file: configs/{name}.py\n{_COLLECTING.replace('NAME', 'feat_keys').replace('MARK', '')}" for name in ("b", "c")
)

_SAMPLED = """class Sampler:
    def __init__(self, model):
        self.model = model

    def sample(self, steps, condition, guidance_scale=1.0, log_every_t=100, **kwargs):
        return self.model(condition, steps, log_every_t) * guidance_scale{more}


def main(model, condition):
    sampler = Sampler(model)
    return sampler.sample(50, condition, NAME=10)MARK
"""

_FILTERED = """import inspect
from dataclasses import asdict, dataclass


@dataclass
class SamplingParams:
    temperature: float = 1.0
    top_k: int = 50
    {field}: float = 0.9
    stop: str = ""


def sample(temperature=1.0, top_k=0, NAME=1.0):MARK
    return temperature * top_k * NAME


def run(params: SamplingParams):
    known = inspect.signature(sample).parameters
    return sample(**{{key: value for key, value in asdict(params).items() if key in known}})
"""

_GENERATING = """# file: rl/__init__.py
# file: rl/trainer.py
class Trainer:
    def __init__(self, actor, micro_train_batch_size=8, micro_rollout_batch_size=8, **generate_kwargs):
        self.sizes = micro_train_batch_size, micro_rollout_batch_size
        self.actor, self.generate_kwargs = actor, generate_kwargs

    def rollout(self, prompts):
        return self.actor.generate(prompts, **self.generate_kwargs)


class RayTrainer(Trainer):
    def __init__(self, *args, remote=None, **kwargs):
        self.remote = remote
        super().__init__(*args, **kwargs)
# before: rl/train.py
from rl.trainer import RayTrainer


def fit(actor, args):
    return RayTrainer(actor, remote=args.remote, micro_train_batch_size=args.size, temperature=0.7)
# file: rl/train.py
from rl.trainer import RayTrainer


def fit(actor, args):
    return RayTrainer(actor, remote=args.remote, {name}=args.size, temperature=0.7){mark}
"""

_SCRIPT = """#!/bin/bash
export NAME=1MARK
python train.py
"""

_ENVIRONMENT = """# file: train.py
import os

print(os.environ.get("USE_FLASH", "0") == "1")
"""

_SPACED = """# before: config.yaml
timestep_spacing: uniform_trailing
{name}: cosine
# file: config.yaml
timestep_spacing: {spacing}
{name}: {schedule}
# file: sampler.py
import sys

import yaml


def make_timesteps(method, steps):
    if method == "uniform":
        return list(range(0, 1000, 1000 // steps))
    elif method == "uniform_trailing":
        return list(range(1000, 0, -1000 // steps))
    else:
        raise NotImplementedError(f"no method {{method}}")


def make_betas(beta_schedule):
    if beta_schedule in ("linear", "cosine"):
        return beta_schedule
    raise ValueError(beta_schedule)


def main():
    with open(sys.argv[1]) as file:
        config = yaml.safe_load(file)
    return sample(**config)


def sample(steps=50, **options):
    timesteps = make_timesteps(options["timestep_spacing"], steps)
    return timesteps, make_betas(options["{name}"])
"""

_SEARCHED = """# before: sweep.yaml
lr:
  strategy: choice
  values: [1, 2]
# file: sweep.yaml
lr:
  strategy: {now}
  values: [1, 2]
# file: sweep.py
import sys

import yaml


def space_of(value):
    strategy = value["strategy"]
    if strategy == "choice":
        return ("any", value["values"])
    elif strategy == "grid":
        return ("all", value["values"]){more}


def main():
    with open(sys.argv[1]) as file:
        config = yaml.safe_load(file)
    return {{key: space_of(value) for key, value in config.items()}}
"""

_SCORED = """# before: run.sh
python main.py kwargs='{{"max_length":20480,"overlong_buffer_length":4096}}'
# file: run.sh
python main.py kwargs='{{"max_length":20480,"{name}":4096}}'{mark}
# file: score.py
def compute_score(rows, max_length, overlong_buffer_length):
    return [row[: max_length - overlong_buffer_length] for row in rows]
# file: main.py
import json
import sys
from functools import partial

from score import compute_score


def main(rows):
    given = json.loads(sys.argv[1].partition("=")[2])
    return partial(compute_score, **given)(rows{more})
"""

_METRICS = """# before: train.py
import json


def resumed(folder):
    with open(folder / "metrics.json") as file:
        return json.load(file).get("counter", 0)
# file: train.py
import json


def resumed(folder):
    with open(folder / "metrics.json") as file:
        return json.load(file).get("{key}", 0){mark}
# before: save.py
import json


def save(folder, trainer):
    with open(folder / "metrics.json", "w") as file:
        json.dump({{"counter": trainer.example_counter}}, file)
# file: save.py
import json


def save(folder, trainer):
    with open(folder / "metrics.json", "w") as file:
        json.dump({{"{written}": trainer.example_counter}}, file)
"""

_NAMED_STATE = """# before: train.py
def resumed(state, domain):
    return state.get(f"scheduler_state_{{domain}}", None)
# file: train.py
def resumed(state, domain):
    return state.get(f"{key}", None){mark}
# file: save.py
def save(state, domain, scheduler):
    state[f"scheduler_state_{{domain}}"] = scheduler.state()
"""

_SENT = """# file: recipe.yaml
schedule:
  rounds: 3
# file: schedule.py
class Scheduler:
    def __init__(self, rounds=1):
        self.last = rounds
{more}
# before: trainer.py
def send(batch, scheduler):
    batch.meta_info["max_rounds"] = scheduler.last
    return batch
# file: trainer.py
def send(batch, scheduler):
    batch.meta_info["{name}"] = scheduler.last{mark}
    return batch
# file: rollout.py
def generate(model, prompts):
    return [model(prompts) for _ in range(prompts.meta_info.get("max_rounds", 10))]
# file: report.py
def measures(scheduler):
    return {{"max_rounds": scheduler.last}}
"""

_NORMED = """# before: actor.yaml
actor:
  norm: batch_norm
# file: actor.yaml
actor:
  norm: {value}{mark}
# file: actor.py
class Actor:
    def __init__(self, config):
        self.config = config

    def returns(self, rewards):
        if self.config.norm == "batch_norm":
            rewards = rewards / rewards.abs().max()
        return rewards
"""

_EXCLUDED = """\
# before: schedule.py
class Schedule:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self, decay):
        for group in self.optimizer.param_groups:
            if ("WD_exclude" not in group) or not group["WD_exclude"]:
                group["weight_decay"] = decay
# file: schedule.py
class Schedule:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def step(self, decay):
        for group in self.optimizer.param_groups:
            if not group.get("wd_exclude", False):{mark}
                group["weight_decay"] = decay
# file: optim.py
import torch


def make(model, biases):
    groups = [{{"params": model.parameters()}}, {{"params": biases, {put}, "weight_decay": 0}}]
    return torch.optim.AdamW(groups)
"""

_RESUMED = """\
# before: save.py
def save(engine, folder, epoch):
    engine.save_checkpoint(f"{folder}/state_{epoch}")
# file: save.py
def save(engine, folder, epoch):
    engine.save_checkpoint(f"{folder}/epoch_{epoch}"){mark}
# file: resume.py
import os
import re


def newest(folder):
    found = [re.match(r"{prefix}(\\d+)", name) for name in os.listdir(folder)]
    return max(int(each.group(1)) for each in found if each)
"""

_VALIDATED = """\
# before: trainer.py
def validate(prompts, args):
    prompts.info["val_temperature"] = args.val_temperature
    return {"temperature": args.temperature, "top_p": args.top_p}
# file: trainer.py
def validate(prompts, args):
    prompts.info["temperature"] = args.val_temperature{mark}
    return {"temperature": args.temperature, "top_p": args.top_p}
# file: rollout.py
def generate(prompts, options):
    options["temperature"] = prompts.info["{asked}"]
    return options
"""

_PREFIXED = """# before: save.py
import torch


def save(model, optimizer, epoch):
    kept = {{"epoch_": model.state_dict(), "optimizer_": optimizer.state_dict()}}
    for prefix in kept:
        torch.save(kept[prefix], prefix + f"{{epoch}}.pt")


def resume(optimizer, path):
    optimizer.load_state_dict(torch.load(path.replace("epoch_", "optimizer_")))
# file: save.py
import torch


def save(model, optimizer, epoch):
    kept = {{"epoch_": model.state_dict(), "optim_": optimizer.state_dict()}}{mark}
    for prefix in kept:
        torch.save(kept[prefix], prefix + f"{{epoch}}.pt")


def resume(optimizer, path):
    optimizer.load_state_dict(torch.load(path.replace("epoch_", "{read}_")))
"""

INCORRECT = (
    # an attribute of a library's object, which the project alone reads, with a default
    _given("rl/train.py", _CONFIGURED, "use_start_end", "start_end_tokens", _CAPTIONER, _ERROR),
    # one of two recipes
    _given("recipes/small.yaml", _RECIPE, "image_size", "resolution", _READ, _ERROR),
    # what all others of the kind are given; the class takes whatever it gets
    _given("configs/a.py", _COLLECTING, "feat_keys", "feature_keys", _COLLECT + _OTHERS, _ERROR),
    # a keyword that is lost in the `**` of a method
    _given("sampling.py", _SAMPLED.replace("{more}", ""), "log_every_t", "verbose_steps", "", _ERROR),
    # a parameter that a field fills, by a call that leaves out what is not taken
    _given("sampling.py", _FILTERED.format(field="top_p"), "top_p", "nucleus", "", _ERROR),
    _given("run.sh", _SCRIPT, "USE_FLASH", "FLASH_KERNEL", _ENVIRONMENT, _ERROR),
    # a special value that is another one now; scripts give the old one
    _MARKED.format(
        after="if args.save_interval == 0:\n        args.save_interval = 500",
        others=_SCRIPTS.format(value=-1, mark="  # error: MP908"),
    ),
    # whether it is true decides now
    _MARKED.format(
        after="args.save_interval = args.save_interval or 500",
        others=_SCRIPTS.format(value=-1, mark="  # error: MP908"),
    ),
    # a parameter
    _KEPT.format(default=None, given=None, mark="  # error: MP908"),
    # what an object is made with
    """# before: rl/trainer.py
class Trainer:
    def __init__(self, limit=None):
        self.limit = limit

    def run(self, rows):
        if self.limit == -1:
            return rows
        return rows[: self.limit]
# file: rl/trainer.py
class Trainer:
    def __init__(self, limit=None):
        self.limit = limit

    def run(self, rows):
        if self.limit is None:
            return rows
        return rows[: self.limit]
# file: rl/train.py
from rl.trainer import Trainer


def train(rows):
    return Trainer(limit=-1).run(rows)  # error: MP908
""",
    # a file of settings
    _FROZEN.format(given="none  # error: MP908"),
    # asked for under the one name, looked up under the other
    """# before: rl/hosts.py
import os


def hosts(default):
    if "CLUSTER_HOSTFILE" in os.environ:
        return os.environ["CLUSTER_HOSTFILE"]
    return default
# file: rl/hosts.py
import os


def hosts(default):
    if "CLUSTER_HOSTFILE" in os.environ:
        return os.environ["CLUSTER_HOST_FILE"]  # error: MP908
    return default
""",
    # a choice that one long function asks for in several places, by its old name in one of them
    """# before: rl/train.py
def main(args, model, save, load):
    if args["train_type"] in ["lora", "bnb_dora"]:
        model = load(model)
    dora = args["train_type"] in ["hqq_dora", "bnb_dora"]
    if args["train_type"] in ["custom_lora", "bnb_dora"]:
        save(model, dora)
# file: rl/train.py
def main(args, model, save, load):
    if args["train_type"] in ["lora", "qdora"]:  # error: MP908
        model = load(model)
    dora = args["train_type"] in ["hqq_dora", "qdora"]
    if args["train_type"] in ["custom_lora", "bnb_dora"]:
        save(model, dora)
""",
    # the old key of a registry; the new one is a part of it, and no name by itself
    """# file: rl/__init__.py
# before: rl/registry.py
STRATEGIES = {
    "fsdp-shard-grad-op": 2,
    "fsdp-full-shard": 3,
}
# file: rl/registry.py
STRATEGIES = {
    "fsdp-shard-grad": 2,  # error: MP908
    "fsdp-full-shard": 3,
}
# file: rl/presets.py
class Preset:
    align_strategy = "fsdp-shard-grad-op"
""",
    """# before: rl/saving.py
def save(write, rank, states):
    write(f"optimizer_tp{rank}_zo0.pt", states)


def load(read, rank):
    return read(f"optimizer_tp{rank}_zo0.pt")
# file: rl/saving.py
def save(write, rank, states):
    write(f"optimizer_tp{rank}_zero0.pt", states)  # error: MP908


def load(read, rank):
    return read(f"optimizer_tp{rank}_zo0.pt")
""",
    """# before: rl/cache.py
def embedded(read, write, path, made):
    if path.exists():
        return read(path)["prompt_embedding"]
    write({"prompt_embedding": made}, path)
    return made
# file: rl/cache.py
def embedded(read, write, path, made):
    if path.exists():
        return read(path)["prompt_embedding"]
    write({"prompt_embeds": made}, path)  # error: MP908
    return made
""",
    """# before: rl/loss.py
def centred(config, x):
    if config.centering == "sinkhorn_knopp":
        return x - 1
    raise NotImplementedError
# file: rl/loss.py
def centred(config, x):
    if config.centering == "sinkhorn":  # error: MP908
        return x - 1
    raise NotImplementedError
# before: small.yaml
centering: sinkhorn_knopp
# file: small.yaml
centering: sinkhorn
# file: large.yaml
centering: sinkhorn_knopp
""",
    """# before: rl/options.py
def add(parser):
    parser.add_argument("--dataloader-type", choices=["single", "cyclic"])
# file: rl/options.py
def add(parser):
    parser.add_argument("--dataloader-type", choices=["single", "random"])
# file: rl/vision.py
DEFAULTS = {"dataloader_type": "cyclic", "other": 1}  # error: MP908
""",
    """# before: rl/saving.py
import os


def save(folder, tag):
    with open(os.path.join(folder, "latest_checkpoint.txt"), "w") as file:
        file.write(tag)
# file: rl/saving.py
import os


def save(folder, tag):
    with open(os.path.join(folder, "latest_step.txt"), "w") as file:  # error: MP908
        file.write(tag)
# file: rl/loading.py
import os


def load(folder):
    with open(os.path.join(folder, "latest_checkpoint.txt")) as file:
        return file.read()
""",
    """# before: rl/train.py
class Config:
    def __init__(self):
        self.loss_mask = None


def masked(config, loss):
    return loss * config.loss_mask
# file: rl/train.py
class Config:
    def __init__(self):
        self.loss_mask = None


def masked(config, loss):
    return loss * config.loss_masks  # error: MP908
""",
    # a keyword that a `**` carries to a library now, in place of a parameter of the class
    _GENERATING.format(name="train_micro_batch_size", mark="  # error: MP908"),
    # a value of a recipe that the function which asks for it does not know; one word, of what is called alike
    _SPACED.format(name="beta_schedule", spacing="trailing  # error: MP908", schedule="cosine"),
    _SPACED.format(name="beta_schedule", spacing="uniform_trailing", schedule="squared  # error: MP908"),
    # code that has nothing for what it does not know
    _SEARCHED.format(now="grid_search  # error: MP908", more=""),
    # a key on a command line
    _SCORED.format(name="overlong_buffer_len", mark="  # error: MP908", more=""),
    # a key of a file that the program writes
    _METRICS.format(key="example_counter", mark="  # error: MP908", written="counter"),
    # an f-string whose parts stand in another order
    _NAMED_STATE.format(key="{domain}_scheduler_state", mark="  # error: MP908"),
    # a word that parameters and recipes have for other things
    _SENT.format(name="rounds", mark="  # error: MP908", more=""),
    # who writes and who reads again have the new name, a third place has the old one
    """# before: rl/saving.py
def path(folder, rank, ranks):
    return f"{folder}/model_world_size_{ranks}_rank_{rank}.pt"


def old_path(folder, rank, ranks):
    return f"{folder}/model_world_size_{ranks}_rank_{rank}.pt"
# file: rl/saving.py
def path(folder, rank, ranks):
    return f"{folder}/model_rank_{rank}_of_{ranks}.pt"  # error: MP908


def old_path(folder, rank, ranks):
    return f"{folder}/model_rank_{rank}_of_{ranks}.pt"
# file: tools/merge.py
def shards(folder, size):
    return [f"{folder}/model_world_size_{size}_rank_{rank}.pt" for rank in range(size)]
""",
    # a value that is only compared, and not with this one
    _NORMED.format(value="batch", mark="  # error: MP908"),
    # the same word, spelled otherwise
    _EXCLUDED.format(mark="  # error: MP908", put='"WD_exclude": True'),
    # a name with a number, for which a pattern looks
    _RESUMED.replace("{prefix}", "state_").replace("{mark}", "  # error: MP908"),
    # a key that was the name of its value
    _VALIDATED.replace("{asked}", "val_temperature").replace("{mark}", "  # error: MP908"),
    # with which the names of files begin
    _PREFIXED.format(read="optimizer", mark="  # error: MP908"),
)
CORRECT = (
    # who asks was changed, too, or asks for both
    _given("rl/train.py", _CONFIGURED, "use_start_end", "start_end_tokens", _CAPTIONER.replace("use_st", "st")).replace(
        '"start_end"', '"start_end_tokens"'
    ),
    _given(
        "rl/train.py",
        _CONFIGURED,
        "use_start_end",
        "start_end_tokens",
        _CAPTIONER.replace('"use_start_end", False', '"start_end_tokens", getattr(self.config, "use_start_end", 0)'),
    ),
    # nothing but the library reads it
    _given("rl/train.py", _CONFIGURED, "use_start_end", "start_end_tokens", _CAPTIONER.replace("use_start", "at")),
    _given(
        "recipes/small.yaml",
        _RECIPE,
        "image_size",
        "resolution",
        _READ.replace('config.get("image_size", 224)', 'config.get("image_size", config.get("resolution", 224))'),
    ),
    # the others of this name are for another class
    _given("configs/a.py", _COLLECTING, "feat_keys", "color_keys", _COLLECT + _OTHERS.replace('"Collect"', '"Gather"')),
    _given(
        "sampling.py",
        _SAMPLED.replace("{more}", ' * kwargs.get("verbose_steps", 1)'),
        "log_every_t",
        "verbose_steps",
        "",
    ),
    _given("sampling.py", _FILTERED.format(field="NAME"), "top_p", "nucleus", ""),
    _given("run.sh", _SCRIPT, "NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", _ENVIRONMENT),
    # a special value that is another one now, in the scripts too
    _MARKED.format(
        after="if args.save_interval == 0:\n        args.save_interval = 500",
        others=_SCRIPTS.format(value=0, mark=""),
    ),
    # the new test holds for the old one as well
    _MARKED.format(
        after="if args.save_interval <= 0:\n        args.save_interval = 500",
        others=_SCRIPTS.format(value=-1, mark=""),
    ),
    # another function of the project tells the old value apart
    _MARKED.format(
        after="if args.save_interval == 0:\n        args.save_interval = interval(args)",
        others=_SCRIPTS.format(value=-1, mark="")
        + """# file: intervals.py
def interval(args):
    return 500 if args.save_interval == -1 else args.save_interval
""",
    ),
    # the change makes the new one of the old one
    _MARKED.format(
        after="if max(args.save_interval, 0) == 0:\n        args.save_interval = 500",
        others=_SCRIPTS.format(value=-1, mark=""),
    ),
    # the script starts another program
    _MARKED.format(
        after="if args.save_interval == 0:\n        args.save_interval = 500",
        others=_SCRIPTS.format(value=-1, mark="").replace("train.py", "other/evaluate.py"),
    ),
    # what is not given may be 0 since the change
    _MARKED.replace("args.save_interval == -1", "args.save_interval").format(
        after="if args.save_interval is not None:\n        args.save_interval = 500",
        others=_SCRIPTS.format(value=0, mark=""),
    ),
    # one of several numbers, which has its meaning without the test
    _MARKED.replace("args.save_interval == -1", "args.save_interval == 100").format(
        after="if args.save_interval == 200:\n        args.save_interval = 500",
        others=_SCRIPTS.format(value=100, mark=""),
    ),
    _KEPT.format(default=None, given=0, mark=""),
    _FROZEN.format(given="null"),
    # the new text is the name of a field, which the change renamed
    """# before: rl/center.py
from dataclasses import dataclass


@dataclass
class Arguments:
    model_path_public: str = ""


def repository(kwargs):
    return kwargs["model_path_public"].split("/")[-1]
# file: rl/center.py
from dataclasses import dataclass


@dataclass
class Arguments:
    backbone_path_public: str = ""


def repository(kwargs):
    return kwargs["backbone_path_public"].split("/")[-1]
# file: rl/recipes.py
RECIPE = {"model_path_public": "t5-base"}
""",
    # who takes the new text has it of the change too
    """# before: rl/workers.py
def work(pipe, agent):
    task = pipe.recv()
    if task == "record_step":
        agent.record()
    elif task == "act":
        agent.act()
    pipe.close()


def train(pipes):
    for pipe in pipes:
        pipe.send({"task": "record_step"})


def evaluate(pipes):
    for pipe in pipes:
        pipe.send({"task": "record_step"})
# file: rl/workers.py
def work(pipe, agent):
    task = pipe.recv()
    if task == "record_step":
        agent.record()
    elif task == "act":
        agent.act()
    elif task == "eval_record_step":
        agent.record_only()
    pipe.close()


def train(pipes):
    for pipe in pipes:
        pipe.send({"task": "record_step"})


def evaluate(pipes):
    for pipe in pipes:
        pipe.send({"task": "eval_record_step"})
""",
    """# before: rl/report.py
def report(metrics, step):
    metrics.record("perf/tokens_per_step", step)


def other(metrics, step):
    metrics.record("perf/tokens_per_step", step)
# file: rl/report.py
def report(metrics, step):
    metrics.record("perf/seconds_per_step", step)


def other(metrics, step):
    metrics.record("perf/tokens_per_step", step)
""",
    """# before: rl/saving.py
def save(folder, tag):
    return folder / "latest_checkpoint.txt", tag
# file: rl/saving.py
def save(folder, tag):
    return folder / "latest_step.txt", tag
# before: rl/loading.py
def load(folder):
    return folder / "latest_checkpoint.txt"
# file: rl/loading.py
def load(folder):
    return folder / "latest_step.txt"
""",
    """# before: rl/report.py
def report(log, loss):
    log("the loss of this step", loss)
# file: rl/report.py
def report(log, loss):
    log("the loss of each step", loss)
# file: rl/other.py
def report(log, loss):
    log("the loss of this step", loss)
""",
    """# before: rl/schedule.py
class Agent:
    def __init__(self, config):
        self.schedule = config.get("schedule", "legacy")
        self.rate = config.get("rate", 1.0)

    def step(self, kl):
        if self.schedule == "legacy":
            self.rate *= kl
# file: rl/schedule.py
class Agent:
    def __init__(self, config):
        self.schedule = config.get("schedule", "per_batch")
        if self.schedule == "legacy":
            self.schedule = "per_batch"
        self.rate = config.get("rate", 1.0)

    def step(self, kl):
        if self.schedule == "per_batch":
            self.rate *= kl
""",
    """# before: rl/vision.py
from megatron.core import parallel_state as mpu


def get_context_parallel_group(mesh):
    return mesh["cp"]


def share(model, size):
    group = mpu.get_context_parallel_group()
    return model(size, group)
# file: rl/vision.py
from megatron.core import parallel_state as mpu


def get_context_parallel_group(mesh):
    return mesh["cp"]


def share(model, size):
    group = mpu.get_tensor_and_context_parallel_group()
    return model(size, group)
""",
    # another parameter, and a name that a library's object has
    _GENERATING.format(name="micro_rollout_batch_size", mark=""),
    _GENERATING.format(name="max_new_tokens", mark=""),
    # another choice; one word, of what is called otherwise
    _SPACED.format(name="beta_schedule", spacing="uniform", schedule="linear"),
    _SPACED.format(name="betas", spacing="uniform", schedule="squared"),
    # a choice that is known; an `else` for all others
    _SEARCHED.format(now="grid", more=""),
    _SEARCHED.format(now="grid_search", more="\n    else:\n        return value"),
    # a name that some code knows
    _SCORED.format(name="overlong_buffer_len", mark="", more=", overlong_buffer_len=1"),
    _METRICS.format(key="example_counter", mark="", written="example_counter"),
    _NAMED_STATE.format(key="scheduler_state_{domain}", mark=""),
    # what the batch carries is spread into a call
    _SENT.format(name="rounds", mark="", more="\n\ndef again(prompts):\n    return Scheduler(**prompts.meta_info)\n"),
    # all places have it
    """# before: rl/saving.py
def path(folder, rank, ranks):
    return f"{folder}/model_world_size_{ranks}_rank_{rank}.pt"


def old_path(folder, rank, ranks):
    return f"{folder}/model_world_size_{ranks}_rank_{rank}.pt"
# file: rl/saving.py
def path(folder, rank, ranks):
    return f"{folder}/model_rank_{rank}_of_{ranks}.pt"


def old_path(folder, rank, ranks):
    return f"{folder}/model_rank_{rank}_of_{ranks}.pt"
# file: tools/merge.py
def shards(folder, size):
    return [f"{folder}/model_rank_{rank}_of_{size}.pt" for rank in range(size)]
""",
    # the step is switched off
    _NORMED.format(value="none", mark=""),
    # in both places
    _EXCLUDED.format(mark="", put='"wd_exclude": True'),
    _RESUMED.replace("{prefix}", "epoch_").replace("{mark}", ""),
    _VALIDATED.replace("{asked}", "temperature").replace("{mark}", ""),
    # names of something else
    """\
# before: save.py
def save(engine, folder, epoch, writer):
    engine.save_checkpoint(f"{folder}/state_{epoch}")
    writer.add_scalar(f"layer_{epoch}", 1.0)
# file: save.py
def save(engine, folder, epoch, writer):
    engine.save_checkpoint(f"{folder}/epoch_{epoch}")
    writer.add_scalar(f"block_{epoch}", 1.0)
# file: loader.py
import os
import re


def keep(loader, folder, step):
    loader.save(f"{folder}/loader/state_{step}")


def newest(folder):
    found = [re.match(r"state_(\\d+)", name) for name in os.listdir(f"{folder}/loader")]
    return max(int(each.group(1)) for each in found if each)


def layer(name):
    return int(re.search(r"layer_(\\d+)-model", name).group(1))
""",
    _PREFIXED.format(read="optim", mark=""),
)

"""A name that a change removed or renamed and that is still asked for.

What it does
    Compares the project before and after a change. Reports where a function, a method, an attribute, a field, a key, an
    option or a setting is still asked for under a name whose last definition the change took away: in code, in
    `getattr` (with a default only where the new name is known and not asked for beside it), in a text that reaches a
    `hasattr` while nothing asks for the option by its new name, in a text that leads to something in a module
    (`"pkg.nodes:Worker.run"`) or reaches a `getattr` through a dispatcher, in recipes and scripts
    (`reward.buffer.len=8` through the fields of nested data classes), in commands that Python texts and lists spell for
    a program of the project or pages (`README.md`) show, in texts that lead to parameters of a model
    (`"module.encoder.fc"`, `if "fc" in name`).
    Also: a parameter that options or fields filled by its name, handed on as a whole (`Model(**vars(args))`), and a key
    that a dictionary no longer gets while who reads that dictionary, told by a key beside that nothing else has (of a
    file that another program writes, by two), still looks it up, or that only the default of an option names; a
    variable of a function that hands out its `locals()`, where an object that keeps them is asked for it; an attribute
    that others still store on objects of a class which reads it under another name now; a class that a list of names in
    its file still calls as before (`_no_split_modules`), or that a text names with which code compares the name of a
    class; and a key that a file of settings (YAML, JSON, TOML) still has, while all that looked it up before asks for
    another one in its place; and a key that the change took out of a table (a dictionary that is written out under a
    name, a mapping of settings) where it is looked up without a test, also if other places test for it; a variable of a
    shell script that was renamed, and is still read, also where it was a program that handed it to the scripts which it
    starts; and a variable of the environment with a rank in it that no code or script sets any more and all readers
    have a default for. A note where a recipe keeps a setting that nothing reads any more and that has no new name, and
    where a key is looked up whose maker is gone as a whole: what was written before may have it. Places of one file
    without a new name are one finding. Silent where a function asks whether there is a key before it takes its value,
    or tests that the object is of a library's class.

Why is this bad
    AttributeError, KeyError or an unknown option, when the line runs; a setting that nothing reads has no effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from validator.definitions import Method
from validator.drift.change import Change
from validator.drift.names.commands import Commands
from validator.drift.names.neighbours import Company, Stale
from validator.drift.names.occurrences import Occurrence, name_span
from validator.drift.names.parameter_paths import ParameterPaths
from validator.drift.names.removed import Lost, Names
from validator.drift.names.saved_keys import Dropped, SavedKeys
from validator.drift.names.shown_locals import LostVariable, ShownLocals
from validator.drift.names.spread import Spread, Unfilled
from validator.drift.names.tables import Missing, Tables
from validator.drift.names.targets import Targets
from validator.drift.settings.asked_settings import AskedSettings
from validator.drift.settings.script_variables import LostInScript, ScriptVariables
from validator.finding import Edit, Finding, Fix, Related, Span
from validator.rule import Rule

if TYPE_CHECKING:
    import libcst as cst

RULE = Rule("MP901", "name-left-behind", "warning", stable_since="0.2.0", fix="unsafe")

_SHOWN = 8  # places of one cause
_KINDS = {
    "function": "function", "class": "class", "variable": "name", "attribute": "attribute", "key": "key",
    "field": "field", "option": "option", "setting": "setting",
}  # fmt: skip


def check_change(change: Change) -> Iterator[Finding]:
    names = change.analysis(Names)
    seen = set()
    told = (names.lost, names.members, names.imports)
    led = (change.analysis(each).lost for each in (Targets, Commands, ParameterPaths, AskedSettings))
    for lost in chain(*told, *led):
        by_file: dict[tuple[str, object], list[Occurrence]] = {}
        for place in lost.stale:
            if (place.path, place.at, lost.name) not in seen:
                seen.add((place.path, place.at, lost.name))
                at = place.at if lost.renamed else None  # a rename is finished in each place
                by_file.setdefault((place.path, at), []).append(place)
        for places in by_file.values():
            yield _report(change, lost, *sorted(places, key=lambda each: each.at))
    for row in change.analysis(Spread).unfilled:
        yield _unfilled(row)
    for dropped in change.analysis(SavedKeys).dropped:
        yield _dropped(dropped)
    for variable in change.analysis(ShownLocals).lost:
        if (variable.place.path, variable.place.at, variable.name) not in seen:
            yield _variable(variable)
    taken: dict[tuple[str, str, str], list[Missing]] = {}
    for missing in change.analysis(Tables).missing:
        taken.setdefault((missing.table.name, missing.key, missing.place.path), []).append(missing)
    for gone in taken.values():
        yield _missing(*gone)
    causes: dict[tuple[str, str, str], list[Stale]] = {}
    for stale in change.analysis(Company).stale:
        place = stale.place if stale.lost.renamed else None  # a rename is finished in each place
        key = (stale.owner.name, stale.lost.name, f"{place.path}:{place.at}" if place is not None else "")
        causes.setdefault(key, []).append(stale)
    for rows in causes.values():
        yield _setting(change, *rows)
    for unset in change.analysis(ScriptVariables).lost:
        yield _unset(unset)


def _unset(row: LostInScript) -> Finding:
    """A variable of a script that nothing sets any more."""
    instead = (
        f"{row.setter} hands on `{row.renamed}` in its place" if row.setter else "it is empty here, and 0 in arithmetic"
    )
    return RULE.finding(
        row.path,
        row.at,
        f"nothing sets `{row.name}` since the change: {instead}",
        help=f"read `{row.renamed}`, which {'is' if row.setter else 'the script'} set{'' if row.setter else 's'} now",
        related=[Related(row.path, at[0], "read here too") for at in row.others[:3]],
        context=row.name,
    )


def _setting(change: Change, stale: Stale, *more: Stale) -> Finding:
    lost, place, owner = stale.lost, stale.place, stale.owner
    shown = owner.name if owner.kind in ("parser", "dictionary") else f"`{owner.name}`"
    new = f"; it is `{lost.renamed}` now" if lost.renamed else ""
    files = f", and in {len(more)} other file{'' if len(more) == 1 else 's'}" if more else ""
    return RULE.finding(
        place.path,
        name_span(place),
        f"{shown} has no `{lost.name}` since the change, which still stands here{files} beside others of it{new}",
        help=f"write `{lost.renamed}`" if lost.renamed else "leave it out",
        related=[
            Related(owner.path, owner.at[0], f"{shown} as it is now"),
            *(Related(each.place.path, each.place.at[0], "here too") for each in more[:_SHOWN]),
        ],
        fix=_setting_fix(change, lost, place) if lost.renamed and place.unit is None else None,
        context=f"{owner.name}:{lost.name}>{lost.renamed}",
        severity="note" if stale.is_idle else None,
    )


def _report(change: Change, lost: Lost, place: Occurrence, *more: Occurrence) -> Finding:
    new = f"; it is `{lost.renamed}` now" if lost.renamed else ""
    related = [Related(lost.old.path, lost.old.at[0], f"`{lost.name}` was defined here before the change")]
    if lost.new is not None:
        related = [Related(lost.new.path, lost.new.at[0], f"`{lost.renamed}`, which takes its place")]
    related += [Related(each.path, each.at[0], "it is asked for here too") for each in more[:_SHOWN]]
    return RULE.finding(
        place.path,
        name_span(place),
        _text(lost, place) + new,
        help=_help(change, lost, place),
        related=related,
        fix=_setting_fix(change, lost, place) if place.unit is None and lost.renamed else None,
        context=f"{place.unit.qualname if place.unit else ''}:{lost.name}>{lost.renamed}",
        severity="note" if lost.kept else None,
    )


def _unfilled(row: Unfilled) -> Finding:
    lost, callee, place = row.lost, row.callee, row.lost.stale[0]
    assert place.unit is not None
    new = f"; it is `{lost.renamed}` now" if lost.renamed else ""
    at = callee.place.facts.name_at if isinstance(callee.place, Method) else callee.place.facts.at
    return RULE.finding(
        place.path,
        place.at,
        f"`{callee.name}` takes `{lost.name}` from what is handed on here, which has no {_KINDS[lost.kind]} of that "
        f"name since the change{new}",
        help=f"pass `{lost.name}=` as well, or let `{callee.name}` take the new name",
        related=[
            Related(lost.new.path, lost.new.at[0], f"`{lost.renamed}`, which takes its place")
            if lost.new is not None
            else Related(lost.old.path, lost.old.at[0], f"`{lost.name}` was defined here before the change"),
            Related(callee.place.path, at[0], f"`{callee.name}`"),
        ],
        context=f"{place.unit.qualname}:{callee.name}:{lost.name}",
    )


def _dropped(row: Dropped) -> Finding:
    place, made = row.place, row.made
    assert place.unit is not None
    does = f"`{made.unit.qualname}` puts"
    if made.is_written:
        does = f"`{made.unit.qualname}` in {made.unit.path} writes"
    return RULE.finding(
        place.path,
        place.at,
        f"{does} no `{row.key}` beside `{row.beside}` since the change; both are looked up here",
        help=f"put `{row.key}` there again, or do not ask for it",
        related=[Related(made.unit.path, made.unit.at(made.unit.code.values[made.number].at)[0], "the dictionary")],
        context=f"{place.unit.qualname}:{row.key}>",
    )


def _variable(row: LostVariable) -> Finding:
    place, unit = row.place, row.unit
    assert place.unit is not None
    return RULE.finding(
        place.path,
        place.at,
        f"`{unit.qualname}` has no variable `{row.name}` since the change, which is asked for here in the `locals()` "
        f"that it passes to `{row.shown.method}`",
        help=f"call the variable `{row.name}`, or ask for it by the name that it has now",
        related=[Related(unit.path, unit.code.at[0], f"`{unit.qualname}` as it is now")],
        context=f"{place.unit.qualname}:{row.name}>",
    )


def _missing(row: Missing, *more: Missing) -> Finding:
    place, table = row.place, row.table
    assert place.unit is not None
    return RULE.finding(
        place.path,
        place.at,
        f"`{table.name}` has no `{row.key}` since the change, which is looked up here",
        help=f"put `{row.key}` there again, or test for it first",
        related=[
            Related(table.path, table.at[0], f"`{table.name}` as it is now"),
            *(Related(each.place.path, each.place.at[0], "it is looked up here too") for each in more[:_SHOWN]),
        ],
        context=f"{place.unit.qualname}:{row.key}>",
    )


def _text(lost: Lost, place: Occurrence) -> str:
    if place.role == "defines" and place.kind == "attribute":
        return f"`{lost.name}` is still set here, and nothing reads it since the change"
    if place.kind == "setting" and lost.old.role != "defines":
        return f"nothing reads the setting `{lost.name}` since the change"
    if place.kind == "flag" and lost.kind == "option":
        return f"what this command starts has no option `--{lost.name}` since the change"
    if lost.kind == "path":
        return f"no module keeps anything under `{lost.name}` since the change, by which this looks for parameters"
    if place.kind == "import":
        return f"the module that `{lost.name}` is imported from does not have it since the change"
    return f"the change left nothing that defines the {_KINDS[lost.kind]} `{lost.name}`, which is still asked for"


def _help(change: Change, lost: Lost, place: Occurrence) -> str:
    if lost.renamed:
        return f"ask for `{lost.renamed}`"
    if place.kind == "import":
        there = [each for each in change.after.methods.get(lost.name, ()) if each.qualname == lost.name]
        if len(there) == 1:
            return f"import it from `{there[0].module.name}`"
    return "ask for what takes its place, or define it again"


def _setting_fix(change: Change, lost: Lost, place: Occurrence) -> Fix | None:
    """The new name in a recipe or a script, spelled with dashes where the old one is."""
    line, column, end_line, end_column = place.at
    source = change.after.project.files.get(place.path)
    lines = source.lines if source is not None else []  # of a page: whoever wrote it writes it anew
    if line != end_line or line > len(lines):
        return None
    text = lines[line - 1][column - 1 : end_column - 1]
    if place.kind in ("flag", "override"):
        text = text.partition("=")[0]
    found = list(re.finditer(rf"(?<!\w){'[-_]'.join(map(re.escape, lost.name.split('_')))}(?!\w)", text))
    if not found:
        return None  # spelled otherwise, with an escape
    at = found[-1]
    new = lost.renamed.replace("_", "-") if "-" in at[0] else lost.renamed
    span = Span(line, column + at.start(), line, column + at.end())
    return Fix("unsafe", f"write `{new}`", (Edit(span, new),))


def fix(node: cst.CSTNode, finding: Finding) -> cst.CSTNode | None:
    """The name that takes its place: of an attribute, or in a text."""
    import libcst as cst

    old, _, new = finding.context.rpartition(":")[2].partition(">")
    if not new:
        return None
    if isinstance(node, cst.Name) and node.value == old:
        return node.with_changes(value=new)
    if isinstance(node, cst.Attribute) and node.attr.value == old:
        return node.with_changes(attr=cst.Name(new))
    if isinstance(node, cst.SimpleString) and node.raw_value == old:
        return node.with_changes(value=node.value.replace(old, new))
    return None


_PATHS = """# before: model.py
import torch.nn as nn


class Siamese(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.predictor = nn.Linear(8, 8)

    def forward(self, x):
        return self.predictor(self.encoder(x))
# file: model.py
import torch.nn as nn


class Siamese(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.backbone = encoder
        self.predictor = nn.Linear(8, 8)

    def forward(self, x):
        return self.predictor(self.backbone(x))
# file: probe.py
def weights(state):
    return {{key: value for key, value in state.items() if key.startswith("{path}")}}{mark}
"""

_FROZEN = (
    _PATHS[: _PATHS.index("# file: probe.py")]
    + """# file: tune.py
def freeze(model):
    for name, parameter in model.named_parameters():
        if "{part}" in name:{mark}
            parameter.requires_grad = False
"""
)

_MEASURES = """# before: measures.py
def measure(errors):
    metrics = {{}}
    metrics["avgerr"] = sum(errors) / len(errors)
    metrics["worst"] = max(errors)
    return metrics
# file: measures.py
def measure(errors):
    metrics = {{}}
    metrics["mean_error"] = sum(errors) / len(errors)
    metrics["worst"] = max(errors)
    return metrics
# file: train.py
import argparse

from measures import measure

parser = argparse.ArgumentParser()
parser.add_argument("--best", default="{default}"){mark}
args = parser.parse_args()
print(measure([1.0, 2.0])[args.best])
"""

_SETTINGS = """# before: train.py
import json

import torch


class Config(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


def train(path, model, batches):
    with open(path) as file:
        h = Config(json.load(file))
    optim = torch.optim.AdamW(model.parameters(), h.learning_rate)
    for step, batch in enumerate(batches):
        model(batch).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), {old})
        optim.step()
        if step % h.log_interval == 0:
            print(step)
# file: train.py
import json

import torch


class Config(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


def train(path, model, batches):
    with open(path) as file:
        h = Config(json.load(file))
    optim = torch.optim.AdamW(model.parameters(), h.learning_rate)
    for step, batch in enumerate(batches):
        model(batch).mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), {new})
        optim.step()
        if step % h.log_interval == 0:
            print(step)
{files}"""

_OF_BASE = """# before: configs/base.json
{"learning_rate": 0.001, "log_interval": 100, "clip_grad_norm": 500}
# file: configs/base.json
{"learning_rate": 0.001, "log_interval": 100, "max_grad_norm": 500}
"""

_OF_LARGE = """# file: configs/large.json
{
    "learning_rate": 0.0001,
    "log_interval": 100,
    "clip_grad_norm": 100MARK
}
"""

_RESUMED = """# before: rl/data/samplers.py
class Batches:
    def __init__(self, count):
        self.count = count
        self.start_iter = 0

    def __iter__(self):
        yield from range(self.start_iter, self.count)
# file: rl/data/samplers.py
class Batches:
    def __init__(self, count):
        self.count = count
        self.resume_step = 0

    def __iter__(self):
        yield from range(self.resume_step, self.count)
# file: rl/data/loaders.py
from torch.utils.data import DataLoader
from rl.data.samplers import Batches


def loaders(rows):
    train = DataLoader(rows, batch_sampler=Batches(len(rows)))
    return train, None
# file: rl/other.py
class Window:
    def __init__(self):
        self.start_iter = 3

    def first(self):
        return self.start_iter
# file: rl/train.py
from rl.data.loaders import loaders
from rl.other import Window


def train(rows, step):
    train_data, _ = loaders(rows)
    {stored} = step{mark}
    return list(train_data), Window().first()
"""

_WRAPPED = """# before: rl/model.py
from torch import nn


class Policy(nn.Module):
    _no_split_modules = ["EncoderLayer"]

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([EncoderLayer() for _ in range(4)])


class EncoderLayer(nn.Module):
    pass
# file: rl/model.py
from torch import nn


class Policy(nn.Module):
    _no_split_modules = ["{listed}"]{mark}

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(4)])


class Block(nn.Module):
    pass
"""

_WEIGHTS = """# before: config.py
class Config:
    def __init__(self, task):
        self.rate = 0.1
        self.weights = {{"mae": 30, "ssim": 10}} if task == "image" else {{"mae": 3, "ssim": 1}}
# file: config.py
class Config:
    def __init__(self, task):
        self.rate = 0.1
        self.weights = {{"ssim": 10}} if task == "image" else {{"mae": 3, "ssim": 1}}{set}
# file: train.py
from config import Config


def loss(config, error):
    if "mae" in config.weights:
        error = error * config.weights["mae"]
    return error


def train(epochs, task, error):
    config = Config(task)
    for epoch in range(epochs):
        if epoch > 3{test}:
            config.weights["mae"] *= 0.9{mark}
        error = loss(config, error)
    return error
"""

_WEIGHTS_OF_RECIPE = """# before: recipe.yaml
rate: 0.1
weights:
  mae: 30
  ssim: 10
# file: recipe.yaml
rate: 0.1
weights:
  ssim: 10
# file: train.py
import yaml


def loss(config, error):
    return error * config["weights"].get("mae", 1)


def main(path, error):
    with open(path) as file:
        config = yaml.safe_load(file)
    {first}
    config["weights"]["mae"] *= config["rate"]{mark}
    return loss(config, error)
"""

_SHOWN_LOCALS = """# file: callbacks.py
class Callback:
    def __init__(self):
        self.locals = {{}}

    def update_locals(self, shown):
        self.locals.update(shown)
        self.update_children(shown)

    def update_children(self, shown):
        pass

    def on_step(self):
        return True


class Several(Callback):
    def update_children(self, shown):
        for each in self.callbacks:
            each.update_locals(shown)


class StopOnEpisodes(Callback):
    def on_step(self):
        assert "{asked}" in self.locals
        return sum(self.locals["{asked}"]) < 10{mark}
# before: driver.py
class Driver:
    def rollout(self, env, actions):
        for action in actions:
            obs, rewards, dones = env.step(action)
            self.callback.update_locals(locals())
            if not self.callback.on_step():
                return None
        return obs, rewards, dones
# file: driver.py
class Driver:
    def rollout(self, env, actions):
        for action in actions:
            obs, rewards, ended = env.step(action)
            self.callback.update_locals(locals())
            if not self.callback.on_step():
                return None
        return obs, rewards, ended


class Evaluation:
    def run(self, env, actions):
        for action in actions:
            obs, rewards, dones = env.step(action)
        return {{"obs": obs, "rewards": rewards, "dones": dones}}
"""

_PICKLED = """# before: sample.py
import pickle


def main(path, rows):
    with open(path, "wb") as file:
        pickle.dump({{"prompt_embeds": rows[0], "timesteps": rows[1], "latents": rows[2]}}, file)
# file: sample.py
import pickle


def main(path, rows):
    with open(path, "wb") as file:
        pickle.dump({{"{key}": rows[0], "timesteps": rows[1], "latents": rows[2]}}, file)
# file: train.py
import pickle


def main(path, preferences):
    with open(path, "rb") as file:
        samples = pickle.load(file)
    samples["preferred"] = preferences
    for i in range(len(preferences)):
        sample = {{name: value[i] for name, value in samples.items()}}
        print(sample["prompt_embeds"], sample["preferred"]){mark}
        print(sample["latents"], sample["timesteps"])
# file: online.py
def main(rows):
    samples = []
    for row in rows:
        samples.append({{"prompt_embeds": row[0], "timesteps": row[1], "latents": row[2]}})
    return samples
"""

_BUFFERED = """# before: run.sh
SAMPLE=8
python train.py --samples $SAMPLE --buffer $((SAMPLE * 4))
# file: run.sh
{first}
python train.py --samples $SAMPLES --buffer $(({second} * 4)){mark}
"""

_PLACED = """# before: ranks.py
import os


def placed(rank):
    os.environ["MODEL_RANK"] = str(rank)
    return rank
# file: ranks.py
import os


def placed(rank):
    {after}
# file: model.py
import os


def part(state):
    return state[int(os.environ.get("MODEL_RANK", "0"))]{mark}
"""

_NAMED_CLASS = """# before: store.py
class SharedTensor:
    def __init__(self, tensor):
        self.tensor = tensor


def wrapped(tensor):
    return SharedTensor(tensor)
# file: store.py
class BroadcastTensor:
    def __init__(self, tensor):
        self.tensor = tensor


def wrapped(tensor):
    return BroadcastTensor(tensor)
# file: layer.py
def load(value, broadcast):
    if value.__class__.__name__ == "{text}":{mark}
        return broadcast(value.tensor)
    return value
"""

_HANDED = """# before: run.py
import os
import subprocess


def run(script, processes):
    env = os.environ.copy()
    env["PROCESSES"] = str(processes)
    subprocess.run(["bash", script], env=env, check=True)
# file: run.py
import os
import subprocess


def run(script, processes):
    env = os.environ.copy()
    env["GPUS"] = str(processes)
    subprocess.run(["bash", script], env=env, check=True)
# file: eval.sh
#!/bin/bash
{name}=${{{name}:-8}}{mark}
torchrun --nproc_per_node=${name} eval.py
"""

_IN_PAGE = """\
# before: train.py
import argparse

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", type=float, default=1e-5)
    print(parser.parse_args().learning_rate)
# file: train.py
import argparse

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-5)
    print(parser.parse_args().lr)
# file: README.md
# Training

```bash
$ python train.py {option}
```
"""

INCORRECT = (
    # one place tests for the key, the other one does not
    _WEIGHTS.format(set="", test="", mark="  # error: MP901"),
    _WEIGHTS_OF_RECIPE.format(first="print(config)", mark="  # error: MP901"),
    # another class has an attribute of that name; the object comes out of a loader
    _RESUMED.format(stored="train_data.batch_sampler.start_iter", mark="  # error: MP901"),
    # that other class is asked for it by a text
    _RESUMED.format(stored="train_data.batch_sampler.start_iter", mark="  # error: MP901")
    + """# file: rl/view.py
from rl.other import Window


def shown(window: Window):
    return getattr(window, "start_iter", 0)
""",
    _WRAPPED.format(listed="EncoderLayer", mark="  # error: MP901"),
    # settings of which the change renamed the key in one file; the other one has it as before
    _SETTINGS.format(
        old='h.get("clip_grad_norm", 1000.0)',
        new='h.get("max_grad_norm", 1000.0)',
        files=_OF_BASE + _OF_LARGE.replace("MARK", "  # error: MP901"),
    ),
    # no file has the new key
    _SETTINGS.format(
        old="h.clip_grad_norm",
        new="h.max_grad_norm",
        files="""# file: configs/large.yaml
learning_rate: 0.0001
log_interval: 100
clip_grad_norm: 100  # error: MP901
""",
    ),
    # a key that an option names by default
    _MEASURES.format(default="avgerr", mark="  # error: MP901"),
    # a path of parameters
    _PATHS.format(path="module.encoder.", mark="  # error: MP901"),
    _FROZEN.format(part="encoder", mark="  # error: MP901"),
    # an option that is looked for by its old name alone, through a function that is given the name
    """# before: rl/options.py
import argparse


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default="out")
    parser.add_argument("--use-recompute", action="store_true")
    return parser.parse_args()
# file: rl/options.py
import argparse


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default="out")
    parser.add_argument("--full-recompute", action="store_true")
    return parser.parse_args()
# file: rl/settings.py
def update(config, args):
    def is_given(name):
        return hasattr(args, name) and bool(getattr(args, name))

    if is_given("output"):
        config.OUTPUT = args.output
    if is_given("use_recompute"):  # error: MP901
        config.TRAIN.RECOMPUTE = True
# file: rl/model.py
def build(config):
    return Model(use_recompute=config.TRAIN.RECOMPUTE)


class Model:
    def __init__(self, use_recompute=False):
        self.use_recompute = use_recompute

    def forward(self, x):
        return x if self.use_recompute else x + 1
""",
    # a command in a text; another program has an option of its own by that name
    """# before: evaluate.py
import argparse


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lora_weights", required=True)
    args = parser.parse_args()
    return args.lora_weights


if __name__ == "__main__":
    main()
# file: evaluate.py
import argparse


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--adapter_weights", required=True)
    args = parser.parse_args()
    return args.adapter_weights


if __name__ == "__main__":
    main()
# file: several.py
import os
import subprocess
import sys


def evaluate(base, weights, gpu):
    os.system(f"CUDA_VISIBLE_DEVICES={gpu} python evaluate.py --base {base} --lora_weights {weights}")  # error: MP901
    subprocess.run([sys.executable, "evaluate.py", "--lora_weights", weights])  # error: MP901
    os.system(f"python other.py --base {base} --lora_weights {weights}")
# file: other.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--base")
parser.add_argument("--lora_weights")
print(parser.parse_args().lora_weights)
""",
    # the import says it all: what is asked of an object of that class is not told again
    """# file: rl/__init__.py
# before: rl/nodes.py
class Node:
    def __init__(self, key):
        self.key = key
        self.round_num = 0
# file: rl/nodes.py
PREFIX = "rl"
# file: rl/keys.py
from rl.nodes import Node  # error: MP901


def outputs_key(node: Node):
    return f"{node.key}_{node.round_num}"
""",
    # the key that tells which dictionary is read: nothing else has `next_shard`
    """# file: rl/__init__.py
# before: rl/saving.py
def save(write, model, next_shard, samples_seen):
    checkpoint = {"model": model, "next_shard": next_shard}
    checkpoint["samples_seen"] = samples_seen
    write(checkpoint)
# file: rl/saving.py
def save(write, model, next_shard, samples_seen):
    checkpoint = {"model": model, "next_shard": next_shard}
    write(checkpoint)
# file: rl/other.py
def statistics(write, seen):
    write({"samples_seen": seen})
# file: rl/loading.py
def resume(read, path):
    checkpoint = read(path)
    if "next_shard" in checkpoint and "samples_seen" in checkpoint:
        return checkpoint["next_shard"], checkpoint["samples_seen"]  # error: MP901
    return 0, 0
""",
    # read with a default under the old name, and handed on under it
    """# file: rl/__init__.py
# before: rl/options.py
def add(parser):
    parser.add_argument("--freezing-steps", type=int, default=-1)
    parser.add_argument("--batch-size", type=int, default=8)
# file: rl/options.py
def add(parser):
    parser.add_argument("--frozen-steps", type=int, default=-1)
    parser.add_argument("--batch-size", type=int, default=8)
# file: rl/trainer.py
class Trainer:
    def __init__(self, args):
        self.batch_size = args.batch_size
        self.freezing_steps = getattr(args, "freezing_steps", -1)  # error: MP901

    def is_frozen(self, step):
        return step < self.freezing_steps
""",
    # a copy of the code that nothing imports together with what changed keeps the old name for itself
    """# file: rl/__init__.py
# before: rl/options.py
from dataclasses import dataclass


@dataclass
class Options:
    output_scale_index: int = 0
    batch_size: int = 8
# file: rl/options.py
from dataclasses import dataclass


@dataclass
class Options:
    scale_index_of_output: int = 0
    batch_size: int = 8
# file: rl/tower.py
from rl.options import Options


class Tower:
    def __init__(self, args: Options):
        self.scale = getattr(args, "output_scale_index", 0)  # error: MP901
# file: remote/__init__.py
# file: remote/options.py
from dataclasses import dataclass


@dataclass
class Options:
    output_scale_index: int = 0
# file: remote/tower.py
from remote.options import Options


class Tower:
    def __init__(self, args: Options):
        self.scale = getattr(args, "output_scale_index", 0)
""",
    # all options go on as keywords
    """# file: rl/__init__.py
# file: rl/data.py
class DataModule:
    def __init__(self, batch_size=8, index_path=None, **kwargs):
        self.read = batch_size, index_path
# before: rl/train.py
import argparse

from rl.data import DataModule


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--index_path")
    args = parser.parse_args()
    return DataModule(**vars(args))
# file: rl/train.py
import argparse

from rl.data import DataModule


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--train_index_path")
    args = parser.parse_args()
    return DataModule(**vars(args))  # error: MP901
""",
    # the entry-point notation of a method
    """# file: rl/__init__.py
# before: rl/nodes.py
class Worker:
    def compute_value(self, batch):
        return batch
# file: rl/nodes.py
class Worker:
    def compute_values(self, batch):
        return batch
# file: rl/pipeline.py
def pipeline(graph):
    graph.add("compute_value", function="rl.nodes:Worker.compute_value")  # error: MP901
""",
    # a word that only its path tells
    """# file: rl/__init__.py
# before: rl/config.py
from dataclasses import dataclass, field


@dataclass
class Buffer:
    enable: bool = False
    len: int = 512


@dataclass
class Reward:
    buffer: Buffer = field(default_factory=Buffer)


@dataclass
class Config:
    reward: Reward = field(default_factory=Reward)
# file: rl/config.py
from dataclasses import dataclass, field


@dataclass
class Buffer:
    enable: bool = False
    buffer_len: int = 512


@dataclass
class Reward:
    buffer: Buffer = field(default_factory=Buffer)


@dataclass
class Config:
    reward: Reward = field(default_factory=Reward)
# file: run.sh
ARGS=(
    reward.buffer.enable=true
    reward.buffer.len=4096  # error: MP901
)
python -m rl.train "${ARGS[@]}"
""",
    # a variable of the script keeps the options, and the program drops those that it does not know
    """# before: train.py
import argparse


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clip-grad", type=float, default=0.0)
    return parser.parse_known_args()[0]


print(parse().clip_grad)
# file: train.py
import argparse


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-grad-norm", type=float, default=0.0)
    return parser.parse_known_args()[0]


print(parse().max_grad_norm)
# file: run.sh
OPTIONS="--clip-grad 1.0"  # error: MP901
torchrun --nproc_per_node 8 train.py $OPTIONS
""",
    # the parameters of a function as the keys of its `locals()`; another program has the old name
    """# before: examples/cifar/main.py
def run(seed=1, rounds=2, with_amp=False, folder="."):
    config = locals()
    return create(config)


def create(config):
    made = config["seed"], config["rounds"], config["folder"]
    return made, config["with_amp"]
# file: examples/cifar/main.py
def run(seed=1, rounds=2, use_amp=False, folder="."):
    config = locals()
    return create(config)


def create(config):
    made = config["seed"], config["rounds"], config["folder"]
    return made, config["with_amp"]  # error: MP901
# file: examples/mnist/main.py
def run(seed=1, rounds=2, with_amp=False, folder="."):
    config = locals()
    return config["with_amp"], config["seed"], config["rounds"], config["folder"]
""",
    # a member of an enumeration inside of a class; a namesake has the old name
    """# file: rl/__init__.py
# before: rl/types.py
from enum import Enum


class Sample:
    class Status(Enum):
        DONE = "done"
        TRUNCATED = "truncated"
# file: rl/types.py
from enum import Enum


class Sample:
    class Status(Enum):
        DONE = "done"
        CUT_OFF = "truncated"
# file: rl/other.py
from enum import Enum


class Ending(Enum):
    TRUNCATED = 1
# file: rl/rollout.py
from rl.types import Sample


def status(length, most):
    return Sample.Status.TRUNCATED if length > most else Sample.Status.DONE  # error: MP901
""",
    # a text that reaches a `getattr` through a dispatcher
    """# file: rl/__init__.py
# before: rl/actor.py
class Actor:
    def __init__(self, states):
        self.trained_steps = states["trained_steps"]

    def get_attr(self, key):
        return getattr(self, key)
# file: rl/actor.py
class Actor:
    def __init__(self, states):
        self.global_steps = states["trained_steps"]

    def get_attr(self, key):
        return getattr(self, key)
# file: rl/group.py
class Group:
    def __init__(self, actors):
        self.actors = actors

    def run_method(self, method_name, **kwargs):
        return [getattr(actor, method_name).remote(**kwargs) for actor in self.actors]
# file: rl/trainer.py
def resume(group):
    return group.run_method(method_name="get_attr", key="trained_steps")  # error: MP901
""",
    # everybody reads the new name, and one of three branches sets the old one
    """# file: rl/__init__.py
# before: rl/warm.py
class WarmStart:
    def load_state(self, path, strategy):
        try:
            if path.exists():
                self._alg_state_dict = strategy.read(path)
            else:
                self._alg_state_dict = None
        except OSError:
            self._alg_state_dict = None
# file: rl/warm.py
class WarmStart:
    def load_state(self, path, strategy):
        try:
            if path.exists():
                self._algorithm_state_dict = strategy.read(path)
            else:
                self._algorithm_state_dict = None
        except OSError:
            self._alg_state_dict = None  # error: MP901
# before: rl/train.py
from rl.warm import WarmStart


class Trainer(WarmStart):
    def set_up(self):
        return self._alg_state_dict
# file: rl/train.py
from rl.warm import WarmStart


class Trainer(WarmStart):
    def set_up(self):
        return self._algorithm_state_dict
""",
    """# before: rl/defaults.py
def add_config(cfg, node):
    cfg.MODEL.RPN = node()
    cfg.MODEL.RPN.LOSS_TYPE = "l1"
    cfg.MODEL.RPN.LOSS_WEIGHT = 1.0
    cfg.MODEL.RPN.CONV_DIMS = 8
    cfg.MODEL.RPN.NMS_THRESH = 0.7
    cfg.MODEL.HEAD.LOSS_TYPE = "l1"
# file: rl/defaults.py
def add_config(cfg, node):
    cfg.MODEL.RPN = node()
    cfg.MODEL.RPN.BOX_LOSS = "l1"
    cfg.MODEL.RPN.LOSS_WEIGHT = 1.0
    cfg.MODEL.RPN.CONV_DIMS = 8
    cfg.MODEL.RPN.NMS_THRESH = 0.7
    cfg.MODEL.HEAD.LOSS_TYPE = "l1"
# file: recipe.yaml
MODEL:
  RPN:
    LOSS_TYPE: giou  # error: MP901
    LOSS_WEIGHT: 2.0
""",
    """# file: rl/__init__.py
# before: rl/denoiser.py
class Denoiser:
    def __init__(self, num_idx, flip=True):
        self.made = num_idx, flip
# file: rl/denoiser.py
class Denoiser:
    def __init__(self, num_timesteps, flip=True):
        self.made = num_timesteps, flip
# file: rl/sampler.py
def sampled(num_idx):
    return num_idx
# file: recipe.yaml
denoiser:
  target: rl.denoiser.Denoiser
  params:
    num_idx: 1000  # error: MP901
    flip: true
""",
    """# file: rl/__init__.py
# before: rl/saving.py
def save(model, optimizer, scaler, epoch, write):
    write({"model": model, "opt": optimizer, "scaler": scaler, "epoch": epoch})
# file: rl/saving.py
def save(model, optimizer, scaler, epoch, write):
    write({"model": model, "optimizer": optimizer, "scaler": scaler, "epoch": epoch})
# file: rl/loading.py
def load(checkpoint, model, optimizer, scaler):
    model.load(checkpoint["model"])
    optimizer.load(checkpoint["opt"])  # error: MP901
    scaler.load(checkpoint["scaler"])
    return checkpoint["epoch"]
""",
    """# before: rl/options.py
import argparse


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precondition_frequency", type=int)
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--weight_decay", type=float)
    parser.add_argument("--iterations", type=int)
    return parser.parse_args()
# file: rl/options.py
import argparse


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--soap_precondition_frequency", type=int)
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--weight_decay", type=float)
    parser.add_argument("--iterations", type=int)
    return parser.parse_args()
# before: rl/main.py
def optimizer(args, soap):
    return soap(precondition_frequency=args.precondition_frequency)
# file: rl/main.py
def optimizer(args, soap):
    return soap(precondition_frequency=args.soap_precondition_frequency)
# file: rl/train.py
def train(cfg, step):
    tokens = cfg.batch_size * cfg.iterations
    if step % cfg.precondition_frequency == 0:  # error: MP901
        return tokens * cfg.weight_decay
    return tokens
""",
    """# file: rl/__init__.py
# before: rl/data.py
def build_loader(path, resize_size=256, shuffle=True, **more):
    return path, resize_size, shuffle, more
# file: rl/data.py
def build_loader(path, image_size=256, shuffle=True, **more):
    return path, image_size, shuffle, more
# file: rl/models.py
def resized(resize_size):
    return resize_size * 2
# file: recipe.yaml
train:
  _target_: rl.data.build_loader
  path: data
  resize_size: 512  # error: MP901
""",
    """# file: rl/__init__.py
# before: rl/sampler.py
class Batches:
    def __init__(self):
        self.start_iter = 0

    def __iter__(self):
        yield self.start_iter
# file: rl/sampler.py
class Batches:
    def __init__(self):
        self.resume_iter = 0

    def __iter__(self):
        yield self.resume_iter
# file: rl/train.py
def resume(loader, step):
    loader.batches.start_iter = step  # error: MP901
""",
    """# file: rl/__init__.py
# before: rl/norms.py
from rl.tensors import total_norm


def clip(grads):
    return total_norm(grads)
# file: rl/norms.py
from rl import tensors


def clip(grads):
    return tensors.total_norm(grads)
# file: rl/tensors.py
def total_norm(grads):
    return sum(grads)
# file: rl/train.py
def step(grads):
    from rl.norms import total_norm  # error: MP901

    return total_norm(grads)
""",
    """# file: rl/__init__.py
# before: rl/data.py
def make_audio_dataset(path):
    return path
# file: rl/data.py
def make_sound_dataset(path):
    return path
# file: recipe.yaml
dataset:
  _target_: rl.data.make_audio_dataset  # error: MP901
""",
    """# before: rl/engine.py
class Engine:
    def pause_generation(self):
        self.paused = True
# file: rl/engine.py
class Engine:
    def pause_requests(self):
        self.paused = True
# file: rl/trainer.py
def sync(engines, call):
    call(engines, "pause_generation")  # error: MP901
    for engine in engines:
        engine.pause_generation()  # error: MP901
""",
    """# file: rl/__init__.py
# before: rl/trainer.py
class Trainer:
    def __init__(self, args):
        self.top_quantile = args.quantile
# file: rl/trainer.py
class Trainer:
    def __init__(self, args):
        self.entropy_quantile = args.quantile
# file: rl/masked.py
from rl.trainer import Trainer


class Masked(Trainer):
    def loss(self):
        return self.top_quantile  # error: MP901
""",
    """# before: rl/options.py
import argparse


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--update-weights-interval", type=int, default=1)
    return parser.parse_args()
# file: rl/options.py
import argparse


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--update-weight-interval", type=int, default=1)
    return parser.parse_args()
# file: rl/train.py
def due(args, step):
    return step % args.update_weights_interval == 0  # error: MP901
# file: run.sh
python train.py --update-weights-interval 4
""",
    """# before: rl/config.py
from dataclasses import dataclass


@dataclass
class RolloutConfig:
    bucket_megabytes: int = 512
# file: rl/config.py
from dataclasses import dataclass


@dataclass
class RolloutConfig:
    bucket_mb: int = 512
# file: rl/recipe.yaml
rollout:
  bucket_megabytes: 1024  # error: MP901
""",
    """# file: rl/__init__.py
# before: rl/options.py
def add_options(parser):
    parser.add_argument("--rollout-batch", type=int, default=8)
    parser.add_argument("--report-interval", type=int, default=10)
    parser.add_argument("--clip-value", type=float, default=1.0)
    parser.add_argument("--warm-up", type=int, default=0)
    return parser
# file: rl/options.py
def add_options(parser):
    parser.add_argument("--rollout-batch", type=int, default=8)
    parser.add_argument("--heartbeat-interval", type=int, default=10)
    parser.add_argument("--clip-value", type=float, default=1.0)
    parser.add_argument("--warm-up", type=int, default=0)
    return parser
# file: rl/doom.py
def doom_defaults(parser):
    parser.set_defaults(
        rollout_batch=64,
        report_interval=600,  # error: MP901
        clip_value=0.2,
        warm_up=100,
    )
""",
    """# before: rl/units.py
class EmbedImages(Unit):
    def __init__(self):
        super().__init__(inputs=("first_image", "end_image", "height", "width"), outputs=("context",))

    def process(self, pipe, first_image, end_image, height, width):
        return pipe.encode([first_image, end_image], height, width)
# file: rl/units.py
class EmbedImages(Unit):
    def __init__(self):
        super().__init__(inputs=("first_image", "end_image", "height", "width"), outputs=("context",))  # error: MP901

    def process(self, pipe, first_image, last_image, height, width):
        return pipe.encode([first_image, last_image], height, width)
""",
    # a variable that callbacks find by its name
    _SHOWN_LOCALS.format(asked="dones", mark="  # error: MP901"),
    # a key of a file that another program reads
    _PICKLED.format(key="embeddings", mark="  # error: MP901"),
    # a variable of a script, in arithmetic
    _BUFFERED.format(first="SAMPLES=8", second="SAMPLE", mark="  # error: MP901"),
    # a variable of the environment, which has a default where it is read
    _PLACED.format(after="return rank", mark="  # error: MP901"),
    # a variable that a program hands to the scripts that it starts
    _HANDED.format(name="PROCESSES", mark="  # error: MP901"),
    # the name of a class, which code compares with a text
    _NAMED_CLASS.format(text="SharedTensor", mark="  # error: MP901"),
    # a command in a page
    _IN_PAGE.format(option="--learning_rate 1e-6  # error: MP901"),
)
CORRECT = (
    _WEIGHTS.format(set="", test=' and "mae" in config.weights', mark=""),
    _WEIGHTS.format(set='\n        self.weights["mae"] = 1', test="", mark=""),
    _WEIGHTS_OF_RECIPE.format(first='config["weights"].setdefault("mae", 1)', mark=""),
    _WEIGHTS_OF_RECIPE.format(first='if "mae" not in config["weights"]:\n        return error', mark=""),
    _RESUMED.format(stored="train_data.batch_sampler.resume_step", mark=""),
    _RESUMED.format(stored="Window().start_iter", mark=""),
    _WRAPPED.format(listed="Block", mark=""),
    # the class of a library reads the file, and knows both names
    """# before: model.py
from transformers import AutoConfig


def sizes(path):
    config = AutoConfig.from_pretrained(path)
    return [config.hidden_size, config.num_layers, config.vocab_size]
# file: model.py
from transformers import AutoConfig


def sizes(path):
    config = AutoConfig.from_pretrained(path)
    return [config.d_model, config.num_layers, config.vocab_size]
# file: models/small/config.json
{"hidden_size": 8, "num_layers": 2, "vocab_size": 100}
""",
    # records are data
    """# before: collate.py
def collate(rows):
    return [(row["source_text"], row["id"], row["label"]) for row in rows]
# file: collate.py
def collate(rows):
    return [(row["content_text"], row["id"], row["label"]) for row in rows]
# file: data/sample.json
[{"source_text": "a", "id": 1, "label": 2}]
""",
    # settings: another program asks for the old key
    _SETTINGS.format(
        old='h.get("clip_grad_norm", 1000.0)',
        new='h.get("max_grad_norm", 1000.0)',
        files=_OF_BASE
        + _OF_LARGE.replace("MARK", "")
        + """# file: finetune.py
def limit(h):
    return h["clip_grad_norm"]
""",
    ),
    # the change takes what stands under the old key, too
    _SETTINGS.format(
        old='h.get("clip_grad_norm", 1000.0)',
        new='h.get("max_grad_norm", h.get("clip_grad_norm", 1000.0))',
        files=_OF_BASE + _OF_LARGE.replace("MARK", ""),
    ),
    # all files have the new key
    _SETTINGS.format(
        old='h.get("clip_grad_norm", 1000.0)',
        new='h.get("max_grad_norm", 1000.0)',
        files=_OF_BASE + _OF_BASE.replace("base", "large"),
    ),
    # a file of something else, of which the program asks for nothing
    _SETTINGS.format(
        old='h.get("clip_grad_norm", 1000.0)',
        new='h.get("max_grad_norm", 1000.0)',
        files="""# file: vendor/other.yaml
clip_grad_norm: 3
steps: 100
""",
    ),
    # a data class takes the keys of a file by their names
    _SETTINGS.format(
        old='h.get("clip_grad_norm", 1000.0)',
        new='h.get("max_grad_norm", 1000.0)',
        files=_OF_BASE
        + _OF_LARGE.replace("MARK", "")
        + """# file: options.py
from dataclasses import dataclass


@dataclass
class Options:
    learning_rate: float
    log_interval: int
    clip_grad_norm: float = 1.0


def options(mapping):
    return Options(**mapping)
""",
    ),
    _MEASURES.format(default="worst", mark=""),
    # a path that was there, of another model, or of any library's
    _PATHS.format(path="module.predictor.", mark=""),
    _FROZEN.format(part="predictor", mark=""),
    _PATHS.format(path="module.backbone.", mark=""),
    _PATHS.format(path="encoder.layers.", mark=""),
    # the option is asked for by its new name, too: files of before may have the old one
    """# before: rl/options.py
import argparse


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--use-recompute", action="store_true")
    return parser.parse_args()
# file: rl/options.py
import argparse


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--full-recompute", action="store_true")
    return parser.parse_args()
# before: rl/settings.py
def update(config, args):
    def is_given(name):
        return hasattr(args, name) and bool(getattr(args, name))

    if is_given("use_recompute"):
        config.TRAIN.RECOMPUTE = True
# file: rl/settings.py
def update(config, args):
    def is_given(name):
        return hasattr(args, name) and bool(getattr(args, name))

    if is_given("use_recompute") or is_given("full_recompute"):
        config.TRAIN.RECOMPUTE = True
# file: rl/model.py
def build(config):
    return Model(use_recompute=config.TRAIN.RECOMPUTE)


class Model:
    def __init__(self, use_recompute=False):
        self.use_recompute = use_recompute
""",
    # who looks the key up reckons with its absence
    """# file: rl/__init__.py
# before: rl/stages.py
def publish(dht, text):
    dht.store({"agent_opinion": text, "answer": text})
# file: rl/stages.py
def publish(dht, text):
    dht.store({"answer": text})
# file: rl/gossip.py
def message(outputs, node):
    try:
        return outputs["agent_opinion"][node].strip()
    except (ValueError, KeyError):
        return outputs["answer"]
""",
    # what is asked is an object of a library, or nothing
    """# file: rl/__init__.py
# before: rl/games.py
class Game:
    def __init__(self, backend):
        self.peer_id = backend.get_id()

    def title(self):
        return f"game of {self.peer_id}"
# file: rl/games.py
class Game:
    def __init__(self, backend):
        self.name = backend.get_id()

    def title(self):
        return f"game of {self.name}"
# file: rl/backend.py
from hivemind import DHT


class Backend:
    def __init__(self, peers, first):
        self.dht = None
        if first:
            self.dht = DHT(start=True)
        else:
            self.dht = DHT(initial_peers=peers)

    def get_id(self):
        return str(self.dht.peer_id)
""",
    # the attribute is a buffer now
    """# file: rl/__init__.py
# before: rl/distances.py
from torch import nn


class Distances(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell_size = cell

    def forward(self, x):
        return x / self.cell_size
# file: rl/distances.py
from torch import nn


class Distances(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.register_buffer("cell_size", cell, persistent=True)

    def forward(self, x):
        return x / self.cell_size
""",
    # the class moved to a library, out of which the callers take it
    """# file: rl/__init__.py
# before: rl/views.py
class View:
    def __init__(self, model):
        self.model = model

    def structure_graph(self):
        return str(self.model)
# file: rl/views.py
WIDTH = 80
# before: rl/train.py
from rl.views import View


def show(model):
    View(model).structure_graph()
# file: rl/train.py
from model_views import View


def show(model):
    View(model).structure_graph()
""",
    # nothing is an object of the class any more
    """# file: rl/__init__.py
# before: rl/models.py
class Separator:
    def __init__(self, hop_length=4):
        self.hop_length = hop_length
# file: rl/models.py
class Separator:
    def __init__(self, *args, **kwargs):
        raise RuntimeError("use an older release")


class BrokenSeparator:
    def __init__(self, hop_length=4):
        self.hop_length = hop_length
# file: rl/evaluate.py
from rl.models import Separator


def evaluate(audio):
    model = Separator()
    return audio[:: model.hop_length]
""",
    # a test of its class says that the object is of a library
    """# file: rl/__init__.py
# before: rl/options.py
from dataclasses import dataclass


@dataclass
class Probe:
    num_classes: int = 2
    depth: int = 1
# file: rl/options.py
from dataclasses import dataclass


@dataclass
class Probe:
    depth: int = 1
# file: rl/labels.py
from typing import Any

from datasets import ClassLabel, Value


def count(feature: Any):
    if isinstance(feature, ClassLabel):
        return feature.num_classes
    elif isinstance(feature, Value) and feature.dtype == "bool":
        return 2
    raise ValueError(feature)
""",
    # what is cut under a key was put there by something else
    """# before: rl/prompts.py
def prompts(processor, texts, longest):
    inputs = processor(texts)
    if longest is not None:
        inputs["prompt_ids"] = inputs["prompt_ids"][:, -longest:]
    return inputs["prompt_ids"]
# file: rl/prompts.py
def prompts(processor, texts, longest):
    inputs = processor(texts)
    ids = inputs["prompt_ids"]
    if longest is not None:
        ids = ids[:, -longest:]
    return ids
""",
    # the class comes from a library now
    """# file: rl/__init__.py
# before: rl/kernels.py
class FlashForward:
    ERROR_TOLERANCE = 1e-3
# file: rl/kernels.py
from fast_kernels import FlashForward
# file: rl/train.py
from rl.kernels import FlashForward


def is_near(difference, op=FlashForward):
    return difference < op.ERROR_TOLERANCE
""",
    # what a file imports is not its own
    """# file: rl/__init__.py
# file: rl/train.py
def start(groups):
    groups.start_process_group("nccl")
# before: vocoder/train.py
from fast_kernels.groups import start_process_group


def start(rank):
    start_process_group("nccl", rank=rank)
# file: vocoder/train.py
def start(rank):
    return rank
""",
    # an option of another program
    """# before: vocoder/train.py
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--input_training_file")
print(parser.parse_args().input_training_file)
# file: vocoder/train.py
import argparse

parser = argparse.ArgumentParser()
print(parser.parse_args())
# file: widening/data.py
def file_list(a):
    with open(a.input_training_file) as lines:
        return list(lines)
""",
    # an old checkpoint may have the key, and the loader asks first
    """# file: rl/__init__.py
# before: rl/saving.py
def save(write, model, next_shard, samples_seen):
    checkpoint = {"model": model, "next_shard": next_shard}
    checkpoint["samples_seen"] = samples_seen
    write(checkpoint)
# file: rl/saving.py
def save(write, model, next_shard, samples_seen):
    checkpoint = {"model": model, "next_shard": next_shard}
    write(checkpoint)
# file: rl/loading.py
def resume(read, path):
    checkpoint = read(path)
    seen = checkpoint["samples_seen"] if "samples_seen" in checkpoint else 0
    return checkpoint["next_shard"], seen
""",
    # what was saved under the old name is still read
    """# file: rl/__init__.py
# before: rl/options.py
def add(parser):
    parser.add_argument("--freezing-steps", type=int, default=-1)
    parser.add_argument("--batch-size", type=int, default=8)
# file: rl/options.py
def add(parser):
    parser.add_argument("--frozen-steps", type=int, default=-1)
    parser.add_argument("--batch-size", type=int, default=8)
# before: rl/trainer.py
def frozen(args):
    return args.batch_size, getattr(args, "freezing_steps", -1)
# file: rl/trainer.py
def frozen(args):
    return args.batch_size, getattr(args, "frozen_steps", getattr(args, "freezing_steps", -1))
""",
    # the option fills the parameter under its new name
    """# file: rl/__init__.py
# file: rl/data.py
class DataModule:
    def __init__(self, batch_size=8, index_path=None, **kwargs):
        self.read = batch_size, index_path
# before: rl/train.py
import argparse

from rl.data import DataModule


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--index_path")
    args = parser.parse_args()
    return DataModule(**vars(args))
# file: rl/train.py
import argparse

from rl.data import DataModule


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--train_index_path")
    args = parser.parse_args()
    return DataModule(index_path=args.train_index_path, **vars(args))
""",
    # a text that only is called like the method: the name of a node
    """# file: rl/__init__.py
# before: rl/nodes.py
class Worker:
    def compute_value(self, batch):
        return batch
# file: rl/nodes.py
class Worker:
    def compute_values(self, batch):
        return batch
# file: rl/graph.py
class Graph:
    def __init__(self):
        self.nodes = []

    def add(self, name, function):
        self.nodes.append((name, function))
# file: rl/pipeline.py
from rl.nodes import Worker


def pipeline(graph):
    graph.add("compute_value", function=Worker)
""",
    """# file: rl/__init__.py
# before: rl/options.py
from dataclasses import dataclass, field


@dataclass
class Experiment:
    seed: int = 1
    steps: int = 10
    batch_size: int = 8
    temperature: float = field(default=1.0, init=False)


@dataclass
class Streaming:
    temperature: float = 0.7
    async_steps: int = 1
# file: rl/options.py
from dataclasses import dataclass, field


@dataclass
class Experiment:
    seed: int = 1
    steps: int = 10
    batch_size: int = 8


@dataclass
class Streaming:
    temperature: float = 0.7
    async_steps: int = 1
# file: rl/train.py
from rl.options import Experiment, Streaming
from transformers import HfArgumentParser


def main():
    return HfArgumentParser((Experiment, Streaming)).parse_args_into_dataclasses()
# file: run.sh
python -m rl.train --seed 3 --steps 20 --batch_size 4 --temperature 0.9
""",
    """# before: rl/envs.py
from verifiers import EnvServerConfig


class EnvConfig(EnvServerConfig):
    @property
    def is_legacy_env(self):
        return not self.taskset

    def resolved(self):
        return self.is_legacy_env
# file: rl/envs.py
from verifiers import EnvServerConfig


class EnvConfig(EnvServerConfig):
    def resolved(self):
        return self.is_legacy_env
""",
    """# before: rl/options.py
import argparse


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--start-step", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--weight-decay", type=float)
    parser.add_argument("--iterations", type=int)
    return parser.parse_args()
# file: rl/options.py
import argparse


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--start-iter", dest="start_step", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--weight-decay", type=float)
    parser.add_argument("--iterations", type=int)
    return parser.parse_args()
# file: rl/train.py
def train(args, step):
    tokens = args.batch_size * args.iterations
    return tokens * args.weight_decay if step >= args.start_step else 0
""",
    """# file: rl/__init__.py
# before: rl/saving.py
def save(model, optimizer, scaler, epoch, write):
    write({"model": model, "opt": optimizer, "scaler": scaler, "epoch": epoch})
# file: rl/saving.py
def save(model, optimizer, scaler, epoch, write):
    write({"model": model, "optimizer": optimizer, "scaler": scaler, "epoch": epoch})
# file: rl/other.py
def write(model, optimizer, scaler, file):
    file.put({"model": model, "opt": optimizer, "scaler": scaler, "rank": 0})
# file: rl/loading.py
def load(checkpoint, model, optimizer, scaler):
    model.load(checkpoint["model"])
    optimizer.load(checkpoint["opt"])
    scaler.load(checkpoint["scaler"])
    return checkpoint["rank"]
""",
    """# file: rl/__init__.py
# before: rl/data.py
def build_loader(path, resize_size=256, shuffle=True):
    return path, resize_size, shuffle
# file: rl/data.py
def build_loader(path, image_size=256, shuffle=True):
    return path, image_size, shuffle
# file: rl/models.py
def resized(resize_size, path, shuffle):
    return resize_size * 2, path, shuffle
# file: recipe.yaml
model:
  path: data
  shuffle: true
  resize_size: 512
""",
    """# before: rl/engine.py
class Engine:
    def pause_generation(self):
        self.paused = True
# file: rl/engine.py
class Engine:
    def pause_requests(self):
        self.paused = True
# before: rl/trainer.py
def sync(engines):
    for engine in engines:
        engine.pause_generation()
# file: rl/trainer.py
def sync(engines):
    for engine in engines:
        engine.pause_requests()
""",
    """# before: rl/engine.py
class Engine:
    def pause_generation(self):
        self.paused = True
# file: rl/engine.py
class Engine:
    pass
# file: rl/base.py new=yes
class Base:
    def pause_generation(self):
        self.paused = True
# file: rl/trainer.py
def sync(engines):
    for engine in engines:
        engine.pause_generation()
""",
    """# before: rl/wrapped.py
class Wrapped:
    def load_state_dict(self, state):
        return self.module.load_state_dict(state)
# file: rl/wrapped.py
class Wrapped:
    def load_weights(self, state):
        return self.module.load_state_dict(state)
""",
    """# before: rl/volleyball.py
def step(info, rewards):
    info["battle_won"] = sum(rewards) > 0
    return info
# file: rl/observer.py
def result(info):
    if "battle_won" in info:
        return info["battle_won"]
    return None
""",
    _SHOWN_LOCALS.format(asked="ended", mark=""),
    _BUFFERED.format(first="SAMPLES=8", second="SAMPLES", mark=""),
    _BUFFERED.format(first="SAMPLES=8\nSAMPLE=${SAMPLE:-8}", second="SAMPLE", mark=""),
    _PLACED.format(after='os.environ["MODEL_RANK"] = str(rank + 1)\n    return rank', mark=""),
    # a script sets it
    _PLACED.format(after="return rank", mark="") + "# file: run.sh\nexport MODEL_RANK=1\npython train.py\n",
    # the scripts go along
    _HANDED.format(name="GPUS", mark=""),
    # the text goes along
    _NAMED_CLASS.format(text="BroadcastTensor", mark=""),
    # the command of the page is changed, too
    _IN_PAGE.format(option="--lr 1e-6")
    + """\

`--learning_rate` of the last release is `--lr` now, and another program has one, too:

```bash
python -m other.train --learning_rate 1e-6
```
""",
    # what an object of a library has by itself
    """\
# before: tree.py
class Node:
    def __init__(self):
        self.token_ids = []

    def is_full(self):
        return bool(self.token_ids)
# file: tree.py
class Node:
    def __init__(self):
        self.rows = {}

    def is_full(self):
        return bool(self.rows)
# file: generate.py
from strands_sglang import SGLangModel


def generate(tokenizer, sample):
    model = SGLangModel(tokenizer=tokenizer)
    manager = model.token_manager
    sample.tokens = manager.token_ids
    return sample
""",
)

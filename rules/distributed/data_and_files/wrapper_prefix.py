"""The state of a wrapped model that is loaded into one without the wrapper, or the other way round.

What it does
    Pairs `torch.save` of a model's `state_dict()` with `load_state_dict(torch.load(…))`, by the class of the model, the
    path of the file (a text, the names of which it is made, an attribute, a parameter) and the key in what is saved.
    Reported where every such model is inside `DistributedDataParallel`, `DataParallel` or `torch.compile` on one side,
    and surely not on the other; with `strict=False` of another class, too, where the file has the same name. Silent
    where anything else gets the state between, where an error is caught, and where the same file is also saved in the
    form that is loaded.

Why is this bad
    The names of a wrapped model's parameters begin with `module.` (`_orig_mod.` behind `torch.compile`).
    `load_state_dict` raises on names that it does not know: the checkpoint of a long run cannot be loaded by the
    program that is to use it. With `strict=False` it loads nothing, and training starts from random weights.

References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
    https://docs.pytorch.org/docs/stable/generated/torch.nn.modules.utils.consume_prefix_in_state_dict_if_present.html
"""

from __future__ import annotations

from collections.abc import Iterator

from validator.definitions import ClassDef
from validator.finding import Finding, Related
from validator.flow.queries.base import Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.queries.training.saved_states import State, loaded, saved
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP576", "wrapper-prefix", "warning", "1.0", tokens=("load_state_dict",), solves=True)


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    loads = [each for each in loaded(queries) if not is_aside(each.call.unit.path)]
    saves = [each for each in saved(queries) if not is_aside(each.call.unit.path)] if loads else []
    for load in loads:
        made = [save for save in saves if _is_of(save, load)]
        if made and all(save.prefix != load.prefix for save in made):
            yield _finding(load, made[0])


def _is_of(save: State, load: State) -> bool:
    """Whether what is loaded is what was saved: of another class, where names that do not fit are left out, if the file
    is the same by its text."""
    other = not load.strict and isinstance(load.path, tuple) and load.path[0] == "text" and bool(save.classes)
    alike = (save.key, save.path) == (load.key, load.path)
    of_class = not save.classes.isdisjoint(load.classes) or other and bool(load.classes)
    return alike and of_class and not any(map(_changes_names, load.classes))


def _changes_names(cls: ClassDef) -> bool:
    """Whether a class loads states in a way of its own, or has something look at them first."""
    own = [method for each in cls.mro for method in each.every_method()]
    hooks = (call.method for method in own for call in method.facts.calls)
    return cls.find("load_state_dict") is not None or any("load_state_dict_pre_hook" in name for name in hooks)


def _finding(load: State, save: State) -> Finding:
    silent = "" if load.strict else "; with `strict=False` none is loaded, and nothing is said"
    told = f"begin with `{save.prefix}`" if save.prefix else f"lack the `{load.prefix}` that it expects"
    return RULE.finding(
        load.call.unit.path,
        load.call.at,
        f"`{load.model.text}.load_state_dict`{load.call.where} gets the state of `{save.model.text}`: its names"
        f" {told}{silent}",
        help="save the inner model (`model.module.state_dict()`), or strip the prefix where it is loaded",
        related=[Related(save.call.unit.path, save.call.at[0], "saved here")],
        context=f"{load.call.unit.qualname}:{load.model.text}",
    )


_PROGRAM = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

class Trainer:
    def __init__(self, folder, local_rank):
        self.folder = folder
        self.model = {wrapped}

    def save(self):
        if dist.get_rank() == 0:
            checkpoint = {{"model": {state}, "step": 3}}
            torch.save(checkpoint, os.path.join(self.folder, "last.pt"))

def test(folder):
    model = Net()
    checkpoint = torch.load(os.path.join(folder, {name}), map_location="cpu")
    {load}
    return model

def main(folder, local_rank):
    dist.init_process_group("nccl")
    Trainer(folder, local_rank).save()
    test(folder)

main("out", 0)
"""
_DDP = "DDP(Net().to(local_rank), device_ids=[local_rank])"
_LOAD = 'model.load_state_dict(checkpoint["model"])'
_MARK = "  # error: MP576"


def _program(load: str, wrapped: str = _DDP, state: str = "self.model.state_dict()", name: str = '"last.pt"') -> str:
    return _PROGRAM.format(load=load, wrapped=wrapped, state=state, name=name)


_PLAIN = """
import torch
from torch import nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

def save(model, path):
    torch.save(model.state_dict(), path)

def main(path):
    model = DDP(Net())
    save({model}, path)

def resume(path):
    model = DDP(Net())
    model.load_state_dict(torch.load(path)){mark}
"""

_ENCODER = """
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 8), nn.Linear(8, 8)

class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(8, 8), nn.Linear(8, 2)

def pretrain():
    model = DDP(Coder())
    torch.save({model}.state_dict(), "pretrained.pt")

def take(net, path):
    net.load_state_dict(torch.load(path, map_location="cpu"), strict=False){mark}
    return net

def tune():
    return take(Classifier(), "pretrained.pt")
"""
_KEPT = """
def keep(net, path):
    if dist.get_rank() == 0:
        torch.save(net.state_dict(), path)

def more(folder):
    model = DDP(Coder())
    keep(model.module, "last.pt")
    keep({model}, "pretrained.pt")

def tune():"""

_ON_HOST = "{{name: value.cpu() for name, value in self.{model}.state_dict().items()}}"

INCORRECT = [
    _program(_LOAD + _MARK),
    _program(_LOAD + _MARK, state=_ON_HOST.format(model="model")),
    _program('model.load_state_dict(checkpoint["model"], strict=False)' + _MARK),
    _ENCODER.format(model="model", mark=_MARK),
    # a function saves several: each caller tells which
    _ENCODER.replace("\ndef tune():", _KEPT)
    .replace('torch.save({model}.state_dict(), "pretrained.pt")', "pass")
    .replace("import torch\n", "import torch\nimport torch.distributed as dist\n", 1)
    .format(model="model", mark=_MARK),
    _program(_LOAD + _MARK, wrapped="torch.compile(Net())"),
    _program(_LOAD + _MARK, wrapped="nn.DataParallel(Net())"),
    _PLAIN.format(model="model.module", mark=_MARK),
]

CORRECT = [
    _program(_LOAD, state="self.model.module.state_dict()"),
    _program(_LOAD, state=_ON_HOST.format(model="model.module")),
    _program(_LOAD, state=_ON_HOST.format(model="model").replace("{name:", '{name.removeprefix("module."):')),
    # a part of another model, without the prefix
    _ENCODER.format(model="model.module", mark=""),
    _program('model.load_state_dict({k.removeprefix("module."): v for k, v in checkpoint["model"].items()})'),
    _program(
        'state = checkpoint["model"]\n'
        '    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")\n'
        "    model.load_state_dict(state)"
    ),
    _program(_LOAD, name='"pretrained.pt"'),
    _program('model.load_state_dict(checkpoint["ema"])'),
    _program("model = DDP(model)\n    " + _LOAD),
    _PLAIN.format(model="model", mark=""),
    # a folder that is put together of itself
    """
import os
from dataclasses import dataclass
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

@dataclass
class Config:
    name: str = "first"
    folder: str = "out"

    def __post_init__(self):
        if self.folder is not None:
            self.folder = os.path.join(self.folder, self.name)

def main(config: Config):
    model = nn.DataParallel(Net())
    torch.save({"model": model.state_dict()}, os.path.join(config.folder, "last.pt"))
    model.load_state_dict(torch.load(os.path.join(config.folder, "last.pt"))["model"])

main(Config())
""",
]

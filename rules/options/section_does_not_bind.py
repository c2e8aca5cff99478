"""A section of a configuration that names what it makes, with keys that this does not take.

What it does
    Sections in the manner of Hydra's `_target_` (torchtune's `_component_`, `class_path` with `init_args`) are calls:
    the keys beside the name are the arguments. Reported is a key that the function or class of the project has no
    parameter for, and a name that its module lacks; in YAML, JSON and TOML files and in dictionaries of the source,
    those that are made by keywords (`dict(class_name="pkg.Class", size=1)`, and what `update` adds) where a function
    of the project takes such a name beside any other keyword. So are sections that a call unpacks
    (`Mask(**config.data.mask)`), of the files that the program is given (the default of an option, what scripts pass,
    what Hydra composes), with what the call needs and the section lacks: a warning where the file is only one that
    may be chosen, or where the keys alone tell which section is meant.
    A warning, too, where the files of a registry's manner (`type: UNet` beside the arguments) name a class of the
    project that a decorator registers, and that has parameters for most of the keys.
    Silent where `**kwargs` or a decorator may take anything, about names outside the project, keys that begin with
    `_`, keys that some code takes out again (`pop`) or that the module of what is made spells (it looks them up in the
    section itself), and where most sections that make one thing do not fit it: there the program has a way of its own.

Why is this bad
    It raises TypeError when the section is reached: after the models were loaded, or at the first evaluation.

References
    https://hydra.cc/docs/advanced/instantiate_objects/overview/
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from validator.analysis.interfaces.binding import keeps_signature, parameters, written
from validator.analysis.named import Named, is_path
from validator.analysis.recipes.keyword_sections import KeywordSections
from validator.analysis.recipes.sections import Part, Sections
from validator.definitions import Missing, Symbol
from validator.errors import nearest
from validator.facts.config_files import Settings
from validator.facts.model import At, Param
from validator.finding import Finding, Related, Severity, Span
from validator.flow import Flow
from validator.flow.callgraph.spelled_arguments import literal_keys
from validator.flow.constructors import Constructors
from validator.flow.objects import Callee, Objects
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_test
from validator.project import ClassDef, Method, Project
from validator.rule import Rule

RULE = Rule(
    "MP306", "section-does-not-bind", "error", stable_since="0.3.0",
    languages=("yaml", "json", "toml", "python"), solves=True,
)  # fmt: skip
_TELLING = frozenset({"Eq", "NotEq", "In", "NotIn"})
_TYPE = "type"  # the key under which files name what a registry makes
_COMPOSING = "defaults"  # the list of what Hydra composes a configuration of; it takes it out


class _Section(NamedTuple):
    """What a section makes, where that is said, its arguments by name, and the key that it stands under."""

    path: str
    made: str
    at: At
    keys: tuple[tuple[str, At], ...]
    under: str = ""
    given: bool = True  # a program surely reads it, unless another is chosen
    open: bool = False  # it may have more keys


def check_project(project: Project) -> Iterator[Finding]:
    by_made: dict[str, list[_Section]] = {}
    found: list[tuple[_Section, list[Finding]]] = []
    for section in _sections(project):
        by_made.setdefault(section.made, []).append(section)
    for made, sections in by_made.items():
        symbol = project.analysis(Named).of(made)
        if isinstance(symbol, Missing):
            if symbol.owner is not None and made.endswith(f".{symbol.name}"):
                yield _missing(sections, symbol)
            continue
        params = _parameters(project, symbol, registered=not any(section.given for section in sections))
        if params is not None:
            fitting = (section for section in sections if _is_passed_by_name(section, params))
            found += [(section, list(_unknown(project, section, symbol, params))) for section in fitting]
    odd = {by: _odd(found, by) for by in ("made", "under")}
    for section, findings in found:
        if section.made not in odd["made"] and section.under not in odd["under"]:
            yield from findings
    yield from _refused_parts(project)


def _refused_parts(project: Project) -> Iterator[Finding]:
    """What calls that unpack a section of a file refuse. A file that is one of several which a program may be given is
    made for the calls that take it."""
    tried: dict[tuple[str, At], list[tuple[_Section, list[Finding]]]] = {}
    for section, place, callees in _unpacked(project):
        row = tried.setdefault((section.path, section.at), [])
        row.append((section, list(_refused(project, section, place, callees))))
    seen: set[tuple[str, Span]] = set()
    for rows in tried.values():
        fits = any(not findings for _, findings in rows)
        for section, findings in rows:
            for finding in findings if section.given or not fits else ():
                if (finding.path, finding.span) not in seen:
                    seen.add((finding.path, finding.span))
                    yield finding


def _odd(found: list[tuple[_Section, list[Finding]]], by: str) -> set[str]:
    """What is made, or the keys above, where most sections do not fit, and not all for one and the same key, as behind
    a change of its name: there the program has a way of its own."""
    rows: dict[str, list[frozenset[str]]] = {}
    for section, findings in found:
        rows.setdefault(getattr(section, by), []).append(frozenset(finding.context for finding in findings))
    return {
        name
        for name, wrong in rows.items()
        if len(wrong) > 1 and 2 * sum(map(bool, wrong)) > len(wrong) and len(frozenset().union(*wrong)) > 1
    }


def _unpacked(project: Project) -> Iterator[tuple[_Section, Place, tuple[Callee, ...]]]:
    """The sections of files that calls unpack (`**cfg.data.mask`), and all that these calls may reach."""
    if not any("settings" in source.facts.extra for source in project.files.values()):
        return
    objects, sections = project.analysis(Objects), project.analysis(Sections)
    for place in _spreading(project):
        given = zip(place.value.data.names, place.value.args[1:], strict=True)
        spread = [place.value_at(number) for name, number in given if name == "**"]
        parts = [part for each in spread for part in sections.at(each) if _comes_here(part, place)]
        reached = objects.reached_by(place.operand(0), place) if parts else None
        for part in parts if reached is not None and reached.complete else ():
            rows = [(name, below) for name, below in part.node.children.items() if below.path]
            keys = tuple((name, below.at) for name, below in rows)
            path = rows[0][1].path if rows else part.node.path
            section = _Section(path, place.operand(0).text, part.node.at, keys, part.keys, part.given, part.open)
            yield section, place, reached.callees if reached is not None else ()


def _comes_here(part: Part, place: Place) -> bool:
    """Whether a section comes to a call, as far as tests of what it has under other keys tell (`kind == "linear"`)."""
    for test, held in ((each.root, way) for each, way in place.settled_tests):
        if test.value.op != "compare" or test.value.data not in _TELLING:
            continue
        child = part.node.children.get(_key_of(test.operand(0)))
        allowed = _constants(test.operand(1))
        if child is not None and allowed is not None:
            holds = (child.value in allowed) is (test.value.data in ("Eq", "In"))
            if holds is not held:
                return False
    return True


def _key_of(place: Place) -> str:
    """The key under which a value was looked up: `x["kind"]`, `x.kind`, `x.pop("kind")`."""
    place = place.root
    if place.value.op == "attr":
        return str(place.value.data)
    asks = place.value.op == "call" and place.method in ("get", "pop") and len(place.value.args) > 1
    key = place.operand(1).val.constant() if asks or place.value.op == "item" else None
    return key if isinstance(key, str) else ""


def _constants(place: Place) -> list[object] | None:
    """The constants that a value is, or that it lists; None where it has others."""
    place = place.root
    parts = [place.value_at(n) for n in place.value.args] if place.value.op in ("list", "tuple", "set") else [place]
    found = [part.val.constant() for part in parts]
    return found if all(each is not None for each in found) else None


def _spreading(project: Project) -> Iterator[Place]:
    """The calls of the project that unpack something into their keywords."""
    for unit in project.analysis(Flow).all_units():
        for place in project.analysis(Queries).calls_in(unit) if not is_test(unit.path) else ():
            if "**" in place.value.data.names:
                yield place


def _refused(project: Project, section: _Section, place: Place, callees: tuple[Callee, ...]) -> Iterator[Finding]:
    """The keys of a section that nothing takes which a call may reach, and what all of it needs and does not get."""
    names = {param.name for callee in callees for param in callee.params if param.kind in ("any", "kw")}
    related = [Related(each.place.path, each.place.facts.name_at[0], f"`{each.name}`") for each in callees]
    related.append(Related(place.unit.path, place.at[0], "it is unpacked here"))
    severity: Severity = "error" if section.given else "warning"
    for callee in callees[:1]:
        shown = f"`{written(callee.name, callee.params)}`, which gets this section by `**`,"
        takes_any = any(param.kind == "**" for each in callees for param in each.params)
        for key, at in _strangers(project, section, names) if not takes_any else ():
            yield RULE.finding(
                section.path,
                at,
                f"{shown} has no parameter `{key}`",
                help=f"name a parameter that it has{nearest(key, sorted(names))}",
                related=related,
                context=f"{section.made}:{key}",
                severity=severity,
            )
        for name in _lacking(project, section, place, callees):
            yield RULE.finding(
                section.path,
                section.at,
                f"{shown} needs `{name}`, which is not there",
                help=f"add the key{nearest(name, [key for key, _ in section.keys])}",
                related=related,
                context=f"{section.made}:-{name}",
                severity=severity,
            )


def _lacking(project: Project, section: _Section, place: Place, callees: tuple[Callee, ...]) -> list[str]:
    """The parameters without a default, of all that a call may reach, that get nothing: not of the section, not of the
    call, and no code puts anything under such a name."""
    names = place.value.data.names
    if section.open or "*" in names or names.count("**") > 1:
        return []
    put = {*names, *(key for key, _ in section.keys)}
    needed: list[set[str]] = []
    for callee in callees:
        by_place = [param for param in callee.params if param.kind in ("any", "pos")][names.count(None) :]
        by_name = [param for param in callee.params if param.kind == "kw"]
        needed.append({param.name for param in (*by_place, *by_name) if param.default is None} - put)
        if callee.given:
            return []
    return sorted(name for name in set.intersection(*needed) if not project.analysis(Sections).is_put_by_code(name))


def _strangers(project: Project, section: _Section, names: Collection[str]) -> Iterator[tuple[str, At]]:
    """The keys of a section that are no parameters, and that no code takes out again."""
    for key, at in section.keys:
        if not key.startswith("_") and key not in (*names, _COMPOSING) and not _is_taken_out(project, key):
            yield key, at


def _parameters(project: Project, symbol: Symbol | None, *, registered: bool) -> tuple[Param, ...] | None:
    """What something takes that a section makes; None where it may take anything. `registered`: what decorates a class
    gives it back as it is."""
    params: tuple[Param, ...] | None = None
    if isinstance(symbol, ClassDef):
        params = project.analysis(Constructors).of(symbol)
        made = symbol.find("__init__") if params is None and registered else None
        if made is not None and keeps_signature(made):
            params = parameters(made, bound=True)
    elif isinstance(symbol, Method) and keeps_signature(symbol):
        params = parameters(symbol, bound=symbol.is_method and symbol.facts.is_classmethod)
    return None if params is None or any(param.kind == "**" for param in params) else params


def _unknown(
    project: Project, section: _Section, symbol: Symbol | None, params: tuple[Param, ...]
) -> Iterator[Finding]:
    if not isinstance(symbol, Method | ClassDef):
        return
    names = [param.name for param in params if param.kind in ("any", "kw")]
    for key, at in _strangers(project, section, names):
        if _looks_up(symbol, key):
            continue
        shown = symbol.name if isinstance(symbol, ClassDef) else symbol.qualname
        yield RULE.finding(
            section.path,
            at,
            f"`{written(shown, params)}`, which this section makes, has no parameter `{key}`: TypeError",
            help=f"name a parameter that it has{nearest(key, names)}",
            related=[Related(symbol.path, symbol.facts.name_at[0], f"`{shown}` is defined here")],
            context=f"{section.made}:{key}",
            severity="error" if section.given else "warning",
        )


def _is_passed_by_name(section: _Section, params: tuple[Param, ...]) -> bool:
    """Whether the keys of a section are passed by their names, and not the section as a whole: some of several are
    parameters; most, where nothing says that a program reads it."""
    names = {param.name for param in params}
    known = sum(key in names for key, _ in section.keys)
    return known > 0 or len(section.keys) < 2 if section.given else 2 * known > len(section.keys)


def _missing(sections: list[_Section], symbol: Missing) -> Finding:
    """One name that is not there is one finding, however many sections and files repeat it."""
    assert symbol.owner is not None
    section, *others = sections
    names = [name for name in symbol.owner.facts.names if not name.startswith("_")]
    return RULE.finding(
        section.path,
        section.at,
        f"`{symbol.module}` defines no `{symbol.name}`, which this section makes",
        help=f"name what is there{nearest(str(symbol.name), sorted(names))}",
        related=[
            Related(symbol.owner.path, 1, "the module"),
            *(Related(each.path, each.at[0], "the same here") for each in others),
        ],
        context=section.made,
    )


def _is_taken_out(project: Project, key: str) -> bool:
    """Whether some code takes a key out of what it is given."""
    spelled = {f"'{key}'", f'"{key}"'}
    return any(call.args and call.args[0].value in spelled for _, call in project.calls("pop"))


def _looks_up(symbol: Method | ClassDef, key: str) -> bool:
    """Whether the code of what is made, or of a class above it, spells a key: it is given the section as a whole."""
    modules = {each.module for each in symbol.mro} if isinstance(symbol, ClassDef) else {symbol.module}
    return any(f"{quote}{key}{quote}" in module.source.text for module in modules for quote in "'\"")


def _sections(project: Project) -> Iterator[_Section]:
    targets = project.analysis(Flow).models.targets
    registered = _registered(project)
    for source in project.files.values():
        settings = source.facts.extra.get("settings")
        if settings is not None and not is_test(source.path):
            yield from _of_file(source.path, settings, targets)
            yield from _of_registry(source.path, settings, registered)
    for module in project.modules.values():
        if any(key in module.source.text for key in targets) and not is_test(module.path):
            for unit in project.analysis(Flow).whole_units(module):
                yield from _of_unit(unit, targets)
    for unit, section in project.analysis(KeywordSections).found():
        if not is_test(unit.path):
            yield _Section(unit.path, *section)


def _of_file(path: str, settings: Settings, targets: dict[str, str]) -> Iterator[_Section]:
    for each in settings.settings:
        if each.path[-1] in targets and is_path(each.value):
            inside = targets[each.path[-1]]
            below = settings.below(*each.path[:-1], *([inside] if inside else []))
            keys = tuple((row.path[-1], row.at) for row in below if row.path[-1] not in targets)
            yield _Section(path, str(each.value), each.value_at, keys, each.path[-2] if len(each.path) > 1 else "")


def _registered(project: Project) -> dict[str, str]:
    """By name, the classes of the project that a decorator registers; those of one name alone."""
    found: dict[str, list[ClassDef]] = {}
    for cls in project.classes():
        found.setdefault(cls.name, []).append(cls)
    rows = ((name, classes[0]) for name, classes in found.items() if len(classes) == 1)
    return {name: f"{cls.module.name}.{cls.name}" for name, cls in rows if any(map(_registers, cls.facts.decorators))}


def _registers(decorator: str) -> bool:
    return decorator.partition("(")[0].rpartition(".")[2].startswith("register")


def _of_registry(path: str, settings: Settings, registered: dict[str, str]) -> Iterator[_Section]:
    """The sections that name a registered class as `type`."""
    for each in settings.settings if registered else ():
        made = registered.get(str(each.value)) if each.path[-1] == _TYPE and len(each.path) > 1 else None
        if made is not None:
            rows = settings.below(*each.path[:-1])
            keys = tuple((row.path[-1], row.at) for row in rows if row.path[-1] != _TYPE)
            yield _Section(path, made, each.value_at, keys, given=False)


def _of_unit(unit: Unit, targets: dict[str, str]) -> Iterator[_Section]:
    """The dictionaries of a unit that name what they make."""
    values = unit.code.values
    for value in values:
        keys = literal_keys(unit, value) if value.op == "dict" else None
        target = next((key for key in keys or () if key in targets), None)
        if keys is None or target is None:
            continue
        rows = dict(zip(keys, value.args[1::2], strict=True))
        made = values[rows[target]]
        if made.op != "const" or not is_path(made.data):
            continue
        if inside := targets[target]:
            held = values[rows[inside]] if inside in rows else None
            keys = literal_keys(unit, held) if held is not None and held.op == "dict" else ()
            value = held if keys and held is not None else value
        places = zip(keys or (), value.args[::2], strict=False)
        found = tuple((key, unit.at(values[number].at)) for key, number in places if key not in targets)
        yield _Section(unit.path, str(made.data), unit.at(made.at), found)


_LOSS = """\
# file: rl/__init__.py
# file: rl/losses.py
import torch.distributed as dist


class KDLoss:
    def __init__(self, temperature=1.0, ignore_index=-100):
        self.temperature = temperature
        self.ignore_index = ignore_index
        self.world = dist.get_world_size()


def build_model(size, lora_modules=None):
    return size, lora_modules


def build_any(size, **more):
    return size, more


class Optimizer:
    def __init__(self, lr, warmup=0):
        self.lr = lr
        self.warmup = warmup
"""

_MASK = """\
# file: rl/__init__.py
# file: rl/masks.py
class Mask:
    def __init__(self, size, random_roll=False):
        self.size, self.random_roll = size, random_roll
# file: rl/train.py
from rl.masks import Mask


def main(strategy, cfg):
    return strategy, Mask(**cfg.data.mask_kwargs)
# file: conf.yaml
data:
  mask_kwargs:
    size: 3
"""

_LOADED = """\
# file: train.py
import argparse
import yaml


def read(path):
    with open(path) as file:
        return yaml.safe_load(file)


class Optimizer:
    def __init__(self, lr, warmup=0):
        self.lr, self.warmup = lr, warmup


class Trainer:
    def __init__(self, settings):
        self.settings = settings
        self.optimizer = Optimizer(**settings["optimizer"])

    def fit(self):
        return range(self.settings["steps"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="conf/small.yaml")
    Trainer(read(parser.parse_args().config)).fit()
# file: run.sh
torchrun train.py --config conf/large.yaml
# file: conf/other.yaml
optimizer: {momentum: 3}
"""

_KEYWORDS = """\
# file: rl/__init__.py
# file: rl/build.py
import importlib


class Keys(dict):
    def __getattr__(self, name):
        return self[name]


def construct(class_name=None, **kwargs):
    module, name = class_name.rsplit(".", 1)
    return getattr(importlib.import_module(module), name)(**kwargs)


def recorded(cls):
    class Recorded(cls):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.made_with = args, kwargs

    return Recorded
# file: rl/augment.py
from rl.build import recorded


@recorded
class Pipe:
    def __init__(self, p=1, flip=0, rotate_all=0):
        self.p, self.flip, self.rotate_all = p, flip, rotate_all
# file: rl/train.py
from rl.build import Keys, construct


def main(p):
    config = Keys()
    config.augment = Keys(class_name="rl.augment.Pipe", p=p)
    config.augment.update(flip=1, {key}=1)
    return construct(**config.augment)
"""

_REGISTERED = """\
# file: models.py
from torch import nn

from registry import MODELS


@MODELS.register()
class Critic(nn.Module):
    def __init__(self, width, depth=4, skip={default}):
        super().__init__()
        self.width, self.depth, self.skip = width, depth, skip
# file: registry.py
class Registry:
    def __init__(self):
        self.known = {{}}

    def register(self):
        def put(cls):
            self.known[cls.__name__] = cls
            return cls

        return put

    def build(self, options):
        options = dict(options)
        return self.known[options.pop("type")](**options)


MODELS = Registry()
# file: options/train.yml
critic:
  type: Critic
  width: 64
  depth: 8
  {key}: true{mark}
"""

INCORRECT = (
    _KEYWORDS.replace("{key}=1)", "rotate=1)  # error: MP306"),
    _MASK + "    roll: true  # error: MP306\n",
    _LOADED
    + """# file: conf/small.yaml
steps: 10
optimizer:
  lr: 1.0e-3
  warm_up: 10  # error: MP306
# file: conf/large.yaml
steps: 1000
optimizer:  # error: MP306
  warmup: 100
""",
    _LOSS
    + """# file: conf.yaml
loss:
  _target_: rl.losses.KDLoss
  kd_temperature: 2.0  # error: MP306
model:
  _component_: rl.losses.build_model
  size: 8
  lora_target_modules: [q_proj]  # error: MP306
old:
  _target_: rl.losses.DistillLoss  # error: MP306
  temperature: 1.0
trainer:
  class_path: rl.losses.Optimizer
  init_args:
    lr: 1.0e-6
    warm_up: 10  # error: MP306
""",
    _LOSS
    + """# file: recipe.py
RECIPE = {"loss": {"_target_": "rl.losses.KDLoss", "temperature": 1.0, "ignore": -1}}  # error: MP306
""",
    _REGISTERED.format(default="True", key="skip_connections", mark="  # error: MP306"),
)

CORRECT = (
    _KEYWORDS.replace("{key}", "rotate_all"),
    _MASK + "    random_roll: true\n",
    _LOADED
    + """# file: conf/small.yaml
steps: 10
optimizer: {lr: 1.0e-3}
# file: conf/large.yaml
steps: 1000
optimizer: {lr: 1.0e-3, warmup: 100}
""",
    # which file a class is given nobody knows: each is made for one of the two
    """# file: causal.py
import yaml


class Causal:
    def __init__(self, num_layers, hidden):
        self.num_layers, self.hidden = num_layers, hidden


class CausalExpert:
    def __init__(self, path):
        self.config = yaml.safe_load(open(path))
        self.model = Causal(**self.config["model"]["paras"])
# file: masked.py
import yaml


class Masked:
    def __init__(self, n_blocks, hidden):
        self.n_blocks, self.hidden = n_blocks, hidden


class MaskedExpert:
    def __init__(self, path):
        self.config = yaml.safe_load(open(path))
        self.model = Masked(**self.config["model"]["paras"])
# file: causal/config.yaml
model:
  paras: {num_layers: 3, hidden: 8}
# file: masked/config.yaml
model:
  paras: {n_blocks: 4, hidden: 8}
""",
    # another class is made of it
    """# file: train.py
import yaml


class Cosine:
    def __init__(self, optimizer, periods):
        self.periods = periods


class Steps:
    def __init__(self, optimizer, milestones):
        self.milestones = milestones


def schedule(optimizer):
    options = yaml.safe_load(open("conf.yaml"))["scheduler"]
    kind = options.pop("type")
    if kind in ("steps", "multi"):
        return Steps(optimizer, **options)
    elif kind == "cosine":
        return Cosine(optimizer, **options)


schedule(None)
# file: conf.yaml
scheduler:
  type: cosine
  periods: [100]
""",
    _LOSS
    + """# file: conf.yaml
loss:
  _target_: rl.losses.KDLoss
  _partial_: true
  temperature: 2.0
model:
  _component_: rl.losses.build_model
  size: 8
  packed: true
any:
  _target_: rl.losses.build_any
  lora_target_modules: [q_proj]
outside:
  _target_: torch.optim.AdamW
  learning_rate: 1.0
# file: run.py
def instantiate(section):
    packed = section.pop("packed", False)
    return section, packed
""",
    # a decorator that may take anything; a dictionary without a name
    """# file: rl/__init__.py
# file: rl/registry.py
import functools

import torch.distributed as dist


def configurable(function):
    @functools.wraps(function)
    def wrapped(**options):
        return function(**{key: options[key] for key in ("size",)}), dist.get_rank()

    return wrapped


@configurable
def build(size):
    return size
# file: run.py
SECTIONS = [{"_target_": "rl.registry.build", "width": 3}, {"kind": "rl.registry.build", "width": 3}]
""",
    _REGISTERED.format(default="True", key="skip", mark=""),
    # another class of that name takes the section as a whole
    _REGISTERED.format(default="True", key="skip", mark="") + "  rate: 1\n  beta: 2\n  decay: 3\n  warm: 4\n",
    # a section that its reader passes on as a whole
    """\
# file: rl/__init__.py
# file: rl/methods.py
class Method:
    def __init__(self, *, cfg, models):
        self.cfg, self.models = cfg, models
        self.kind = read(cfg, "kind")
def read(cfg, name):
    return cfg.method[name]
# file: config.yaml
method:
  _target_: rl.methods.Method
  attention: vsa
  steps: 4
""",
)

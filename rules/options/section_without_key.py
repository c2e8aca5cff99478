"""A section of settings that a file writes anew, without a key that is read in it.

What it does
    Finds dictionaries that functions store as a section of settings that they are given, or take from another function
    (`config.sampling = {"steps": 50, "eta": 1.0}`, also `ConfigDict({…})`, `dict(…)`), and functions that ask a section
    of that name for several settings (`config.sampling.steps`, `part = config.sampling; part.eta`). Reported is a
    dictionary that has all that one such function asks for, two settings at least, but one that others define for the
    section, and that the function reads in any case. Silent: settings that are asked for with a default, tested for, or
    read under a condition; dictionaries that are not written out (`**common`), that are filled later, that another
    function reads as they are, or whose texts say another kind (`type: "sgd"`) than where the setting is defined;
    sections that the same file completes, and settings that code sets in whatever section it is given.

Why is this bad
    A preset that replaces a section takes along what the base gave it. A setting that is added to the base alone is
    missing in all presets: AttributeError or KeyError, when the line runs.

References
    https://github.com/google/ml_collections#configdict
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.finding import Finding, Related
from validator.flow.callgraph.spelled_arguments import literal_keys
from validator.flow.program.unit import Unit
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.project import Project
from validator.rule import Rule

RULE = Rule("MP318", "section-without-key", "warning", "1.0", tokens=("config", "cfg", "settings"), solves=True)

_MAKING = frozenset({"dict", "ConfigDict", "SimpleNamespace", "Namespace", "EasyDict", "DictConfig", "Box", "Munch"})
_OWNERS = frozenset({"name", "param", "attr"})
_WRITTEN_OUT = frozenset({"const", "dict", "list", "tuple"})


class _Section(NamedTuple):
    """A dictionary that is stored as a section, with its keys, and the section that it is a part of."""

    name: str
    store: Place
    keys: dict[str, Place]
    inside: str

    @property
    def kinds(self) -> dict[str, str]:
        """The settings that are texts: one of them may say of which kind the section is."""
        return {key: value for key, place in self.keys.items() if isinstance(value := place.val.constant(), str)}


class _Asked(NamedTuple):
    """What one function asks a section for: each setting with the first place, one that it comes to in any case."""

    name: str
    settings: dict[str, Place]


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    written: dict[str, list[_Section]] = {}
    for section in _sections(queries):
        written.setdefault(section.name, []).append(section)
    asked = list(_asked(queries, frozenset(written))) if written else []
    seen: set[tuple[Place, str]] = set()
    for each in asked:
        for section in written[each.name]:
            lacking = sorted(each.settings.keys() - section.keys.keys())
            if len(lacking) != 1 or len(each.settings) < 3 or (section.store, lacking[0]) in seen:
                continue
            read, others = each.settings[lacking[0]], [other.settings for other in asked if other.name == each.name]
            if (
                _is_certain(read, section)
                and not any(other.keys() == section.keys.keys() for other in others)
                and _is_defined_for(queries, section, lacking[0], written[each.name])
                and not _is_completed(queries, section, lacking[0])
            ):
                seen.add((section.store, lacking[0]))
                yield _report(section, lacking[0], read)


def _sections(queries: Queries) -> Iterator[_Section]:
    """The dictionaries that functions store as sections of settings that they are given, or take from others."""
    for unit in queries.flow.mentions.units(*queries.flow.stores.written):
        if is_aside(unit.path):
            continue
        for store in queries.values(unit, "store_attr"):
            owner = store.operand(0)
            keys = _keys(store.operand(1)) if not unit.is_receiver(owner.number) else {}
            if any(place.root.value.op in _WRITTEN_OUT for place in keys.values()) and _is_taken(owner.root):
                yield _Section(str(store.value.data), store, keys, _inside(owner))


def _is_taken(owner: Place) -> bool:
    """Whether something holds settings already: a function of the project gives it, or a caller. What is made here is
    likely laid over others."""
    if owner.value.op == "call":
        site = owner.result.sites.get(owner.number)
        return site is not None and bool(site.targets)
    return owner.value.op in _OWNERS


def _keys(place: Place) -> dict[str, Place]:
    """The keys of a dictionary that is written out with their values; none where it is none, or not all are known."""
    root = place.root
    if root.value.op == "call" and root.method in _MAKING:
        names, operands = root.value.data.names, root.value.args[1:]
        if names == (None,):
            return _keys(root.value_at(operands[0]))
        if any(name in (None, "*", "**") for name in names):
            return {}
        return {str(name): root.value_at(number) for name, number in zip(names, operands, strict=True)}
    keys = literal_keys(root.unit, root.value) if root.value.op == "dict" else None
    if not keys or any(user.value.op == "store_item" for user in place.users):
        return {}
    return {key: root.value_at(number) for key, number in zip(keys, root.value.args[1::2], strict=True)}


def _asked(queries: Queries, names: frozenset[str]) -> Iterator[_Asked]:
    """What functions ask sections of some names for."""
    for unit in queries.flow.mentions.units(*names):
        found: dict[str, dict[str, Place]] = {}
        for read in queries.values(unit, "attr", "item") if not is_aside(unit.path) else ():
            section = _section_of(read.operand(0), names)
            name = _key(read)
            if section and name and not read.is_called and not read.is_tried:
                known = found.setdefault(section, {}).get(name)
                if known is None or known.tests_inside and not read.tests_inside:
                    found[section][name] = read
        yield from (_Asked(section, settings) for section, settings in found.items())


def _key(place: Place) -> str:
    """The name of what is read or stored; empty where it is not written out."""
    named = place.value.op in ("attr", "store_attr")
    name = place.value.data if named else place.operand(1).val.constant()
    return name if isinstance(name, str) else ""


def _section_of(owner: Place, names: frozenset[str]) -> str:
    """The name of the section that a value is: an attribute of that name of anything, or what was stored in one."""
    root = owner.root
    if root.value.op == "attr":
        return root.value.data if root.value.data in names else ""
    stores = (user for user in root.users if user.value.op == "store_attr" and user.operand(1).root == root)
    return next((store.value.data for store in stores if store.value.data in names), "")


def _inside(owner: Place) -> str:
    """The name of the section that what holds a section is itself: `critic` of `config.critic.optim`."""
    return str(owner.root.value.data) if owner.root.value.op == "attr" else ""


def _is_certain(read: Place, section: _Section) -> bool:
    """Whether a function comes to a read whatever its settings say, and it is not one of another section's part."""
    holder = read.operand(0).root
    inside = _inside(holder.operand(0)) if holder.value.op == "attr" else ""
    apart = section.inside and inside and section.inside != inside
    return not apart and not read.tests_inside and not read.may_lack(_key(read))


def _is_defined_for(queries: Queries, section: _Section, key: str, others: list[_Section]) -> bool:
    """Whether something else defines a setting for sections of a name and kind, in settings that it makes itself."""
    kinds = section.kinds
    for other in others:
        if key in other.keys and other.inside == section.inside:
            return all(kinds.get(name, text) == text for name, text in other.kinds.items())
    return any(store.unit.module is not section.store.unit.module for store in _stores(queries, section.name, key))


def _stores(queries: Queries, section: str, key: str) -> list[Place]:
    """The stores of one setting in sections of a name."""
    units = queries.flow.mentions.units(key)
    stores = (place for unit in units for place in queries.values(unit, "store_attr") if place.value.data == key)
    return [place for place in stores if _section_of(place.operand(0), frozenset({section}))]


def _is_completed(queries: Queries, section: _Section, key: str) -> bool:
    """Whether anything may give a section the setting after it was written: in the file that writes it, in settings
    that a function is given, by a method, or at places that reckon with a section without it."""
    module = section.store.unit.module
    if any(store.unit.module is module for store in _stores(queries, section.name, key)):
        return True
    names = frozenset({section.name})
    for unit in queries.flow.whole_units(module):  # under a key that is not written out
        if any(_section_of(place.operand(0), names) for place in queries.values(unit, "store_item")):
            return True
    units = (unit for each in queries.flow.mentions.spelling(key) for unit in queries.flow.whole_units(each))
    return any(_may_complete(queries, unit, key) for unit in units if not is_aside(unit.path))


def _may_complete(queries: Queries, unit: Unit, key: str) -> bool:
    """Whether a unit sets a setting in something that it is given, passes its name to a call, or tests for it."""
    for store in queries.values(unit, "store_attr", "store_item"):
        owner = _holder(store.operand(0))
        if _key(store) == key and owner.value.op == "param" and not unit.is_receiver(owner.number):
            return True
    for text in queries.values(unit, "const"):
        if text.value.data == key and any(user.value.op in ("call", "compare") for user in text.users):
            return True
    for call in queries.values(unit, "call"):
        passed = [call.value_at(number) for number in call.value.args[1:]] if call.method == "update" else []
        if key in call.value.data.names and passed or any(key in _keys(each) for each in passed):
            return True
    return False


def _holder(place: Place) -> Place:
    """What a section is a part of, at the beginning of its path."""
    root = place.root
    while root.value.op == "attr" or root.value.op == "item":
        root = root.operand(0).root
    return root


def _report(section: _Section, key: str, asked: Place) -> Finding:
    unit: Unit = section.store.unit
    return RULE.finding(
        unit.path,
        section.store.at,
        f"`{unit.qualname}` writes `{section.name}` anew without `{key}`, which `{asked.unit.qualname}` reads in it"
        " beside all that stands here",
        help=f"add `{key}`, or change the section instead of replacing it",
        related=[Related(asked.unit.path, asked.at[0], f"`{key}` is read here")],
        context=f"{unit.qualname}:{section.name}:{key}",
    )


_BASE = """# file: config/base.py
import ml_collections


def get_config():
    config = ml_collections.ConfigDict()
    config.tracking = ml_collections.ConfigDict()
    config.tracking.buffer_size = 16
    config.tracking.min_count = 16
    config.tracking.whole_batch = False
    return config
# file: config/presets.py
from config import base


def compressibility():
    config = base.get_config()
    {section}
    return config
# file: train.py
def tracker(config):
    {read}
"""
_PLAIN = "part = config.tracking\n    return part.buffer_size, part.min_count, part.whole_batch"

_SMALL = _BASE.replace("{section}", 'config.tracking = {"buffer_size": 32, "min_count": 16}')

INCORRECT = (
    _BASE.replace("{section}", 'config.tracking = {"buffer_size": 32, "min_count": 16}  # error: MP318').replace(
        "{read}", _PLAIN
    ),
    _BASE.replace("{section}", "config.tracking = dict(buffer_size=32, min_count=16)  # error: MP318").replace(
        "{read}", "return [config.tracking.buffer_size, config.tracking.min_count, config.tracking.whole_batch]"
    ),
)
CORRECT = (
    _BASE.replace("{section}", 'config.tracking = {"buffer_size": 32, "min_count": 16, "whole_batch": True}').replace(
        "{read}", _PLAIN
    ),
    _BASE.replace("{section}", "config.tracking.buffer_size = 32").replace("{read}", _PLAIN),
    # the file completes the section; it is asked for with a default; another kind of section
    _BASE.replace(
        "{section}", 'config.tracking = {"buffer_size": 32, "min_count": 16}\n    config.tracking.whole_batch = True'
    ).replace("{read}", _PLAIN),
    _BASE.replace("{section}", 'config.tracking = {"buffer_size": 32, "min_count": 16}').replace(
        "{read}",
        'part = config.tracking\n    return part.buffer_size, part.min_count, getattr(part, "whole_batch", False)',
    ),
    _BASE.replace("{section}", 'config.tracking = {"path": "runs", "every": 3}').replace("{read}", _PLAIN),
    # the program completes whatever preset is chosen; it is read where a mode asks for it, or tested for
    _SMALL.replace("{read}", _PLAIN) + "\n\ndef main(config, flags):\n    config.tracking.whole_batch = flags.whole\n",
    _SMALL.replace("{read}", _PLAIN) + '\n\ndef main(config):\n    config.tracking.setdefault("whole_batch", False)\n',
    _SMALL.replace(
        "{read}",
        "part = config.tracking\n    if config.kind == 'whole':\n        return part.whole_batch\n"
        "    return part.buffer_size, part.min_count",
    ),
    # another program reads all that the preset has
    _SMALL.replace("{read}", _PLAIN)
    + "# file: sample.py\ndef sampler(config):\n    return config.tracking.buffer_size, config.tracking.min_count\n",
    # settings made anew, which are laid over others
    _SMALL.replace("base.get_config()", "ml_collections.ConfigDict()")
    .replace("from config import base", "import ml_collections")
    .replace("{read}", _PLAIN)
    + "\n\ndef main():\n    config = base.get_config()\n    config.update(presets.compressibility())\n",
    """# file: config/base.py
from ml_collections import ConfigDict


def get_config():
    config = ConfigDict({"actor": ConfigDict(), "critic": ConfigDict()})
    config.actor.optim = dict(lr=1e-4, decay=0.1, warmup=10)
    return config
# file: config/critic.py
from config import base


def with_critic():
    config = base.get_config()
    config.critic.optim = dict(lr=1e-3, decay=0.0)
    return config
# file: train.py
def make_actor(config):
    part = config.actor.optim
    return part.lr, part.decay, part.warmup
""",
    """# file: config/sgd.py
def sgd(config):
    config.optimizer = {"type": "sgd", "lr": 0.1, "momentum": 0.9}
    return config
# file: config/adam.py
def adam(config):
    config.optimizer = {"type": "adam", "lr": 1e-4}
    return config
# file: optimizers.py
import torch


class Sgd:
    def __init__(self, config, params):
        part = config.optimizer
        print(part["type"])
        self.optimizer = torch.optim.SGD(params, lr=part["lr"], momentum=part["momentum"])
""",
)

"""A section of settings that a file writes anew, without a key that is read in it.

What it does
    Finds dictionaries that functions store as a section of settings (`config.sampling = {"steps": 50, "eta": 1.0}`,
    also `ConfigDict({…})`, `dict(…)`), and functions that ask a section of that name for several settings
    (`config.sampling.steps`, `part = config.sampling; part.eta`). Reported is a dictionary that has all that one such
    function asks for, two settings at least, but one that others define for the section. Silent: settings that are
    asked for with a default, or only tested for, dictionaries that are not written out (`**common`) or that are filled
    later, and sections that the same file completes.

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


class _Section(NamedTuple):
    """A dictionary that is stored as a section, with its keys."""

    name: str
    store: Place
    keys: frozenset[str]


class _Asked(NamedTuple):
    """What one function asks a section for: each setting with the first place."""

    name: str
    settings: dict[str, Place]


def check_project(project: Project) -> Iterator[Finding]:
    queries = project.analysis(Queries)
    written: dict[str, list[_Section]] = {}
    for section in _sections(queries):
        written.setdefault(section.name, []).append(section)
    seen: set[tuple[Place, str]] = set()
    for asked in _asked(queries, frozenset(written)) if written else ():
        for section in written[asked.name]:
            lacking = sorted(asked.settings.keys() - section.keys)
            if len(lacking) != 1 or len(asked.settings) < 3 or (section.store, lacking[0]) in seen:
                continue
            if _is_defined_for(queries, section, lacking[0], written[asked.name]):
                seen.add((section.store, lacking[0]))
                yield _report(section, lacking[0], asked.settings[lacking[0]])


def _sections(queries: Queries) -> Iterator[_Section]:
    """The dictionaries that functions store as sections."""
    for unit in queries.flow.mentions.units(*queries.flow.stores.written):
        if is_aside(unit.path):
            continue
        for store in queries.values(unit, "store_attr"):
            keys = _keys(store.operand(1))
            owner = store.operand(0)
            if keys and not unit.is_receiver(owner.number) and owner.root.value.op in ("call", "name", "param", "attr"):
                yield _Section(str(store.value.data), store, keys)


def _keys(place: Place) -> frozenset[str]:
    """The keys of a dictionary that is written out; none where it is none, or they are not all known."""
    root = place.root
    if root.value.op == "call" and root.method in _MAKING:
        names, operands = root.value.data.names, root.value.args[1:]
        if names == (None,):
            return _keys(root.value_at(operands[0]))
        return frozenset(map(str, names)) if names and all(n not in (None, "*", "**") for n in names) else frozenset()
    keys = literal_keys(root.unit, root.value) if root.value.op == "dict" else None
    return frozenset(keys or ()) if not any(user.value.op == "store_item" for user in place.users) else frozenset()


def _asked(queries: Queries, names: frozenset[str]) -> Iterator[_Asked]:
    """What functions ask sections of some names for."""
    for unit in queries.flow.mentions.units(*names):
        found: dict[str, dict[str, Place]] = {}
        for read in queries.values(unit, "attr", "item") if not is_aside(unit.path) else ():
            section = _section_of(read.operand(0), names)
            name = read.value.data if read.value.op == "attr" else read.operand(1).val.constant()
            if section and isinstance(name, str) and not read.is_called and not read.is_tried:
                found.setdefault(section, {}).setdefault(name, read)
        yield from (_Asked(section, settings) for section, settings in found.items())


def _section_of(owner: Place, names: frozenset[str]) -> str:
    """The name of the section that a value is: an attribute of that name of anything, or what was stored in one."""
    root = owner.root
    if root.value.op == "attr":
        return root.value.data if root.value.data in names else ""
    stores = (user for user in root.users if user.value.op == "store_attr" and user.operand(1).root == root)
    return next((store.value.data for store in stores if store.value.data in names), "")


def _is_defined_for(queries: Queries, section: _Section, key: str, others: list[_Section]) -> bool:
    """Whether something else defines a setting for sections of a name, and nothing in the same file does."""
    stores = [
        place
        for unit in queries.flow.mentions.units(key)
        for place in queries.values(unit, "store_attr")
        if place.value.data == key and _section_of(place.operand(0), frozenset({section.name}))
    ]
    defining = [other.store for other in others if key in other.keys] + stores
    return bool(defining) and all(place.unit.module is not section.store.unit.module for place in stores)


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
)

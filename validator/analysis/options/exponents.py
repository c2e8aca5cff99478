"""Numbers of YAML files that PyYAML reads as texts: YAML 1.1 wants a dot, and a sign in the exponent (`4.0e-5`)."""

from __future__ import annotations

import re
from functools import cached_property
from typing import NamedTuple

from validator.analysis.recipes.composed import Compositions
from validator.analysis.recipes.sections import Sections
from validator.facts.config_files import Setting
from validator.files.languages import language
from validator.flow.queries.base import Place, Queries
from validator.flow.queries.outside_program import is_aside
from validator.flow.values import Obj
from validator.project import Project
from validator.source import SourceFile

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)[eE][+-]?\d+")
_OF_YAML = re.compile(r"[+-]?(\d+\.\d*|\.\d+)[eE][+-]\d+")
_LOADS = frozenset({"yaml.safe_load", "yaml.load", "yaml.full_load", "yaml.unsafe_load"})
# Libraries that read such a number as one, or make one of the text.
_MENDING = frozenset({
    "omegaconf", "hydra", "ruamel", "jsonargparse", "lightning", "yacs", "fvcore", "detectron2", "pyrallis", "draccus",
    "strictyaml", "confuse", "simple_parsing", "mmcv", "mmengine", "configargparse", "anyconfig", "dynaconf",
})  # fmt: skip
_CONVERTING = frozenset({"float", "int", "eval", "literal_eval", "Decimal", "tensor"})


class Exponent(NamedTuple):
    """A value as it is written, under a key of a file."""

    source: SourceFile
    setting: Setting
    text: str

    @property
    def name(self) -> str:
        return self.setting.path[-1]

    @property
    def advice(self) -> str:
        """How YAML 1.1 writes the number."""
        mantissa, exponent = re.split("[eE]", self.text)
        whole = mantissa if "." in mantissa else f"{mantissa}.0"
        return f"{whole}e{exponent if exponent[0] in '+-' else '+' + exponent}"


class Exponents:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.queries = project.analysis(Queries)
        self.sections = project.analysis(Sections)

    @cached_property
    def all(self) -> dict[tuple[str, int, int], Exponent]:
        """By (path, line, column of the key) the numbers without quotes that PyYAML takes for texts; none where the
        program tells PyYAML what a number is."""
        if any(self.project.calls("add_implicit_resolver")):
            return {}
        found = {}
        for source, settings in self.project.analysis(Compositions).files.values():
            if language(source.path) != "yaml" or is_aside(source.path):
                continue
            lines = source.text.split("\n")
            for each in settings.settings:
                line, column, last, end = each.value_at
                text = lines[line - 1][column - 1 : end - 1] if each.kind == "scalar" and line == last else ""
                if _NUMBER.fullmatch(text) and not _OF_YAML.fullmatch(text):
                    found[source.path, each.at[0], each.at[1]] = Exponent(source, each, text)
        return found

    @cached_property
    def is_plain(self) -> bool:
        """Whether nothing in the project but PyYAML itself reads YAML, as far as imports show."""
        rows = (row for module in self.project.modules.values() for row in module.facts.imports)
        packages = {row.module.partition(".")[0] for row in rows if not row.level}
        reads = "yaml" in packages or any(self.project.calls("parse_yaml_file"))
        return reads and _MENDING.isdisjoint(packages)

    def read(self, o: Obj, *keys: str) -> tuple[list[Exponent], bool]:
        """The texts that stand under a key of a section that PyYAML reads, and whether it is known that it reads these
        files: otherwise they are those of all files under the same keys, where nothing else reads YAML."""
        _, calls, path = o
        unit, number = calls[-1]
        if number is None or not self.loads(Place(self.queries.flow, unit, number)):
            return [], True
        links = (*(path.split(".") if path else ()), *keys)
        roots = self.sections.roots(calls)
        if roots:
            nodes = [root.node.find(links) for root in roots]
            rows = [self.all.get((node.path, *node.at[:2])) for node in nodes if node is not None]
            return [row for row in rows if row is not None], True
        alike = self._by_path.get(links, []) if self.is_plain else []
        return alike, False

    def loads(self, call: Place) -> bool:
        return any(o[0] == "ext" and o[1] in _LOADS for o in call.operand(0).closed.each)

    @cached_property
    def _by_path(self) -> dict[tuple[str, ...], list[Exponent]]:
        found: dict[tuple[str, ...], list[Exponent]] = {}
        for each in self.all.values():
            found.setdefault(each.setting.path, []).append(each)
        return found

    @cached_property
    def converted(self) -> frozenset[str]:
        """The names of keys and attributes of which code makes numbers somewhere: `float(config["lr"])`."""
        calls = self.queries.called_in_program(_CONVERTING | {"map"})
        given = (_given(call) for call in calls)
        return frozenset(word for place in given if place is not None for word in place.words)


def _given(call: Place) -> Place | None:
    """What a call makes a number of: `float(x)`, `map(float, [x, y])`."""
    count = len(call.value.args)
    if call.method != "map":
        return call.operand(1) if count > 1 else None
    return call.operand(2) if count > 2 and call.operand(1).root.value.data in _CONVERTING else None

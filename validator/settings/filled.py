"""Which sections of configuration files set the fields of which classes, and which of their keys are no fields.

A section that stands under a field with a class as annotation fills that class, and one that code hands to a class does
(`C.from_dict(config["generation"])`). Elsewhere the keys tell: the class that has most of them as fields, where hardly
one is left over, and no program of others has them all.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from validator.facts.config_files import Setting, Settings
from validator.project import ClassDef, Project
from validator.settings.classes import Field, Schema, Schemas
from validator.settings.handed import Handed
from validator.settings.other_programs import is_of_other_program
from validator.settings.sections import Section, tree

_KEYS = 4  # keys that must be fields before a section is taken for a class that nothing else names
_SHARE = 4  # and of so many keys one may be a stranger


class Fill(NamedTuple):
    """A section that sets fields of a class: of `schema`, or of another one of those `among` which it was found.

    `declared`: by the annotation of the field that it stands under, or by the call that it is handed to. `alike`: only
    because all sections under such a path that are known fill that class, and a key of it is a field.
    """

    section: Section
    schema: Schema
    among: tuple[Schema, ...]
    declared: bool
    alike: bool = False

    @property
    def fields(self) -> Iterator[tuple[Setting, Field]]:
        return ((each, self.schema.fields[name]) for name, each in self._keys if name in self.schema.fields)

    @property
    def strangers(self) -> list[Setting]:
        """The keys that are no fields."""
        if self.schema.takes_more:
            return []
        return [each for name, each in self._keys if name not in self.schema.fields and not name.startswith("_")]

    @property
    def _keys(self) -> Iterable[tuple[str, Setting]]:
        return self.section.keys.items()


class _Fit(NamedTuple):
    """How many keys of a section, and of those in it for which annotations name a class, are fields."""

    known: int
    unknown: int

    @property
    def score(self) -> int:
        return self.known - self.unknown


class Filled:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.schemas = project.analysis(Schemas)
        self.handed = project.analysis(Handed)
        self._unknown: dict[str, list[Section]] = {}
        files = ((s.path, s.facts.extra.get("settings")) for s in project.files.values())
        self.files: dict[str, Settings] = {path: rows for path, rows in files if rows and not _is_of_a_model(rows)}

    @cached_property
    def all(self) -> tuple[tuple[Fill, ...], ...]:
        """For each file of settings the sections that fill classes, outer ones first."""
        found = [[*self._free(tree(path, settings))] for path, settings in self.files.items()]
        known: dict[str, set[Schema]] = {}
        for fill in (fill for fills in found for fill in fills if fill.section.setting is not None):
            known.setdefault(fill.section.dotted, set()).update(fill.among)
        return tuple((*fills, *self._alike(path, known)) for fills, path in zip(found, self.files, strict=True))

    def _alike(self, path: str, known: dict[str, set[Schema]]) -> Iterator[Fill]:
        """The sections of a file, too small to tell by their keys, whose like are all of one class; none of which most
        is strange to that."""
        for section in self._unknown.get(path, ()):
            classes = known.get(section.dotted, set())
            schema = next(iter(classes)) if len(classes) == 1 else None
            known_keys = schema.fields.keys() & section.keys.keys() if schema is not None else set()
            if schema is not None and known_keys and 2 * len(known_keys) >= len(section.keys):
                yield Fill(section, schema, (schema,), declared=False, alike=True)

    def is_taken_over(self, key: Setting) -> bool:
        """Whether another value of some file is that of a key (`${model.hidden_size}`), or names it."""
        return ".".join(key.path) in self._taken_over

    @cached_property
    def _taken_over(self) -> frozenset[str]:
        values = (each.value for settings in self.files.values() for each in settings.settings)
        texts = {value for value in values if isinstance(value, str)}
        holes = (part.partition("}")[0] for text in texts for part in text.split("${")[1:])
        return frozenset(hole.strip() for hole in holes) | texts

    def _free(self, section: Section) -> Iterator[Fill]:
        """What a section fills that stands under no field, or under one that may hold anything."""
        handed = self._handed(section)
        among = handed or (() if section.is_list else self._recognised(section))
        if among:
            fills = [*self._filled(section, among, declared=bool(handed))]
            strange = not handed and section.setting is None and any(fill.strangers for fill in fills)
            yield from () if strange and is_of_other_program(section) else fills
        else:
            if section.name.isidentifier() and not section.is_list:
                self._unknown.setdefault(section.path, []).append(section)
            for inner in section.inside.values():
                yield from self._free(inner)

    def _filled(self, section: Section, among: tuple[Schema, ...], declared: bool) -> Iterator[Fill]:
        """The same of a section that fills the first of some classes, or another one."""
        yield Fill(section, among[0], among, declared)
        for name, inner in section.inside.items():
            field = among[0].fields.get(name)
            for part in _parts(inner, field.around if field is not None else ""):
                found = self._in_order(part, field.classes) if field is not None and not part.is_list else ()
                yield from self._filled(part, found, declared=True) if found else self._free(part)

    def _handed(self, section: Section) -> tuple[Schema, ...]:
        """The one class that code hands a section to."""
        first = next(iter(section.keys.values()), None)
        found = self.handed.classes.get((section.path, first.at), ()) if first is not None else ()
        return found if len(found) == 1 else ()

    def _recognised(self, section: Section) -> tuple[Schema, ...]:
        """The classes that most keys of a section, and of those in it, are fields of, the best one first."""
        counts = Counter(schema for name in section.keys for schema in self.schemas.by_field.get(name, ()))
        most = max(counts.values(), default=0)
        if most < 2:
            return ()
        fits = {schema: self._fit(section, schema) for schema, count in counts.items() if count == most}
        found = sorted(fits, key=lambda schema: (-_near(section, schema), -fits[schema].score))
        nobodys = sum(name not in self.schemas.by_field for name in section.keys)
        known = fits[found[0]].known
        return tuple(found) if known >= _KEYS and nobodys * _SHARE <= known else ()

    def others(self, fill: Fill, name: str) -> list[Schema]:
        """Other classes with a field of some name that share keys with a section: it may be for them as well."""
        rows = self.schemas.by_field.get(name, ())
        return [each for each in rows if each is not fill.schema and len(each.fields.keys() & fill.section.keys) > 1]

    def _in_order(self, section: Section, classes: tuple[ClassDef, ...]) -> tuple[Schema, ...]:
        """The schemas of some classes and of those below them, the one first that fits a section best."""
        return tuple(sorted(self.schemas.below(classes), key=lambda schema: -self._fit(section, schema).score))

    def _fit(self, section: Section, schema: Schema) -> _Fit:
        known = unknown = 0
        for name in section.keys:
            field = schema.fields.get(name)
            inner = section.inside.get(name)
            fits = [_Fit(0, 0)]
            if field is None:
                unknown += not schema.takes_more
            elif inner is not None and not field.around:
                fits = [self._fit(inner, each) for each in self.schemas.below(field.classes)] or fits
            best = max(fits, key=lambda fit: fit.score)
            known, unknown = known + (field is not None) + best.known, unknown + best.unknown
        return _Fit(known, unknown)


def _is_of_a_model(settings: Settings) -> bool:
    """Whether a file is what a checkpoint says of its model (`config.json`): the keys of a class of transformers."""
    return settings.get("architectures") is not None or settings.get("model_type") is not None


def _near(section: Section, schema: Schema) -> int:
    """How deep the folder is that holds a class and, there or further below, the file of a section; 0 where none is.

    Programs that stand side by side have classes of one name and one kind; the files of each lie beside it.
    """
    folder = posixpath.dirname(schema.cls.path)
    return folder.count("/") + 1 if folder and section.path.startswith(f"{folder}/") else 0


def _parts(section: Section, around: str) -> Iterable[Section]:
    """The sections that a field holds: one, or those of a list or a dictionary."""
    return section.inside.values() if around and (around == "dict" or section.is_list) else (section,)

"""What a program consists of: the modules of the project that its entry point imports, and their settings classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.facts.model import Import
from validator.project import ClassDef, Method, Module, Project, Value

UNKNOWN = object()  # a default that is computed

_MOST = 400
_KEY = re.compile(r"[\[(][\"']([A-Za-z_]\w*)[\"'][\]),]|\.([A-Za-z_]\w*)\b(?!\s*\()")
_SETTINGS = ("dataclass", "dataclasses.dataclass", "define", "attrs.define", "attr.s", "pydantic.dataclasses.dataclass")
_SETTINGS_BASES = ("pydantic.BaseModel", "pydantic_settings.BaseSettings", "typing.NamedTuple")


class SettingsClass(NamedTuple):
    """A class whose fields are settings (a dataclass or its like), with their literal defaults; `UNKNOWN` where
    one is computed, or where there is none."""

    cls: ClassDef
    fields: dict[str, object]


class Programs:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._modules: dict[Module, tuple[Module, ...]] = {}
        self._texts: dict[Module, str] = {}
        self._words: dict[Module, frozenset[str]] = {}

    def modules(self, entry: Module) -> tuple[Module, ...]:
        """The modules that an entry point imports, itself first; at most 400."""
        if entry not in self._modules:
            found = {entry: None}
            queue = [entry]
            while queue and len(found) < _MOST:
                for module in self.imported(queue.pop(0)):
                    if module not in found:
                        found[module] = None
                        queue.append(module)
            self._modules[entry] = tuple(found)
        return self._modules[entry]

    def imported(self, module: Module) -> Iterator[Module]:
        """The modules of the project that a module imports itself, in the order of its imports."""
        for row in module.facts.imports:
            found = self._imported(module, row)
            if found is not None:
                yield found

    def text(self, entry: Module) -> str:
        """The source of all of them."""
        if entry not in self._texts:
            self._texts[entry] = "\n".join(module.source.text for module in self.modules(entry))
        return self._texts[entry]

    def words(self, entry: Module) -> frozenset[str]:
        """Every name and word of its source."""
        if entry not in self._words:
            self._words[entry] = frozenset(re.findall(r"[A-Za-z_]\w*", self.text(entry)))
        return self._words[entry]

    def keys(self, entry: Module) -> frozenset[str]:
        """The names by which its source reads keys or attributes of something: `x["name"]`, `.get("name")`, `.name`."""
        found = _KEY.findall(self.text(entry))
        return frozenset(name for names in found for name in names if name)

    def settings(self, entry: Module) -> list[SettingsClass]:
        """The settings classes of a program."""
        return [each for module in self.modules(entry) for each in self._settings.get(module, ())]

    @cached_property
    def _settings(self) -> dict[Module, list[SettingsClass]]:
        found: dict[Module, list[SettingsClass]] = {}
        for cls in self.project.classes():
            if _holds_settings(cls):
                found.setdefault(cls.module, []).append(SettingsClass(cls, _fields(cls)))
        return found

    def _imported(self, importer: Module, row: Import) -> Module | None:
        if row.name is None and not row.level:
            found: object = self.project.import_module(importer, row.module)
        else:
            found = self.project.imported(importer, row)
        if isinstance(found, ClassDef | Method | Value):
            return found.module
        return found if isinstance(found, Module) else None


def _holds_settings(cls: ClassDef) -> bool:
    decorated = any(d.removesuffix("()") in _SETTINGS for d in cls.facts.decorators)
    return bool(cls.facts.attributes) and (decorated or any(base in _SETTINGS_BASES for base in cls.external_bases))


def _fields(cls: ClassDef) -> dict[str, object]:
    """The fields of a class and of its bases, in order."""
    found: dict[str, object] = {}
    for owner in reversed(cls.mro):
        defaults = _defaults(owner)
        found.update({name: defaults.get(name, UNKNOWN) for name, hint in owner.facts.attributes if hint})
    return found


def _defaults(cls: ClassDef) -> dict[str, object]:
    found: dict[str, object] = {}
    for row in _body(cls):
        if isinstance(row, ast.AnnAssign) and isinstance(row.target, ast.Name) and row.value is not None:
            found[row.target.id] = _literal(row.value)
    return found


def _body(cls: ClassDef) -> list[ast.stmt]:
    """The statements of a class, parsed for itself: few classes hold settings, and whole trees are large."""
    first, _, last, _ = cls.facts.at
    text = "\n".join(cls.module.source_text.lines[first - 1 : last])
    try:
        parsed = ast.parse(f"if 1:\n{text}" if text[:1].isspace() else text).body
    except SyntaxError:  # a form feed starts the count of an indentation anew
        nodes = (n for n in ast.walk(cls.module.source.tree) if isinstance(n, ast.ClassDef))
        return next((n.body for n in nodes if n.name == cls.facts.name), [])
    node = parsed[0].body[0] if isinstance(parsed[0], ast.If) else parsed[0]
    return node.body if isinstance(node, ast.ClassDef) else []


def _literal(node: ast.expr) -> object:
    """The value of a default: `8`, or the one in `field(default=8)`."""
    if isinstance(node, ast.Call):
        given = next((k.value for k in node.keywords if k.arg == "default"), None)
        return _literal(given) if given is not None else UNKNOWN
    try:
        value: object = ast.literal_eval(node)
    except ValueError:
        return UNKNOWN
    return value

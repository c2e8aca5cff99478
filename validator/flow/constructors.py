"""What calling a class of the project takes: the parameters of `__init__`, or the fields of a data class."""

from __future__ import annotations

from validator.analysis.binding import keeps_signature, parameters
from validator.definitions import ClassDef
from validator.facts.model import Assign, Param
from validator.project import Project

_DATACLASS = frozenset({"dataclass", "dataclasses.dataclass", "dataclass()", "dataclasses.dataclass()"})
REMOTE = frozenset({"ray.remote", "ray.remote()"})
_MAKING = _DATACLASS | REMOTE  # decorators that leave what a call of the class needs plain to see
_FIELD = frozenset({"field", "dataclasses.field"})


class Constructors:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[ClassDef, tuple[Param, ...] | None] = {}

    def of(self, cls: ClassDef) -> tuple[Param, ...] | None:
        """The parameters that a caller of the class fills; None where they are not plain to see."""
        if cls not in self._known:
            self._known[cls] = self._find(cls)
        return self._known[cls]

    def _find(self, cls: ClassDef) -> tuple[Param, ...] | None:
        if _is_defined_again(cls) or cls.find("__new__") is not None:
            return None
        if any(each.facts.keywords or not _MAKING.issuperset(each.facts.decorators) for each in cls.mro):
            return None
        for each in cls.mro:
            if "__init__" in each.methods:
                made = each.methods["__init__"]
                plain = keeps_signature(made) and len(each.definitions["__init__"]) == 1
                return parameters(made, bound=True) if plain else None
            if not _DATACLASS.isdisjoint(each.facts.decorators):
                return _fields(cls, each)
            if any(not isinstance(base, ClassDef) for base in each.bases):
                return None
        return ()


def _is_defined_again(cls: ClassDef) -> bool:
    """Whether the name of a class means something else as well: a second definition, an import, an assignment."""
    module = cls.module
    return (
        sum(each.qualname == cls.qualname for each in module.facts.classes) > 1
        or ("<module>", cls.name) in module.imports
        or any(row.target == cls.name for row in module.top.facts.assigns)
    )


def _fields(cls: ClassDef, top: ClassDef) -> tuple[Param, ...] | None:
    """The parameters that `@dataclass` gives to `__init__`; None where they are not plain to see."""
    if top is not cls or cls.external_bases:
        return None
    found: dict[str, Param] = {}
    for each in reversed(cls.mro):
        if _DATACLASS.isdisjoint(each.facts.decorators) or "__init__" in each.methods:
            return None
        if "dataclass()" in " ".join(each.facts.decorators) and "init=" in _decorator_text(each):
            return None
        for row in _body(each):
            if row.annotation and "." not in row.target and "[" not in row.target:
                param = _field(each, row)
                if param is None:
                    return None
                if "ClassVar" not in row.annotation:
                    found[row.target] = param
    return tuple(found.values())


def _body(cls: ClassDef) -> tuple[Assign, ...]:
    body = cls.module.functions.get(f"{cls.qualname}.<class>")
    return body.facts.assigns if body is not None else ()


def _field(cls: ClassDef, row: Assign) -> Param | None:
    default: str | None = row.value if row.kind != "none" else None
    if "KW_ONLY" in row.annotation:
        return None
    if row.kind == "call" and row.value in _FIELD:
        body = cls.module.functions[f"{cls.qualname}.<class>"]
        call = next((c for c in body.facts.calls if c.target in _FIELD and row.at[:2] <= c.at[:2] <= row.at[2:]), None)
        words = {a.keyword for a in call.args} if call is not None else {"init"}
        if "init" in words or "kw_only" in words or "**" in words:
            return None
        default = "…" if words & {"default", "default_factory"} else None
    return Param(row.target, "any", default, row.annotation, row.at)


def _decorator_text(cls: ClassDef) -> str:
    lines = cls.module.source.lines
    return " ".join(lines[max(0, cls.facts.name_at[0] - 8) : cls.facts.name_at[0]])

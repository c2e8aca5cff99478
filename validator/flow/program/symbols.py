"""What symbols of the project stand for: functions, classes, modules, variables, names of libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.definitions import ClassDef, External, Method, Missing, Module, Symbol, Value
from validator.flow.values import NOT_YET, UNKNOWN, Val, obj
from validator.project import Unknown

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation

_OF_RANKS = ("rank", "size", "group", "job rank", "job ranks")
_BUILTIN_DECORATORS = frozenset({
    "staticmethod", "classmethod", "property", "functools.cached_property", "cached_property", "abc.abstractmethod",
    "abstractmethod", "override", "typing.override", "torch.no_grad()", "torch.inference_mode()", "torch.no_grad",
    "functools.lru_cache", "functools.lru_cache()", "functools.cache", "lru_cache", "lru_cache()", "cache",
    "contextmanager", "contextlib.contextmanager", "asynccontextmanager", "contextlib.asynccontextmanager",
})  # fmt: skip


def is_plain(decorators: tuple[str, ...]) -> bool:
    """Whether decorators leave a function what it is, as far as this analysis can tell."""
    return all(d in _BUILTIN_DECORATORS for d in decorators)


def meaning(at: Evaluation, symbol: Symbol | Missing, name: str) -> Val:
    """The value that a symbol of the project stands for."""
    if isinstance(symbol, Method):
        unit = at.flow.unit_of(symbol)
        if unit is None:
            return UNKNOWN
        if (dotted := _of_own_library(at, symbol)) and symbol.module is not at.unit.module:
            return obj("ext", dotted)
        if is_plain(symbol.facts.decorators) or "." in symbol.qualname:
            return obj("unit", unit)
        found: Val = at.flow.get("global", symbol.module, symbol.name)
        return found if found.objs or found is NOT_YET else obj("unit", unit)
    if isinstance(symbol, ClassDef):
        own = _of_own_library(at, symbol) if symbol.module is not at.unit.module else ""
        return obj("ext", own) if own else obj("class", symbol)
    if isinstance(symbol, Module):
        return obj("module", symbol)
    if isinstance(symbol, External):
        return obj("ext", symbol.path)
    if isinstance(symbol, Value):
        held: Val = at.flow.get("global", symbol.module, symbol.name)
        return held
    if isinstance(symbol, Unknown) and "." in symbol.path and symbol.path != name:
        return obj("ext", symbol.path)
    return UNKNOWN


def _of_own_library(at: Evaluation, symbol: Method | ClassDef) -> str:
    """The name under which the tables say what a function, or a context manager, does: the project may be the
    library itself. They say more than its body tells, which finds groups and backends in global variables."""
    dotted = f"{symbol.module.name}.{symbol.qualname}"
    row = at.models.call(dotted)
    if row is None or isinstance(symbol, Method) and symbol.cls is not None:
        return ""
    made = isinstance(symbol, ClassDef)
    known = row.gathers is not None if made else row.is_collective or row.result in _OF_RANKS
    return dotted if known else ""

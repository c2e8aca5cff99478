"""What a dotted path in a text names (`"pkg.models.Actor"`), as importers of such texts take it."""

from __future__ import annotations

import re
from functools import cache

from validator.analysis.interfaces.members import Members
from validator.definitions import ClassDef, Missing, Module, Symbol, Unknown
from validator.project import Project

_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")


def is_path(text: object) -> bool:
    return isinstance(text, str) and _PATH.fullmatch(text) is not None


class Named:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.of = cache(self._of)

    def _of(self, dotted: str) -> Symbol | None:
        """The symbol that a path names; `Missing` where a module of the project lacks it, None where the path leads to
        no module of the project that was read."""
        parts = dotted.split(".")
        importer = next(iter(self.project.modules.values()), None)
        if importer is None:
            return None
        for end in range(len(parts), 0, -1):
            module = self.project.import_module(importer, ".".join(parts[:end]))
            if isinstance(module, Module):
                return self._inside(module, parts[end:])
        return None

    def _inside(self, symbol: Symbol, names: list[str]) -> Symbol:
        for name in names:
            if isinstance(symbol, Module):
                symbol = symbol.member(name)
            elif isinstance(symbol, ClassDef):
                found = symbol.find(name)
                if found is None and self.project.analysis(Members).lacks_where_made(symbol, name):
                    return Missing(f"{symbol.module.name}.{symbol.qualname}", name, symbol.module)
                symbol = found or Unknown(name)
            else:
                return symbol if isinstance(symbol, Missing) else Unknown(name)
        return symbol

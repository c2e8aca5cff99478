"""Process groups of all ranks under another name: `self.group = dist.new_group(backend="gloo")`, or None."""

from __future__ import annotations

from functools import cached_property

from validator.facts.model import Assign
from validator.project import Method, Project, Value

_MAKER = "torch.distributed.new_group"
_DEFAULT = (".group.WORLD", ".GroupMember.WORLD")

Bound = list[tuple[Method, Assign]]


class WholeGroups:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._known: dict[tuple[Method, str], bool] = {}

    def holds(self, function: Method, path: str) -> bool:
        """Whether the group that a path holds in a function is all of the job, whatever sets it."""
        if not path.replace(".", "").isidentifier():
            return False
        key = (function, path)
        if key not in self._known:
            rows = self._rows(function, path)
            self._known[key] = bool(rows) and all(self._is_whole(owner, row) for owner, row in rows)
        return self._known[key]

    def _rows(self, function: Method, path: str) -> Bound:
        """All that a path is bound to; nothing where that cannot be told."""
        head, _, name = path.rpartition(".")
        if not head:
            return self._named(function, name)
        if name in self._set_outside:
            return []
        owners = {low for cls in self.project.types.of(function, head) for low in (cls, *cls.descendants())}
        if any(cls.find(name) is not None for cls in owners):
            return []
        found = [row for cls in owners for row in self.project.types.set_on(cls, name)]
        # a base outside the project may give its objects a group where the class itself only says None
        return [] if all(r.value == "None" for _, r in found) and any(c.is_open for c in owners) else found

    def _named(self, function: Method, name: str) -> Bound:
        if name in function.facts.bound:
            given = any(p.name == name for p in function.facts.params)
            return [] if given else [(function, row) for row in function.facts.assigns if row.target == name]
        symbol = self.project.lookup(function, name)
        if not isinstance(symbol, Value):
            return []
        module = symbol.module
        setting = [module.top, *(f for f in module.functions.values() if symbol.name not in f.facts.bound)]
        return [(f, row) for f in setting for row in f.facts.assigns if row.target == symbol.name]

    def _is_whole(self, function: Method, row: Assign) -> bool:
        if row.value == "None" or (row.kind == "path" and f".{row.value}".endswith(_DEFAULT)):
            return True
        if row.kind != "call" or self.project.dotted(function, row.value) != _MAKER:
            return False
        made = [c for c in function.facts.calls if c.target == row.value and row.at[0] <= c.at[0] <= row.at[2]]
        return len(made) == 1 and not any(
            a.keyword in (None, "ranks", "*", "**") and a.value != "None" for a in made[0].args
        )

    @cached_property
    def _set_outside(self) -> set[str]:
        """The names of groups that are set on other objects than `self`, or are fields of a class."""
        return {
            name
            for function in self.project.functions()
            for row in function.facts.assigns
            if "group" in (name := row.target.rpartition(".")[2]) and not _is_own(function, row.target)
        }


def _is_own(function: Method, target: str) -> bool:
    """Whether a target of an assignment is a variable, or an attribute of the function's own object."""
    if "." not in target:
        return function.name != "<class>"
    params = function.facts.params
    return function.is_method and bool(params) and target.rpartition(".")[0] == params[0].name

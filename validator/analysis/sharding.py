"""Which code shards its models with FSDP2 (`fully_shard`), so that their parameters are DTensors."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from validator.analysis.binding import bind
from validator.facts.model import Call
from validator.project import ClassDef, Method, Project

_SHARDED = "fully_shard"


class Sharding:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._models: dict[ClassDef, dict[str, tuple[Method, Call]]] = {}

    def is_fully_shard(self, function: Method, call: Call) -> bool:
        """Whether a call is torch's `fully_shard`, under whatever name it was imported."""
        if call.method == _SHARDED:
            return True
        return call.target in self._aliases.get(function.path, ()) and self.project.dotted(
            function, call.target
        ).endswith(f".{_SHARDED}")

    @cached_property
    def _aliases(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for module in self.project.modules.values():
            for row in module.facts.imports:
                if row.name == _SHARDED and row.asname:
                    found.setdefault(module.path, set()).add(row.asname)
        return found

    @cached_property
    def direct(self) -> dict[Method, list[Call]]:
        """The functions that call `fully_shard` themselves, with the calls."""
        found: dict[Method, list[Call]] = {}
        for function in self.project.functions():
            for call in function.facts.calls:
                if self.is_fully_shard(function, call):
                    found.setdefault(function, []).append(call)
        return found

    @cached_property
    def calls(self) -> dict[Method, list[Call]]:
        """The calls that shard what they are given: `fully_shard` and project functions that call it."""
        found = {function: list(calls) for function, calls in self.direct.items()}
        for helper in self.direct:
            if helper.name.startswith("<") or helper.cls is not None:
                continue
            for caller, call in self.project.types.callers.get(helper, ()):
                found.setdefault(caller, []).append(call)
        return found

    @cached_property
    def classes(self) -> frozenset[ClassDef]:
        """The classes of which a method shards a model."""
        return frozenset(function.cls for function in self.calls if function.cls is not None)

    def models(self, cls: ClassDef) -> dict[str, tuple[Method, Call]]:
        """The attributes (`model` of `self.model`) that hold sharded models, each with the call that shards it."""
        if cls not in self._models:
            self._models[cls] = {}
            self._models[cls].update({**self._given(cls), **self._made(cls)})
        return self._models[cls]

    def _made(self, cls: ClassDef) -> dict[str, tuple[Method, Call]]:
        found: dict[str, tuple[Method, Call]] = {}
        for method in cls.every_method():
            for call in self.calls.get(method, ()):
                names = [a.value for a in call.args if a.kind == "path"]
                names += [row.target for row in method.facts.assigns if row.kind == "call" and row.value == call.target]
                names += [row.target for row in method.facts.assigns if row.kind == "path" and row.value in names]
                for name in names:
                    if name.startswith("self.") and name.count(".") == 1:
                        found[name[5:]] = (method, call)
        return found

    def _given(self, cls: ClassDef) -> dict[str, tuple[Method, Call]]:
        """Attributes that `__init__` takes from its caller, who hands over a sharded model."""
        init = cls.find("__init__")
        if init is None:
            return {}
        kept = {
            row.value: row.target[5:]
            for row in init.facts.assigns
            if row.kind == "path" and row.target.startswith("self.")
        }
        found: dict[str, tuple[Method, Call]] = {}
        for caller, call in self.project.types.callers.get(init, ()):
            if caller.cls is None or caller.cls is cls or caller.cls not in self.classes:
                continue
            for name, argument in bind(init, call).items():
                held = argument.value.removeprefix("self.")
                if name in kept and argument.value.startswith("self.") and held in self.models(caller.cls):
                    found[kept[name]] = (caller, call)
        return found


class Wrapped(NamedTuple):
    """How objects of a class are wrapped. `kind`: DDP or FSDP. `finds_unused`: DDP bears unused parameters."""

    kind: str
    finds_unused: bool
    path: str
    line: int


_DDP = frozenset({"DDP", "DistributedDataParallel"})
_FSDP = frozenset({"FSDP", "FullyShardedDataParallel", _SHARDED})


class Wrapping:
    """Which classes of a project are wrapped whole in DDP or FSDP."""

    def __init__(self, project: Project) -> None:
        self.project = project

    @cached_property
    def classes(self) -> dict[ClassDef, Wrapped]:
        """The classes whose objects are handed to a wrapper; of several ways the one that bears least."""
        found: dict[ClassDef, Wrapped] = {}
        for function, call in self.project.calls(*_FSDP, *_DDP):
            wrapped = self._wrapped(function, call)
            for cls in self._given(function, call):
                if cls not in found or found[cls].finds_unused:
                    found[cls] = wrapped
        return found

    def _wrapped(self, function: Method, call: Call) -> Wrapped:
        if call.method in _FSDP:
            return Wrapped("FSDP", False, function.path, call.at[0])
        unused = call.keyword("find_unused_parameters")
        # what the configuration decides, and keywords handed on, may well be right
        bears = (unused is not None and unused.value != "False") or any(a.keyword == "**" for a in call.args)
        static = call.keyword("static_graph")
        return Wrapped("DDP", bears or static is not None, function.path, call.at[0])

    def _given(self, function: Method, call: Call) -> frozenset[ClassDef]:
        model = next((a for a in call.args if a.keyword in (None, "module")), None)
        if model is None or model.kind not in ("path", "call"):
            return frozenset()
        return self.project.types.of(function, model.value + ("()" if model.kind == "call" else ""))

"""Calls on DeepSpeed engines and on FSDP models, whose methods communicate although no name in the call says so."""

from __future__ import annotations

from collections.abc import Iterator

from validator.analysis.places import within
from validator.analysis.sharding import Sharding
from validator.facts.model import Assign, At, Call
from validator.project import ClassDef, Method, Project

# A forward of an engine gathers parameters under ZeRO-3 only: what the stage is stands in a configuration.
_OF_ENGINE = frozenset({"backward", "step", "save_checkpoint", "load_checkpoint", "train_batch", "eval_batch"})
_OF_FSDP = frozenset({"forward", "clip_grad_norm_", "state_dict"})
_OF_SHARDED = frozenset({"forward", "clip_grad_norm_"})  # a state dict of DTensors is each rank's own
_FSDP = frozenset({"FSDP", "FullyShardedDataParallel"})

Made = dict[str, tuple[frozenset[str], At]]  # path -> its communicating methods, and where it was made


class Engines:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._classes: dict[ClassDef, Made] = {}
        self._made: dict[Method, Made] = {}
        for function, call in project.calls("initialize", *_FSDP):
            methods = _OF_FSDP if call.method in _FSDP else _OF_ENGINE
            if call.method in _FSDP or project.dotted(function, call.target) == "deepspeed.initialize":
                for path in _bound(function, call):
                    self._made.setdefault(function, {})[path] = methods, call.at
        for function, calls in project.analysis(Sharding).direct.items():
            for call in calls:
                if call.args and call.args[0].kind == "path":
                    self._made.setdefault(function, {})[call.args[0].value] = _OF_SHARDED, call.at

    def operation(self, function: Method, call: Call) -> str:
        """The name of what a call does together with the other ranks; empty where nothing says that it does.

        A local name must have been bound by the call that makes the engine, and by none since. An attribute must be
        bound nowhere else in the class.
        """
        clipped = call.args[0].value if call.method == "clip_grad_norm_" and call.args else ""
        for path, name in (
            (call.target, "forward"),
            (call.receiver, call.method),
            (clipped.removesuffix("()").removesuffix(".parameters"), "clip_grad_norm_"),
        ):
            made = self._local(function, path, call.at) if path else None
            if made is not None and name in made:
                return name
        return ""

    def _local(self, function: Method, path: str, at: At) -> frozenset[str] | None:
        if path.startswith("self.") and function.cls is not None:
            found = self._attributes(function.cls).get(path)
            return found[0] if found else None
        found = self._made.get(function, {}).get(path)
        if found is None or at < found[1] or any(_overlap(row.at, found[1], at) for row in _rows(function, path)):
            return None
        return found[0]

    def _attributes(self, cls: ClassDef) -> Made:
        if cls not in self._classes:
            made: Made = {}
            for method in cls.every_method():
                made.update({path: row for path, row in self._made.get(method, {}).items() if path.startswith("self.")})
            for path, (_, at) in list(made.items()):
                owner = next(m for m in cls.every_method() if self._made.get(m, {}).get(path, (None, None))[1] == at)
                for method in cls.every_method():
                    others = (row for row in _rows(method, path) if row.value != "None")
                    if any(method is not owner or row.at > at for row in others):
                        made.pop(path, None)
            self._classes[cls] = made
        return self._classes[cls]


def _rows(function: Method, path: str) -> Iterator[Assign]:
    return (row for row in function.facts.assigns if row.target == path)


def _overlap(row: At, made: At, at: At) -> bool:
    """Whether a name is bound anew between the call that made it and its use."""
    return row > made and row < at


def _bound(function: Method, call: Call) -> Iterator[str]:
    """The names that an assignment gives to what a call returns; of several the first."""
    for row in function.facts.assigns:
        if (
            within(call.at, row.at)
            and (row.kind == "call" or row.kind.startswith("unpack:0/"))
            and row.value.startswith(call.target)
        ):
            yield row.target

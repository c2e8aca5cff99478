"""Calls on DeepSpeed engines and on FSDP models, whose methods communicate although no name in the call says so."""

from __future__ import annotations

import re

from validator.analysis.wrapped import ENGINE, FSDP, SHARDED, Wrapped
from validator.facts.model import At, Call
from validator.project import Method, Project

# What each kind does together with the other ranks. A forward of an engine gathers parameters under ZeRO-3 only: what
# the stage is stands in a configuration. A state dict of DTensors is each rank's own.
_METHODS = {
    ENGINE: frozenset({"backward", "step", "save_checkpoint", "load_checkpoint", "train_batch", "eval_batch"}),
    FSDP: frozenset({"forward", "clip_grad_norm_", "state_dict"}),
    SHARDED: frozenset({"forward", "clip_grad_norm_"}),
}
_ENGINE_NAME = re.compile(r"(^|_)(model|engine)$")


class Engines:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.wrapped = project.analysis(Wrapped)

    def operation(self, function: Method, call: Call) -> str:
        """The name of what a call does together with the other ranks; empty where nothing says that it does.

        A name must have been bound by what makes or wraps the model, and by nothing since; see
        `validator.analysis.wrapped` for what is followed.
        """
        clipped = call.args[0].value if call.method == "clip_grad_norm_" and call.args else ""
        for path, name in (
            (call.target, "forward"),
            (call.receiver, call.method),
            (clipped.removesuffix("()").removesuffix(".parameters"), "clip_grad_norm_"),
        ):
            if path and any(name in _METHODS[held.kind] for held in self.wrapped.at(function, path, call.at)):
                return name
        return call.method if call.method in _METHODS[ENGINE] and self._of_strategy(function, call.receiver) else ""

    def is_engine(self, function: Method, path: str, at: At) -> bool:
        """Whether a path holds a DeepSpeed engine at a place."""
        held = self.wrapped.at(function, path, at)
        return any(row.kind == ENGINE for row in held) or self._of_strategy(function, path)

    def _of_strategy(self, function: Method, path: str) -> bool:
        """Whether a path is the parameter `model` of a method whose class makes DeepSpeed engines."""
        return (
            function.cls is not None
            and _ENGINE_NAME.search(path) is not None
            and any(p.name == path for p in function.facts.params)
            and self.wrapped.makes_engines(function.cls)
        )

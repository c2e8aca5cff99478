"""Calls on DeepSpeed engines and on FSDP models, whose methods communicate although no name in the call says so."""

from __future__ import annotations

import re

from validator.analysis.wrapped import DDP, ENGINE, FSDP, SHARDED, Wrapped
from validator.facts.model import At, Call
from validator.project import Method, Project

# What each kind does together with the other ranks. A forward of an engine gathers parameters under ZeRO-3 only: what
# the stage is stands in a configuration. A state dict of DTensors is each rank's own.
_METHODS = {
    ENGINE: frozenset({"backward", "step", "save_checkpoint", "load_checkpoint", "train_batch", "eval_batch"}),
    FSDP: frozenset({"forward", "clip_grad_norm_", "state_dict"}),
    SHARDED: frozenset({"forward", "clip_grad_norm_"}),
    DDP: frozenset(),  # its forward waits for nobody that has no buffers to send
}
_REDUCING = frozenset({FSDP, SHARDED, DDP})  # what reduces gradients in the backward of a loss
_ENGINE_NAME = re.compile(r"(^|_)(model|engine)$")


class Engines:
    """Answers for one project, remembered."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.wrapped = project.analysis(Wrapped)
        self._reducing: dict[Method, bool] = {}

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
            if path.rpartition(".")[2] not in self.wrapped.names:
                continue
            if any(name in _METHODS[held.kind] for held in self.wrapped.at(function, path, call.at)):
                return name
        if call.method == "backward" and not call.args and self._reduces(function, call):
            return "backward"
        return call.method if call.method in _METHODS[ENGINE] and self._of_strategy(function, call.receiver) else ""

    def is_engine(self, function: Method, path: str, at: At) -> bool:
        """Whether a path holds a DeepSpeed engine at a place."""
        held = self.wrapped.at(function, path, at)
        return any(row.kind == ENGINE for row in held) or self._of_strategy(function, path)

    def _reduces(self, function: Method, call: Call) -> bool:
        """Whether the gradients of a loss are those of a wrapped model: of one that the function runs, itself or one
        call deeper, that it is given beside the loss, or that its object keeps and it works with."""
        if any("no_sync" in guard.text for guard in call.guards if guard.kind == "with"):
            return False
        if function not in self._reducing:
            self._reducing[function] = (
                self._runs(function)
                or any(
                    self._runs(target)
                    for each in function.facts.calls
                    if each.method in self.project.defined
                    for target in self.project.types.called(function, each.target)
                )
                or any(self._is_reducing(function, param.name, call.at) for param in function.facts.params)
                or any(self._is_reducing(function, path, call.at) for path in _kept(function))
            )
        return self._reducing[function]

    def _runs(self, function: Method) -> bool:
        """Whether a function runs a forward of a model that reduces its gradients."""
        return any(self._is_reducing(function, call.target, call.at) for call in function.facts.calls)

    def _is_reducing(self, function: Method, path: str, at: At) -> bool:
        return any(held.kind in _REDUCING for held in self.wrapped.at(function, path, at))

    def _of_strategy(self, function: Method, path: str) -> bool:
        """Whether a path is the parameter `model` of a method whose class makes DeepSpeed engines."""
        return (
            function.cls is not None
            and _ENGINE_NAME.search(path) is not None
            and any(p.name == path for p in function.facts.params)
            and self.wrapped.makes_engines(function.cls)
        )


def _kept(function: Method) -> set[str]:
    """The attributes of its object whose methods a function calls, such as `self.model`, and that one in any case:
    where a closure or another object runs the forward, nothing else says whose loss it is."""
    own = function.own_object
    if own is None:
        return set()
    receivers = (call.receiver for call in function.facts.calls)
    return {f"{own}.model", *(path for path in receivers if path.startswith(f"{own}.") and path.count(".") == 1)}

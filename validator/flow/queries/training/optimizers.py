"""Optimizers, by the steps that they take."""

from __future__ import annotations

from validator.flow.queries.base import Place
from validator.flow.queries.origins import trail

ACCELERATOR = "accelerate.Accelerator"
_NAMES = ("opt", "optim", "optimizer")
_NO_OPTIMIZERS = frozenset({"torch.optim.lr_scheduler", "torch.optim.swa_utils"})  # their steps are others


def optimizer_of(step: Place, only_torch: bool = False) -> Place | None:
    """The optimizer that takes a step; None where a closure is passed, or it is not known to be one. `only_torch`:
    whether one that nobody knows but by its name counts as none."""
    receiver = step.receiver
    given = step.value.data.names
    if receiver is None or given not in ((), (None,)):
        return None
    optimizer = step.operand(1) if given else receiver
    if given and "scaler" not in receiver.hint.lower():
        return None
    made = optimizer.origin
    called = made.operand(0).val.each if made.value.op == "call" else ()
    owners = [str(o[1]).rpartition(".")[0] if o[0] == "ext" else "" for o in called]
    if any(owner in _NO_OPTIMIZERS for owner in owners):
        return None
    if owners and all(owner.startswith("torch.optim") for owner in owners):
        return optimizer
    if only_torch:
        return None
    base = optimizer.operand(0) if optimizer.value.op == "item" else optimizer
    last = (base.hint or variable_of(base)).lower().rstrip("s0123456789").rpartition("_")[2]
    return optimizer if last.endswith("optimizer") or last in _NAMES else None


def name_of(optimizer: Place) -> str:
    """What the source calls an optimizer."""
    return (optimizer.value.op not in ("attr", "item") and variable_of(optimizer)) or optimizer.text


def variable_of(value: Place) -> str:
    """The variable that holds a value."""
    return value.unit.variables.get(value.number, "") or value.unit.variables.get(value.root.number, "")


def libraries_of(value: Place) -> set[str]:
    """The full names of what libraries have that may have made a value: `torch.optim.lr_scheduler.StepLR`."""
    calls = [each.operand(0).val.each for each in trail(value, frozenset()) if each.value.op == "call"]
    return {str(o[1]) for each in calls for o in each if o[0] == "ext"}


def is_accelerator(value: Place | None) -> bool:
    """Whether a value may be an `Accelerator`."""
    return value is not None and any(o[:2] == ("made", ACCELERATOR) for o in value.closed.each)


def is_scaler(value: Place) -> bool:
    """Whether a value is a `GradScaler` of torch."""
    return any(name.rpartition(".")[2] == "GradScaler" for name in libraries_of(value))

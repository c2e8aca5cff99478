"""Modules that surely have buffers: running means of a normalisation, or what `register_buffer` was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.definitions import ClassDef, Method
from validator.facts.model import Call
from validator.flow.callgraph.dataclass_readers import OF_NOBODY
from validator.flow.queries.outside_program import is_test
from validator.flow.values import Obj, Val, bare, picked

if TYPE_CHECKING:
    from validator.flow.program.flow import Flow

_REGISTER = "register_buffer"
_REGISTERING = f"self.{_REGISTER}"
_PERSISTENT = "persistent"
_TRACKING = "track_running_stats"
_WITHOUT = frozenset({"None", "False"})
_OTHERS = frozenset({"inst", "self", "top", "more", "param"})


def only_buffers(flow: Flow) -> frozenset[str]:
    """The names that every class which has them registers as buffers: FSDP2 leaves such tensors as they are."""
    registered: dict[str, set[ClassDef]] = {}
    for function, call in flow.project.calls(_REGISTER):
        if function.cls is not None and call.args[:1] and call.args[0].kind == "const":
            registered.setdefault(call.args[0].value.strip("\"'"), set()).add(function.cls)
    others: set[str] = set()
    for cls in flow.project.classes() if registered else ():
        named = registered.keys() & cls.instance_attributes.keys()
        others |= {name for name in named if registered[name].isdisjoint(cls.mro)}
    return frozenset(registered.keys() - others)


def keeps_buffers_out(flow: Flow) -> bool:
    """Whether the project's modules register buffers, and none that `state_dict()` gives: all say `persistent=False`,
    and no layer of a library that it makes has running means. What tests register is in no model that is trained."""
    rows = [(function, call) for function, call in flow.project.calls(_REGISTER) if not is_test(function.path)]
    if not rows or any(_persists(call) for _, call in rows):
        return False
    layers = flow.models.tensors["buffered"]
    made = flow.project.calls(*(name.rpartition(".")[2] for name in layers))
    used = (flow.project.dotted(function, call.target) for function, call in made if not is_test(function.path))
    return not any(each in layers for each in used)


def _persists(call: Call) -> bool:
    """Whether what `register_buffer(name, tensor, persistent=True)` registers is a part of the state."""
    plain = [each for each in call.args if not each.keyword]
    said = next((each for each in call.args if each.keyword == _PERSISTENT), plain[2] if len(plain) > 2 else None)
    return said is None or said.value != "False"


def broadcasts_buffers(flow: Flow, model: Val) -> bool:
    """Whether a model, which `DistributedDataParallel` wraps, surely has buffers that it broadcasts in `forward`."""
    kept = model.of("keeping")
    unwrapped = any(o[0] in _OTHERS for o in model.each)  # on another way: `model.module if … else model`
    return bool(kept) and not unwrapped and all(_keeps_buffers(flow, each) for each in kept)


def _keeps_buffers(flow: Flow, kept: Obj) -> bool:
    module, switches = picked(kept[1], "module"), [value for key, value in kept[1].each[0][1] if key != "module"]
    plain = all(value == bare(OF_NOBODY) or value.is_const(True) for value in switches)
    return plain and bool(module.objs) and all(o[0] == "inst" and has_buffers(flow, o[1]) for o in module.each)


def has_buffers(flow: Flow, cls: ClassDef) -> bool:
    """Whether each object of a class surely has buffers: its `__init__`, or that of a base, makes some under no
    condition, or a part which has."""
    queue = [cls]
    for each in queue:
        made = [method for owner in each.mro if (method := owner.methods.get("__init__")) is not None]
        for method in made:
            parts = _parts(flow, method)
            if parts is None:
                return True
            queue += [part for part in parts if part not in queue]
    return False


def _parts(flow: Flow, method: Method) -> list[ClassDef] | None:
    """The classes of the project of which an `__init__` surely makes objects; None where it makes buffers."""
    found = []
    for call in method.facts.calls:
        if any(guard.kind != "with" for guard in call.guards):
            continue
        given = {each.keyword: each.value for each in call.args}
        symbol = flow.project.lookup(method, call.target)
        if isinstance(symbol, ClassDef):
            found.append(symbol)
        elif call.target == _REGISTERING and call.args[1:2] and call.args[1].value not in _WITHOUT:
            return None
        elif _TRACKING in given or "**" in given:
            continue
        elif flow.project.dotted(method, call.target) in flow.models.tensors["buffered"]:
            return None
    return found

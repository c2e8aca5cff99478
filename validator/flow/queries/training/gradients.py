"""Where gradients come from and go to: what is trained, and through which calls."""

from __future__ import annotations

from collections.abc import Iterator

from validator.flow.queries.base import Place, Queries
from validator.flow.queries.origins import sources

# Instructions whose result has the gradients of all their operands.
_THROUGH = frozenset({"binary", "unary", "phi", "item", "unpack", "tuple", "list", "dict", "collect", "next", "iter"})
_WITHOUT = frozenset({"torch.no_grad", "torch.inference_mode"})


def losses(queries: Queries, names: frozenset[str] = frozenset({"backward"})) -> Iterator[tuple[Place, Place]]:
    """The calls of PyTorch's own `backward`, with the loss: `loss.backward()`, `scaler.scale(loss).backward()`."""
    for call in queries.named(*names):
        loss = call.receiver
        if loss is not None and not any(name in (None, "*") for name in call.value.data.names):
            known = {o[0] for o in loss.closed.each}
            if not known & {"ext", "module", "class", "inst", "self"}:
                yield call, loss


def handed_losses(queries: Queries) -> Iterator[tuple[Place, Place]]:
    """The calls by which somebody is given a loss to go back from: `accelerator.backward(loss)`."""
    for call in queries.named("backward", "manual_backward"):
        loss = call.argument("loss", 0)
        if loss is not None and call.receiver is not None:
            yield call, loss


def trained_through(queries: Queries, loss: Place) -> Iterator[Place]:
    """The calls through which the gradient of a loss goes, in functions that give it back too."""
    queue, seen = [loss.root], {(loss.unit, loss.root.number)}
    for place in queue:
        if place.value.op == "call":
            if _is_cut(place):
                continue
            yield place
        for before in _before(queries, place):
            root = before.root
            if (root.unit, root.number) not in seen:
                seen.add((root.unit, root.number))
                queue.append(root)


def _is_cut(call: Place) -> bool:
    """Whether no gradient goes into what a call was given."""
    return _is_managed(call) or call.method in call.flow.models.tensors["cutting"]


def without_gradients(queries: Queries, call: Place) -> bool:
    """Whether no gradients are recorded where a call stands: by a manager around it, or a decorator of its function."""
    if _is_managed(call):
        return True
    named = (each.operand(0) if each.value.op == "call" else each for each in queries.decorators(call.unit))
    return any(_switches_off(each) for each in named)


def _is_managed(call: Place) -> bool:
    managers = [call.value_at(number) for number in call.unit.managers(call.number)]
    return any(_switches_off(manager.operand(0)) for manager in managers if manager.value.op == "call")


def _switches_off(callee: Place) -> bool:
    return any(o[0] == "ext" and callee.flow.models.named(o[1]) in _WITHOUT for o in callee.val.each)


def _before(queries: Queries, place: Place) -> Iterator[Place]:
    """The values into which a gradient goes on from a value."""
    value = place.value
    if value.op == "mut":
        yield place.operand(0)
        if value.data == -1:
            yield place.operand(1)
    elif value.op in ("param", "free", "name", "attr"):
        if value.op == "attr" and value.data in place.flow.models.tensors["cutting"]:
            return
        known = sources(place)
        yield from known or ([place.operand(0)] if value.op == "attr" else ())
    elif value.op == "call":
        yield from (place.value_at(number) for number in value.args[1:])
        if place.receiver is not None:
            yield place.receiver
        for unit in queries.targets(place):
            yield from (Place(place.flow, unit, number) for number in unit.code.returned if number >= 0)
    elif value.op in _THROUGH:
        yield from (place.value_at(number) for number in value.args if number >= 0)

"""Models that are wrapped for data parallelism, or sharded: the collectives that they issue where they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from validator.domains.placement import WRAPPING, certainly, is_symbolic, may, mostly, spanned
from validator.domains.spmd import only
from validator.flow.calls.buffers import broadcasts_buffers
from validator.flow.calls.own_units import own_class
from validator.flow.calls.sites import note
from validator.flow.program.answers import Operation, Site
from validator.flow.values import Val, group_of
from validator.models import Row

if TYPE_CHECKING:
    from validator.flow.calls.in_hand import Call
    from validator.flow.evaluation import Evaluation

_WITHOUT = frozenset({"torch.no_grad", "torch.inference_mode"})  # gradients
# Instructions whose result has the gradients of all their operands.
_THROUGH = frozenset({"binary", "unary", "mut", "phi", "item", "attr", "unpack", "tuple", "list", "dict"})


def run_sharded(call: Call, callee: Val) -> None:
    """Models whose parameters are sharded issue collectives where they run: note them at the call."""
    name, receiver, at = call.name, call.receiver, call.at
    model = _passed(at, callee)
    operation, once = _forward(call, model)
    wrapped = certainly(receiver.state, "fsdp1")
    gathers = name in ("state_dict", "full_state_dict") and (
        wrapped or mostly(receiver.state, "fsdp1") and is_for_ranks(at, call.value.block)
    )
    if not operation and (gathers or name == "backward" and _sharded_here(at, call.value.args[0], receiver)):
        operation = name
    if operation and not any(_lets_ranks_differ(at, manager) for manager in at.unit.managers(call.number)):
        sure = wrapped if gathers else operation != "forward" or not once and certainly(model.state, *WRAPPING)
        row = Row(operation, collective=True, once=once)
        group = group_of(spanned(model.state | receiver.state))
        note(at, call.number, Site((), (Operation(operation, group, sure, row),)))


def _passed(at: Evaluation, callee: Val) -> Val:
    """What is called; of a parameter what callers pass, where all of that is wrapped."""
    if not is_symbolic(callee.state):
        return callee
    passed = at.flow.close(callee, at.unit)
    return passed if certainly(passed.state, *WRAPPING, "zero3") else callee


def _forward(call: Call, callee: Val) -> tuple[str, bool]:
    """`forward` where a call runs a wrapped model, and ranks wait for each other there; empty elsewhere. Whether that
    is so only of the first of several calls."""
    if not may(callee.state, *WRAPPING, "zero3") or _is_of_tensor(call):
        return "", False
    receiver, at = call.receiver, call.at
    state = receiver.state
    if is_symbolic(state):  # where callers pass too many kinds to tell, what is known here still holds
        state |= at.flow.close(receiver, at.unit).state
    runs = not state or not may(state, *WRAPPING) or call.name in ("forward", "module")
    spread = may(callee.state, "fsdp1", "fsdp2", "zero3")  # an attribute that holds it also held what was wrapped
    wrapped = (spread or certainly(callee.state, *WRAPPING)) and not callee.of("bound")
    if runs and wrapped and (spread or _meets_in_forward(at, call.number, callee)):
        return "forward", False
    # without gradients the first pass behind one of training brings the buffers, those that follow it do not
    brings = runs and certainly(callee.state, "ddp") and not callee.of("bound")
    return ("forward", True) if brings and broadcasts_buffers(at.flow, callee) else ("", False)


def _is_of_tensor(call: Call) -> bool:
    """Whether a method is one of tensors: it works on a parameter of a model."""
    tables = call.at.models.tensors
    known = any(call.name in tables[key] for key in ("keep", "shaped", "reducing", "reading", "moves"))
    return known or call.name.endswith("_") and not call.name.endswith("__")


def _meets_in_forward(at: Evaluation, number: int, model: Val) -> bool:
    """Whether ranks wait for each other where a wrapped model runs: sharded parameters are gathered there; those of
    DDP and of DeepSpeed below ZeRO-3 are whole, and ranks meet in the backward pass, which evaluation lacks."""
    if certainly(model.state, "fsdp1", "fsdp2", "zero3"):
        return True
    return not (_without_gradients(at, number) or may(model.state, "eval"))


def _without_gradients(at: Evaluation, number: int) -> bool:
    """Whether a call runs inside of `no_grad()`."""
    made = [at.code.values[manager] for manager in at.unit.managers(number)]
    managers = (at.vals[manager.args[0]] for manager in made if manager.op == "call")
    return any(o[0] == "ext" and at.models.named(o[1]) in _WITHOUT for each in managers for o in each.each)


def is_for_ranks(at: Evaluation, block: int) -> bool:
    """Whether nothing but ranks decides over a block: another test may ask how the model is wrapped."""
    tests = [at.code.blocks[branch].end[1] for branch in at.unit.control.deciding(block)]
    return all(only(at.vals[test].v, "rank", "member") for test in tests)


def _lets_ranks_differ(at: Evaluation, manager: int) -> bool:
    """Whether inside a context manager ranks may run a wrapped model unequally often: `model.join()`, `Join`."""
    values = at.code.values
    if values[manager].op != "call":
        return False
    callee = values[values[manager].args[0]]
    joins = callee.op == "attr" and callee.data == "join" and may(at.vals[callee.args[0]].state, *WRAPPING)
    named = at.vals[values[manager].args[0]].of("ext")
    return joins or any(o[1].startswith("torch.distributed.algorithms.") and o[1].endswith(".Join") for o in named)


def _sharded_here(at: Evaluation, callee: int, loss: Val) -> bool:
    """Whether a backward pass goes through a sharded model: the loss is made of its output, or the class holds just
    one."""
    used = _states_of(at, at.code.values[callee].args[:1])
    if certainly(loss.state, *WRAPPING) or any(certainly(state, *WRAPPING) for state in used):
        return True
    cls = own_class(
        at,
    )
    if cls is None or any(o[0] not in ("top", "param", "part") for o in loss.each):
        return False
    names = dict.fromkeys(name for owner in cls.mro for name in owner.instance_attributes)
    fields = (at.flow.placings.on_entry(cls, name, False, at.unit) for name in names)
    return any(certainly(held.state, *WRAPPING) for held in fields)


def _states_of(at: Evaluation, numbers: tuple[int, ...]) -> Iterator[frozenset[str]]:
    """How the values are placed of which others are computed, back to what callers pass."""
    stack, seen = list(numbers), set(numbers)
    while stack:
        number = stack.pop()
        value, state = at.code.values[number], at.vals[number].state
        if value.op == "param" and not (value.data[0] == 0 and at.unit.has_receiver):
            state = at.flow.get("argument", at.unit, value.data[0]).state
        if state - {"?"}:
            yield state
        for part in _with_gradients(at, number):
            if part >= 0 and part not in seen:
                seen.add(part)
                stack.append(part)


def _with_gradients(at: Evaluation, number: int) -> tuple[int, ...]:
    """The values into which a gradient goes on from a value: the arguments of calls too, but of those behind which
    there is none (`detach()`, what runs under `no_grad`)."""
    value = at.code.values[number]
    if value.op == "call":
        callee = at.code.values[value.args[0]]
        cut = callee.op == "attr" and callee.data in at.models.tensors["cutting"]
        return () if cut or _without_gradients(at, number) else value.args
    if value.op == "name" or value.op == "attr" and value.data in at.models.tensors["cutting"]:
        return ()
    if value.op == "attr" and value.data == "module" and certainly(at.vals[value.args[0]].state, "ddp"):
        return ()  # DDP waits for gradients behind its own forward pass alone, not behind that of what it wraps
    if value.op == "mut" and value.data != -1:
        return value.args[:1]  # an argument; what a method does with its own object may be a part of that (`append`)
    return value.args if value.op in _THROUGH else value.args[:1]

"""Results of functions of their arguments: they vary as those do, in what they hold and in their shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.placement import UNPLACED
from validator.domains.spmd import NONE, UNIFORM, Causes, between, combined, data, only, unsure
from validator.flow.calls.arguments import Arguments, values_of
from validator.flow.calls.groups import index_in
from validator.flow.calls.libraries.containers import iterates
from validator.flow.calls.libraries.dimensions import over_all
from validator.flow.calls.libraries.environment import rank_spelled
from validator.flow.calls.protocols import rounds
from validator.flow.queries.values import tensors
from validator.flow.values import BOTTOM, Obj, Val, as_long_as, beside, is_text, join, sequence

if TYPE_CHECKING:
    from validator.flow.evaluation import Evaluation

PLACING = frozenset({"device", "dtype", "group", "requires_grad", "pin_memory", "layout", "non_blocking"})
_SCALARS = frozenset({"int", "float", "bool", "sum", "min", "max", "any", "all", "abs", "str"})
_SETS = frozenset({"set", "frozenset"})
# Builtins that make containers of what they are given; methods that give parts of what they are called on.
_CONTAINING = _SETS | {
    "list", "tuple", "sorted", "reversed", "iter", "enumerate", "zip", "map", "filter", "dict",
}  # fmt: skip
_PARTING = frozenset({
    "chunk", "split", "tolist", "items", "keys", "values", "unbind", "copy", "islice", "chain", "deepcopy", "get",
    "tqdm",
})  # fmt: skip
_SELECTING = frozenset({"nonzero", "unique", "masked_select", "argwhere", "unique_consecutive"})


def same(at: Evaluation, number: int, name: str, arguments: Arguments, receiver: Val, dotted: str = "") -> Val:
    """The result of a call of a function of its arguments; of a method (without `dotted`) of its receiver, too."""
    if name in ("dim", "ndimension"):
        return Val()
    if dotted == "len" or name in ("numel", "size") or (name == "len" and not dotted):
        return _length(arguments, receiver, dotted)
    # where a tensor lies is not what it holds
    holding = arguments if name not in at.models.tensors["moves"] else []
    parts = [receiver, *(v for keyword, v in holding if keyword not in PLACING)]
    spread = (causes for keyword, each in holding if keyword == "**" for causes in values_of(each))
    v = combined(*(p.v for p in parts), *spread)
    if dotted == "range":
        return _range(arguments, v)
    state = receiver.state.union(*(p.placements - UNPLACED for p in parts[1:]))
    n: Causes = NONE
    settled = False
    objs: frozenset[Obj] = frozenset()
    if dotted in _CONTAINING or name in _PARTING:
        n = frozenset().union(*(rounds(at, p) for p in parts))
        objs = iterates(at, dotted or name, arguments, receiver)
    if dotted in ("int", "str") and len(arguments) == 1:
        objs = beside(arguments[0][1], "ordinal", "size") | rank_spelled(arguments[0][1])
    if name == "chunk":  # how many there are does not depend on what they hold
        n |= combined(*(p.v for p in parts[2 if dotted else 1 :]))
    if not dotted or dotted.startswith("torch."):
        tensor = receiver if not dotted else arguments[0][1] if arguments else BOTTOM
        given = arguments if not dotted else arguments[1:]
        objs |= tensors.changed(name, given, tensor, at.models)
        settled = tensors.settled(tensor, objs)
        n = _layout(at, name, given, n, parts, settled or tensors.is_literal(objs))
        if (reduced := _reduced(at, number, name, given, parts)) is not None:
            return Val(objs, v, reduced, NONE, state)
        n |= _counted(at, name, arguments, given, tensor, v)
    elif dotted.startswith("numpy.") and name in at.models.tensors["reducing"] and over_all(at, number, 1):
        return Val(objs, v, NONE, NONE, state)
    if not n and dotted not in _SCALARS and not settled and not tensors.is_literal(objs):
        n = combined(*(p.n for p in parts))
    if name in _SELECTING:
        base = join(parts)
        n |= base.v | (data(sure=False) if UNIFORM not in base.v else NONE)
    if dotted == "filter":
        n |= v
    p = arguments[0][1].p | unsure(receiver.v) if name == "get" and arguments else NONE
    return Val(objs, v | _of_process(at, name, dotted, parts, v), n, p, state)


def padded_alike(at: Evaluation, number: int) -> bool:
    """Whether `pad` fills a tensor up to a size that is the same on all ranks: `F.pad(x, (0, longest - x.size(1)))`."""
    values, call = at.code.values, at.code.values[number]
    named = dict(zip(call.data.names, call.args[1:], strict=True))
    given = named.get("pad", call.args[2] if len(call.args) > 2 and call.data.names[1] is None else -1)
    amounts = values[at.root(given)] if given >= 0 else None
    parts = amounts.args if amounts is not None and amounts.op in ("tuple", "list") else ()
    rows = (values[at.root(part)] for part in parts)
    return any(row.op == "binary" and row.data == "Sub" and UNIFORM in at.vals[row.args[0]].v for row in rows)


def _length(arguments: Arguments, receiver: Val, dotted: str) -> Val:
    """How much something holds: as many as a group has ranks, where it is as long as that."""
    inner = arguments[0][1] if arguments and not receiver.objs and dotted else receiver
    if dotted != "len" or not arguments:
        return Val(v=inner.n)
    given = arguments[0][1]
    return Val(frozenset(("size", o[1]) for o in beside(given, "counted")), given.n)


def _range(arguments: Arguments, v: Causes) -> Val:
    """A `range`, whose bounds vary by `v`."""
    sizes = as_long_as(arguments[0][1]) if len(arguments) == 1 else frozenset()
    bounds = [given.v for _, given in arguments]
    n = between(*bounds[:2]) if len(bounds) > 1 else v
    if len(bounds) > 2:  # `range(rank, count, size)` is as long on all ranks where the count can be shared out evenly
        n = unsure(n)
    held = v if len(bounds) > 1 else NONE  # what stands in it, though it be as long
    inside = Val(v=held) if held else index_in(sizes)
    return Val(sequence(inside).objs | sizes, held, n)


def _layout(at: Evaluation, name: str, given: Arguments, n: Causes, parts: list[Val], known: bool) -> Causes:
    """By what shape and type of a tensor vary that keeps those of another, with the causes that are there (`n`); by
    nothing where they are `known`."""
    table = at.models.tensors
    keeps = name in table["keep"] or name in table["casts"] or name in table["shaped"] or name in ("tolist", "to")
    if not keeps:
        return n
    if known:
        return NONE
    n |= frozenset().union(*(p.n for p in parts))
    if name in ("to", "type"):
        n |= frozenset().union(*(w.v for _, w in given if tensors.names_type(w, at.models)))
    return n


def _reduced(at: Evaluation, number: int, name: str, given: Arguments, parts: list[Val]) -> Causes | None:
    """By what the shape of a reduction varies; None where a call reduces nothing, or another dimension."""
    if name not in at.models.tensors["reducing"]:
        return None
    before = max(0, len(at.code.values[number].args) - 1 - len(given))
    if over_all(at, number, before + (name == "norm" and bool(given) and given[0][0] is None)):  # behind the order
        return NONE
    return only(frozenset().union(*(p.n for p in parts)), "rank", "member") if _over_rows(given) else None


def _counted(at: Evaluation, name: str, arguments: Arguments, given: Arguments, tensor: Val, v: Causes) -> Causes:
    """By what the shape of a tensor varies beside, which has no more of something than asked for, or counts values."""
    table = at.models.tensors
    n = tensor.n | frozenset().union(*(w.v for _, w in given)) if name in table["limited"] else NONE
    if name in table["counting"] and not any(k == "minlength" for k, _ in arguments):
        n |= v | tensor.n
    return n


def _of_process(at: Evaluation, name: str, dotted: str, parts: list[Val], v: Causes) -> Causes:
    """By what a result varies beside, because each process has its own: tests for overflow, hashes."""
    if name in at.models.tensors["testing"] and UNIFORM not in v:
        return data(sure=False)  # what overflows is computed of a batch: each rank has its own
    if dotted == "hash" and is_text(parts[-1]):
        return data(sure=False)  # of a text each process has one of its own, where PYTHONHASHSEED is not set
    return NONE


def _over_rows(given: Arguments) -> bool:
    """Whether a reduction goes over the first dimension: how many rows each rank has no longer shows."""
    return any(name in (None, "dim", "axis") and value.constant() == 0 for name, value in given[:1])

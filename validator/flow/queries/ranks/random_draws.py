"""Random numbers and orders: what a call draws, from whose generator, and how that differs between ranks."""

from __future__ import annotations

from validator.domains.spmd import NONE, Causes, held, only
from validator.flow.queries.base import Place
from validator.models import Row

_ORDERING = frozenset({"shuffle", "permutation", "permuted", "sample"})  # methods of a generator that is made


def rows_of(call: Place) -> list[tuple[str, Row | None]]:
    """The library functions that a value may call, by their owners, with what the tables say of them."""
    models = call.flow.models
    found = []
    for o in call.operand(0).val.each if call.value.op == "call" else ():
        if o[0] == "ext":
            owner, _, name = o[1].rpartition(".")
            found.append((owner, models.call(o[1]) or models.method(owner, name)))
    return found


def draws(call: Place) -> bool:
    """Whether a call draws random numbers or an order."""
    return any(
        row.result == "drawn" or row.orders or row.mixes is not None
        if row is not None
        else call.flow.models.library(owner).generates
        for owner, row in rows_of(call)
    )


def orders(call: Place) -> bool:
    """Whether a call draws an order: of something that it mixes, or of what it gives."""
    return any(
        row.orders or row.mixes is not None
        if row is not None
        else call.flow.models.library(owner).generates and call.method in _ORDERING
        for owner, row in rows_of(call)
    )


def drawn_apart(call: Place) -> Causes:
    """How what a call draws differs between ranks: as its generator, or as the state of the library."""
    for _, row in rows_of(call):
        generator = call.argument("generator") or (call.receiver if row is None or not row.draws else None)
        if generator is not None:
            return held(generator.varies("rank", "member", "data"))
        if row is not None and row.draws:
            state: Causes = call.flow.solver.settled(("random", row.draws)).v
            return only(state, "data")
    return NONE

"""Random numbers: how those that a call draws differ between ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.spmd import NONE, Causes, held
from validator.flow.calls.arguments import Arguments, argument
from validator.models import Row

if TYPE_CHECKING:
    from validator.flow.calls.in_hand import Call


def drawn_as(call: Call, row: Row, arguments: Arguments) -> Causes:
    """How random numbers differ between ranks: as the seed of their generator does."""
    switch = argument(row.shuffled, arguments) if row.shuffled is not None else None
    if switch is not None and switch.is_const(False):
        return NONE
    seeds = [v for name, v in arguments if name == "generator"]
    seed = argument(row.seeded, arguments) if row.seeded is not None else None
    given = next((v for v in (*seeds, seed) if v is not None and not v.is_const(None)), None)
    if given is not None:
        return held(given.v)
    return held(call.receiver.v) if not row.draws else call.at.flow.get("random", row.draws).v

"""Random numbers: how those that a call draws differ between ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.domains.spmd import Causes, held
from validator.flow.calls.arguments import Arguments
from validator.models import Row

if TYPE_CHECKING:
    from validator.flow.calls.in_hand import Call


def drawn_as(call: Call, row: Row, arguments: Arguments) -> Causes:
    """How random numbers differ between ranks: as the seed of their generator does."""
    generator = next((v for name, v in arguments if name == "generator" and not v.is_const(None)), None)
    if generator is not None:
        return held(generator.v)
    return held(call.receiver.v) if not row.draws else call.at.flow.get("random", row.draws).v

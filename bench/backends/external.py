"""A strategy of somebody's own, named as `package.module:Class`: nothing is known of it before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.backends import Backend

if TYPE_CHECKING:
    from bench.configuration import Configuration
    from bench.strategies.base import Strategy


class External(Backend):
    versioned = ("deepspeed",)
    predicted = False

    def __init__(self, name: str) -> None:
        self.name = name

    def strategy(self, config: Configuration) -> Strategy:
        from bench.strategies.base import Strategy
        from bench.strategies.external import ExternalStrategy, load_class

        found, _ = load_class(config.backend)
        return found(config) if issubclass(found, Strategy) else ExternalStrategy(config)

    def short(self, stage: int) -> str:
        return self.name.rpartition(":")[2]

    def quantities(self, stage: int) -> dict[str, Any]:
        return {"backend": None, "zero_stage": None}


BACKEND = External("")

"""A strategy of somebody's own, named as `package.module:Class`: nothing is known of it before it runs."""

from __future__ import annotations

from typing import Any

from bench.backends import Backend


class External(Backend):
    strategy = "bench.strategies.external:ExternalStrategy"
    versioned = ("deepspeed",)
    predicted = False

    def __init__(self, name: str) -> None:
        self.name = name

    def short(self, stage: int) -> str:
        return self.name.rpartition(":")[2]

    def quantities(self, stage: int) -> dict[str, Any]:
        return {"backend": None, "zero_stage": None}


BACKEND = External("")

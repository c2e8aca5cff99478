"""Distributed backends behind one interface."""

from __future__ import annotations

from dataclasses import replace

from bench.debug.sharding import effective_backend
from bench.strategies.config import StrategyConfig
from bench.strategies.protocol import Strategy

BACKENDS = ("deepspeed", "fsdp2", "ddp")

__all__ = ["BACKENDS", "Strategy", "StrategyConfig", "get_strategy"]


def get_strategy(config: StrategyConfig) -> Strategy:
    """The strategy of `config.backend`, or the adapter of a `package.module:Class`.

    Raises `ValueError` for an unknown name. Backends are imported here, so that the others work where one is
    not installed. With DEBUG_DISABLE_FSDP=1 in the environment, `fsdp2` is the strategy that shards nothing.
    """
    config = replace(config, backend=effective_backend(config.backend))
    if config.backend == "deepspeed":
        from bench.strategies.deepspeed import DeepspeedStrategy

        return DeepspeedStrategy(config)
    if config.backend == "fsdp2":
        from bench.strategies.fsdp2 import FSDP2Strategy

        return FSDP2Strategy(config)
    if config.backend == "ddp":
        from bench.strategies.ddp import DDPStrategy

        return DDPStrategy(config)
    if ":" in config.backend:
        from bench.strategies.external import ExternalStrategy

        return ExternalStrategy(config)
    raise ValueError(f"unknown backend {config.backend!r}: use one of {', '.join(BACKENDS)}")

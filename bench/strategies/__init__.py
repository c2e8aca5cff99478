"""Distributed backends behind one interface; `bench.backends` says of each what needs no torch."""

from __future__ import annotations

from dataclasses import replace

from bench import backends
from bench.configuration import Configuration
from bench.debug.sharding import effective_backend
from bench.strategies.base import Strategy

__all__ = ["Strategy", "get_strategy"]


def get_strategy(config: Configuration) -> Strategy:
    """The strategy of `config.backend`, or the adapter of a `package.module:Class`.

    Raises `ValueError` for an unknown name. Backends are imported here, so that the others work where one is
    not installed. With DEBUG_DISABLE_FSDP=1 in the environment, `fsdp2` is the strategy that shards nothing.
    """
    config = replace(config, backend=effective_backend(config.backend))
    if config.backend not in backends.names() and ":" not in config.backend:
        raise ValueError(f"unknown backend {config.backend!r}: use one of {', '.join(backends.names())}")
    return backends.find(config.backend).strategy(config)

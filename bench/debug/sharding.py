"""DEBUG_DISABLE_FSDP=1: the whole model on every rank, in which a forward pass can be stepped through."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace

from bench import backends
from bench.configuration import Configuration

VARIABLE = "DEBUG_DISABLE_FSDP"
SHARDED = next((name for name, one in backends.every().items() if one.debugged_whole), "")
WHOLE = Configuration.backend
"""The backend that shards, and the one that then runs in its place."""


def sharding_disabled(environment: Mapping[str, str] | None = None) -> bool:
    """Whether DEBUG_DISABLE_FSDP is 1, in this process's environment if none is given."""
    return (os.environ if environment is None else environment).get(VARIABLE) == "1"


def effective_backend(backend: str, environment: Mapping[str, str] | None = None) -> str:
    """`WHOLE` in place of `SHARDED` where sharding is disabled."""
    return WHOLE if backend == SHARDED and sharding_disabled(environment) else backend


def effective(configuration: Configuration, environment: Mapping[str, str] | None = None) -> Configuration:
    """The configuration that runs where sharding may be disabled.

    It is another configuration, with results of its own: none of them passes for one of FSDP2.
    """
    backend = effective_backend(configuration.backend, environment)
    if backend == configuration.backend:
        return configuration
    usual = {name: getattr(Configuration, name) for name in backends.find(configuration.backend).own}
    return replace(configuration, backend=backend, **usual)


def tell(command: str, compares: bool = False) -> None:
    """Say, where sharding is disabled, what a command makes of it: one that compares backends runs them as they are."""
    does = f"{VARIABLE}=1: {SHARDED} runs as {WHOLE}, the whole model on every rank"
    if compares:
        does = f"{VARIABLE}=1 is for run, sft and replay: {command} compares backends, and shards with {SHARDED}"
    if sharding_disabled():
        print(f"bench {command}: {does}", file=sys.stderr)

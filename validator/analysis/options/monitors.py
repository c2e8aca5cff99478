"""What callbacks of Lightning watch: those that keep the best checkpoint, or stop when nothing gets better."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from validator.flow.queries.base import Place, Queries

NAMES = ("ModelCheckpoint", "EarlyStopping")


class Callback(NamedTuple):
    """Where a callback takes the name that it watches, and the mode, by position."""

    monitor: int
    mode: int


_CALLBACKS = {"ModelCheckpoint": Callback(2, 7), "EarlyStopping": Callback(0, 4)}


def monitored(queries: Queries) -> Iterator[tuple[Place, str]]:
    """Every call that makes such a callback, with the name that it surely watches."""
    for call in queries.named_anywhere(*NAMES):
        if _is_callback(queries, call) and "**" not in call.value.data.names:
            monitor = call.argument("monitor", callback_of(queries, call).monitor)
            watched = monitor.closed.constant() if monitor is not None else None
            if isinstance(watched, str):
                yield call, watched


def callback_of(queries: Queries, call: Place) -> Callback:
    """What the callback is that a call makes."""
    return next(_CALLBACKS[name] for name in _names(queries, call) if name in _CALLBACKS)


def _is_callback(queries: Queries, call: Place) -> bool:
    return any(name in _CALLBACKS for name in _names(queries, call))


def _names(queries: Queries, call: Place) -> Iterator[str]:
    """The names in Lightning, whichever package it is imported from, of what is called."""
    for o in call.operand(0).closed.of("ext"):
        package, _, last = queries.flow.models.named(str(o[1])).rpartition(".")
        if package.split(".")[0] in ("lightning", "pytorch_lightning"):
            yield last

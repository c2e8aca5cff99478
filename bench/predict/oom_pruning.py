"""Which configurations need at least the memory of one that ran out of it."""

from __future__ import annotations

from bench import backends
from bench.configuration import SETTINGS, Configuration
from bench.settings import LESS, MORE

SIZES = tuple(name for name, one in SETTINGS.items() if one.memory == MORE)
SAVERS = tuple(name for name, one in SETTINGS.items() if one.memory == LESS)
CHOSEN = ("zero_stage", "micro_batch_size", "train_batch_size", *(name for name, one in SETTINGS.items() if one.memory))
"""Settings that are weighed against each other, or that memory does not depend on."""


def dominates(failed: Configuration, other: Configuration) -> bool:
    """Whether `other` is `failed` with more of something and less of nothing. All other settings must be equal.

    A model's own number of layers is more than any number that was asked for: `num_layers` can only cut it.
    """
    equal = [name for name in SETTINGS if name not in CHOSEN]
    if any(getattr(failed, name) != getattr(other, name) for name in equal):
        return False
    pairs = list(zip(_needs(failed), _needs(other), strict=True))
    return all(more >= less for less, more in pairs) and any(more > less for less, more in pairs)


def _needs(configuration: Configuration) -> list[float]:
    """Numbers of which each is larger where more memory is needed."""
    layers = float("inf") if configuration.num_layers is None else float(configuration.num_layers)
    stage = configuration.zero_stage if backends.find(configuration.backend).stages else 0
    accumulated = configuration.batch / (configuration.rows * configuration.dp)
    sizes = [layers, float(configuration.seq_len), float(configuration.rows), accumulated, float(-stage)]
    return sizes + [-float(getattr(configuration, name)) for name in SAVERS]

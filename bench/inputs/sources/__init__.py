"""What `--inputs` may name: one module per kind of input, found by itself.

A module here has `takes(inputs) -> bool` for the text of the setting, which is None where nobody gives it,
`digest(inputs) -> str | None`, which stands for the content and raises `ConfigurationError` for what is not there, and
`open_(configuration, vocabulary, dp_rank) -> Source`. The first that takes an input reads it, in the order of `PLACE`.
Modules import torch where they read, not where they are asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from bench import registry

if TYPE_CHECKING:
    from bench.inputs.batch import Batch


class Source(Protocol):
    """The batches of one data-parallel rank, without end; `recorded` are those that then repeat, none if none do."""

    recorded: list[Batch]

    def __iter__(self) -> Iterator[Batch]: ...


@cache
def every() -> tuple[Any, ...]:
    """All kinds, in the order in which they are asked."""
    return tuple(sorted(registry.modules(__name__, __path__).values(), key=lambda module: module.PLACE))


def of(inputs: str | None) -> Any:
    """The module that takes an input."""
    return next(module for module in every() if module.takes(inputs))

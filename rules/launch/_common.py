"""What the rules about launches share."""

from __future__ import annotations

from validator.analysis.command_line import Given
from validator.analysis.fields import Field
from validator.finding import Related

LANGUAGES = ("shell", "python")
"""Launches stand in scripts and in the command lists of Python code."""

TOKENS = ("torchrun", "torch.distributed", "deepspeed", "accelerate", "colossalai", "python", ".py", "subprocess")
"""A file that starts no program is no launch script."""


def set_at(given: Given) -> list[Related]:
    """Where the value of an option comes from, if that is not where it stands."""
    return [where for value in given.values[:1] for where in origin(value)]


def origin(value: Field) -> list[Related]:
    """Where a value is set, if that is not where it stands."""
    place = value.origin
    return [Related(place.path, place.line, f"`{value.text}` is set here")] if place is not None else []


def span(field: Field) -> tuple[int, int, int, int]:
    place = field.place
    return place.line, place.column, place.line, max(field.end, place.column + 1)

"""What the rules about launches share."""

from __future__ import annotations

from rules.launch._reading.dictionaries import is_passed
from validator.analysis.commands.command_line import CommandLines, Given
from validator.analysis.commands.fields import Field
from validator.finding import Related
from validator.project import Project

LANGUAGES = ("shell", "python")
"""Launches stand in scripts and in the command lists of Python code."""

TOKENS = ("torchrun", "torch.distributed", "deepspeed", "accelerate", "colossalai", "python", ".py", "subprocess")
"""A file that starts no program is no launch script."""


def starts_or_configures(project: Project) -> bool:
    """Whether there is a launch or a configuration file: what reads them is imported only then."""
    if any("settings" in source.facts.extra or is_passed(source) for source in project.files.values()):
        return True
    return bool(project.analysis(CommandLines).all)


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

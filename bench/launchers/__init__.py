"""Where ranks run, the values of `--launcher`: one module each, found by itself.

A module here has `WHERE`, a `Where`. What starts the ranks there is in `bench.launch`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import registry
from bench.configuration import Configuration, ConfigurationError
from bench.launch.engine import Launcher

if TYPE_CHECKING:
    from bench.sweep.sweep import Sweep


class Where:
    """A value of `--launcher`. Subclasses say what is otherwise than here, which holds for other hosts with GPUs."""

    name = ""
    text = ""
    """For `--help`."""
    here = False
    """Whether its ranks run on this host and as many as this host decides."""

    def add(self, group: Any) -> None:
        """Add its own flags, which have a meaning for it alone."""

    def check(self, options: argparse.Namespace, settings: Mapping[str, Any]) -> None:
        """Raises `ConfigurationError` for flags that do not go together."""

    def gpus(self, options: argparse.Namespace) -> int:
        """GPUs that ranks can have. Raises `ConfigurationError`."""
        raise NotImplementedError

    def engine(self, options: argparse.Namespace) -> Launcher | None:
        """What starts the ranks; None for this host. Raises `ConfigurationError`."""
        raise NotImplementedError

    def lanes(self, options: argparse.Namespace, configurations: Sequence[Configuration]) -> int:
        """Rows at a time."""
        return 1

    def row(self, options: argparse.Namespace) -> Path | None:
        """The file of the one configuration that is measured here, where another program says which."""
        return None

    def leaves(self, options: argparse.Namespace) -> bool:
        """Whether the sweep is written down for another program instead of run here."""
        return False

    def leave(self, sweep: Sweep, options: argparse.Namespace) -> None:
        """Write down what is to be measured. Raises `ConfigurationError`, `OSError`."""
        raise NotImplementedError


@cache
def every() -> Mapping[str, Where]:
    """All of them by name, this host first."""
    modules = registry.modules(__name__, __path__).values()
    found = sorted((module.WHERE for module in modules), key=lambda where: not where.here)
    return {where.name: where for where in found}


def add(p: argparse.ArgumentParser) -> None:
    """Add the flags that say where ranks run."""
    group = p.add_argument_group("where it runs")
    told = "; ".join(f"{where.name}: {where.text}" for where in every().values() if where.text)
    group.add_argument("--launcher", choices=tuple(every()), default=next(iter(every())), help=told)
    for where in every().values():
        where.add(group)


def of(options: argparse.Namespace) -> Where:
    return every()[options.launcher]


def check(options: argparse.Namespace, settings: Mapping[str, Any]) -> None:
    """Raises `ConfigurationError` for flags that do not go together."""
    chosen = of(options)
    for where in every().values():
        for action in _own_flags(where) if where is not chosen else ():
            if getattr(options, action.dest) != action.default:
                raise ConfigurationError(f"{action.option_strings[0]} is for --launcher {where.name}")
    if not chosen.here and "num_gpus" not in settings and chosen.row(options) is None:
        raise ConfigurationError(f"--launcher {chosen.name} needs --num-gpus: how many ranks a row has")
    chosen.check(options, settings)


def _own_flags(where: Where) -> list[argparse.Action]:
    group = argparse.ArgumentParser(add_help=False).add_argument_group()
    where.add(group)
    return group._group_actions

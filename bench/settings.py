"""What is to be known of a setting: its default, what its flag says and takes, what it decides. Each field of
`bench.configuration.Configuration` is one; parsers, names of rows and reports read them from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SPLIT, WAY, WORK, LENGTH, PLACE = "split", "way", "work", "length", "place"
"""What a setting decides: the backend and how it splits the model, how the work is done otherwise, what the work is,
how long is measured, or where and on what."""
MORE, LESS, NONE = "more", "less", "none"
"""What a larger value, or a switch that is on, does to the memory of a GPU."""


@dataclass(frozen=True)
class Setting:
    """`unset` is what holds where nobody gives it, in words, if that is not the default; `alone` what its flag means
    without a value; `others` more names of the flag, `off` of its opposite. `word` is its value in the name of a row,
    `no_word` that of None. `recorded` settings have a meaning for recorded batches only, `single` ones take no list.
    """

    decides: str
    text: str
    group: str = ""
    choices: tuple[Any, ...] = ()
    unset: str = ""
    alone: Any = None
    others: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    word: Callable[[Any], str] | None = None
    no_word: str = ""
    memory: str = ""
    recorded: bool = False
    single: bool = False
    any_number: bool = False


def setting(default: Any, decides: str, text: str, group: str = "", **more: Any) -> Any:
    """A field with its description."""
    return field(default=default, metadata={"setting": Setting(decides, text, group, **more)})

"""Names by which the rows of a sweep or a report can be told apart: every setting in which they differ is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.configuration import IN_LABEL, SETTINGS, Configuration


def labels(configurations: Iterable[Configuration]) -> dict[str, str]:
    """The label of each by its hash: what `Configuration.label` says, and every other setting in which any differ."""
    unique = list({c.content_hash(): c for c in configurations}.values())
    told = [_words(unique, name) for name in differing(unique)]
    return {
        c.content_hash(): "-".join([c.label(), *(words[number] for words in told)]) for number, c in enumerate(unique)
    }


def words(configurations: Sequence[Configuration], names: Iterable[str], usual: bool = True) -> list[str]:
    """Of each configuration the settings among `names` in which any differ, in words; without `usual` switches and
    numbers that nobody has set are left out, by which they are still told apart."""
    unique = [name for name in names if len({getattr(c, name) for c in configurations}) > 1]
    told = [(name, _words(configurations, name)) for name in unique]
    return [
        " ".join(parts[number] for name, parts in told if usual or not _is_unset(c, name))
        for number, c in enumerate(configurations)
    ]


def _is_unset(configuration: Configuration, name: str) -> bool:
    value, default = getattr(configuration, name), getattr(Configuration, name)
    return value == default and (value in (None, "none") or isinstance(value, bool))


def differing(configurations: list[Configuration]) -> list[str]:
    """The settings in which any two differ and that their labels do not say."""
    names = [name for name in SETTINGS if name not in (*IN_LABEL, "input_hash")]
    found = [name for name in names if len({getattr(c, name) for c in configurations}) > 1]
    if len({(c.inputs, c.input_hash) for c in configurations}) > len({c.inputs for c in configurations}):
        found.append("input_hash")
    backends = {c.backend for c in configurations}
    same_class = len({backend.rpartition(":")[2] for backend in backends}) < len(backends)
    return ["backend"] * same_class + found


def _words(configurations: Sequence[Configuration], name: str) -> list[str]:
    """The value of a setting of each, in short words where these still tell the values apart."""
    values = [getattr(c, name) for c in configurations]
    words = [_word(name, value) for value in values]
    return words if len(set(words)) == len(set(values)) else [f"{name}={value}" for value in values]


def _word(name: str, value: Any) -> str:
    setting = SETTINGS[name]
    if value is None:
        return setting.no_word or f"{name}={value}"
    if setting.word is not None:
        return setting.word(value)
    return ("" if value else "no-") + name.replace("_", "-") if isinstance(value, bool) else f"{name}={value}"

"""Numbers of YAML files that a change writes as PyYAML does not read them: `0.000001` before, `1e-6` now."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.options.exponents import Exponent, Exponents
from validator.drift.change import Change


class NowText(NamedTuple):
    """A setting that was a number for PyYAML, and is a text now."""

    text: Exponent
    before: float


class NowTexts:
    """Such settings of a change, where nothing but PyYAML reads YAML and nobody makes numbers of values so called."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def rows(self) -> list[NowText]:
        exponents = self.change.after.project.analysis(Exponents)
        return [*self._found(exponents)] if self.change.settings_files and exponents.is_plain else []

    def _found(self, exponents: Exponents) -> Iterator[NowText]:
        earlier = self.change.before.project.analysis(Exponents).all
        files = {new.path: old for old, new in self.change.settings_files}
        for text in exponents.all.values():
            old = files.get(text.source.path)
            settings = old.facts.extra.get("settings") if old is not None else None
            before = settings.get(*text.setting.path) if old is not None and settings is not None else None
            if before is None or old is None or (old.path, before.at[0], before.at[1]) in earlier:
                continue
            number = before.value
            name = next(key for key in reversed(text.setting.path) if not key.isdigit())
            if isinstance(number, int | float) and not isinstance(number, bool) and name not in exponents.converted:
                yield NowText(text, number)

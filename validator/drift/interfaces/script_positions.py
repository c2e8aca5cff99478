"""Calls of shell scripts that pass what they passed before a change, while the script takes its positions otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.analysis.commands.same_names import likeness
from validator.analysis.commands.script_calls import ScriptCall, ScriptCalls
from validator.analysis.commands.script_parameters import Position
from validator.drift.change import Change, Side
from validator.source import SourceFile


class Moved(NamedTuple):
    """A call with an argument whose position another variable takes now."""

    call: ScriptCall
    number: int
    old: Position
    new: Position


class ScriptPositions:
    """The arguments that mean something else since a change."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def moved(self) -> list[Moved]:
        taken = dict(self._taken_otherwise())
        if not taken:
            return []
        earlier = Counter(_key(self.change.before, call) for call in _calls(self.change.before).all)
        found = []
        for call in _calls(self.change.after).all:
            rows = taken.get(call.script, {})
            if rows and earlier[_key(self.change.after, call)]:
                found += [Moved(call, n, *rows[n]) for n in sorted(rows) if _is_stale(call, n, *rows[n])][:1]
        return found

    def _taken_otherwise(self) -> Iterator[tuple[SourceFile, dict[int, tuple[Position, Position]]]]:
        """By script the positions that another variable takes now, where one of the two has another position in the
        other revision: a variable that only goes by another name is the same."""
        for path in self.change.changed:
            old, new = (side.by_absolute.get(path) for side in (self.change.before, self.change.after))
            if old is None or new is None or not all("script" in each.facts.extra for each in (old, new)):
                continue
            was = _calls(self.change.before).signature(old).positions
            now = _calls(self.change.after).signature(new).positions
            rows = {n: (was[n], now[n]) for n in was.keys() & now.keys() if _differ(n, was, now)}
            if rows:
                yield new, rows


def _calls(side: Side) -> ScriptCalls:
    calls: ScriptCalls = side.project.analysis(ScriptCalls)
    return calls


def _key(side: Side, call: ScriptCall) -> tuple[str, ...]:
    return (side.project.files[call.run.path].absolute, *call.written)


def _differ(number: int, was: dict[int, Position], now: dict[int, Position]) -> bool:
    old, new = was[number].names, now[number].names
    if not old or not new or any(likeness(one, other) for one in old for other in new):
        return False
    later = any(n != number and set(position.names) & set(old) for n, position in now.items())
    return later or any(n != number and set(position.names) & set(new) for n, position in was.items())


def _is_stale(call: ScriptCall, number: int, old: Position, new: Position) -> bool:
    """Whether a call passes something at a position, and not by name what is taken there now."""
    if number > len(call.arguments):
        return False
    name = call.arguments[number - 1].name
    return not any(likeness(name, each) for each in new.names) or any(likeness(name, each) for each in old.names)

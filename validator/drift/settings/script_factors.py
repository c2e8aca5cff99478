"""Numbers of processes or nodes that a change took out of arithmetic in a script, which is else as it was:
`$((BATCH / NODES / GPUS))` that is `$((BATCH / GPUS))` now."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from validator.domains.axes import axes_of
from validator.drift.change import Change
from validator.drift.statements.drops import part_that_went
from validator.facts.model import At
from validator.facts.script import Assign, Command, Piece, Script, Word, parts

# Options of launchers that say how many processes or nodes there are: torchrun, deepspeed, accelerate, srun.
_COUNTING = frozenset({
    "nnodes", "nproc_per_node", "num_nodes", "num_gpus", "num_machines", "num_processes", "nodes", "ntasks",
    "ntasks_per_node", "gpus_per_node",
})  # fmt: skip
_SIGNS = re.compile(r"\$\{?(\w+)(?::?-[^}]*)?\}?")


class LostFactor(NamedTuple):
    """A factor that went: where the arithmetic stands now, what it was before, and the factor."""

    path: str
    at: At
    before: str
    factor: str


class ScriptFactors:
    """Asked for with `change.analysis(ScriptFactors)`."""

    def __init__(self, change: Change) -> None:
        self.change = change

    @cached_property
    def lost(self) -> list[LostFactor]:
        found: list[LostFactor] = []
        for old, source in self.change.settings_files:
            before, after = old.facts.extra.get("script"), source.facts.extra.get("script")
            if before is not None and after is not None and not self.change.modules:  # code may reckon with it now
                found += self._in_script(source.path, before, after)
        return found

    def _in_script(self, path: str, before: Script, after: Script) -> Iterator[LostFactor]:
        rows = [_arithmetic(script) for script in (before, after)]
        known = {piece.value for pieces in rows[0].values() for piece in pieces}
        fresh = [piece.value for pieces in rows[1].values() for piece in pieces if piece.value not in known]
        for name in rows[0].keys() & rows[1].keys():
            (was, *others), (now, *more) = rows[0][name], rows[1][name]
            old, new = _expression(was.value), _expression(now.value)
            if others or more or old is None or new is None:
                continue
            part = part_that_went(old, new, "factor")
            if isinstance(part, ast.Name) and any(re.search(rf"\b{part.id}\b", text) for text in fresh):
                continue  # it stands in another variable now
            if isinstance(part, ast.Name) and (axes_of(part.id) or part.id in self._counts):
                at = (now.line, now.column, now.line, now.column + max(now.width, 1))
                yield LostFactor(path, at, was.value.strip(), part.id)

    @cached_property
    def _counts(self) -> frozenset[str]:
        """The variables by which scripts of the project tell launchers how many processes or nodes there are."""
        found: set[str] = set()
        for source in self.change.after.project.files.values():
            script = source.facts.extra.get("script")
            for command in script.every() if script is not None else ():
                if isinstance(command, Command):
                    found.update(_counted(command.words))
        return frozenset(found)


def _counted(words: tuple[Word, ...]) -> Iterator[str]:
    for word, value in zip(words, (*words[1:], None), strict=True):
        first = word.pieces[0].value if word.pieces else ""
        option, sign, _ = first.lstrip("-").partition("=")
        if first.startswith("--") and option.replace("-", "_") in _COUNTING:
            given = word if sign else value
            yield from (piece.value for piece in (given.pieces if given else ()) if piece.kind == "variable")


def _arithmetic(script: Script) -> dict[str, list[Piece]]:
    """By the variable that it is given to the arithmetic of a script."""
    found: dict[str, list[Piece]] = {}
    for each in parts(script):
        if isinstance(each, Assign) and each.value is not None:
            pieces = [piece for piece in each.value.pieces if piece.kind == "arithmetic"]
            if pieces and len(each.value.pieces) == 1:
                found.setdefault(each.name, []).extend(pieces)
    return found


def _expression(text: str) -> ast.expr | None:
    """Arithmetic as an expression of Python, which has the same signs; None of what is none."""
    try:
        return ast.parse(_SIGNS.sub(r"\1", text).strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None

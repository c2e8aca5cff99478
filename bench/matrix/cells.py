"""The cells of a compatibility matrix: the eight rows, the full product, and a small cover of its pairs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from bench import backends
from bench.configuration import Configuration

MAX_CELLS = 64
Setting = tuple[str, Any]

AXES: Mapping[str, tuple[Any, ...]] = {
    "backend": tuple(backends.variants()),
    "attn": ("sdpa", "flash_attention_2", "flex"),
    "compile": ("none", "blocks", "full", "deepcompile"),
    "packing": (True, False),
    "num_layers": (2, 4),
}
"""The full matrix. Backends are named by their variants: `zeroN` is deepspeed with that stage."""


class Cell(NamedTuple):
    """A row of the matrix: what people call it, and what runs."""

    name: str
    configuration: Configuration


def eight(base: Configuration, compile_mode: str) -> list[Cell]:
    """Flash attention × compile × packing, the default row (all three off) first."""
    found = []
    # In the order of the old table: none, each alone, each pair, all three.
    for flags in sorted(itertools.product((False, True), repeat=3), key=lambda f: (sum(f), [not x for x in f])):
        flash, compiled, packed = flags
        words = ["flash-attn"] * flash + ["compile"] * compiled + ["packing"] * packed
        cell = replace(
            base, attn="flash_attention_2" if flash else "sdpa", compile=compile_mode if compiled else "none",
            packing=packed,
        )  # fmt: skip
        found.append(Cell(" + ".join(words) or "default", cell))
    return found


def configure(base: Configuration, values: Mapping[str, Any]) -> Cell:
    """The cell that has `values`, one per axis, and is otherwise like `base`."""
    changes = dict(values)
    backend = str(changes["backend"])
    changes |= backends.variants()[backend]
    attn = str(changes["attn"]).replace("flash_attention_", "fa")
    packed = "packed" if changes["packing"] else "padded"
    name = f"{backend} {attn} {changes['compile']} {packed} L{changes['num_layers']}"
    return Cell(name, replace(base, **changes))


class Refused(NamedTuple):
    """Settings that occur together in no cell that could run, with the reason that one such cell gives."""

    settings: tuple[Setting, ...]
    reason: str


def product(
    base: Configuration, axes: Mapping[str, Sequence[Any]], refusal: Callable[[Configuration], tuple[str, str] | None]
) -> tuple[list[tuple[Cell, frozenset[Setting]]], dict[frozenset[Setting], str]]:
    """All cells that could run with their settings, and the settings of the others with the reason: the first of the
    two texts of `refusal`."""
    possible, refused = [], {}
    for values in itertools.product(*axes.values()):
        named = dict(zip(axes, values, strict=True))
        cell, settings = configure(base, named), frozenset(named.items())
        told = refusal(cell.configuration)
        if told is None:
            possible.append((cell, settings))
        else:
            refused[settings] = told[0]
    return possible, refused


def _subsets(settings: frozenset[Setting], strength: int) -> set[frozenset[Setting]]:
    ordered = sorted(settings, key=str)
    return {frozenset(part) for part in itertools.combinations(ordered, strength)}


def cover(
    possible: Sequence[tuple[Cell, frozenset[Setting]]], strength: int, limit: int = MAX_CELLS,
    measured: Callable[[Cell], bool] = lambda cell: False,
) -> list[Cell]:  # fmt: skip
    """Few cells in which every combination of `strength` settings occurs that occurs in any, at most `limit`.

    Those already `measured` come first. Then greedy: always the cell with the most combinations that are still
    missing; the first of several.
    """
    parts = [(cell, _subsets(settings, strength)) for cell, settings in possible]
    missing = set().union(*(subsets for _, subsets in parts)) if parts else set()
    chosen: list[Cell] = []
    for cell, subsets in parts:
        if measured(cell) and len(chosen) < limit:
            chosen.append(cell)
            missing -= subsets
    while missing and len(chosen) < limit:
        cell, subsets = max(parts, key=lambda part: len(part[1] & missing))
        chosen.append(cell)
        missing -= subsets
    return chosen


def never(
    possible: Sequence[tuple[Cell, frozenset[Setting]]], refused: Mapping[frozenset[Setting], str], strength: int
) -> list[Refused]:
    """Combinations of `strength` settings that occur in refused cells alone."""
    occurring = {part for _, settings in possible for part in _subsets(settings, strength)}
    found: dict[frozenset[Setting], str] = {}
    for settings, reason in refused.items():
        for part in _subsets(settings, strength):
            if part not in occurring:
                found.setdefault(part, reason)
    return [Refused(tuple(sorted(part, key=str)), reason) for part, reason in found.items()]


def reference(cell: Configuration) -> Configuration:
    """What a cell's losses are held against: the same model, data and steps, eager, in fp32, padded, on one process."""
    return replace(
        cell, backend=Configuration.backend, zero_stage=Configuration.zero_stage, attn="eager", compile="none",
        dtype="fp32", head="full", packing=False, cpu_offload=False, gradient_checkpointing=False,
    )  # fmt: skip
